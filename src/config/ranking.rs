//! Reads `search` of a config: the ranking of tools in a search.

use serde::{Deserialize, Serialize};

use super::tree::{Node, Value};
use crate::text::Problem;

/// The ranking of a search for tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchRanking {
    /// Tools are ranked by the words of the question.
    #[default]
    Words,
    /// Tools are ranked by the words and the meaning of the question. Needs the package `hyperlight-mcp-search-model`.
    Hybrid,
}

/// Reads the key. A wrong value makes the whole config unusable, as for other top-level settings.
pub(super) fn search(node: &Node, problems: &mut Vec<Problem>) -> Option<SearchRanking> {
    match &node.value {
        Value::Text(text) if text == "words" => Some(SearchRanking::Words),
        Value::Text(text) if text == "hybrid" => Some(SearchRanking::Hybrid),
        _ => {
            problems.push(Problem::new("search", node.position, "must be \"words\" or \"hybrid\""));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    #[test]
    fn the_ranking_of_a_search_is_one_of_two_words() {
        let ranking = |text: &str| parse_text(text, "c.json", None).unwrap().search;
        let texts = ["{}", r#"{ "search": "words" }"#, r#"{ "search": "hybrid" }"#];
        assert_eq!(texts.map(ranking), [None, Some(SearchRanking::Words), Some(SearchRanking::Hybrid)]);
        for wrong in ["true", "\"meaning\"", "null", "{}"] {
            let error = parse_text(&format!(r#"{{ "search": {wrong} }}"#), "c.json", None).unwrap_err();
            assert_eq!(error.in_full(), "c.json:1:13: search: must be \"words\" or \"hybrid\"", "{wrong}");
        }
    }
}
