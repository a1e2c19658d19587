//! Reads the tags of a page of HTML, one after the other, in linear time.

/// Elements without a content.
pub(super) const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
/// Elements whose content is not shown, or is not text.
pub(super) const SKIPPED: [&str; 14] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "textarea", "select", "canvas", "video", "audio",
    "datalist",
];
/// The largest number of bytes in a tag. A longer tag is dropped.
const MAX_TAG_BYTES: usize = 16 * 1024;

/// A tag as the page contains it.
pub(super) struct Tag<'a> {
    pub(super) name: String,
    pub(super) is_end: bool,
    pub(super) is_closed: bool,
    pub(super) attributes: &'a str,
}

/// Returns the elements that end where an element of this name begins.
pub(super) fn ends_before(name: &str) -> &'static [&'static str] {
    match name {
        "li" => &["li"],
        "dt" | "dd" => &["dt", "dd"],
        "tr" => &["tr", "td", "th"],
        "td" | "th" => &["td", "th"],
        "a" => &["a"],
        "p" | "div" | "ul" | "ol" | "dl" | "pre" | "table" | "section" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => &["p"],
        _ => &[],
    }
}

/// Reads a tag at the beginning of a text. Returns the tag with its length in bytes.
pub(super) fn tag(text: &str) -> Option<(Tag<'_>, usize)> {
    let is_end = text.as_bytes().get(1) == Some(&b'/');
    let from = if is_end { 2 } else { 1 };
    let length = text[from..].find(|character: char| !character.is_ascii_alphanumeric() && character != '-').unwrap_or(text.len() - from);
    let name = text[from..from + length].to_ascii_lowercase();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let inside = &text[from + length..];
    let end = tag_end(inside)?;
    let is_closed = inside[..end].ends_with('/');
    Some((Tag { name, is_end, is_closed, attributes: &inside[..end] }, from + length + end + 1))
}

/// Returns the position of the `>` that ends a tag. A `>` in quotes does not end a tag.
fn tag_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut before = b'=';
    for (at, byte) in text.bytes().enumerate().take(MAX_TAG_BYTES) {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'"' | b'\'') if before == b'=' => quote = Some(byte),
            (None, b'>') => return Some(at),
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    None
}

/// Returns the length of a comment, of a declaration, or of a tag that is too long. Returns 0 if the `<` is only text.
pub(super) fn markup_length(text: &str) -> usize {
    let up_to = |end: &str, from: usize| text.get(from..).and_then(|rest| rest.find(end)).map_or(text.len(), |at| from + at + end.len());
    if text.starts_with("<!--") {
        up_to("-->", 4)
    } else if text.starts_with("<!")
        || text.starts_with("<?")
        || text.starts_with("</")
        || text[1..].starts_with(|next: char| next.is_ascii_alphabetic())
    {
        up_to(">", 1)
    } else {
        0
    }
}

/// Returns the text after the end tag of a skipped element.
pub(super) fn behind<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        let found = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if found && !rest[name.len()..].starts_with(|next: char| next.is_ascii_alphanumeric()) {
            return rest.find('>').map_or("", |end| &rest[end + 1..]);
        }
    }
    ""
}

/// Returns all attributes with their values. An attribute without a value gets an empty value.
pub(super) fn values(text: &str) -> impl Iterator<Item = (String, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|next: char| next.is_whitespace() || next == '/');
        if rest.is_empty() {
            return None;
        }
        // A name has at least one character. In HTML, a `=` at the beginning of a name is a part of the name.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let length = rest[first..].find(|next: char| next.is_whitespace() || matches!(next, '=' | '/'));
        let length = length.map_or(rest.len(), |length| first + length);
        let name = rest[..length].to_ascii_lowercase();
        rest = rest[length..].trim_start();
        let Some(behind) = rest.strip_prefix('=') else {
            return Some((name, ""));
        };
        let behind = behind.trim_start();
        let (value, left) = match behind.chars().next() {
            Some(quote @ ('"' | '\'')) => behind[1..].split_once(quote).unwrap_or((&behind[1..], "")),
            _ => behind.split_at(behind.find(char::is_whitespace).unwrap_or(behind.len())),
        };
        rest = left;
        Some((name, value))
    })
}
