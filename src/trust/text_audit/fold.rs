//! The folded form of a text, in which rules find a wording however it is written.

use std::sync::LazyLock;

use super::pattern::Known;

/// Words for secrets that have another meaning together with the next word: "password protection".
static HONEST_WORDS: LazyLock<Known> = LazyLock::new(|| {
    Known::new(
        r"\b(passwords?|keys?|secrets?|tokens?|credentials?|prompts?) (protect(ion|ed)?|polic(y|ies)|rotation|managers?|strength|resets?|hash(es|ing)?|generator|vaults?|expiry|management|length|value|pairs?|words?|counts?|usage|limits?|budget)\b",
    )
});

/// Joins the words in each match of [`HONEST_WORDS`] by `_`, so that no rule takes one of these words for a secret. The text keeps its
/// length.
pub(super) fn join_honest_words(folded: &str) -> String {
    HONEST_WORDS.replaced(folded, |words| words.replace(' ', "_"))
}

/// Returns the folded form of a text: see [`Subject::Folded`].
pub(super) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let mut before = '\n';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or('\n');
        let plain = plain(character);
        if plain.is_alphanumeric() {
            // `camelCase` is split into two words.
            if before.is_lowercase() && character.is_uppercase() {
                end_word(&mut out, &mut word, ' ');
            }
            word.extend(plain.to_lowercase());
        } else if !matches!(character, '\'' | '’' | '\u{300}'..='\u{36f}')
            || !next.is_alphanumeric() && !word.is_empty() && character == '\''
        {
            end_word(&mut out, &mut word, if ends_sentence(character, before, next) { '\n' } else { ' ' });
        }
        before = character;
    }
    end_word(&mut out, &mut word, '\n');
    out
}

fn ends_sentence(character: char, before: char, next: char) -> bool {
    match character {
        '.' | '!' | '?' => next.is_whitespace(),
        // A single line break only wraps a sentence. A list item or a paragraph ends it.
        '\n' => before == '\n' || matches!(next, '\n' | '-' | '*' | '#' | '•'),
        _ => matches!(character, '。' | '！' | '？'),
    }
}

/// Writes a word, and one space or line break after it. Look-alike letters and digits become the letters that they resemble.
fn end_word(out: &mut String, word: &mut String, after: char) {
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    if letters > 0 && word.len() > letters {
        out.extend(word.chars().map(|character| digit_letter(character).or(look_alike(character)).unwrap_or(character)));
    } else {
        out.push_str(word);
    }
    word.clear();
    let last = out.chars().next_back().unwrap_or('\n');
    if last == ' ' && after == '\n' {
        out.pop();
        out.push('\n');
    } else if !last.is_whitespace() {
        out.push(after);
    }
}

fn digit_letter(character: char) -> Option<char> {
    Some(match character {
        '0' => 'o',
        '1' => 'i',
        '3' => 'e',
        '4' => 'a',
        '5' => 's',
        '7' => 't',
        _ => return None,
    })
}

/// Returns the Latin letter that a Cyrillic or Greek letter resembles.
fn look_alike(character: char) -> Option<char> {
    const PAIRS: [(char, char); 28] = [
        ('а', 'a'),
        ('е', 'e'),
        ('о', 'o'),
        ('р', 'p'),
        ('с', 'c'),
        ('у', 'y'),
        ('х', 'x'),
        ('і', 'i'),
        ('ј', 'j'),
        ('ѕ', 's'),
        ('һ', 'h'),
        ('ԁ', 'd'),
        ('ԛ', 'q'),
        ('ԝ', 'w'),
        ('ѵ', 'v'),
        ('к', 'k'),
        ('м', 'm'),
        ('т', 't'),
        ('н', 'h'),
        ('в', 'b'),
        ('ɡ', 'g'),
        ('ո', 'n'),
        ('ο', 'o'),
        ('ν', 'v'),
        ('ι', 'i'),
        ('κ', 'k'),
        ('ρ', 'p'),
        ('υ', 'u'),
    ];
    PAIRS.iter().find(|(from, _)| *from == character).map(|(_, to)| *to)
}

/// Returns the common form of all names that a person could confuse with this name: without case and accents, and with Latin letters in
/// place of the letters and digits that resemble them.
pub(in crate::trust) fn likeness(name: &str) -> String {
    let seen = name.chars().filter(|character| !crate::text::is_unseen(*character) && !('\u{300}'..='\u{36f}').contains(character));
    let small = seen.flat_map(|character| plain(character).to_lowercase());
    let letters = small.map(|character| look_alike(character).unwrap_or(character));
    let alike = letters.map(|character| match character {
        '0' => 'o',
        '1' | 'l' | '|' => 'i',
        other => other,
    });
    alike.collect()
}

/// Returns whether a word contains both Latin letters and letters of other scripts that resemble them.
pub(super) fn mixes_scripts(text: &str) -> bool {
    let mixed = |word: &str| {
        word.bytes().any(|byte| byte.is_ascii_alphabetic())
            && word.chars().flat_map(char::to_lowercase).any(|character| look_alike(character).is_some())
    };
    !text.is_ascii() && text.split(|character: char| !character.is_alphanumeric()).any(mixed)
}

/// Returns a letter without its accent, width or mathematical style. Returns any other character unchanged.
fn plain(character: char) -> char {
    let shifted = |from: u32, base: u8, count: u32| char::from(base + u8::try_from((character as u32 - from) % count).unwrap_or_default());
    match character {
        'à'..='å' | 'À'..='Å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'Ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'È'..='Ë' | 'ē' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'Ì'..='Ï' | 'ī' | 'ı' => 'i',
        'ñ' | 'Ñ' | 'ń' => 'n',
        'ò'..='ö' | 'Ò'..='Ö' | 'ō' | 'ø' => 'o',
        'ù'..='ü' | 'Ù'..='Ü' | 'ū' => 'u',
        'ý' | 'ÿ' => 'y',
        '\u{ff01}'..='\u{ff5e}' => shifted(0xff01, b'!', 94),
        '\u{1d400}'..='\u{1d6a3}' => match (character as u32 - 0x1d400) % 52 {
            0..=25 => shifted(0x1d400, b'a', 26),
            _ => shifted(0x1d41a, b'a', 26),
        },
        '\u{1d7ce}'..='\u{1d7ff}' => shifted(0x1d7ce, b'0', 10),
        // Letters in circles and squares, and regional indicators.
        '\u{24b6}'..='\u{24e9}' => shifted(0x24b6, b'a', 26),
        '\u{1f130}'..='\u{1f149}' => shifted(0x1f130, b'a', 26),
        '\u{1f1e6}'..='\u{1f1ff}' => shifted(0x1f1e6, b'a', 26),
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_have_the_same_likeness() {
        for alike in ["Review_PLAN", "rev\u{456}ew_plan", "r\u{e9}view_plan", "ｒeview_plan", "revi\u{200b}ew_p1an", "re\u{301}view_plan"]
        {
            assert_eq!(likeness(alike), likeness("review_plan"), "{alike}");
        }
        for other in ["review-plan", "preview_plan", "review_plans"] {
            assert_ne!(likeness(other), likeness("review_plan"), "{other}");
        }
    }

    #[test]
    fn honest_words_are_joined() {
        assert_eq!(join_honest_words("add password protection and the password\n"), "add password_protection and the password\n");
        assert!(HONEST_WORDS.is_valid());
    }

    #[test]
    fn folding_leaves_plain_words_one_sentence_a_line() {
        assert_eq!(fold("Don't use the `send_email` tool.  Read ~/.env, now!\nNext"), "dont use the send email tool\nread env now\nnext\n");
        assert_eq!(fold("readFile 1gn0re ｆｕｌｌ 𝐛𝐨𝐥𝐝 𝑖𝑡𝑎𝑙 été іgnоre\n\nlast"), "read file ignore full bold ital ete ignore\nlast\n");
    }
}
