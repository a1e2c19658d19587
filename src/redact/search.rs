//! Finds complete forms of secrets in a text, and nothing else.
//!
//! An attacker may choose a text and look at the redacted result to test guesses. So the result depends only on forms that the text contains
//! completely. A form that is there in part changes neither the place nor the length of a replacement.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use secrecy::{ExposeSecret as _, SecretString};

use super::MARK;
use super::base64::{self, Edges};
use super::fingerprint::{Base, Fingerprint, Prefixes};
use super::forms::{encodings, is_long_enough, parts};

/// Maximum number of bytes of a form that the automaton searches for. The rest is compared by hash, as an automaton for all forms of a certificate
/// would be huge.
const SEARCHED: usize = 64;

/// The secrets and the data to search for them. It is immutable and replaced as a whole, so that a search does not hold the lock.
pub(super) struct Known {
    secrets: Vec<SecretString>,
    forms: Vec<(SecretString, Edges)>,
    /// Finds the beginnings of the forms. `None` if there are too many.
    automaton: Option<AhoCorasick>,
    /// The forms with each beginning, in the order of the automaton's patterns.
    begun: Vec<Vec<Form>>,
    base: Base,
    longest: usize,
}

/// A form whose beginning was found.
struct Form {
    length: usize,
    fingerprint: Fingerprint,
    edges: Edges,
}

impl Default for Known {
    fn default() -> Self {
        Self::new(Vec::new(), 0, &[])
    }
}

impl Known {
    /// Creates the search data. `old_forms` are the forms of the first `old` secrets.
    fn new(secrets: Vec<SecretString>, old: usize, old_forms: &[(SecretString, Edges)]) -> Self {
        let mut forms: BTreeSet<(String, Edges)> =
            old_forms.iter().map(|(form, edges)| (form.expose_secret().to_owned(), *edges)).collect();
        for part in secrets[old..].iter().flat_map(|secret| parts(secret.expose_secret())) {
            for form in encodings(&part) {
                // The mark itself must not be searched for. A secret that contains the mark is found by its other parts.
                forms.extend(form.split(MARK).filter(|piece| is_long_enough(piece)).map(|piece| (piece.to_owned(), Edges::default())));
            }
            forms.extend(base64::within(part.as_bytes()));
        }
        let base = Base::new(RandomState::new().hash_one(forms.len()));
        let mut by_beginning = BTreeMap::<&[u8], Vec<Form>>::new();
        for (form, edges) in forms.iter().map(|(form, edges)| (form.as_bytes(), *edges)) {
            let known = Form { length: form.len(), fingerprint: base.of(form), edges };
            by_beginning.entry(&form[..form.len().min(SEARCHED)]).or_default().push(known);
        }
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(by_beginning.keys()).ok();
        let begun = by_beginning.into_values().collect();
        let longest = forms.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        let forms = forms.into_iter().map(|(form, edges)| (form.into(), edges)).collect();
        Self { secrets, forms, automaton, begun, base, longest }
    }

    /// Returns the search data with more secrets, or `None` if none is new. Ignores secrets of fewer than eight characters.
    pub(super) fn with<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretString>) -> Option<Self> {
        let mut all = self.secrets.clone();
        for secret in secrets {
            let is_known = all.iter().any(|known| known.expose_secret() == secret.expose_secret());
            if is_long_enough(secret.expose_secret()) && !is_known {
                all.push(secret.clone());
            }
        }
        (all.len() > self.secrets.len()).then(|| Self::new(all, self.secrets.len(), &self.forms))
    }

    pub(super) fn count(&self) -> usize {
        self.secrets.len()
    }

    /// Returns the number of bytes of the longest form.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the text with its secrets replaced, or `None` if it has none.
    pub(super) fn blank(&self, text: &str) -> Option<String> {
        if self.forms.is_empty() {
            return None;
        }
        let Some(automaton) = &self.automaton else { return (text != MARK).then(|| MARK.to_owned()) };
        let mut blanked = String::new();
        let (mut copied, mut offset) = (0, 0);
        for piece in text.split(MARK) {
            for (start, end) in self.spans(automaton, piece) {
                blanked.push_str(&text[copied..offset + start]);
                blanked.push_str(MARK);
                copied = offset + end;
            }
            offset += piece.len() + MARK.len();
        }
        (copied > 0).then(|| blanked + &text[copied..])
    }

    /// Returns the ranges of complete forms. Overlapping or adjacent ranges become one, so that no part of either form is left.
    fn spans(&self, automaton: &AhoCorasick, text: &str) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        let mut prefixes = None;
        for found in automaton.find_overlapping_iter(text) {
            let start = found.start();
            let is_here = |form: &&Form| {
                let end = start + form.length;
                // The automaton has matched a short form completely.
                end == found.end()
                    || text.is_char_boundary(end)
                        && prefixes.get_or_insert_with(|| Prefixes::new(self.base, text.as_bytes())).between(start, end) == form.fingerprint
            };
            let whole = |form: &Form| form.edges.around(text.as_bytes(), start, start + form.length);
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
