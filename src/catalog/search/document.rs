//! What of a tool is indexed, and how much of each part counts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value as Json;

use super::synonyms::is_stop_word;
use super::words::{Chunk, Piece, chunks_of_run, name_chunk, pieces, term};
use crate::catalog::{Manifest, Tool};

/// How a part of a tool counts. Its words count `weight` each, less where there are more of them than `usual`, by the share `length`: BM25F's
/// normalisation, with a usual length that is fixed, so that one server's manifest changes nothing in what another's words count.
struct Field {
    weight: f32,
    usual: f32,
    length: f32,
    /// As many words as are indexed.
    max_words: usize,
}

const NAME: Field = Field { weight: 4.0, usual: 3.0, length: 0.4, max_words: 32 };
const TITLE: Field = Field { weight: 2.5, usual: 3.0, length: 0.4, max_words: 32 };
const SERVER: Field = Field { weight: 2.0, usual: 1.0, length: 0.0, max_words: 16 };
const DESCRIPTION: Field = Field { weight: 1.5, usual: 15.0, length: 0.6, max_words: 500 };
const PARAMETERS: Field = Field { weight: 1.0, usual: 6.0, length: 0.6, max_words: 500 };
/// Nested parameters, the texts beside parameters, the values that they may have.
const SCHEMA: Field = Field { weight: 0.4, usual: 30.0, length: 0.6, max_words: 1_000 };

/// Texts are read so far: what a tool is for stands at their beginning.
const MAX_TEXT_BYTES: usize = 8 * 1024;
const MAX_NAME_BYTES: usize = 256;
/// Parts of a schema that are looked at, the outer ones first.
const MAX_SCHEMA_PARTS: usize = 4_000;
/// The parts of a brand's name in a text (`git` and `hub` of `GitHub`) count less than the name.
const HUMP_SHARE: f32 = 0.3;
/// Two neighbours in a tool's name, as one word.
const PAIR_SHARE: f32 = 0.5;

/// A server's tools as they are searched for. Says nothing of other servers.
#[derive(Debug)]
pub(super) struct Segment {
    pub manifest: Arc<Manifest>,
    pub terms: Vec<Arc<str>>,
    pub documents: Vec<Document>,
}

/// A tool.
#[derive(Debug)]
pub(super) struct Document {
    /// Its place in the manifest.
    pub tool: usize,
    /// Which of the segment's terms it has, and how much each counts. Each term once.
    pub terms: Vec<(u32, f32)>,
}

impl Segment {
    pub fn read(server: &str, manifest: Arc<Manifest>) -> Self {
        let mut reader = Reader::default();
        let mut seen = HashSet::new();
        // Of two tools that share a name, calls mean the first.
        let tools = manifest.tools.iter().enumerate().filter(|(_, tool)| seen.insert(tool.name.as_str()));
        let documents = tools.map(|(index, tool)| Document { tool: index, terms: reader.read(server, tool) }).collect();
        Self { documents, terms: reader.terms, manifest }
    }
}

/// Gives each term of a server a number.
#[derive(Default)]
struct Reader {
    numbers: HashMap<Arc<str>, u32>,
    /// What words as they stand are, so that each is stemmed once.
    words: HashMap<Box<str>, u32>,
    terms: Vec<Arc<str>>,
    /// The tool that is being read: numbers, and how much each counts; a term may come often.
    found: Vec<(u32, f32)>,
}

impl Reader {
    fn read(&mut self, server: &str, tool: &Tool) -> Vec<(u32, f32)> {
        self.found.clear();
        self.name(&NAME, &tool.name);
        self.name(&SERVER, server);
        self.text(&TITLE, tool.title.as_deref().unwrap_or_default());
        self.text(&DESCRIPTION, tool.description.as_deref().unwrap_or_default());
        self.schema(&tool.input_schema);
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
        // `pullrequest` of `create_pull_request`.
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

    /// Level by level: names on the first are the tool's parameters. References lead to definitions, which are walked as well.
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
                            if depth == 0 {
                                names.push(name.as_str())
                            } else {
                                texts.push(name.as_str())
                            }
                            queue.push_back((property, depth + 1));
                            parts += 1;
                        }
                    }
                    ("$defs" | "definitions", Json::Object(definitions)) => {
                        enqueue(&mut queue, definitions.values(), depth + 1, &mut parts)
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
        number
    }

    /// Weighs what was found since `start` as words of this field.
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
