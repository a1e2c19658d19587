//! The cost of a pattern of a JSON Schema, before it is compiled.
//!
//! The validator replaces classes such as `\s` one after the other, and parses the whole pattern again after each of them. So a pattern of a
//! few kilobytes can take minutes.

/// The largest number of bytes that may be parsed for one pattern. They take some tens of milliseconds.
const MAX_PARSED_BYTES: usize = 512 * 1024;
/// The number of bytes that replace `\s`, which is the longest replacement.
const SPACE_BYTES: usize = 180;
/// The number of bytes that replace `\d` or `\w`.
const WORD_BYTES: usize = 14;

/// Returns the number of bytes that are parsed until all classes of a pattern are replaced.
fn parsed_bytes(pattern: &str) -> usize {
    let (mut parses, mut bytes, mut characters) = (1_usize, pattern.len(), pattern.chars());
    while let Some(character) = characters.next() {
        if character != '\\' {
            continue;
        }
        let added = match characters.next() {
            Some('s' | 'S') => SPACE_BYTES,
            Some('d' | 'D' | 'w' | 'W') => WORD_BYTES,
            Some('c') => 0,
            _ => continue,
        };
        (parses, bytes) = (parses + 1, bytes + added);
    }
    parses.saturating_mul(bytes)
}

/// Returns whether the validator can read a pattern within some tens of milliseconds.
pub(crate) fn is_quick_pattern(pattern: &str) -> bool {
    parsed_bytes(pattern) <= MAX_PARSED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_grows_with_the_classes_and_not_with_other_escapes() {
        assert_eq!(parsed_bytes("^a$"), 3);
        assert_eq!(parsed_bytes(r"\.\/\\s"), 7);
        assert_eq!(parsed_bytes(r"\d\cA"), 3 * (5 + WORD_BYTES));
        assert!(is_quick_pattern(&r"\s*\w+\.".repeat(15)) && is_quick_pattern(&r"\d{4}-".repeat(100)));
        for class in [r"\s", r"\D", r"\cA", r"[\s]"] {
            assert!(!is_quick_pattern(&class.repeat(1_000)), "{class}");
        }
        assert!(is_quick_pattern(&"x".repeat(10_000)));
    }
}
