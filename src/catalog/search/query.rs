//! The words of a question that are searched for, with their weights.

use std::collections::HashMap;

use super::common::is_common;
use super::intents::{Token, intents};
use super::near::near_terms;
use super::rank::Merged;
use super::synonyms::{Synonyms, is_stop_word};
use super::words::{Chunk, first_word, term};

/// Maximum size of a query. The rest is ignored.
const MAX_QUERY_BYTES: usize = 4 * 1024;
const MAX_QUERY_WORDS: usize = 48;
/// Maximum number of words in a query for which similar terms are looked up. Each lookup goes through all terms.
const MAX_GUESSES: usize = 12;
/// Weight of a synonym, relative to the word itself.
const SYNONYM_SHARE: f32 = 0.5;
const ONLY_SYNONYM_SHARE: f32 = 0.8;
/// Weight of the parts of a name if a tool contains the whole name as a term.
const PART_SHARE: f32 = 0.4;
/// Weight of neighbouring words of the query that are joined to one term. For example, `create issue` also finds `createissue`.
const JOINED_SHARE: f32 = 0.5;
const MAX_JOINED: usize = 4;
/// Weight of words that are common in questions, unless the question has no others.
const COMMON_SHARE: f32 = 0.3;
/// Weight of numbers and single letters: they are mostly arguments.
const DIGITS_SHARE: f32 = 0.3;
/// Weight of the words that a path or URL suggests about the tool.
const PATH_SHARE: f32 = 0.4;
/// Weight of similar terms if at least `ENOUGH_KNOWN` words of the question are known. Then a word that no tool has is more likely to be a
/// name or a separate topic than a mistyped word.
const GUESS_SHARE: f32 = 0.4;
const ENOUGH_KNOWN: usize = 2;

/// A word of a query, and the terms that are searched for it. If the word itself is a known term, it is the first of them.
pub(super) struct QueryWord {
    pub weight: f32,
    pub candidates: Vec<(u32, f32)>,
    /// Highest score that one of the terms can reach.
    pub worth: f32,
    /// True for a word that is common in questions.
    pub common: bool,
    /// Numbers of the intents that contain the word.
    pub intents: Vec<usize>,
}

/// A question that was read.
pub(super) struct Query {
    pub words: Vec<QueryWord>,
    pub intents: usize,
}

/// The way in which a word is searched for.
#[derive(Clone, Copy)]
struct Manner {
    weight: f32,
    /// True if synonyms and similar terms may be used for the word.
    loosely: bool,
    common: bool,
    /// True if the word is capitalised within a sentence.
    capital: bool,
}

/// A word of the query that no searched tool contains, and whose synonyms no searched tool contains.
struct Unknown {
    term: String,
    manner: Manner,
    intent: usize,
}

/// State while a query is being read.
struct Reader<'a> {
    merged: &'a Merged,
    scope: &'a [bool],
    synonyms: &'a Synonyms,
    words: Vec<QueryWord>,
    /// Terms that the query already contains, each with its position in `words` if it is there. Each term counts only once.
    said: HashMap<String, Option<usize>>,
    unknown: Vec<Unknown>,
    /// Number of the intent that is being read.
    intent: usize,
}

impl Query {
    pub fn read(merged: &Merged, query: &str, scope: &[bool], synonyms: &Synonyms) -> Self {
        let query = first_word(query).map_or("", |_| &query[..query.floor_char_boundary(MAX_QUERY_BYTES)]);
        let intents = intents(query, synonyms);
        let mut reader = Reader { merged, scope, synonyms, words: Vec::new(), said: HashMap::new(), unknown: Vec::new(), intent: 0 };
        let parts = || intents.iter().flatten().flat_map(|token| &token.chunk.parts);
        let all_stop = parts().all(|part| is_stop_word(part));
        let all_common = parts().all(|part| is_stop_word(part) || is_common(part));
        for (number, intent) in intents.iter().enumerate() {
            reader.intent = number;
            for token in intent {
                reader.token(token, all_stop, all_common);
            }
        }
        for (number, intent) in intents.iter().enumerate() {
            reader.intent = number;
            for joined in joined(intent) {
                reader.say(&joined, Manner { weight: JOINED_SHARE, loosely: false, common: false, capital: false });
            }
        }
        reader.guess();
        Self { words: reader.words, intents: intents.len() }
    }
}

impl Reader<'_> {
    fn token(&mut self, token: &Token, all_stop: bool, all_common: bool) {
        let Token { chunk, capital, path } = token;
        let weight = if *path { PATH_SHARE } else { 1.0 };
        let manner = Manner { weight, loosely: true, common: false, capital: *capital };
        let whole = chunk.whole.as_deref().filter(|whole| self.known(&term(whole)).is_some());
        if let Some(whole) = whole {
            self.say(whole, manner);
        }
        for part in chunk.parts.iter().filter(|part| all_stop || !is_stop_word(part)) {
            let common = !all_common && is_common(part);
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            let shares = [
                (whole.is_some(), PART_SHARE),
                (common, COMMON_SHARE),
                (digits || (part.len() == 1 && chunk.parts.len() == 1), DIGITS_SHARE),
            ];
            let weight = shares.iter().filter(|(applies, _)| *applies).fold(weight, |weight, (_, share)| weight * share);
            self.say(part, Manner { weight, loosely: whole.is_none() && !digits, common, ..manner });
        }
    }

    /// Adds a word of the query, with its synonyms if it is searched for loosely.
    fn say(&mut self, word: &str, manner: Manner) {
        let term = term(word);
        if let Some(position) = self.said.get(&term) {
            if let Some(word) = position.and_then(|position| self.words.get_mut(position))
                && !word.intents.contains(&self.intent)
            {
                word.intents.push(self.intent);
            }
            return;
        }
        let exact = self.known(&term);
        let mut candidates: Vec<(u32, f32)> = exact.map(|number| (number, self.merged.rarity(number))).into_iter().collect();
        if manner.loosely {
            let share = if exact.is_some() { SYNONYM_SHARE } else { ONLY_SYNONYM_SHARE };
            self.add_synonyms(&term, share, exact, &mut candidates);
        }
        let position = self.add(manner, candidates, self.intent);
        if position.is_none() && manner.loosely {
            self.unknown.push(Unknown { term: term.clone(), manner, intent: self.intent });
        }
        self.said.insert(term, position);
    }

    /// Adds a word with its candidates, and returns its position.
    fn add(&mut self, manner: Manner, candidates: Vec<(u32, f32)>, intent: usize) -> Option<usize> {
        let worth = candidates.iter().map(|candidate| candidate.1).fold(0.0, f32::max);
        if worth <= 0.0 || self.words.len() >= MAX_QUERY_WORDS {
            return None;
        }
        self.words.push(QueryWord { weight: manner.weight, candidates, worth, common: manner.common, intents: vec![intent] });
        Some(self.words.len() - 1)
    }

    /// Adds similar terms for the words that no tool contains. A capitalised word is a name, so similar terms for it are used only if no
    /// other word of the query is known.
    fn guess(&mut self) {
        let known = self.words.len();
        let share = if known >= ENOUGH_KNOWN { GUESS_SHARE } else { 1.0 };
        let unknown = std::mem::take(&mut self.unknown).into_iter().filter(|unknown| known == 0 || !unknown.manner.capital);
        for Unknown { term, manner, intent } in unknown.take(MAX_GUESSES) {
            let mut candidates = Vec::new();
            self.add_near(&term, &mut candidates);
            self.add(Manner { weight: manner.weight * share, ..manner }, candidates, intent);
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

/// Joins each sequence of two to four neighbouring words of an intent to one word.
fn joined(intent: &[Token]) -> Vec<String> {
    let word = |chunk: &Chunk| chunk.whole.clone().unwrap_or_else(|| chunk.parts[0].clone());
    let words: Vec<String> = intent.iter().map(|token| word(&token.chunk)).collect();
    (2..=MAX_JOINED).flat_map(|count| words.windows(count).map(<[String]>::concat).collect::<Vec<_>>()).collect()
}
