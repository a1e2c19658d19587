//! How well the search finds tools, over all installed servers' and a thousand others; and that it keeps its word whatever is asked.

#[path = "catalogue/quality.rs"]
mod quality;
#[path = "catalogue/synthetic.rs"]
mod synthetic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyperlight_mcp::catalog::{Hit, Manifest, SearchIndex, SearchOptions, has_words};
use proptest::prelude::*;
use quality::{Quality, queries, unseen_queries};
use serde_json::json;

type Manifests = BTreeMap<String, Arc<Manifest>>;

fn index(manifests: &Manifests) -> SearchIndex {
    let mut index = SearchIndex::default();
    index.update(manifests);
    index
}

fn names(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(|hit| format!("{}.{}", hit.server, hit.tool)).collect()
}

const FIVE: SearchOptions = SearchOptions { limit: 5, servers: None };

#[test]
fn the_catalogue_has_a_thousand_tools_with_distinct_names() {
    let mut count = 0;
    for (server, manifest) in synthetic::services() {
        let names: BTreeSet<String> = manifest.tool_names().into_iter().collect();
        assert_eq!(names.len(), manifest.tools.len(), "{server}");
        count += names.len();
    }
    assert_eq!(count, 1_000);
}

#[test]
fn every_query_has_answers_that_exist() {
    let manifests = synthetic::all();
    let tuned = queries();
    assert!(tuned.len() >= 120, "{}", tuned.len());
    assert!(tuned.iter().filter(|query| query.kind == "typo").count() >= 20);
    for query in tuned.iter().chain(&unseen_queries()) {
        for answer in &query.answers {
            let (server, tool) = answer.split_once('.').unwrap();
            assert!(manifests[server].tool(tool).is_some(), "{}: {answer}", query.text);
        }
    }
}

#[test]
fn nine_of_ten_queries_find_an_answer_among_the_first_five() {
    let index = index(&synthetic::all());
    for queries in [queries(), unseen_queries()] {
        let quality = Quality::measure(&index, &queries);
        println!("{quality}");
        assert!(quality.recall() >= 0.9, "{quality}");
    }
}
