//! Compiled patterns of the audit. Each is matched in linear time, as the `regex` crate has no backtracking.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex, bytes};

use super::rules::{Rule, Subject};
use super::{english, languages};

/// All rules that match patterns.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    english::RULES.iter().chain(languages::RULES)
}

/// Compiles a pattern for bytes, so that the automaton for gaps between words is as small as for ASCII text.
fn compile(rule: &Rule, pattern: &str) -> Option<bytes::Regex> {
    // A fast automaton supports only ASCII word boundaries.
    let pattern = pattern.replace(" .. ", "(?-u:(?: [^ \\n]+){0,6} )").replace("\\b", "(?-u:\\b)");
    bytes::RegexBuilder::new(&pattern).case_insensitive(rule.subject == Subject::Written).build().ok()
}

/// The patterns of each rule. They are compiled one by one. In a combined automaton, a hostile text could reach more states than its cache
/// can store.
pub(super) static PATTERNS: LazyLock<Vec<(&'static Rule, Vec<bytes::Regex>)>> =
    LazyLock::new(|| rules().map(|rule| (rule, rule.patterns.iter().filter_map(|pattern| compile(rule, pattern)).collect())).collect());

/// A fixed pattern. A test verifies that it compiles.
pub(super) struct Known(pub(super) Option<Regex>);

impl Known {
    pub(super) fn new(pattern: &str) -> Self {
        Self(Regex::new(pattern).ok())
    }

    pub(super) fn find<'a>(&self, text: &'a str) -> Option<regex::Match<'a>> {
        self.0.as_ref()?.find(text)
    }

    /// Returns the text without its matches.
    pub(super) fn without<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.as_ref().map_or(Cow::Borrowed(text), |pattern| pattern.replace_all(text, " "))
    }

    pub(super) fn replaced(&self, text: &str, by: impl Fn(&str) -> String) -> String {
        self.0
            .as_ref()
            .map_or_else(|| text.to_owned(), |pattern| pattern.replace_all(text, |found: &Captures<'_>| by(&found[0])).into_owned())
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.find(text).is_some()
    }

    #[cfg(test)]
    pub(super) fn is_valid(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the byte offsets at which the matches start.
    pub(super) fn starts<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> {
        self.0.iter().flat_map(|pattern| pattern.find_iter(text)).map(|found| found.start())
    }

    pub(super) fn all<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().flat_map(|pattern| pattern.find_iter(text)).map(|found| found.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for (rule, patterns) in PATTERNS.iter() {
            assert_eq!(patterns.len(), rule.patterns.len(), "{}", rule.id);
        }
    }
}
