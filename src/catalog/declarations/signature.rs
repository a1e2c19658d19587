//! Prints a tool's signature on one line, for lists. The types are shortened until the line fits.

use super::convert::Direction;
use super::kinds::Kinds;
use super::text::{key, quoted};
use super::types::{Definition, Object, Type};
use super::{DeclarationStyle, input_types, types_of};
use crate::catalog::Tool;

const MAX_CHARS: usize = 200;
/// Pairs of numbers of nesting levels that are printed: for the input type, and for the output type. The first pair for which the line fits
/// is used.
const DETAILS: [(usize, usize); 9] = [(4, 4), (3, 3), (3, 2), (2, 2), (3, 1), (2, 1), (2, 0), (1, 1), (1, 0)];
const MAX_ALTERNATIVES: usize = 6;
const MAX_LITERAL_CHARS: usize = 40;

/// Returns a function's signature on one line of at most 200 characters. The line is meant for readers and not for a compiler: `…`
/// replaces the parts that do not fit.
///
/// ```
/// use hyperlight_mcp::catalog::{DeclarationStyle, Failures, Tool, Wording, signature};
/// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// use serde_json::json;
///
/// let schema = json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" } }, "required": ["city"] });
/// let tool = Tool { name: "get-forecast".into(), title: None, description: None, input_schema: schema,
///     output_schema: Some(json!({ "type": "object", "properties": { "sky": { "type": "string" } }, "required": ["sky"] })),
///     annotations: None, execution: None, meta: None, icons: None };
/// let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
/// let style = DeclarationStyle { wording, failures: Failures::Returned, seen: Default::default() };
/// assert_eq!(signature(&tool, "get_forecast", &style), "get_forecast(input: { city: string; days?: number }): { sky: string }");
/// ```
#[must_use]
pub fn signature(tool: &Tool, identifier: &str, style: &DeclarationStyle) -> String {
    let input = input_types(tool, "", style);
    let output = tool.output_schema.as_ref().map(|schema| types_of(schema, "", Kinds::ALL, Direction::Output, style));
    let mark = if super::accepts_nothing(&input[0].value, &input, 0) { "?" } else { "" };
    let line = |levels: (usize, usize), names: usize| {
        let given = match &input[0].value {
            Type::Object(object) if object.properties.is_empty() => String::new(),
            value => format!("input{mark}: {}", brief(value, &input, levels.0, names)),
        };
        let returned = match (&output, style.seen.of(tool)) {
            (Some(output), _) => brief(&output[0].value, output, levels.1, names),
            (None, Some(seen)) => seen.brief(levels.1, names),
            (None, None) => "ToolOutput".to_owned(),
        };
        format!("{identifier}({given}): {returned}")
    };
    let whole = DETAILS.into_iter().map(|levels| line(levels, usize::MAX));
    let partly = [24, 16, 12, 8, 6, 4, 2, 1].into_iter().map(|names| line((1, 0), names));
    let fitting = whole.chain(partly).chain([line((0, 0), 1)]).find(|line| line.chars().take(MAX_CHARS + 1).count() <= MAX_CHARS);
    fitting.unwrap_or_else(|| format!("{}…", identifier.chars().take(MAX_CHARS - 1).collect::<String>()))
}

pub(super) fn brief(value: &Type, definitions: &[Definition], levels: usize, names: usize) -> String {
    let inner = |value: &Type| brief(value, definitions, levels, names);
    match value {
        Type::Named(id) if levels > 0 => brief(&definitions[*id].value, definitions, levels - 1, names),
        Type::Named(_) => "…".to_owned(),
        Type::Object(object) => braces(object, definitions, levels, names),
        Type::Array(item) => match inner(item) {
            item if item.contains([' ']) && !item.starts_with('{') => format!("({item})[]"),
            item => format!("{item}[]"),
        },
        Type::Tuple(tuple) => {
            let rest = tuple.rest.as_deref().map(|rest| format!("...{}[]", inner(rest)));
            let items: Vec<String> = tuple.items.iter().take(names).map(inner).chain(rest).collect();
            format!("[{}]", items.join(", "))
        }
        Type::Union(members) => {
            let more = (members.len() > MAX_ALTERNATIVES).then(|| "…".to_owned());
            let shown = if more.is_some() { MAX_ALTERNATIVES - 1 } else { MAX_ALTERNATIVES };
            members.iter().take(shown).map(inner).chain(more).collect::<Vec<_>>().join(" | ")
        }
        Type::Intersection(members) => {
            let part = |member: &Type| if matches!(member, Type::Union(_)) { format!("({})", inner(member)) } else { inner(member) };
            members.iter().map(part).collect::<Vec<_>>().join(" & ")
        }
        Type::StringLiteral(text) if text.chars().count() > MAX_LITERAL_CHARS => "string".to_owned(),
        Type::StringLiteral(text) => quoted(text),
        Type::NumberLiteral(text) => text.clone(),
        Type::BooleanLiteral(value) => value.to_string(),
        Type::Unknown => "unknown".to_owned(),
        Type::Never => "never".to_owned(),
        Type::Undefined => "undefined".to_owned(),
        Type::Null => "null".to_owned(),
        Type::Boolean => "boolean".to_owned(),
        Type::Number => "number".to_owned(),
        Type::String => "string".to_owned(),
        Type::Bytes => "string | Uint8Array".to_owned(),
    }
}

fn braces(object: &Object, definitions: &[Definition], levels: usize, names: usize) -> String {
    if levels == 0 {
        return "{…}".to_owned();
    }
    let mut members = Vec::new();
    for property in object.properties.iter().take(names) {
        let mark = if property.optional { "?" } else { "" };
        members.push(format!("{}{mark}: {}", key(&property.key), brief(&property.value, definitions, levels - 1, names)));
    }
    let cut = object.properties.len() > names;
    if let Some(index) = object.index.as_deref().filter(|index| !cut && **index != Type::Never) {
        members.push(format!("[key: string]: {}", brief(index, definitions, levels - 1, names)));
    }
    if cut {
        members.push("…".to_owned());
    }
    if members.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", members.join("; ")) }
}
