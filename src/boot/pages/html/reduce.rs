//! Reduces a page of HTML to a small, well-nested one, in linear time.
//!
//! A page can be written so that an HTML parser, or what walks its tree, takes minutes or overflows the stack: elements that are nested
//! thousands of times, thousands of attributes, formatting that is never closed. So only known elements stay, each is closed, and their
//! depth and number are limited. The text stays, without scripts and styles.

use std::fmt::Write as _;

/// The largest depth of elements. Deeper elements are dropped, and their text stays.
const MAX_DEPTH: usize = 48;
/// The largest number of elements. Further elements are dropped, and their text stays.
const MAX_ELEMENTS: usize = 20_000;
/// The largest number of bytes of a tag. A longer tag is dropped.
const MAX_TAG_BYTES: usize = 16 * 1024;
/// The largest number of bytes of an attribute that stays.
const MAX_VALUE_BYTES: usize = 2_000;

/// Elements that stay.
const KEPT: [&str; 46] = [
    "html",
    "body",
    "main",
    "article",
    "section",
    "nav",
    "aside",
    "header",
    "footer",
    "div",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "pre",
    "code",
    "blockquote",
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "th",
    "td",
    "caption",
    "a",
    "br",
    "hr",
    "figure",
    "figcaption",
    "details",
    "summary",
    "strong",
    "em",
    "kbd",
    "head",
    "title",
];
/// Elements without a content.
const VOID: [&str; 2] = ["br", "hr"];
/// Elements whose content is not shown, or no text.
const SKIPPED: [&str; 12] =
    ["script", "style", "noscript", "template", "svg", "math", "iframe", "object", "textarea", "select", "canvas", "video"];
/// Attributes that stay.
const ATTRIBUTES: [&str; 5] = ["href", "class", "id", "role", "aria-hidden"];

/// A tag as it stands in the page.
struct Tag<'a> {
    name: String,
    is_end: bool,
    is_closed: bool,
    attributes: &'a str,
}

/// Returns the reduced page.
pub(super) fn reduce(html: &str) -> String {
    let mut page = Reduced { html: String::with_capacity(html.len() / 2), open: Vec::new(), elements: 0 };
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        page.text(&rest[..at]);
        rest = &rest[at..];
        let Some((tag, length)) = tag(rest) else {
            let length = markup_length(rest);
            if length == 0 {
                page.text("<");
            }
            rest = &rest[length.max(1)..];
            continue;
        };
        rest = &rest[length..];
        if SKIPPED.contains(&tag.name.as_str()) {
            if !tag.is_end && !tag.is_closed {
                rest = behind(rest, &tag.name);
            }
        } else if KEPT.contains(&tag.name.as_str()) {
            if tag.is_end { page.close(&tag.name) } else { page.open(&tag) }
        }
    }
    page.text(rest);
    page.finish()
}

/// The reduced page, up to the place that is read.
struct Reduced {
    html: String,
    open: Vec<String>,
    elements: usize,
}

impl Reduced {
    fn text(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '<' => self.html.push_str("&lt;"),
                '>' => self.html.push_str("&gt;"),
                '\0' => {}
                character => self.html.push(character),
            }
        }
    }

    fn open(&mut self, tag: &Tag<'_>) {
        let name = tag.name.as_str();
        self.close_before(name);
        let is_void = VOID.contains(&name);
        if self.elements >= MAX_ELEMENTS || !is_void && self.open.len() >= MAX_DEPTH {
            // Words on both sides of a tag that is dropped stay two words.
            self.html.push(' ');
            return;
        }
        self.elements += 1;
        self.html.push('<');
        self.html.push_str(name);
        for (attribute, value) in attributes(tag.attributes) {
            let _ = write!(self.html, " {attribute}=\"{}\"", value.replace('"', "&quot;").replace(['<', '>'], ""));
        }
        self.html.push('>');
        if !is_void {
            self.open.push(name.to_owned());
        }
    }

    /// Closes elements that end where another begins, as HTML lets their end tags be left out.
    fn close_before(&mut self, name: &str) {
        let ends: &[&str] = match name {
            "li" => &["li"],
            "dt" | "dd" => &["dt", "dd"],
            "tr" => &["tr", "td", "th"],
            "td" | "th" => &["td", "th"],
            "a" => &["a"],
            "p" | "div" | "ul" | "ol" | "dl" | "pre" | "table" | "section" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => &["p"],
            _ => &[],
        };
        while let Some(last) = self.open.last().filter(|last| ends.contains(&last.as_str())).cloned() {
            self.close(&last);
        }
    }

    fn close(&mut self, name: &str) {
        if let Some(at) = self.open.iter().rposition(|open| open == name) {
            for open in self.open.drain(at..).rev() {
                let _ = write!(self.html, "</{open}>");
            }
        } else {
            self.html.push(' ');
        }
    }

    fn finish(mut self) -> String {
        for open in self.open.drain(..).rev() {
            let _ = write!(self.html, "</{open}>");
        }
        self.html
    }
}

/// Reads a tag at the beginning of a text. Returns it with its length.
fn tag(text: &str) -> Option<(Tag<'_>, usize)> {
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

/// Returns the position of the `>` that ends a tag, which does not stand in quotes.
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

/// Returns the length of a comment or a declaration, or of a tag that is too long; 0 for a `<` that is text.
fn markup_length(text: &str) -> usize {
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

/// Returns what follows the end tag of an element that is skipped.
fn behind<'a>(text: &'a str, name: &str) -> &'a str {
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

/// Returns the attributes that stay, with their values.
fn attributes(text: &str) -> Vec<(&'static str, &str)> {
    let (mut found, mut rest) = (Vec::<(&'static str, &str)>::new(), text);
    loop {
        rest = rest.trim_start_matches(|next: char| next.is_whitespace() || next == '/');
        let length = rest.find(|next: char| next.is_whitespace() || matches!(next, '=' | '/')).unwrap_or(rest.len());
        if rest.is_empty() {
            return found;
        }
        let name = rest[..length].to_ascii_lowercase();
        rest = rest[length..].trim_start();
        let Some(behind) = rest.strip_prefix('=') else {
            continue;
        };
        let behind = behind.trim_start();
        let (value, left) = match behind.chars().next() {
            Some(quote @ ('"' | '\'')) => behind[1..].split_once(quote).unwrap_or((&behind[1..], "")),
            _ => behind.split_at(behind.find(char::is_whitespace).unwrap_or(behind.len())),
        };
        rest = left;
        let kept = ATTRIBUTES.into_iter().find(|kept| *kept == name);
        if let Some(name) = kept.filter(|name| value.len() <= MAX_VALUE_BYTES && !found.iter().any(|(known, _)| known == name)) {
            found.push((name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn structure_and_text_stay_and_what_is_not_shown_goes() {
        let page = "<!doctype html><HTML><!-- <p>no</p> --><script>if (a < b) '<p>no'</script><style>p{}</style><div onclick='x()' class=\"c > d\">\
                    <font>a &lt; b</font><br/>1 < 2</div></html>";
        assert_eq!(reduce(page), "<html><div class=\"c  d\">a &lt; b<br>1 &lt; 2</div></html>");
    }

    #[test]
    fn every_element_is_closed_in_order() {
        assert_eq!(reduce("<ul><li>a<li>b</ul><p>c<p>d"), "<ul><li>a</li><li>b</li></ul><p>c</p><p>d</p>");
        assert_eq!(reduce("<table><tr><td>a<td>b<tr><td>c</table>"), "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>");
        assert_eq!(reduce("<div><p>a</div>b</p>"), "<div><p>a</p></div>b ");
    }

    #[test]
    fn only_attributes_that_say_what_an_element_is_stay() {
        let page = "<a HREF=/x onclick=alert(1) class='k\"l' href=/y data-x>t</a>";
        assert_eq!(reduce(page), "<a href=\"/x\" class=\"k&quot;l\">t</a>");
        let many = (0..100_000).map(|number| format!("a{number}=1")).collect::<Vec<_>>().join(" ");
        assert!(!reduce(&format!("<p {many}>t")).contains("a1="));
    }

    #[test]
    fn a_page_that_never_ends_its_elements_is_flat_and_small() {
        for part in [
            "<div>",
            "<ul><li>x",
            "<table><tr><td>x",
            "<b><i><a><p>x",
            "<a href=1><a href=2>x",
            "<code>",
            "<br>",
            "<",
            "</",
            "<!--",
            "<p a='",
        ] {
            let reduced = reduce(&part.repeat(50_000));
            let deepest = reduced.split_inclusive('>').scan(0_usize, |depth, tag| {
                let name = tag.rsplit('<').next().unwrap_or_default();
                let is_void = name.starts_with("br") || name.starts_with("hr");
                *depth = if name.starts_with('/') {
                    depth.saturating_sub(1)
                } else if is_void || !tag.contains('<') {
                    *depth
                } else {
                    *depth + 1
                };
                Some(*depth)
            });
            assert!(deepest.max().unwrap_or_default() <= MAX_DEPTH, "{part}");
            assert!(reduced.matches('<').count() <= 2 * MAX_ELEMENTS, "{part}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_reduced_to_elements_that_are_known(html in "(<|>|/|!|-|p|div|ul|li|a| |=|\"|'|script|x){0,60}") {
            let reduced = reduce(&html);
            for tag in reduced.split('<').skip(1) {
                let name: String = tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
                prop_assert!(KEPT.contains(&name.as_str()), "{} in {}", name, reduced);
            }
        }
    }
}
