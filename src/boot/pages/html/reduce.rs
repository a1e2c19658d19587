//! Reduces a page of HTML to a small, well-nested one, in linear time.
//!
//! A page can be written so that an HTML parser, or code that visits its tree, takes minutes or overflows the stack: elements that are
//! nested thousands of times, thousands of attributes, formatting that is never closed. Therefore only known elements stay, each is closed,
//! and their depth and number are limited. The text stays, without scripts and styles.

use std::fmt::Write as _;

use super::hidden::{behind_hidden, is_hidden};
use super::tag::{SKIPPED, Tag, VOID, behind, ends_before, markup_length, tag, values};

/// The largest depth of elements. Deeper elements are dropped, and their text stays.
const MAX_DEPTH: usize = 48;
/// The largest number of elements. Further elements are dropped, and their text stays.
const MAX_ELEMENTS: usize = 20_000;
/// The maximum size in bytes of the value of an attribute. An attribute with a longer value is dropped.
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
/// Attributes that stay.
const ATTRIBUTES: [&str; 5] = ["href", "class", "id", "role", "aria-hidden"];

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
        } else if !tag.is_end && !VOID.contains(&tag.name.as_str()) && is_hidden(&tag) {
            page.close_before(&tag.name);
            rest = behind_hidden(rest, &tag.name, |name| page.open.iter().any(|open| open == name));
        } else if KEPT.contains(&tag.name.as_str()) {
            if tag.is_end { page.close(&tag.name) } else { page.open(&tag) }
        }
    }
    page.text(rest);
    page.finish()
}

/// The reduced page, as far as the page has been read.
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
            // A space keeps the words before and after a dropped tag separate.
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

    /// Closes elements that end where another element begins, because HTML allows their end tags to be omitted.
    fn close_before(&mut self, name: &str) {
        let ends = ends_before(name);
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

/// Returns the attributes that stay, with their values.
fn attributes(text: &str) -> Vec<(&'static str, &str)> {
    let mut found = Vec::<(&'static str, &str)>::new();
    for (name, value) in values(text) {
        let kept = ATTRIBUTES.into_iter().find(|kept| *kept == name);
        if let Some(name) = kept.filter(|name| value.len() <= MAX_VALUE_BYTES && !found.iter().any(|(known, _)| known == name)) {
            found.push((name, value));
        }
    }
    found
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
