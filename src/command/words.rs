//! Splits a command line into words.

/// Maximum size of a command line in bytes.
pub const MAX_LINE_BYTES: usize = 10_000;

/// The words of a command line. White space separates words, except in `'…'`, in `"…"` or after a backslash. `open` is true if no white
/// space follows the last word, so that the last word may be incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub words: Vec<String>,
    pub open: bool,
}

/// Splits a line as a shell does, but without variables, patterns and comments.
///
/// # Errors
/// A sentence that describes the problem: a quote without its end, or a line that is too long.
///
/// ```
/// use hyperlight_mcp::command::split;
/// assert_eq!(split(r#"search "send mail" --limit 3"#).unwrap().words, ["search", "send mail", "--limit", "3"]);
/// assert!(split("info 'weather").is_err());
/// ```
pub fn split(line: &str) -> Result<Words, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("the line has {} bytes; the limit is {MAX_LINE_BYTES} bytes", line.len()));
    }
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            quote @ ('\'' | '"') => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        None => return Err(format!("the quote {quote} does not end")),
                        Some(end) if end == quote => break,
                        Some('\\') if quote == '"' => word.extend(characters.next()),
                        Some(other) => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    let open = word.is_some();
    words.extend(word);
    Ok(Words { words, open })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap().words
    }

    #[test]
    fn white_space_parts_words_and_quotes_and_backslashes_hold_them_together() {
        assert_eq!(words("  a\tb  c "), ["a", "b", "c"]);
        assert_eq!(words(r#"'a b' "c \" d" e\ f ''"#), ["a b", "c \" d", "e f", ""]);
        assert_eq!(words(""), Vec::<String>::new());
        assert!(split("a b").unwrap().open && !split("a b ").unwrap().open);
    }

    #[test]
    fn what_does_not_end_and_what_is_too_long_is_said() {
        assert!(split("a \"b").unwrap_err().contains("does not end"));
        assert!(split(&"a".repeat(MAX_LINE_BYTES + 1)).unwrap_err().contains("10001"));
    }
}
