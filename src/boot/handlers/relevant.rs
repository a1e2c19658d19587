//! The parts of the documentation that matter for one tool.

use std::collections::{BTreeSet, HashSet};

use super::openapi::{operations, operations_in};
use crate::boot::pages::{Page, PageKind};
use crate::boot::plan::PlannedTool;

/// The largest number of characters in all parts for one tool.
pub(super) const MAX_RELEVANT_CHARS: usize = 40_000;
/// The number of characters after which a part ends at the next end of a line. A part with a longer line ends at twice this number.
const PART_CHARS: usize = 1_500;
/// The largest number of bytes of a page, or of the operations in a description, in which parts are searched.
const MAX_SEARCHED_BYTES: usize = 1024 * 1024;
/// The largest number of words that are searched for. The endpoints of a plan may have many more.
const MAX_WORDS: usize = 200;
const GAP: &str = "\n[…]\n";
/// Words that nearly every documentation has.
const COMMON: [&str; 24] = [
    "get", "post", "put", "list", "the", "and", "for", "with", "from", "http", "https", "www", "com", "api", "org", "net", "returns",
    "tool", "that", "this", "all", "one", "new", "its",
];

/// Returns the parts of each page that matter for a tool, in the pages' order. Short pages stay whole.
pub(super) fn relevant<'a>(pages: &'a [Page], tool: &PlannedTool) -> Vec<(&'a Page, String)> {
    let all: usize = pages.iter().map(|page| page.text.chars().count()).sum();
    if all <= MAX_RELEVANT_CHARS {
        return pages.iter().map(|page| (page, page.text.clone())).collect();
    }
    let words = words_of(tool);
    let share = MAX_RELEVANT_CHARS / pages.len().max(1);
    let parts = pages.iter().map(|page| {
        let operations = match &page.document {
            Some(document) => operations(document, &tool.endpoints),
            None if page.kind == PageKind::Json => operations_in(&page.text, &tool.endpoints),
            None => None,
        };
        let text = operations.as_deref().unwrap_or(&page.text);
        (page, parts_of(&text[..text.floor_char_boundary(MAX_SEARCHED_BYTES)], &words, share))
    });
    parts.filter(|(_, text)| !text.is_empty()).collect()
}

/// Returns the words with which a tool is searched in the documentation: the words in its name and then in the paths of its endpoints, up to
/// [`MAX_WORDS`].
fn words_of(tool: &PlannedTool) -> BTreeSet<String> {
    let paths = tool.endpoints.iter().filter_map(|endpoint| endpoint.url.split_once("://")).filter_map(|(_, rest)| rest.split_once('/'));
    let texts = std::iter::once(tool.name.as_str()).chain(paths.map(|(_, path)| path));
    let words = texts.flat_map(|text| text.split(|next: char| !next.is_alphanumeric())).map(str::to_lowercase);
    let mut found = BTreeSet::new();
    for word in words.filter(|word| word.chars().count() > 2 && !COMMON.contains(&word.as_str())) {
        if found.len() >= MAX_WORDS {
            break;
        }
        found.insert(word);
    }
    found
}

/// Returns the beginning of a text, and the parts that contain most of the words in `words`, in the text's order.
fn parts_of(text: &str, words: &BTreeSet<String>, limit: usize) -> String {
    let parts = split(text);
    let score = |part: &str| {
        let part = part.to_lowercase();
        words.iter().filter(|word| part.contains(word.as_str())).count()
    };
    let scores: Vec<_> = parts.iter().map(|part| score(part)).collect();
    let mut order: Vec<_> = (0..parts.len()).collect();
    // The beginning usually contains the address of the API, and explains how to get access.
    order.sort_by_key(|index| (*index != 0, std::cmp::Reverse(scores[*index]), *index));
    let (mut kept, mut left) = (HashSet::new(), limit);
    for index in order.into_iter().filter(|index| *index == 0 || scores[*index] > 0 || words.is_empty()) {
        let chars = parts[index].chars().count() + GAP.len();
        if chars <= left {
            left -= chars;
            kept.insert(index);
        }
    }
    let (mut out, mut before) = (String::new(), None);
    for (index, part) in parts.iter().enumerate().filter(|(index, _)| kept.contains(index)) {
        if before.map_or(index > 0, |before| before + 1 != index) {
            out.push_str(GAP);
        }
        out.push_str(part);
        before = Some(index);
    }
    if before.is_some_and(|before| before + 1 < parts.len()) {
        out.push_str(GAP);
    }
    out
}

/// Splits a text at ends of lines, or within lines that are too long.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut chars) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        chars += 1;
        if chars >= 2 * PART_CHARS || chars >= PART_CHARS && character == '\n' {
            let end = at + character.len_utf8();
            parts.push(&text[start..end]);
            (start, chars) = (end, 0);
        }
    }
    if start < text.len() {
        parts.push(&text[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;
    use crate::boot::pages::{PageFacts, cut_text};
    use crate::boot::plan::Endpoint;

    fn page(text: String) -> Page {
        let facts = PageFacts { read_url: String::new(), digest: String::new(), etag: None };
        Page {
            url: Url::parse("https://a.example").unwrap(),
            kind: PageKind::Markdown,
            chars: text.chars().count(),
            text,
            document: None,
            facts,
        }
    }

    fn tool() -> PlannedTool {
        PlannedTool {
            name: "get_forecast".to_owned(),
            description: String::new(),
            input_schema: json!({ "type": "object" }),
            endpoints: vec![Endpoint { method: "GET".to_owned(), url: "https://a.example/v1/weather/{city}".to_owned() }],
            implementation_notes: String::new(),
            needs_network: true,
            read_only_hint: true,
        }
    }

    #[test]
    fn short_pages_stay_whole() {
        let pages = [page("short".to_owned())];
        assert_eq!(relevant(&pages, &tool())[0].1, "short");
    }

    #[test]
    fn of_a_long_page_the_beginning_and_the_parts_about_the_tool_stay() {
        let filler = "Words about users and groups.\n".repeat(2_000);
        let pages = [page(format!("# The API begins\n{filler}## Forecast\nGET /weather gives the forecast.\n{filler}"))];
        let text = &relevant(&pages, &tool())[0].1;
        assert!(text.starts_with("# The API begins") && text.contains("GET /weather gives the forecast."), "{text}");
        assert!(text.chars().count() <= MAX_RELEVANT_CHARS && text.matches(GAP).count() == 2, "{}", text.len());
    }

    #[test]
    fn an_operation_in_the_middle_of_a_cut_description_is_found() {
        let other = |number: usize| (format!("/other{number}"), json!({ "get": { "summary": "x".repeat(500) } }));
        let mut paths: serde_json::Map<_, _> = (0..150).map(other).collect();
        paths.insert("/v1/weather/{city}".to_owned(), json!({ "get": { "summary": "The forecast itself" } }));
        paths.extend((150..300).map(other));
        let document = json!({ "openapi": "3.1.0", "paths": paths });
        let cut = cut_text(document.to_string(), 100_000);
        assert!(!cut.contains("The forecast itself") && serde_json::from_str::<serde_json::Value>(&cut).is_err());
        let page = Page { kind: PageKind::Json, document: Some(std::sync::Arc::new(document)), ..page(cut) };
        let text = relevant(&[page], &tool())[0].1.clone();
        assert!(text.contains("The forecast itself") && !text.contains("/other"), "{text}");
    }

    #[test]
    fn the_number_of_searched_words_is_limited_and_those_of_the_name_come_first() {
        let words: Vec<_> = (100_000..100_250).map(|word: u32| word.to_string()).collect();
        let path = format!("/{}", words.join("/"));
        let endpoint = |number: usize| Endpoint { method: "GET".to_owned(), url: format!("https://a.example/{number}{path}") };
        let words = words_of(&PlannedTool { endpoints: (0..32).map(endpoint).collect(), ..tool() });
        assert_eq!(words.len(), MAX_WORDS);
        assert!(words.contains("forecast"));
    }

    #[test]
    fn a_text_without_line_breaks_is_split_too() {
        assert_eq!(split(&"x".repeat(PART_CHARS * 5)).len(), 3);
        assert!(relevant(&[page("ä".repeat(300_000))], &tool())[0].1.chars().count() <= MAX_RELEVANT_CHARS);
    }
}
