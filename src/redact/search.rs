//! Finds complete forms of secrets in a text, and nothing else.
//!
//! An attacker may choose a text, and test guesses with the redacted result. So the result only depends on forms that the text contains
//! completely. If the text contains only a part of a form, this part changes neither the position nor the length of a replacement.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};

use super::MARK;
use super::base64::{self, Edges};
use super::fingerprint::{Base, Fingerprint, Prefixes};
use super::forms::{encodings, is_long_enough, parts};

/// Maximum number of bytes in a form for which the automaton searches. The rest of a form is compared by its hash, because an automaton
/// for all forms of a certificate would be huge.
const SEARCHED: usize = 64;

/// A secret with all of its forms.
pub(super) struct Secret {
    secret: SecretString,
    /// Pairs of the beginning of a form, and the form.
    forms: Vec<(Zeroizing<Vec<u8>>, Form)>,
}

/// A form of a secret. It is compared with a text after the form's beginning was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    length: usize,
    fingerprint: Fingerprint,
    edges: Edges,
}

impl Secret {
    /// Finds the forms of a secret and of its parts. Only the `most` longest parts are used. The longer the secret is, the more time this
    /// takes, so no lock is held meanwhile.
    pub(super) fn new(base: Base, secret: &SecretString, most: usize) -> Self {
        let mut forms = BTreeSet::<(String, Edges)>::new();
        let mut parts: Vec<String> = parts(secret.expose_secret()).into_iter().collect();
        parts.sort_by_key(|part| Reverse(part.len()));
        for part in parts.iter().take(most) {
            for form in encodings(part) {
                // The mark itself must not be searched for. If a form contains the mark, the pieces around the mark are searched for
                // instead.
                forms.extend(form.split(MARK).filter(|piece| is_long_enough(piece)).map(|piece| (piece.to_owned(), Edges::default())));
            }
            forms.extend(base64::within(part.as_bytes()));
        }
        let known = |(form, edges): (String, Edges)| {
            let form = form.as_bytes();
            let beginning = Zeroizing::new(form[..form.len().min(SEARCHED)].to_vec());
            (beginning, Form { length: form.len(), fingerprint: base.of(form), edges })
        };
        Self { secret: secret.clone(), forms: forms.into_iter().map(known).collect() }
    }

    #[cfg(test)]
    pub(super) fn count_of_forms(&self) -> usize {
        self.forms.len()
    }

    pub(super) fn is(&self, secret: &SecretString) -> bool {
        self.secret.expose_secret() == secret.expose_secret()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is(&other.secret)
    }
}

/// The secrets, and the data with which they are searched for. This value is never changed, but replaced as a whole, so a search does not
/// hold the lock.
pub(super) struct Known {
    secrets: Vec<Arc<Secret>>,
    /// Automaton that finds the beginnings of the forms. `None` if there are too many.
    automaton: Option<AhoCorasick>,
    /// For each beginning, the forms that begin with it. The beginnings are in the order of the automaton's patterns.
    begun: Vec<Vec<Form>>,
    base: Base,
    longest: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self::new(Base::new(RandomState::new().hash_one(SEARCHED)), Vec::new())
    }
}

impl Known {
    /// Makes the search data for secrets whose forms were made with this `base`.
    pub(super) fn new(base: Base, secrets: Vec<Arc<Secret>>) -> Self {
        let mut by_beginning = BTreeMap::<&[u8], BTreeSet<Form>>::new();
        for (beginning, form) in secrets.iter().flat_map(|secret| &secret.forms) {
            by_beginning.entry(beginning.as_slice()).or_default().insert(*form);
        }
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(by_beginning.keys()).ok();
        let begun: Vec<Vec<Form>> = by_beginning.into_values().map(|forms| forms.into_iter().collect()).collect();
        let longest = begun.iter().flatten().map(|form| form.length).max().unwrap_or(0);
        Self { secrets, automaton, begun, base, longest }
    }

    pub(super) fn base(&self) -> Base {
        self.base
    }

    /// Returns whether the search data contains this secret.
    pub(super) fn finds(&self, secret: &SecretString) -> bool {
        self.secrets.iter().any(|known| known.is(secret))
    }

    pub(super) fn count(&self) -> usize {
        self.secrets.len()
    }

    /// Returns the length of the longest form in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the text with its secrets replaced. Returns `None` if the text contains no secret.
    pub(super) fn blank(&self, text: &str) -> Option<String> {
        if self.begun.is_empty() {
            return None;
        }
        let Some(automaton) = &self.automaton else { return (text != MARK).then(|| MARK.to_owned()) };
        let mut blanked = String::new();
        let (mut copied, mut offset) = (0, 0);
        for piece in text.split(MARK) {
            for (start, end) in self.spans(automaton, piece.as_bytes()) {
                blanked.push_str(&text[copied..offset + start]);
                blanked.push_str(MARK);
                copied = offset + end;
            }
            offset += piece.len() + MARK.len();
        }
        (copied > 0).then(|| blanked + &text[copied..])
    }

    /// Returns the ranges of complete forms within bytes that need not be text, or `None` if there are too many forms to search for.
    pub(super) fn spans_in(&self, bytes: &[u8]) -> Option<Vec<(usize, usize)>> {
        if self.begun.is_empty() {
            return Some(Vec::new());
        }
        self.automaton.as_ref().map(|automaton| self.spans(automaton, bytes))
    }

    /// Returns the ranges of a text that contain a secret in one of its encoded forms, from the first to the last byte of the form.
    /// Overlapping or adjacent ranges are joined, so that no part of a form remains.
    fn spans(&self, automaton: &AhoCorasick, text: &[u8]) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        let mut prefixes = None;
        for found in automaton.find_overlapping_iter(text) {
            let start = found.start();
            let is_here = |form: &&Form| {
                let end = start + form.length;
                // If the form is short, the automaton has already matched all of it.
                end == found.end()
                    || end <= text.len()
                        && prefixes.get_or_insert_with(|| Prefixes::new(self.base, text)).between(start, end) == form.fingerprint
            };
            let whole = |form: &Form| form.edges.around(text, start, start + form.length);
            let here = self.begun[found.pattern().as_usize()].iter().filter(is_here).filter_map(whole);
            let Some((mut start, mut end)) = here.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))) else { continue };
            while let Some((last_start, last_end)) = spans.pop_if(|(_, last_end)| *last_end >= start) {
                (start, end) = (start.min(last_start), end.max(last_end));
            }
            spans.push((start, end));
        }
        spans
    }
}
