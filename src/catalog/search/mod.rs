//! Ranked search in the tools of all servers.
//!
//! The ranking uses BM25. Texts and names are split into words (`words`), and words are reduced to stems (`stem`). A question is split into
//! its intents (`intents`). Words that are common in questions count less (`common`). If no tool contains a word of the query, similar
//! terms are used instead (`near`). Common words for the purposes of tools have synonyms (`synonyms`). The words of each server are indexed
//! once, and the index is kept until the server's manifest changes (`document`). These indexes are merged to the index of all servers
//! (`rank`), in which the words of a query are looked up (`query`). Tools that several servers have are listed together (`twins`). If the
//! caller has vectors of the question and of the tools, the similarity of these vectors counts too (`meaning`).
//!
//! Manifests and queries are untrusted, so their size is limited. For a tool, the index holds the first 256 bytes of its name, 8 KiB and
//! 500 words of its description, and 1,500 words of its input schema from at most 4,000 parts. For a server, it holds 200,000 words, or
//! 40,000 words if all are different. When this limit is reached, it only holds the names of further tools. Only the first 4 KiB and 48
//! words of a query are used. Similar terms are looked up for 12 of these words. No function here is recursive. Text beyond a limit cannot
//! be found by search, but the tool stays callable.

mod common;
mod document;
mod intents;
mod meaning;
mod near;
mod query;
mod rank;
mod stem;
mod synonyms;
mod twins;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::document::Segment;
use self::rank::Merged;
use self::synonyms::Synonyms;
use super::Manifest;

pub use self::meaning::{Meaning, ToolText};
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
    /// Maximum number of hits.
    pub limit: usize,
    /// Names of the servers to search. `None` means all servers. An unknown name is not an error, because it is treated as a server
    /// without tools.
    pub servers: Option<&'a [String]>,
}

/// A tool that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Name that the tool's server has in the config.
    pub server: String,
    /// Raw name of the tool.
    pub tool: String,
    /// Relevance: a greater score is better. Scores of different searches cannot be compared.
    pub score: f64,
}

impl SearchIndex {
    /// Updates the index to these manifests. Only servers whose manifest has changed are read again.
    ///
    /// An updated index is equal to a new index for the same manifests.
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

    /// Returns the most relevant tools for a query, with the most relevant first. Tools with equal scores are sorted by the name of their
    /// server, then by their position in the manifest. Tools with the same name from different servers follow one another, all with the
    /// best score among them. A query without words finds nothing.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::{SearchIndex, SearchOptions};
    /// assert!(SearchIndex::default().search("anything", &SearchOptions { limit: 5, servers: None }).is_empty());
    /// ```
    #[must_use]
    pub fn search(&self, query: &str, options: &SearchOptions) -> Vec<Hit> {
        self.search_with(query, options, None)
    }

    /// Searches as [`Self::search`] does. If `meaning` is given, the score also depends on the similarity of the vectors of question and
    /// tool. Then tools that contain no word of the query can be found too.
    #[must_use]
    pub fn search_with(&self, query: &str, options: &SearchOptions, meaning: Option<&Meaning>) -> Vec<Hit> {
        let found = self.merged.search(query, options, &self.synonyms, meaning);
        let hit = |(document, score): (u32, f32)| {
            let (server, index) = self.merged.place(document);
            let segment = self.segments.get(server)?;
            let tool = segment.manifest.tools.get(segment.documents.get(index)?.tool)?;
            Some(Hit { server: server.to_owned(), tool: tool.name.clone(), score: f64::from(score) })
        };
        twins::together(found.into_iter().filter_map(hit).collect())
    }

    /// Returns the texts of all tools that a sentence model reads, in the order of [`Meaning::tools`].
    pub fn texts(&self) -> impl Iterator<Item = ToolText<'_>> {
        self.segments.iter().flat_map(|(server, segment)| segment.texts(server))
    }
}

/// Returns the first characters of a text.
fn cut_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}
