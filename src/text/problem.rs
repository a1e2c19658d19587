//! A problem in a config, together with its position.

use std::fmt::{self, Display, Formatter};

/// Maximum number of characters in a field's name that a message shows.
const MAX_FIELD_CHARS: usize = 128;

/// A problem in a config or an environment file. It never contains a value that may be a secret.
///
/// ```
/// use hyperlight_mcp::text::Problem;
/// let problem = Problem { field: "mcpServers.a.command".into(), line: Some(3), column: Some(5), problem: "must be a string".into() };
/// assert_eq!(problem.in_file("config.json"), "config.json:3:5: mcpServers.a.command: must be a string");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, for example `mcpServers.weather.args[1]`. It is empty if the problem belongs to no field.
    pub field: String,
    /// Line, counted from 1. `None` if the config is an object and not a file.
    pub line: Option<usize>,
    /// Column, counted from 1, in characters.
    pub column: Option<usize>,
    pub problem: String,
}

/// A position in a file, counted from 1. Columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Problem {
    pub(crate) fn new(field: impl Into<String>, position: Option<Position>, problem: impl Into<String>) -> Self {
        let (line, column) = position.map(|position| (position.line, position.column)).unzip();
        Self { field: field.into(), line, column, problem: problem.into() }
    }

    /// Returns the problem after the name of its file. Editors and terminals convert this form to a link.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        let space = if self.line.is_some() { "" } else { " " };
        format!("{file}:{space}{self}")
    }

    /// Returns a text with all problems of a file. If there are several, the first line contains their number.
    ///
    /// ```
    /// use hyperlight_mcp::text::Problem;
    /// let problem = |field: &str| Problem { field: field.into(), line: None, column: None, problem: "is wrong".into() };
    /// assert_eq!(Problem::list("config", &[problem("a")]), "config: a: is wrong");
    /// assert_eq!(Problem::list("config", &[problem("a"), problem("b")]), "config has 2 problems:\nconfig: a: is wrong\nconfig: b: is wrong");
    /// ```
    #[must_use]
    pub fn list(file: &str, problems: &[Self]) -> String {
        let lines: Vec<_> = problems.iter().map(|problem| problem.in_file(file)).collect();
        match lines.as_slice() {
            [] => format!("{file}: is invalid"),
            [single] => single.clone(),
            several => format!("{file} has {} problems:\n{}", several.len(), several.join("\n")),
        }
    }
}

impl Display for Problem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(formatter, "{line}:{column}: ")?;
        }
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.problem)
    }
}

/// Sorts problems by their position in the file.
pub(crate) fn sort_problems(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| (problem.line, problem.column));
}

/// Returns a name from the config in a form that is safe in a message.
pub(crate) fn displayed(name: &str) -> String {
    displayed_within(name, MAX_FIELD_CHARS)
}

/// Cuts a name to `most` characters, and replaces characters that would hide, reorder or break the text around it. The replacement
/// character is visible, so a displayed name is never equal to the valid name of another server.
pub(crate) fn displayed_within(name: &str, most: usize) -> String {
    let clean = |character: char| if is_invisible(character) { char::REPLACEMENT_CHARACTER } else { character };
    if name.chars().count() <= most {
        return name.chars().map(clean).collect();
    }
    name.chars().take(most - 1).map(clean).chain(['…']).collect()
}

fn is_invisible(character: char) -> bool {
    let formats = matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    character.is_control() || formats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_problems_are_listed_one_a_line_each_with_its_place() {
        let problem = |line| Problem::new("servers.a", Some(Position { line, column: 2 }), "is wrong");
        let text = Problem::list("c.json", &[problem(1), problem(7)]);
        assert_eq!(text, "c.json has 2 problems:\nc.json:1:2: servers.a: is wrong\nc.json:7:2: servers.a: is wrong");
    }

    #[test]
    fn a_problem_without_a_field_shows_only_its_place() {
        assert_eq!(Problem::new("", Some(Position { line: 4, column: 1 }), "is odd").in_file(".env"), ".env:4:1: is odd");
    }

    #[test]
    fn a_displayed_name_is_cut_and_cannot_break_or_reorder_its_line() {
        assert_eq!(displayed_within("abcd", 4), "abcd");
        assert_eq!(displayed_within("abcde", 4), "abc…");
        assert_eq!(displayed("a\nb\u{1b}c\u{202e}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
