//! Ranked search in the tools of all servers.
//!
//! Ranks with BM25. Texts and names are split into words (`words`), and words are reduced to stems (`stem`). If no tool has a word of the
//! query, similar terms stand for it (`near`). Common words for the purpose of tools count as synonyms (`synonyms`). The words of a server
//! are indexed once and kept until its manifest changes (`document`). The index of all servers is merged from these (`rank`).
//!
//! Manifests and queries are untrusted, so their size is limited. For a tool, the index holds the first 256 bytes of its name, 8 KiB and
//! 500 words of its description, and 1,500 words of its input schema from at most 4,000 parts. For a server, it holds 200,000 words, or
//! 40,000 words if all are different. Beyond that, it holds only the names of tools. A query is read up to 4 KiB and 48 words, and similar
//! terms are looked up for 12 of them. No function here is recursive. Text beyond a limit cannot be found by search, but the tool stays
//! callable.

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

/// Search index of the tools of all servers. It is empty at first.
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

/// Options of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions<'a> {
    /// Number of hits at most.
    pub limit: usize,
    /// Names of the servers to search; `None` for all. An unknown name is not an error: it has no tools.
    pub servers: Option<&'a [String]>,
}

/// A tool that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Name of the tool's server in the config.
    pub server: String,
    /// Raw name of the tool.
    pub tool: String,
    /// Relevance: a greater score is better. Scores of different searches cannot be compared.
    pub score: f64,
}

impl SearchIndex {
    /// Updates the index to these manifests. Reads only servers whose manifest has changed.
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

    /// Returns the best tools for a query, the best first. Tools with equal scores are sorted by the name of their server, then by their
    /// position in the manifest. A query without words finds nothing.
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
