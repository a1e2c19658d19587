//! Splits texts and names into words. A name gives the words of its parts, and the whole name as one word. All scripts are supported.

use unicode_segmentation::UnicodeSegmentation as _;

use super::stem::stem;

/// Maximum size of a word in the index and in a query. The rest of a longer word is ignored.
const MAX_WORD_BYTES: usize = 64;
/// Maximum number of parts in one chunk.
const MAX_PARTS: usize = 64;
/// Maximum number of characters in one chunk in a script that is written without spaces.
const MAX_DENSE_CHARS: usize = 1_000;

/// A sequence of characters without spaces, which is a word or a name of several words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Parts in lower case, not stemmed. For example, `getForecast` and `get-forecast` have the parts `get` and `forecast`. In a script
    /// without spaces, the parts are pairs of characters.
    pub parts: Vec<String>,
    /// All parts as one word, for example `getforecast`. `None` if there is only one part.
    pub whole: Option<String>,
    /// True if only capitals or digits separate the parts. Such a name (`GitHub`) should mainly count as one word, but `get_forecast` as
    /// two.
    pub humps: bool,
}

impl Chunk {
    /// Returns the chunk of a lower-case word that is not split.
    pub fn of_word(word: String) -> Self {
        Self { parts: vec![word], ..Self::default() }
    }
}

/// Returns the chunks of a text in order.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = Chunk> {
    runs(text).flat_map(chunks_of_run).filter(|chunk| !chunk.parts.is_empty())
}

/// A piece of a text that is separated by spaces and punctuation.
pub(super) enum Piece<'t> {
    /// A word that only consists of the letters a to z. It needs no further splitting. Most words of texts are of this kind.
    Word(&'t str),
    Run(&'t str),
}

/// Returns the pieces of a text in order.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let plain = |run: &str| run.bytes().all(|byte| byte.is_ascii_lowercase());
    runs(text).map(move |run| if plain(run) { Piece::Word(run) } else { Piece::Run(run) })
}

/// Returns a name as one chunk. Any characters may separate its parts.
pub(super) fn name_chunk(name: &str) -> Chunk {
    let mut merged = Chunk::default();
    let mut whole = String::new();
    for chunk in chunks(name) {
        if whole.len() < MAX_WORD_BYTES {
            whole.push_str(chunk.whole.as_ref().unwrap_or(&chunk.parts[0]));
        }
        merged.parts.extend(chunk.parts);
        if merged.parts.len() >= MAX_PARTS {
            break;
        }
    }
    merged.whole = (merged.parts.len() > 1).then_some(whole);
    merged
}

/// Returns the term that the index has for a word.
pub(super) fn term(word: &str) -> String {
    stem(&word[..word.floor_char_boundary(MAX_WORD_BYTES)])
}

/// Returns whether a query contains a word that can be searched for.
///
/// ```
/// use hyperlight_mcp::catalog::has_words;
/// assert!(has_words("list files") && has_words("天気"));
/// assert!(!has_words("") && !has_words(" -- ?! "));
/// ```
#[must_use]
pub fn has_words(query: &str) -> bool {
    first_word(query).is_some()
}

/// Returns the byte offset of the first word.
pub(super) fn first_word(query: &str) -> Option<usize> {
    query.find(char::is_alphanumeric)
}

/// Returns the sequences of characters that may form one word or name. They consist of letters and digits, single `_` or `-` between
/// them, and all characters beyond ASCII except white space. `chunks_of_run` splits them further.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        // A sequence starts at a letter or digit. A query starts in the same way, so both treat a combining mark in the same way.
        rest = &rest[rest.find(char::is_alphanumeric)?..];
        let bytes = rest.as_bytes();
        let joins = |at: usize| matches!(bytes[at], b'_' | b'-') && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
        let end = rest.char_indices().find(|&(at, character)| !is_run_character(character) && !joins(at));
        let (run, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = after;
        Some(run)
    })
}

fn is_run_character(character: char) -> bool {
    if character.is_ascii() { character.is_ascii_alphanumeric() } else { !character.is_whitespace() }
}

pub(super) fn chunks_of_run(run: &str) -> Vec<Chunk> {
    if run.is_ascii() {
        return vec![chunk(run)];
    }
    let mut found = Vec::new();
    let mut rest = run;
    while let Some(first) = rest.chars().next() {
        let dense = is_dense(first);
        let end = rest.find(|character| is_dense(character) != dense).unwrap_or(rest.len());
        let (same, after) = rest.split_at(end);
        if dense {
            found.push(dense_chunk(same));
        } else {
            found.extend(same.unicode_words().map(chunk));
        }
        rest = after;
    }
    found
}

/// Returns whether a character belongs to a script that is treated as written without spaces: Han, kana, hangul, Thai, Lao, Myanmar and
/// Khmer. Korean does have spaces, but the endings of its words are not separated.
pub(super) fn is_dense(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x2_0000..=0x3_FFFF)
}

/// Returns a chunk with each pair of neighbouring characters. In a script without spaces, only a dictionary could find the ends of words.
fn dense_chunk(run: &str) -> Chunk {
    let characters: Vec<char> = run.chars().take(MAX_DENSE_CHARS).collect();
    if characters.len() <= 2 {
        return Chunk { parts: vec![run.to_owned()], ..Chunk::default() };
    }
    let parts = characters.windows(2).map(|pair| pair.iter().collect()).collect();
    Chunk { parts, whole: Some(characters.into_iter().collect()), humps: false }
}

/// Splits a sequence at separators, capitals and digits.
fn chunk(run: &str) -> Chunk {
    let mut parts: Vec<String> = Vec::new();
    let mut humps = true;
    for piece in
        run.split(|character: char| !character.is_alphanumeric() && character.is_ascii()).filter(|piece| !piece.is_empty()).take(MAX_PARTS)
    {
        humps &= parts.is_empty();
        split_humps(piece, &mut parts);
    }
    let whole = (parts.len() > 1).then(|| parts.concat());
    humps &= whole.is_some();
    Chunk { parts, whole, humps }
}

fn split_humps(piece: &str, parts: &mut Vec<String>) {
    // Most pieces have no capitals except the first letter. They need no splitting.
    let rest = piece.as_bytes().get(1..).unwrap_or_default();
    if piece.is_ascii()
        && rest.iter().all(u8::is_ascii_lowercase)
        && !piece.starts_with(|first: char| first.is_ascii_digit() && !rest.is_empty())
    {
        parts.push(piece.to_ascii_lowercase());
        return;
    }
    let mut characters = piece.chars().peekable();
    let mut part = String::with_capacity(16);
    let mut before: Option<char> = None;
    while let Some(character) = characters.next() {
        if before.is_some_and(|before| begins_part(before, character, characters.peek().copied())) {
            parts.push(std::mem::take(&mut part));
            if parts.len() >= MAX_PARTS {
                return;
            }
        }
        part.extend(character.to_lowercase());
        before = Some(character);
    }
    if !part.is_empty() {
        parts.push(part);
    }
}

/// Returns whether a new part begins at a character, as in `getForecast`, `HTTPServer` or `ec2`.
fn begins_part(before: char, character: char, after: Option<char>) -> bool {
    let hump = character.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && after.is_some_and(char::is_lowercase)));
    hump || (before.is_numeric() != character.is_numeric() && before.is_alphanumeric() && character.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        chunks(text).flat_map(|chunk| chunk.parts).collect()
    }

    #[test]
    fn names_split_at_humps_separators_and_digits() {
        assert_eq!(parts("getForecast"), ["get", "forecast"]);
        assert_eq!(parts("HTTPServerStatus"), ["http", "server", "status"]);
        assert_eq!(parts("list_pull-requests"), ["list", "pull", "requests"]);
        assert_eq!(parts("issues.list/all"), ["issues", "list", "all"]);
        assert_eq!(parts("s3_put_object2"), ["s", "3", "put", "object", "2"]);
    }

    #[test]
    fn a_name_is_one_chunk_with_its_whole() {
        for name in ["getForecast", "get_forecast", "get-forecast", "get.forecast", "get forecast", "GET__FORECAST"] {
            let chunk = name_chunk(name);
            assert_eq!((chunk.parts.join(" ").as_str(), chunk.whole.as_deref()), ("get forecast", Some("getforecast")), "{name}");
        }
        assert_eq!(name_chunk("echo").whole, None);
    }

    #[test]
    fn only_case_and_digits_make_humps() {
        let humps: Vec<bool> = chunks("GitHub get_file s3 word").map(|chunk| chunk.humps).collect();
        assert_eq!(humps, [true, false, true, false]);
    }

    #[test]
    fn other_scripts_have_words_too() {
        assert_eq!(parts("Größe ändern, Файлы"), ["größe", "ändern", "файлы"]);
        assert_eq!(parts("हिन्दी में"), ["हिन्दी", "में"]);
        assert_eq!(parts("東京の天気"), ["東京", "京の", "の天", "天気"]);
        assert_eq!(parts("読むfile"), ["読む", "file"]);
        assert_eq!(parts("猫"), ["猫"]);
        assert_eq!(parts("🉀ෲ"), ["ෲ"]);
        assert_eq!(parts("—“”…🎉"), Vec::<String>::new());
    }

    #[test]
    fn long_words_are_cut_and_endless_names_end() {
        assert_eq!(term(&"xy".repeat(1_000_000)).len(), MAX_WORD_BYTES);
        assert!(term(&"ß".repeat(1_000)).len() <= MAX_WORD_BYTES);
        assert!(name_chunk(&"aB".repeat(100_000)).parts.len() <= 2 * MAX_PARTS);
        assert!(name_chunk(&"a_".repeat(100_000)).parts.len() <= 2 * MAX_PARTS);
        assert!(chunks(&"天".repeat(100_000)).all(|chunk| chunk.parts.len() <= MAX_DENSE_CHARS));
    }

    #[test]
    fn a_query_without_a_letter_or_digit_has_no_words() {
        assert!(!has_words("") && !has_words(" \t—?!_-"));
        assert!(has_words("?a") && has_words("7") && has_words("天"));
    }
}
