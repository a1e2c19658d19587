//! Checks whether URIs match URI templates (RFC 6570). The check is strict. If the server could interpret a URI differently from what a
//! person approved, the URI matches no template.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use regex::{Regex, RegexBuilder};

const MAX_TEMPLATE_BYTES: usize = 2_048;
const MAX_URI_BYTES: usize = 8_192;
const MAX_EXPRESSIONS: usize = 32;
const MAX_COMPILED_BYTES: usize = 1024 * 1024;
/// Maximum number of decoding rounds. A URI that is encoded more often could hide its meaning.
const MAX_DECODINGS: usize = 3;

/// Pattern of one character of a variable's value: unreserved or percent-encoded.
const PLAIN: &str = "(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})";
/// Pattern of one character of a variable's value, if a dot separates values.
const LABEL: &str = "(?:[A-Za-z0-9_~-]|%[0-9A-Fa-f]{2})";
/// Pattern of one character of the value for `{+variable}`. It also allows reserved characters, except those that begin a query or a
/// fragment.
const RESERVED: &str = "(?:[A-Za-z0-9._~:/@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";

/// A URI template that is compiled to a regular expression.
#[derive(Debug, Clone)]
pub struct UriTemplate(Regex);

impl UriTemplate {
    /// Parses a template. Returns `None` if the template is too long or has an unsupported expression (`{;x}`, `{x:3}`). No URI can be read
    /// with such a template.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return None;
        }
        let (mut pattern, mut rest, mut expressions) = ("^".to_owned(), text, 0);
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            expressions += 1;
            if literal.contains('}') || expressions > MAX_EXPRESSIONS {
                return None;
            }
            pattern.push_str(&regex::escape(literal));
            pattern.push_str(&expression_pattern(expression)?);
            rest = after;
        }
        if rest.contains('}') {
            return None;
        }
        pattern.push_str(&regex::escape(rest));
        pattern.push('$');
        RegexBuilder::new(&pattern).size_limit(MAX_COMPILED_BYTES).build().ok().map(Self)
    }

    /// Returns whether a URI matches the template and has no hidden meaning.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::UriTemplate;
    /// let logs = UriTemplate::parse("file:///logs/{name}").unwrap();
    /// assert!(logs.matches("file:///logs/today.txt"));
    /// assert!(!logs.matches("file:///logs/a/b") && !logs.matches("file:///logs/..%2Fsecret") && !logs.matches("file:///logs/"));
    /// ```
    #[must_use]
    pub fn matches(&self, uri: &str) -> bool {
        uri.len() <= MAX_URI_BYTES && self.0.is_match(uri) && readings(uri).is_some()
    }
}

/// Returns all forms in which a server could read a URI. These are the URI itself, and its form after each round of percent-decoding.
/// Returns `None` if a form could lead to another folder or has hidden characters.
///
/// ```
/// use hyperlight_mcp::catalog::readings;
/// assert_eq!(readings("memo://a%20b").unwrap(), ["memo://a%20b", "memo://a b"]);
/// assert_eq!(readings("file:///logs/%2e%2e/secret"), None);
/// ```
#[must_use]
pub fn readings(uri: &str) -> Option<Vec<String>> {
    let mut readings: Vec<String> = Vec::new();
    let mut now = Cow::Borrowed(uri);
    while readings.last().is_none_or(|last| *last != now) {
        if readings.len() > MAX_DECODINGS || !is_plain(&now) {
            return None;
        }
        let decoded = percent_decode_str(&now).decode_utf8().ok()?.into_owned();
        readings.push(now.into_owned());
        now = Cow::Owned(decoded);
    }
    Some(readings)
}

/// Returns whether a URI contains no control characters, no backslashes, and no path segments `.` or `..`.
fn is_plain(uri: &str) -> bool {
    let dots = |segment: &str| matches!(segment, "." | "..");
    !uri.contains(|next: char| next.is_control() || next == '\\') && !uri.split(['/', '?', '#', ';']).any(dots)
}

fn expression_pattern(expression: &str) -> Option<String> {
    let operator = expression.chars().next().filter(|first| !is_variable_character(*first));
    let names = &expression[operator.map_or(0, char::len_utf8)..];
    let variables: Vec<(&str, bool)> =
        names.split(',').map(|name| name.strip_suffix('*').map_or((name, false), |name| (name, true))).collect();
    if variables.iter().any(|(name, _)| name.is_empty() || !name.chars().all(is_variable_character)) {
        return None;
    }
    let several = variables.len() > 1 || variables.iter().any(|(_, explodes)| *explodes);
    let keys = || variables.iter().map(|(name, _)| regex::escape(name)).collect::<Vec<_>>().join("|");
    Some(match operator {
        None if several => format!("{PLAIN}+(?:,{PLAIN}+)*"),
        None => format!("{PLAIN}+"),
        Some('+') => format!("{RESERVED}+"),
        Some('#') => format!("(?:#{RESERVED}+)?"),
        Some('.') if several => format!(r"(?:\.{LABEL}+)*"),
        Some('.') => format!(r"(?:\.{LABEL}+)?"),
        Some('/') if several => format!("(?:/{PLAIN}+)*"),
        Some('/') => format!("(?:/{PLAIN}+)?"),
        Some('?') => format!(r"(?:\?(?:{0})={PLAIN}*(?:&(?:{0})={PLAIN}*)*)?", keys()),
        Some('&') => format!("(?:&(?:{0})={PLAIN}*)*", keys()),
        Some(_) => return None,
    })
}

fn is_variable_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    fn matches(template: &str, uri: &str) -> bool {
        UriTemplate::parse(template).unwrap().matches(uri)
    }

    #[test]
    fn each_kind_of_expression_takes_what_it_expands_to() {
        for (template, uri) in [
            ("memo://{id}", "memo://1"),
            ("memo://{id}", "memo://a%20b%2Fc"),
            ("memo://{a}/x/{b}", "memo://1/x/2"),
            ("memo://{a,b}", "memo://1,2"),
            ("file:///{+path}", "file:///a/b.txt"),
            ("file://{/path*}", "file:///a/b"),
            ("file://{/a,b}", "file:///a/b"),
            ("file:///{name}{.extension}", "file:///a.txt"),
            ("search://all{?q,limit}", "search://all?q=x&limit=5"),
            ("search://all{?q,limit}", "search://all?limit="),
            ("search://all{?q}", "search://all"),
            ("search://all?x=1{&q}", "search://all?x=1&q=2"),
            ("page://a{#part}", "page://a#b"),
            ("plain://a.b", "plain://a.b"),
        ] {
            assert!(matches(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn what_leads_elsewhere_follows_no_template() {
        for (template, uri) in [
            ("memo://{id}", "memo://"),
            ("memo://{id}", "memo://a/b"),
            ("memo://{id}", "memo://a?b"),
            ("memo://{id}", "memo://a b"),
            ("memo://{id}", "memo://a%2"),
            ("memo://{id}", "xmemo://a"),
            ("memo://{id}", "memo://a\n"),
            ("http://{host}/x", "http://me@evil/x"),
            ("http://{host}/x", "http://evil:80/x"),
            ("plain://a.b", "plain://axb"),
            ("file:///logs/{name}", "file:///logs/.."),
            ("file:///logs/{name}", "file:///logs/%2E%2e"),
            ("file:///logs/{name}", "file:///logs/..%2f..%2fetc%2fpasswd"),
            ("file:///logs/{name}", "file:///logs/%252e%252e%252fetc"),
            ("file:///logs/{name}", "file:///logs/..%5Cetc"),
            ("file:///logs/{name}", "file:///logs/a%00"),
            ("file:///logs/{name}", "file:///logs/%FF"),
            ("file:///logs/{name}", "file:///logs/%2525252541"),
            ("file:///{+path}", "file:///logs/../etc/passwd"),
            ("file:///{+path}", "file:///./etc"),
            ("file:///{+path}", "file:///a?b"),
            ("search://all{?q}", "search://all?other=1"),
        ] {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_template() {
        for text in
            ["a{", "a}", "{}", "{a", "a}b{c}", "{;x}", "{x:3}", "{|x}", "{a b}", "{x**}", "{{a}}", &"x".repeat(3_000), &"{a}".repeat(33)]
        {
            assert!(UriTemplate::parse(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_value_that_is_encoded_follows_the_template_unless_it_is_a_path_of_dots(value in "[a-z0-9 ./%ß&?#-]{1,12}") {
            let uri = format!("memo://{}/x", utf8_percent_encode(&value, NON_ALPHANUMERIC));
            let follows = matches("memo://{id}/x", &uri);
            match readings(&format!("memo://{value}")) {
                // The value itself contains percent-encoding, and is decoded again. So the URI may be refused.
                Some(_) => {}
                None => prop_assert!(!follows, "{}", uri),
            }
            if !value.contains(['.', '%', '/']) {
                prop_assert!(follows, "{}", uri);
            }
        }

        #[test]
        fn whatever_is_asked_for_it_is_answered(template in "[a-z{}+/?,*:;.#&%-]{0,30}", uri in any::<String>()) {
            let _ = UriTemplate::parse(&template).map(|template| template.matches(&uri));
            // A template without expressions matches only the URI with the same text.
            if let Some(parsed) = UriTemplate::parse(&template).filter(|_| !template.contains('{')) {
                prop_assert_eq!(parsed.matches(&uri), template == uri && readings(&uri).is_some());
            }
        }

        #[test]
        fn what_follows_a_template_stays_below_its_literal_start_however_it_is_decoded(rest in "[a-z./%2eEfF\\\\]{0,20}") {
            let uri = format!("file:///logs/{rest}");
            if matches("file:///logs/{+path}", &uri) {
                for reading in readings(&uri).unwrap() {
                    let path = reading.strip_prefix("file:///logs/").unwrap();
                    let climbs = path.split(['/', '\\']).any(|segment| segment == "..");
                    prop_assert!(!climbs, "{}", reading);
                }
            }
        }
    }
}
