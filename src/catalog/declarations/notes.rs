//! Writes comments for schema keywords that types cannot express: descriptions, defaults, ranges and formats. The comments are short,
//! because each token has a cost.

use serde_json::{Map, Value as Json};

use super::text::shown;
use crate::catalog::Wording;

/// Maximum total size in bytes of all comments of one schema. When it is reached, no more comments are written.
const MAX_ALL_BYTES: usize = 256 * 1024;
const MAX_VALUE_CHARS: usize = 120;
const MAX_FACT_CHARS: usize = 120;
const MAX_EXAMPLES: usize = 3;

/// Writes the comments of one schema.
pub(super) struct Notes<'a> {
    wording: &'a Wording,
    left: usize,
}

impl<'a> Notes<'a> {
    pub(super) fn new(wording: &'a Wording) -> Self {
        Self { wording, left: MAX_ALL_BYTES }
    }

    /// Returns the comment for a schema. Returns `None` if there is nothing to comment on.
    pub(super) fn of(&mut self, schema: &Json) -> Option<String> {
        let fields = schema.as_object()?;
        let mut text = self.description(fields).unwrap_or_default();
        let facts = facts(fields);
        if !facts.is_empty() {
            let facts = self.wording.one_line(&facts.join(", "), MAX_FACT_CHARS * 4);
            text = if text.is_empty() { facts } else { format!("{text} ({facts})") };
        }
        let tags = self.tags(fields);
        if !tags.is_empty() {
            // A one-line comment stays on one line.
            let separator = if text.contains('\n') { '\n' } else { ' ' };
            text = format!("{text}{separator}{}", tags.join(" "));
        }
        let text = text.trim();
        self.left = self.left.saturating_sub(text.len());
        (!text.is_empty() && self.left > 0).then(|| text.to_owned())
    }

    fn description(&self, fields: &Map<String, Json>) -> Option<String> {
        let text = |keyword: &str| fields.get(keyword).and_then(Json::as_str).filter(|text| !text.trim().is_empty());
        // The title is ignored, because it usually repeats the name.
        let text = text("description")?;
        Some(sanitised(self.wording, text))
    }

    fn tags(&self, fields: &Map<String, Json>) -> Vec<String> {
        let mut tags = Vec::new();
        let mut tag = |name: &str, value: &Json| {
            if let Some(value) = shown(value, MAX_VALUE_CHARS) {
                tags.push(format!("@{name} {}", self.wording.one_line(&value, MAX_VALUE_CHARS)));
            }
        };
        // Many generators write `"default": null` when there is no default.
        if let Some(value) = fields.get("default").filter(|value| !value.is_null()) {
            tag("default", value);
        }
        let examples = fields.get("examples").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let example = fields.get("example").filter(|_| examples.is_empty());
        for value in examples.iter().take(MAX_EXAMPLES).chain(example) {
            tag("example", value);
        }
        if fields.get("deprecated") == Some(&Json::Bool(true)) {
            tags.push("@deprecated".to_owned());
        }
        tags
    }
}

/// Returns a sanitised description, cut to the maximum length of descriptions.
pub(super) fn sanitised(wording: &Wording, text: &str) -> String {
    // The text is cut before it is sanitised, because sanitising a very long text takes much time.
    let enough = wording.max_chars.saturating_mul(8);
    wording.description(&text[..text.floor_char_boundary(enough)]).trim().to_owned()
}

/// Returns texts for the constraints that the type does not express.
fn facts(fields: &Map<String, Json>) -> Vec<String> {
    let mut facts = own_facts(fields);
    // The schema in `items`, and the only schema beside `null` in `anyOf` or `oneOf`, have no place for a comment of their own.
    if let Some(Json::Object(items)) = fields.get("items") {
        let each = own_facts(items);
        if !each.is_empty() {
            facts.push(format!("each: {}", each.join(", ")));
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let members = fields.get(keyword).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut members = members.iter().filter(|member| member.get("type").and_then(Json::as_str) != Some("null"));
        if let (Some(Json::Object(one)), None) = (members.next(), members.next()) {
            facts.extend(own_facts(one));
        }
    }
    facts
}

fn own_facts(fields: &Map<String, Json>) -> Vec<String> {
    let mut facts = Vec::new();
    let is_integer = match fields.get("type") {
        Some(Json::String(name)) => name == "integer",
        Some(Json::Array(names)) => names.iter().any(|name| name == "integer") && names.iter().all(|name| name != "number"),
        _ => false,
    };
    if is_integer {
        facts.push("integer".to_owned());
    }
    facts.extend(range(fields));
    facts.extend(span(fields, "minLength", "maxLength", "characters"));
    facts.extend(span(fields, "minItems", "maxItems", "items"));
    facts.extend(span(fields, "minProperties", "maxProperties", "properties"));
    if fields.get("uniqueItems") == Some(&Json::Bool(true)) {
        facts.push("unique".to_owned());
    }
    if let Some(step) = fields.get("multipleOf").filter(|step| step.is_number()) {
        facts.push(format!("multiple of {step}"));
    }
    for keyword in ["format", "pattern", "contentEncoding", "contentMediaType"] {
        let text = fields.get(keyword).and_then(Json::as_str).filter(|text| !text.is_empty() && text.len() <= MAX_FACT_CHARS);
        facts.extend(text.map(|text| if keyword == "pattern" { format!("pattern {text}") } else { text.to_owned() }));
    }
    facts.extend(conditions(fields));
    facts
}

/// Returns texts for the conditions that types cannot express.
fn conditions(fields: &Map<String, Json>) -> Vec<String> {
    let has = |keyword: &str| fields.contains_key(keyword);
    let mut facts = Vec::new();
    match fields.get("not") {
        Some(Json::Object(not)) => match (not.get("const"), not.get("enum")) {
            (Some(value), _) | (None, Some(value)) => facts.extend(shown(value, MAX_VALUE_CHARS).map(|value| format!("not {value}"))),
            _ => facts.push("with exceptions".to_owned()),
        },
        Some(_) => facts.push("with exceptions".to_owned()),
        None => {}
    }
    for keyword in ["dependentRequired", "dependencies"] {
        for (name, needed) in fields.get(keyword).and_then(Json::as_object).into_iter().flatten().take(4) {
            let names: Vec<&str> = needed.as_array().into_iter().flatten().filter_map(Json::as_str).take(4).collect();
            if !names.is_empty() && name.len() <= MAX_FACT_CHARS {
                facts.push(format!("{name} needs {}", names.join(" and ")));
            }
        }
    }
    if has("if") && (has("then") || has("else")) || has("dependentSchemas") {
        facts.push("more conditions".to_owned());
    }
    facts
}

fn range(fields: &Map<String, Json>) -> Option<String> {
    let number = |keyword: &str| fields.get(keyword).filter(|value| value.is_number());
    // In draft-04, `exclusiveMinimum` and `exclusiveMaximum` are boolean flags. They exclude the limit itself.
    let flag = |keyword: &str| fields.get(keyword) == Some(&Json::Bool(true));
    let least = match (number("exclusiveMinimum"), number("minimum")) {
        (Some(limit), _) => Some(format!("> {limit}")),
        (None, Some(limit)) if flag("exclusiveMinimum") => Some(format!("> {limit}")),
        (None, Some(limit)) => Some(format!(">= {limit}")),
        (None, None) => None,
    };
    let most = match (number("exclusiveMaximum"), number("maximum")) {
        (Some(limit), _) => Some(format!("< {limit}")),
        (None, Some(limit)) if flag("exclusiveMaximum") => Some(format!("< {limit}")),
        // Some generators write this limit for every safe integer, so it is not mentioned.
        (None, Some(limit)) if limit.as_f64().is_some_and(|limit| limit >= 9_007_199_254_740_991.0) => None,
        (None, Some(limit)) => Some(format!("<= {limit}")),
        (None, None) => None,
    };
    let least = least.filter(|text| text != ">= -9007199254740991");
    match (least, most) {
        (Some(least), Some(most)) => match (least.strip_prefix(">= "), most.strip_prefix("<= ")) {
            (Some(least), Some(most)) => Some(format!("{least} to {most}")),
            _ => Some(format!("{least}, {most}")),
        },
        (least, most) => least.or(most),
    }
}

fn span(fields: &Map<String, Json>, least: &str, most: &str, what: &str) -> Option<String> {
    let count = |keyword: &str| fields.get(keyword).and_then(Json::as_u64);
    let one = match what {
        "properties" => "property",
        other => other.trim_end_matches('s'),
    };
    let of = |number: u64| if number == 1 { one } else { what };
    match (count(least).filter(|least| *least > 0), count(most)) {
        (None, None) => None,
        (Some(least), None) => Some(format!("at least {least} {}", of(least))),
        (None, Some(most)) => Some(format!("at most {most} {}", of(most))),
        (Some(least), Some(most)) if least == most => Some(format!("{least} {}", of(least))),
        (Some(least), Some(most)) => Some(format!("{least} to {most} {what}")),
    }
}

/// Returns those hints in a tool's annotations that are important for a caller. The hints are claims of the server that are not checked.
pub(super) fn hints(annotations: Option<&Json>) -> Vec<&'static str> {
    let says = |name: &str| annotations.and_then(|all| all.get(name)).and_then(Json::as_bool);
    let reads = says("readOnlyHint") == Some(true);
    [
        reads.then_some("Read-only."),
        (!reads && says("destructiveHint") == Some(true)).then_some("Destructive."),
        (!reads && says("destructiveHint") == Some(false)).then_some("Not destructive."),
        (!reads && says("idempotentHint") == Some(true)).then_some("Idempotent."),
        (says("openWorldHint") == Some(true)).then_some("Open world."),
    ]
    .into_iter()
    .flatten()
    .collect()
}
