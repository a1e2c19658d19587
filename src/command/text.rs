//! Formats text for a terminal: wraps it, aligns it in columns, and colours it.

use std::collections::BTreeSet;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use unicode_width::UnicodeWidthChar as _;

use crate::text::is_unseen;

/// Width that is used if the terminal's width is unknown.
pub const DEFAULT_WIDTH: usize = 80;
/// The number of columns by which the further lines of an item are indented.
const HANGING: usize = 2;
/// The smallest width for which texts are laid out. On a narrower terminal, the terminal itself would break rows, and a part of a text of others
/// could look like a row of this program. So nobody is asked there.
pub const MIN_WIDTH: usize = 20;
const MAX_WIDTH: usize = 200;
/// The smallest number of columns for the text of a field beside its name. If there are fewer, the text is below the name.
const MIN_BESIDE: usize = 16;
/// Indentation of a field's text below its name. No name of a field begins there.
const BELOW: usize = 4;
/// Mark at the begin of a row with a text of others, behind the row's indentation. No row of this program begins with it.
pub(crate) const MARK: &str = "| ";
/// Maximum number of consecutive spaces and invisible characters that are shown in full. If there are more, their number is shown instead.
const MAX_BLANKS: usize = 8;
/// Maximum number of different invisible characters that are named when a run of such characters is replaced by its length.
const MAX_NAMED: usize = 4;

/// Settings for formatted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Uses ANSI colours.
    pub color: bool,
    /// Width of the terminal in columns.
    pub width: usize,
}

/// The meaning of a text. The tone decides the text's colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Heading,
    Quiet,
    Good,
    Warning,
    Bad,
}

impl Default for Style {
    fn default() -> Self {
        Self::new(false, None)
    }
}

impl Style {
    /// Creates a style. An unknown width (`None` or 0) becomes 80. A known width is changed to at least 20 and at most 200.
    ///
    /// ```
    /// use hyperlight_mcp::command::Style;
    /// assert_eq!((Style::new(false, None).width, Style::new(false, Some(7)).width), (80, 20));
    /// ```
    #[must_use]
    pub fn new(color: bool, width: Option<usize>) -> Self {
        Self { color, width: width.filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH).clamp(MIN_WIDTH, MAX_WIDTH) }
    }

    /// Colours the text according to its tone, if colours are on.
    ///
    /// ```
    /// use hyperlight_mcp::command::{Style, Tone};
    /// assert_eq!(Style::new(true, None).paint(Tone::Bad, "no"), "\u{1b}[31mno\u{1b}[0m");
    /// assert_eq!(Style::new(false, None).paint(Tone::Bad, "no"), "no");
    /// ```
    #[must_use]
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Heading => "1",
            Tone::Quiet => "2",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Formats rows as a table without borders. Wraps long texts within the width.
    #[must_use]
    pub fn table(&self, header: &[&str], rows: Vec<Vec<String>>) -> String {
        let mut table = Table::new();
        table
            .load_style(NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(self.width).unwrap_or(u16::MAX));
        table.set_header(header.iter().copied()).add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let Some((first, rest)) = lines.split_first() else { return String::new() };
        let first = self.paint(Tone::Heading, first);
        [&first].into_iter().chain(rest).flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Formats `name   text`. The name takes `column` columns, and the text is wrapped beside it.
    #[must_use]
    pub fn field(&self, name: &str, column: usize, text: &str) -> String {
        self.hanging(name, column, 0, text)
    }

    /// Formats the same as [`Self::field`], for one item of a list. Further lines of the item are indented, so that none of them looks like
    /// another item.
    #[must_use]
    pub(crate) fn item(&self, name: &str, column: usize, text: &str) -> String {
        self.hanging(name, column, HANGING, text)
    }

    fn hanging(&self, name: &str, column: usize, further: usize, text: &str) -> String {
        if self.width < column + further + MIN_BESIDE {
            return self.below(name, further, text);
        }
        let space = " ".repeat(column + further);
        let wrapped = self.wrapped(&space, text);
        let name = pad(name, column);
        let tone = self.paint(Tone::Quiet, name.trim_end());
        let gap = &name[name.trim_end().len()..];
        let text = wrapped.get(space.len()..).unwrap_or("\n");
        if text == "\n" { format!("{tone}\n") } else { format!("{tone}{gap}{text}") }
    }

    /// Formats a field on a narrow terminal: the text is below the name, and indented more than any name.
    fn below(&self, name: &str, further: usize, text: &str) -> String {
        let mut out = String::new();
        if !name.trim().is_empty() {
            out.extend([self.paint(Tone::Quiet, name.trim_end()).as_str(), "\n"]);
        }
        let space = " ".repeat(BELOW + further);
        let wrapped = self.wrapped(&space, text);
        // The first row of an item begins further to the left than the other rows of the item.
        out.extend([&space[further..], wrapped.get(space.len()..).unwrap_or("\n")]);
        out
    }

    /// Formats an item of a list, such as a tool, that begins at the indentation `first`. Each row that continues the item has a mark, so that it
    /// looks neither like another item nor like a row of this program.
    #[must_use]
    pub(crate) fn marked(&self, first: &str, text: &str) -> String {
        let first = self.fitted(first);
        let further = format!("{first}  {MARK}");
        let rows = self.rows(columns_in(first), self.fitted(&further), text);
        [first, &rows.join("\n"), "\n"].concat()
    }

    /// Formats a text of others, with a mark at the begin of each row.
    #[must_use]
    pub(crate) fn quoted(&self, indent: &str, text: &str) -> String {
        let mark = format!("{indent}{MARK}");
        let mark = self.fitted(&mark);
        let rows = self.rows(columns_in(mark), mark, text);
        let mut out = String::new();
        for (index, row) in rows.iter().enumerate() {
            let row = if index == 0 { format!("{mark}{row}") } else { row.clone() };
            out.extend([row.trim_end(), "\n"]);
        }
        out
    }

    /// Breaks a text into rows that fit the width. The first row is printed after `used` columns. Each other row begins with `further`, also
    /// after a line break of the text.
    pub(crate) fn rows(&self, used: usize, further: &str, text: &str) -> Vec<String> {
        let room = self.width.saturating_sub(columns_in(further)).max(MIN_WIDTH / 2);
        let (mut first, mut rows) = (self.width.saturating_sub(used), Vec::new());
        if first < MIN_WIDTH / 2 && first < columns_in(text) {
            rows.push(String::new());
            first = room;
        }
        for line in text.trim_end_matches('\n').split('\n') {
            for part in wrap_line(line, first, room) {
                rows.push(if rows.is_empty() { part } else { format!("{further}{part}") });
            }
            first = room;
        }
        rows
    }

    /// Removes leading blanks of an indentation if too few columns would be left for the text.
    fn fitted<'i>(&self, indent: &'i str) -> &'i str {
        let excess = (columns_in(indent) + MIN_WIDTH / 2).saturating_sub(self.width);
        let blanks = indent.len() - indent.trim_start_matches(' ').len();
        &indent[excess.min(blanks)..]
    }

    /// Breaks a line of code into parts that fit the width, without changing a character. The first part begins with `mark`, and each
    /// further part with `further`.
    #[must_use]
    pub(crate) fn broken(&self, mark: &str, further: &str, code: &str) -> Vec<String> {
        let (mut parts, mut part, mut used) = (Vec::new(), mark.to_owned(), columns_in(mark));
        let mut is_empty = true;
        for character in code.chars() {
            let columns = columns_of(character);
            if used + columns > self.width && !is_empty {
                parts.push(std::mem::replace(&mut part, further.to_owned()));
                used = columns_in(further);
            }
            part.push(character);
            used += columns;
            is_empty = false;
        }
        parts.push(part);
        parts
    }

    /// Wraps each line of the text, and indents all lines by `indent`.
    #[must_use]
    pub fn wrapped(&self, indent: &str, text: &str) -> String {
        let indent = self.fitted(indent);
        let width = self.width.saturating_sub(columns_in(indent)).max(MIN_WIDTH / 2);
        let mut out = String::new();
        for line in text.lines() {
            for part in wrap_line(line, width, width) {
                out.push_str(indent);
                out.push_str(&part);
                out.push('\n');
            }
        }
        if out.is_empty() {
            out = format!("{indent}\n");
        }
        out
    }
}

/// Returns the number of columns that a terminal may use for a character. A mark, which is drawn over the character before it, counts as one:
/// a terminal that does not know the mark gives it a column of its own, and would break a row that is too long for it.
fn columns_of(character: char) -> usize {
    character.width().map_or(0, |columns| columns.max(1))
}

/// Returns the number of columns that a terminal may use for a text.
pub(crate) fn columns_in(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Pads the text with spaces to this number of columns. Adds at least one space, even if the text is wider.
fn pad(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(columns_in(text)).max(1)))
}

/// Breaks a line into parts: between words, or within a word that is too long. The first part has at most `first` columns, and each other part
/// at most `width`.
fn wrap_line(line: &str, first: usize, width: usize) -> Vec<String> {
    let (mut parts, mut part, mut used, mut room) = (Vec::new(), String::new(), 0, first);
    for word in line.split_inclusive(' ') {
        let needed = columns_in(word.trim_end());
        // A run of spaces never starts a new line, because many spaces could push the text before them off the screen.
        if used > 0 && needed > 0 && used + needed > room {
            parts.push(part.trim_end().to_owned());
            (part, used, room) = (String::new(), 0, width);
        }
        for character in word.chars() {
            let columns = columns_of(character);
            if used + columns > room && character != ' ' {
                parts.push(part.trim_end().to_owned());
                (part, used, room) = (String::new(), 0, width);
            }
            part.push(character);
            used += columns;
        }
    }
    parts.push(part.trim_end().to_owned());
    parts
}

/// Joins names. Puts a name in quotes if it is empty or contains white space, a comma or a quote. So one name never looks like several.
pub(crate) fn joined<N: AsRef<str>>(names: &[N]) -> String {
    let is_unclear =
        |name: &str| name.is_empty() || name.contains(|character: char| character.is_whitespace() || ",\"'".contains(character));
    let shown = names.iter().map(AsRef::as_ref).map(|name| if is_unclear(name) { format!("{name:?}") } else { name.to_owned() });
    shown.collect::<Vec<_>>().join(", ")
}

/// Replaces control characters and invisible characters with their numbers, except the characters in `kept`.
///
/// ```
/// use hyperlight_mcp::command::printable;
/// assert_eq!(printable("a\u{1b}[31m `b`\n\u{202e}", &['\n']), "a\\u{1b}[31m `b`\n\\u{202e}");
/// ```
#[must_use]
pub fn printable(text: &str, kept: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if kept.contains(&character) || is_seen(character) {
            out.push(character);
        } else {
            out += &number(character);
        }
    }
    out
}

/// Returns whether a character is visible, so that it is printed unchanged. A character without a width of its own is not, whatever it is: two
/// texts that differ must not look the same. So the marks and single letters of decomposed text, also of Hangul, are shown as numbers here.
fn is_seen(character: char) -> bool {
    // U+1171E is a mark too. It has a width in newer tables, but not in those of common C libraries.
    let is_drawn = || character.width().is_some_and(|columns| columns > 0) && character != '\u{1171e}' && !is_unseen(character);
    "'\"\\".contains(character) || (character.escape_debug().len() == 1 && is_drawn())
}

/// Returns the usual escape of a character, such as `\n`, or an escape with its number, such as `\u{202e}`.
fn number(character: char) -> String {
    let escape = character.escape_debug();
    if escape.len() > 1 { escape.collect() } else { character.escape_unicode().collect() }
}

/// Formats a text on one line, like [`printable`]. Replaces many consecutive blanks and invisible characters with their number, so that
/// they cannot push other text off the screen.
pub(crate) fn one_line(text: &str) -> String {
    let is_empty = |character: char| character == ' ' || !is_seen(character);
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| is_empty(character) != is_empty(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        let count = run.chars().count();
        if !is_empty(first) || count <= MAX_BLANKS {
            out += &printable(run, &[]);
            continue;
        }
        let kinds: BTreeSet<char> = run.chars().filter(|character| *character != ' ').collect();
        let named: Vec<String> = kinds.iter().take(MAX_NAMED).map(|character| number(*character)).collect();
        let shown = match (named.len(), kinds.len() > MAX_NAMED) {
            (0, _) => format!("[{count} blanks]"),
            (_, false) => format!("[{count} blanks: {}]", named.join(" ")),
            (_, true) => format!("[{count} blanks: {} …]", named.join(" ")),
        };
        out += &shown;
    }
    out
}

/// Formats a date and time in UTC: `2026-07-28 09:05:03`. `at` is the number of milliseconds since 1970.
///
/// ```
/// assert_eq!(hyperlight_mcp::command::date_time(1_785_229_503_000), "2026-07-28 09:05:03");
/// ```
#[must_use]
pub fn date_time(at: u64) -> String {
    let time = i64::try_from(at).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    time.unwrap_or(jiff::Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    const STYLE: Style = Style { color: false, width: 40 };

    #[test]
    fn a_long_run_of_blanks_takes_no_lines() {
        let text = format!("a{}b{}", " ".repeat(4000), " ".repeat(4000));
        assert_eq!(STYLE.wrapped("", &text), "a\nb\n");
        assert_eq!(one_line(&text), "a[4000 blanks]b[4000 blanks]");
        assert_eq!(one_line("a        b\u{1b}"), "a        b\\u{1b}");
    }

    #[test]
    fn no_character_that_looks_like_a_blank_is_printed_and_a_run_of_them_takes_no_lines() {
        for blank in
            "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2800}\u{a0}\u{200b}\u{fff0}\u{1d173}\u{e0fff}\u{1161}\u{11ff}\u{d7b0}\u{d7fb}\u{1171e}\u{13441}\u{13442}"
                .chars()
        {
            let name = format!("\\u{{{:x}}}", u32::from(blank));
            assert_eq!(printable(&format!("a{blank}b"), &[]), format!("a{name}b"));
            let run = String::from(blank).repeat(10_000);
            assert_eq!(one_line(&format!("a{run}b")), format!("a[10000 blanks: {name}]b"));
        }
        assert_eq!(one_line(&format!("a{}b", "\u{3164} \n".repeat(100))), "a[300 blanks: \\n \\u{3164}]b");
        assert_eq!(one_line(&format!("a{}b", "\u{3164}\u{2800}")), "a\\u{3164}\\u{2800}b");
    }

    #[test]
    fn every_character_that_is_printed_as_it_is_has_a_width() {
        let seen = |character: &char| printable(&character.to_string(), &[]) == character.to_string();
        let without: Vec<char> = ('\0'..=char::MAX).filter(seen).filter(|character| character.width().unwrap_or(0) == 0).collect();
        assert!(without.is_empty(), "{without:?}");
        // Words of languages whose characters have a width stay as they are.
        for word in ["한글", "naïve", "Ελληνικά", "日本語", "עברית", "русский"] {
            assert_eq!(printable(word, &[]), word);
        }
    }

    #[test]
    fn a_row_of_others_has_a_mark_also_where_it_is_wrapped() {
        let long = "one two three four five six seven eight";
        assert_eq!(STYLE.marked("  ", long), "  one two three four five six seven\n    | eight\n");
        assert_eq!(
            STYLE.quoted("      ", &format!("a\n\n{long}")),
            "      | a\n      |\n      | one two three four five six\n      | seven eight\n"
        );
        assert_eq!(STYLE.rows(36, "  | ", long), ["", "  | one two three four five six seven", "  | eight"]);
        assert_eq!(STYLE.rows(25, "  | ", "ab\ncd"), ["ab", "  | cd"]);
        let narrow = Style { width: MIN_WIDTH, ..STYLE };
        for text in [narrow.marked(&" ".repeat(14), long), narrow.quoted(&" ".repeat(14), long)] {
            assert!(text.lines().all(|row| columns_in(row) <= MIN_WIDTH && row.starts_with("    ")), "{text}");
        }
    }

    #[test]
    fn a_mark_counts_as_a_column_because_some_terminals_give_it_one() {
        let text = format!("{}notes: approved", "e\u{301}".repeat(40));
        assert!(STYLE.rows(0, "  | ", &text).iter().all(|row| row.chars().count() <= 40));
    }

    #[test]
    fn on_a_narrow_terminal_no_part_of_an_argument_looks_like_a_field() {
        let argument = "aaa  program       /b xx  folder        /tmp x";
        for width in MIN_WIDTH..40 {
            let style = Style { width, ..STYLE };
            let text = style.item("  arguments", 16, argument) + &style.item("", 16, argument) + &style.field("  folder", 16, argument);
            for row in text.lines() {
                assert!(columns_in(row) <= width, "{row:?} at {width}");
                assert!(row.starts_with("    ") || row.starts_with("  arguments") || row.starts_with("  folder"), "{row:?} at {width}");
            }
        }
        assert_eq!(Style { width: 20, ..STYLE }.item("  runs", 16, "a b c d e f g h i"), "  runs\n    a b c d e f g\n      h i\n");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_is_in_it() {
        let text = format!("one two {} three\n\n天気天気天気天気天気天気天気天気天気天気天気天気 {}", "x".repeat(99), "\u{301}".repeat(9));
        for line in STYLE.wrapped("    ", &text).lines().chain(STYLE.field("name", 12, &text).lines()) {
            assert!(line.width() <= 40, "{line:?}");
        }
    }

    #[test]
    fn the_further_lines_of_an_item_do_not_look_like_another_item() {
        let long = "x".repeat(28);
        let of = |items: &[&str]| items.iter().map(|item| STYLE.item("", 12, item)).collect::<Vec<_>>().concat();
        assert_eq!(of(&[&format!("{long}--safe")]), format!("{:12}{}\n{:14}xx--safe\n", "", "x".repeat(26), ""));
        assert_ne!(of(&[&format!("{long}--safe")]), of(&[&long, "--safe"]));
        assert_ne!(of(&["one two three four five six seven eight"]), of(&["one two three four five six", "seven eight"]));
    }

    #[test]
    fn one_name_never_looks_like_several() {
        assert_eq!(joined(&["a", "b"]), "a, b");
        assert_eq!(joined(&["a, b", "c,d", "", "e\"f"]), r#""a, b", "c,d", "", "e\"f""#);
    }

    #[test]
    fn a_table_is_aligned_and_wraps_what_is_long() {
        let rows = vec![vec!["weather".into(), "a text that is too long for one line of it".into()], vec!["天気".into(), "b".into()]];
        let table = STYLE.table(&["NAME", "WHAT"], rows);
        let expected = "NAME     WHAT\nweather  a text that is too long for\n         one line of it\n天気     b\n";
        assert_eq!(table, expected);
        assert!(Style { color: true, ..STYLE }.table(&["A"], Vec::new()).starts_with("\u{1b}[1mA"));
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(date_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_time(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(date_time(1_767_225_599_999), "2025-12-31 23:59:59");
        assert_eq!(&date_time(u64::MAX)[..4], "9999", "the last time of the calendar stands for all after it");
    }
}
