//! Selects the parts of a tool that are indexed, and sets their weights.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use super::meaning::{self, ToolText};
use super::synonyms::is_stop_word;
use super::words::{Chunk, Piece, chunks_of_run, name_chunk, pieces, term};
use crate::catalog::{Manifest, Tool};
use crate::embedding::TextDigest;

/// Weight of a field of a tool in the ranking with BM25F. Each word of the field counts `weight`. It counts less if the field has more
/// than `usual` words; `length` determines how much less. `usual` is a constant and not an average. With an average, the manifest of one
/// server could change the ranking of another server's tools.
struct Field {
    weight: f32,
    usual: f32,
    length: f32,
    /// Maximum number of words in the field that are indexed.
    max_words: usize,
}

const NAME: Field = Field { weight: 4.0, usual: 3.0, length: 0.4, max_words: 32 };
const TITLE: Field = Field { weight: 2.5, usual: 3.0, length: 0.4, max_words: 32 };
const SERVER: Field = Field { weight: 2.0, usual: 1.0, length: 0.0, max_words: 16 };
const DESCRIPTION: Field = Field { weight: 1.5, usual: 15.0, length: 0.6, max_words: 500 };
const PARAMETERS: Field = Field { weight: 1.0, usual: 6.0, length: 0.6, max_words: 500 };
/// Field for the names of nested parameters, and for the descriptions and allowed values in the schema.
const SCHEMA: Field = Field { weight: 0.4, usual: 30.0, length: 0.6, max_words: 1_000 };

/// Maximum number of bytes in a text that are indexed. A description usually begins with the tool's purpose.
const MAX_TEXT_BYTES: usize = 8 * 1024;
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of parts in a schema that are indexed. The outermost parts are indexed first.
const MAX_SCHEMA_PARTS: usize = 4_000;
/// Maximum number of words in all texts and parameters of one server that are indexed. After that, only the names of its tools are
/// indexed.
const MAX_SERVER_WORDS: usize = 200_000;
/// A word counts as this many words when it first occurs in a server's tools. A new word needs memory, and also time when the
/// indexes of the servers are merged.
const NEW_WORD: usize = 5;
/// Weight of a name's parts within a text (`git` and `hub` in `GitHub`), relative to the whole name.
const HUMP_SHARE: f32 = 0.3;
/// Weight of two neighbouring parts of a tool's name that are indexed as one word, relative to a single part.
const PAIR_SHARE: f32 = 0.5;

/// Index of the tools of one server. It does not depend on other servers.
#[derive(Debug)]
pub(super) struct Segment {
    pub manifest: Arc<Manifest>,
    pub terms: Vec<Arc<str>>,
    pub documents: Vec<Document>,
    /// Digests of the texts that a sentence model reads, one for each document. Computed when a search by meaning first needs them.
    digests: OnceLock<Vec<TextDigest>>,
}

/// Index of one tool.
#[derive(Debug)]
pub(super) struct Document {
    /// Position of the tool in the manifest.
    pub tool: usize,
    /// Terms of the tool, each with its weight. A term is given by its number in the segment, and occurs only once.
    pub terms: Vec<(u32, f32)>,
}

impl Segment {
    pub fn read(server: &str, manifest: Arc<Manifest>) -> Self {
        let mut reader = Reader::new();
        let mut seen = HashSet::new();
        // If two tools have the same name, only the first is indexed, because a call uses the first.
        let tools = manifest.tools.iter().enumerate().filter(|(_, tool)| seen.insert(tool.name.as_str()));
        let documents = tools.map(|(index, tool)| Document { tool: index, terms: reader.read(server, tool) }).collect();
        Self { documents, terms: reader.terms, manifest, digests: OnceLock::new() }
    }

    /// Returns the texts of the documents that a sentence model reads.
    pub fn texts<'a>(&'a self, server: &'a str) -> impl Iterator<Item = ToolText<'a>> {
        let tools = || self.documents.iter().map(|document| &self.manifest.tools[document.tool]);
        let digests = self.digests.get_or_init(|| tools().map(|tool| TextDigest::of(&meaning::text(server, tool))).collect());
        tools().zip(digests).map(move |(tool, digest)| ToolText { digest: *digest, server, tool })
    }
}

/// Reads the tools of a server, and assigns a number to each term.
struct Reader {
    /// Number of words in texts and parameters that may still be indexed.
    room: usize,
    numbers: HashMap<Arc<str>, u32>,
    /// Number of the term of each word, so that a word is stemmed only once.
    words: HashMap<Box<str>, u32>,
    terms: Vec<Arc<str>>,
    /// Terms of the current tool with their weights. A term may occur more than once.
    found: Vec<(u32, f32)>,
}

impl Reader {
    fn new() -> Self {
        Self { room: MAX_SERVER_WORDS, numbers: HashMap::new(), words: HashMap::new(), terms: Vec::new(), found: Vec::new() }
    }

    fn read(&mut self, server: &str, tool: &Tool) -> Vec<(u32, f32)> {
        self.found.clear();
        self.name(&NAME, &tool.name);
        self.name(&SERVER, server);
        let names = self.found.len();
        if self.room > 0 {
            self.text(&TITLE, tool.title.as_deref().unwrap_or_default());
            self.text(&DESCRIPTION, tool.description.as_deref().unwrap_or_default());
            self.schema(&tool.input_schema);
        }
        self.room = self.room.saturating_sub(self.found.len() - names);
        self.found.sort_by_key(|(number, _)| *number);
        let mut merged: Vec<(u32, f32)> = Vec::new();
        for &(number, weight) in &self.found {
            match merged.last_mut() {
                Some(last) if last.0 == number => last.1 += weight,
                _ => merged.push((number, weight)),
            }
        }
        merged
    }

    fn name(&mut self, field: &Field, name: &str) {
        let start = self.found.len();
        let parts = self.words_of_name(name);
        // Two neighbouring parts are also indexed as one word. For example, `pullrequest` finds `create_pull_request`.
        if parts.len() > 2 {
            for pair in parts.windows(2) {
                self.word(&pair.concat(), PAIR_SHARE);
            }
        }
        self.settle(field, start);
    }

    fn words_of_name(&mut self, name: &str) -> Vec<String> {
        let chunk = name_chunk(cut(name, MAX_NAME_BYTES));
        for word in chunk.parts.iter().chain(&chunk.whole) {
            self.word(word, 1.0);
        }
        chunk.parts
    }

    fn text(&mut self, field: &Field, text: &str) {
        let start = self.found.len();
        self.words_of_text(text, start + field.max_words);
        self.settle(field, start);
    }

    fn words_of_text(&mut self, text: &str, most: usize) {
        for piece in pieces(cut(text, MAX_TEXT_BYTES)) {
            match piece {
                Piece::Word(word) if is_stop_word(word) => {}
                Piece::Word(word) => self.word(word, 1.0),
                Piece::Run(run) => chunks_of_run(run).iter().for_each(|chunk| self.chunk(chunk)),
            }
            if self.found.len() >= most {
                return;
            }
        }
    }

    fn chunk(&mut self, chunk: &Chunk) {
        let share = if chunk.humps { HUMP_SHARE } else { 1.0 };
        for part in chunk.parts.iter().filter(|part| !is_stop_word(part)) {
            self.word(part, share);
        }
        if let Some(whole) = &chunk.whole {
            self.word(whole, 1.0);
        }
    }

    /// Reads a schema level by level. The names on the first level are the tool's parameters. Definitions are read too, so references
    /// need not be followed.
    fn schema(&mut self, schema: &Json) {
        let (mut names, mut texts) = (Vec::new(), Vec::new());
        let mut queue = VecDeque::from([(schema, 0_usize)]);
        let mut parts = 0;
        while let Some((part, depth)) = queue.pop_front() {
            let Json::Object(part) = part else { continue };
            for (key, value) in part {
                match (key.as_str(), value) {
                    ("properties", Json::Object(properties)) => {
                        for (name, property) in properties.iter().take(MAX_SCHEMA_PARTS - parts) {
                            let found = if depth == 0 { &mut names } else { &mut texts };
                            found.push(name.as_str());
                            queue.push_back((property, depth + 1));
                            parts += 1;
                        }
                    }
                    ("$defs" | "definitions", Json::Object(definitions)) => {
                        enqueue(&mut queue, definitions.values(), depth + 1, &mut parts);
                    }
                    ("anyOf" | "oneOf" | "allOf" | "prefixItems", Json::Array(items)) => enqueue(&mut queue, items, depth, &mut parts),
                    ("items" | "additionalProperties", item) => enqueue(&mut queue, [item], depth + 1, &mut parts),
                    ("description" | "title" | "const", Json::String(text)) if depth > 0 => texts.push(text.as_str()),
                    ("enum", Json::Array(values)) => texts.extend(values.iter().take(64).filter_map(Json::as_str)),
                    _ => {}
                }
            }
        }
        let start = self.found.len();
        self.all(&names, &PARAMETERS, start, Self::words_of_parameter);
        let start = self.found.len();
        self.all(&texts, &SCHEMA, start, |reader, text| reader.words_of_text(text, start + SCHEMA.max_words));
    }

    fn all(&mut self, texts: &[&str], field: &Field, start: usize, read: impl Fn(&mut Self, &str)) {
        for text in texts {
            read(self, text);
            if self.found.len() - start >= field.max_words {
                break;
            }
        }
        self.settle(field, start);
    }

    fn words_of_parameter(&mut self, name: &str) {
        self.words_of_name(name);
    }

    fn word(&mut self, word: &str, share: f32) {
        let number = self.words.get(word).copied().unwrap_or_else(|| self.new_word(word));
        self.found.push((number, share));
    }

    fn new_word(&mut self, word: &str) -> u32 {
        let term = term(word);
        let number = self.numbers.get(term.as_str()).copied().unwrap_or_else(|| {
            let number = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
            let term: Arc<str> = term.into();
            self.terms.push(Arc::clone(&term));
            self.numbers.insert(term, number);
            number
        });
        self.words.insert(word.into(), number);
        self.room = self.room.saturating_sub(NEW_WORD - 1);
        number
    }

    /// Applies the field's weight to all terms that were found since `start`.
    fn settle(&mut self, field: &Field, start: usize) {
        self.found.truncate(start + field.max_words);
        let found = &mut self.found[start..];
        #[expect(clippy::cast_precision_loss, reason = "at most some hundreds of words")]
        let length = found.len() as f32;
        let weight = field.weight / (1.0 - field.length + field.length * length.max(1.0) / field.usual);
        for (_, share) in found {
            *share *= weight;
        }
    }
}

fn enqueue<'a>(queue: &mut VecDeque<(&'a Json, usize)>, parts: impl IntoIterator<Item = &'a Json>, depth: usize, taken: &mut usize) {
    for part in parts.into_iter().take(MAX_SCHEMA_PARTS - *taken) {
        queue.push_back((part, depth));
        *taken += 1;
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str, input_schema: Json) -> Tool {
        let description = Some(description.to_owned());
        Tool {
            name: name.into(),
            title: None,
            description,
            input_schema,
            output_schema: None,
            annotations: None,
            execution: None,
            meta: None,
            icons: None,
        }
    }

    fn segment(tools: Vec<Tool>) -> Segment {
        Segment::read("server", Arc::new(Manifest { tools, ..Manifest::default() }))
    }

    /// Returns the weight of a term in a document, which is 0 if the term does not occur.
    fn weight(segment: &Segment, document: usize, term: &str) -> f32 {
        let number = segment.terms.iter().position(|known| known.as_ref() == term);
        let found = segment.documents[document].terms.iter().find(|(known, _)| Some(*known as usize) == number);
        found.map_or(0.0, |(_, weight)| *weight)
    }

    #[test]
    fn a_name_counts_more_than_a_description_and_that_more_than_a_nested_parameter() {
        let schema = json!({ "properties": { "delta": { "type": "object", "properties": { "gamma": { "description": "epsilon" } } } } });
        let segment = segment(vec![tool("alpha", "beta", schema)]);
        let weights = ["alpha", "beta", "delta", "gamma"].map(|term| weight(&segment, 0, term));
        assert!(weights.is_sorted_by(|one, other| one > other), "{weights:?}");
        assert!(weight(&segment, 0, "epsilon") > 0.0 && weight(&segment, 0, "server") > 0.0);
    }

    #[test]
    fn parameters_behind_definitions_and_choices_are_found() {
        let schema = json!({
            "$defs": { "Place": { "properties": { "latitude": {} } } },
            "anyOf": [{ "properties": { "city": {} } }],
            "properties": { "place": { "$ref": "#/$defs/Place" }, "unit": { "enum": ["celsius", 7] },
                "tags": { "items": { "title": "marker" } } },
        });
        let segment = segment(vec![tool("a", "", schema)]);
        for term in ["latitud", "citi", "plac", "celsius", "marker"] {
            assert!(weight(&segment, 0, term) > 0.0, "{term}");
        }
    }

    #[test]
    fn of_two_tools_that_share_a_name_the_first_is_indexed() {
        let segment = segment(vec![tool("same", "one", json!(true)), tool("same", "two", json!(false)), tool("other", "", json!(null))]);
        assert_eq!(segment.documents.iter().map(|document| document.tool).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn what_is_indexed_of_a_tool_is_bounded_and_so_is_a_server() {
        let words = |from: usize| (from..from + 2_000).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let properties: serde_json::Map<String, Json> = (0..2_500).map(|number| (format!("p{number}"), json!({ "enum": ["x"] }))).collect();
        let tools =
            (0..150).map(|number| tool(&format!("tool{number}"), &words(number * 2_000), json!({ "properties": properties }))).collect();
        let segment = segment(tools);
        let most = NAME.max_words + SERVER.max_words + DESCRIPTION.max_words + PARAMETERS.max_words + SCHEMA.max_words;
        assert!(segment.documents.iter().all(|document| document.terms.len() <= most));
        let all: usize = segment.documents.iter().map(|document| document.terms.len()).sum();
        assert!(all <= MAX_SERVER_WORDS + 150 * 40, "{all}");
        assert!(segment.terms.len() <= MAX_SERVER_WORDS / NEW_WORD + most + 150 * 40, "{}", segment.terms.len());
        assert!(weight(&segment, 149, "tool149") > 0.0, "its name is indexed whatever was before");
        assert!(segment.documents[149].terms.len() < 40, "and no more than that");
    }

    #[test]
    fn a_schema_as_deep_as_memory_allows_is_read_level_by_level() {
        let mut schema = json!({ "properties": { "innermost": {} } });
        for _ in 0..5_000 {
            schema = Json::Object([("items".to_owned(), schema)].into_iter().collect());
        }
        let tools = vec![tool("deep", "", schema)];
        let segment = segment(tools);
        assert!(!segment.terms.iter().any(|term| term.as_ref() == "innermost"), "beyond the parts that are looked at");
        // Dropping such a deeply nested value would overflow the stack, so the value is taken apart step by step.
        let mut manifest = Arc::try_unwrap(segment.manifest).unwrap();
        let mut schema = manifest.tools.remove(0).input_schema;
        while let Some(inner) = schema.get_mut("items").map(Json::take) {
            schema = inner;
        }
    }
}
