//! The index of all servers, and the ranking of tools for a query.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::SearchOptions;
use super::document::Segment;
use super::meaning::{Meaning, with_meaning};
use super::near::Outline;
use super::query::{Query, QueryWord};
use super::synonyms::Synonyms;

/// BM25's constant k1. The larger it is, the more a repeated word counts. This module implements BM25 itself, because the weights of
/// fields, synonyms and joined names require changes to it.
const SATURATION: f32 = 1.5;
/// Share of the score that depends on the number of the query's words that a tool contains.
const COVERAGE: f32 = 0.5;
/// Weight of the score for the intent that a tool answers best. The weighted score is added to the score for the whole question.
const INTENT_SHARE: f32 = 0.25;
/// A term with a greater weight than this is a word of the tool's name. In such a name, a common word of the query counts `NAMED_COMMON`
/// times as much.
const NAMED: f32 = 2.5;
const NAMED_COMMON: f32 = 2.0;

/// Index of all servers. When a segment changes, the index is made again from all segments. This takes a tenth of the time that is needed
/// to read the manifests.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub numbers: HashMap<Arc<str>, u32>,
    pub terms: Vec<(Outline, Arc<str>)>,
    /// For each term, the documents that contain it in ascending order, each with the weight of the term in it.
    pub postings: Vec<Vec<(u32, f32)>>,
    /// The servers in order, each with the range of its documents' numbers. Documents are numbered across all servers.
    servers: Vec<(Arc<str>, std::ops::Range<u32>)>,
    documents: u32,
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
    pub fn search(&self, query: &str, options: &SearchOptions<'_>, synonyms: &Synonyms, meaning: Option<&Meaning>) -> Vec<(u32, f32)> {
        let scope = self.scope(options.servers);
        let mut scores = self.scores_by_words(query, &scope, synonyms);
        if let Some(meaning) = meaning {
            scores = with_meaning(&scores, &scope, meaning);
        }
        let mut hits: Vec<(u32, f32)> = (0..self.documents).zip(scores).filter(|(_, score)| *score > 0.0).collect();
        hits.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        hits.truncate(options.limit);
        hits
    }

    fn scores_by_words(&self, query: &str, scope: &[bool], synonyms: &Synonyms) -> Vec<f32> {
        let query = Query::read(self, query, scope, synonyms);
        let found = self.find(&query.words, scope);
        let mut scores = self.scores(&query.words, &found, |_| true);
        if query.intents > 1 {
            let mut best = vec![0.0_f32; scores.len()];
            for intent in 0..query.intents {
                let within = self.scores(&query.words, &found, |word| word.intents.contains(&intent));
                best.iter_mut().zip(within).for_each(|(best, score)| *best = best.max(score));
            }
            scores.iter_mut().zip(best).for_each(|(score, best)| *score += INTENT_SHARE * best);
        }
        scores
    }

    /// Returns for each word the documents that contain one of its terms, each with the score of the best of these terms.
    fn find(&self, words: &[QueryWord], scope: &[bool]) -> Vec<Vec<(u32, f32)>> {
        let mut best = vec![0.0_f32; self.documents as usize];
        let find = |word: &QueryWord| {
            let mut touched = Vec::new();
            for &(term, worth) in &word.candidates {
                for &(document, counts) in self.postings[term as usize].iter().filter(|(document, _)| scope[*document as usize]) {
                    let named = if word.common && counts > NAMED { NAMED_COMMON } else { 1.0 };
                    let score = named * worth * counts / (SATURATION + counts);
                    let known = &mut best[document as usize];
                    if *known == 0.0 {
                        touched.push(document);
                    }
                    *known = known.max(score);
                }
            }
            touched.into_iter().map(|document| (document, word.weight * std::mem::take(&mut best[document as usize]))).collect()
        };
        words.iter().map(find).collect()
    }

    /// Returns the score of each document for those words of a query that `counts` selects.
    fn scores(&self, words: &[QueryWord], found: &[Vec<(u32, f32)>], counts: impl Fn(&QueryWord) -> bool) -> Vec<f32> {
        let counted = || words.iter().zip(found).filter(|(word, _)| counts(word));
        let total: f32 = counted().map(|(word, _)| word.weight * word.worth).sum();
        let mut sums = vec![(0.0_f32, 0.0_f32); self.documents as usize];
        for (word, documents) in counted() {
            for &(document, score) in documents {
                let sum = &mut sums[document as usize];
                *sum = (sum.0 + score, sum.1 + word.weight * word.worth);
            }
        }
        let score = |(score, found): (f32, f32)| if score > 0.0 { score * (1.0 - COVERAGE + COVERAGE * found / total) } else { 0.0 };
        sums.into_iter().map(score).collect()
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
    pub fn rarity(&self, number: u32) -> f32 {
        let having = self.postings[number as usize].len() as f32;
        (1.0 + (self.documents as f32 - having + 0.5) / (having + 0.5)).ln()
    }
}
