//! The icons of a server's items that a host may show.

use serde_json::{Value as Json, json};

use super::MAX_SHOWN_URI_CHARS;
use crate::text::json::json_bytes;

/// Maximum size in bytes of all icons of one item. The icons of listed items are shown to a person and stored.
const MAX_BYTES: usize = 16 * 1024;
/// Maximum number of icons of an item.
const MAX_ICONS: usize = 8;
/// The kinds of images that a host can show (MCP 2025-11-25, basic, "Icons").
const IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"];

/// Returns the icons that a host may show: images within the text, and images behind HTTPS. Other addresses could make a host read files of
/// a person's machine, or run code.
pub(crate) fn kept_icons(server: &str, icons: Option<&Json>) -> Option<Json> {
    kept(server, icons, |src| is_image(src) || is_remote(src))
}

/// Returns the icons whose `src` contains the image itself (`data:`). Results and prompts keep no other icons: nobody has approved the
/// addresses of their icons, and a host that fetches such an address sends the data that the server has put into the address.
pub(crate) fn enclosed_icons(server: &str, icons: Option<&Json>) -> Option<Json> {
    kept(server, icons, is_image)
}

fn kept(server: &str, icons: Option<&Json>, is_shown: impl Fn(&str) -> bool) -> Option<Json> {
    let kept: Vec<_> = icons?.as_array()?.iter().filter_map(|icon| kept_icon(icon, &is_shown)).take(MAX_ICONS).collect();
    let kept = Json::Array(kept);
    if json_bytes(&kept) > MAX_BYTES {
        tracing::warn!(server, "the icons of an item were left out: they have more than {MAX_BYTES} bytes");
        return None;
    }
    kept.as_array().is_some_and(|icons| !icons.is_empty()).then_some(kept)
}

fn kept_icon(icon: &Json, is_shown: impl Fn(&str) -> bool) -> Option<Json> {
    let src = icon.get("src")?.as_str()?;
    let is_visible = src.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_visible || !is_shown(src) {
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

/// Returns whether a URI is the address of an image behind HTTPS.
fn is_remote(src: &str) -> bool {
    src.len() <= MAX_SHOWN_URI_CHARS && url::Url::parse(src).is_ok_and(|url| url.scheme() == "https" && url.username().is_empty())
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
    fn an_icon_of_an_answer_is_an_image_within_it() {
        let image = "data:image/png;base64,iVBORw0KGgo=";
        let given = json!([{ "src": "https://evil.example/?x=secret" }, { "src": "javascript:alert(1)" }, { "src": image, "onload": "x" }]);
        assert_eq!(enclosed_icons("s", Some(&given)), Some(json!([{ "src": image }])));
        assert_eq!(enclosed_icons("s", Some(&json!([{ "src": "https://example.com/icon.png" }]))), None);
        assert_eq!(enclosed_icons("s", Some(&json!("x"))), None);
    }

    #[test]
    fn of_an_icon_the_fields_of_the_protocol_are_kept() {
        let icon = json!({ "src": "https://e.example/i", "mimeType": "image/png", "sizes": ["48x48", "any"], "theme": "dark" });
        let mut given = icon.clone();
        given["onload"] = json!("x");
        assert_eq!(kept_icons("s", Some(&json!([given]))), Some(json!([icon])));
        let wrong = json!({ "src": "https://e.example/i", "mimeType": "text/html", "sizes": "48x48", "theme": "x\u{202e}" });
        assert_eq!(kept_icons("s", Some(&json!([wrong]))), Some(json!([{ "src": "https://e.example/i" }])));
    }
}
