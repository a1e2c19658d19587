//! Digests of exactly what a person was shown.

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::catalog::Manifest;
use crate::config::{ServerDefinition, Transport};

/// SHA-256 over what would run: each part with its length before it, so that no two commands share a form.
///
/// ```
/// use hyperlight_mcp::{config::parse_text, trust::command_digest};
/// let config = |args: &str| parse_text(&format!(r#"{{ "servers": {{ "a": {{ "command": "x", "args": {args} }} }} }}"#), "c", 9).unwrap();
/// let digest = |args: &str| command_digest(&config(args).servers[0]);
/// assert_ne!(digest(r#"["a b"]"#), digest(r#"["a", "b"]"#));
/// ```
#[must_use]
pub fn command_digest(server: &ServerDefinition) -> String {
    let mut parts: Vec<&str> = vec!["hyperlight-mcp command 1", &server.name];
    match &server.transport {
        Transport::Stdio { command, arguments, .. } => {
            parts.extend(["stdio", command]);
            parts.extend(arguments.iter().map(String::as_str));
        }
        Transport::Http { url, .. } => parts.extend(["http", url]),
    }
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// SHA-256 over a manifest, whatever the order of its objects' keys.
#[must_use]
pub fn manifest_digest(manifest: &Manifest) -> String {
    let json = serde_json::to_value(manifest).unwrap_or(Json::Null);
    let mut hash = Sha256::new();
    hash.update(b"hyperlight-mcp manifest 1");
    hash_json(&json, &mut hash);
    hex::encode(hash.finalize())
}

/// A tag and a length before every part: no two different values have one form.
fn hash_json(json: &Json, hash: &mut Sha256) {
    let mut part = |tag: u8, bytes: &[u8]| {
        hash.update([tag]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match json {
        Json::Null => part(b'n', b""),
        Json::Bool(value) => part(b'b', &[u8::from(*value)]),
        Json::Number(value) => part(b'd', value.to_string().as_bytes()),
        Json::String(value) => part(b's', value.as_bytes()),
        Json::Array(items) => {
            hash.update([b'a']);
            hash.update((items.len() as u64).to_be_bytes());
            for item in items {
                hash_json(item, hash);
            }
        }
        Json::Object(fields) => {
            hash.update([b'o']);
            hash.update((fields.len() as u64).to_be_bytes());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| key.as_str());
            for (key, value) in fields {
                hash.update((key.len() as u64).to_be_bytes());
                hash.update(key.as_bytes());
                hash_json(value, hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Tool;
    use serde_json::json;

    fn manifest(schema: Json) -> Manifest {
        let tool = Tool { name: "t".into(), title: None, description: None, input_schema: schema, output_schema: None, annotations: None };
        Manifest {
            protocol_version: "2025-11-25".into(),
            server_name: "s".into(),
            server_version: "1".into(),
            instructions: None,
            tools: vec![tool],
        }
    }

    #[test]
    fn the_order_of_keys_does_not_change_a_manifests_digest_and_any_value_does() {
        let digest = |schema| manifest_digest(&manifest(schema));
        assert_eq!(digest(json!({ "a": 1, "b": 2 })), digest(json!({ "b": 2, "a": 1 })));
        assert_ne!(digest(json!({ "a": 1 })), digest(json!({ "a": "1" })));
        assert_ne!(digest(json!([["a"], []])), digest(json!([[], ["a"]])));
    }
}
