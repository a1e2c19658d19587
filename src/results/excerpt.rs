//! Shows the lines around a position in the agent's code, as compilers do.

/// Number of lines that are shown before the reported line.
const BEFORE: usize = 2;
/// Number of lines that are shown after the reported line.
const AFTER: usize = 1;
/// Maximum number of characters in one line that are shown.
const MAX_LINE_CHARS: usize = 120;

/// Returns the reported line, the lines around it, and a caret under the column. Lines and columns count from 1. Returns `None` if the
/// code has no such line.
pub(super) fn excerpt(code: &str, line: u32, column: Option<u32>) -> Option<String> {
    let line = usize::try_from(line).ok()?.checked_sub(1)?;
    let first = line.saturating_sub(BEFORE);
    let shown: Vec<&str> = code.lines().skip(first).take(line - first + 1 + AFTER).collect();
    if shown.len() <= line - first {
        return None;
    }
    let width = (first + shown.len()).to_string().len();
    let mut text = Vec::with_capacity(shown.len() + 1);
    for (index, content) in shown.into_iter().enumerate() {
        let number = first + index;
        let here = number == line;
        let column = column.filter(|_| here).and_then(|column| usize::try_from(column).ok()).and_then(|column| column.checked_sub(1));
        let (content, column) = window(content, column);
        text.push(format!("{} {:>width$} | {content}", if here { '>' } else { ' ' }, number + 1).trim_end().to_owned());
        if let Some(column) = column {
            text.push(format!("  {:>width$} | {}^", "", " ".repeat(column)));
        }
    }
    Some(text.join("\n"))
}

/// Returns the line with its tabs replaced by spaces, and the position of the column in the returned line. A long line is cut to the part
/// around the column.
fn window(line: &str, column: Option<usize>) -> (String, Option<usize>) {
    let length = line.chars().take(column.unwrap_or(0).max(MAX_LINE_CHARS) + 1).count();
    let column = column.filter(|column| *column <= length);
    let start = column.map_or(0, |column| column.saturating_sub(MAX_LINE_CHARS * 2 / 3));
    let mut content: String =
        line.chars().skip(start).take(MAX_LINE_CHARS).map(|character| if character == '\t' { ' ' } else { character }).collect();
    if line.chars().nth(start + MAX_LINE_CHARS).is_some() {
        content.push('…');
    }
    if start > 0 {
        content.insert(0, '…');
    }
    (content, column.map(|column| column - start + usize::from(start > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "const a = 1\n\nexport const handler = () => {\n\treturn a.b.c\n}\n";

    #[test]
    fn a_place_is_shown_with_the_lines_around_it() {
        let expected = "  2 |\n  3 | export const handler = () => {\n> 4 |  return a.b.c\n    |            ^\n  5 | }";
        assert_eq!(excerpt(CODE, 4, Some(12)).unwrap(), expected);
        assert_eq!(excerpt(CODE, 1, None).unwrap(), "> 1 | const a = 1\n  2 |");
    }

    #[test]
    fn a_place_that_is_not_there_is_not_shown() {
        assert_eq!((excerpt(CODE, 0, Some(1)), excerpt(CODE, 6, None), excerpt("", 1, None)), (None, None, None));
        assert_eq!(excerpt("x", 1, Some(99)).unwrap(), "> 1 | x");
        assert_eq!(excerpt("x", 1, Some(0)).unwrap(), "> 1 | x");
    }

    #[test]
    fn of_a_long_line_the_part_around_the_column_is_shown() {
        let line = format!("{}!{}", "a".repeat(5_000), "ß".repeat(5_000));
        let text = excerpt(&line, 1, Some(5_001)).unwrap();
        let (shown, caret) = text.split_once('\n').unwrap();
        assert_eq!(shown.chars().nth(caret.chars().count() - 1), Some('!'));
        assert!(text.len() < 500);
    }
}
