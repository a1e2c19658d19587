//! Formats untrusted text for the terminal, so that none of its lines looks like a line of this program, and it cannot control the
//! terminal.

use std::borrow::Cow;

use crate::command::Style;

/// The begin of a row that continues a text of others. Its mark is that of an approval request.
pub(super) const CONTINUED: &str = "  | ";

/// The escape codes with which `Style` colours a text, and the code that ends a colour.
const COLOURS: [&str; 6] = ["[0m", "[1m", "[2m", "[31m", "[32m", "[33m"];

/// Puts a mark before each line of untrusted text except the first, so that no line looks like a line of this program.
///
/// `screen` is the layout of a terminal. There, the text is also broken into rows, because the terminal itself would begin a row at the first
/// column, without a mark. The first row is printed after `used` columns. A file or a pipe (`None`) has no rows, and programs search there
/// for whole lines, so lines stay as they are.
pub(super) fn indented(screen: Option<&Style>, used: usize, text: &str) -> String {
    match screen {
        // A tab can take up to 8 columns, depending on where it is.
        Some(style) => style.rows(used, CONTINUED, &text.replace('\t', "    ")).join("\n"),
        None => text.trim_end_matches('\n').replace('\n', &format!("\n{CONTINUED}")),
    }
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
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::command::Tone;

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
        for screen in [None, Some(&Style::default())] {
            assert_eq!(indented(screen, 0, "a\nhyperlight-mcp: b\n\n"), "a\n  | hyperlight-mcp: b");
            assert_eq!(indented(screen, 0, "a"), "a");
        }
    }

    #[test]
    fn no_row_that_a_terminal_would_break_begins_like_a_line_of_this_program() {
        let style = Style::new(false, Some(40));
        let prefix = "server \"evil\" asks: ";
        for filler in [".", "\t", "天", "e\u{301}", "\u{1f600}"] {
            for count in 0..60 {
                let text = format!("{}server \"bank\" asks: your code", filler.repeat(count));
                let shown = format!("{prefix}{}", indented(Some(&style), prefix.len(), &text));
                for (index, row) in shown.lines().enumerate() {
                    assert!(row.width() <= 40 && (index == 0 || row.starts_with("  | ")), "{row:?} of {text:?}");
                }
            }
        }
        let long = "x".repeat(200);
        assert_eq!(indented(None, 0, &long), long);
    }
}
