//! Positions in code: lines and columns, and excerpts with carets below a position.

/// The maximum number of characters in an excerpt. A longer line is cut around the position.
const MAX_EXCERPT_CHARS: usize = 120;
/// The number of characters before the position that stay visible when a line is cut.
const CHARS_BEFORE: usize = 60;
/// The maximum number of characters of a name that a message quotes.
const MAX_NAME_CHARS: usize = 100;

/// A line and a column, counted from one. Columns are counted in UTF-16 code units, as the tools for JavaScript do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The lines of code, indexed so that many positions can be found quickly.
pub(super) struct Lines<'a> {
    code: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(code: &'a str) -> Self {
        let starts = std::iter::once(0).chain(code.match_indices('\n').map(|(index, _)| index + 1)).collect();
        Self { code, starts }
    }

    pub(super) fn position(&self, offset: usize) -> Position {
        let offset = self.code.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let column = self.code[start..offset].encode_utf16().count() + 1;
        Position { line: number(line), column: number(column) }
    }

    /// Returns the line of a position with its number, and a second line with carets below the characters from `start` to `end`.
    pub(super) fn excerpt(&self, start: usize, end: usize) -> String {
        let start = self.code.floor_char_boundary(start);
        let end = self.code.floor_char_boundary(end).max(start);
        let line = self.starts.partition_point(|first| *first <= start);
        let first = self.starts[line - 1];
        let last = self.code[start..].find('\n').map_or(self.code.len(), |length| start + length);
        let text = self.code[first..last].trim_end_matches('\r');
        let before = self.code[first..start].chars().count();
        let marked = self.code[start..end.min(last)].chars().count().max(1);
        let skipped = if text.chars().count() > MAX_EXCERPT_CHARS { before.saturating_sub(CHARS_BEFORE) } else { 0 };
        let shown: String = text.chars().skip(skipped).take(MAX_EXCERPT_CHARS).map(printable).collect();
        let indent = " ".repeat(before - skipped);
        let carets = "^".repeat(marked.min(MAX_EXCERPT_CHARS.saturating_sub(before - skipped)).max(1));
        let margin = line.to_string();
        format!("{margin} | {shown}\n{} | {indent}{carets}", " ".repeat(margin.len()))
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Replaces a character that is not one column wide, so that the carets are below the right characters.
fn printable(character: char) -> char {
    if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
        ' '
    } else {
        character
    }
}

/// Returns a name from the code in a form that a message can quote: the name is cut, and contains no control or direction characters.
pub(super) fn shown(name: &str) -> String {
    let short: String = name.chars().take(MAX_NAME_CHARS).map(printable).collect();
    if short.len() < name.len() && name.chars().count() > MAX_NAME_CHARS { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_from_one_in_utf_16_units() {
        let lines = Lines::new("ab\n\u{1f600}x\n");
        assert_eq!(lines.position(0), Position { line: 1, column: 1 });
        assert_eq!(lines.position(2), Position { line: 1, column: 3 });
        assert_eq!(lines.position(7), Position { line: 2, column: 3 });
        assert_eq!(lines.position(99), Position { line: 3, column: 1 });
    }

    #[test]
    fn an_excerpt_has_carets_under_the_place() {
        let code = "const a = 1;\n\tw.get_forcast({});\r\nb";
        let start = code.find("get").unwrap();
        assert_eq!(Lines::new(code).excerpt(start, start + 11), "2 |  w.get_forcast({});\n  |    ^^^^^^^^^^^");
        assert_eq!(Lines::new("").excerpt(0, 0), "1 | \n  | ^");
    }

    #[test]
    fn a_long_line_is_shown_around_its_place() {
        let code = format!("{}HERE{}", "a".repeat(5_000), "b".repeat(5_000));
        let excerpt = Lines::new(&code).excerpt(5_000, 5_004);
        let (line, carets) = excerpt.split_once('\n').unwrap();
        assert_eq!(line.find("HERE"), carets.find("^^^^"));
        assert!(excerpt.chars().count() < 260);
    }

    #[test]
    fn a_name_cannot_hide_anything() {
        assert_eq!(shown("a\u{202e}b\nc"), "a b c");
        assert_eq!(shown(&"x".repeat(200)).chars().count(), 101);
    }
}
