//! Takes the shape of one result, with bounded work. The shape describes the value that agent code gets (`bridge::shape`).

use serde_json::{Map, Value as Json};

use super::{Field, Fields, MAX_DEPTH, MAX_NAMED, Shape, is_shown_key};

/// Maximum number of parts in one result that are looked at.
const MAX_LOOKED_AT: usize = 2_000;
/// Maximum number of items in one list that are looked at.
const MAX_ITEMS: usize = 50;
/// Maximum number of content blocks that are looked at.
const MAX_BLOCKS: usize = 20;
/// Maximum size in bytes of all texts of a result that are parsed as JSON.
const MAX_TEXT_BYTES: usize = 256 * 1_024;
/// Minimum number of properties in an object that is treated as a map because its values are objects with the same properties.
const MIN_ALIKE: usize = 4;
/// Minimum number of properties in an object that is treated as a map because its values are of one simple kind.
const MIN_ALIKE_SIMPLE: usize = 20;

/// The part of a result that is needed for its shape. It is taken while the result is in memory, and texts are parsed later.
#[derive(Debug)]
pub struct Sample {
    parts: Vec<Part>,
    /// True if the value is a list of the parts. False if the only part is the value.
    is_list: bool,
}

#[derive(Debug)]
enum Part {
    Known(Shape),
    /// A text that may be JSON.
    Text(String),
}

impl Sample {
    /// Returns the sample of a successful result of `tools/call`. Returns `None` for a failed result, and for a result with a JSON text
    /// that cannot be parsed whole, because it is too large or would be cut. `max_bytes` is the size above which texts are cut for the
    /// caller.
    #[must_use]
    pub fn of(result: &Json, max_bytes: usize) -> Option<Self> {
        if result.get("isError").and_then(Json::as_bool) == Some(true) {
            return None;
        }
        if let Some(structured) = result.get("structuredContent") {
            return Some(Self { parts: vec![Part::Known(shape_of(structured))], is_list: false });
        }
        let blocks = result.get("content").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        if blocks.is_empty() {
            return Some(Self { parts: vec![Part::Known(Shape { null: true, ..Shape::default() })], is_list: false });
        }
        let mut left = MAX_TEXT_BYTES.min(max_bytes);
        let parts = blocks.iter().take(MAX_BLOCKS).map(|block| part_of(block, &mut left)).collect::<Option<_>>()?;
        Some(Self { parts, is_list: blocks.len() > 1 })
    }

    /// Returns the number of bytes of text that the sample holds.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.parts.iter().map(|part| if let Part::Text(text) = part { text.len() } else { 0 }).sum()
    }

    /// Returns the shape of the result.
    #[must_use]
    pub fn into_shape(self) -> Shape {
        let mut merged = Shape::default();
        for part in self.parts {
            merged.merge(match part {
                Part::Known(shape) => shape,
                Part::Text(text) => serde_json::from_str::<Json>(&text).map_or_else(|_| Shape::text(), |json| shape_of(&json)),
            });
        }
        if self.is_list { Shape::list_of(merged) } else { merged }.bounded()
    }
}

fn part_of(block: &Json, left: &mut usize) -> Option<Part> {
    let has = |key: &str| block.get(key).is_some();
    Some(match block.get("type").and_then(Json::as_str) {
        Some("text") => {
            let text = block.get("text").and_then(Json::as_str).unwrap_or_default();
            if !text.trim_start().starts_with(['{', '[']) {
                return Some(Part::Known(Shape::text()));
            }
            *left = left.checked_sub(text.len())?;
            Part::Text(text.to_owned())
        }
        Some("image" | "audio") => Part::Known(Shape::record([("mimeType", Shape::text()), ("data", bytes())])),
        Some("resource") => {
            let resource = block.get("resource").unwrap_or(&Json::Null);
            let mime = resource.get("mimeType").map(|_| ("mimeType", Shape::text()));
            let content = if resource.get("blob").is_some() { ("data", bytes()) } else { ("text", Shape::text()) };
            Part::Known(Shape::record([("uri", Shape::text())].into_iter().chain(mime).chain([content])))
        }
        Some("resource_link") => {
            let known = ["uri", "name", "title", "description", "mimeType"].into_iter().filter(|key| has(key));
            Part::Known(Shape::record(known.map(|key| (key, Shape::text()))))
        }
        _ => Part::Known(Shape::unknown()),
    })
}

fn bytes() -> Shape {
    Shape { bytes: true, ..Shape::default() }
}

/// Returns the shape of a JSON value.
fn shape_of(value: &Json) -> Shape {
    observe(value, 0, &mut { MAX_LOOKED_AT }).bounded()
}

fn observe(value: &Json, depth: usize, left: &mut usize) -> Shape {
    let kind = Shape::default();
    *left = left.saturating_sub(1);
    match value {
        Json::Null => Shape { null: true, ..kind },
        Json::Bool(_) => Shape { boolean: true, ..kind },
        Json::Number(_) => Shape { number: true, ..kind },
        Json::String(_) => Shape::text(),
        Json::Array(_) | Json::Object(_) if depth >= MAX_DEPTH || *left == 0 => Shape::unknown(),
        Json::Array(items) => {
            let mut merged = Shape::default();
            for item in items.iter().take(MAX_ITEMS) {
                // Items beyond the limits are assumed to have the same shape as those before.
                if *left == 0 {
                    break;
                }
                merged.merge(observe(item, depth + 1, left));
            }
            Shape::list_of(merged)
        }
        Json::Object(fields) => Shape::of_fields(observe_fields(fields, depth, left)),
    }
}

fn observe_fields(fields: &Map<String, Json>, depth: usize, left: &mut usize) -> Fields {
    let odd = fields.keys().take(MAX_NAMED).filter(|key| !is_shown_key(key)).count();
    let is_map = fields.len() > MAX_NAMED || odd * 2 > fields.len();
    let (mut named, mut hidden) = (Vec::new(), Shape::default());
    for (key, value) in fields.iter().take(MAX_NAMED) {
        let shape = if *left == 0 { Shape::unknown() } else { observe(value, depth + 1, left) };
        if is_shown_key(key) {
            named.push(Field { name: key.as_str().into(), objects: 1, shape });
        } else {
            hidden.merge(shape);
        }
    }
    let is_map = is_map || odd == 0 && are_alike(&named);
    let fields = Fields::Named { objects: 1, fields: named, hidden };
    if is_map { Fields::Map(fields.into_values()) } else { fields }
}

/// Returns whether the values of an object are so alike that its keys are probably data: objects with the same properties, or very many
/// values of one simple kind.
fn are_alike(fields: &[Field]) -> bool {
    let Some((first, rest)) = fields.split_first() else { return false };
    if rest.len() + 1 < MIN_ALIKE {
        return false;
    }
    let names = |field: &Field| match field.shape.object.as_deref() {
        Some(Fields::Named { fields, .. }) if fields.len() > 1 => Some(fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>()),
        _ => None,
    };
    match names(first) {
        Some(of_first) => rest.iter().all(|field| names(field).as_ref() == Some(&of_first)),
        None => rest.len() + 1 >= MIN_ALIKE_SIMPLE && first.shape.parts() == 1 && rest.iter().all(|field| field.shape == first.shape),
    }
}
