//! Changes the tables `[mcp_servers.NAME]` in a TOML text. Replaces only whole lines, so that all other bytes are unchanged.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value as Json;
use toml_edit::{Document, Item, Table};

use super::{Piece, Problem, RemovedServer, Replacement, apply, newline_of};

const SECTION: &str = "mcp_servers";

/// Parses the text.
pub(super) fn parsed(text: &str) -> Result<Json, Problem> {
    document(text)?;
    toml::from_str(text).map_err(|error| Problem::Shape(error.message().to_owned()))
}

/// Returns the source text of each of these servers, as tables with headers.
pub(super) fn sources(text: &str, names: &[String]) -> Result<Vec<RemovedServer>, Problem> {
    let values = parsed(text)?;
    let document = document(text)?;
    let Some(section) = section_of(&document)? else { return Ok(Vec::new()) };
    let named = section.iter().filter(|(name, _)| names.iter().any(|wanted| wanted == name));
    let taken = named.map(|(name, _)| {
        let lines = lines_of(text, section, name);
        let has_headers = lines.first().is_some_and(|first| text[first.clone()].trim_start().starts_with('['));
        let source: String = lines.into_iter().map(|lines| &text[lines]).collect();
        let text = if has_headers { source } else { table_text(name, &values[SECTION][name]) };
        RemovedServer { name: name.to_owned(), text }
    });
    Ok(taken.collect())
}

/// Removes these servers. Inserts the pieces where the table of the first removed server was, or otherwise at the end of the text.
pub(super) fn replaced(text: &str, remove: &[String], insert: &[Piece]) -> Result<String, Problem> {
    let document = document(text)?;
    let section = section_of(&document)?;
    let newline = newline_of(text);
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for name in remove {
        blocks.extend(section.map(|section| lines_of(text, section, name)).unwrap_or_default());
    }
    blocks.sort_by_key(|block| block.start);
    let inserted = insert.iter().map(|piece| block_text(piece, newline)).collect::<Vec<_>>().join(newline);
    let at_first = blocks.first().is_some_and(|block| text[block.clone()].trim_start().starts_with('['));
    let mut changes: Vec<Replacement> = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        if index == 0 && at_first && !insert.is_empty() {
            changes.push((block, inserted.clone()));
        } else {
            changes.push((with_blank_lines(text, block), String::new()));
        }
    }
    if !at_first && !insert.is_empty() {
        let start = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
        let gap = if text.trim().is_empty() { "" } else { newline };
        changes.push((text.len()..text.len(), format!("{start}{gap}{inserted}")));
    }
    Ok(apply(text, changes))
}

/// Formats an entry as a table with a header.
pub(in crate::cli) fn table_text(name: &str, entry: &Json) -> String {
    let mut text = format!("[{SECTION}.{}]\n", key(name));
    let mut tables = String::new();
    for (field, value) in entry.as_object().into_iter().flatten() {
        match value {
            Json::Object(values) => {
                let _ = writeln!(tables, "\n[{SECTION}.{}.{}]", key(name), key(field));
                for (field, value) in values {
                    let _ = writeln!(tables, "{} = {}", key(field), inline(value));
                }
            }
            value => {
                let _ = writeln!(text, "{} = {}", key(field), inline(value));
            }
        }
    }
    text + &tables
}

fn key(name: &str) -> String {
    let is_bare = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { Json::String(name.to_owned()).to_string() }
}

/// Formats a value. A JSON string is also a valid TOML string, except for DEL.
fn inline(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

fn document(text: &str) -> Result<Document<&str>, Problem> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Problem::Syntax { line, column, what: error.message().lines().next().unwrap_or_default().to_owned() }
    })
}

fn section_of<'d>(document: &'d Document<&str>) -> Result<Option<&'d Table>, Problem> {
    match document.as_table().get(SECTION) {
        None | Some(Item::None) => Ok(None),
        Some(Item::Table(table)) => Ok(Some(table)),
        Some(Item::Value(_) | Item::ArrayOfTables(_)) => {
            Err(Problem::Shape(format!("its {SECTION} is not a table with a header: write each server as [{SECTION}.NAME]")))
        }
    }
}

/// Returns the lines of a server: its tables with their headers, or its keys.
fn lines_of(text: &str, section: &Table, name: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    if let Some((key, item)) = section.get_key_value(name) {
        collect(key.span(), item, &mut ranges);
    }
    let mut ranges: Vec<Range<usize>> = ranges.into_iter().map(|range| whole_lines(text, range)).collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// Collects the ranges of an item. The range of a table begins with its header and ends with its last value.
fn collect(key: Option<Range<usize>>, item: &Item, ranges: &mut Vec<Range<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => {
            if let (Some(key), Some(value)) = (key, value.span()) {
                ranges.push(key.start..value.end);
            }
        }
        Item::Table(table) => collect_table(table, ranges),
        Item::ArrayOfTables(tables) => tables.iter().for_each(|table| collect_table(table, ranges)),
    }
}

fn collect_table(table: &Table, ranges: &mut Vec<Range<usize>>) {
    let header = table.span().filter(|_| !table.is_implicit() && !table.is_dotted());
    let mut own = Vec::new();
    for (name, item) in table {
        let key = table.key(name).and_then(toml_edit::Key::span);
        let is_own = match item {
            Item::Value(_) => true,
            Item::Table(inner) => inner.is_dotted(),
            Item::None | Item::ArrayOfTables(_) => false,
        };
        collect(key, item, if is_own { &mut own } else { ranges });
    }
    match header {
        Some(header) => {
            let end = own.iter().map(|range| range.end).max().unwrap_or(header.end);
            ranges.push(header.start..end.max(header.end));
        }
        None => ranges.extend(own),
    }
}

fn whole_lines(text: &str, range: Range<usize>) -> Range<usize> {
    let start = text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[range.end..].find('\n').map_or(text.len(), |newline| range.end + newline + 1);
    start..end
}

/// Extends the removed lines to include the blank lines after them, if the line before them is blank or does not exist.
fn with_blank_lines(text: &str, lines: Range<usize>) -> Range<usize> {
    let before = text[..lines.start].lines().next_back().unwrap_or_default();
    if !before.trim().is_empty() {
        return lines;
    }
    let mut end = lines.end;
    for line in text[lines.end..].split_inclusive('\n') {
        if !line.trim().is_empty() {
            break;
        }
        end += line.len();
    }
    lines.start..end
}

/// Formats a piece as lines.
fn block_text(piece: &Piece, newline: &str) -> String {
    let text = match piece {
        Piece::Source(taken) => taken.text.clone(),
        Piece::Entry { name, entry } => table_text(name, entry).replace('\n', newline),
    };
    if text.ends_with('\n') { text } else { text + newline }
}
