//! The cost of a pattern of a JSON Schema, before it is compiled.
//!
//! The validator replaces classes such as `\s` one after the other, and parses the whole pattern again after each of them. So a pattern of a
//! few kilobytes can take minutes. A Unicode property, or any class of a pattern that ignores case, becomes hundreds of ranges.

/// The largest number of bytes that may be parsed for one pattern. They take some tens of milliseconds.
const MAX_PARSED_BYTES: usize = 512 * 1024;
/// The number of bytes that replace `\s`, which is the longest replacement.
const SPACE_BYTES: usize = 180;
/// The number of bytes that replace `\d` or `\w`.
const WORD_BYTES: usize = 14;

/// The number of plain bytes that take as long as a class with hundreds of ranges.
const RANGES_BYTES: usize = 4 * 1024;

/// Returns whether a group of the pattern ignores case, as in `(?i)` or `(?s-i:…)`.
fn ignores_case(pattern: &str) -> bool {
    pattern
        .split("(?")
        .skip(1)
        .any(|group| group.chars().take_while(|flag| flag.is_ascii_alphabetic() || *flag == '-').any(|flag| flag == 'i'))
}

/// Returns the number of bytes that are parsed until all classes of a pattern are replaced.
pub(crate) fn parsed_bytes(pattern: &str) -> usize {
    let (mut parses, mut bytes, mut characters) = (1_usize, pattern.len(), pattern.chars());
    let (mut ranges, ignores_case) = (0_usize, ignores_case(pattern));
    while let Some(character) = characters.next() {
        if character != '\\' {
            ranges += usize::from(ignores_case && matches!(character, '[' | '.'));
            continue;
        }
        let escaped = characters.next();
        let is_class = matches!(escaped, Some('s' | 'S' | 'd' | 'D' | 'w' | 'W'));
        ranges += usize::from(matches!(escaped, Some('p' | 'P')) || (ignores_case && is_class));
        let added = match escaped {
            Some('s' | 'S') => SPACE_BYTES,
            Some('d' | 'D' | 'w' | 'W') => WORD_BYTES,
            Some('c') => 0,
            _ => continue,
        };
        (parses, bytes) = (parses + 1, bytes + added);
    }
    parses.saturating_mul(bytes).saturating_add(ranges.saturating_mul(RANGES_BYTES))
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
        assert!(is_quick_pattern(r"^\p{Lu}[\p{L}\p{M}' -]*$") && is_quick_pattern(r"(?i)^[a-z][a-z0-9-]*\.(com|org)$"));
        for many in [r"\p{L}", r"[\P{L}]"] {
            assert!(!is_quick_pattern(&many.repeat(200)), "{many}");
        }
        for (group, class) in [("(?i:", "[!-~]"), ("(?s-i:", "."), ("(?xi:", r"\w")] {
            assert!(!is_quick_pattern(&format!("{group}{})", class.repeat(200))), "{group}{class}");
        }
        assert!(is_quick_pattern(&"[!-~]".repeat(200)) && is_quick_pattern(&format!("(?<i>{})", "[a-z]".repeat(200))));
    }
}
