//! Takes secrets and the host's folders out of text, wherever text leaves the crate.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;

use super::secret_rules::{FEWEST_CHARACTERS, after_scheme};

/// What stands where a secret stood.
const MARK: &str = "[redacted]";

/// What one round leaves may, at its seams, look like something to shorten or blank: seldom, and never endlessly.
const ROUNDS: usize = 4;

/// So much of a form is searched for; the rest is compared. An automaton for a certificate's every form would be huge.
const SEARCHED: usize = 64;

/// So often may a text be compared with what it is searched for. A text for which this is not enough is blanked.
const COMPARISONS: usize = 64;

/// As deep as JSON is read at all; what is deeper is not walked, but blanked.
const JSON_DEPTH: usize = 128;

/// Knows secrets in all forms in which text may hold them, and the folders that say whose computer this is.
///
/// ```
/// use hyperlight_mcp::trust::Redactor;
/// use std::path::Path;
/// let redactor = Redactor::new(Some(Path::new("/home/someone")), Some(Path::new("/home/someone/project")));
/// redactor.add([&"correct horse".to_owned().into()]);
/// assert_eq!(redactor.redact("401 for ?key=correct%20horse"), "401 for ?key=[redacted]");
/// assert_eq!(redactor.redact("at /home/someone/project/src/a.js:1:2"), "at ./src/a.js:1:2");
/// assert_eq!(redactor.redact("at /usr/lib/node_modules/x/index.js"), "at …/x/index.js");
/// ```
pub struct Redactor {
    known: RwLock<Arc<Known>>,
    /// The longest first: the workspace often lies in the home folder.
    folders: Vec<(String, &'static str)>,
}

/// All that is searched for. It is replaced as a whole, so that no search holds the lock.
#[derive(Default)]
struct Known {
    secrets: Vec<SecretString>,
    forms: Vec<SecretString>,
    /// Finds the forms' beginnings. None when there are too many.
    automaton: Option<AhoCorasick>,
    /// The forms by their first and by their last bytes, to find those that were cut.
    heads: HashMap<[u8; FEWEST_CHARACTERS], Vec<usize>>,
    tails: HashMap<[u8; FEWEST_CHARACTERS], Vec<usize>>,
    longest: usize,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").field("secrets", &self.known().secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Knows no secrets yet. Folders that are not absolute, or the root, are left out.
    #[must_use]
    pub fn new(home: Option<&Path>, workspace: Option<&Path>) -> Self {
        let mut folders = Vec::new();
        for (folder, short) in [(workspace, "."), (home, "~")] {
            let Some(folder) = folder.and_then(Path::to_str).map(|folder| folder.trim_end_matches('/')) else { continue };
            if folder.starts_with('/') {
                folders.push((folder.to_owned(), short));
                folders.push((utf8_percent_encode(folder, &PATH).to_string(), short));
            }
        }
        folders.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        folders.dedup();
        Self { known: RwLock::default(), folders }
    }

    /// Blanks these from now on. Those of fewer than eight characters are ignored.
    pub fn add<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretString>) {
        let mut guard = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |all: &[SecretString], secret: &SecretString| all.iter().any(|known| known.expose_secret() == secret.expose_secret());
        let (mut all, old) = (guard.secrets.clone(), guard.secrets.len());
        for secret in secrets {
            if is_long_enough(secret.expose_secret()) && !is_known(&all, secret) {
                all.push(secret.clone());
            }
        }
        if all.len() > old {
            *guard = Arc::new(Known::new(all, old, &guard.forms));
        }
    }

    /// The text without secrets, and with short paths. Redacting the result again changes nothing.
    ///
    /// Cut text after redacting it. Text that was cut before still loses what its ends hold of a secret, from eight characters on.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known();
        let mut text = Cow::Borrowed(text);
        for _ in 0..ROUNDS {
            let blanked = known.blank(&text);
            let shortened = self.shorten(blanked.as_deref().unwrap_or(&text));
            let Some(next) = shortened.or(blanked) else { break };
            text = Cow::Owned(next);
        }
        text
    }

    /// The same for every text and key within, and for numbers that are secrets.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::trust::Redactor::new(None, None);
    /// redactor.add([&"0123456789".to_owned().into()]);
    /// assert_eq!(redactor.redact_json(&serde_json::json!({ "pin": ["0123456789", 7] })), serde_json::json!({ "pin": ["[redacted]", 7] }));
    /// ```
    #[must_use]
    pub fn redact_json(&self, json: &Json) -> Json {
        self.redact_json_at(json, JSON_DEPTH)
    }

    fn redact_json_at(&self, json: &Json, depth: usize) -> Json {
        match json {
            Json::Null | Json::Bool(_) => json.clone(),
            Json::String(text) => self.redact(text).into(),
            Json::Number(number) => {
                let text = number.to_string();
                let redacted = self.redact(&text);
                if redacted == text { json.clone() } else { redacted.into() }
            }
            Json::Array(_) | Json::Object(_) if depth == 0 => MARK.into(),
            Json::Array(items) => items.iter().map(|item| self.redact_json_at(item, depth - 1)).collect(),
            Json::Object(fields) => {
                let mut redacted = serde_json::Map::new();
                for (key, value) in fields {
                    let mut key = self.redact(key).into_owned();
                    // Two keys may have become one.
                    if redacted.contains_key(&key) {
                        let _ = write!(key, " ({})", redacted.len());
                    }
                    redacted.insert(key, self.redact_json_at(value, depth - 1));
                }
                Json::Object(redacted)
            }
        }
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// None if there is nothing to shorten.
    fn shorten(&self, text: &str) -> Option<String> {
        let mut shortened = String::new();
        let (mut copied, mut at, mut url_end) = (0, 0, 0);
        while let Some(start) = text[at..].find('/').map(|found| at + found) {
            at = start + 1;
            let rest = &text[start..];
            if rest.starts_with("//") && text[..start].ends_with(':') {
                at = start + 2;
                if start >= url_end && !text[..start].ends_with("file:") {
                    url_end = start
                        + 2
                        + text[at..]
                            .find(|character: char| ends_path(character) && !"?:,;()[]*".contains(character))
                            .unwrap_or(text.len() - at);
                }
                continue;
            }
            if !may_begin_path(text, start) {
                continue;
            }
            let end = start + rest.find(ends_path).unwrap_or(rest.len());
            let replacement = if let Some((folder, short)) = self.folders.iter().find(|(folder, _)| is_within(rest, folder)) {
                Some((start + folder.len(), *short))
            } else if start >= url_end && !follows_method(&text[..start]) {
                last_two(&text[start..end]).map(|kept| (start + kept, "…"))
            } else {
                None
            };
            if let Some((resume, short)) = replacement {
                shortened.push_str(&text[copied..start]);
                shortened.push_str(short);
                copied = resume;
            }
            at = end.max(copied).max(at);
        }
        (copied > 0).then(|| shortened + &text[copied..])
    }
}

/// Whether a path's characters end here. A colon and a comma may be part of a name, but mostly come after it.
fn ends_path(character: char) -> bool {
    let ends = matches!(
        character,
        '"' | '\'' | '`' | '<' | '>' | '|' | '*' | '?' | ';' | ',' | '(' | ')' | '[' | ']' | '{' | '}' | '\\' | ':' | '…'
    );
    ends || character.is_whitespace() || character.is_control()
}

/// Not within a word (`and/or`, `text/html`, `1/2`), another path, a JSON pointer, or before a second slash.
fn may_begin_path(text: &str, slash: usize) -> bool {
    let before = &text[..slash];
    if text[slash + 1..].starts_with('/') {
        return false;
    }
    let mut backwards = before.chars().rev();
    match backwards.next() {
        Some('/') => before.ends_with("file://"),
        Some(character) if character.is_whitespace() => true,
        None | Some('"' | '\'' | '`' | '(' | '[' | '{' | '<' | '>' | '=' | ',' | ';' | ':' | '|' | '!' | '&') => true,
        // A line break that JSON has escaped, the end of a terminal's colour, a compiler's flag.
        Some('n' | 'r' | 't') if backwards.next() == Some('\\') => true,
        Some('m')
            if before[..slash - 1]
                .trim_end_matches(|character: char| character.is_ascii_digit() || character == ';')
                .ends_with("\u{1b}[") =>
        {
            true
        }
        Some('I' | 'L') => before[..slash - 1].ends_with('-') && !before[..slash - 2].ends_with(char::is_alphanumeric),
        Some(_) => false,
    }
}

/// `GET /v1/users/1` is a route.
fn follows_method(before: &str) -> bool {
    let Some(before) = before.strip_suffix(' ') else { return false };
    let is_last_word = |method: &&str| before.strip_suffix(*method).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric));
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].iter().any(is_last_word)
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| {
        // The point at a sentence's end is not part of a name, but that of `/home/me.old` is.
        rest.starts_with('/') || rest.trim_start_matches(['.', '!']).chars().next().is_none_or(ends_path)
    })
}

/// Where the last two names of a path begin, if there are more, and if it can be a path at all.
fn last_two(path: &str) -> Option<usize> {
    let is_pattern = path.contains('^') || path.ends_with('$') || path.contains("$/");
    // Base64 of an image begins with a slash, too; no folder has so long a name.
    if is_pattern || path.split('/').any(|name| name.len() > 255) {
        return None;
    }
    let parent = path.trim_end_matches('/').rsplit_once('/')?.0.trim_end_matches('/');
    let kept = parent.rfind('/')?;
    path[..kept].contains(|character| character != '/').then_some(kept)
}

impl Known {
    /// The first secrets' forms are there already.
    fn new(secrets: Vec<SecretString>, old: usize, old_forms: &[SecretString]) -> Self {
        let mut forms: BTreeSet<String> = old_forms.iter().map(|form| form.expose_secret().to_owned()).collect();
        for part in secrets[old..].iter().flat_map(|secret| parts(secret.expose_secret())) {
            for form in encodings(&part) {
                // The mark itself is never searched: a secret that holds it is found by what is beside it.
                forms.extend(form.split(MARK).filter(|piece| is_long_enough(piece)).map(str::to_owned));
            }
        }
        let searched = forms.iter().map(|form| &form.as_bytes()[..form.len().min(SEARCHED)]);
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(searched).ok();
        let (mut heads, mut tails) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (index, form) in forms.iter().enumerate() {
            if let (Some(head), Some(tail)) = (form.as_bytes().first_chunk(), form.as_bytes().last_chunk()) {
                heads.entry(*head).or_default().push(index);
                tails.entry(*tail).or_default().push(index);
            }
        }
        let longest = forms.iter().map(String::len).max().unwrap_or(0);
        Self { secrets, forms: forms.into_iter().map(SecretString::from).collect(), automaton, heads, tails, longest }
    }

    /// None if there is nothing to blank.
    fn blank(&self, text: &str) -> Option<String> {
        if self.forms.is_empty() {
            return None;
        }
        let Some(automaton) = &self.automaton else { return (text != MARK).then(|| MARK.to_owned()) };
        let mut blanked = String::new();
        let (mut copied, mut offset, mut effort) = (0, 0, text.len().saturating_mul(COMPARISONS).saturating_add(1 << 20));
        for piece in text.split(MARK) {
            let mut spans: Vec<(usize, usize)> = Vec::new();
            // Secrets that overlap or touch become one blank, so that no part of either is left.
            let mut join = |mut start: usize, mut end: usize| {
                while let Some((last_start, last_end)) = spans.pop_if(|(_, last_end)| *last_end >= start) {
                    (start, end) = (start.min(last_start), end.max(last_end));
                }
                spans.push((start, end));
            };
            let cut_start = if offset == 0 { self.cut_start(piece) } else { 0 };
            let cut_end = if offset + piece.len() == text.len() { self.cut_end(piece) } else { piece.len() };
            if cut_start > 0 {
                join(0, cut_start);
            }
            for found in automaton.find_overlapping_iter(piece) {
                let rest = &piece.as_bytes()[found.start()..];
                let form = self.forms[found.pattern().as_usize()].expose_secret().as_bytes();
                let same = form.iter().zip(rest).take_while(|(form, text)| form == text).count();
                effort = effort.saturating_sub(same);
                // More than its beginning is blanked of a form, even if not all of it is there.
                join(found.start(), if effort == 0 { piece.len() } else { piece.floor_char_boundary(found.start() + same) });
                if effort == 0 {
                    break;
                }
            }
            if cut_end < piece.len() {
                join(cut_end, piece.len());
            }
            for (start, end) in spans {
                blanked.push_str(&text[copied..offset + start]);
                blanked.push_str(MARK);
                copied = offset + end;
            }
            offset += piece.len() + MARK.len();
        }
        (copied > 0).then(|| blanked + &text[copied..])
    }

    /// Where a form begins whose end was cut off, or the text's length.
    fn cut_end(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let begins = |start: usize| {
            let head = bytes[start..].first_chunk().and_then(|head| self.heads.get(head));
            head.is_some_and(|forms| forms.iter().any(|form| self.forms[*form].expose_secret().as_bytes().starts_with(&bytes[start..])))
        };
        let first = bytes.len().saturating_sub(self.longest);
        (first..bytes.len()).find(|start| begins(*start)).filter(|start| is_long_enough(&text[*start..])).unwrap_or(bytes.len())
    }

    /// Where a form ends whose beginning was cut off, or zero.
    fn cut_start(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let ends = |end: usize| {
            let tail = bytes[..end].last_chunk().and_then(|tail| self.tails.get(tail));
            tail.is_some_and(|forms| forms.iter().any(|form| self.forms[*form].expose_secret().as_bytes().ends_with(&bytes[..end])))
        };
        (1..=bytes.len().min(self.longest)).rev().find(|end| ends(*end)).filter(|end| is_long_enough(&text[..*end])).unwrap_or(0)
    }
}

fn is_long_enough(text: &str) -> bool {
    text.chars().nth(FEWEST_CHARACTERS - 1).is_some()
}

/// The secret, and what in it is one on its own: each line, what follows `Bearer`, what is within Basic, a URL's password.
fn parts(secret: &str) -> BTreeSet<String> {
    let mut parts: BTreeSet<String> = secret.lines().map(str::trim).chain([secret, secret.trim()]).map(str::to_owned).collect();
    if let Some((credentials, is_basic)) = after_scheme(secret) {
        parts.insert(credentials.to_owned());
        let decoded = STANDARD_NO_PAD.decode(credentials.trim_end_matches('=')).ok().and_then(|decoded| String::from_utf8(decoded).ok());
        if let Some(login) = decoded.filter(|_| is_basic) {
            parts.extend(login.split_once(':').map(|(_, password)| password.to_owned()));
            parts.insert(login);
        }
    }
    let authority = secret.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if let Some(login) = authority.and_then(|authority| authority.rsplit_once('@')).map(|(login, _)| login) {
        let password = login.split_once(':').map_or(login, |(_, password)| password);
        parts.extend([password.to_owned(), percent_decode_str(password).decode_utf8_lossy().into_owned()]);
    }
    parts.retain(|part| is_long_enough(part));
    parts
}

const fn without(set: &AsciiSet, kept: &[u8]) -> AsciiSet {
    let mut set = set.remove(kept[0]);
    let mut index = 1;
    while index < kept.len() {
        set = set.remove(kept[index]);
        index += 1;
    }
    set
}

const UNRESERVED: AsciiSet = without(NON_ALPHANUMERIC, b"-_.~");
const COMPONENT: AsciiSet = without(&UNRESERVED, b"!*'()");
const QUERY: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');
const PATH: AsciiSet = QUERY.add(b'?').add(b'`').add(b'{').add(b'}');
const LOGIN: AsciiSet = PATH.add(b'/').add(b':').add(b';').add(b'=').add(b'@').add(b'[').add(b'\\').add(b']').add(b'^').add(b'|');
/// What different writers of URLs escape: all they can, `encodeURIComponent`, RFC 3986, Python, forms, `encodeURI`, and the parts
/// of a URL as browsers do it.
const ESCAPED: &[&AsciiSet] = &[
    NON_ALPHANUMERIC,
    &COMPONENT,
    &UNRESERVED,
    &without(&UNRESERVED, b"/"),
    &without(NON_ALPHANUMERIC, b"*-._"),
    &without(&COMPONENT, b";/?:@&=+$,#"),
    &LOGIN,
    &PATH,
    &QUERY,
];
/// How quotes, apostrophes and slashes are written in HTML.
const HTML: &[(&str, &str, &str)] = &[
    ("\"", "'", "/"),
    ("&quot;", "'", "/"),
    ("&quot;", "&#39;", "/"),
    ("&quot;", "&apos;", "/"),
    ("&#34;", "&#39;", "/"),
    ("&quot;", "&#x27;", "/"),
    ("&quot;", "&#x27;", "&#x2F;"),
];
/// What writers of JSON escape beyond need: nothing; Python: what is not ASCII; Go; Gson; .NET; others: all but letters and digits.
const RARE: &[fn(char) -> bool] = &[
    |_| false,
    |character| !character.is_ascii(),
    |character| "<>&\u{2028}\u{2029}".contains(character),
    |character| "<>&'=\u{2028}\u{2029}".contains(character),
    |character| !character.is_ascii() || "<>&'\"+`\u{7f}".contains(character),
    |character| !character.is_ascii_alphanumeric(),
];

/// Every form in which other programs write a text.
fn encodings(plain: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::from([plain.to_owned(), format!("{plain:?}").trim_matches('"').to_owned()]);
    for set in ESCAPED {
        let upper = utf8_percent_encode(plain, set).to_string();
        let lower = lowercase_escapes(&upper);
        forms.extend([upper.replace("%20", "+"), lower.replace("%20", "+"), upper, lower]);
    }
    let html = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    forms.extend(HTML.iter().map(|(quote, apostrophe, slash)| html.replace('"', quote).replace('\'', apostrophe).replace('/', slash)));
    let once: BTreeSet<String> = json_forms(plain).collect();
    forms.extend(once.iter().flat_map(|form| json_forms(form)));
    forms.extend(once);
    base64_forms(plain.as_bytes(), &mut forms);
    let hex = |upper: bool| plain.bytes().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect::<String>();
    let percent = |digits: &str| digits.as_bytes().chunks(2).flat_map(|pair| [b'%', pair[0], pair[1]]).map(char::from).collect::<String>();
    forms.extend([hex(false), hex(true), percent(&hex(false)), percent(&hex(true))]);
    // A log line of a message of a document: what most writers make of it.
    let quoted = |text: &str| json_form(text, |_| false, false, false);
    forms.insert(quoted(&quoted(&quoted(plain))));
    forms
}

fn lowercase_escapes(text: &str) -> String {
    let (first, rest) = text.split_once('%').unwrap_or((text, ""));
    let piece = |piece: &str| {
        piece.split_at_checked(2).map_or(format!("%{piece}"), |(digits, rest)| format!("%{}{rest}", digits.to_ascii_lowercase()))
    };
    if first.len() == text.len() { text.to_owned() } else { first.to_owned() + &rest.split('%').map(piece).collect::<String>() }
}

fn json_forms(plain: &str) -> impl Iterator<Item = String> {
    RARE.iter().flat_map(move |rare| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(slash, upper)| json_form(plain, *rare, slash, upper))
    })
}

fn json_form(plain: &str, rare: fn(char) -> bool, slash: bool, upper: bool) -> String {
    let mut form = String::new();
    for character in plain.chars() {
        let short = match character {
            '"' | '\\' => Some(character),
            '/' if slash => Some('/'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            _ => None,
        };
        if let Some(short) = short.filter(|_| !rare(character)) {
            form.extend(['\\', short]);
        } else if rare(character) || character < ' ' {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = if upper { write!(form, "\\u{unit:04X}") } else { write!(form, "\\u{unit:04x}") };
            }
        } else {
            form.push(character);
        }
    }
    form
}

/// On its own, and within a larger base64 text: there, only those digits are certain that hold nothing of the neighbours.
fn base64_forms(plain: &[u8], forms: &mut BTreeSet<String>) {
    forms.extend([STANDARD.encode(plain), STANDARD_NO_PAD.encode(plain), URL_SAFE.encode(plain), URL_SAFE_NO_PAD.encode(plain)]);
    for before in 0..3 {
        let shifted = [&[0; 3][..before], plain].concat();
        let certain = (before * 8).div_ceil(6)..shifted.len() * 8 / 6;
        forms.extend([STANDARD_NO_PAD.encode(&shifted)[certain.clone()].to_owned(), URL_SAFE_NO_PAD.encode(&shifted)[certain].to_owned()]);
    }
}
