//! What single values of a config must be like. Each rule says why a value breaks it, without showing the value.

use super::template::{Part, Template};
use crate::nearest::nearest;

type Verdict = Result<(), &'static str>;

const MAX_NAME_CHARS: usize = 64;
const RESERVED_NAMES: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];
const URL_STARTS: [&str; 2] = ["https://", "http://"];

pub(super) fn check_server_name(name: &str) -> Verdict {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|first| first.is_ascii_lowercase());
    let rest = characters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '-');
    if !first || !rest || name.len() > MAX_NAME_CHARS {
        return Err("a server's name must match ^[a-z][a-z0-9-]*$ and have at most 64 characters");
    }
    if RESERVED_NAMES.contains(&name) { Err("this name is reserved") } else { Ok(()) }
}

pub(super) fn check_variable_name(name: &str) -> Verdict {
    if name.is_empty() {
        return Err("the name of an environment variable is empty");
    }
    if name.contains(['=', '\0']) { Err("the name of an environment variable can have no \"=\" and no NUL character") } else { Ok(()) }
}

pub(super) fn check_no_nul(text: &str) -> Verdict {
    if text.contains('\0') { Err("has a NUL character, which no program can be given") } else { Ok(()) }
}

/// RFC 9110's `token`.
pub(super) fn check_header_name(name: &str) -> Verdict {
    let is_token = |next: u8| next.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&next);
    if name.is_empty() || !name.bytes().all(is_token) { Err("is no name of a header: letters, digits and \"-\" are") } else { Ok(()) }
}

/// A line end would start a header of its own.
pub(super) fn check_header_value(value: &str) -> Verdict {
    let forbidden = |next: char| next.is_control() && next != '\t';
    if value.contains(forbidden) { Err("has a line end or another control character, which no header can have") } else { Ok(()) }
}

/// RFC 6749's `scope-token`.
pub(super) fn check_scope(scope: &str) -> Verdict {
    let fits = |next: char| matches!(next, '!' | '#'..='[' | ']'..='~');
    if scope.is_empty() || !scope.chars().all(fits) { Err("is no scope: one word a scope, without quotes and backslashes") } else { Ok(()) }
}

/// SEP-991: it is fetched by others, and is a name.
pub(super) fn check_client_metadata_url(url: &str) -> Verdict {
    check_url(url)?;
    let rest = strip_start(url, "https://").ok_or("must start with https://")?;
    match rest.split_once('/') {
        Some((_, path)) if !path.is_empty() => Ok(()),
        _ => Err("must have a path: it names one document"),
    }
}

/// RFC 8414: a URL without query and fragment. An approval shows and covers what is written, so nothing in it is replaced.
pub(super) fn check_issuer(issuer: &str) -> Verdict {
    if issuer.contains("${") {
        return Err("must be written out: an approval covers this very authorization server");
    }
    check_url(issuer)?;
    if issuer.contains(['?', '#', '@', '\\']) || !issuer.is_ascii() {
        return Err("must be a URL without user, query and fragment, as the authorization server's own metadata has it");
    }
    url::Url::parse(issuer).map(drop).map_err(|_| "is no URL")
}

/// Of a URL with nothing left to replace.
pub(super) fn check_url(url: &str) -> Verdict {
    let after = URL_STARTS.iter().find_map(|start| strip_start(url, start));
    let host = after.ok_or("must start with http:// or https://")?;
    if host.is_empty() || host.starts_with(['/', '?', '#']) {
        return Err("names no host");
    }
    check_url_characters(url)
}

/// Of a URL as the config writes it: as far as its placeholders let it be seen.
pub(super) fn check_url_template(template: &Template) -> Verdict {
    let parts = template.parts();
    for part in parts {
        if let Part::Literal(text) = part {
            check_url_characters(text)?;
        }
    }
    match parts {
        [] => check_url(""),
        [Part::Literal(text)] => check_url(text),
        [Part::Placeholder { .. }, ..] => Ok(()),
        [Part::Literal(text), ..] => {
            let fits = |start: &str| strip_start(text, start).is_some() || strip_start(start, text).is_some();
            if URL_STARTS.iter().any(|start| fits(start)) { Ok(()) } else { Err("must start with http:// or https://") }
        }
    }
}

fn check_url_characters(text: &str) -> Verdict {
    if text.contains(|next: char| next.is_whitespace() || next.is_control()) {
        return Err("has a blank or a control character; write blanks as %20");
    }
    Ok(())
}

/// Schemes ignore case.
fn strip_start<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(start.len())?;
    head.eq_ignore_ascii_case(start).then_some(rest)
}

/// What is said of a key that nobody reads, with the one that was probably meant.
pub(super) fn unknown_key<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(key, known).map_or_else(|| "unknown, ignored".to_owned(), |meant| format!("unknown, ignored: did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_can_be_taken_for_nothing_else() {
        for name in ["a", "a-1", "weather", &"a".repeat(64)] {
            assert!(check_server_name(name).is_ok(), "{name}");
        }
        for name in ["A", "1a", "a_b", "", "-a", "mcp", "fs-read", "gateway", "ha:x", "host:x", "é", &"a".repeat(65)] {
            assert!(check_server_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_url_is_http_with_a_host_and_without_blanks() {
        for url in ["http://localhost:1/mcp", "HTTPS://example.com", "https://[::1]/x?y#z"] {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for url in ["", "ftp://x", "https://", "https:///x", "https://a b", "https://a\nb", "example.com", "file:///etc/passwd", "é"] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_url_with_placeholders_is_checked_as_far_as_it_can_be_seen() {
        let check = |text| check_url_template(&Template::parse(text).unwrap());
        for url in ["${BASE}/mcp", "https://${HOST}/mcp", "http${S}://x", "https://x/${input:id}"] {
            assert!(check(url).is_ok(), "{url}");
        }
        for url in ["ftp://${HOST}", "x${HOST}", "https://x y/${HOST}", "${BASE}/a b"] {
            assert!(check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn headers_cannot_be_broken_out_of() {
        assert!(check_header_name("X-Api.Key_1").is_ok());
        for name in ["", "a b", "a:b", "a\n", "é"] {
            assert!(check_header_name(name).is_err(), "{name:?}");
        }
        assert!(check_header_value("Bearer é\tx").is_ok());
        for value in ["a\r\nb: c", "a\nb", "a\0"] {
            assert!(check_header_value(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_scope_is_one_word() {
        for scope in ["read", "repo:status", "https://example.com/scope", "!"] {
            assert!(check_scope(scope).is_ok(), "{scope}");
        }
        for scope in ["", "a b", "a\"", "a\\", "é", "a\n"] {
            assert!(check_scope(scope).is_err(), "{scope:?}");
        }
    }

    #[test]
    fn a_clients_document_is_on_https_and_has_a_path() {
        assert!(check_client_metadata_url("https://example.com/client.json").is_ok());
        for url in ["http://example.com/client.json", "https://example.com", "https://example.com/", "client.json", ""] {
            assert!(check_client_metadata_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn an_issuer_is_a_bare_url_that_is_written_out() {
        for issuer in ["https://auth.example.com", "https://auth.example.com/tenant/", "http://127.0.0.1:4000"] {
            assert!(check_issuer(issuer).is_ok(), "{issuer}");
        }
        for issuer in [
            "",
            "auth.example.com",
            "https://",
            "https://a b",
            "https://a?b",
            "https://a#b",
            "https://me@a",
            "https://a\\@b",
            "https://ä.example",
            "https://${HOST}",
            "https://a:x",
        ] {
            assert!(check_issuer(issuer).is_err(), "{issuer}");
        }
    }

    #[test]
    fn a_variables_name_is_one_that_a_program_can_be_given() {
        assert!(check_variable_name("npm_config_x.y").is_ok());
        for name in ["", "A=B", "A\0"] {
            assert!(check_variable_name(name).is_err(), "{name:?}");
        }
        assert!(check_no_nul("a\0b").is_err() && check_no_nul("ab").is_ok());
    }
}
