//! The index of all servers, and the ranking of tools for a query.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::document::Segment;
use super::near::{Outline, near_terms};
use super::synonyms::{Synonyms, is_stop_word};
use super::words::{Chunk, chunks, first_word, term};

/// Maximum size of a query. The rest is ignored.
const MAX_QUERY_BYTES: usize = 4 * 1024;
const MAX_QUERY_WORDS: usize = 48;
/// Maximum number of words in a query for which similar terms are looked up. Each lookup goes through all terms.
const MAX_GUESSES: usize = 12;
/// BM25's constant k1. The larger it is, the more a repeated word counts. This module implements BM25 itself, because the weights of
/// fields, synonyms and joined names require changes to it.
const SATURATION: f32 = 1.5;
/// Weight of a synonym, relative to the word itself.
const SYNONYM_SHARE: f32 = 0.5;
const ONLY_SYNONYM_SHARE: f32 = 0.8;
/// Weight of the parts of a name if a tool contains the whole name as a term.
const PART_SHARE: f32 = 0.4;
/// Weight of neighbouring words of the query that are joined to one term. For example, `create issue` also finds `createissue`.
const JOINED_SHARE: f32 = 0.5;
const MAX_JOINED: usize = 4;
/// Share of the score that depends on how many words of the query a tool contains.
const COVERAGE: f32 = 0.5;

/// Index of all servers. When a segment changes, the index is made again from all segments. This takes a tenth of the time that is needed
/// to read the manifests.
#[derive(Debug, Default)]
pub(super) struct Merged {
    numbers: HashMap<Arc<str>, u32>,
    terms: Vec<(Outline, Arc<str>)>,
    /// For each term, the documents that contain it in ascending order, each with the weight of the term in it.
    postings: Vec<Vec<(u32, f32)>>,
    /// The servers in order, each with the range of its documents' numbers. Documents are numbered across all servers.
    servers: Vec<(Arc<str>, std::ops::Range<u32>)>,
    documents: u32,
}

/// A word of a query, and the terms that are searched for it. If the word itself is a known term, it is the first of them.
struct QueryWord {
    weight: f32,
    candidates: Vec<(u32, f32)>,
    /// Highest score that one of the terms can reach.
    worth: f32,
}

impl Merged {
    pub fn of(segments: &BTreeMap<String, Segment>) -> Self {
        let mut merged = Self::default();
        for (server, segment) in segments {
            let numbers: Vec<u32> = segment.terms.iter().map(|term| merged.number(term)).collect();
            let first = merged.documents;
            for document in &segment.documents {
                for &(term, weight) in &document.terms {
                    merged.postings[numbers[term as usize] as usize].push((merged.documents, weight));
                }
                merged.documents += 1;
            }
            merged.servers.push((server.as_str().into(), first..merged.documents));
        }
        merged
    }

    fn number(&mut self, term: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let number = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
        self.numbers.insert(Arc::clone(term), number);
        self.terms.push((Outline::of(term), Arc::clone(term)));
        self.postings.push(Vec::new());
        number
    }

    /// Returns the best documents with their scores, with the best first. Documents with equal scores keep their order.
    pub fn search(&self, query: &str, limit: usize, servers: Option<&[String]>, synonyms: &Synonyms) -> Vec<(u32, f32)> {
        let scope = self.scope(servers);
        let words = Query::read(self, query, &scope, synonyms);
        let total: f32 = words.iter().map(|word| word.weight * word.worth).sum();
        let count = self.documents as usize;
        let (mut scores, mut found_worth) = (vec![0.0_f32; count], vec![0.0_f32; count]);
        let mut best = vec![0.0_f32; count];
        for word in &words {
            let mut touched = Vec::new();
            for &(term, worth) in &word.candidates {
                for &(document, counts) in self.postings[term as usize].iter().filter(|(document, _)| scope[*document as usize]) {
                    let score = worth * counts / (SATURATION + counts);
                    let known = &mut best[document as usize];
                    if *known == 0.0 {
                        touched.push(document);
                    }
                    *known = known.max(score);
                }
            }
            for document in touched {
                let found = std::mem::take(&mut best[document as usize]);
                scores[document as usize] += word.weight * found;
                found_worth[document as usize] += word.weight * word.worth;
            }
        }
        let hits = (0..self.documents).zip(scores.iter().zip(&found_worth)).filter(|(_, (score, _))| **score > 0.0);
        let mut hits: Vec<(u32, f32)> =
            hits.map(|(document, (score, found))| (document, score * (1.0 - COVERAGE + COVERAGE * found / total))).collect();
        hits.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        hits.truncate(limit);
        hits
    }

    /// Returns the server of a document, and the position of the document within the server.
    pub fn place(&self, document: u32) -> (&str, usize) {
        let index = self.servers.partition_point(|(_, documents)| documents.end <= document);
        let (server, documents) = &self.servers[index];
        (server, (document - documents.start) as usize)
    }

    /// Returns for each document whether it is searched.
    fn scope(&self, servers: Option<&[String]>) -> Vec<bool> {
        let mut scope = vec![servers.is_none(); self.documents as usize];
        for name in servers.unwrap_or_default() {
            if let Ok(index) = self.servers.binary_search_by(|(server, _)| server.as_ref().cmp(name)) {
                let documents = &self.servers[index].1;
                scope[documents.start as usize..documents.end as usize].fill(true);
            }
        }
        scope
    }

    /// Returns BM25's inverse document frequency. It counts the documents of all servers, even if only some servers are searched.
    #[expect(clippy::cast_precision_loss, reason = "nobody has so many tools that it matters")]
    fn rarity(&self, number: u32) -> f32 {
        let having = self.postings[number as usize].len() as f32;
        (1.0 + (self.documents as f32 - having + 0.5) / (having + 0.5)).ln()
    }
}

/// State while a query is being read.
struct Query<'a> {
    merged: &'a Merged,
    scope: &'a [bool],
    synonyms: &'a Synonyms,
    words: Vec<QueryWord>,
    /// Terms that the query already contains, so that each term counts only once.
    said: HashSet<String>,
    /// Number of words for which similar terms may still be looked up.
    guesses: usize,
}

impl<'a> Query<'a> {
    fn read(merged: &'a Merged, query: &str, scope: &'a [bool], synonyms: &'a Synonyms) -> Vec<QueryWord> {
        let query = first_word(query).map_or("", |start| &query[start..]);
        let chunks: Vec<Chunk> = chunks(&query[..query.floor_char_boundary(MAX_QUERY_BYTES)]).take(MAX_QUERY_WORDS).collect();
        let mut read = Self { merged, scope, synonyms, words: Vec::new(), said: HashSet::new(), guesses: MAX_GUESSES };
        let all_stop = chunks.iter().flat_map(|chunk| &chunk.parts).all(|part| is_stop_word(part));
        for chunk in &chunks {
            let whole = chunk.whole.as_deref().filter(|whole| read.known(&term(whole)).is_some());
            let share = if whole.is_some() { PART_SHARE } else { 1.0 };
            if let Some(whole) = whole {
                read.say(whole, 1.0, true);
            }
            for part in chunk.parts.iter().filter(|part| all_stop || !is_stop_word(part)) {
                read.say(part, share, whole.is_none());
            }
        }
        for joined in joined(&chunks) {
            read.say(&joined, JOINED_SHARE, false);
        }
        read.words
    }

    /// Adds a word of the query. If `loosely` is true, also adds its synonyms. If no searched tool contains the word or a synonym, it
    /// adds similar terms.
    fn say(&mut self, word: &str, weight: f32, loosely: bool) {
        let term = term(word);
        if self.words.len() >= MAX_QUERY_WORDS || self.said.contains(&term) {
            return;
        }
        let exact = self.known(&term);
        let mut candidates: Vec<(u32, f32)> = exact.map(|number| (number, self.merged.rarity(number))).into_iter().collect();
        if loosely {
            let share = if exact.is_some() { SYNONYM_SHARE } else { ONLY_SYNONYM_SHARE };
            self.add_synonyms(&term, share, exact, &mut candidates);
        }
        if loosely && candidates.is_empty() && self.guesses > 0 {
            self.guesses -= 1;
            self.add_near(&term, &mut candidates);
        }
        self.said.insert(term);
        let worth = candidates.iter().map(|candidate| candidate.1).fold(0.0, f32::max);
        if worth > 0.0 {
            self.words.push(QueryWord { weight, candidates, worth });
        }
    }

    /// Returns the number of a term. Returns `None` if no searched document contains the term.
    fn known(&self, term: &str) -> Option<u32> {
        self.merged.numbers.get(term).copied().filter(|number| self.documents(*number).next().is_some())
    }

    fn documents(&self, number: u32) -> impl Iterator<Item = u32> {
        let all = self.merged.postings[number as usize].iter().map(|(document, _)| *document);
        all.filter(|document| self.scope[*document as usize])
    }

    /// Adds synonyms as candidates. A rare synonym never gets more weight than the word that was typed.
    fn add_synonyms(&self, word: &str, share: f32, said: Option<u32>, candidates: &mut Vec<(u32, f32)>) {
        let most = said.map_or(f32::MAX, |number| self.merged.rarity(number));
        let known = self.synonyms.of(word).filter_map(|synonym| self.known(synonym));
        candidates.extend(known.map(|number| (number, share * self.merged.rarity(number).min(most))));
    }

    fn add_near(&self, word: &str, candidates: &mut Vec<(u32, f32)>) {
        for near in near_terms(word, &self.merged.terms, |number| self.documents(number).count()) {
            candidates.push((near.term, near.share * self.merged.rarity(near.term)));
            let meant = self.merged.terms[near.term as usize].1.as_ref();
            self.add_synonyms(meant, near.share * SYNONYM_SHARE, Some(near.term), candidates);
        }
    }
}

/// Joins each sequence of two to four neighbouring words of the query to one word.
fn joined(chunks: &[Chunk]) -> Vec<String> {
    let words: Vec<&str> = chunks.iter().map(|chunk| chunk.whole.as_deref().unwrap_or(&chunk.parts[0])).collect();
    (2..=MAX_JOINED).flat_map(|count| words.windows(count).map(<[&str]>::concat).collect::<Vec<_>>()).collect()
}
