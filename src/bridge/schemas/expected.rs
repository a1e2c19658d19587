//! Describes values, and the expectations of a schema, in a few words. The descriptions are part of messages that help a model or a person
//! to correct a call.

use std::io;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value as Json;

use super::line;
use super::names::target;

/// Maximum length in characters of a value or a name in a message.
const MAX_VALUE_CHARS: usize = 60;
/// Maximum length in characters of the summary of a schema. A message shows the summary instead of the schema.
const MAX_SUMMARY_CHARS: usize = 60;
/// Maximum number of choices or names in a list.
pub(super) const LISTED: usize = 10;
/// Maximum number of field names in the summary of an object.
const OUTLINED: usize = 4;
/// Maximum depth of references and lists in a summary.
const MAX_SUMMARY_LEVELS: usize = 3;

/// Returns a name or a text in quotes and on one line. A long text is cut.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(&line(text, MAX_VALUE_CHARS)).unwrap_or_default()
}

/// Returns a value as JSON text. A long text is cut. Examples: `"three"`, `[1,2]`.
pub(super) fn literal(value: &Json) -> String {
    if let Json::String(text) = value {
        return quoted(text);
    }
    let mut start = PrefixWriter(Vec::new());
    // The error is ignored, because it only means that the writer already has more bytes than can be shown.
    let _ = serde_json::to_writer(&mut start, value);
    line(&String::from_utf8_lossy(&start.0), MAX_VALUE_CHARS)
}

/// Returns a value as JSON together with its type. Example: `"three" (string)`.
pub(super) fn typed(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        _ => format!("{} ({})", literal(value), type_of(value)),
    }
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// A writer that only keeps the first bytes, and then fails.
struct PrefixWriter(Vec<u8>);

impl io::Write for PrefixWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() > MAX_VALUE_CHARS * 4 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.0.extend_from_slice(&bytes[..bytes.len().min(MAX_VALUE_CHARS * 4)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a list of the form `a, b or c`. If there are too many items, the list ends with the number of items that are left out.
pub(super) fn any_of(items: &[String]) -> String {
    match items {
        [all @ .., last] if !all.is_empty() && items.len() <= LISTED => format!("{} or {last}", all.join(", ")),
        _ => listed(items),
    }
}

/// Returns a list of the form `a, b, c`. If there are too many items, the list ends with the number of items that are left out.
pub(super) fn listed(items: &[String]) -> String {
    let shown = items[..items.len().min(LISTED)].join(", ");
    match items.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the values or types that the schema would have accepted. Returns `None` if the kind of violation has no list of accepted values
/// or types.
pub(super) fn choices(kind: &Kind) -> Option<Vec<String>> {
    match kind {
        Kind::Type { kind: TypeKind::Single(one) } => Some(vec![one.to_string()]),
        Kind::Type { kind: TypeKind::Multiple(several) } => {
            let mut names: Vec<_> = several.iter().map(|one| one.to_string()).collect();
            // `null` comes last, because callers seldom want to pass it.
            names.sort_by_key(|name| name == "null");
            Some(names)
        }
        Kind::Constant { expected_value } => Some(vec![literal(expected_value)]),
        Kind::Enum { options } => Some(options.as_array().into_iter().flatten().map(literal).collect()),
        _ => None,
    }
}

/// Returns two descriptions: of the value that the schema expects, and of the value that was found.
pub(super) fn expectation(root: &Json, error: &ValidationError<'_>) -> (String, String) {
    let value = error.instance().as_ref();
    let plain = |expected: String| (expected, literal(value));
    let counted = |expected: String, count: usize, what: &str| (expected, format!("{count} {what}"));
    let characters = |expected: String| {
        let count = value.as_str().map_or(0, |text| text.chars().count());
        (format!("{expected} characters"), format!("{} ({count})", literal(value)))
    };
    let items = |expected: String| counted(format!("{expected} items"), value.as_array().map_or(0, Vec::len), "items");
    let fields =
        |expected: String| counted(format!("{expected} parameters"), value.as_object().map_or(0, serde_json::Map::len), "parameters");
    match error.kind() {
        Kind::Type { .. } => (any_of(&choices(error.kind()).unwrap_or_default()), typed(value)),
        Kind::Enum { .. } => plain(one_of(&choices(error.kind()).unwrap_or_default())),
        Kind::Constant { expected_value } => plain(literal(expected_value)),
        Kind::Minimum { limit } => plain(format!("at least {limit}")),
        Kind::Maximum { limit } => plain(format!("at most {limit}")),
        Kind::ExclusiveMinimum { limit } => plain(format!("more than {limit}")),
        Kind::ExclusiveMaximum { limit } => plain(format!("less than {limit}")),
        Kind::MultipleOf { multiple_of } => plain(format!("a multiple of {multiple_of}")),
        Kind::MinLength { limit } => characters(format!("at least {limit}")),
        Kind::MaxLength { limit } => characters(format!("at most {limit}")),
        Kind::Pattern { pattern } => plain(format!("text that matches {}", quoted(pattern))),
        Kind::MinItems { limit } => items(format!("at least {limit}")),
        Kind::MaxItems { limit } => items(format!("at most {limit}")),
        Kind::AdditionalItems { limit } => items(format!("at most {limit}")),
        Kind::UnevaluatedItems { unexpected } => items(format!("{} fewer", unexpected.len())),
        Kind::MinProperties { limit } => fields(format!("at least {limit}")),
        Kind::MaxProperties { limit } => fields(format!("at most {limit}")),
        // These two keywords have implementations of our own.
        Kind::Custom { keyword, .. } if keyword == "multipleOf" => plain(format!("a multiple of {}", rule_of(root, error))),
        Kind::UniqueItems | Kind::Custom { .. } => plain("items that all differ".to_owned()),
        Kind::Contains => plain(contained(root, error)),
        Kind::ContentEncoding { content_encoding } => plain(format!("text encoded as {}", quoted(content_encoding))),
        Kind::ContentMediaType { content_media_type } => plain(format!("text of type {}", quoted(content_media_type))),
        Kind::FalseSchema => plain("nothing here".to_owned()),
        Kind::Not { schema } => plain(format!("anything but {}", summary(root, schema))),
        _ => plain("something else".to_owned()),
    }
}

/// Returns a text of the form `one of "a", "b"`. A single choice is returned alone.
pub(super) fn one_of(choices: &[String]) -> String {
    if choices.len() == 1 { choices.concat() } else { format!("one of {}", listed(choices)) }
}

/// Returns the value of the keyword that a value violates.
fn rule_of(root: &Json, error: &ValidationError<'_>) -> String {
    root.pointer(error.schema_path().as_str()).map_or_else(|| "another number".to_owned(), Json::to_string)
}

fn contained(root: &Json, error: &ValidationError<'_>) -> String {
    let holder = error.schema_path().as_str().rsplit_once('/').and_then(|(parent, _)| root.pointer(parent));
    let rule = |key: &str| holder.and_then(|holder| holder.get(key));
    let kind = rule("contains").map_or_else(|| "a certain kind".to_owned(), |part| summary(root, part));
    match (rule("minContains"), rule("maxContains")) {
        (None, None) => format!("an item that is {kind}"),
        (least, None) => format!("at least {} items that are {kind}", least.unwrap_or(&Json::from(1))),
        (None, Some(most)) => format!("1 to {most} items that are {kind}"),
        (Some(least), Some(most)) => format!("{least} to {most} items that are {kind}"),
    }
}

/// Returns a summary of a schema in a few words. Examples: `string`, `{ kind, radius }`, `array of integer`.
pub(super) fn summary(root: &Json, part: &Json) -> String {
    line(&outline(root, part, MAX_SUMMARY_LEVELS), MAX_SUMMARY_CHARS)
}

fn outline(root: &Json, part: &Json, levels: usize) -> String {
    if let Json::Bool(any) = part {
        return if *any { "anything" } else { "nothing" }.to_owned();
    }
    let list = |key: &str| part.get(key).and_then(Json::as_array);
    if let Some(value) = part.get("const") {
        return literal(value);
    }
    if let Some(options) = list("enum") {
        return any_of(&options.iter().take(LISTED).map(literal).collect::<Vec<_>>());
    }
    let required = list("required");
    let has_type = |wanted: &str| part.get("type").and_then(Json::as_str) == Some(wanted);
    if (part.get("type").is_none() && required.is_some()) || has_type("object") {
        return object_outline(part, required.map_or(&[], Vec::as_slice));
    }
    match (part.get("type"), part.get("items")) {
        (Some(_), Some(items)) if has_type("array") && levels > 0 => return format!("array of {}", outline(root, items, levels - 1)),
        (Some(Json::String(name)), _) => return name.clone(),
        (Some(Json::Array(names)), _) => {
            return any_of(&names.iter().take(LISTED).filter_map(Json::as_str).map(ToOwned::to_owned).collect::<Vec<_>>());
        }
        _ => {}
    }
    if let Some(referred) = part.get("$ref").and_then(Json::as_str).and_then(|reference| target(root, reference))
        && levels > 0
    {
        return outline(root, referred, levels - 1);
    }
    match list("anyOf").or_else(|| list("oneOf")) {
        Some(parts) if levels > 0 => any_of(&parts.iter().take(OUTLINED).map(|part| outline(root, part, levels - 1)).collect::<Vec<_>>()),
        _ => "another value".to_owned(),
    }
}

/// Describes an object by the names of its required fields. If a field must have a constant value, includes this value, because it
/// distinguishes the object from other objects.
fn object_outline(part: &Json, required: &[Json]) -> String {
    let fixed = |name: &str| part.get("properties").and_then(|properties| properties.get(name)?.get("const")).map(literal);
    let field = |name: &str| match fixed(name) {
        Some(value) => format!("{}: {value}", line(name, MAX_VALUE_CHARS)),
        None => line(name, MAX_VALUE_CHARS),
    };
    let shown: Vec<_> = required.iter().filter_map(Json::as_str).take(OUTLINED).map(field).collect();
    match (shown.is_empty(), required.len() > OUTLINED) {
        (true, _) => "object".to_owned(),
        (false, true) => format!("{{ {}, … }}", shown.join(", ")),
        (false, false) => format!("{{ {} }}", shown.join(", ")),
    }
}
