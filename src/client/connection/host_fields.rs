//! Checks those fields of listed items that only MCP hosts use. An item works without these fields, so a malformed field is left out and
//! the item is kept.

use serde_json::{Map, Value as Json};

use crate::catalog::{HostFields, kept_icons};
use crate::text::json::json_bytes;

/// Maximum size of an item's `_meta`. It is shown to a person and stored. Servers that use `_meta` need a few hundred bytes.
pub(super) const MAX_BYTES: usize = 16 * 1024;

/// Keeps the well-formed fields of a resource, a template or a prompt.
pub(super) fn kept(server: &str, fields: HostFields) -> HostFields {
    let HostFields { annotations, size, icons, meta } = fields;
    HostFields {
        annotations: annotations.as_ref().and_then(kept_annotations),
        size: size.filter(Json::is_u64),
        icons: kept_icons(server, icons.as_ref()),
        meta: meta.filter(|meta| is_kept_meta(server, meta)),
    }
}

/// Returns whether an item's `_meta` is kept.
pub(super) fn is_kept_meta(server: &str, meta: &Json) -> bool {
    let is_small = json_bytes(meta) <= MAX_BYTES;
    if !is_small {
        tracing::warn!(server, "the _meta of an item was left out: it has more than {MAX_BYTES} bytes");
    }
    is_small && meta.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Returns an item's annotations `audience` and `priority`. The time of the last change is left out: a list that was approved earlier would
/// still show an old time.
fn kept_annotations(annotations: &Json) -> Option<Json> {
    let is_role = |role: &Json| role == "user" || role == "assistant";
    let audience =
        annotations.get("audience").filter(|roles| roles.as_array().is_some_and(|roles| roles.len() <= 2 && roles.iter().all(is_role)));
    let priority = annotations.get("priority").filter(|priority| priority.as_f64().is_some_and(|priority| (0.0..=1.0).contains(&priority)));
    let kept: Map<_, _> = [("audience", audience), ("priority", priority)]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.clone())))
        .collect();
    (!kept.is_empty()).then_some(Json::Object(kept))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_annotations_the_fields_of_the_protocol_are_kept() {
        let given = json!({ "audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z", "x": "y" });
        assert_eq!(kept_annotations(&given), Some(json!({ "audience": ["user"], "priority": 0.5 })));
        for wrong in [json!({ "audience": ["root"] }), json!({ "priority": 2 }), json!("user"), json!({})] {
            assert_eq!(kept_annotations(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn malformed_fields_are_left_out() {
        let fields = |fields: Json| json!(kept("s", serde_json::from_value(fields).unwrap()));
        let good = json!({ "size": 5, "_meta": { "ui": {} } });
        assert_eq!(fields(good.clone()), good);
        assert_eq!(fields(json!({ "size": -1, "_meta": [], "icons": "x", "annotations": 5 })), json!({}));
        assert_eq!(fields(json!({ "_meta": { "a": "x".repeat(MAX_BYTES) } })), json!({}));
    }
}
