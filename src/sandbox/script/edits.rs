//! Removes text from code without changing the lines and columns of the remaining text.

/// A span of text that is replaced by blanks. The first or last character can be replaced by another character instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edit {
    start: usize,
    end: usize,
    first: Option<char>,
    last: Option<char>,
}

/// Spans that are replaced by blanks. If two spans overlap, only the span that starts first is used.
pub(super) struct Edits<'a> {
    code: &'a str,
    edits: Vec<Edit>,
}

impl<'a> Edits<'a> {
    pub(super) fn new(code: &'a str) -> Self {
        Self { code, edits: Vec::new() }
    }

    pub(super) fn blank(&mut self, start: usize, end: usize) {
        self.edits.push(Edit { start, end, first: None, last: None });
    }

    /// Replaces the first character of a span by another character, and the rest of the span by blanks.
    pub(super) fn blank_but_first(&mut self, start: usize, end: usize, first: char) {
        self.edits.push(Edit { start, end, first: Some(first), last: None });
    }

    /// Replaces the last character of a span by another character, and the rest of the span by blanks.
    pub(super) fn blank_but_last(&mut self, start: usize, end: usize, last: char) {
        self.edits.push(Edit { start, end, first: None, last: Some(last) });
    }

    /// Returns the code after all edits. The result has the same lines as the code, and each character keeps its column, counted in UTF-16
    /// code units.
    pub(super) fn apply(mut self) -> String {
        // If several edits have the same start, the longest one comes first.
        self.edits.sort_by_key(|edit| (edit.start, std::cmp::Reverse(edit.end)));
        let mut output = String::with_capacity(self.code.len());
        let mut done = 0;
        for edit in self.edits {
            let (Some(kept), Some(gone)) = (self.code.get(done..edit.start), self.code.get(edit.start..edit.end)) else { continue };
            output.push_str(kept);
            let last = gone.char_indices().next_back().map_or(0, |(index, _)| index);
            for (index, character) in gone.char_indices() {
                let instead = if index == 0 { edit.first } else { None }.or(if index == last { edit.last } else { None });
                push_blank(&mut output, character, instead);
            }
            done = edit.end;
        }
        output.push_str(self.code.get(done..).unwrap_or_default());
        output
    }
}

fn push_blank(output: &mut String, character: char, instead: Option<char>) {
    if is_line_end(character) {
        output.push(character);
        return;
    }
    output.push(instead.unwrap_or(' '));
    output.extend(std::iter::repeat_n(' ', character.len_utf16() - 1));
}

pub(super) fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

/// Returns the offset of the next token, after blanks and comments.
pub(super) fn next_token(code: &str, from: usize) -> usize {
    let mut position = from;
    loop {
        let Some(rest) = code.get(position..) else { return code.len() };
        let trimmed = rest.trim_start_matches(|character: char| character.is_whitespace() || character == '\u{feff}');
        position += rest.len() - trimmed.len();
        let length = if trimmed.starts_with("//") {
            trimmed.find(is_line_end)
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment.find("*/").map(|length| length + 4)
        } else {
            return position;
        };
        position += length.unwrap_or(trimmed.len());
    }
}

/// Returns the word that begins at this position. Returns an empty text if there is no word.
pub(super) fn word_at(code: &str, position: usize) -> &str {
    let rest = code.get(position..).unwrap_or_default();
    let end = rest.find(|character: char| !character.is_alphanumeric() && !matches!(character, '_' | '$')).unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blanked_leaves_lines_and_columns() {
        let code = "a\u{1f600}\r\nb;c";
        let mut edits = Edits::new(code);
        edits.blank_but_first(0, code.len() - 1, ';');
        edits.blank(1, 5);
        assert_eq!(edits.apply(), ";  \r\n  c");
    }

    #[test]
    fn tokens_are_found_behind_comments() {
        assert_eq!(next_token("a /* b */ // c\n d", 1), 16);
        assert_eq!(next_token("a // c", 1), 6);
        assert_eq!(next_token("a /* c", 1), 6);
        assert_eq!(word_at("a public b", 2), "public");
    }
}
