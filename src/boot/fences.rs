//! Finds the fenced blocks of a text in Markdown: of pages, and of a model's answers.

/// A block of code in Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence<'a> {
    /// The word after the opening backticks or tildes, in lower case.
    pub(super) language: String,
    pub(super) content: &'a str,
    /// The block with the lines that open and close it.
    pub(super) whole: &'a str,
    /// False if the text ends within the block.
    pub(super) is_closed: bool,
}

/// A block whose end was not found yet.
struct Open {
    mark: char,
    /// The number of backticks or tildes that open the block.
    length: usize,
    language: String,
    /// The positions of the opening backticks or tildes, and of the content.
    start: usize,
    content: usize,
}

/// Returns the fenced blocks of a text, in its order.
pub(super) fn fences(text: &str) -> Vec<Fence<'_>> {
    let (mut found, mut open, mut at) = (Vec::new(), None::<Open>, 0);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim();
        let Some(mark) = trimmed.chars().next().filter(|mark| matches!(mark, '`' | '~')) else { continue };
        let length = trimmed.chars().take_while(|character| *character == mark).count();
        let label = &trimmed[length..];
        if length < 3 {
            continue;
        }
        open = match open {
            None if !label.contains(mark) => Some(Open { mark, length, language: word(label), start, content: at }),
            Some(open) if open.mark == mark && length >= open.length && label.is_empty() => {
                let (content, whole) = (&text[open.content..start], &text[open.start..at]);
                found.push(Fence { language: open.language, content, whole, is_closed: true });
                None
            }
            other => other,
        };
    }
    if let Some(Open { language, start, content, .. }) = open {
        found.push(Fence { language, content: &text[content..], whole: &text[start..], is_closed: false });
    }
    found
}

fn word(label: &str) -> String {
    label.trim().split(|next: char| next.is_whitespace() || matches!(next, '{' | ',' | ':')).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_ends_with_its_own_marks() {
        let text = "Text\n~~~json title=x\n```\n{}\n~~~\n````\n```\n````\n```js\nopen";
        let found: Vec<_> = fences(text).into_iter().map(|fence| (fence.language, fence.content, fence.whole, fence.is_closed)).collect();
        let expected = [
            ("json".to_owned(), "```\n{}\n", "~~~json title=x\n```\n{}\n~~~\n", true),
            (String::new(), "```\n", "````\n```\n````\n", true),
            ("js".to_owned(), "open", "```js\nopen", false),
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(\\{|```|\n| |json|~~~|x){0,60}") {
            for fence in fences(&text) {
                prop_assert!(text.contains(fence.whole) && fence.whole.contains(fence.content));
            }
        }
    }
}
