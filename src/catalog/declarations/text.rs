//! Escapes untrusted text, so that it cannot end a property name, a string literal or a comment.

use std::fmt::Write as _;

use serde_json::{Number, Value as Json};

use crate::text::escape_comment_end;

/// Returns a string literal for this text. Invisible characters are escaped.
pub(in crate::catalog) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            // `write!` to a `String` cannot fail.
            _ if is_hidden(character) && character <= '\u{ffff}' => drop(write!(quoted, "\\u{:04x}", u32::from(character))),
            _ if is_hidden(character) => drop(write!(quoted, "\\u{{{:x}}}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a property name. A name that is not an identifier is quoted.
pub(in crate::catalog) fn key(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { quoted(name) }
}

/// Returns whether a property name needs no quotes.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '$';
    name.chars().all(plain) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Returns a number literal. If a double cannot represent the number exactly, the literal is the double that JavaScript would read.
pub(super) fn number(number: &Number) -> String {
    match number.as_f64() {
        // In JSON Schema, -0 and 0 are equal.
        Some(0.0) => "0".to_owned(),
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() < 1e15 => format!("{double:.0}"),
        _ => number.to_string(),
    }
}

/// Returns whether a character is invisible or changes the direction of the text.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || (character.is_whitespace() && character != ' ')
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
}

/// Returns a comment for the next declaration. Returns an empty text if `text` is empty. The text cannot end the comment.
pub(super) fn comment(text: &str, indent: &str) -> String {
    let text = in_comment(text);
    let lines: Vec<&str> = text.split('\n').map(str::trim_end).collect();
    let lines = match (lines.iter().position(|line| !line.is_empty()), lines.iter().rposition(|line| !line.is_empty())) {
        (Some(first), Some(last)) => &lines[first..=last],
        _ => return String::new(),
    };
    // TypeScript obeys a directive such as `@ts-ignore` at the start of the last line of a comment. In a comment of several lines, that line has
    // only the comment's end, so no word has to be changed.
    if let [line] = lines
        && !line.trim_start().starts_with("@ts-")
    {
        return format!("{indent}/** {} */\n", line.trim_start());
    }
    let mut comment = format!("{indent}/**\n");
    for line in lines {
        let blank = if line.is_empty() { "" } else { " " };
        let _ = writeln!(comment, "{indent} *{blank}{line}");
    }
    let _ = writeln!(comment, "{indent} */");
    comment
}

/// Escapes a text so that it cannot end a comment. `*/` becomes `*\/`. Both are the same text in a JavaScript string, so a pattern that a
/// model copies keeps its meaning. Line breaks of every kind become `\n`, because the text need not be sanitised.
fn in_comment(text: &str) -> String {
    let lines: String = text
        .chars()
        .map(|character| match character {
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' => '\n',
            '\n' | '\t' => character,
            hidden if hidden.is_control() => ' ',
            other => other,
        })
        .collect();
    escape_comment_end(&lines)
}

/// Returns a value as JSON for a comment. Returns `None` if the JSON is too long.
pub(super) fn shown(value: &Json, max_chars: usize) -> Option<String> {
    // The size is estimated first, because an example can have megabytes.
    if size(value, 0) > max_chars * 4 {
        return None;
    }
    let text = value.to_string();
    (text.chars().count() <= max_chars).then_some(text)
}

fn size(value: &Json, depth: usize) -> usize {
    const MAX_DEPTH: usize = 16;
    match value {
        _ if depth > MAX_DEPTH => usize::MAX / 4,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().take(1_000).fold(items.len(), |sum, item| sum.saturating_add(size(item, depth + 1))),
        Json::Object(fields) => fields
            .iter()
            .take(1_000)
            .fold(fields.len(), |sum, (key, item)| sum.saturating_add(key.len()).saturating_add(size(item, depth + 1))),
        _ => 1,
    }
}
