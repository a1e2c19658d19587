//! The URLs of a prompt, and of any text of a page.

use std::collections::HashSet;

use url::Url;

/// Characters that end a URL in a text, besides whitespace and control characters.
const ENDS: [char; 20] = ['<', '>', '"', '`', '\\', '|', '^', '“', '”', '。', '、', '「', '」', '（', '）', '，', '；', '！', '《', '》'];
/// Characters that are not part of a URL if they are at its end, because they belong to the sentence around the URL.
const TRAILING: [char; 11] = ['.', ',', ';', ':', '!', '?', '\'', '’', '*', '_', '~'];
/// The longest URL that is looked at, in bytes.
const MAX_URL_BYTES: usize = 2_000;

/// Returns the `http:` and `https:` URLs of a text, in its order and each once, without fragments.
///
/// A URL ends where Markdown, brackets or the sentence's punctuation end it.
///
/// ```
/// use hyperlight_mcp::boot::urls_in;
/// let urls = urls_in("Read [the docs](https://docs.example.com/api) and **https://example.com/a_(b)**, please.");
/// let texts: Vec<_> = urls.iter().map(AsRef::as_ref).collect();
/// assert_eq!(texts, ["https://docs.example.com/api", "https://example.com/a_(b)"]);
/// ```
#[must_use]
pub fn urls_in(text: &str) -> Vec<Url> {
    let (mut urls, mut known, mut from) = (Vec::new(), HashSet::new(), 0);
    while let Some(start) = text[from..].find("://").map(|at| at + from) {
        let after = start + "://".len();
        from = after;
        let Some(scheme) = scheme_before(&text[..start]) else { continue };
        let length = url_length(&text[after..]);
        let begin = start - scheme;
        from = after + length;
        if length == 0 || from - begin > MAX_URL_BYTES {
            continue;
        }
        let Ok(mut url) = Url::parse(&text[begin..from]) else { continue };
        url.set_fragment(None);
        if url.has_host() && known.insert(url.clone()) {
            urls.push(url);
        }
    }
    urls
}

/// Returns a URL in the form in which it is shown and logged: without user name, password, query and fragment, because these may be secrets.
#[must_use]
pub fn shown_url(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // These calls fail only for URLs without a host, and such URLs have no user.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.into()
}

/// Returns whether a URL has a user name or a password. Such a URL contains a credential, or looks like the URL of another host.
pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Returns the number of bytes of `http` or `https` at the end of a text, unless it is the end of a longer word.
fn scheme_before(text: &str) -> Option<usize> {
    let ends_with = |scheme: &str| {
        text.len().checked_sub(scheme.len()).and_then(|at| text.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(scheme))
    };
    let scheme = ["https", "http"].into_iter().find(|scheme| ends_with(scheme))?;
    let before = text[..text.len() - scheme.len()].chars().next_back();
    let in_word = before.is_some_and(|before| before.is_ascii_alphanumeric() || matches!(before, '+' | '.' | '-'));
    (!in_word).then_some(scheme.len())
}

/// Returns the number of bytes in a URL after its scheme.
fn url_length(text: &str) -> usize {
    let mut open = Vec::new();
    let mut end = text.len();
    for (at, character) in text.char_indices() {
        let closes = match character {
            '(' | '[' | '{' => {
                open.push(character);
                false
            }
            ')' => open.pop_if(|opened| *opened == '(').is_none(),
            ']' => open.pop_if(|opened| *opened == '[').is_none(),
            '}' => open.pop_if(|opened| *opened == '{').is_none(),
            // In a list of URLs without spaces, this character ends a URL if another URL follows.
            ',' | ';' => {
                let next = text.as_bytes().get(at + 1..).unwrap_or_default();
                next.get(..4).is_some_and(|next| next.eq_ignore_ascii_case(b"http"))
            }
            _ => character.is_whitespace() || character.is_control() || ENDS.contains(&character),
        };
        if closes || at > MAX_URL_BYTES {
            end = at;
            break;
        }
    }
    text[..end].trim_end_matches(TRAILING).len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        urls_in(text).into_iter().map(String::from).collect()
    }

    #[test]
    fn urls_are_found_in_order_and_once() {
        let found = texts("See https://b.example/x, http://a.example and https://b.example/x#part again.");
        assert_eq!(found, ["https://b.example/x", "http://a.example/"]);
    }

    #[test]
    fn punctuation_markdown_and_brackets_end_a_url() {
        for (text, url) in [
            ("(https://a.example/x)", "https://a.example/x"),
            ("<https://a.example/x>", "https://a.example/x"),
            ("[docs](https://a.example/x).", "https://a.example/x"),
            ("[docs](https://a.example/x \"title\")", "https://a.example/x"),
            ("`https://a.example/x`", "https://a.example/x"),
            ("**https://a.example/x**", "https://a.example/x"),
            ("\"url\":\"https://a.example/x\",", "https://a.example/x"),
            ("is it https://a.example/x?", "https://a.example/x"),
            ("https://a.example/wiki/A_(b)", "https://a.example/wiki/A_(b)"),
            ("https://a.example/x?q=1&r=[2]!", "https://a.example/x?q=1&r=[2]"),
            ("https://a.example/v1/{id}/y", "https://a.example/v1/%7Bid%7D/y"),
            ("HTTPS://A.EXAMPLE/x", "https://a.example/x"),
            ("见https://a.example/x。", "https://a.example/x"),
            ("（https://a.example）", "https://a.example/"),
        ] {
            assert_eq!(texts(text), [url], "{text}");
        }
        assert_eq!(texts("https://a.example,https://b.example"), ["https://a.example/", "https://b.example/"]);
    }

    #[test]
    fn other_schemes_and_halves_of_words_are_no_urls() {
        for text in
            ["ftp://a.example", "file:///etc/passwd", "xhttp://a.example", "git+https://a.example", "https://", "http:// a", "://", ""]
        {
            assert_eq!(texts(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_may_be_secret_in_a_url_is_not_shown() {
        let url = Url::parse("https://ada:secret@a.example/x?key=secret#secret").unwrap();
        assert_eq!(shown_url(&url), "https://a.example/x");
        assert!(has_user(&url) && !has_user(&Url::parse("https://a.example").unwrap()));
    }

    proptest! {
        #[test]
        fn any_text_is_searched(text in "\\PC{0,200}") {
            for url in urls_in(&text) {
                prop_assert!(matches!(url.scheme(), "http" | "https") && url.fragment().is_none());
            }
        }

        #[test]
        fn a_url_is_found_between_any_words(before in "[a-z ]{0,20}", path in "[a-z0-9/]{0,20}", after in "[ ,.;]{0,3}( [a-z ]{0,10})?") {
            let url = format!("https://a.example/{path}");
            prop_assert_eq!(texts(&format!("{before} {url}{after}")), vec![url]);
        }
    }
}
