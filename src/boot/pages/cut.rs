//! Cuts pages to the size that a model gets: each page to [`MAX_PAGE_CHARS`], and all pages together to [`MAX_CHARS`].

use crate::boot::fences::{Fence, fences};

/// The largest number of characters in one page.
pub const MAX_PAGE_CHARS: usize = 100_000;
/// The largest number of characters in all pages together.
pub const MAX_CHARS: usize = 200_000;
/// A page that is cut keeps up to this number of characters at its beginning, and up to this number at its end.
const END_CHARS: usize = 20_000;
const CUT_MARK: &str = "\n\n[… left out …]\n\n";

/// Cuts texts so that none has more than [`MAX_PAGE_CHARS`] characters and all have at most [`MAX_CHARS`]. Short texts stay whole, and the
/// longer texts share the remaining characters.
///
/// If a text is cut, its beginning and its end are kept first, then its blocks of JSON and YAML in their order. If there is still room,
/// more of the beginning is kept.
#[must_use]
pub fn cut_pages(texts: Vec<String>) -> Vec<String> {
    let lengths: Vec<_> = texts.iter().map(|text| text.chars().count().min(MAX_PAGE_CHARS)).collect();
    let share = share(&lengths);
    texts.into_iter().map(|text| cut_text(text, share.min(MAX_PAGE_CHARS))).collect()
}

/// Cuts one text to [`MAX_PAGE_CHARS`].
pub(super) fn cut_page(text: String) -> String {
    cut_text(text, MAX_PAGE_CHARS)
}

/// Returns the largest number of characters that every text may have, so that all fit.
fn share(lengths: &[usize]) -> usize {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let mut left = MAX_CHARS;
    for (index, length) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index);
        if *length > share {
            return share;
        }
        left -= length;
    }
    MAX_PAGE_CHARS
}

/// Cuts one text to a number of characters. A mark shows where parts are missing.
pub(in crate::boot) fn cut_text(text: String, limit: usize) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text;
    }
    let mark = CUT_MARK.chars().count();
    // The room for one mark after the beginning, and one mark before the end, is subtracted.
    let room = limit.saturating_sub(2 * mark);
    let end_chars = END_CHARS.min(room * 2 / 5);
    let tail_at = byte_at(&text, length - end_chars);
    let mut head_chars = end_chars;
    let (mut blocks, mut left) = (String::new(), room - 2 * end_chars);
    for block in blocks_of(&text[byte_at(&text, end_chars)..tail_at]) {
        let chars = block.chars().count() + 2;
        if chars <= left {
            left -= chars;
            blocks.push_str(block);
            blocks.push_str("\n\n");
        }
    }
    if blocks.is_empty() {
        head_chars += left;
    }
    let head = &text[..byte_at(&text, head_chars)];
    let middle = if blocks.is_empty() { CUT_MARK.to_owned() } else { format!("{CUT_MARK}{}{CUT_MARK}", blocks.trim_end()) };
    format!("{head}{middle}{}", &text[tail_at..])
}

/// Returns the position of a character, or the end.
fn byte_at(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

/// Returns the fenced blocks of JSON and YAML in a text, with their fences.
fn blocks_of(text: &str) -> Vec<&str> {
    let is_data = |fence: &Fence<'_>| match fence.language.as_str() {
        "" => fence.content.trim_start().starts_with(['{', '[']),
        language => ["json", "jsonc", "json5", "yaml", "yml"].contains(&language),
    };
    fences(text).into_iter().filter(|fence| fence.is_closed && is_data(fence)).map(|fence| fence.whole.trim_end()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        let texts = vec!["a".repeat(MAX_PAGE_CHARS), "b".repeat(MAX_PAGE_CHARS)];
        assert_eq!(cut_pages(texts.clone()), texts);
    }

    #[test]
    fn a_long_page_keeps_its_beginning_its_end_and_its_blocks() {
        let filler = "Words of an introduction, and more of them.\n".repeat(3_000);
        let block = "```json\n{\"path\": \"/forecast\"}\n```";
        let other = "~~~yaml\nkey: x\n~~~";
        let text = format!("The beginning\n{filler}\n{block}\n{other}\n```sh\ncurl\n```\n{filler}The end");
        let cut = cut_pages(vec![text]).remove(0);
        assert!(cut.chars().count() <= MAX_PAGE_CHARS);
        assert!(cut.starts_with("The beginning") && cut.ends_with("The end") && cut.contains(block) && cut.contains("left out"));
        assert!(cut.contains(other));
        assert!(!cut.contains("curl"));
    }

    #[test]
    fn a_page_without_blocks_keeps_more_of_its_beginning() {
        let cut = cut_pages(vec!["ä".repeat(MAX_PAGE_CHARS * 2)]).remove(0);
        assert_eq!(cut.chars().count(), MAX_PAGE_CHARS - CUT_MARK.chars().count());
    }

    #[test]
    fn short_pages_stay_whole_beside_long_ones() {
        let cut = cut_pages(vec!["a".repeat(150_000), "short".to_owned(), "b".repeat(150_000), "c".repeat(90_000)]);
        assert_eq!(cut[1], "short");
        assert!(cut.iter().map(|text| text.chars().count()).sum::<usize>() <= MAX_CHARS);
        assert!(cut.iter().all(|text| text.len() < 100_000) && cut[0].len() > 60_000);
    }

    proptest! {
        #[test]
        fn no_limit_is_exceeded(lengths in prop::collection::vec(0_usize..150_000, 1..12)) {
            let cut = cut_pages(lengths.iter().map(|length| "x`\n".repeat(length / 3)).collect());
            prop_assert!(cut.iter().all(|text| text.chars().count() <= MAX_PAGE_CHARS));
            prop_assert!(cut.iter().map(|text| text.chars().count()).sum::<usize>() <= MAX_CHARS);
        }
    }
}
