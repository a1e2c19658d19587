//! The main text of a page of HTML, as Markdown.

mod hidden;
mod reduce;
mod tag;

use dom_query::{Document, Selection};
use dom_smoothie::{CandidateSelectMode, Config, Readability, TextMode};

use reduce::reduce;

/// The largest number of bytes of HTML that are read. The rest of a longer page is dropped.
const MAX_HTML_BYTES: usize = 4 * 1024 * 1024;
/// The minimum size of the main text, in percent of the page's text without navigation. If the rules of readability find less, they have
/// missed something, because they treat the lists and tables of reference documentation as navigation.
const LEAST_PART: usize = 40;
/// Elements around the main text.
const AROUND: &str = "nav, aside, header, footer, [role=navigation], [role=banner], [role=contentinfo], [role=search], [aria-hidden=true]";

/// Returns the main text of a page as Markdown, without navigation and other parts around it.
///
/// If the page marks its main part, this part is used. Otherwise, the rules of readability find the main part. If they find too little, the
/// whole page without its navigation is used.
///
/// ```
/// use hyperlight_mcp::boot::main_text;
/// let page = "<nav><a href=/>Home</a></nav><main><h1>API</h1><p>Call <code>GET /forecast</code>.</p></main>";
/// assert_eq!(main_text(page), "# API\n\nCall `GET /forecast`.");
/// ```
#[must_use]
pub fn main_text(html: &str) -> String {
    let html = &html[..html.floor_char_boundary(MAX_HTML_BYTES)];
    let document = Document::from(reduce(html));
    let title = document.select("title").text().trim().to_owned();
    let marked = document.select("main, [role=main]");
    let text = if marked.length() == 1 {
        marked.select(AROUND).remove();
        markdown_of(&marked)
    } else {
        unmarked(&document)
    };
    if text.starts_with('#') || title.is_empty() || text.is_empty() { text } else { format!("# {title}\n\n{text}") }
}

fn unmarked(document: &Document) -> String {
    let found = readable(document);
    document.select(AROUND).remove();
    document.select("head").remove();
    let whole = markdown_of(&document.select("body"));
    match found {
        Some(found) if found.len().saturating_mul(100) >= whole.len().saturating_mul(LEAST_PART) => found,
        _ => whole,
    }
}

fn readable(document: &Document) -> Option<String> {
    let config = Config {
        text_mode: TextMode::Markdown,
        candidate_select_mode: CandidateSelectMode::DomSmoothie,
        disable_json_ld: true,
        keep_classes: true,
        ..Config::default()
    };
    let article = Readability::with_document(document.clone(), None, Some(config)).ok()?.parse().ok()?;
    Some(markdown(&article.text_content)).filter(|text| !text.is_empty())
}

fn markdown_of(selection: &Selection<'_>) -> String {
    selection.nodes().first().map(|node| markdown(&node.md(None))).unwrap_or_default()
}

/// Replaces several blank lines by one, and removes spaces around the text.
fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blank = true;
    for line in text.lines() {
        let line = line.trim_end();
        if !line.is_empty() || !blank {
            out.push_str(line);
            out.push('\n');
        }
        blank = line.is_empty();
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAVIGATION: &str = "<header><a href=/>Home</a> <a href=/pricing>Pricing</a></header><nav><ul><li><a href=/a>Guide</a></ul></nav>";
    const REFERENCE: &str = "<h1>Weather API</h1><p>The address is <code>https://api.weather.example/v1</code>, and each request needs a key.</p>\
        <h2>GET /forecast</h2><table><tr><th>Parameter</th><th>Type</th></tr><tr><td>city</td><td>string</td></tr></table>\
        <pre><code class=\"language-json\">{\n  \"temperature\": 21.5\n}</code></pre><h2>GET /cities</h2><ul><li>limit: number</li></ul>";

    fn assert_reference(text: &str) {
        for part in
            ["# Weather API", "https://api.weather.example/v1", "## GET /forecast", "city", "\"temperature\": 21.5", "limit: number"]
        {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        for part in ["Pricing", "Guide", "Imprint", "alert"] {
            assert!(!text.contains(part), "{part} is in:\n{text}");
        }
    }

    #[test]
    fn the_main_part_of_a_page_is_its_text() {
        let page = format!("{NAVIGATION}<main>{REFERENCE}</main><footer>Imprint</footer><script>alert(1)</script>");
        assert_reference(&main_text(&page));
    }

    #[test]
    fn navigation_is_left_out_where_the_main_part_is_not_marked() {
        let page = format!("<body>{NAVIGATION}<div id=content>{REFERENCE}</div><footer>Imprint</footer><script>alert(1)</script></body>");
        assert_reference(&main_text(&page));
    }

    #[test]
    fn a_page_of_a_few_words_is_read_too() {
        assert_eq!(main_text("<title>T</title><p>Send a GET request.</p>"), "# T\n\nSend a GET request.");
        assert_eq!(main_text("plain words"), "plain words");
        assert_eq!(main_text(""), "");
    }

    #[test]
    fn a_page_that_is_made_to_take_long_is_read_soon() {
        // Without the reduction, the parser would take minutes for each of these, or overflow the stack.
        for part in
            ["<div>", "<ul><li>x", "<table><tr><td>x", "<b><i><a href=1><p>x", "<p>a, b</p>", "<div class=a><p>x,", "<section><h2>x"]
        {
            let text = main_text(&part.repeat(20_000));
            assert!(text.len() < 4_000_000, "{part}");
        }
    }
}
