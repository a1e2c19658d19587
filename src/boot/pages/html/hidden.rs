//! Finds elements that a browser does not show, and where they end. A person who looks at the page does not see their text, so a model must not
//! read it, and their URLs are not added to the whitelist.

use std::collections::HashMap;

use super::tag::{SKIPPED, Tag, VOID, behind, ends_before, markup_length, tag, values};

/// Returns whether the tag's own attributes hide its element. Stylesheets and scripts are not checked.
pub(super) fn is_hidden(tag: &Tag<'_>) -> bool {
    let mut is_open = false;
    for (name, value) in values(tag.attributes) {
        match name.as_str() {
            "hidden" => return true,
            "style" if hides(value) => return true,
            "open" => is_open = true,
            _ => {}
        }
    }
    tag.name == "dialog" && !is_open
}

/// Returns whether a style's declarations hide its element.
fn hides(style: &str) -> bool {
    style.split(';').any(|declaration| {
        let (property, value) = declaration.split_once(':').unwrap_or_default();
        let value = value.trim().to_ascii_lowercase();
        let value = value.split(['!', ' ']).next().unwrap_or_default();
        matches!(
            (property.trim().to_ascii_lowercase().as_str(), value),
            ("display", "none") | ("visibility", "hidden" | "collapse") | ("content-visibility", "hidden")
        )
    })
}

/// Returns the text after a hidden element whose start tag is directly before `text`. `is_open` returns whether an element around the hidden
/// element is open; the end tag of such an element ends the hidden element too. An element without an end reaches to the end of the page.
pub(super) fn behind_hidden<'a>(text: &'a str, name: &str, is_open: impl Fn(&str) -> bool) -> &'a str {
    let mut open = vec![name.to_owned()];
    let mut counts = HashMap::from([(name.to_owned(), 1_usize)]);
    let close = |open: &mut Vec<String>, counts: &mut HashMap<String, usize>| {
        if let Some(count) = open.pop().and_then(|last| counts.get_mut(&last)) {
            *count -= 1;
        }
    };
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let Some((tag, length)) = tag(rest) else {
            rest = &rest[markup_length(rest).max(1)..];
            continue;
        };
        let after = &rest[length..];
        if !tag.is_end {
            while open.last().is_some_and(|last| ends_before(&tag.name).contains(&last.as_str())) {
                close(&mut open, &mut counts);
            }
            if open.is_empty() {
                return rest;
            }
            if SKIPPED.contains(&tag.name.as_str()) && !tag.is_closed {
                rest = behind(after, &tag.name);
                continue;
            }
            if !VOID.contains(&tag.name.as_str()) {
                *counts.entry(tag.name.clone()).or_default() += 1;
                open.push(tag.name);
            }
        } else if counts.get(&tag.name).is_some_and(|count| *count > 0) {
            while open.last().is_some_and(|last| *last != tag.name) {
                close(&mut open, &mut counts);
            }
            close(&mut open, &mut counts);
            if open.is_empty() {
                return after;
            }
        } else if is_open(&tag.name) {
            return rest;
        }
        rest = after;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::super::main_text;
    use super::*;

    #[test]
    fn a_style_hides_by_its_own_declarations() {
        for style in ["display:none", "color: red; DISPLAY : None !important", "visibility:hidden", "content-visibility: hidden"] {
            assert!(hides(style), "{style}");
        }
        for style in ["", "display:block", "x-display:none", "display", "visibility:visible", "background:url(a;display)"] {
            assert!(!hides(style), "{style}");
        }
    }

    #[test]
    fn the_text_of_a_hidden_element_is_not_read_and_what_follows_is() {
        let secret = "<b>secret <i>https://evil.example</b> secret <br> <script>'</div>'</script> secret";
        for hidden in [
            format!("<div hidden>{secret}<div>{secret}</div>{secret}</div>"),
            format!("<span HIDDEN=''>{secret}</span>"),
            format!("<p style='display:none'>{secret}<p>seen"),
            format!("<ul><li style=\"visibility: hidden\">{secret}<li>seen</ul>"),
            format!("<section><font hidden>{secret}</section>"),
            format!("<x-tip style=display:none>{secret}<span></x-tip>"),
            format!("<dialog>{secret}</dialog>"),
            format!("<table><tr><td hidden>{secret}<td>seen</table>"),
        ] {
            let text = main_text(&format!("<main><p>before</p>{hidden}<p>after</p></main>"));
            assert!(!text.contains("secret") && !text.contains("evil"), "{hidden}: {text}");
            assert!(
                text.contains("before") && text.contains("after") && text.contains("seen") == hidden.contains("seen"),
                "{hidden}: {text}"
            );
        }
        assert_eq!(main_text("<main><p>a</p><div hidden>b"), "a");
        assert_eq!(main_text("<main><dialog open>a</dialog><br hidden><img hidden>b</main>"), "a\nb");
    }

    #[test]
    fn a_page_of_hidden_elements_is_read_soon() {
        let started = std::time::Instant::now();
        for part in ["<a hidden>", "<p hidden>x", "<div hidden><i>", "<p hidden></q>", "<x hidden><"] {
            let page = format!("{}{}", part.repeat(100_000), "</b>".repeat(100_000));
            assert!(!main_text(&page).contains("hidden"));
        }
        assert!(started.elapsed().as_secs() < 60, "the time grows with the square of the length");
    }
}
