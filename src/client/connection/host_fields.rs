//! Checks the fields of listed items that only hosts use. An item works without them, so a malformed one is left out and the item stays.

use serde_json::{Map, Value as Json, json};

use crate::catalog::HostFields;
use crate::text::json::json_bytes;

/// Maximum size of an item's `_meta`, and of its icons. They are shown to a person and stored. Servers that use `_meta` need a few hundred
/// bytes.
pub(super) const MAX_BYTES: usize = 16 * 1024;
/// Maximum number of icons of an item.
const MAX_ICONS: usize = 8;
/// Maximum length of the URL of an icon, as an approval request shows it.
const MAX_URL_BYTES: usize = crate::catalog::MAX_SHOWN_URI_CHARS;
/// The kinds of images that a host can show (MCP 2025-11-25, basic, "Icons").
const IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"];

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

/// Returns an item's annotations `audience` and `priority`. The time of the last change is left out, because an approved list would still
/// show an old time.
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

/// Returns the icons that a host may show: images in `data:` URIs, and images behind HTTPS. With other URIs, a server could make a host
/// read files of a person's machine, or run code.
pub(super) fn kept_icons(server: &str, icons: Option<&Json>) -> Option<Json> {
    let kept: Vec<_> = icons?.as_array()?.iter().filter_map(kept_icon).take(MAX_ICONS).collect();
    let kept = Json::Array(kept);
    if json_bytes(&kept) > MAX_BYTES {
        tracing::warn!(server, "the icons of an item were left out: they have more than {MAX_BYTES} bytes");
        return None;
    }
    kept.as_array().is_some_and(|icons| !icons.is_empty()).then_some(kept)
}

fn kept_icon(icon: &Json) -> Option<Json> {
    let src = icon.get("src")?.as_str()?;
    let is_visible = src.bytes().all(|byte| byte.is_ascii_graphic());
    let is_remote =
        || src.len() <= MAX_URL_BYTES && url::Url::parse(src).is_ok_and(|url| url.scheme() == "https" && url.username().is_empty());
    if !is_visible || !(is_image(src) || is_remote()) {
        return None;
    }
    let is_word = |text: &Json| text.as_str().is_some_and(|text| text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_graphic()));
    let others = [
        ("mimeType", icon.get("mimeType").filter(|kind| IMAGES.iter().any(|image| *kind == image))),
        ("sizes", icon.get("sizes").filter(|sizes| sizes.as_array().is_some_and(|sizes| sizes.len() <= 16 && sizes.iter().all(is_word)))),
        ("theme", icon.get("theme").filter(|theme| *theme == "light" || *theme == "dark")),
    ];
    let mut kept = json!({ "src": src });
    for (key, value) in others {
        if let Some(value) = value {
            kept[key] = value.clone();
        }
    }
    Some(kept)
}

/// Returns whether a URI contains an image of a kind that hosts show.
fn is_image(src: &str) -> bool {
    let kind = src.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and_then(|_| src[5..].split([';', ',']).next());
    kind.is_some_and(|kind| IMAGES.iter().any(|image| image.eq_ignore_ascii_case(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_icon_is_an_image_or_a_page_behind_https() {
        let image = "data:image/png;base64,iVBORw0KGgo=";
        for src in [image, "https://example.com/icon.png", "DATA:image/svg+xml,%3Csvg/%3E"] {
            assert_eq!(kept_icons("s", Some(&json!([{ "src": src }]))), Some(json!([{ "src": src }])), "{src}");
        }
        for src in [
            "http://example.com/icon.png",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "ftp://example.com/a",
            "data:text/html,<script>",
            "data:image/png\u{200b};base64,",
            "https://user@example.com/a",
            "//example.com/a",
            "",
        ] {
            assert_eq!(kept_icons("s", Some(&json!([{ "src": src }]))), None, "{src}");
        }
        let (long, url) = (format!("data:image/png;base64,{}", "A".repeat(MAX_BYTES)), format!("https://e.example/{}", "a".repeat(1_000)));
        assert_eq!(kept_icons("s", Some(&json!([{ "src": long }]))), None);
        assert_eq!(kept_icons("s", Some(&json!([{ "src": url }, { "src": 5 }, 5, { "src": image }]))), Some(json!([{ "src": image }])));
        assert_eq!(kept_icons("s", Some(&json!(vec![json!({ "src": image }); 20]))).unwrap().as_array().unwrap().len(), MAX_ICONS);
    }

    #[test]
    fn of_an_icon_and_of_annotations_the_fields_of_the_protocol_are_kept() {
        let icon = json!({ "src": "https://e.example/i", "mimeType": "image/png", "sizes": ["48x48", "any"], "theme": "dark" });
        let mut given = icon.clone();
        given["onload"] = json!("x");
        assert_eq!(kept_icons("s", Some(&json!([given]))), Some(json!([icon])));
        let wrong = json!({ "src": "https://e.example/i", "mimeType": "text/html", "sizes": "48x48", "theme": "x\u{202e}" });
        assert_eq!(kept_icons("s", Some(&json!([wrong]))), Some(json!([{ "src": "https://e.example/i" }])));
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
