//! Splits a question into its intents, and distinguishes words from names, numbers and paths.

use super::synonyms::Synonyms;
use super::words::{Chunk, chunks, term};

/// Maximum number of intents in a question. The last intent contains the rest of the question.
const MAX_INTENTS: usize = 6;
/// Maximum number of words and names in a question that are looked at.
const MAX_TOKENS: usize = 192;
/// Maximum length in characters of a file extension that counts as a format.
const MAX_FORMAT_CHARS: usize = 5;

/// A word or name of a question.
#[derive(Debug)]
pub(super) struct Token {
    pub chunk: Chunk,
    /// True if the word has a capital within a sentence. Such a word is most likely the name of a person, place or work.
    pub capital: bool,
    /// True if the token stands for a path or URL.
    pub path: bool,
}

/// Returns the intents of a question: its sentences, and the parts of a sentence that begin with an action after `and`, `then` or a comma.
///
/// The words of a path or URL are left out, because they are about a thing and not about a tool. Only the extension of the file is kept. If
/// a question has nothing but paths and URLs, all their words are read.
pub(super) fn intents(question: &str, synonyms: &Synonyms) -> Vec<Vec<Token>> {
    let intents = Reader::read(question, synonyms, true);
    if intents.iter().flatten().any(|token| !token.path) { intents } else { Reader::read(question, synonyms, false) }
}

struct Reader {
    intents: Vec<Vec<Token>>,
    tokens: usize,
}

impl Reader {
    fn read(question: &str, synonyms: &Synonyms, paths: bool) -> Vec<Vec<Token>> {
        let mut reader = Self { intents: vec![Vec::new()], tokens: 0 };
        let (mut begins, mut joins) = (true, false);
        let ends_piece = |character: char| character.is_whitespace() || (ends_sentence(character) && !character.is_ascii());
        for piece in question.split_inclusive(ends_piece).map(str::trim).filter(|piece| !piece.is_empty()) {
            let bare = piece.trim_matches(|character: char| !character.is_alphanumeric() && !matches!(character, '/' | '~' | '.' | '\\'));
            if paths && is_path(bare) {
                reader.add(path_words(bare).into_iter().map(|word| Token { chunk: Chunk::of_word(word), capital: false, path: true }));
            } else {
                let word = bare.trim_matches(|character: char| !character.is_alphanumeric()).to_lowercase();
                if joins && synonyms.is_action(&term(&word)) {
                    reader.begin();
                }
                let capital = !begins && bare.starts_with(char::is_uppercase);
                reader.add(chunks(piece).map(|chunk| Token { chunk, capital, path: false }));
                joins = matches!(word.as_str(), "and" | "then" | "also" | "finally") || joins && word.is_empty();
            }
            joins |= piece.ends_with(',');
            begins = piece.ends_with(ends_sentence);
            if begins {
                reader.begin();
            }
        }
        reader.intents.retain(|intent| !intent.is_empty());
        reader.intents
    }

    fn begin(&mut self) {
        if self.intents.len() < MAX_INTENTS && self.intents.last().is_some_and(|intent| !intent.is_empty()) {
            self.intents.push(Vec::new());
        }
    }

    fn add(&mut self, tokens: impl Iterator<Item = Token>) {
        let before = self.tokens;
        let Some(intent) = self.intents.last_mut() else { return };
        for token in tokens.take(MAX_TOKENS - before) {
            intent.push(token);
            self.tokens += 1;
        }
    }
}

fn ends_sentence(character: char) -> bool {
    matches!(character, '.' | '?' | '!' | ';' | '。' | '？' | '！' | '；')
}

fn is_path(piece: &str) -> bool {
    let rooted =
        ["/", "~/", "./", "../"].iter().any(|root| piece.strip_prefix(root).is_some_and(|rest| rest.starts_with(char::is_alphanumeric)));
    rooted || piece.contains("://") || piece.contains(":\\") || (piece.contains('/') && format(piece).is_some())
}

/// Returns words about the tool that a path or URL suggests: the tool takes a URL, or a file of this format.
fn path_words(path: &str) -> Vec<String> {
    if path.contains("://") { vec!["url".to_owned()] } else { format(path).into_iter().collect() }
}

/// Returns the extension of a path's file: `md` of `/data/notes.md`.
fn format(path: &str) -> Option<String> {
    let path = path.trim_end_matches(|character: char| !character.is_alphanumeric());
    let (name, format) = path.rsplit(['/', '\\']).next()?.rsplit_once('.')?;
    let plain = format.len() <= MAX_FORMAT_CHARS && format.starts_with(|first: char| first.is_ascii_alphabetic());
    (plain && !name.is_empty() && format.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| format.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(question: &str) -> Vec<String> {
        let word = |token: &Token| token.chunk.parts.join("_");
        intents(question, &Synonyms::default()).iter().map(|intent| intent.iter().map(word).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn sentences_and_actions_begin_intents() {
        assert_eq!(words("Is it cold? Book a room."), ["is it cold", "book a room"]);
        assert_eq!(words("find a file and send it, then delete it"), ["find a file and", "send it then", "delete it"]);
        assert_eq!(words("pros and cons of Rome, Paris and Oslo"), ["pros and cons of rome paris and oslo"]);
        assert_eq!(words("天気は？地図を見せて"), ["天気_気は", "地図_図を_を見_見せ_せて"]);
        assert_eq!(words(&"go. ".repeat(1_000)).len(), MAX_INTENTS);
        assert_eq!(intents(&"go on ".repeat(1_000), &Synonyms::default())[0].len(), MAX_TOKENS);
    }

    #[test]
    fn of_a_path_the_format_stays() {
        assert_eq!(words("read /home/ada/music/exchange.DOCX, please"), ["read docx please"]);
        assert_eq!(words(r"read C:\data\map.csv and ./docs/map.md"), ["read csv and md"]);
        assert_eq!(words("see (https://example.com/map) or src/main.rs."), ["see url or rs"]);
        assert_eq!(words("files in ~/music, and/or tcp/ip"), ["files in and or tcp ip"]);
        assert_eq!(words("/data/map"), ["data map"]);
    }

    #[test]
    fn a_capital_within_a_sentence_is_a_name() {
        let read = intents("Play Baby shark. Then Stop", &Synonyms::default());
        let capitals: Vec<bool> = read.iter().flatten().map(|token| token.capital).collect();
        assert_eq!(capitals, [false, true, false, false, true]);
    }
}
