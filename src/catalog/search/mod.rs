//! Ranked search over the tools of all servers.
//!
//! BM25 over what a tool says of itself (`document`), after names and texts became words (`words`) and words stems (`stem`). A query word
//! that no tool has stands for those that it nearly is (`near`); common words for what tools do stand for one another (`synonyms`).
//! A server's words are read once and kept until its manifest changes; what all servers have together is merged from that (`rank`).
//!
//! Manifests and queries are other people's. Of a tool, the first 256 bytes of its name, 8 KiB and 500 words of its description, and
//! 4,000 parts of its input schema with 1,500 words are indexed; of a server, 200,000 words, or 40,000 where each is another, and of the
//! tools after that only names. Of a query, 4 KiB and 48 words are read, and for 12 of them near terms are looked for. Nothing here
//! recurs. What is beyond cannot be searched for, and stays callable.

mod document;
mod near;
mod rank;
mod stem;
mod synonyms;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::document::Segment;
use self::rank::Merged;
use self::synonyms::Synonyms;
use super::Manifest;

pub use self::words::has_words;

/// The words of all servers' tools. Empty at first.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
/// use hyperlight_mcp::catalog::{Manifest, SearchIndex, SearchOptions};
///
/// let manifest: Manifest = serde_json::from_value(serde_json::json!({
///     "protocolVersion": "2025-11-25", "serverName": "weather", "serverVersion": "1",
///     "tools": [
///         { "name": "get_forecast", "description": "The weather of the next days", "inputSchema": {} },
///         { "name": "get_alerts", "description": "Warnings of storms and floods", "inputSchema": {} },
///     ],
/// })).unwrap();
/// let mut index = SearchIndex::default();
/// index.update(&BTreeMap::from([("weather".to_owned(), Arc::new(manifest))]));
///
/// let options = SearchOptions { limit: 5, servers: None };
/// assert_eq!(index.search("is there a storm warning?", &options)[0].tool, "get_alerts");
/// assert_eq!(index.search("forcast", &options)[0].tool, "get_forecast");
/// assert!(index.search("?!", &options).is_empty());
/// ```
#[derive(Debug, Default)]
pub struct SearchIndex {
    segments: BTreeMap<String, Segment>,
    merged: Merged,
    synonyms: Synonyms,
}

/// The servers to search, and the number of hits.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions<'a> {
    /// Hits at most.
    pub limit: usize,
    /// Only these servers' tools; `None` is all. A name that is no server's is no error here: it has no tools.
    pub servers: Option<&'a [String]>,
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Its server's name in the config.
    pub server: String,
    /// Its raw name.
    pub tool: String,
    /// Greater is better. Comparable within one search only.
    pub score: f64,
}

impl SearchIndex {
    /// Makes the index what these manifests say. Only servers whose manifest is another than before are read.
    ///
    /// The result is the same as that of a new index.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// let mut index = hyperlight_mcp::catalog::SearchIndex::default();
    /// index.update(&BTreeMap::new());
    /// ```
    pub fn update(&mut self, servers: &BTreeMap<String, Arc<Manifest>>) {
        let before = self.segments.len();
        self.segments.retain(|server, _| servers.contains_key(server));
        let mut changed = self.segments.len() != before;
        for (server, manifest) in servers {
            let known = self.segments.get(server).map(|segment| &segment.manifest);
            if known.is_none_or(|known| !Arc::ptr_eq(known, manifest) && known.tools != manifest.tools) {
                self.segments.insert(server.clone(), Segment::read(server, Arc::clone(manifest)));
                changed = true;
            }
        }
        if changed {
            self.merged = Merged::of(&self.segments);
        }
    }

    /// The tools that a query means, best first. Of equally good ones, first those of the server whose name sorts first, then in the order
    /// of their manifest. A query without a word finds nothing.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::{SearchIndex, SearchOptions};
    /// assert!(SearchIndex::default().search("anything", &SearchOptions { limit: 5, servers: None }).is_empty());
    /// ```
    #[must_use]
    pub fn search(&self, query: &str, options: &SearchOptions) -> Vec<Hit> {
        let found = self.merged.search(query, options.limit, options.servers, &self.synonyms);
        let hit = |(document, score): (u32, f32)| {
            let (server, index) = self.merged.place(document);
            let segment = self.segments.get(server)?;
            let tool = segment.manifest.tools.get(segment.documents.get(index)?.tool)?;
            Some(Hit { server: server.to_owned(), tool: tool.name.clone(), score: f64::from(score) })
        };
        found.into_iter().filter_map(hit).collect()
    }
}
