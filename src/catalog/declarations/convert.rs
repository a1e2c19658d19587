//! Converts a JSON Schema to a TypeScript type. Every value that the schema allows is assignable to the type.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json};

use super::document::{At, Dialect, Document};
use super::kinds::Kinds;
use super::notes::Notes;
use super::types::{Definition, Object, Property, Tuple, Type, intersection, union};
use crate::catalog::Wording;

/// Maximum number of schemas that contain one another. In a deeper schema, only the keyword `type` is used.
const MAX_DEPTH: usize = 24;
/// Maximum number of subschemas in one document, including all definitions, that are converted completely.
const MAX_NODES: usize = 12_000;
const MAX_HOPS: usize = 16;
const MAX_ENUM: usize = 256;
const MAX_TUPLE: usize = 64;
const MAX_LITERAL_DEPTH: usize = 6;
const MAX_MEMBERS: usize = 256;
/// Maximum length in bytes of a property name. A property with a longer name does not appear in the type.
const MAX_KEY_BYTES: usize = 512;
const MAX_TEXT_BYTES: usize = 1_024;

/// Direction of the values: the arguments of a tool, or its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Values go to a server. Bytes are allowed where the server expects text, because the bridge encodes them.
    Input,
    /// Values come from a server.
    Output,
}

/// Converts a schema to type definitions. The first definition is the schema itself. The others are schemas to which it refers.
pub(super) fn convert(schema: &Json, name: &str, kinds: Kinds, direction: Direction, wording: &Wording) -> Vec<Definition> {
    let document = Document::new(schema);
    let mut converter = Converter {
        notes: Notes::new(wording),
        document,
        direction,
        definitions: vec![Definition { name: name.to_owned(), value: Type::Unknown, note: None }],
        known: HashMap::new(),
        kinds: vec![kinds],
        waiting: Vec::new(),
        nodes: MAX_NODES,
        hops: MAX_HOPS,
    };
    let root = converter.document.root();
    if kinds == Kinds::ALL || of(schema).within(kinds) {
        converter.known.insert(std::ptr::from_ref(schema), 0);
    }
    converter.definitions[0].note = converter.note(root);
    converter.definitions[0].value = converter.convert(root, kinds, 0);
    while let Some((id, at)) = converter.waiting.pop() {
        converter.definitions[id].note = converter.note(at);
        converter.definitions[id].value = converter.convert(at, Kinds::ALL, 1);
    }
    converter.definitions
}

struct Converter<'a> {
    document: Document<'a>,
    direction: Direction,
    notes: Notes<'a>,
    definitions: Vec<Definition>,
    /// Index of the definition of each schema. The key is the schema's address in memory.
    known: HashMap<*const Json, usize>,
    /// For each definition, the kinds of values that the keyword `type` of its schema allows.
    kinds: Vec<Kinds>,
    /// Definitions that have no value yet, with their schemas. A list is used instead of recursion, so that a long chain of references
    /// cannot overflow the stack.
    waiting: Vec<(usize, At<'a>)>,
    nodes: usize,
    /// Number of references that may still be followed from the root schema.
    hops: usize,
}

impl<'a> Converter<'a> {
    fn note(&mut self, at: At<'a>) -> Option<String> {
        self.notes.of(at.schema)
    }

    /// Returns the comment of a property. If the property has no comment, returns the comment of the schema to which it refers.
    fn property_note(&mut self, at: At<'a>) -> Option<String> {
        if let Some(own) = self.note(at) {
            return Some(own);
        }
        let reference = at.schema.get("$ref").and_then(Json::as_str)?;
        let target = self.document.resolve(reference, at)?;
        // A schema that is declared under its own name has its comment at that declaration.
        let is_short = ["properties", "$ref", "anyOf", "oneOf", "allOf"].iter().all(|keyword| target.schema.get(keyword).is_none());
        is_short.then(|| self.note(target)).flatten()
    }

    /// Returns the type of the values that a schema allows, limited to values of `kinds`.
    fn convert(&mut self, at: At<'a>, kinds: Kinds, depth: usize) -> Type {
        let fields = match at.schema {
            Json::Object(fields) => fields,
            Json::Bool(false) => return Type::Never,
            _ => return kinds.any(),
        };
        let own = kinds.and(Kinds::of(fields));
        if depth > MAX_DEPTH || self.nodes == 0 {
            return nullable(own.any(), fields, kinds);
        }
        self.nodes -= 1;
        let reference = fields.get("$ref").map(|reference| self.reference(reference, at, own, depth));
        if let (Some(reference), Dialect::Draft4 | Dialect::Draft7) = (&reference, self.document.dialect) {
            return nullable(reference.clone(), fields, kinds);
        }
        let mut parts: Vec<Type> = reference.into_iter().collect();
        parts.extend(self.own(fields, at, own, depth));
        for member in list(fields, "allOf") {
            let member = self.document.within(at, member);
            parts.push(self.convert(member, own, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            parts.extend(self.any_of(list(fields, keyword), at, own, depth));
        }
        let any = own.any();
        // A part that allows every value does not restrict the type.
        parts.retain(|part| *part != any && *part != Type::Unknown);
        let restricts = parts.iter().any(|part| !matches!(part, Type::Named(_)));
        if own != Kinds::ALL && !restricts && !self.are_within(&parts, own) {
            parts.push(any);
        }
        nullable(intersection(parts), fields, kinds)
    }

    /// Returns whether one of `parts` is a definition whose keyword `type` only allows values of `kinds`.
    fn are_within(&self, parts: &[Type], kinds: Kinds) -> bool {
        parts.iter().any(|part| matches!(part, Type::Named(id) if self.kinds[*id].within(kinds)))
    }

    fn any_of(&mut self, members: &'a [Json], at: At<'a>, kinds: Kinds, depth: usize) -> Option<Type> {
        if members.is_empty() {
            return None;
        }
        if members.len() > MAX_MEMBERS {
            return Some(kinds.any());
        }
        let mut types = Vec::with_capacity(members.len());
        for member in members {
            let member = self.document.within(at, member);
            types.push(self.convert(member, kinds, depth + 1));
        }
        let any = kinds.any();
        Some(if types.contains(&any) { any } else { union(types) })
    }

    fn reference(&mut self, reference: &Json, at: At<'a>, kinds: Kinds, depth: usize) -> Type {
        let Some((text, target)) = reference.as_str().and_then(|text| Some((text, self.document.resolve(text, at)?))) else {
            return kinds.any();
        };
        if !target.schema.is_object() {
            return self.convert(target, kinds, depth + 1);
        }
        // If a root schema only refers to another schema, it is converted as this other schema. So the tool gets a type of its own and not
        // an alias.
        if depth == 0 {
            self.hops = self.hops.saturating_sub(1);
            return if self.hops == 0 { kinds.any() } else { self.convert(target, kinds, 0) };
        }
        let address = std::ptr::from_ref(target.schema);
        if let Some(known) = self.known.get(&address) {
            return Type::Named(*known);
        }
        let name = text.rsplit(['/', '#']).find(|part| !part.is_empty()).unwrap_or_default();
        let id = self.definitions.len();
        self.definitions.push(Definition { name: name.to_owned(), value: Type::Unknown, note: None });
        self.kinds.push(of(target.schema));
        self.known.insert(address, id);
        self.waiting.push((id, target));
        Type::Named(id)
    }

    /// Converts the keywords of a schema except references and combinations (`allOf`, `anyOf`, `oneOf`).
    fn own(&mut self, fields: &'a Map<String, Json>, at: At<'a>, kinds: Kinds, depth: usize) -> Option<Type> {
        if let Some(value) = fields.get("const").filter(|_| self.document.dialect != Dialect::Draft4) {
            return Some(literals(std::slice::from_ref(value), kinds));
        }
        if let Some(Json::Array(values)) = fields.get("enum") {
            self.nodes = self.nodes.saturating_sub(values.len().min(MAX_ENUM));
            return Some(literals(values, kinds));
        }
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| fields.contains_key(*keyword));
        let object =
            kinds.has(Kinds::OBJECT) && has(&["properties", "required", "additionalProperties", "patternProperties", "propertyNames"]);
        let array = kinds.has(Kinds::ARRAY) && has(&["items", "prefixItems", "maxItems"]);
        let bytes = self.direction == Direction::Input && kinds.has(Kinds::STRING) && kinds != Kinds::ALL && is_binary(fields);
        if !object && !array && !bytes {
            return None;
        }
        let mut types = kinds.types(|kind| match kind {
            Kinds::OBJECT if object => self.object(fields, at, depth),
            Kinds::ARRAY if array => self.array(fields, at, depth),
            other => other.any(),
        });
        if bytes {
            types.push(Type::Bytes);
        }
        Some(union(types))
    }

    fn child(&mut self, at: At<'a>, schema: &'a Json, depth: usize) -> Type {
        let child = self.document.within(at, schema);
        self.convert(child, Kinds::ALL, depth + 1)
    }

    fn array(&mut self, fields: &'a Map<String, Json>, at: At<'a>, depth: usize) -> Type {
        let tuple_by_items = matches!(fields.get("items"), Some(Json::Array(_)));
        let by_prefix = self.document.dialect == Dialect::Draft2020 && fields.contains_key("prefixItems");
        let (first, rest) = match (by_prefix, tuple_by_items) {
            (true, true) => return Kinds::ARRAY.any(),
            (true, false) => (list(fields, "prefixItems"), fields.get("items")),
            (false, true) => (list(fields, "items"), fields.get("additionalItems")),
            (false, false) => (Default::default(), fields.get("items")),
        };
        let (least, most) = (count(fields, "minItems").unwrap_or(0), count(fields, "maxItems"));
        if first.len() > MAX_TUPLE {
            return Kinds::ARRAY.any();
        }
        let first = &first[..first.len().min(most.unwrap_or(usize::MAX))];
        let closed = rest == Some(&Json::Bool(false)) || most.is_some_and(|most| most <= first.len());
        let items: Vec<Type> = first.iter().map(|item| self.child(at, item, depth)).collect();
        let rest = (!closed).then(|| rest.map_or(Type::Unknown, |rest| self.child(at, rest, depth)));
        match rest {
            Some(rest) if items.is_empty() => Type::Array(Box::new(rest)),
            rest => Type::Tuple(Tuple { required: least.min(items.len()), items, rest: rest.map(Box::new) }),
        }
    }

    fn object(&mut self, fields: &'a Map<String, Json>, at: At<'a>, depth: usize) -> Type {
        let required: Vec<&str> = list(fields, "required").iter().filter_map(Json::as_str).collect();
        let is_required: HashSet<&str> = required.iter().copied().collect();
        let additional = fields.get("additionalProperties");
        let patterns = fields.get("patternProperties").and_then(Json::as_object).filter(|patterns| !patterns.is_empty());
        let mut object = Object { open: additional.is_none(), ..Object::default() };
        for (key, schema) in fields.get("properties").and_then(Json::as_object).into_iter().flatten() {
            if self.nodes == 0 || key.len() > MAX_KEY_BYTES {
                // The property does not appear in the type, so the type must allow any name.
                object.open = false;
                object.index = Some(Box::new(Type::Unknown));
                continue;
            }
            let schema = self.document.within(at, schema);
            self.nodes = self.nodes.saturating_sub(key.len() / 32);
            let note = self.property_note(schema);
            let value = self.convert(schema, Kinds::ALL, depth + 1);
            object.properties.push(Property::new(key, !is_required.contains(key.as_str()), value, note));
        }
        let rest = match additional {
            Some(schema @ (Json::Object(_) | Json::Bool(true))) => Some(self.child(at, schema, depth)),
            _ => None,
        };
        let other = if patterns.is_some() { Type::Unknown } else { rest.clone().unwrap_or(Type::Unknown) };
        self.add_unnamed(&mut object, required, &other);
        if let Some(patterns) = patterns {
            self.add_patterns(&mut object, patterns, rest, at, depth);
        } else if let Some(names) = only_names(fields, self.document.dialect).filter(|_| additional != Some(&Json::Bool(false))) {
            let known: HashSet<String> = object.properties.iter().map(|property| property.key.clone()).collect();
            let new = names.into_iter().filter(|name| !known.contains(*name));
            object.properties.extend(new.map(|name| Property::new(name, true, other.clone(), None)).collect::<Vec<_>>());
            object.open = false;
        } else if object.index.is_none() {
            object.index = rest.map(Box::new);
        }
        Type::Object(closed(object))
    }

    /// Adds the properties that `required` lists but `properties` does not describe.
    fn add_unnamed(&mut self, object: &mut Object, required: Vec<&str>, other: &Type) {
        let mut known: HashSet<String> = object.properties.iter().map(|property| property.key.clone()).collect();
        for key in required {
            if self.nodes > 0 && key.len() <= MAX_KEY_BYTES && known.insert(key.to_owned()) {
                self.nodes -= 1;
                object.properties.push(Property::new(key, false, other.clone(), None));
            }
        }
    }

    fn add_patterns(&mut self, object: &mut Object, patterns: &'a Map<String, Json>, rest: Option<Type>, at: At<'a>, depth: usize) {
        let types: Vec<(&String, Type)> =
            patterns.iter().take(MAX_MEMBERS).map(|(pattern, schema)| (pattern, self.child(at, schema, depth))).collect();
        if patterns.len() > MAX_MEMBERS || object.index.is_some() {
            object.index = Some(Box::new(Type::Unknown));
            return;
        }
        let was_open = object.open;
        object.open = false;
        let prefixes: Option<Vec<(String, Type)>> =
            types.iter().map(|(pattern, value)| Some((prefix(pattern, !was_open && rest.is_none())?.to_owned(), value.clone()))).collect();
        if let Some(prefixes) = prefixes.filter(|prefixes| rest.is_none() && are_apart(prefixes, object)) {
            object.prefixes = prefixes;
        } else if was_open {
            object.index = Some(Box::new(Type::Unknown));
        } else {
            object.index = Some(Box::new(union(types.into_iter().map(|(_, value)| value).chain(rest))));
        }
    }
}

/// Widens the type of the index signature. TypeScript requires that the types of the named properties fit the index signature. JSON Schema
/// does not require this.
fn closed(mut object: Object) -> Object {
    let nothing_known = object.properties.is_empty() && object.prefixes.is_empty() && object.index.is_none();
    if nothing_known {
        object.index = Some(Box::new(if object.open { Type::Unknown } else { Type::Never }));
        object.open = false;
    }
    let Some(index) = object.index.take() else { return object };
    let fits = |property: &Property| !property.optional && property.value == *index;
    if *index == Type::Unknown || object.properties.iter().all(fits) {
        object.index = Some(index);
        return object;
    }
    let undefined = object.properties.iter().any(|property| property.optional).then_some(Type::Undefined);
    let values = object.properties.iter().map(|property| property.value.clone());
    let all = union([*index.clone()].into_iter().chain(values).chain(undefined));
    let short = match &all {
        Type::Union(members) => members.len() <= 6 && members.iter().all(|member| member.is_leaf() || *member == *index),
        other => other.is_leaf(),
    };
    object.index = Some(Box::new(if short { all } else { Type::Unknown }));
    object
}

/// Returns the prefix that a pattern requires of property names. Returns `None` if the pattern requires anything else. `whole` is true if
/// the schema refuses names that do not match the pattern.
fn prefix(pattern: &str, whole: bool) -> Option<&str> {
    let rest = pattern.strip_prefix('^')?;
    let rest =
        rest.strip_suffix(".*").or_else(|| rest.strip_suffix(".*$").or_else(|| rest.strip_suffix(".+$")).filter(|_| whole)).unwrap_or(rest);
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | ':' | '/' | '@' | ' ');
    (!rest.is_empty() && rest.chars().all(plain)).then_some(rest)
}

/// Returns whether the prefixes do not overlap: no property name can match two of them, or one of them and a named property.
fn are_apart(prefixes: &[(String, Type)], object: &Object) -> bool {
    let named = object.properties.iter().any(|property| prefixes.iter().any(|(prefix, _)| property.key.starts_with(prefix.as_str())));
    let nested = prefixes.iter().enumerate().any(|(index, (one, _))| {
        prefixes.iter().enumerate().any(|(other, (longer, _))| index != other && longer.starts_with(one.as_str()))
    });
    !named && !nested
}

/// Returns the names that `propertyNames` lists. If it lists names, no other names are allowed. Returns `None` if it lists no names.
fn only_names(fields: &Map<String, Json>, dialect: Dialect) -> Option<Vec<&str>> {
    if dialect == Dialect::Draft4 {
        return None;
    }
    let Json::Array(names) = fields.get("propertyNames")?.get("enum")? else { return None };
    let names: Vec<&str> = names.iter().filter_map(Json::as_str).collect();
    (names.len() <= MAX_TUPLE && names.iter().all(|name| name.len() <= MAX_KEY_BYTES)).then_some(names)
}

fn of(schema: &Json) -> Kinds {
    schema.as_object().map_or(Kinds::ALL, Kinds::of)
}

fn nullable(value: Type, fields: &Map<String, Json>, kinds: Kinds) -> Type {
    let null = fields.get("nullable") == Some(&Json::Bool(true)) && kinds.has(Kinds::NULL);
    if null { union([value, Type::Null]) } else { value }
}

fn is_binary(fields: &Map<String, Json>) -> bool {
    let is = |keyword: &str, words: &[&str]| fields.get(keyword).and_then(Json::as_str).is_some_and(|value| words.contains(&value));
    is("contentEncoding", &["base64"]) || is("format", &["byte", "binary"])
}

fn list<'a>(fields: &'a Map<String, Json>, keyword: &str) -> &'a [Json] {
    fields.get(keyword).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns a size. JSON Schema also allows a number such as `2.0` as a size.
fn count(fields: &Map<String, Json>, keyword: &str) -> Option<usize> {
    let value = fields.get(keyword)?;
    match value.as_u64() {
        Some(whole) => usize::try_from(whole).ok(),
        None => value.as_f64().filter(|double| double.fract() == 0.0).and_then(|double| format!("{double:.0}").parse().ok()),
    }
}

/// Returns the union of these literal values. Only values of `kinds` are included.
fn literals(values: &[Json], kinds: Kinds) -> Type {
    if values.len() > MAX_ENUM {
        let all = values.iter().map(Kinds::of_value);
        return union(all.filter(|kind| kind.within(kinds)).map(Kinds::any));
    }
    union(values.iter().filter(|value| Kinds::of_value(value).within(kinds)).map(|value| literal(value, 0)))
}

fn literal(value: &Json, depth: usize) -> Type {
    if depth > MAX_LITERAL_DEPTH {
        return Kinds::of_value(value).any();
    }
    match value {
        Json::Null => Type::Null,
        Json::Bool(value) => Type::BooleanLiteral(*value),
        Json::Number(number) => Type::NumberLiteral(super::text::number(number)),
        Json::String(text) if text.len() > MAX_TEXT_BYTES => Type::String,
        Json::String(text) => Type::StringLiteral(text.clone()),
        Json::Array(items) if items.len() > MAX_TUPLE => Kinds::ARRAY.any(),
        Json::Array(items) => {
            let items: Vec<Type> = items.iter().map(|item| literal(item, depth + 1)).collect();
            Type::Tuple(Tuple { required: items.len(), items, rest: None })
        }
        Json::Object(fields) if fields.len() > MAX_TUPLE || fields.keys().any(|key| key.len() > MAX_KEY_BYTES) => Kinds::OBJECT.any(),
        Json::Object(fields) => {
            let property = |(key, value): (&String, &Json)| Property::new(key, false, literal(value, depth + 1), None);
            Type::Object(closed(Object { properties: fields.iter().map(property).collect(), ..Object::default() }))
        }
    }
}
