//! The kind of a page by its content type, and its bytes as text.

use serde::{Deserialize, Serialize};

use super::PageProblem;
use crate::text::sanitise_line;

/// The kind of a page's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageKind {
    Json,
    Yaml,
    Markdown,
    Html,
    Text,
}

impl PageKind {
    /// Returns the kind as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Markdown => "markdown",
            Self::Html => "html",
            Self::Text => "text",
        }
    }
}

/// Returns the kind of a page, and its bytes as text.
pub(super) fn decode(content_type: Option<&str>, bytes: &[u8], path: &str) -> Result<(PageKind, String), PageProblem> {
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let (media, parameters) = content_type.split_once(';').unwrap_or((&content_type, ""));
    let text = text_of(bytes, charset(parameters));
    let kind = match media.trim() {
        "" | "application/octet-stream" | "binary/octet-stream" => {
            if bytes.iter().take(8_192).any(|byte| *byte == 0) {
                return Err("is not text".into());
            }
            by_content(&text, path)
        }
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        "application/json" | "text/json" => PageKind::Json,
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => PageKind::Yaml,
        "text/markdown" | "text/x-markdown" => PageKind::Markdown,
        media if media.ends_with("+json") => PageKind::Json,
        media if media.ends_with("+yaml") => PageKind::Yaml,
        "application/xml" | "application/javascript" | "application/x-ndjson" => PageKind::Text,
        media if media.ends_with("+xml") => PageKind::Text,
        // Repositories send all files as plain text, so the name decides about the kind.
        "text/plain" => by_name(path).unwrap_or(PageKind::Text),
        media if media.starts_with("text/") => PageKind::Text,
        media => return Err(format!("has the type {}, which is not text", sanitise_line(media, 80)).into()),
    };
    if text.trim().is_empty() { Err("is empty".into()) } else { Ok((kind, text)) }
}

fn by_name(path: &str) -> Option<PageKind> {
    let extension = path.rsplit_once('.')?.1.to_ascii_lowercase();
    match extension.as_str() {
        "json" => Some(PageKind::Json),
        "yaml" | "yml" => Some(PageKind::Yaml),
        "md" | "markdown" => Some(PageKind::Markdown),
        _ => None,
    }
}

fn by_content(text: &str, path: &str) -> PageKind {
    let start = text.trim_start();
    let start = start[..start.floor_char_boundary(20)].to_ascii_lowercase();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        PageKind::Html
    } else if start.starts_with(['{', '[']) {
        PageKind::Json
    } else {
        by_name(path).unwrap_or(PageKind::Text)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
}

fn charset(parameters: &str) -> Charset {
    let name = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("charset="));
    match name.unwrap_or_default().trim_matches(['"', ' ']) {
        "iso-8859-1" | "latin1" | "windows-1252" => Charset::Latin1,
        _ => Charset::Utf8,
    }
}

fn text_of(bytes: &[u8], charset: Charset) -> String {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<_> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        bytes if charset == Charset::Latin1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(content_type: Option<&str>, bytes: &[u8], path: &str) -> Result<PageKind, String> {
        decode(content_type, bytes, path).map(|(kind, _)| kind).map_err(|problem| problem.0)
    }

    #[test]
    fn the_content_type_decides_and_else_name_and_content() {
        for (content_type, text, path, expected) in [
            (Some("application/json"), "x", "/", PageKind::Json),
            (Some("application/vnd.oai.openapi+json;version=3.1"), "x", "/", PageKind::Json),
            (Some("application/vnd.oai.openapi+yaml"), "x", "/", PageKind::Yaml),
            (Some("Text/HTML; charset=utf-8"), "x", "/a.json", PageKind::Html),
            (Some("text/plain"), "x", "/README.md", PageKind::Markdown),
            (Some("text/plain"), "{}", "/notes", PageKind::Text),
            (None, " <!DOCTYPE html><p>", "/", PageKind::Html),
            (None, "{\"a\":1}", "/", PageKind::Json),
            (Some("application/octet-stream"), "a: 1", "/openapi.yml", PageKind::Yaml),
            (None, "hello", "/", PageKind::Text),
        ] {
            assert_eq!(kind(content_type, text.as_bytes(), path), Ok(expected), "{content_type:?} {text} {path}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_type() {
        assert_eq!(kind(Some("application/pdf"), b"x", "/"), Err("has the type application/pdf, which is not text".to_owned()));
        assert_eq!(kind(None, b"\x7fELF\0\0", "/"), Err("is not text".to_owned()));
        assert_eq!(kind(Some("text/plain"), b" \n", "/"), Err("is empty".to_owned()));
    }

    #[test]
    fn bytes_are_read_in_their_charset() {
        let text = |content_type: &str, bytes: &[u8]| decode(Some(content_type), bytes, "/").unwrap().1;
        assert_eq!(text("text/plain; charset=ISO-8859-1", b"\xe4"), "ä");
        assert_eq!(text("text/plain", b"\xef\xbb\xbf\xc3\xa4"), "ä");
        assert_eq!(text("text/plain", b"\xff\xfe\xe4\x00"), "ä");
        assert_eq!(text("text/plain", b"a\xff"), "a\u{fffd}");
    }
}
