//! Finds terms that are similar to a mistyped word.

use std::cmp::Reverse;
use std::sync::Arc;

use super::words::is_dense;

/// The length of a term, and the set of its letters. They are compared first, because this is fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outline {
    chars: u8,
    letters: u32,
}

/// Maximum number of similar terms that are used instead of one word.
const MAX_NEAR: usize = 6;
/// Maximum number of terms that are compared letter by letter. With normal tools, there are at most some hundreds.
const MAX_COMPARED: usize = 10_000;
/// Minimum length of a word that may match as a prefix of a term.
const LEAST_PREFIX_CHARS: usize = 4;
/// Minimum length of the common beginning of a word and a term whose ends differ.
const LEAST_ALIKE_CHARS: usize = 5;

impl Outline {
    pub fn of(term: &str) -> Self {
        let letters = term.chars().fold(0, |letters, character| letters | 1 << (u32::from(character) % 32));
        Self { chars: u8::try_from(term.chars().count()).unwrap_or(u8::MAX), letters }
    }

    /// Returns whether two terms may differ by at most `slips` typing errors. One error changes the length by at most one, and replaces
    /// at most one letter.
    fn could_be(self, other: Self, slips: u8) -> bool {
        self.chars.abs_diff(other.chars) <= slips && (self.letters ^ other.letters).count_ones() <= 2 * u32::from(slips)
    }
}

/// A term that is used instead of a word. `share` is its weight. The word itself would have the weight 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Near {
    pub term: u32,
    pub share: f32,
}

/// Returns the terms that are most similar to a word, with the best first. These are terms with one typing error, or otherwise with two,
/// and terms with the same beginning. A typing error is an additional, missing or wrong letter, or two letters in the wrong order.
///
/// The outline of each term is compared. For a hundred thousand terms, this takes less than a millisecond. `documents` returns the number
/// of documents that contain a term. A term that no document contains is ignored.
pub(super) fn near_terms<'a>(word: &str, terms: &'a [(Outline, Arc<str>)], documents: impl Fn(u32) -> usize) -> Vec<Near> {
    let outline = Outline::of(word);
    let slips = slips_allowed(outline.chars);
    let dense = word.chars().next().is_some_and(is_dense);
    let mut found: Vec<(u8, bool, Reverse<usize>, &'a str, Near)> = Vec::new();
    let mut compared = 0;
    for (number, (other, term)) in terms.iter().enumerate() {
        let comparable = !dense && compared < MAX_COMPARED && outline.could_be(*other, slips);
        compared += usize::from(comparable);
        let slipped = comparable.then(|| slips_between(word, term, slips)).flatten();
        let begun = if dense { contains(word, outline, term) } else { begins_alike(word, outline, term) };
        let Some((distance, share)) = slipped.or(begun) else { continue };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let having = documents(number);
        if having > 0 {
            let other_beginning = term.chars().next() != word.chars().next();
            found.push((distance, other_beginning, Reverse(having), term, Near { term: number, share }));
        }
    }
    found.sort_unstable_by(|one, other| (one.0, one.1, one.2, one.3).cmp(&(other.0, other.1, other.2, other.3)));
    // Terms with two typing errors are only used if there are no better terms.
    let least = found.first().map_or(0, |first| first.0);
    found.into_iter().filter(|found| found.0 == least || found.0 == PREFIX).take(MAX_NEAR).map(|found| found.4).collect()
}

/// Distance by which a term is sorted that has only its beginning in common with the word. It lies between the distances of one typing
/// error and of two.
const PREFIX: u8 = 2;

/// Compares the beginnings of a word and a term, for example `repo` and `repository`, or `vulnerable` and `vulnerabilities`. The term
/// must begin with most of the word.
fn begins_alike(word: &str, outline: Outline, term: &str) -> Option<(u8, f32)> {
    if !word.as_bytes().get(..3).is_some_and(|beginning| term.as_bytes().starts_with(beginning)) {
        return None;
    }
    let alike = word.chars().zip(term.chars()).take_while(|(one, other)| one == other).count();
    let chars = usize::from(outline.chars);
    let enough = if alike == chars { alike >= LEAST_PREFIX_CHARS } else { alike >= LEAST_ALIKE_CHARS && alike * 4 >= chars * 3 };
    #[expect(clippy::cast_precision_loss, reason = "words are short")]
    let share = || 0.4 + 0.4 * alike as f32 / chars.max(term.chars().count()) as f32;
    enough.then(|| (PREFIX, share()))
}

/// Accepts a term that contains the word, if the word is a single character. This is only used for scripts without spaces, because their
/// words are indexed as pairs of characters.
fn contains(word: &str, outline: Outline, term: &str) -> Option<(u8, f32)> {
    (outline.chars == 1 && term.contains(word)).then_some((PREFIX, 0.6))
}

fn slips_allowed(chars: u8) -> u8 {
    match chars {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    }
}

fn slips_between(word: &str, term: &str, allowed: u8) -> Option<(u8, f32)> {
    let slips = strsim::osa_distance(word, term);
    let chars = word.chars().count();
    // For a word of three letters, two letters in the wrong order are the only accepted error. With a different letter, it would usually
    // be another word.
    let same_letters = chars > 3 || Outline::of(word) == Outline::of(term);
    match slips {
        1 if allowed >= 1 && same_letters => Some((1, 0.8)),
        2 if allowed >= 2 => Some((3, 0.55)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(word: &str, terms: &[&str]) -> Vec<String> {
        let lexicon: Vec<(Outline, Arc<str>)> = terms.iter().map(|term| (Outline::of(term), Arc::from(*term))).collect();
        near_terms(word, &lexicon, |_| 1).into_iter().map(|near| terms[near.term as usize].to_owned()).collect()
    }

    #[test]
    fn one_slip_is_nearer_than_two() {
        assert_eq!(near("comit", &["commit", "comet", "vomited"]), ["comet", "commit"]);
        assert_eq!(near("serach", &["search", "reach"]), ["search"]);
        assert_eq!(near("reposotori", &["repositori", "depository"]), ["repositori"]);
        assert_eq!(near("brnahc", &["branch", "break"]), ["branch"]);
    }

    #[test]
    fn short_words_have_no_slips_but_changed_places() {
        assert_eq!(near("gti", &["git", "get"]), ["git"]);
        assert!(near("db", &["do", "dc"]).is_empty());
    }

    #[test]
    fn a_long_enough_beginning_is_near() {
        assert_eq!(near("conf", &["configur", "con"]), ["con", "configur"]);
        assert_eq!(near("conf", &["configur"]), ["configur"]);
        assert!(near("con", &["configur"]).is_empty());
        assert_eq!(near("猫", &["子猫", "犬舎"]), ["子猫"]);
    }

    #[test]
    fn a_term_that_no_document_has_is_not_near() {
        let lexicon = [(Outline::of("search"), Arc::from("search"))];
        assert!(near_terms("serach", &lexicon, |_| 0).is_empty());
    }
}
