//! Prepares the texts of servers for a model.

use crate::limits::MAX_WHOLE_DESCRIPTION_CHARS;

/// Functions that sanitise texts. The module `trust` provides them, because it decides which texts a model may read.
#[derive(Debug, Clone, Copy)]
pub struct Wording {
    /// Sanitises a text that may have several lines, and cuts it to a number of characters.
    pub text: fn(&str, usize) -> String,
    /// Sanitises a text, converts it to one line, and cuts it to a number of characters.
    pub line: fn(&str, usize) -> String,
    /// Maximum length of a description, in characters.
    pub max_chars: usize,
}

impl Wording {
    /// Returns a sanitised description.
    #[must_use]
    pub fn description(&self, text: &str) -> String {
        (self.text)(text, self.max_chars)
    }

    /// Returns the wording for the description of a single tool, which is not cut to `max_chars`.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { max_chars: self.max_chars.max(MAX_WHOLE_DESCRIPTION_CHARS), ..self }
    }

    /// Sanitises a text that must be on one line, for example a title or a name.
    #[must_use]
    pub fn one_line(&self, text: &str, max_chars: usize) -> String {
        (self.line)(text, max_chars.min(self.max_chars))
    }

    /// Returns the first sentence of a description, on one line.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::Wording;
    /// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
    ///
    /// let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
    /// assert_eq!(wording.purpose("Reads a file, e.g. a log. Fails for folders."), "Reads a file, e.g. a log.");
    /// ```
    #[must_use]
    pub fn purpose(&self, text: &str) -> String {
        let text = text.trim();
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let line = (self.line)(paragraph, self.max_chars);
        let end = line.char_indices().find(|&(index, character)| ends_sentence(&line, index, character));
        let sentence = end.map_or(line.as_str(), |(index, character)| &line[..index + character.len_utf8()]);
        (self.line)(sentence, MAX_PURPOSE_CHARS)
    }
}

const MAX_PURPOSE_CHARS: usize = 160;

/// Returns whether a punctuation mark ends a sentence. The next word must not begin with a lower-case letter, and the mark must not
/// belong to an abbreviation.
fn ends_sentence(line: &str, index: usize, character: char) -> bool {
    let after = &line[index + character.len_utf8()..];
    match character {
        '。' | '！' | '？' => true,
        '.' | '!' | '?' => {
            let begins = after.is_empty() || after.starts_with(' ') && after.trim_start().starts_with(|next: char| !next.is_lowercase());
            let word = line[..index].rsplit([' ', '(']).next().unwrap_or_default();
            begins && !matches!(word, "e.g" | "i.e" | "etc" | "vs" | "approx" | "max" | "min" | "No" | "no")
        }
        _ => false,
    }
}
