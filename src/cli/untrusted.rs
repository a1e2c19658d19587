//! Formats untrusted text for the terminal, so that none of its lines looks like a line of this program, and it cannot control the
//! terminal.

use std::borrow::Cow;

/// The escape codes with which `Style` colours a text, and the code that ends a colour.
const COLOURS: [&str; 6] = ["[0m", "[1m", "[2m", "[31m", "[32m", "[33m"];

/// Indents each line of untrusted text except the first, so that no line looks like a line of this program.
pub(super) fn indented(text: &str) -> String {
    text.trim_end_matches('\n').replace('\n', "\n  | ")
}

/// Replaces control characters in a text with their numbers, except line ends, tabs and our own colours. Each text is already made safe
/// when it is formatted. This is the last protection, for a text that was missed.
pub(super) fn without_controls(text: &str) -> Cow<'_, str> {
    let is_safe = |next: char| !next.is_control() || next == '\n' || next == '\t';
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (index, next) in text.char_indices() {
        let rest = &text[index + next.len_utf8()..];
        let is_colour = next == '\u{1b}' && COLOURS.iter().any(|colour| rest.starts_with(colour));
        let is_line_end = next == '\r' && rest.starts_with('\n');
        if is_safe(next) || is_colour || is_line_end {
            out.push(next);
        } else {
            out.extend(next.escape_unicode());
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Style, Tone};

    #[test]
    fn a_terminal_gets_our_colours_and_no_other_control_sequence() {
        let style = Style::new(true, None);
        for tone in [Tone::Heading, Tone::Quiet, Tone::Good, Tone::Warning, Tone::Bad] {
            let text = format!("{}\ta\r\nb", style.paint(tone, "天気"));
            assert_eq!(without_controls(&text), text);
        }
        assert_eq!(without_controls("a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31mb\rc"), "a\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{9b}31mb\\u{d}c");
    }

    #[test]
    fn no_line_of_others_begins_like_one_of_this_program() {
        assert_eq!(indented("a\nhyperlight-mcp: b\n\n"), "a\n  | hyperlight-mcp: b");
        assert_eq!(indented("a"), "a");
    }
}
