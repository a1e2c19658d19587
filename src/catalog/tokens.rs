//! How many tokens a text costs a model, roughly and never less than it does.

/// An estimate of a text's tokens, on the safe side: for code and prose in English a tenth to a quarter more than
/// `o200k_base` of `OpenAI` counts (measured by `benches/tokens.mjs`). Other models' tokenizers differ by about as much.
///
/// A word (or a part of a `camelCase` one) costs a token for each six letters, a number one for each three digits, marks one
/// for each two that stand together, and a character beyond ASCII one or two; a blank before a word costs nothing.
///
/// ```
/// use hyperlight_mcp::catalog::estimate_tokens;
///
/// assert_eq!(estimate_tokens(""), 0);
/// assert_eq!(estimate_tokens("Reads a file."), 4);
/// assert_eq!(estimate_tokens("getForecast({ days: 3 })"), 9);
/// ```
#[must_use]
pub fn estimate_tokens(text: &str) -> usize {
    let mut tokens = 0;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let class = Class::of(first);
        let end = rest.find(|character| Class::of(character) != class).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        tokens += match class {
            Class::Letters => words(run),
            Class::Digits => run.len().div_ceil(3),
            // One blank belongs to the word after it; a line break with what is before and after it is one token.
            Class::Blanks => usize::from(run != " " || after.is_empty()),
            Class::Marks => run.len().div_ceil(2),
            Class::Beyond => run.chars().map(|character| if character.len_utf8() > 2 { 2 } else { 1 }).sum(),
        };
        rest = after;
    }
    tokens
}

/// The tokens of letters without anything between them: `getURLOf` is get, URL, Of.
fn words(run: &str) -> usize {
    let letters = run.as_bytes();
    let begins = |index: usize| {
        let upper = letters[index].is_ascii_uppercase();
        let after_lower = letters[index - 1].is_ascii_lowercase();
        upper && (after_lower || letters.get(index + 1).is_some_and(u8::is_ascii_lowercase))
    };
    let (mut tokens, mut start) = (0, 0);
    for index in (1..letters.len()).filter(|&index| begins(index)).chain([letters.len()]) {
        tokens += (index - start).div_ceil(6);
        start = index;
    }
    tokens
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
    fn of(character: char) -> Self {
        match character {
            'a'..='z' | 'A'..='Z' => Self::Letters,
            '0'..='9' => Self::Digits,
            ' ' | '\t' | '\n' | '\r' => Self::Blanks,
            '\u{21}'..='\u{7e}' => Self::Marks,
            _ => Self::Beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_their_parts() {
        for (text, tokens) in
            [("a", 1), ("getURLOf", 3), ("snake_case", 3), ("12345", 2), ("extraordinary", 3), ("日本", 4), ("\n    x", 2)]
        {
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
