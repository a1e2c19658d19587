//! Sanitises a server's text for a model or a person. The result has no invisible characters and no terminal control sequences. Nothing else is
//! changed, so a pattern such as `**/*.ts` stays the same. Code that writes a text into a comment or between backticks escapes it there
//! (`catalog/declarations/text.rs`, `catalog/system_message.rs`).
//!
//! Every function here is pure, reads its text once and is idempotent. The output has no ESC and no C1 character, so that the remaining
//! characters cannot form a new escape sequence.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value as Json};
use unicode_segmentation::UnicodeSegmentation as _;

/// Maximum depth of a schema. Deeper parts are replaced. `serde_json` has a limit of 128.
pub(crate) const MAX_LEVELS: usize = 64;
/// The shortest length to which a key is cut. It leaves space for a number that distinguishes two equal keys.
const MIN_KEY_CHARS: usize = 32;
const ELLIPSIS: char = '…';

/// The kinds of invisible characters in a text.
// These are five independent findings, not one state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// ANSI escape sequences, 7-bit or 8-bit.
    pub escapes: bool,
    /// Other control characters.
    pub controls: bool,
    /// Characters that change the display order of other characters.
    pub directions: bool,
    /// Zero-width characters, fillers and variation selectors that no script or emoji needs at their position.
    pub zero_width: bool,
    /// Tag characters, which are an invisible copy of ASCII.
    pub tags: bool,
}

/// Removes invisible characters and terminal control sequences, and cuts the text to `max_chars`.
///
/// Line breaks of every kind become `\n`; `\n` and tabs stay.
///
/// ```
/// use hyperlight_mcp::text::sanitise_text;
///
/// assert_eq!(sanitise_text("a\u{1b}[31mred\u{1b}[0m\r\nline", 100), "ared\nline");
/// assert_eq!(sanitise_text("all of \u{200b}`**/*.ts`", 100), "all of `**/*.ts`");
/// assert_eq!(sanitise_text("a long sentence", 7), "a long…");
/// ```
#[must_use]
pub fn sanitise_text(text: &str, max_chars: usize) -> String {
    cut(clean(text, SanitiseMode::Text), max_chars)
}

/// Removes invisible characters and terminal control sequences, and cuts nothing.
pub(crate) fn visible(text: &str) -> String {
    clean(text, SanitiseMode::Text)
}

/// Escapes the ends of comments: `*/` becomes `*\/`. In a string of JavaScript both are the same text, so a pattern that a model copies from a
/// comment keeps its meaning.
///
/// ```
/// assert_eq!(hyperlight_mcp::text::escape_comment_end("finds **/*.ts, */"), "finds **\\/*.ts, *\\/");
/// ```
#[must_use]
pub fn escape_comment_end(text: &str) -> String {
    text.replace("*/", "*\\/")
}

/// Sanitises a text like [`sanitise_text`] and puts it in one line, for names and titles. Consecutive line breaks and tabs become one
/// space.
///
/// ```
/// use hyperlight_mcp::text::sanitise_line;
///
/// assert_eq!(sanitise_line("get\n\tforecast\u{202e}", 100), "get forecast");
/// ```
#[must_use]
pub fn sanitise_line(text: &str, max_chars: usize) -> String {
    cut(clean(text, SanitiseMode::Line), max_chars)
}

/// Sanitises every string and every key of a value. A part deeper than 64 levels becomes `true`, the schema that accepts everything.
///
/// If two keys become equal, one of them gets a number. A key that needed no change always keeps its name. Keys are cut to `max_chars`, but
/// never below 32 characters.
///
/// ```
/// use hyperlight_mcp::text::sanitise_json;
/// use serde_json::json;
///
/// let schema = json!({ "pa\u{200b}th": 1, "path": { "description": "x\u{7}y" } });
/// assert_eq!(sanitise_json(&schema, 100), json!({ "path_2": 1, "path": { "description": "xy" } }));
/// ```
#[must_use]
pub fn sanitise_json(value: &Json, max_chars: usize) -> Json {
    sanitise_level(value, max_chars, 0)
}

/// Returns whether a text has characters that a reader cannot see and that no script or emoji needs.
///
/// ```
/// use hyperlight_mcp::text::has_invisible;
///
/// assert!(has_invisible("ign\u{200b}ore"));
/// assert!(!has_invisible("a family: 👨\u{200d}👩\u{200d}👧, a heart: ❤\u{fe0f}"));
/// ```
#[must_use]
pub fn has_invisible(text: &str) -> bool {
    hidden(text) != Hidden::default()
}

/// Returns the kinds of invisible characters in a text. Characters that an emoji or a script needs are not counted.
#[must_use]
pub fn hidden(text: &str) -> Hidden {
    let mut found = Hidden::default();
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r')) {
        return found;
    }
    let mut before = '\n';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or('\n');
        match character {
            '\u{1b}' | '\u{9b}' | '\u{9d}' | '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => found.escapes = true,
            '\n' | '\t' | '\r' | '\u{85}' => {}
            _ if character.is_control() => found.controls = true,
            _ if is_direction(character) => found.directions = true,
            _ if is_tag(character) => found.tags = true,
            _ if is_invisible(character) => found.zero_width |= !is_needed(before, character, next),
            _ if is_stray_jamo(before, character) => found.zero_width = true,
            _ => {}
        }
        before = character;
    }
    found
}

/// Returns whether an invisible character is used properly: it joins emoji or letters, or selects a variant of the character before it.
fn is_needed(before: char, character: char, next: char) -> bool {
    match character {
        '\u{fe0e}' | '\u{fe0f}' => is_pictograph(before) || next == '\u{20e3}',
        '\u{200d}' => (is_pictograph(before) || before == '\u{fe0f}') && is_pictograph(next) || is_joining_letter(before),
        '\u{200c}' => is_joining_letter(before) && is_joining_letter(next),
        _ => false,
    }
}

fn is_pictograph(character: char) -> bool {
    matches!(character, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}') && !is_invisible(character)
}

/// Returns whether a character is a letter of Arabic, Syriac or an Indic script. The letters of these scripts join.
fn is_joining_letter(character: char) -> bool {
    matches!(character, '\u{620}'..='\u{74f}' | '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

/// Returns whether a character is a mark, an embedding, an override or an isolate of the bidirectional algorithm.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

pub(crate) fn is_tag(character: char) -> bool {
    matches!(character, '\u{e0000}'..='\u{e007f}')
}

/// Returns whether a character is a zero-width character, a filler, a blank, an annotation, a sign without a form of its own (in hieroglyphs and
/// music), or a variation selector.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{ad}' | '\u{34f}'
        | '\u{180b}'..='\u{180f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{13441}' | '\u{13442}' | '\u{16fe4}' | '\u{1d159}' | '\u{fe00}'..='\u{fe0f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0080}'..='\u{e0fff}')
}

/// Returns whether a character is a vowel or a final consonant of Hangul without the letter that it belongs to. Such a character has no width
/// and is mostly drawn as nothing. After its letter it is a part of a visible syllable, so decomposed Hangul stays as it is. Syllables that are
/// one character are not concerned.
pub(crate) fn is_stray_jamo(before: char, character: char) -> bool {
    match character {
        '\u{1161}'..='\u{11a7}' | '\u{d7b0}'..='\u{d7c6}' => !matches!(before, '\u{1100}'..='\u{115e}' | '\u{a960}'..='\u{a97c}'),
        '\u{11a8}'..='\u{11ff}' | '\u{d7cb}'..='\u{d7fb}' => !ends_in_vowel(before),
        _ => false,
    }
}

/// Returns whether a character is a vowel of Hangul, or a syllable without a final consonant.
fn ends_in_vowel(character: char) -> bool {
    match character {
        '\u{1161}'..='\u{11a7}' | '\u{d7b0}'..='\u{d7c6}' => true,
        '\u{ac00}'..='\u{d7a3}' => (u32::from(character) - 0xac00).is_multiple_of(28),
        _ => false,
    }
}

/// Returns whether a character is invisible, looks like a blank although it is a letter or a symbol, or changes the order of others. Some
/// scripts and emoji need these characters.
pub(crate) fn is_unseen(character: char) -> bool {
    is_direction(character) || is_tag(character) || is_invisible(character) || matches!(character, '\u{2028}' | '\u{2029}' | '\u{2800}')
}

/// Selects the changes that are made to a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SanitiseMode {
    /// Only removes invisible characters.
    Text,
    /// Also replaces line breaks by spaces.
    Line,
}

/// Sanitises a text in one pass.
fn clean(text: &str, manner: SanitiseMode) -> String {
    // Most texts are plain, and need no look at each character.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') || manner == SanitiseMode::Text && matches!(byte, b'\n' | b'\t')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut broke = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(mut visible) = next_visible(character, &mut characters) else { continue };
        // The letter before it is the one that stays, so that a second pass changes nothing.
        if is_stray_jamo(out.chars().next_back().unwrap_or('\n'), visible) {
            continue;
        }
        let breaks = manner == SanitiseMode::Line && matches!(visible, '\n' | '\t');
        if breaks {
            if broke {
                continue;
            }
            visible = ' ';
        }
        broke = breaks;
        out.push(visible);
    }
    out
}

/// Returns the visible form of a character, or `None` if it has none. If the character begins an escape sequence, skips the sequence.
fn next_visible(character: char, rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    match character {
        '\u{1b}' => {
            skip_escape(rest);
            None
        }
        '\u{9b}' => {
            skip_control_sequence(rest);
            None
        }
        '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => {
            skip_control_string(rest);
            None
        }
        '\r' => {
            // `\r\n` is a single line break, which the following `\n` produces.
            if rest.peek() == Some(&'\n') { None } else { Some('\n') }
        }
        '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        '\n' | '\t' => Some(character),
        _ if character.is_control() || is_direction(character) || is_invisible(character) || is_tag(character) => None,
        _ => Some(character),
    }
}

/// Skips a sequence after ESC. Characters that do not belong to the sequence stay as text.
fn skip_escape(rest: &mut Peekable<Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control_sequence(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_control_string(rest);
        }
        _ => {
            while rest.next_if(|next| matches!(next, ' '..='/')).is_some() {}
            rest.next_if(|next| matches!(next, '0'..='~'));
        }
    }
}

/// Skips the rest of a sequence that begins with CSI: its parameters, its intermediates and one final character.
fn skip_control_sequence(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|next| matches!(next, '0'..='?')).is_some() {}
    while rest.next_if(|next| matches!(next, ' '..='/')).is_some() {}
    rest.next_if(|next| matches!(next, '@'..='~'));
}

/// Skips a string after OSC, DCS, APC, PM or SOS, up to its terminator or the end of the line, whichever comes first. If only a terminator
/// ended it, an unterminated string would remove the rest of the text.
fn skip_control_string(rest: &mut Peekable<Chars<'_>>) {
    let ends = |next: &char| {
        matches!(next, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{1b}' | '\n' | '\r' | '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}')
    };
    while rest.next_if(|next| !ends(next)).is_some() {}
    // An ESC stays for the caller. `ESC \` ends the string, and any other ESC begins a sequence. The caller removes both as one sequence.
    rest.next_if(|next| matches!(next, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{9c}'));
}

/// Cuts a text between graphemes. The ellipsis counts towards the limit.
fn cut(mut text: String, max_chars: usize) -> String {
    if text.len() <= max_chars || text.chars().nth(max_chars).is_none() {
        return text;
    }
    if max_chars == 0 {
        return String::new();
    }
    let (mut end, mut count) = (0, 0);
    for grapheme in text.graphemes(true) {
        count += grapheme.chars().count();
        if count >= max_chars {
            break;
        }
        end += grapheme.len();
    }
    text.truncate(end);
    text.truncate(text.trim_end().len());
    text.push(ELLIPSIS);
    text
}

fn sanitise_level(value: &Json, max_chars: usize, level: usize) -> Json {
    match value {
        Json::String(text) => Json::String(sanitise_text(text, max_chars)),
        Json::Array(_) | Json::Object(_) if level >= MAX_LEVELS => Json::Bool(true),
        Json::Array(items) => Json::Array(items.iter().map(|item| sanitise_level(item, max_chars, level + 1)).collect()),
        Json::Object(object) => {
            let keys = sanitise_keys(object, max_chars.max(MIN_KEY_CHARS));
            let values = object.values().map(|item| sanitise_level(item, max_chars, level + 1));
            Json::Object(keys.into_iter().zip(values).collect())
        }
        _ => value.clone(),
    }
}

/// Returns the sanitised keys in their order. All of them are different from each other.
fn sanitise_keys(object: &Map<String, Json>, max_chars: usize) -> Vec<String> {
    let clean: Vec<String> = object.keys().map(|key| sanitise_line(key, max_chars)).collect();
    let mut taken: HashSet<String> =
        object.keys().zip(&clean).filter(|(key, clean)| key == clean).map(|(_, clean)| clean.clone()).collect();
    // The last number used for each key. Without it, many equal keys would each search again from 2.
    let mut counts: HashMap<String, usize> = HashMap::new();
    let unique = |(key, clean): (&String, String)| {
        if *key == clean || taken.insert(clean.clone()) {
            return clean;
        }
        let count = counts.entry(clean.clone()).or_insert(1);
        loop {
            *count += 1;
            let suffix = format!("_{count}");
            let numbered = cut(clean.clone(), max_chars - suffix.len()) + &suffix;
            if taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    };
    object.keys().zip(clean).map(unique).collect()
}

#[cfg(test)]
#[path = "sanitise_tests.rs"]
mod tests;
