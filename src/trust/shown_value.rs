//! Prepares literal values for display to a person. Shows destinations of traffic and plain values. Masks values that could be secrets.

use url::Url;

use crate::config::{Part, Template, masked_path, shown_placeholder, shown_url};
use crate::redact::{is_key_name, is_plain, is_secret, is_secret_name};

/// Authentication schemes. A credential follows the scheme, but the scheme itself is not secret.
const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];
/// Words in names of variables whose values may be secrets even if they are short and plain.
const KEY_WORDS: [&str; 5] = ["key", "keys", "pin", "passcode", "pw"];
/// Last words of names whose values are hosts, even if another word of the name suggests a secret: `AUTH_HOST`.
const HOST_WORDS: [&str; 12] =
    ["addr", "address", "base", "domain", "endpoint", "host", "hostname", "hosts", "origin", "proxy", "server", "servers"];
/// Maximum length of a top-level domain.
const MAX_TOP_LEVEL: usize = 24;
/// Characters that separate the words in a value.
const BORDERS: &[char] = &[' ', '\t', '\n', '\r', ',', ';', '"', '\'', '(', ')', '[', ']', '{', '}', '<', '>', '|'];
const MASKED: &str = "***";
/// Characters that end the host of an address. Some programs do not treat a backslash as one of them.
const ENDS: [char; 4] = ['/', '?', '#', '\\'];

/// The parts of a value that may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openness {
    /// URLs, hosts and plain values. For variables and inputs.
    Plain,
    /// Only URLs. For headers, whose values are usually credentials.
    Urls,
    /// Everything except the user part before a host. For addresses of proxies.
    All,
}

/// Returns a value for display, with each placeholder shown by its name. Hides each part of a literal that could be a secret, but never
/// hides a host.
pub(super) fn shown_value(name: &str, value: &str, openness: Openness) -> String {
    let Ok(template) = Template::parse(value) else { return mask(value) };
    let literals: String = template.parts().iter().map(|part| if let Part::Literal(text) = part { text } else { "" }).collect();
    let is_literal = literals.len() == value.len();
    let is_one_word = !literals.contains(BORDERS);
    let shown = match () {
        () if openness == Openness::All => template.parts().iter().map(|part| part_of(name, *part, openness)).collect(),
        () if is_one_word && has_scheme(&literals) => url(name, value, openness),
        () if is_literal => literal(name, value, openness).unwrap_or_else(|| mask(value)),
        () if is_one_word && names_host(name, openness) => word_of_parts(name, template.parts(), openness),
        () => template.parts().iter().map(|part| part_of(name, *part, openness)).collect(),
    };
    let unseen = origins_to_some(&template).into_iter().filter(|origin| !shows_origin(&shown, origin));
    unseen.fold(shown.clone(), |shown, origin| format!("{shown} (some programs read {origin})"))
}

fn has_scheme(text: &str) -> bool {
    text.find("://").is_some_and(|end| !text[..end].contains(ENDS) && !text[..end].contains('@'))
}

/// Returns the displayed form of a word that has placeholders and no scheme. The value of a placeholder may end the host, so the text
/// before an `@` may be the host. Then that text is shown, or the host after the `@` is hidden as well.
fn word_of_parts(name: &str, parts: &[Part], openness: Openness) -> String {
    let is_literal_with = |part: &Part, mark: char| matches!(part, Part::Literal(text) if text.contains(mark));
    let Some(last) = parts.iter().rposition(|part| is_literal_with(part, '@')) else {
        return parts.iter().map(|part| part_of(name, *part, openness)).collect();
    };
    let hides = |part: &Part| match part {
        Part::Literal(text) => is_secret(name, text) && !is_host(text),
        Part::Placeholder { .. } => part_of(name, *part, openness).contains(MASKED),
    };
    let is_hidden = parts[..last].iter().any(hides);
    let shown = |(index, part): (usize, &Part)| match part {
        Part::Literal(_) if is_hidden && index <= last => MASKED.to_owned(),
        Part::Literal(text) if index < last => (*text).to_owned(),
        _ => part_of(name, *part, openness),
    };
    parts.iter().enumerate().map(shown).collect()
}

/// Returns whether a displayed value is a URL with this origin. The same host elsewhere in the value does not count.
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

/// Returns the part of a literal that may be shown, or `None` if nothing may be shown.
fn literal(name: &str, text: &str, openness: Openness) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    if openness == Openness::All {
        return Some(text.split_inclusive(BORDERS).map(without_user).collect());
    }
    if openness == Openness::Plain && !may_name_a_secret(name) && is_plain(text) && !text.contains("://") {
        let shown = path(name, text);
        // A hidden segment before an `@` could be the host, so such a path is not shown.
        if shown == text || !text.contains('@') {
            return Some(shown);
        }
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

/// Returns the address of a proxy without its user and password. Returns any other word unchanged.
fn without_user(word: &str) -> String {
    let is_scheme = |text: &str| text.chars().all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next));
    let start = word.find("://").filter(|end| *end > 0 && is_scheme(&word[..*end])).map_or(0, |end| end + 3);
    let rest = &word[start..];
    let is_user = |text: &str| !text.is_empty() && text.chars().all(|next| next.is_ascii_graphic() && !"@=".contains(next));
    match rest[..rest.find(ENDS).unwrap_or(rest.len())].rsplit_once('@') {
        Some((user, _)) if start == 0 && is_user(user) => format!("{MASKED}{}", &rest[user.len()..]),
        Some((user, _)) if is_user(user) => {
            let masked: Vec<&str> = user.split(':').map(|part| if part.is_empty() { "" } else { MASKED }).collect();
            format!("{}{}{}", &word[..start], masked.join(":"), &rest[user.len()..])
        }
        _ => word.to_owned(),
    }
}

/// Returns whether every program reads a text before an `@` as a user and a password, because no character of it ends a host or is code. In
/// a URL, other characters are percent-encoded.
pub(super) fn has_plain_user(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|next| next.is_ascii_alphanumeric() || "._~%-:".contains(next))
}

fn names_host(name: &str, openness: Openness) -> bool {
    openness != Openness::Urls && (!may_name_a_secret(name) || ends_in_host_word(name))
}

/// Returns one word for display if it is a URL or a host, or an assignment of a URL or a host to a name.
fn word(name: &str, text: &str, openness: Openness) -> Option<String> {
    // If a `://` follows the end of a host and an `@`, it does not end a scheme.
    let Some(end) = text.find("://").filter(|end| !(text[..*end].contains(ENDS) && text[..*end].contains('@'))) else {
        return if names_host(name, openness) { address(name, text, openness) } else { None };
    };
    let of_scheme = |next: char| next.is_ascii_alphanumeric() || "+-.:".contains(next);
    let start = text[..end].rfind(|next| !of_scheme(next)).map_or(0, |last| last + 1);
    if !text.is_char_boundary(start) {
        return None;
    }
    let (before, rest) = text.split_at(start);
    // Some programs ignore the text after a port, so this text is a host and not the name of an option.
    if is_host(before.trim_end_matches('=')) {
        return None;
    }
    let at = if before.ends_with('@') { "@" } else { "" };
    let before = if before.is_empty() { String::new() } else { format!("{}{MASKED}{at}", host_before(name, before, openness)?) };
    Some(format!("{before}{}", url(name, rest, openness)))
}

/// Returns the start of a text that a program which knows no schemes reads as the host: everything up to and including the first character
/// that ends a host. Returns an empty text if there is no such character, and `None` if the host may be a secret.
fn host_before(name: &str, text: &str, openness: Openness) -> Option<String> {
    let slashes = leading_slashes(text);
    let Some(end) = text[slashes..].find(ENDS).map(|end| slashes + end) else { return Some(String::new()) };
    let authority = &text[slashes..end];
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let has_host = is_host(host) || host.split_once(':').is_some_and(|(_, host)| is_host(host));
    let is_shown = authority.is_empty() || names_host(name, openness) && (has_host || !is_secret(name, host));
    is_shown.then(|| format!("{}{}{host}{}", &text[..slashes], user.map(masked_user).unwrap_or_default(), &text[end..=end]))
}

fn leading_slashes(text: &str) -> usize {
    text.len() - text.trim_start_matches(['/', '\\']).len()
}

/// Masks the text that follows a host. A second host (`\…@HOST`) stays visible: some programs do not end a host at a backslash, but read
/// the text before the `@` as a user and connect to this second host.
fn behind_end(text: &str) -> String {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@').filter(|(_, host)| is_host(host)) {
        Some((_, host)) if authority.len() < text.len() => format!("{MASKED}@{host}{}{MASKED}", &text[authority.len()..=authority.len()]),
        Some((_, host)) => format!("{MASKED}@{host}"),
        // The character that ends the authority stays, so that nobody reads a later `@` as a part of it.
        None if !authority.is_empty() && authority.len() < text.len() => {
            format!("{MASKED}{}{MASKED}", &text[authority.len()..=authority.len()])
        }
        None => MASKED.to_owned(),
    }
}

/// Returns a user part with its `@` for display. If the user part itself contains an `@`, some programs may read the text after the first
/// `@` as the host.
fn masked_user(user: &str) -> String {
    let is_shown = |part: &str| part.is_empty() || (user.contains('@') && is_host(part));
    let parts = user.split('@').map(|part| if is_shown(part) { part } else { MASKED });
    parts.flat_map(|part| [part, "@"]).collect()
}

/// Returns the displayed form of a word without a scheme: a host, or an assignment of one. If an `@` follows the end of the host, programs
/// disagree about which text is the host, so both hosts are shown.
fn address(name: &str, text: &str, openness: Openness) -> Option<String> {
    let slashes = leading_slashes(text);
    let end = text[slashes..].find(ENDS).map_or(text.len(), |end| slashes + end);
    if let Some(late) = text[end..].rfind('@').map(|at| end + at + 1) {
        let host = text[late..].split(ENDS).next().unwrap_or_default();
        if is_host(host) {
            let before = host_before(name, text, openness)?;
            return Some(format!("{before}{}@{}", behind_end(&text[end..late - 1]), url(name, &text[late..], openness)));
        }
    }
    let start = text[slashes..end].rfind(['@', '=']).map_or(slashes, |border| slashes + border + 1);
    let (before, rest) = text.split_at(start);
    let is_assigned = before.ends_with('=');
    let skipped = if is_assigned { rest.len() - rest.trim_start_matches('/').len() } else { 0 };
    let host = rest[skipped..].split(ENDS).next().unwrap_or_default();
    // Text before a `=` is hidden only if it is a name, because some programs ignore the text after a port.
    let is_name = |text: &str| text.chars().all(|next| next.is_ascii_alphanumeric() || "-_".contains(next));
    let hidden = match before[slashes..].strip_suffix(['@', '=']) {
        None => String::new(),
        // This is a path, unless a program adds a scheme before it.
        Some(text) if slashes == 1 && !is_secret(name, text) => before[slashes..].to_owned(),
        Some(text) if is_assigned && is_name(text) => "***=".to_owned(),
        Some(text) if !is_assigned && text.chars().all(|next| next.is_ascii_graphic()) => masked_user(text),
        Some(_) => return None,
    };
    if !is_host(host) {
        return None;
    }
    let (lead, shown) = (&text[..slashes], &rest[..skipped]);
    let tail = &rest[skipped + host.len()..];
    // A URL parser would read the text before the backslash as a user.
    let address = if tail.starts_with('\\') { format!("{host}\\{}", behind_end(tail)) } else { url(name, &rest[skipped..], openness) };
    Some(format!("{lead}{hidden}{shown}{address}"))
}

fn url(name: &str, text: &str, openness: Openness) -> String {
    let default = |variable: &str, default: &str| {
        let shown = shown_default(name, variable, default, openness);
        let is_before_user_end = || text.rfind('@') > text.find(default);
        // This text may contain the end of the host.
        match default.find(ENDS).filter(|_| shown.contains(MASKED) && is_before_user_end()) {
            Some(end) => format!("{}{MASKED}", &default[..=end]),
            None => shown,
        }
    };
    let user = |text: &str| if is_secret(name, text) && !is_host(text) { MASKED.to_owned() } else { text.to_owned() };
    shown_url(text, &|text| masked_path(&path(name, text)), &default, &user)
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

/// Returns whether a text is a host with dots or a port, or an IP address. A token that contains dots is not a host if its last part does
/// not look like a top-level domain.
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
    (port.is_none_or(str::is_empty) || has_port)
        && labels.iter().all(|label| is_label(label))
        && (has_port || is_number || labels.len() > 1 && is_top)
}

fn words_of(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|next: char| !next.is_alphanumeric())
}

fn ends_in_host_word(name: &str) -> bool {
    words_of(name).next_back().is_some_and(|last| HOST_WORDS.iter().any(|known| last.eq_ignore_ascii_case(known)))
}

pub(super) fn may_name_a_secret(name: &str) -> bool {
    is_secret_name(name) || is_key_name(name) || words_of(name).any(|word| KEY_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Returns scheme, host and port of a value that URL parsers accept as a URL, one result for each way in which parsers read it. Parsers of
/// browsers accept `http:host`, and treat a backslash as a slash in URLs of some schemes. Other parsers treat a backslash as a slash in
/// URLs of every scheme.
fn origins_to_some(template: &Template) -> Vec<String> {
    let text =
        |mark: &str| -> String { template.parts().iter().map(|part| if let Part::Literal(text) = part { text } else { mark }).collect() };
    let written = text("");
    let Some(mark) = (0..=written.len()).map(|number| format!("x{number:08}")).find(|mark| !written.to_lowercase().contains(mark.as_str()))
    else {
        return Vec::new();
    };
    let origin = |text: &str| {
        let url = Url::parse(text).ok()?;
        let host = url.host_str().filter(|host| !host.is_empty() && !host.contains(&mark))?.to_owned();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}://{host}{port}", url.scheme()))
    };
    let marked = text(&mark);
    let mut origins: Vec<String> = [origin(&marked), origin(&marked.replace('\\', "/"))].into_iter().flatten().collect();
    origins.dedup();
    origins
}

#[cfg(test)]
#[path = "shown_value_tests.rs"]
mod tests;
