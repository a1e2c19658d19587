//! Checks whether URIs match URI templates (RFC 6570). The check is strict. If the server could interpret a URI differently from what a
//! person approved, the URI matches no template.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

const MAX_TEMPLATE_BYTES: usize = 2_048;
const MAX_URI_BYTES: usize = 8_192;
const MAX_EXPRESSIONS: usize = 32;
/// Maximum number of decoding rounds. A URI that is encoded more often could hide its meaning.
const MAX_DECODINGS: usize = 3;
/// Maximum amount of work for comparing one URI with templates, in bytes of templates and of the URI that are looked at. This takes some
/// milliseconds. A URI of 100 bytes is compared with four thousand templates of two expressions.
const MAX_WORK: usize = 4_000_000;
/// Number of bytes that are compared in the time of one step of other work.
const COMPARED_AT_ONCE: usize = 16;

/// A URI template, as the parts that a URI consists of.
#[derive(Debug, Clone)]
pub struct UriTemplate(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Expression(Expression),
}

/// The texts that an expression may expand to: values, each after its lead.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    /// The character before the first value.
    first: Option<u8>,
    /// The character before each further value. `None` if there is only one value.
    next: Option<u8>,
    /// The names of which one and `=` stand before each value, in their order.
    keys: Option<Vec<String>>,
    characters: Characters,
    /// True if a value may be empty.
    may_be_empty: bool,
    /// True if the expression may expand to nothing.
    is_optional: bool,
}

/// The characters of a value, besides percent-encoded ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Characters {
    /// Unreserved characters.
    Plain,
    /// Unreserved characters except for the dot, which separates values.
    Label,
    /// Also reserved characters, except those that begin a query or a fragment.
    Reserved,
}

impl UriTemplate {
    /// Parses a template. Returns `None` if the template is too long or has an unsupported expression (`{;x}`, `{x:3}`). No URI can be read
    /// with such a template.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return None;
        }
        let (mut parts, mut rest, mut expressions) = (Vec::new(), text, 0);
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            expressions += 1;
            if literal.contains('}') || expressions > MAX_EXPRESSIONS {
                return None;
            }
            parts.push(Part::Literal(literal.to_owned()));
            parts.push(Part::Expression(Expression::parse(expression)?));
            rest = after;
        }
        if rest.contains('}') {
            return None;
        }
        parts.push(Part::Literal(rest.to_owned()));
        Some(Self(parts))
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
        is_comparable(uri) && self.expands_to(uri.as_bytes())
    }

    /// Returns whether the template can expand to this text. Keeps all places of the text that the parts so far can end at, so each part
    /// goes through the text once.
    fn expands_to(&self, text: &[u8]) -> bool {
        let mut places = vec![false; text.len() + 1];
        places[0] = true;
        for part in &self.0 {
            places = match part {
                Part::Literal(literal) => after_literal(literal.as_bytes(), text, &places),
                Part::Expression(expression) => expression.ends(text, &places),
            };
            if !places.contains(&true) {
                return false;
            }
        }
        places[text.len()]
    }
}

/// Comparisons of one URI with templates, whose work is limited. A server chooses its templates, so their number and form must not decide
/// how long a request takes.
#[derive(Debug)]
pub struct TemplateMatcher<'u> {
    uri: &'u str,
    /// False if the URI matches no template.
    is_comparable: bool,
    work_left: usize,
    untried: usize,
}

impl<'u> TemplateMatcher<'u> {
    #[must_use]
    pub fn new(uri: &'u str) -> Self {
        Self { uri, is_comparable: is_comparable(uri), work_left: MAX_WORK, untried: 0 }
    }

    /// Returns whether the URI matches the template, as [`UriTemplate::matches`] does. Returns `None` if the limit of work does not allow
    /// the comparison.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::TemplateMatcher;
    /// let mut matcher = TemplateMatcher::new("memo://1");
    /// assert_eq!((matcher.matches("memo://{id}"), matcher.matches("log://{day}"), matcher.untried()), (Some(true), Some(false), 0));
    /// ```
    pub fn matches(&mut self, template: &str) -> Option<bool> {
        // The prefix is compared first, because this is fast and there may be many templates.
        if !self.is_comparable || !self.uri.starts_with(literal_start(template)) {
            return Some(false);
        }
        let work = work(template, self.uri);
        let Some(left) = self.work_left.checked_sub(work) else {
            self.untried += 1;
            return None;
        };
        self.work_left = left;
        Some(UriTemplate::parse(template).is_some_and(|parsed| parsed.expands_to(self.uri.as_bytes())))
    }

    /// Returns the number of templates that were not compared because of the limit.
    #[must_use]
    pub const fn untried(&self) -> usize {
        self.untried
    }
}

/// Returns the work of a comparison, in steps. Parsing reads the template once. Each part reads the URI once, and a literal is compared with
/// the URI at each of its places, many bytes at a time.
fn work(template: &str, uri: &str) -> usize {
    let (mut parts, mut literal_bytes, mut rest) = (1, 0, template);
    while let Some((literal, after)) = rest.split_once('{') {
        parts += 2;
        literal_bytes += literal.len();
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    literal_bytes += rest.len();
    template.len() + parts * (uri.len() + 1) + literal_bytes * uri.len() / COMPARED_AT_ONCE
}

/// Returns the part of a template before its first expression.
#[must_use]
pub fn literal_start(template: &str) -> &str {
    template.split_once('{').map_or(template, |(start, _)| start)
}

/// Returns whether a URI can match a template at all. It cannot if it is too long or has a hidden meaning.
fn is_comparable(uri: &str) -> bool {
    uri.len() <= MAX_URI_BYTES && readings(uri).is_some()
}

/// Returns the places after a literal that begins at one of these places.
fn after_literal(literal: &[u8], text: &[u8], places: &[bool]) -> Vec<bool> {
    let mut ends = vec![false; places.len()];
    for (place, _) in places.iter().enumerate().filter(|(_, is_reached)| **is_reached) {
        if text[place..].starts_with(literal) {
            ends[place + literal.len()] = true;
        }
    }
    ends
}

impl Expression {
    /// Parses the text between braces. Returns `None` if it is not supported.
    fn parse(text: &str) -> Option<Self> {
        let operator = text.chars().next().filter(|first| !is_variable_character(*first));
        let names = &text[operator.map_or(0, char::len_utf8)..];
        let variables: Vec<(&str, bool)> =
            names.split(',').map(|name| name.strip_suffix('*').map_or((name, false), |name| (name, true))).collect();
        if variables.iter().any(|(name, _)| name.is_empty() || !name.chars().all(is_variable_character)) {
            return None;
        }
        let several = variables.len() > 1 || variables.iter().any(|(_, explodes)| *explodes);
        let next = |lead: u8| several.then_some(lead);
        let keys = || {
            let mut keys: Vec<String> = variables.iter().map(|(name, _)| (*name).to_owned()).collect();
            keys.sort();
            keys
        };
        let values = |first: Option<u8>, next, characters| {
            let is_optional = first.is_some();
            Self { first, next, keys: None, characters, may_be_empty: false, is_optional }
        };
        let query = |first: u8| Self { keys: Some(keys()), may_be_empty: true, ..values(Some(first), Some(b'&'), Characters::Plain) };
        Some(match operator {
            None => values(None, next(b','), Characters::Plain),
            Some('+') => values(None, None, Characters::Reserved),
            Some('#') => values(Some(b'#'), None, Characters::Reserved),
            Some('.') => values(Some(b'.'), next(b'.'), Characters::Label),
            Some('/') => values(Some(b'/'), next(b'/'), Characters::Plain),
            Some('?') => query(b'?'),
            Some('&') => query(b'&'),
            Some(_) => return None,
        })
    }

    /// Returns the places at which the expression can end if it begins at one of these places.
    fn ends(&self, text: &[u8], places: &[bool]) -> Vec<bool> {
        let mut ends = vec![false; places.len()];
        // Places at which a value begins, and places up to which a value has at least one character, or all that it needs.
        let (mut begun, mut filled) = (vec![false; places.len()], vec![false; places.len()]);
        for place in 0..places.len() {
            if places[place] {
                ends[place] |= self.is_optional;
                self.begin(self.first, text, place).into_iter().for_each(|at| begun[at] = true);
            }
            if begun[place] && self.may_be_empty {
                filled[place] = true;
            }
            if !begun[place] && !filled[place] {
                continue;
            }
            self.characters.after_one(text, place).into_iter().for_each(|at| filled[at] = true);
            if filled[place] {
                ends[place] = true;
                if let Some(next) = self.next {
                    self.begin(Some(next), text, place).into_iter().for_each(|at| begun[at] = true);
                }
            }
        }
        ends
    }

    /// Returns the place after a lead and, if there are keys, after one of them and `=`. A value begins there.
    fn begin(&self, lead: Option<u8>, text: &[u8], place: usize) -> Option<usize> {
        let place = match lead {
            Some(lead) => (text.get(place) == Some(&lead)).then_some(place + 1)?,
            None => place,
        };
        let Some(keys) = &self.keys else { return Some(place) };
        let length = text[place..].iter().position(|byte| !is_variable_character(char::from(*byte)))?;
        let is_key = keys.binary_search_by(|key| key.as_bytes().cmp(&text[place..place + length])).is_ok();
        (is_key && text[place + length] == b'=').then_some(place + length + 1)
    }
}

impl Characters {
    /// Returns the place after one character of a value, which may be percent-encoded. Returns `None` if the character is not allowed.
    fn after_one(self, text: &[u8], place: usize) -> Option<usize> {
        let byte = *text.get(place)?;
        if byte == b'%' {
            let digits = text.get(place + 1..place + 3)?;
            return digits.iter().all(u8::is_ascii_hexdigit).then_some(place + 3);
        }
        let is_allowed = byte.is_ascii_alphanumeric()
            || match self {
                Self::Plain => b"._~-".contains(&byte),
                Self::Label => b"_~-".contains(&byte),
                Self::Reserved => b"._~:/@!$&'()*+,;=-".contains(&byte),
            };
        is_allowed.then_some(place + 1)
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

fn is_variable_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
#[path = "uri_template_tests.rs"]
mod tests;
