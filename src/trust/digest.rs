//! Digests of the exact content that a person was shown.

use serde::Serialize;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::catalog::{Manifest, Tool};
use crate::store::Canonical;

/// Returns the SHA-256 of a form, in hexadecimal.
#[must_use]
pub(super) fn digest(form: &Canonical) -> String {
    hex::encode(Sha256::digest(form.as_bytes()))
}

/// Returns the SHA-256 of a manifest. The order of keys in its objects does not matter.
///
/// ```
/// use hyperlight_mcp::{catalog::Manifest, trust::manifest_digest};
/// let manifest: Manifest = serde_json::from_str(
///     r#"{ "protocolVersion": "2025-11-25", "serverName": "s", "serverVersion": "1", "tools": [] }"#,
/// ).unwrap();
/// assert_eq!(manifest_digest(&manifest).len(), 64);
/// ```
#[must_use]
pub fn manifest_digest(manifest: &Manifest) -> String {
    digest(&Canonical::new("hyperlight-mcp manifest 1").json(&json!(manifest)))
}

/// Returns the SHA-256 of everything that a server declares about one tool.
///
/// ```
/// use hyperlight_mcp::trust::tool_digest;
/// let tool = |text: &str| serde_json::from_str(text).unwrap();
/// let (one, same) = (r#"{ "name": "a", "inputSchema": {} }"#, r#"{ "inputSchema": {}, "name": "a" }"#);
/// assert_eq!(tool_digest(&tool(one)), tool_digest(&tool(same)));
/// assert_ne!(tool_digest(&tool(one)), tool_digest(&tool(r#"{ "name": "a", "inputSchema": {}, "description": "new" }"#)));
/// ```
#[must_use]
pub fn tool_digest(tool: &Tool) -> String {
    // The fields are added one by one, to avoid a copy of the schemas.
    let optional = |form: Canonical, json: Option<&Json>| form.json(json.unwrap_or(&Json::Null)).flag(json.is_some());
    let form = Canonical::new("hyperlight-mcp tool 1")
        .text(&tool.name)
        .optional(tool.title.as_deref())
        .optional(tool.description.as_deref())
        .json(&tool.input_schema);
    let form = optional(optional(form, tool.output_schema.as_ref()), tool.annotations.as_ref());
    // `execution` is added only if present, so that digests of tools that were approved before this field existed stay valid.
    let form = if tool.execution.is_some() { optional(form, tool.execution.as_ref()) } else { form };
    // `_meta` and icons are also added only if present. The text before them distinguishes them from `execution`.
    let named = [("_meta", &tool.meta), ("icons", &tool.icons)];
    let named = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    digest(&named.fold(form, |form, (name, value)| form.text(name).json(value)))
}

/// Returns the SHA-256 of everything that a server declares about a resource, a template or a prompt. `kind` keeps the digests of different kinds
/// apart.
#[must_use]
pub(super) fn item_digest<T: Serialize>(kind: &str, item: &T) -> String {
    digest(&Canonical::new("hyperlight-mcp offer 1").text(kind).json(&json!(item)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(schema: Json) -> Manifest {
        let tool = Tool {
            name: "t".into(),
            title: None,
            description: None,
            input_schema: schema,
            output_schema: None,
            annotations: None,
            execution: None,
            meta: None,
            icons: None,
        };
        Manifest {
            protocol_version: "2025-11-25".into(),
            server_name: "s".into(),
            server_version: "1".into(),
            instructions: None,
            tools: vec![tool],
            ..Manifest::default()
        }
    }

    #[test]
    fn the_order_of_keys_does_not_change_a_digest_and_any_value_does() {
        let digest = |schema| manifest_digest(&manifest(schema));
        assert_eq!(digest(json!({ "a": 1, "b": 2 })), digest(json!({ "b": 2, "a": 1 })));
        assert_ne!(digest(json!({ "a": 1 })), digest(json!({ "a": "1" })));
    }

    #[test]
    fn a_manifest_without_resources_and_prompts_has_the_digest_that_it_had_before_there_were_any() {
        let text = r#"{ "protocolVersion": "2025-11-25", "serverName": "s", "serverVersion": "1", "tools": [] }"#;
        let manifest: Manifest = serde_json::from_str(text).unwrap();
        assert_eq!(
            json!(manifest).as_object().unwrap().keys().collect::<Vec<_>>(),
            ["protocolVersion", "serverName", "serverVersion", "tools"]
        );
        // This is the digest that version 0.1.0 computed.
        assert_eq!(manifest_digest(&manifest), "4123b2a7340cbac6dafd77d4130f7d1a8c2a0de0a8e475cd144bf1e8b9b192aa");
        let more = Manifest { prompts: vec![serde_json::from_str(r#"{ "name": "p" }"#).unwrap()], ..manifest.clone() };
        assert_ne!(manifest_digest(&more), manifest_digest(&manifest));
    }

    #[test]
    fn every_field_of_a_tool_has_its_part_in_the_digest() {
        let tool = || manifest(json!({})).tools.remove(0);
        let variants = [
            tool(),
            Tool { name: "u".into(), ..tool() },
            Tool { title: Some("t".into()), ..tool() },
            Tool { description: Some("t".into()), ..tool() },
            Tool { input_schema: json!({ "a": 1 }), ..tool() },
            Tool { output_schema: Some(json!({})), ..tool() },
            Tool { output_schema: Some(Json::Null), ..tool() },
            Tool { annotations: Some(json!({})), ..tool() },
            Tool { execution: Some(json!({})), ..tool() },
            Tool { meta: Some(json!({})), ..tool() },
            Tool { execution: Some(json!({})), meta: Some(json!({})), ..tool() },
            Tool { icons: Some(json!({})), ..tool() },
            Tool { meta: Some(json!({})), icons: Some(json!({})), ..tool() },
        ];
        let digests: std::collections::BTreeSet<_> = variants.iter().map(tool_digest).collect();
        assert_eq!(digests.len(), variants.len());
    }
}
