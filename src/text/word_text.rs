//! A text in which words and phrases are searched. Only whole words are found, and case does not matter.

use std::collections::{HashMap, HashSet};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use unicode_segmentation::UnicodeSegmentation as _;

/// A text in which many phrases can be searched. A phrase is found if it begins and ends at a Unicode word boundary or directly before or
/// after punctuation. Differences in case and in white space do not matter.
///
/// ```
/// use hyperlight_mcp::text::WordText;
/// let text = WordText::new("Fix GitHub's open Pull\nRequests (C++, 今天天气)");
/// assert!(text.has("github") && text.has("pull requests") && text.has("c++") && text.has("天气"));
/// assert!(!text.has("git") && !text.has("pull request") && !text.has(""));
/// ```
#[derive(Debug, Clone, Default)]
pub struct WordText {
    folded: String,
    /// For each byte position and for the end of the text: whether a phrase may begin or end there.
    boundaries: Vec<bool>,
}

impl WordText {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let folded = Self::fold(text);
        let mut boundaries = vec![false; folded.len() + 1];
        for (position, _) in folded.split_word_bound_indices() {
            boundaries[position] = true;
        }
        for (position, separator) in folded.char_indices().filter(|(_, character)| is_separator(*character)) {
            boundaries[position] = true;
            boundaries[position + separator.len_utf8()] = true;
        }
        boundaries[0] = true;
        boundaries[folded.len()] = true;
        Self { folded, boundaries }
    }

    /// Returns the text in a form without differences of case and white space.
    #[must_use]
    pub fn fold(text: &str) -> String {
        let folded = |character: char| character.to_uppercase().flat_map(char::to_lowercase);
        let words: Vec<String> = text.split_whitespace().map(|word| word.chars().flat_map(folded).collect()).collect();
        words.join(" ")
    }

    /// Returns whether the text contains the phrase.
    #[must_use]
    pub fn has(&self, phrase: &str) -> bool {
        self.found([phrase]).contains(phrase)
    }

    /// Returns the phrases that the text contains. All phrases are searched in one pass over the text, so many phrases hardly
    /// take more time than one.
    #[must_use]
    pub fn found<'p>(&self, phrases: impl IntoIterator<Item = &'p str>) -> HashSet<&'p str> {
        let mut given: HashMap<&'p str, usize> = HashMap::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut searched: Vec<String> = Vec::new();
        for phrase in phrases.into_iter().filter(|_| !self.folded.is_empty()) {
            given.entry(phrase).or_insert_with(|| {
                let folded = Self::fold(phrase);
                *numbers.entry(folded).or_insert_with_key(|folded| {
                    searched.push(folded.clone());
                    searched.len() - 1
                })
            });
        }
        let is_found = self.search(&searched);
        given.into_iter().filter(|(_, number)| is_found[*number]).map(|(phrase, _)| phrase).collect()
    }

    /// Returns for each folded phrase whether the text contains it.
    fn search(&self, phrases: &[String]) -> Vec<bool> {
        let mut is_found = vec![false; phrases.len()];
        // An empty phrase is never found.
        let numbers: Vec<usize> = (0..phrases.len()).filter(|&number| !phrases[number].is_empty()).collect();
        let patterns = numbers.iter().map(|&number| phrases[number].as_bytes());
        // The build only fails if the phrases have more bytes than a config can have.
        let Ok(automaton) = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(patterns) else { return is_found };
        for found in automaton.find_overlapping_iter(&self.folded) {
            if self.boundaries[found.start()] && self.boundaries[found.end()] {
                is_found[numbers[found.pattern().as_usize()]] = true;
            }
        }
        is_found
    }
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || (character.is_ascii_punctuation() && character != '_')
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    /// Searches a phrase in the simplest way, at each boundary of the text.
    fn has_plainly(text: &str, phrase: &str) -> bool {
        let (text, phrase) = (WordText::fold(text), WordText::fold(phrase));
        let is_beside = |position: usize| {
            let before = text[..position].chars().next_back().is_none_or(is_separator);
            before || text[position..].chars().next().is_none_or(is_separator)
        };
        let words: HashSet<usize> = text.split_word_bound_indices().map(|(position, _)| position).collect();
        let is_boundary = |position: usize| words.contains(&position) || is_beside(position);
        let starts = text.char_indices().map(|(start, _)| start).filter(|start| is_boundary(*start));
        !phrase.is_empty() && starts.into_iter().any(|start| text[start..].starts_with(&phrase) && is_boundary(start + phrase.len()))
    }

    /// Generates texts from a few different characters, so that phrases are often found.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[abABéÉ天气_1 .+\n\u{301}'-]{0,24}", 1 => "\\PC{0,12}"]
    }

    proptest! {
        #[test]
        fn all_phrases_at_once_are_found_as_the_plainest_way_finds_each(text in texts(), phrases in prop::collection::vec("[abABé天_1 .+]{0,4}", 0..12)) {
            let found = WordText::new(&text);
            let found = found.found(phrases.iter().map(String::as_str));
            for phrase in &phrases {
                prop_assert_eq!(found.contains(phrase.as_str()), has_plainly(&text, phrase), "{:?} in {:?}", phrase, text);
            }
        }

        #[test]
        fn a_part_of_a_text_is_found_as_the_plainest_way_finds_it(text in texts(), start in 0_usize..24, length in 1_usize..8) {
            let phrase: String = text.chars().skip(start).take(length).collect();
            prop_assert_eq!(WordText::new(&text).has(&phrase), has_plainly(&text, &phrase), "{:?} in {:?}", phrase, text);
        }
    }

    #[test]
    fn thousands_of_phrases_take_one_pass_over_a_long_text() {
        // Each phrase begins at nearly every word or at every third letter, but none is a whole word.
        let text = WordText::new(&"сравните завтрашние прогнозы погоды нескольких городов ".repeat(700));
        let letters: Vec<char> = "оеаинтсрвлкмдпуя".chars().collect();
        let phrases: Vec<String> =
            (0..8_192).map(|number: usize| (0..4).map(|place| letters[(number >> (3 * place)) % 16]).collect()).collect();
        let started = Instant::now();
        assert_eq!(text.found(phrases.iter().map(String::as_str)).len(), 0);
        let taken = started.elapsed();
        assert!(taken < Duration::from_secs(2), "{taken:?}");
    }

    #[test]
    fn a_phrase_is_found_by_whole_words_in_any_case() {
        for (text, phrase, expected) in [
            ("The WEATHER in Oslo", "weather", true),
            ("weathering", "weather", false),
            ("my_weather", "weather", false),
            ("example.com/weather?x", "weather", true),
            ("node.js", "Node.JS", true),
            ("Straße", "STRASSE", true),
            ("ΟΔΟΣ", "οδος", true),
            ("cafe\u{301}", "cafe", false),
            ("aaa aa", "aa", true),
            ("a  b\n c", "a b c", true),
            ("C++ and C#", "c#", true),
            ("C++", "c+", true),
            ("", "a", false),
            ("İstanbul", "istanbul", false),
        ] {
            assert_eq!(WordText::new(text).has(phrase), expected, "{text}: {phrase}");
        }
    }
}
