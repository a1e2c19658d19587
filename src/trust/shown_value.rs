//! Prepares literal values for display to a person. Destinations of traffic and plain values are shown, and values that could be secrets are
//! masked.

use url::Url;

use crate::config::{Part, Template, shown_placeholder, shown_url};
use crate::redact::{is_plain, is_secret, is_secret_name};

/// Authentication schemes, which precede a credential and are not secret.
const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];
/// Words of names whose values may be secrets even if they are short and plain.
const KEY_WORDS: [&str; 5] = ["key", "keys", "pin", "passcode", "pw"];
/// Last words of names whose values are hosts, even if another word of the name belongs to a secret: `AUTH_HOST`.
const HOST_WORDS: [&str; 12] =
    ["addr", "address", "base", "domain", "endpoint", "host", "hostname", "hosts", "origin", "proxy", "server", "servers"];
/// Maximum length of a top-level domain.
const MAX_TOP_LEVEL: usize = 24;
/// Characters that separate the words of a value.
const BORDERS: &[char] = &[' ', '\t', '\n', '\r', ',', ';', '"', '\'', '(', ')', '[', ']', '{', '}', '<', '>', '|'];
const MASKED: &str = "***";

/// The parts of a value that may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openness {
    /// URLs, hosts and plain values. For variables and inputs.
    Plain,
    /// Only URLs. For headers, whose values are usually credentials.
    Urls,
    /// Everything except the user part before a host. For variables that redirect traffic.
    All,
}

/// Returns a value for display, with placeholders by their names. Hides each part of a literal that could be a secret, and never hides a host.
pub(super) fn shown_value(name: &str, value: &str, openness: Openness) -> String {
    let Ok(template) = Template::parse(value) else { return mask(value) };
    let literals: String = template.parts().iter().map(|part| if let Part::Literal(text) = part { text } else { "" }).collect();
    let is_literal = literals.len() == value.len();
    let is_one_word = !literals.contains(BORDERS);
    let shown = match () {
        () if is_one_word && literals.contains("://") => url(name, value, openness),
        () if is_literal => literal(name, value, openness).unwrap_or_else(|| mask(value)),
        () if is_one_word && openness == Openness::All => url(name, value, openness),
        () => template.parts().iter().map(|part| part_of(name, *part, openness)).collect(),
    };
    match origin_to_some(&template).filter(|origin| !shows_origin(&shown, origin)) {
        Some(origin) => format!("{shown} (some programs read {origin})"),
        None => shown,
    }
}

/// Returns whether a shown value is a URL of this origin. The same host elsewhere in the value does not count.
fn shows_origin(shown: &str, origin: &str) -> bool {
    let Some((scheme, rest)) = shown.split_once("://") else { return false };
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    !rest[authority.len()..].starts_with('\\') && format!("{scheme}://{host}").eq_ignore_ascii_case(origin)
}

/// Masks a value. Shows at most its first four characters, and at most a quarter of it.
pub(super) fn mask(value: &str) -> String {
    let shown = (value.chars().count() / 4).min(4);
    format!("{}{MASKED}", value.chars().take(shown).collect::<String>())
}

fn part_of(name: &str, part: Part, openness: Openness) -> String {
    match part {
        Part::Literal(text) if SCHEMES.iter().any(|scheme| text.eq_ignore_ascii_case(scheme)) => text.to_owned(),
        Part::Literal(text) => literal(name, text, openness).unwrap_or_else(|| MASKED.to_owned()),
        Part::Placeholder { source, meaning } => {
            shown_placeholder(source, meaning, &|variable, default| shown_default(name, variable, default, openness))
        }
    }
}

fn shown_default(name: &str, variable: &str, default: &str, openness: Openness) -> String {
    let name = if may_name_a_secret(variable) { variable } else { name };
    literal(name, default, openness).unwrap_or_else(|| MASKED.to_owned())
}

/// Returns the part of a literal that may be shown. `None` if nothing may be shown.
fn literal(name: &str, text: &str, openness: Openness) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    if openness == Openness::Plain && !may_name_a_secret(name) && is_plain(text) && !text.contains("://") {
        return Some(path(name, text));
    }
    if !text.contains(BORDERS) {
        return word(name, text, openness);
    }
    // If a text has several words, only those that name a destination of traffic are shown.
    let mut shown = String::new();
    let mut any = false;
    for part in text.split_inclusive(BORDERS) {
        let end = part.len() - part.chars().next_back().filter(|last| BORDERS.contains(last)).map_or(0, char::len_utf8);
        let (part, border) = part.split_at(end);
        let known = if part.is_empty() { None } else { word(name, part, openness) };
        any |= known.is_some();
        match known {
            Some(known) => shown.push_str(&known),
            None if part.is_empty() || shown.ends_with(MASKED) => {}
            None => shown.push_str(MASKED),
        }
        shown.push_str(border);
    }
    any.then_some(shown)
}

/// Returns one word for display: a URL, a host, or an assignment of one.
fn word(name: &str, text: &str, openness: Openness) -> Option<String> {
    if let Some(end) = text.find("://") {
        let of_scheme = |next: char| next.is_ascii_alphanumeric() || "+-.:".contains(next);
        let start = text[..end].rfind(|next| !of_scheme(next)).map_or(0, |last| last + 1);
        let before = if start == 0 { "" } else { MASKED };
        return text.is_char_boundary(start).then(|| format!("{before}{}", url(name, &text[start..], openness)));
    }
    let names_host = openness != Openness::Urls && (!may_name_a_secret(name) || ends_in_host_word(name));
    let start = text.rfind(['@', '=']).map_or(0, |border| border + 1);
    let (before, rest) = text.split_at(start);
    let host = rest.trim_start_matches('/');
    let authority = host.split(['/', '?', '#']).next().unwrap_or_default();
    if names_host && is_host(authority) {
        let before = if before.is_empty() {
            ""
        } else if before.ends_with('@') {
            "***@"
        } else {
            "***="
        };
        return Some(format!("{before}{}{}", &rest[..rest.len() - host.len()], url(name, host, openness)));
    }
    (openness == Openness::All).then(|| if text.contains('@') { format!("***@{rest}") } else { text.to_owned() })
}

fn url(name: &str, text: &str, openness: Openness) -> String {
    shown_url(text, &|text| path(name, text), &|variable, default| shown_default(name, variable, default, openness))
}

/// Returns a path without the segments that look like secrets.
fn path(name: &str, text: &str) -> String {
    let segment = |part: &str| {
        let end = part.len() - usize::from(part.ends_with(['/', ':', ';']));
        let (segment, border) = part.split_at(end);
        if is_secret(name, segment) { format!("{MASKED}{border}") } else { part.to_owned() }
    };
    text.split_inclusive(['/', ':', ';']).map(segment).collect()
}

/// Returns whether a text is a host with dots or a port, or an IP address. The end of a token with dots does not look like a top-level domain.
fn is_host(text: &str) -> bool {
    if text.starts_with('[') {
        return Url::parse(&format!("http://{text}/")).is_ok();
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let has_port = port.is_some_and(|port| !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_label =
        |label: &str| !label.is_empty() && label.len() <= 63 && label.chars().all(|next| next.is_alphanumeric() || "-_*".contains(next));
    let labels: Vec<&str> = host.trim_end_matches('.').split('.').collect();
    let top = labels.last().copied().unwrap_or_default();
    let is_top = top.len() >= 2
        && top.chars().count() <= MAX_TOP_LEVEL
        && (top.chars().all(char::is_alphabetic) || top.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("xn--")));
    let is_number = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    (port.is_none() || has_port) && labels.iter().all(|label| is_label(label)) && (has_port || is_number || labels.len() > 1 && is_top)
}

fn words_of(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|next: char| !next.is_alphanumeric())
}

fn ends_in_host_word(name: &str) -> bool {
    words_of(name).next_back().is_some_and(|last| HOST_WORDS.iter().any(|known| last.eq_ignore_ascii_case(known)))
}

pub(super) fn may_name_a_secret(name: &str) -> bool {
    is_secret_name(name) || words_of(name).any(|word| KEY_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Returns scheme, host and port of a value that browsers' URL parsers accept as a URL. These parsers accept `http:host` and treat a backslash as a
/// slash.
fn origin_to_some(template: &Template) -> Option<String> {
    let text =
        |mark: &str| -> String { template.parts().iter().map(|part| if let Part::Literal(text) = part { text } else { mark }).collect() };
    let written = text("");
    let mark = (0..=written.len()).map(|number| format!("x{number:08}")).find(|mark| !written.to_lowercase().contains(mark.as_str()))?;
    let url = Url::parse(&text(&mark)).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty() && !host.contains(&mark))?.to_owned();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> String {
        shown_value(name, value, Openness::Plain)
    }

    #[test]
    fn a_mask_shows_at_most_a_quarter_and_four_characters() {
        assert_eq!(mask("sk-live-0123456789"), "sk-l***");
        assert_eq!(mask("12345678"), "12***");
        assert_eq!(mask("abc"), "***");
        assert_eq!(mask("éééééééé"), "éé***");
    }

    #[test]
    fn where_a_key_is_sent_is_shown_and_what_may_be_secret_in_it_is_not() {
        for (value, shown) in [
            ("http://attacker", "http://attacker"),
            ("http://127.0.0.1:4711", "http://127.0.0.1:4711"),
            ("https://ada:hunter2@evil.example/v1?key=hunter2#x", "https://***:***@evil.example/v1?key=***#***"),
            ("postgres://ada:hunter2@evil.example:5432/app", "postgres://***:***@evil.example:5432/app"),
            ("https://hooks.example.com/services/q8Jd0sKx92LmZpQ4vT7wYbRn/x", "https://hooks.example.com/services/***/x"),
            ("https://sk-aaaaaaaaaaaaaaaaaaaa.evil.example/v1", "https://sk-aaaaaaaaaaaaaaaaaaaa.evil.example/v1"),
            ("http://evil.example/${KEY}?k=${KEY:-hunter2}", "http://evil.example/${KEY}?k=${KEY:-***}"),
            ("https://${HOST:-evil.example}/v1", "https://${HOST:-evil.example}/v1"),
            ("${BASE:-http://ada:hunter2@evil.example/v1}", "${BASE:-http://***:***@evil.example/v1}"),
            ("evil.example", "evil.example"),
            ("xk3j9q8w7z5v2b4n6m1p.evil.example:8080/v1", "xk3j9q8w7z5v2b4n6m1p.evil.example:8080/v1"),
            ("//evil.example/v1", "//evil.example/v1"),
            ("--base http://evil.example --pass hunter2hunter2", "*** http://evil.example *** ***"),
            (r#"{"baseUrl":"http://evil.example"}"#, r#"{"***"***"http://evil.example"}"#),
            ("ada:hunter2@tcp(evil.example:3306)/app", "***(evil.example:3306)***"),
            ("http:evil.example", "http*** (some programs read http://evil.example)"),
            ("http://evil.example\\@good.example/", "http://***@good.example/ (some programs read http://evil.example)"),
            (
                "http://evil.example\\@good.example/evil.example",
                "http://***@good.example/evil.example (some programs read http://evil.example)",
            ),
            ("http://evil.example\\@not-evil.example/", "http://***@not-evil.example/ (some programs read http://evil.example)"),
            (
                "http://evil.example:81\\@good.example:80/evil.example",
                "http://***:***@good.example:80/evil.example (some programs read http://evil.example:81)",
            ),
        ] {
            assert_eq!(of("X", value), shown, "{value}");
        }
        assert_eq!(of("API_TOKEN_URL", "http://evil.example/v1"), "http://evil.example/v1");
        assert_eq!(of("AUTH_HOST", "evil.example"), "evil.example");
    }

    #[test]
    fn what_is_plain_is_shown_in_full_unless_its_name_is_a_secrets() {
        for value in ["true", "3", "60000ms", "production", "/srv/data/notes.db", "./notes", "owner/name", "en_US.UTF-8", "10.0.0.1:80", ""]
        {
            assert_eq!(of("X", value), value);
            assert_eq!(of("X", &format!("${{Y:-{value}}}")), format!("${{Y:-{value}}}"));
        }
        assert_eq!(of("PATH_OF_DATA", "${HOME}/data"), "${HOME}/data");
        for (name, value, shown) in [
            ("API_KEY", "sk-live-0123456789", "sk-l***"),
            ("DB_PASSWORD", "sunshine", "su***"),
            ("MY_KEY", "abcd1234", "ab***"),
            ("PIN", "1234", "1***"),
            ("X", "hunter2", "h***"),
            ("X", "correct horse battery staple", "corr***"),
            ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJh***"),
            ("PASSWORD", "ada.example", "ad***"),
            ("X", "${PASSWORD:-sunshine}", "${PASSWORD:-***}"),
            ("PASSWORD", "${X:-sunshine}", "${X:-***}"),
            ("X", "/data/ghp_16C7e42F292c6912E7710c838347Ae178B4a/x", "/data/***/x"),
        ] {
            assert_eq!(of(name, value), shown, "{name}={value}");
        }
    }

    #[test]
    fn a_placeholder_is_shown_by_its_name_and_a_default_that_may_be_secret_is_not() {
        for (value, shown) in [
            ("${TOKEN}", "${TOKEN}"),
            ("\\${env:TOKEN}", "\\${env:TOKEN}"),
            ("${TOKEN:-hunter2hunter2}", "${TOKEN:-***}"),
            ("Bearer ${TOKEN}", "Bearer ${TOKEN}"),
            ("bearer \\${env:TOKEN:-hunter2hunter2}", "bearer \\${env:TOKEN:-***}"),
            ("hunter2hunter2${USER}:${input:password}", "***${USER}***${input:password}"),
        ] {
            assert_eq!(shown_value("Authorization", value, Openness::Urls), shown);
        }
        assert_eq!(of("X", "hunter2hunter2${USER}"), "***${USER}");
    }

    #[test]
    fn of_what_redirects_traffic_only_the_user_is_masked() {
        for (value, shown) in [
            ("http://ada:hunter2@evil.example:8080", "http://***:***@evil.example:8080"),
            ("ada:hunter2@evil.example:8080", "***@evil.example:8080"),
            ("evil", "evil"),
            ("good.example,*.local,q8Jd0sKx92LmZpQ4vT7wYbRn", "good.example,*.local,q8Jd0sKx92LmZpQ4vT7wYbRn"),
            ("http://${USER}:${PASSWORD}@evil.example:${PORT:-80}", "http://${USER}:${PASSWORD}@evil.example:${PORT:-80}"),
            ("/tmp/evil.pem", "/tmp/evil.pem"),
            ("0", "0"),
        ] {
            assert_eq!(shown_value("HTTPS_PROXY", value, Openness::All), shown, "{value}");
        }
    }

    #[test]
    fn of_a_header_only_urls_are_shown() {
        let of = |value| shown_value("X-Target", value, Openness::Urls);
        assert_eq!(of("https://ada:hunter2@evil.example/v1"), "https://***:***@evil.example/v1");
        assert_eq!([of("sunshine"), of("evil.example"), of("${X:-sunshine}")], ["su***", "evi***", "${X:-***}"]);
    }
}
