//! Estimates the number of tokens of a text. The estimate is more often too high than too low. No tokenizer is used, because each model has
//! a different one, with a large vocabulary.

/// Estimates the number of tokens of a text. For code and English prose, the result is 10% to 25% higher than the count of `OpenAI`'s
/// tokenizer `o200k_base` (measured by `benches/tokens.mjs`). Tokenizers of other models differ by a similar amount.
///
/// A word, or a part of a `camelCase` word, costs one token for each six letters. A word that cannot be pronounced costs more than one
/// token for each two letters, because a server could choose such names to use up the budget. A number costs one token for each three
/// digits, punctuation one for each two neighbouring marks, and a character beyond ASCII one to four. The space before a word costs
/// nothing.
///
/// ```
/// use hyperlight_mcp::catalog::estimate_tokens;
///
/// assert_eq!(estimate_tokens(""), 0);
/// assert_eq!(estimate_tokens("Reads a file."), 4);
/// assert_eq!(estimate_tokens("getForecast({ days: 3 })"), 8);
/// ```
#[must_use]
pub fn estimate_tokens(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut tokens, mut start) = (0, 0);
    while let Some(&first) = bytes.get(start) {
        let class = Class::of(first);
        let length = bytes[start..].iter().take_while(|byte| Class::of(**byte) == class).count();
        let run = &bytes[start..start + length];
        start += length;
        tokens += match class {
            Class::Letters => words(run),
            Class::Digits => length.div_ceil(3),
            // A single space belongs to the token of the next word. A line break together with the white space around it is one token.
            Class::Blanks if run == b" " => usize::from(start == bytes.len()),
            Class::Blanks => blanks(run),
            Class::Marks if length <= 3 => length.div_ceil(2),
            Class::Marks => (length * 7).div_ceil(10),
            Class::Beyond => run.iter().map(|byte| beyond(*byte)).sum(),
        };
    }
    tokens
}

/// Returns the number of tokens of a character beyond visible ASCII. The first byte counts for the whole character. The other bytes count
/// 0.
fn beyond(byte: u8) -> usize {
    match byte {
        0x80..=0xbf => 0,
        0xe0..=0xef => 2,
        0xf0.. => 4,
        _ => 1,
    }
}

/// Returns the number of tokens in a sequence of white space. Repeated characters cost little. Each change to another character costs
/// half a token.
fn blanks(run: &[u8]) -> usize {
    let kinds = 1 + run.windows(2).filter(|pair| pair[0] != pair[1]).count();
    kinds.div_ceil(2).max(run.len().div_ceil(16))
}

/// Returns the number of tokens in a sequence of letters. The sequence is split at capitals. For example, `getURLOf` consists of the
/// words get, URL and Of.
fn words(letters: &[u8]) -> usize {
    let begins = |index: usize| {
        let upper = letters[index].is_ascii_uppercase();
        let after_lower = letters[index - 1].is_ascii_lowercase();
        upper && (after_lower || letters.get(index + 1).is_some_and(u8::is_ascii_lowercase))
    };
    let (mut tokens, mut start) = (0, 0);
    for index in (1..letters.len()).filter(|&index| begins(index)).chain([letters.len()]) {
        tokens += word(&letters[start..index]);
        start = index;
    }
    tokens
}

/// Returns the number of tokens of one word. A word that cannot be pronounced costs more than one token for each two letters.
fn word(letters: &[u8]) -> usize {
    let is_vowel = |letter: &u8| matches!(letter.to_ascii_lowercase(), b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
    let vowels = letters.iter().filter(|letter| is_vowel(letter)).count();
    let longest = letters.split(is_vowel).map(<[u8]>::len).max().unwrap_or(0);
    // The limits allow "strengths", which has five consonants in a row, and short abbreviations such as "html".
    let unspeakable = letters.len() > 4 && (vowels * 10 < letters.len() || longest > 5 || letters.len() > 24);
    if unspeakable { (letters.len() * 6).div_ceil(10) } else { letters.len().div_ceil(6) }
}

#[derive(PartialEq, Eq)]
enum Class {
    Letters,
    Digits,
    Blanks,
    Marks,
    Beyond,
}

impl Class {
    /// Returns the class of a byte. All bytes of characters beyond ASCII have the same class.
    fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letters,
            b'0'..=b'9' => Self::Digits,
            b' ' | b'\t' | b'\n' | b'\r' => Self::Blanks,
            0x21..=0x7e => Self::Marks,
            _ => Self::Beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_their_parts() {
        for (text, tokens) in [
            ("a", 1),
            ("getURLOf", 3),
            ("snake_case", 3),
            ("12345", 2),
            ("extraordinary", 3),
            ("日本", 4),
            ("ß😀\u{1}", 6),
            ("strengths", 2),
            ("html", 1),
            ("xkqzvwbnmpfgtrds", 10),
            ("{}[]{}[]", 6),
            ("\n    x", 2),
            ("                                                x", 4),
            (" \t \t \t \t", 4),
        ] {
            assert_eq!(estimate_tokens(text), tokens, "{text}");
        }
    }

    #[test]
    fn a_text_costs_no_less_than_its_parts() {
        let text = "export function f(input: { a?: string }): unknown";
        for index in 0..text.len() {
            assert!(estimate_tokens(&text[..index]) <= estimate_tokens(text) + 1);
        }
    }
}
