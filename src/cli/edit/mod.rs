//! Computes the new text of a config. In the config of a host, it replaces servers with our entry, or reverses this. In our own config, it
//! changes properties. Does not read or write files.

mod json;
mod toml;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};

pub(super) use toml::table_text;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The format of a config, and the key of its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// JSON, possibly with comments. The servers are in an object with this key.
    Json(&'static str),
    /// TOML. The servers are tables `[mcp_servers.NAME]`.
    Toml,
}

impl Shape {
    /// Returns the key of the servers.
    pub(super) fn section(self) -> &'static str {
        match self {
            Self::Json(section) => section,
            Self::Toml => "mcp_servers",
        }
    }
}

/// The reason why a text cannot be changed. It contains no value from the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    Syntax { line: usize, column: usize, what: String },
    Shape(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax { line, column, what } => write!(formatter, "line {line}, column {column}: {what}"),
            Self::Shape(what) => formatter.write_str(what),
        }
    }
}

/// A server that was removed from a host's config, with its source text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovedServer {
    pub(super) name: String,
    pub(super) text: String,
}

/// A server to insert.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// A server with the source text that it had before.
    Source(RemovedServer),
    Entry {
        name: String,
        entry: Json,
    },
}

/// A range of the text, and its new content.
type Replacement = (Range<usize>, String);

/// A replacement of one range. It converts the text before an installation to the text after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: String,
}

/// The facts that are needed to reverse an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UndoFacts<'d> {
    /// Text of the file before the installation.
    pub(super) before: &'d str,
    /// Digest of the text that the installation wrote.
    pub(super) after: &'d str,
    pub(super) change: &'d Change,
    /// Name of our entry.
    pub(super) name: &'d str,
    pub(super) taken: &'d [RemovedServer],
}

/// Result of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UndoResult {
    pub(super) text: String,
    /// True if nobody has changed the file since the installation. Then the text is exactly the one before the installation.
    pub(super) exact: bool,
}

/// Parses the text and returns its whole content.
pub(super) fn parsed(shape: Shape, text: &str) -> Result<Json, Problem> {
    let text = without_mark(text);
    match shape {
        Shape::Json(_) => json::parsed(text),
        Shape::Toml => toml::parsed(text),
    }
}

/// Returns the servers in a config, by name.
pub(super) fn servers(shape: Shape, text: &str) -> Result<Map<String, Json>, Problem> {
    Ok(parsed(shape, text)?[shape.section()].as_object().cloned().unwrap_or_default())
}

/// Returns the source text of each of these servers.
pub(super) fn sources(shape: Shape, text: &str, names: &[String]) -> Result<Vec<RemovedServer>, Problem> {
    let text = without_mark(text);
    match shape {
        Shape::Json(section) => json::sources(text, section, names),
        Shape::Toml => toml::sources(text, names),
    }
}

/// Removes servers from the text and inserts others. All other bytes are unchanged. The result is parsed and compared with the text, so
/// that a mistake of this program never gets into a file.
pub(super) fn replaced(shape: Shape, text: &str, remove: &[String], insert: &[Piece]) -> Result<String, Problem> {
    let body = without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let new = match shape {
        Shape::Json(section) => json::replaced(body, section, remove, insert)?,
        Shape::Toml => toml::replaced(body, remove, insert)?,
    };
    let mut expected = servers(shape, body)?;
    expected.retain(|name, _| !remove.contains(name));
    let names = |piece: &Piece| match piece {
        Piece::Source(RemovedServer { name, text: _ }) | Piece::Entry { name, entry: _ } => name.clone(),
    };
    let is_expected = |servers: &Map<String, Json>| {
        servers.len() == expected.len() + insert.len()
            && expected.iter().all(|(name, entry)| servers.get(name) == Some(entry))
            && insert.iter().all(|piece| servers.contains_key(&names(piece)))
    };
    if servers(shape, &new).is_ok_and(|servers| is_expected(&servers)) && others(shape, body)? == others(shape, &new)? {
        return Ok(format!("{mark}{new}"));
    }
    Err(Problem::Shape(format!("it is written in a way that cannot be changed safely: change its {} by hand", shape.section())))
}

/// A property of a config, as the list of names that lead to it, and its new value. `None` removes the property.
pub(super) type PropertyChange<'c> = (Vec<&'c str>, Option<Json>);

/// Sets and removes properties in a JSON text. All other bytes are unchanged. The result is parsed and compared with the changes, so that a
/// mistake of this program never gets into a file.
pub(super) fn with_properties(text: &str, changes: &[PropertyChange<'_>]) -> Result<String, Problem> {
    let body = without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let mut expected = json::parsed(body)?;
    let mut new = body.to_owned();
    for (path, value) in changes {
        new = json::with_property(&new, path, value.as_ref())?;
        set(&mut expected, path, value.as_ref());
    }
    if json::parsed(&new).is_ok_and(|parsed| parsed == expected) {
        return Ok(format!("{mark}{new}"));
    }
    Err(Problem::Shape("it is written in a way that cannot be changed safely: change it by hand".to_owned()))
}

/// Sets or removes the property at a path of a JSON value.
fn set(json: &mut Json, path: &[&str], value: Option<&Json>) {
    let Some((name, rest)) = path.split_first() else { return };
    if json.is_null() {
        if value.is_none() {
            return;
        }
        *json = Json::Object(Map::new());
    }
    let Some(object) = json.as_object_mut() else { return };
    match (rest, value) {
        ([], None) => drop(object.shift_remove(*name)),
        ([], Some(value)) => drop(object.insert((*name).to_owned(), value.clone())),
        (rest, Some(value)) => set(object.entry(*name).or_insert(Json::Null), rest, Some(value)),
        (rest, None) => {
            if let Some(inner) = object.get_mut(*name) {
                set(inner, rest, None);
            }
        }
    }
}

/// Returns the content of the config without the servers.
fn others(shape: Shape, text: &str) -> Result<Json, Problem> {
    let mut all = parsed(shape, text)?;
    if all.is_null() {
        all = Json::Object(Map::new());
    }
    if let Some(all) = all.as_object_mut() {
        all.remove(shape.section());
    }
    Ok(all)
}

/// Returns the text from before an installation. If somebody has changed the text since, removes only our entry and restores the servers
/// that are missing.
pub(super) fn undone(shape: Shape, text: &str, done: &UndoFacts) -> Result<UndoResult, Problem> {
    let UndoFacts { before, after, change, name, taken } = done;
    if digest(text) == *after {
        return Ok(UndoResult { text: (*before).to_owned(), exact: true });
    }
    let there = servers(shape, text)?;
    let ours: Vec<String> = there.keys().filter(|known| known == name).cloned().collect();
    // If somebody has since added a server with the same name, that server stays.
    let missing: Vec<Piece> =
        taken.iter().filter(|taken| taken.name == *name || !there.contains_key(&taken.name)).cloned().map(Piece::Source).collect();
    let new = replaced(shape, text, &ours, &missing)?;
    let had_section = !without_mark(before).trim().is_empty() && parsed(shape, before).is_ok_and(|all| all.get(shape.section()).is_some());
    let new = match shape {
        Shape::Json(section) if !had_section => {
            let body = without_mark(&new);
            let mark = &new[..new.len() - body.len()];
            format!("{mark}{}", json::without_empty_section(body, section)?)
        }
        Shape::Json(_) | Shape::Toml => new,
    };
    // If the changed range still occurs exactly once, its old bytes are restored, including the old order and the comments.
    if let Some(exact) = put_back(text, before, change)
        && parsed(shape, &exact).is_ok_and(|exact| parsed(shape, &new).is_ok_and(|new| exact == new))
    {
        return Ok(UndoResult { text: exact, exact: false });
    }
    Ok(UndoResult { text: new, exact: false })
}

fn put_back(text: &str, before: &str, change: &Change) -> Option<String> {
    let Change { start, end, text: changed } = change;
    let old = before.get(*start..*end)?;
    let mut places = text.match_indices(changed.as_str());
    let (at, _) = places.next().filter(|_| !changed.is_empty())?;
    if places.next().is_some() {
        return None;
    }
    Some(format!("{}{old}{}", &text[..at], &text[at + changed.len()..]))
}

/// Returns the smallest range of `before` that differs from `after`.
pub(super) fn change_of(before: &str, after: &str) -> Change {
    let start = before.char_indices().zip(after.chars()).find(|((_, old), new)| old != new).map(|((at, _), _)| at);
    let start = start.unwrap_or(before.len().min(after.len()));
    let (old, new) = (&before[start..], &after[start..]);
    let same: usize = old.chars().rev().zip(new.chars().rev()).take_while(|(old, new)| old == new).map(|(old, _)| old.len_utf8()).sum();
    Change { start, end: before.len() - same, text: after[start..after.len() - same].to_owned() }
}

pub(super) fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Returns the kind of line end in the text.
fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Applies replacements of ranges that do not overlap. Replacements at the same position keep their order.
fn apply(text: &str, mut changes: Vec<Replacement>) -> String {
    changes.sort_by_key(|(range, _)| range.start);
    let mut new = String::with_capacity(text.len());
    let mut at = 0;
    for (range, content) in changes {
        new.push_str(text.get(at..range.start).unwrap_or_default());
        new.push_str(&content);
        at = at.max(range.end);
    }
    new + &text[at..]
}

#[cfg(test)]
mod tests;
