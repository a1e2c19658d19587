//! The four formats that a form can ask for.

/// A format of MCP's restricted schema. One that is not known is not checked here: the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

impl Format {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "email" => Some(Self::Email),
            "uri" => Some(Self::Uri),
            "date" => Some(Self::Date),
            "date-time" => Some(Self::DateTime),
            _ => None,
        }
    }

    pub(super) fn described(self) -> &'static str {
        match self {
            Self::Email => "an e-mail address",
            Self::Uri => "an absolute URI",
            Self::Date => "a date like 2025-11-25",
            Self::DateTime => "a date and time like 2025-11-25T12:30:00Z",
        }
    }

    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Email => is_email(text),
            // The parser forgives blanks and line ends, which no URI has.
            Self::Uri => !text.contains(|next: char| next.is_whitespace() || next.is_control()) && url::Url::parse(text).is_ok(),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
        }
    }
}

/// What mail servers take, not all that RFC 5322 allows.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom = |next: char| !next.is_whitespace() && !next.is_control() && !"@()<>[]:;,\\\"".contains(next);
    let is_local = (1..=64).contains(&local.len()) && local.split('.').all(|part| !part.is_empty() && part.chars().all(is_atom));
    let is_label = |label: &str| {
        let fits = |next: char| next.is_alphanumeric() || next == '-';
        (1..=63).contains(&label.len()) && label.chars().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    is_local && domain.len() <= 253 && domain.split('.').all(is_label)
}

/// RFC 3339's `full-date`.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let (Some(year), Some(month), Some(day)) = (digits(&bytes[..4]), digits(&bytes[5..7]), digits(&bytes[8..])) else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// RFC 3339's `date-time`: with seconds and an offset.
fn is_date_time(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else { return false };
    let Some(time) = rest.strip_prefix(['T', 't']) else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let offset = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let end = fraction.find(|next: char| !next.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return false;
            }
            &fraction[end..]
        }
    };
    is_date(date) && is_clock(clock.as_bytes()) && is_offset(offset)
}

fn is_clock(clock: &[u8]) -> bool {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock else { return false };
    // A leap second is the sixtieth.
    let within = |first: u8, second: u8, most: u32| digits(&[first, second]).is_some_and(|number| number <= most);
    within(*h1, *h2, 23) && within(*m1, *m2, 59) && within(*s1, *s2, 60)
}

fn is_offset(offset: &str) -> bool {
    match offset.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', hours @ .., b':', m1, m2] => {
            hours.len() == 2 && digits(hours).is_some_and(|hours| hours <= 23) && digits(&[*m1, *m2]).is_some_and(|minutes| minutes <= 59)
        }
        _ => false,
    }
}

fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0, |number: u32, next| next.is_ascii_digit().then(|| number * 10 + u32::from(next - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_local_part_and_a_domain() {
        for text in ["a@b.c", "a.b+tag@mail.example.com", "ada@localhost", "jörg@bücher.example"] {
            assert!(Format::Email.fits(text), "{text}");
        }
        for text in ["", "a", "@b.c", "a@", "a@b..c", "a b@c.d", "a@b c.d", "a@-b.c", ".a@b.c", "a@b.c\n", "a@b@c.d", &"a".repeat(300)] {
            assert!(!Format::Email.fits(text), "{text}");
        }
    }

    #[test]
    fn a_uri_is_absolute_and_without_blanks() {
        for text in ["https://example.com/a?b#c", "mailto:a@b.c", "urn:isbn:1", "file:///etc/hosts"] {
            assert!(Format::Uri.fits(text), "{text}");
        }
        for text in ["", "example.com", "/a/b", "https://", "https://a b", " https://a", "https://a\n"] {
            assert!(!Format::Uri.fits(text), "{text}");
        }
    }

    #[test]
    fn a_date_is_one_of_the_calendar() {
        for text in ["2025-11-25", "2024-02-29", "2000-02-29", "0001-01-01"] {
            assert!(Format::Date.fits(text), "{text}");
        }
        for text in
            ["2025-02-29", "1900-02-29", "2025-13-01", "2025-00-01", "2025-04-31", "2025-1-01", "25-11-2025", "2025-11-25 ", "2025/11/25"]
        {
            assert!(!Format::Date.fits(text), "{text}");
        }
    }

    #[test]
    fn a_date_and_time_has_seconds_and_an_offset() {
        for text in ["2025-11-25T12:30:00Z", "2025-11-25t12:30:00.125z", "2025-11-25T12:30:00+01:00", "2016-12-31T23:59:60Z"] {
            assert!(Format::DateTime.fits(text), "{text}");
        }
        for text in [
            "2025-11-25",
            "2025-11-25T12:30Z",
            "2025-11-25T12:30:00",
            "2025-11-25 12:30:00Z",
            "2025-11-25T24:00:00Z",
            "2025-11-25T12:30:00.Z",
            "2025-11-25T12:30:00+1:00",
            "2025-11-25T12:30:00+01:60",
            "2025-11-2éT12:30:00Z",
        ] {
            assert!(!Format::DateTime.fits(text), "{text}");
        }
    }
}
