//! Makes a text that a pattern of a schema matches.

use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};

/// The largest number of bytes of a made text.
const MAX_BYTES: usize = 10_000;
/// The largest number of times that a repetition is repeated beyond its minimum.
const MAX_MORE: usize = 64;
/// The characters that are used where a pattern allows them.
const PREFERRED: [char; 3] = ['a', '1', ' '];

/// Returns a text with `least` to `most` characters that a pattern matches. `None` if none is found, and for a pattern with lookaheads or
/// references, which the parser does not know.
pub(super) fn text_matching(pattern: &str, least: usize, most: usize) -> Option<String> {
    let pattern = regex_syntax::parse(pattern).ok()?;
    let longer = (0..=least.min(MAX_MORE)).chain([least]);
    let mut texts = longer.filter_map(|more| {
        let mut text = String::new();
        add(&mut text, &pattern, u32::try_from(more).ok()?).then_some(text)
    });
    texts.find(|text| (least..=most).contains(&text.chars().count()))
}

/// Adds a text that a part of a pattern matches. Each repetition is repeated `more` times beyond its minimum, but not beyond its maximum.
/// Returns false if there is no such text, or if it is too long.
fn add(text: &mut String, part: &Hir, more: u32) -> bool {
    let is_added = match part.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => std::str::from_utf8(&literal.0).map(|literal| text.push_str(literal)).is_ok(),
        HirKind::Class(Class::Unicode(class)) => {
            let is_in = |wanted: char| class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&wanted));
            let found =
                PREFERRED.into_iter().find(|wanted| is_in(*wanted)).or_else(|| class.ranges().first().map(ClassUnicodeRange::start));
            found.map(|found| text.push(found)).is_some()
        }
        HirKind::Class(Class::Bytes(_)) => false,
        HirKind::Repetition(repetition) => {
            let times = repetition.min.saturating_add(more).min(repetition.max.unwrap_or(u32::MAX));
            (0..times).all(|_| add(text, &repetition.sub, more))
        }
        HirKind::Capture(capture) => add(text, &capture.sub, more),
        HirKind::Concat(parts) => parts.iter().all(|part| add(text, part, more)),
        HirKind::Alternation(parts) => parts.iter().any(|part| {
            let before = text.len();
            let is_added = add(text, part, more);
            if !is_added {
                text.truncate(before);
            }
            is_added
        }),
    };
    is_added && text.len() <= MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_a_text_that_it_matches() {
        for (pattern, least, expected) in [
            ("^[0-9]{4}$", 0, "1111"),
            ("^[A-Z]{2}-[0-9]+$", 0, "AA-1"),
            ("^(red|green)$", 0, "red"),
            ("^[a-z]{1,20}$", 5, "aaaaa"),
            (r"^\d{4}-(0[1-9]|1[0-2])$", 0, "1111-01"),
            (r"^https?:\/\/[^\s/]+$", 0, "http://a"),
            ("^[^a]$", 0, "1"),
            ("x", 0, "x"),
            ("^$", 0, ""),
        ] {
            let text = text_matching(pattern, least, 100);
            assert_eq!(text.as_deref(), Some(expected), "{pattern}");
            assert!(regex::Regex::new(pattern).unwrap().is_match(expected), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_without_a_possible_text_has_none() {
        for pattern in ["(?=a)b", "[", "((a{1000}){1000}){1000}", "((a{1000}){1000}){1000}b|[", "^a{30}$"] {
            assert_eq!(text_matching(pattern, 0, 20), None, "{pattern}");
        }
        assert_eq!(text_matching("^a?$", 5, 10), None);
    }
}
