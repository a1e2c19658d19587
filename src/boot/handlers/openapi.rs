//! Extracts the operations of a few endpoints from an `OpenAPI` document, with all parts of the document to which they refer.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use crate::boot::pages::is_description;
use crate::boot::plan::Endpoint;

/// The largest number of references that are followed.
const MAX_REFERENCES: usize = 500;
/// The largest number of parts in which references are searched. The targets of references may contain each other, so that without this limit
/// the whole document could be read once for each reference.
const MAX_SEARCHED_PARTS: usize = 200_000;

/// Parses a text as JSON, and returns the part of this `OpenAPI` or Swagger document that describes these endpoints, like [`operations`].
pub(super) fn operations_in(document: &str, endpoints: &[Endpoint]) -> Option<String> {
    operations(&serde_json::from_str(document).ok()?, endpoints)
}

/// Returns the part of an `OpenAPI` or Swagger document that describes these endpoints; `None` for another document, or if it describes none of
/// them.
pub(super) fn operations(document: &Json, endpoints: &[Endpoint]) -> Option<String> {
    let fields = document.as_object().filter(|_| is_description(document))?;
    let paths = fields.get("paths")?.as_object()?;
    let endpoints: Vec<_> = endpoints.iter().map(|endpoint| parts_of(&endpoint.url)).collect();
    let matching = paths.iter().filter(|(path, _)| {
        let path = parts_of(path);
        endpoints.iter().any(|endpoint| endpoint.ends_with(&path))
    });
    let kept: Map<_, _> = matching.map(|(path, item)| (path.clone(), item.clone())).collect();
    if kept.is_empty() {
        return None;
    }
    // The document without its paths and components is short, and applies to each operation: servers, security.
    let around = fields.iter().filter(|(key, _)| !matches!(key.as_str(), "paths" | "components" | "definitions" | "tags"));
    let mut reduced: Map<_, _> = around.map(|(key, value)| (key.clone(), value.clone())).collect();
    reduced.insert("paths".to_owned(), Json::Object(kept));
    add_references(&mut reduced, document);
    if let Some(schemes) = document.pointer("/components/securitySchemes") {
        insert_at(&mut reduced, &["components", "securitySchemes"], schemes.clone());
    }
    Some(Json::Object(reduced).to_string())
}

/// Returns the parts of a path or URL. Parts in braces are equal even if their names differ.
fn parts_of(text: &str) -> Vec<&str> {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    text.split('/').filter(|part| !part.is_empty()).map(|part| if part.starts_with('{') { "{}" } else { part }).collect()
}

/// Adds the parts of the document to which its references lead, and recursively the parts to which those refer.
fn add_references(reduced: &mut Map<String, Json>, document: &Json) {
    let (mut known, mut found) = (BTreeSet::new(), References { open: Vec::new(), left: MAX_SEARCHED_PARTS });
    reduced.values().for_each(|value| found.collect(value));
    while let Some(reference) = found.open.pop() {
        if known.len() >= MAX_REFERENCES || found.left == 0 {
            break;
        }
        if !known.insert(reference.clone()) {
            continue;
        }
        let Some(pointer) = reference.strip_prefix('#') else { continue };
        let Some(target) = document.pointer(pointer) else { continue };
        found.collect(target);
        let keys: Vec<_> = pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
        insert_at(reduced, &keys.iter().map(String::as_str).collect::<Vec<_>>(), target.clone());
    }
}

/// The references that were found and not followed yet.
struct References {
    open: Vec<String>,
    /// The number of parts that may still be searched.
    left: usize,
}

impl References {
    fn collect(&mut self, value: &Json) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        match value {
            Json::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Json::Object(fields) => {
                if let Some(reference) = fields.get("$ref").and_then(Json::as_str) {
                    self.open.push(reference.to_owned());
                }
                fields.values().for_each(|value| self.collect(value));
            }
            _ => {}
        }
    }
}

fn insert_at(object: &mut Map<String, Json>, keys: &[&str], value: Json) {
    match keys {
        [] => {}
        [key] => drop(object.entry(*key).or_insert(value)),
        [key, rest @ ..] => {
            if let Json::Object(inner) = object.entry(*key).or_insert_with(|| Json::Object(Map::new())) {
                insert_at(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(url: &str) -> Vec<Endpoint> {
        vec![Endpoint { method: "GET".to_owned(), url: url.to_owned() }]
    }

    fn document() -> String {
        json!({
            "openapi": "3.1.0",
            "servers": [{ "url": "https://api.example.com/v1" }],
            "paths": {
                "/items/{id}": { "get": { "responses": { "200": { "$ref": "#/components/responses/Item" } } } },
                "/users": { "get": { "summary": "no part of it" } }
            },
            "components": {
                "responses": { "Item": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Item" } } } } },
                "schemas": { "Item": { "properties": { "parent": { "$ref": "#/components/schemas/Item" } } }, "User": {} },
                "securitySchemes": { "key": { "type": "apiKey" } }
            }
        })
        .to_string()
    }

    #[test]
    fn an_operation_is_kept_with_what_it_refers_to() {
        let reduced: Json =
            serde_json::from_str(&operations_in(&document(), &endpoint("https://api.example.com/v1/items/{itemId}?a=b")).unwrap()).unwrap();
        assert!(reduced["paths"]["/users"].is_null() && reduced["components"]["schemas"]["User"].is_null());
        assert!(reduced["paths"]["/items/{id}"].is_object() && reduced["components"]["schemas"]["Item"].is_object());
        assert!(reduced["components"]["securitySchemes"]["key"].is_object() && reduced["servers"].is_array());
    }

    #[test]
    fn references_to_parts_within_each_other_are_searched_within_a_limit() {
        let items: Vec<_> = (0..1_000).map(|_| json!(1)).collect();
        let references: Vec<_> = (0..400).map(|number| json!({ "$ref": format!("#/components/all/{number}") })).collect();
        let all: Vec<_> = (0..400).map(|_| json!(items)).collect();
        let document = json!({ "openapi": "3.1.0", "paths": { "/x": { "get": references } }, "components": { "all": all } });
        let (mut found, target) = (References { open: Vec::new(), left: 1_500 }, document.pointer("/components/all").unwrap());
        found.collect(target);
        assert_eq!(found.left, 0);
        assert!(operations(&document, &endpoint("https://a.example/x")).unwrap().len() < 3_000 * 400);
    }

    #[test]
    fn another_document_is_left_alone() {
        assert_eq!(operations_in("{\"a\": 1}", &endpoint("https://a.example/x")), None);
        assert_eq!(operations_in("text", &endpoint("https://a.example/x")), None);
        assert_eq!(operations_in(&document(), &endpoint("https://api.example.com/v1/other")), None);
    }
}
