//! The four string formats that a form can require.

use std::sync::LazyLock;

use regex::Regex;

/// A string format of MCP's restricted schema. Other formats are not checked here, but by the server.
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
            // The URL parser ignores whitespace and line ends, but a URI must not contain any.
            Self::Uri => !text.contains(|next: char| next.is_whitespace() || next.is_control()) && url::Url::parse(text).is_ok(),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
        }
    }
}

/// Returns whether mail servers would accept the address. RFC 5322 allows more kinds of addresses.
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

/// Returns whether the text is a `full-date` of RFC 3339. The pattern is needed because jiff also accepts other date formats of ISO 8601.
fn is_date(text: &str) -> bool {
    static SHAPE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").expect("a valid pattern"));
    SHAPE.is_match(text) && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns whether the text is a `date-time` of RFC 3339, with seconds and an offset. Second 60 is allowed, for leap seconds.
fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        let (hour, minute) = ("(?:[01][0-9]|2[0-3])", "[0-5][0-9]");
        Regex::new(&format!(r"^[Tt]{hour}:{minute}:(?:{minute}|60)(?:\.[0-9]+)?(?:[Zz]|[+-]{hour}:{minute})$")).expect("a valid pattern")
    });
    text.split_at_checked(10).is_some_and(|(date, time)| is_date(date) && TIME.is_match(time))
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
        for text in [
            "2025-02-29",
            "1900-02-29",
            "2025-13-01",
            "2025-00-01",
            "2025-04-31",
            "2025-1-01",
            "25-11-2025",
            "2025-11-25 ",
            "2025/11/25",
            "2025-W48-2",
        ] {
            assert!(!Format::Date.fits(text), "{text}");
        }
    }

    #[test]
    fn a_date_and_time_has_seconds_and_an_offset() {
        for text in [
            "2025-11-25T12:30:00Z",
            "2025-11-25t12:30:00.125z",
            "2025-11-25T12:30:00+01:00",
            "2016-12-31T23:59:60Z",
            "2025-11-25T12:30:00-23:59",
        ] {
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
            "2025-11-25T12:30:00+24:00",
            "2025-02-29T12:30:00Z",
            "20251125T123000Z",
            "2025-11-25T12:30:00Z[UTC]",
            "2025-11-25T12:30:00Z\n",
            "2025-11-2éT12:30:00Z",
        ] {
            assert!(!Format::DateTime.fits(text), "{text}");
        }
    }
}
