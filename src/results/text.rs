//! Counts the tokens of texts within JSON, and cuts texts to a number of tokens.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::plain::{is_plain, quoted};
use crate::catalog::estimate_tokens;

/// Length in bytes of the pieces into which a text is divided for counting. Counting can stop after each piece.
const PIECE_BYTES: usize = 512;
/// Number of bytes that are encoded as one piece of base64 text.
const PIECE_OF_BYTES: usize = 384;

/// Returns the number of tokens of a text within JSON, without its quotes. For a long text, the number is approximate. Stops counting soon
/// after the number exceeds `cap`.
pub(super) fn text_tokens(text: &str, cap: usize) -> usize {
    let (mut tokens, mut rest) = (0, text);
    while !rest.is_empty() && tokens <= cap {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        tokens += piece_tokens(piece);
        rest = after;
    }
    tokens
}

/// Returns the number of tokens of bytes that are written as base64 text. Stops counting soon after the number exceeds `cap`.
pub(super) fn byte_tokens(bytes: &[u8], cap: usize) -> usize {
    let mut tokens = 0;
    for piece in bytes.chunks(PIECE_OF_BYTES) {
        tokens += estimate_tokens(&STANDARD.encode(piece));
        if tokens > cap {
            break;
        }
    }
    tokens
}

/// Returns the longest beginning of a text that has at most about `tokens` tokens.
pub(super) fn head(text: &str, tokens: usize) -> &str {
    let (mut end, mut left) = (0, tokens);
    while end < text.len() {
        let next = text.floor_char_boundary(end + PIECE_BYTES);
        let cost = piece_tokens(&text[end..next]);
        if cost > left {
            let within = |length: usize| piece_tokens(&text[end..end + length]) <= left;
            return &text[..end + longest(&text[end..next], within, str::floor_char_boundary)];
        }
        (end, left) = (next, left - cost);
    }
    text
}

/// Returns the longest end of a text that has at most about `tokens` tokens.
pub(super) fn tail(text: &str, tokens: usize) -> &str {
    let (mut start, mut left) = (text.len(), tokens);
    while start > 0 {
        let next = text.ceil_char_boundary(start.saturating_sub(PIECE_BYTES));
        // `next` is smaller than `start`, because a character is never longer than a piece.
        let cost = piece_tokens(&text[next..start]);
        if cost > left {
            let within = |length: usize| piece_tokens(&text[start - length..start]) <= left;
            let from_end = |piece: &str, length: usize| piece.len() - piece.ceil_char_boundary(piece.len() - length);
            return &text[start - longest(&text[next..start], within, from_end)..];
        }
        (start, left) = (next, left - cost);
    }
    text
}

/// Returns the length of a text in UTF-16 units, as the property `length` in JavaScript counts it.
pub(super) fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() }
}

fn piece_tokens(piece: &str) -> usize {
    if is_plain(piece) {
        return estimate_tokens(piece);
    }
    let quoted = quoted(piece);
    estimate_tokens(&quoted[1..quoted.len() - 1])
}

/// Returns the largest number of bytes for which `within` returns true, rounded to a character boundary by `boundary`.
fn longest(piece: &str, within: impl Fn(usize) -> bool, boundary: impl Fn(&str, usize) -> usize) -> usize {
    let (mut fits, mut too_long) = (0, piece.len());
    while fits + 1 < too_long {
        let middle = boundary(piece, usize::midpoint(fits, too_long));
        if middle <= fits {
            break;
        }
        if within(middle) {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_and_an_end_are_within_their_tokens() {
        for text in ["word ".repeat(2_000), "日本語".repeat(900), "a\nb\"c\\".repeat(500), "😀".repeat(700), "x".repeat(3_000)] {
            for tokens in [0, 1, 7, 50, 300] {
                let (head, tail) = (head(&text, tokens), tail(&text, tokens));
                assert!(text.starts_with(head) && text.ends_with(tail));
                assert!(text_tokens(head, usize::MAX) <= tokens && text_tokens(tail, usize::MAX) <= tokens, "{tokens} {text:.20}");
                assert!(
                    tokens < 50 || (head.len() > tokens / 2 && tail.len() > tokens / 2),
                    "{tokens} {text:.20}: {} {}",
                    head.len(),
                    tail.len()
                );
            }
        }
    }

    #[test]
    fn a_text_that_fits_is_its_own_beginning_and_end() {
        assert_eq!((head("a word", 9), tail("a word", 9)), ("a word", "a word"));
        assert_eq!((head("", 0), tail("", 0)), ("", ""));
    }

    #[test]
    fn a_length_is_the_one_that_javascript_says() {
        assert_eq!((length("abc"), length("ß"), length("😀")), (3, 1, 2));
    }

    #[test]
    fn counting_stops_soon_after_its_cap() {
        assert!(text_tokens(&"word ".repeat(1_000_000), 100) < 1_000);
        assert!(byte_tokens(&vec![7; 1_000_000], 100) < 1_000);
    }
}
