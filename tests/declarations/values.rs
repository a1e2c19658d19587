//! Values for a schema. They are guessed, and a validator sorts them into valid and invalid ones.

use serde_json::{Map, Value as Json, json};

const MAX_DEPTH: usize = 5;
/// Keywords that TypeScript cannot express. If a value violates only such keywords, TypeScript cannot refuse it.
const OUT_OF_REACH: [&str; 17] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "not",
    "if",
    "then",
    "else",
    "minItems",
    "maxItems",
    "propertyNames",
    "contentEncoding",
];
/// Names of properties that every value inherits. TypeScript accepts them as properties of the value.
const INHERITED: [&str; 2] = ["\"constructor\"", "\"toString\""];

/// A small random number generator. Its numbers depend only on the seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    fn one<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

/// Returns a value that may be valid.
pub fn guess(schema: &Json, root: &Json, dice: &mut Dice, depth: usize) -> Json {
    let Json::Object(fields) = schema else { return anything(dice, depth) };
    if let Some(target) = fields.get("$ref").and_then(Json::as_str).and_then(|reference| root.pointer(reference.trim_start_matches('#'))) {
        return if depth > MAX_DEPTH { json!({}) } else { guess(target, root, dice, depth + 1) };
    }
    if let Some(value) = fields.get("const") {
        return value.clone();
    }
    if let Some(value) = fields.get("enum").and_then(Json::as_array).and_then(|values| dice.one(values)) {
        return value.clone();
    }
    let members = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|keyword| fields.get(keyword)?.as_array());
    let members: Vec<&Json> = members.flatten().collect();
    let chosen = dice.one(&members).map(|member| guess(member, root, dice, depth + 1));
    if fields.get("type").is_none() && fields.get("properties").is_none() && fields.get("items").is_none() {
        return match (chosen, fields.get("allOf").and_then(Json::as_array)) {
            (_, Some(all)) => all.iter().map(|member| guess(member, root, dice, depth + 1)).reduce(merged).unwrap_or_default(),
            (Some(chosen), None) => chosen,
            (None, None) => anything(dice, depth),
        };
    }
    let own = of_kind(fields, root, dice, depth);
    let all = fields.get("allOf").and_then(Json::as_array).into_iter().flatten();
    all.map(|member| guess(member, root, dice, depth + 1)).chain(chosen).fold(own, merged)
}

fn merged(one: Json, other: Json) -> Json {
    match (one, other) {
        (Json::Object(mut one), Json::Object(other)) => {
            other.into_iter().for_each(|(key, value)| {
                one.entry(key).or_insert(value);
            });
            Json::Object(one)
        }
        (one, _) => one,
    }
}

fn of_kind(fields: &Map<String, Json>, root: &Json, dice: &mut Dice, depth: usize) -> Json {
    let kind = match fields.get("type") {
        Some(Json::Array(kinds)) => dice.one(kinds).and_then(Json::as_str).unwrap_or_default(),
        Some(kind) => kind.as_str().unwrap_or_default(),
        None => "object",
    };
    match kind {
        "null" => Json::Null,
        "boolean" => json!(dice.below(2) == 0),
        "integer" => json!([0, 2, 4, -1][dice.below(4)]),
        "number" => json!([0.0, 1.5, 2.0, -7.25][dice.below(4)]),
        "string" => json!(["a", "", "aa\n\"*/", "x-y"][dice.below(4)]),
        "array" => array(fields, root, dice, depth),
        _ => object(fields, root, dice, depth),
    }
}

fn array(fields: &Map<String, Json>, root: &Json, dice: &mut Dice, depth: usize) -> Json {
    let (first, rest) = match (fields.get("prefixItems"), fields.get("items")) {
        (Some(Json::Array(first)), rest) => (first.as_slice(), rest),
        (_, Some(Json::Array(first))) => (first.as_slice(), fields.get("additionalItems")),
        (_, rest) => (&[][..], rest),
    };
    let most = fields.get("maxItems").and_then(Json::as_u64).map_or(4, |most| usize::try_from(most).unwrap());
    let closed = if rest == Some(&Json::Bool(false)) { first.len() } else { most };
    let length = if depth > MAX_DEPTH { 0 } else { dice.below(most.min(closed) + 1) };
    let item = |index: usize| guess(first.get(index).or(rest).unwrap_or(&Json::Bool(true)), root, dice, depth + 1);
    Json::Array((0..length).map(item).collect())
}

fn object(fields: &Map<String, Json>, root: &Json, dice: &mut Dice, depth: usize) -> Json {
    let mut object = Map::new();
    let required: Vec<&str> = fields.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    for (key, schema) in fields.get("properties").and_then(Json::as_object).into_iter().flatten() {
        if required.contains(&key.as_str()) || depth <= MAX_DEPTH && dice.below(2) == 0 {
            object.insert(key.clone(), guess(schema, root, dice, depth + 1));
        }
    }
    for key in required {
        object.entry(key).or_insert_with(|| json!(dice.below(3)));
    }
    if dice.below(3) == 0 {
        let rest = fields.get("additionalProperties").unwrap_or(&Json::Bool(true));
        object.entry(["x-1", "extra", "kind"][dice.below(3)]).or_insert_with(|| guess(rest, root, dice, depth + 1));
    }
    Json::Object(object)
}

fn anything(dice: &mut Dice, depth: usize) -> Json {
    let simple = [json!(null), json!(true), json!(5), json!(-0.5), json!("a"), json!(""), json!({}), json!([])];
    match dice.below(if depth > MAX_DEPTH { 8 } else { 10 }) {
        8 => json!([anything(dice, depth + 1), anything(dice, depth + 1)]),
        9 => json!({ "a": anything(dice, depth + 1), "b": anything(dice, depth + 1) }),
        index => simple[index].clone(),
    }
}

/// Returns the value with one change, which usually makes it invalid.
pub fn changed(value: &Json, dice: &mut Dice, depth: usize) -> Json {
    match value {
        Json::Object(fields) if !fields.is_empty() && dice.below(4) > 0 => {
            let mut fields = fields.clone();
            let key = fields.keys().nth(dice.below(fields.len())).cloned().unwrap();
            match dice.below(4) {
                0 => drop(fields.shift_remove(&key)),
                1 => drop(fields.insert("extra".to_owned(), anything(dice, depth + 1))),
                _ => drop(fields.get_mut(&key).map(|value| *value = changed(value, dice, depth + 1))),
            }
            Json::Object(fields)
        }
        Json::Array(items) if !items.is_empty() && dice.below(4) > 0 => {
            let mut items = items.clone();
            let index = dice.below(items.len());
            match dice.below(4) {
                0 => drop(items.remove(index)),
                1 => items.push(anything(dice, depth + 1)),
                _ => items[index] = changed(&items[index], dice, depth + 1),
            }
            Json::Array(items)
        }
        _ => anything(dice, MAX_DEPTH),
    }
}

/// Returns the schema without the keywords that TypeScript cannot express. A value that violates the returned schema must not type-check.
pub fn within_reach(schema: &Json) -> Json {
    let text = schema.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&INHERITED) { json!(true) } else { relaxed(schema, has(&["\"anyOf\"", "\"oneOf\"", "\"allOf\""])) }
}

fn relaxed(schema: &Json, combines: bool) -> Json {
    let Json::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    fields.retain(|keyword, _| !OUT_OF_REACH.contains(&keyword.as_str()));
    // TypeScript checks for excess properties in all members of a union together.
    let patterns = fields.shift_remove("patternProperties").is_some();
    let properties = fields.get("properties").and_then(Json::as_object);
    let mut required = fields.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let unnamed = required.any(|key| properties.is_none_or(|properties| !properties.contains_key(key)));
    // The type of an index signature must include the types of the named properties, so it is wider than the schema of the other
    // properties.
    let is_schema = fields.get("additionalProperties").is_some_and(Json::is_object);
    if patterns || combines || unnamed || is_schema && properties.is_some_and(|properties| !properties.is_empty()) {
        fields.shift_remove("additionalProperties");
    }
    // If a schema has `nullable`, a validator still refuses null, so null is added in another way.
    let nullable = fields.shift_remove("nullable").is_some();
    if let Some(one_of) = fields.shift_remove("oneOf") {
        let all = fields.entry("allOf").or_insert_with(|| json!([])).as_array_mut().unwrap();
        all.push(json!({ "anyOf": one_of }));
    }
    let kind = fields.get("type").map(|kind| json!(kind.to_string().replace("integer", "number")));
    if let Some(kind) = kind.and_then(|kind| serde_json::from_str::<Json>(kind.as_str()?).ok()) {
        fields.insert("type".to_owned(), kind);
    }
    for (keyword, value) in &mut fields {
        let named = matches!(keyword.as_str(), "properties" | "$defs" | "definitions");
        let schema = matches!(keyword.as_str(), "items" | "prefixItems" | "additionalItems" | "additionalProperties" | "anyOf" | "allOf");
        match value {
            Json::Object(schemas) if named => schemas.values_mut().for_each(|schema| *schema = relaxed(schema, combines)),
            Json::Array(schemas) if schema => schemas.iter_mut().for_each(|schema| *schema = relaxed(schema, combines)),
            value if schema => *value = relaxed(value, combines),
            _ => {}
        }
    }
    if !nullable {
        return Json::Object(fields);
    }
    let definitions = fields.shift_remove("$defs").unwrap_or_default();
    let dialect = fields.shift_remove("$schema").unwrap_or_else(|| json!("https://json-schema.org/draft/2020-12/schema"));
    json!({ "$schema": dialect, "$defs": definitions.as_object().cloned().unwrap_or_default(), "anyOf": [fields, { "type": "null" }] })
}

/// Returns the schema with all objects closed. A value that is valid for it has only declared names.
pub fn closed(schema: &Json) -> Json {
    match schema {
        Json::Object(fields) => {
            let mut closed_fields: Map<String, Json> = fields.iter().map(|(key, value)| (key.clone(), closed(value))).collect();
            let names = fields.get("properties").is_some_and(Json::is_object) || fields.get("required").is_some_and(Json::is_array);
            if names && !fields.contains_key("additionalProperties") {
                closed_fields.insert("additionalProperties".to_owned(), json!(false));
            }
            Json::Object(closed_fields)
        }
        Json::Array(items) => Json::Array(items.iter().map(closed).collect()),
        other => other.clone(),
    }
}
