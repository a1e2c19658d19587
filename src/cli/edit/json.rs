//! Changes the servers in a JSON text that may have comments and trailing commas. Replaces only ranges of the text, so that all other bytes
//! are unchanged.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::Serialize as _;
use serde_json::Value as Json;

use super::{Piece, Problem, RemovedServer, Replacement, apply, newline_of};
use crate::text::displayed;

const DEFAULT_INDENT: &str = "  ";

/// Parses the text. Returns `null` if the text contains no value.
pub(super) fn parsed(text: &str) -> Result<Json, Problem> {
    if object_of(text)?.is_none() {
        return Ok(Json::Null);
    }
    jsonc_parser::parse_to_serde_value(text, &ParseOptions::default()).map_err(syntax)
}

/// Returns the source text of each of these servers.
pub(super) fn sources(text: &str, section: &str, names: &[String]) -> Result<Vec<RemovedServer>, Problem> {
    let Some(root) = object_of(text)? else { return Ok(Vec::new()) };
    let Some(servers) = section_of(&root, section)? else { return Ok(Vec::new()) };
    let named = servers.properties.iter().filter(|property| names.iter().any(|name| name == property.name.as_str()));
    Ok(named.map(|property| RemovedServer { name: property.name.as_str().to_owned(), text: text[range(property)].to_owned() }).collect())
}

/// Removes these servers. Inserts the pieces where the first removed server was, or otherwise at the end of the section.
pub(super) fn replaced(text: &str, section: &str, remove: &[String], insert: &[Piece]) -> Result<String, Problem> {
    let style = Style::of(text);
    let Some(root) = object_of(text)? else {
        let start = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
        let made = Piece::Entry { name: section.to_owned(), entry: Json::Object(serde_json::Map::new()) };
        let object = format!("{{{0}{1}{2}{0}}}{0}", style.newline, style.indent, style.property(&made, &style.indent));
        return replaced(&format!("{text}{start}{object}"), section, remove, insert);
    };
    match section_of(&root, section)? {
        Some(servers) => Ok(apply(text, changes(text, servers, remove, insert, &style))),
        None if insert.is_empty() => Ok(text.to_owned()),
        None => {
            let made = Piece::Entry { name: section.to_owned(), entry: Json::Object(serde_json::Map::new()) };
            let with_section = apply(text, changes(text, &root, &[], &[made], &style));
            replaced(&with_section, section, remove, insert)
        }
    }
}

/// Removes the section from the text if it contains no server.
pub(super) fn without_empty_section(text: &str, section: &str) -> Result<String, Problem> {
    let Some(root) = object_of(text)? else { return Ok(text.to_owned()) };
    match section_of(&root, section)? {
        Some(servers) if servers.properties.is_empty() => {
            Ok(apply(text, changes(text, &root, &[section.to_owned()], &[], &Style::of(text))))
        }
        Some(_) | None => Ok(text.to_owned()),
    }
}

/// Sets the property at a path, or removes it if `value` is `None`. Creates missing objects on the path.
pub(super) fn with_property(text: &str, path: &[&str], value: Option<&Json>) -> Result<String, Problem> {
    let Some(root) = object_of(text)? else {
        if value.is_none() {
            return Ok(text.to_owned());
        }
        let style = Style::of(text);
        let start = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
        return with_property(&format!("{text}{start}{{}}{}", style.newline), path, value);
    };
    let style = Style::of(text);
    let (mut object, mut path) = (&root, path);
    while let [name, rest @ ..] = path {
        let found = only_property(object, name)?;
        let changes = match (found, rest, value) {
            (Some(property), [_, ..], _) => {
                let Value::Object(inner) = &property.value else { return Err(Problem::Shape(format!("its {name} is not an object"))) };
                (object, path) = (inner, rest);
                continue;
            }
            (Some(property), [], Some(value)) => {
                let indent = line_indent(text, property.start());
                let new = pretty(value, &style.indent).replace('\n', &format!("{}{indent}", style.newline));
                vec![(property.value.start()..property.value.end(), new)]
            }
            (Some(_), [], None) => changes(text, object, &[(*name).to_owned()], &[], &style),
            (None, rest, Some(value)) => {
                let entry = rest.iter().rev().fold(value.clone(), |inner, name| serde_json::json!({ *name: inner }));
                changes(text, object, &[], &[Piece::Entry { name: (*name).to_owned(), entry }], &style)
            }
            (None, _, None) => Vec::new(),
        };
        return Ok(apply(text, changes));
    }
    Ok(text.to_owned())
}

/// Returns the property with this name. Refuses a name that occurs twice, because programs do not agree on which of the two is valid.
fn only_property<'o, 'a>(object: &'o Object<'a>, name: &str) -> Result<Option<&'o ObjectProp<'a>>, Problem> {
    let mut named = object.properties.iter().filter(|property| property.name.as_str() == name);
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => Err(Problem::Shape(format!("it has the key {name} twice: remove one of the two"))),
        (found, _) => Ok(found),
    }
}

fn object_of(text: &str) -> Result<Option<Object<'_>>, Problem> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default()).map_err(syntax)?;
    match parsed.value {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(Problem::Shape("it does not contain an object".to_owned())),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn syntax(error: jsonc_parser::errors::ParseError) -> Problem {
    Problem::Syntax { line: error.line_display(), column: error.column_display(), what: error.kind().to_string() }
}

/// Returns the object of servers. Refuses a name that occurs twice, because programs do not agree on which of the two is valid.
fn section_of<'o, 'a>(root: &'o Object<'a>, section: &str) -> Result<Option<&'o Object<'a>>, Problem> {
    let mut named = root.properties.iter().filter(|property| property.name.as_str() == section);
    let Some(found) = named.next() else { return Ok(None) };
    if named.next().is_some() {
        return Err(Problem::Shape(format!("it has the key {section} twice")));
    }
    let Value::Object(servers) = &found.value else { return Err(Problem::Shape(format!("its {section} is not an object"))) };
    for (index, property) in servers.properties.iter().enumerate() {
        if servers.properties[..index].iter().any(|before| before.name.as_str() == property.name.as_str()) {
            let name = displayed(property.name.as_str());
            return Err(Problem::Shape(format!("it has the server {name} twice in {section}: remove one of the two")));
        }
    }
    Ok(Some(servers))
}

fn range(property: &ObjectProp) -> Range<usize> {
    property.start()..property.end()
}

/// The style of the text: its line ends and its indentation.
struct Style {
    newline: &'static str,
    indent: String,
}

impl Style {
    fn of(text: &str) -> Self {
        let first = text.lines().filter(|line| line.trim_start().starts_with('"')).find_map(|line| {
            let indent = &line[..line.len() - line.trim_start().len()];
            (!indent.is_empty()).then(|| indent.to_owned())
        });
        Self { newline: newline_of(text), indent: first.unwrap_or_else(|| DEFAULT_INDENT.to_owned()) }
    }

    /// Formats a property for a line with this indentation.
    fn property(&self, piece: &Piece, indent: &str) -> String {
        match piece {
            Piece::Source(taken) => taken.text.clone(),
            Piece::Entry { name, entry } => {
                let value = pretty(entry, &self.indent).replace('\n', &format!("{}{indent}", self.newline));
                format!("{}: {value}", Json::String(name.clone()))
            }
        }
    }

    /// Formats a property for an object that is written on one line.
    fn inline(piece: &Piece) -> String {
        match piece {
            Piece::Source(taken) => taken.text.clone(),
            Piece::Entry { name, entry } => format!("{}: {entry}", Json::String(name.clone())),
        }
    }
}

fn pretty(value: &Json, indent: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    // Writing a JSON value into memory cannot fail.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter));
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns the changes to the text that remove and insert properties of an object.
fn changes(text: &str, object: &Object, remove: &[String], insert: &[Piece], style: &Style) -> Vec<Replacement> {
    let properties = &object.properties;
    let is_removed = |property: &ObjectProp| remove.iter().any(|name| name == property.name.as_str());
    let Some(first) = properties.iter().position(is_removed) else {
        return if insert.is_empty() { Vec::new() } else { appended(text, object, insert, style) };
    };
    let slots: Vec<usize> =
        (0..properties.len()).filter(|&index| !is_removed(&properties[index]) || (index == first && !insert.is_empty())).collect();
    let commas: Vec<Option<usize>> = properties.iter().map(|property| comma_after(text, property.end())).collect();
    let ends_with_comma = commas.last().is_some_and(Option::is_some);
    let mut changes = Vec::new();
    for (index, property) in properties.iter().enumerate() {
        if !slots.contains(&index) {
            let end = commas[index].map_or(property.end(), |comma| comma + 1);
            // There may be a comment between the value and its comma.
            let plain = text[property.end()..end].trim_matches([' ', '\t', '\r', '\n', ',']).is_empty();
            changes.push((whole_line(text, property.start()..if plain { end } else { property.end() }), String::new()));
            if let (false, Some(comma)) = (plain, commas[index]) {
                changes.push((comma..comma + 1, String::new()));
            }
            continue;
        }
        if index == first && is_removed(property) {
            changes.push((range(property), listed(text, property.start(), insert, style)));
        }
        let is_last = slots.last() == Some(&index);
        match commas[index] {
            Some(comma) if is_last && !ends_with_comma => changes.push((comma..comma + 1, String::new())),
            None if !is_last => changes.push((property.end()..property.end(), ",".to_owned())),
            Some(_) | None => {}
        }
    }
    changes
}

/// Formats the inserted properties for the position `at`, with the indentation of that line.
fn listed(text: &str, at: usize, insert: &[Piece], style: &Style) -> String {
    match indent_before(text, at) {
        Some(indent) => {
            let pieces: Vec<String> = insert.iter().map(|piece| style.property(piece, indent)).collect();
            pieces.join(&format!(",{}{indent}", style.newline))
        }
        None => insert.iter().map(Style::inline).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the changes that add the pieces at the end of an object.
fn appended(text: &str, object: &Object, insert: &[Piece], style: &Style) -> Vec<Replacement> {
    let Some(last) = object.properties.last() else { return vec![filled(text, object, insert, style)] };
    let comma = comma_after(text, last.end());
    let after = comma.map_or(last.end(), |comma| comma + 1);
    let Some(indent) = indent_before(text, last.start()) else {
        let listed = insert.iter().map(Style::inline).collect::<Vec<_>>().join(", ");
        return vec![(after..after, format!("{} {listed}", if comma.is_some() { "" } else { "," }))];
    };
    let start = format!("{}{indent}", style.newline);
    let pieces: Vec<String> = insert.iter().map(|piece| style.property(piece, indent)).collect();
    let pieces = format!("{start}{}", pieces.join(&format!(",{start}")));
    let end = end_of_line(text, after).unwrap_or(after);
    match comma {
        Some(_) => vec![(end..end, format!("{pieces},"))],
        None if end == after => vec![(after..after, format!(",{pieces}"))],
        None => vec![(after..after, ",".to_owned()), (end..end, pieces)],
    }
}

/// Returns the change that adds the pieces to an object without properties. Keeps comments in the object.
fn filled(text: &str, object: &Object, insert: &[Piece], style: &Style) -> Replacement {
    let open = object.start() + 1;
    let outer = line_indent(text, object.start());
    let indent = format!("{outer}{}", style.indent);
    let pieces: Vec<String> = insert.iter().map(|piece| style.property(piece, &indent)).collect();
    let listed = format!("{}{indent}{}", style.newline, pieces.join(&format!(",{}{indent}", style.newline)));
    let inner = &text[open..object.end() - 1];
    if inner.trim().is_empty() {
        return (open..object.end() - 1, format!("{listed}{}{outer}", style.newline));
    }
    // The pieces are inserted before the comments. A comment on the same line as the brace is then after the last piece.
    (open..open, listed)
}

/// Returns the position of the comma after a value.
fn comma_after(text: &str, at: usize) -> Option<usize> {
    let at = skip(text, at, char::is_whitespace)?;
    text[at..].starts_with(',').then_some(at)
}

/// Returns the end of the line if only blanks and comments are between `at` and the end.
fn end_of_line(text: &str, at: usize) -> Option<usize> {
    let at = skip(text, at, |character| matches!(character, ' ' | '\t'))?;
    text[at..].starts_with(['\n', '\r']).then_some(at)
}

/// Skips comments, and characters for which `blank` returns true. A line comment ends before its line end.
fn skip(text: &str, mut at: usize, blank: impl Fn(char) -> bool) -> Option<usize> {
    loop {
        let rest = &text[at..];
        let first = rest.chars().next()?;
        at += if rest.starts_with("//") {
            rest.find(['\n', '\r'])?
        } else if rest.starts_with("/*") {
            rest.find("*/")? + 2
        } else if blank(first) {
            first.len_utf8()
        } else {
            return Some(at);
        };
    }
}

/// Returns the blanks before a position if there is nothing else before it on its line.
fn indent_before(text: &str, at: usize) -> Option<&str> {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let before = &text[start..at];
    (start > 0 && before.chars().all(|character| matches!(character, ' ' | '\t'))).then_some(before)
}

/// Returns the blanks at the beginning of a position's line.
fn line_indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Extends a range to whole lines if there is nothing else on these lines. Otherwise extends it to include the blanks after it.
fn whole_line(text: &str, range: Range<usize>) -> Range<usize> {
    let blanks = text[range.end..].len() - text[range.end..].trim_start_matches([' ', '\t']).len();
    let end = range.end + blanks;
    let rest = &text[end..];
    let newline = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
    match indent_before(text, range.start) {
        Some(indent) if newline > 0 => range.start - indent.len()..end + newline,
        Some(_) | None => range.start..end,
    }
}
