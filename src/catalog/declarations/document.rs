//! Resolves the references of a schema within its own document. No schema is ever fetched from elsewhere.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};
use url::Url;

/// Maximum depth of nested schemas that are indexed. References to identifiers and anchors at a greater depth cannot be resolved.
const MAX_DEPTH: usize = 64;
const MAX_VISITED: usize = 200_000;
/// Base URI for relative identifiers in a document that itself has no identifier.
const NO_BASE: &str = "json-schema:///";

/// Keywords whose value is a schema or a list of schemas.
const SCHEMA_KEYWORDS: [&str; 14] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "prefixItems",
    "allOf",
];
const MORE_SCHEMA_KEYWORDS: [&str; 2] = ["anyOf", "oneOf"];
const MAP_KEYWORDS: [&str; 6] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Draft of JSON Schema that a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Draft-04 and older. A schema's identifier is `id`.
    Draft4,
    /// Draft-06 and draft-07. All keywords next to a `$ref` are ignored.
    Draft7,
    /// Draft 2019-09. A tuple is described by `items`.
    Draft2019,
    /// Draft 2020-12. It is also used for a document without a known `$schema`.
    Draft2020,
}

/// A schema, and the schema resource that is the base of its relative references.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub schema: &'a Json,
    resource: usize,
}

struct Resource<'a> {
    root: &'a Json,
    uri: Option<Url>,
}

/// A whole schema document, with an index of its identifiers and anchors.
pub(super) struct Document<'a> {
    pub dialect: Dialect,
    resources: Vec<Resource<'a>>,
    /// Index of each resource, keyed by the address of its root in memory. With it, each resource is added only once.
    by_root: HashMap<*const Json, usize>,
    /// Index of each resource, keyed by its URI. `None` if two resources have the same URI.
    by_uri: HashMap<String, Option<usize>>,
    anchors: HashMap<(usize, &'a str), Option<At<'a>>>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Json) -> Self {
        let dialect = dialect(root);
        let mut document =
            Self { dialect, resources: Vec::new(), by_root: HashMap::new(), by_uri: HashMap::new(), anchors: HashMap::new() };
        let base = Url::parse(NO_BASE).ok();
        document.add_resource(root, id_of(root, dialect).map_or(base.clone(), |id| base.and_then(|base| base.join(id).ok())));
        document.index(root);
        document
    }

    pub(super) fn root(&self) -> At<'a> {
        At { schema: self.resources[0].root, resource: 0 }
    }

    /// Returns a subschema. If the subschema has an identifier, it gets its own base URI.
    pub(super) fn within(&mut self, at: At<'a>, schema: &'a Json) -> At<'a> {
        match id_of(schema, self.dialect) {
            Some(id) => At { schema, resource: self.resource(schema, id, at.resource) },
            None => At { schema, resource: at.resource },
        }
    }

    /// Returns the target of a reference. Returns `None` if the target is not unique or not in this document.
    pub(super) fn resolve(&mut self, reference: &str, from: At<'a>) -> Option<At<'a>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            from.resource
        } else {
            let mut uri = self.resources[from.resource].uri.as_ref()?.join(uri).ok()?;
            uri.set_fragment(None);
            (*self.by_uri.get(uri.as_str())?)?
        };
        let root = At { schema: self.resources[resource].root, resource };
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        match fragment.strip_prefix('/') {
            None if fragment.is_empty() => Some(root),
            None => *self.anchors.get(&(resource, &*fragment))?,
            Some(pointer) => self.follow(root, pointer),
        }
    }

    fn follow(&mut self, root: At<'a>, pointer: &str) -> Option<At<'a>> {
        let mut at = root;
        for token in pointer.split('/') {
            let token = token.replace("~1", "/").replace("~0", "~");
            let next = match at.schema {
                Json::Object(fields) => fields.get(&token)?,
                Json::Array(items) => items.get(token.parse::<usize>().ok().filter(|_| token == "0" || !token.starts_with(['0', '+']))?)?,
                _ => return None,
            };
            at = self.within(at, next);
        }
        matches!(at.schema, Json::Object(_) | Json::Bool(_)).then_some(at)
    }

    fn resource(&mut self, root: &'a Json, id: &str, within: usize) -> usize {
        if let Some(known) = self.by_root.get(&std::ptr::from_ref(root)) {
            return *known;
        }
        let uri = self.resources[within].uri.as_ref().and_then(|base| base.join(id).ok());
        self.add_resource(root, uri)
    }

    fn add_resource(&mut self, root: &'a Json, uri: Option<Url>) -> usize {
        let index = self.resources.len();
        let uri = uri.map(|mut uri| {
            uri.set_fragment(None);
            uri
        });
        if let Some(uri) = &uri {
            self.by_uri.entry(uri.to_string()).and_modify(|known| *known = None).or_insert(Some(index));
        }
        self.resources.push(Resource { root, uri });
        self.by_root.insert(root, index);
        index
    }

    /// Indexes identifiers and anchors. Only visits places where a schema can be, because an example may contain data that looks like an
    /// identifier.
    fn index(&mut self, root: &'a Json) {
        let mut waiting = vec![(At { schema: root, resource: 0 }, 0)];
        let mut visited = 0;
        while let Some((at, depth)) = waiting.pop() {
            visited += 1;
            let (true, true, Json::Object(fields)) = (visited <= MAX_VISITED, depth <= MAX_DEPTH, at.schema) else { continue };
            for anchor in anchors_of(fields, self.dialect) {
                self.anchors
                    .entry((at.resource, anchor))
                    .and_modify(|known| *known = known.filter(|known| std::ptr::eq(known.schema, at.schema)))
                    .or_insert(Some(at));
            }
            for schema in subschemas(fields) {
                waiting.push((self.within(at, schema), depth + 1));
            }
        }
    }
}

fn subschemas(fields: &Map<String, Json>) -> Vec<&Json> {
    let mut found = Vec::new();
    for keyword in SCHEMA_KEYWORDS.iter().chain(&MORE_SCHEMA_KEYWORDS) {
        match fields.get(*keyword) {
            Some(Json::Array(schemas)) => found.extend(schemas),
            Some(schema @ Json::Object(_)) => found.push(schema),
            _ => {}
        }
    }
    for keyword in MAP_KEYWORDS {
        found.extend(fields.get(keyword).and_then(Json::as_object).into_iter().flat_map(Map::values));
    }
    found
}

fn dialect(root: &Json) -> Dialect {
    let text = root.get("$schema").and_then(Json::as_str).unwrap_or_default();
    let names = |name: &str| text.contains(name);
    if names("draft-03") || names("draft-04") {
        Dialect::Draft4
    } else if names("draft-06") || names("draft-07") {
        Dialect::Draft7
    } else if names("2019-09") {
        Dialect::Draft2019
    } else {
        Dialect::Draft2020
    }
}

/// Returns the identifier of a schema. Returns `None` if the identifier is only a fragment.
fn id_of(schema: &Json, dialect: Dialect) -> Option<&str> {
    let fields = schema.as_object()?;
    let id = fields.get(if dialect == Dialect::Draft4 { "id" } else { "$id" })?.as_str()?;
    let alone = matches!(dialect, Dialect::Draft4 | Dialect::Draft7) && fields.contains_key("$ref");
    (!alone && !id.starts_with('#') && !id.is_empty()).then_some(id)
}

fn anchors_of(fields: &Map<String, Json>, dialect: Dialect) -> Vec<&str> {
    let text = |keyword: &str| fields.get(keyword).and_then(Json::as_str);
    match dialect {
        Dialect::Draft4 => text("id").and_then(|id| id.strip_prefix('#')).into_iter().collect(),
        Dialect::Draft7 => text("$id").and_then(|id| id.strip_prefix('#')).into_iter().collect(),
        Dialect::Draft2019 => text("$anchor").into_iter().collect(),
        Dialect::Draft2020 => text("$anchor").into_iter().chain(text("$dynamicAnchor")).collect(),
    }
}
