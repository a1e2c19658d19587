//! Parses environment files (`envFile` in the config), which contain names and values in the dotenv format. No crate for this format is
//! used, because this parser reports each problem with its line and column.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::Path;

use secrecy::SecretString;

use crate::error::{Error, Result};
use crate::files::{Links, open_regular};
use crate::text::{Position, Problem, displayed_within};

/// Maximum size of an environment file: 1 MiB.
pub const MAX_ENV_FILE_BYTES: usize = 1024 * 1024;
/// Maximum number of characters in a variable's name that a message shows. Nobody approves the content of the file, so a name can be any text.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Reads an environment file for [`crate::config::resolve_command`]. Reads only a regular file, and at most one byte over the limit.
///
/// # Errors
/// The operating system's error, or an error for a file that is not regular.
pub fn read_env_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, Links::Follow)?.take(MAX_ENV_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses an environment file. `file` names it in errors.
///
/// A line is `NAME=value`, optionally with `export ` before the name. Empty lines and lines that start with `#` are ignored. A value without quotes
/// ends with its line, or at a `#` after whitespace. In `'…'`, `"…"` and `` `…` `` a value may have several lines. Only in `"…"`, `\n`, `\r` and
/// `\"` are escapes, and every other backslash is literal. Nothing is interpolated: `$NAME` and `${NAME}` are literal text. If a name appears
/// twice, the last value applies.
///
/// # Errors
/// `ERR_CONFIG_INVALID` with all invalid lines, but without their values.
///
/// ```
/// use secrecy::ExposeSecret;
/// let variables = hyperlight_mcp::config::parse_env_file("export TOKEN=\"t 1\" # ours\nMODE=fast # not slow", ".env").unwrap();
/// assert_eq!(variables[0].1.expose_secret(), "t 1");
/// assert_eq!((variables[1].0.as_str(), variables[1].1.expose_secret()), ("MODE", "fast"));
/// ```
pub fn parse_env_file(text: &str, file: &str) -> Result<Vec<(String, SecretString)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut parser = Parser { rest: &text, line: 1, variables: Vec::new(), places: HashMap::new(), problems: Vec::new() };
    while !parser.rest.is_empty() {
        parser.entry();
    }
    if parser.problems.is_empty() {
        Ok(parser.variables)
    } else {
        Err(Error::ConfigInvalid { file: file.into(), problems: parser.problems.into() })
    }
}

struct Parser<'t> {
    rest: &'t str,
    line: usize,
    variables: Vec<(String, SecretString)>,
    /// The index of each name in `variables`.
    places: HashMap<String, usize>,
    problems: Vec<Problem>,
}

/// A value, and its length in the text in bytes.
struct Value {
    text: String,
    length: usize,
}

impl Parser<'_> {
    /// Parses one line, or several if a quoted value has several lines.
    fn entry(&mut self) {
        let line = first_line(self.rest);
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            return self.advance(line.len());
        }
        let declaration = content.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(content).trim_start();
        let Some((name, value)) = declaration.split_once('=') else {
            self.problem("", column(line, content), "must be NAME=value; start a comment line with #");
            return self.advance(line.len());
        };
        let name = name.trim_end();
        let named = !name.is_empty() && name.chars().all(|next| next.is_ascii_alphanumeric() || "_.-".contains(next));
        if !named {
            // The text is not shown, because the file may contain anything, even a secret.
            self.problem("", column(line, declaration), "must be NAME=value; a name has letters, digits, \"_\", \".\" and \"-\"");
        }
        let shown = if named { name } else { "" };
        let start = line.len() - value.len();
        let value_column = column(line, value.trim_start());
        match value_at(&self.rest[start..]) {
            Ok(value) if value.text.contains('\0') => {
                self.problem(shown, value_column, "has a NUL character");
                self.advance(start + value.length);
            }
            Ok(value) => {
                if named {
                    self.insert(name, value.text);
                }
                self.advance(start + value.length);
            }
            Err(ValueProblem::Unclosed) => {
                self.problem(shown, value_column, "the quote that opens this value is not closed; add the closing quote");
                // All following text is inside of the quote, so further problems would only be misleading.
                self.rest = "";
            }
            Err(ValueProblem::TextAfterQuote(length)) => {
                self.problem(shown, value_column, "there is text after the closing quote; only a comment that starts with # may follow");
                self.advance(start + length);
            }
        }
    }

    /// Skips `length` bytes and the line end after them.
    fn advance(&mut self, length: usize) {
        let (passed, rest) = self.rest.split_at(length);
        self.line += passed.matches('\n').count();
        self.rest = rest.strip_prefix('\n').map_or(rest, |rest| {
            self.line += 1;
            rest
        });
    }

    fn insert(&mut self, name: &str, value: String) {
        let value = SecretString::from(value);
        if let Some(place) = self.places.get(name) {
            self.variables[*place].1 = value;
        } else {
            self.places.insert(name.to_owned(), self.variables.len());
            self.variables.push((name.to_owned(), value));
        }
    }

    fn problem(&mut self, name: &str, column: usize, problem: &str) {
        self.problems.push(Problem::new(displayed_within(name, MAX_NAME_CHARS), Some(Position { line: self.line, column }), problem));
    }
}

enum ValueProblem {
    Unclosed,
    /// Text follows the closing quote. The number is the length in bytes from the `=` to the end of the line.
    TextAfterQuote(usize),
}

/// Parses the value at the start of `text`, which follows the `=`.
fn value_at(text: &str) -> std::result::Result<Value, ValueProblem> {
    let line = first_line(text);
    let blanks = line.len() - line.trim_start().len();
    let Some(quote) = line[blanks..].chars().next().filter(|first| "'\"`".contains(*first)) else {
        return Ok(Value { text: unquoted(line).to_owned(), length: line.len() });
    };
    let inside = blanks + 1;
    let (value, closed) = quoted(&text[inside..], quote).ok_or(ValueProblem::Unclosed)?;
    let after = first_line(&text[inside + closed..]);
    let length = inside + closed + after.len();
    let comment = after.trim_start();
    if comment.is_empty() || comment.starts_with('#') {
        Ok(Value { text: value, length })
    } else {
        Err(ValueProblem::TextAfterQuote(length))
    }
}

fn unquoted(line: &str) -> &str {
    let is_comment = |place: usize| line[..place].ends_with(char::is_whitespace);
    let end = line.match_indices('#').map(|(place, _)| place).find(|place| is_comment(*place));
    line[..end.unwrap_or(line.len())].trim()
}

/// Returns a quoted value, and the offset after its closing quote.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((offset, character)) = characters.next() {
        if character == quote {
            return Some((value, offset + character.len_utf8()));
        }
        if character != '\\' || quote != '"' {
            value.push(character);
            continue;
        }
        match characters.next()?.1 {
            'n' => value.push('\n'),
            'r' => value.push('\r'),
            '"' => value.push('"'),
            // The backslash and the next character are kept together. So in `"C:\\"` the second backslash does not escape the quote.
            other => value.extend(['\\', other]),
        }
    }
    None
}

fn first_line(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(line, _)| line)
}

/// Returns the column at which the last part of a line starts, counted from 1 in characters.
fn column(line: &str, last_part: &str) -> usize {
    line[..line.len() - last_part.len()].chars().count() + 1
}
