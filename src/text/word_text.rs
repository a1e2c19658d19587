//! A text in which words and phrases are looked up, in any case and by whole words.

use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation as _;

/// A text that is searched for many phrases. A phrase is found where it begins and ends at a boundary of words by Unicode, or beside punctuation; letters
/// of another case are the same, and so is any white space.
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
    /// The byte positions at which a phrase may begin or end.
    boundaries: HashSet<usize>,
    /// The longest runs of ASCII letters, digits and underscores. A phrase that begins with such a run, which is no one of these, is not in the text.
    runs: HashSet<String>,
}

impl WordText {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let folded = Self::fold(text);
        let mut boundaries: HashSet<usize> = folded.split_word_bound_indices().map(|(position, _)| position).collect();
        for (position, separator) in folded.char_indices().filter(|(_, character)| is_separator(*character)) {
            boundaries.extend([position, position + separator.len_utf8()]);
        }
        boundaries.extend([0, folded.len()]);
        let runs = folded.split(|character| !is_run(character)).map(ToOwned::to_owned).collect();
        Self { folded, boundaries, runs }
    }

    /// Returns the text without differences of case and white space.
    #[must_use]
    pub fn fold(text: &str) -> String {
        let folded = |character: char| character.to_uppercase().flat_map(char::to_lowercase);
        let words: Vec<String> = text.split_whitespace().map(|word| word.chars().flat_map(folded).collect()).collect();
        words.join(" ")
    }

    /// Returns whether the text has the phrase.
    #[must_use]
    pub fn has(&self, phrase: &str) -> bool {
        let phrase = Self::fold(phrase);
        let run: &str = &phrase[..phrase.find(|character| !is_run(character)).unwrap_or(phrase.len())];
        if phrase.is_empty() || (!run.is_empty() && !self.runs.contains(run)) {
            return false;
        }
        let mut from = 0;
        while let Some(found) = self.folded[from..].find(&phrase) {
            let start = from + found;
            if self.boundaries.contains(&start) && self.boundaries.contains(&(start + phrase.len())) {
                return true;
            }
            from = start + self.folded[start..].chars().next().map_or(1, char::len_utf8);
        }
        false
    }
}

fn is_run(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || (character.is_ascii_punctuation() && character != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

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
