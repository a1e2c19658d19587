//! Makes a text that a pattern of a schema matches.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};

use super::budget::Budget;

/// The largest number of bytes of a made text.
const MAX_BYTES: usize = 10_000;
/// The largest number of times that a repetition is repeated beyond its minimum.
const MAX_MORE: usize = 64;
/// The characters that are used where a pattern allows them.
const PREFERRED: [char; 3] = ['a', '1', ' '];

/// Returns a text with `least` to `most` characters that a pattern matches. `None` if none is found within the budget, and for a pattern with
/// lookaheads or references, which the parser does not know.
pub(super) fn text_matching(pattern: &str, least: usize, most: usize, budget: &mut Budget) -> Option<String> {
    // The parser replaces each named class by its ranges, so it needs more steps than other work on the same number of bytes.
    budget.take_steps(pattern.len())?;
    let pattern = regex_syntax::parse(pattern).ok()?;
    let mut maker = TextMaker { text: String::new(), more: 0, budget };
    for more in (0..=least.min(MAX_MORE)).chain([least]) {
        maker.text.clear();
        maker.more = u32::try_from(more).ok()?;
        let is_made = maker.add(&pattern).is_some();
        maker.budget.take_steps_for(maker.text.len())?;
        if is_made && (least..=most).contains(&maker.text.chars().count()) {
            return Some(maker.text);
        }
    }
    None
}

/// Makes a text from the parts of a pattern.
struct TextMaker<'a> {
    text: String,
    /// The number of times that each repetition is repeated beyond its minimum, but not beyond its maximum.
    more: u32,
    budget: &'a mut Budget,
}

impl TextMaker<'_> {
    /// Adds a text that a part of a pattern matches. Returns `None` if there is no such text, or if it is too long. The text of a part is
    /// always the same.
    fn add(&mut self, part: &Hir) -> Option<()> {
        self.budget.take_steps(1)?;
        match part.kind() {
            HirKind::Empty | HirKind::Look(_) => Some(()),
            HirKind::Literal(literal) => self.push(std::str::from_utf8(&literal.0).ok()?, 1),
            HirKind::Class(Class::Unicode(class)) => self.push(character_of(class)?.encode_utf8(&mut [0; 4]), 1),
            HirKind::Class(Class::Bytes(_)) => None,
            HirKind::Repetition(repetition) => self.repeat(repetition),
            HirKind::Capture(capture) => self.add(&capture.sub),
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part)),
            HirKind::Alternation(parts) => parts.iter().find_map(|part| {
                let before = self.text.len();
                let is_added = self.add(part);
                if is_added.is_none() {
                    self.text.truncate(before);
                }
                is_added
            }),
        }
    }

    /// Adds the text of a repetition. The repeated part is visited once: with repetitions within repetitions, the number of visits would be
    /// the product of all their numbers, even if no visit adds a character.
    fn repeat(&mut self, repetition: &Repetition) -> Option<()> {
        let times = repetition.min.saturating_add(self.more).min(repetition.max.unwrap_or(u32::MAX));
        if times == 0 {
            return Some(());
        }
        let before = self.text.len();
        self.add(&repetition.sub)?;
        self.budget.take_steps_for(self.text.len() - before)?;
        let once = self.text[before..].to_owned();
        self.push(&once, usize::try_from(times - 1).ok()?)
    }

    fn push(&mut self, text: &str, times: usize) -> Option<()> {
        let bytes = text.len().checked_mul(times)?;
        if self.text.len().checked_add(bytes)? > MAX_BYTES {
            return None;
        }
        self.budget.take_steps_for(bytes)?;
        if bytes > 0 {
            self.text.push_str(&text.repeat(times));
        }
        Some(())
    }
}

fn character_of(class: &ClassUnicode) -> Option<char> {
    let ranges = class.ranges();
    let is_in =
        |wanted: char| ranges.get(ranges.partition_point(|range| range.end() < wanted)).is_some_and(|range| range.start() <= wanted);
    PREFERRED.into_iter().find(|wanted| is_in(*wanted)).or_else(|| ranges.first().map(ClassUnicodeRange::start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pattern: &str, least: usize, most: usize) -> Option<String> {
        text_matching(pattern, least, most, &mut Budget::new())
    }

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
            let text = text(pattern, least, 100);
            assert_eq!(text.as_deref(), Some(expected), "{pattern}");
            assert!(regex::Regex::new(pattern).unwrap().is_match(expected), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_without_a_possible_text_has_none() {
        for pattern in ["(?=a)b", "[", "((a{1000}){1000}){1000}", "((a{1000}){1000}){1000}b|[", "^a{30}$"] {
            assert_eq!(text(pattern, 0, 20), None, "{pattern}");
        }
        assert_eq!(text("^a?$", 5, 10), None);
    }

    fn steps(pattern: &str, least: usize) -> usize {
        let mut budget = Budget::new();
        let _ = text_matching(pattern, least, 1_000, &mut budget);
        assert!(!budget.is_spent(), "{pattern}");
        budget.taken_steps()
    }

    #[test]
    fn a_pattern_of_nested_repetitions_takes_few_steps() {
        let nested =
            |levels: usize, inner: &str, times: &str| format!("^{}{inner}{}$", "(".repeat(levels), format!("){times}").repeat(levels));
        for (inner, times) in [("|a", "*"), ("a|", "*"), ("", "{1000}"), ("|a", "+"), ("a*", "*"), ("[a-z]", "{2,}")] {
            let at = |levels| steps(&nested(levels, inner, times), 2);
            assert!(at(40) < 2 * at(20) + 100 && at(40) < 2_000, "{inner} {times}: {} and {}", at(20), at(40));
        }
        assert_eq!(text(&nested(40, "|a", "*"), 0, 10).as_deref(), Some(""));
        assert_eq!(text(&nested(3, "a", "{2}"), 0, 10).as_deref(), Some("aaaaaaaa"));
    }

    #[test]
    fn a_pattern_that_takes_too_many_steps_has_no_text_and_spends_the_budget() {
        let mut budget = Budget::new();
        let branches: Vec<_> = (0..500).map(|number| format!("a{{{}}}b{{9000}}", 9_000 + number)).collect();
        let pattern = branches.join("|");
        assert_eq!(text_matching(&pattern, 1_000, 1_000, &mut budget), None);
        assert!(budget.is_spent());
    }
}
