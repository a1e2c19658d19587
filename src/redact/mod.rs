//! Takes secrets and the host's folders out of text, wherever text leaves the crate.
//!
//! Whoever writes a text and reads what is left of it must not learn a secret by that. So nothing but a whole form of a secret is ever
//! blanked, and a text that was cut loses an end of fixed length, whatever stands there.

mod base64;
mod fingerprint;
mod forms;
mod paths;
mod search;
mod secret_rules;

use parking_lot::RwLock;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::Value as Json;

use self::paths::Folders;
use self::search::Known;
use crate::text::{sanitise_json, sanitise_line, sanitise_text, visible};

pub(crate) use secret_rules::{is_known_token, is_plain, is_secret_name};
pub use secret_rules::{is_redactable, is_secret};

/// Mark in the place of a secret.
const MARK: &str = "[redacted]";

/// Limit of rounds. The seams that one round leaves seldom look like something to shorten or blank.
const ROUNDS: usize = 4;

/// As deep as JSON is read at all; what is deeper is not walked, but blanked.
const JSON_DEPTH: usize = 128;

/// The least end that a text loses which was cut before.
const LEAST_TAIL: usize = 1024;

/// Knows secrets in all forms in which text may hold them, and the folders that say whose computer this is.
///
/// ```
/// use hyperlight_mcp::redact::Redactor;
/// use std::path::Path;
/// let redactor = Redactor::new(Some(Path::new("/home/someone")), Some(Path::new("/home/someone/project")));
/// redactor.add([&"correct horse".to_owned().into()]);
/// assert_eq!(redactor.redact("401 for ?key=correct%20horse"), "401 for ?key=[redacted]");
/// assert_eq!(redactor.redact("401 for ?key=correct%20hors"), "401 for ?key=correct%20hors");
/// assert_eq!(redactor.redact("at /home/someone/project/src/a.js:1:2"), "at ./src/a.js:1:2");
/// assert_eq!(redactor.redact("at /usr/lib/node_modules/x/index.js"), "at …/x/index.js");
/// ```
pub struct Redactor {
    known: RwLock<Arc<Known>>,
    folders: Folders,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").field("secrets", &self.known().count()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Knows no secrets yet. Folders that are not absolute, or the root, are left out.
    #[must_use]
    pub fn new(home: Option<&Path>, workspace: Option<&Path>) -> Self {
        Self { known: RwLock::default(), folders: Folders::new(home, workspace) }
    }

    /// Blanks these from now on. Those of fewer than eight characters are ignored.
    pub fn add<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretString>) {
        let mut known = self.known.write();
        if let Some(more) = known.with(secrets) {
            *known = Arc::new(more);
        }
    }

    /// The text without secrets, and with short paths. Redacting the result again changes nothing.
    ///
    /// A secret is blanked where all of it stands: cut a text after redacting it, or hand on [`ForeignText`](crate::error::ForeignText) that knows of
    /// their cut.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known();
        let mut text = Cow::Borrowed(text);
        for _ in 0..ROUNDS {
            let blanked = known.blank(&text);
            let shortened = self.folders.shorten(blanked.as_deref().unwrap_or(&text));
            let Some(next) = shortened.or(blanked) else { break };
            text = Cow::Owned(next);
        }
        text
    }

    /// The same for every text and key within, and for numbers that are secrets.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::redact::Redactor::new(None, None);
    /// redactor.add([&"0123456789".to_owned().into()]);
    /// assert_eq!(redactor.redact_json(&serde_json::json!({ "pin": ["0123456789", 7] })), serde_json::json!({ "pin": ["[redacted]", 7] }));
    /// ```
    #[must_use]
    pub fn redact_json(&self, json: &Json) -> Json {
        changed(json, JSON_DEPTH, &|text| self.redact(text))
    }

    /// A text as it may be shown: nothing in it drives a terminal or hides, and nothing is a secret, even if only what hid divided it.
    /// Everything that is both sanitised and redacted comes through here or through one of the three that follow.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::redact::Redactor::new(None, None);
    /// redactor.add([&"correct-horse".to_owned().into()]);
    /// assert_eq!(redactor.readable("`correct-\u{200b}horse` is \u{1b}[31mwrong"), "`[redacted]` is wrong");
    /// ```
    #[must_use]
    pub fn readable(&self, text: &str) -> String {
        self.sanitised(text, visible)
    }

    /// Readable, and harmless within a comment or a code span; of at most so many characters.
    #[must_use]
    pub fn readable_text(&self, text: &str, max_chars: usize) -> String {
        // What is sanitised already is only cut by that.
        sanitise_text(&self.sanitised(text, |text| sanitise_text(text, usize::MAX)), max_chars)
    }

    /// The same in one line.
    #[must_use]
    pub fn readable_line(&self, text: &str, max_chars: usize) -> String {
        sanitise_line(&self.sanitised(text, |text| sanitise_line(text, usize::MAX)), max_chars)
    }

    /// The same for every text and key within; each has at most so many characters.
    #[must_use]
    pub fn readable_json(&self, json: &Json, max_chars: usize) -> Json {
        let sanitised = sanitise_json(&self.redact_json(json), usize::MAX);
        sanitise_json(&self.redact_json(&sanitised), max_chars)
    }

    /// Readable, as [`Redactor::readable`] has it, for every text and key within.
    #[must_use]
    pub fn visible_json(&self, json: &Json) -> Json {
        changed(json, JSON_DEPTH, &|text| self.readable(text).into())
    }

    /// Text that was cut for its length, without its last bytes, which may be the beginning of a secret. How many these
    /// are depends on the secrets' forms alone, never on the text. Of the rest, at most `limit` bytes are kept.
    pub(crate) fn readable_cut(&self, text: &str, limit: usize) -> String {
        let mut text = self.readable(text);
        let tail = self.known().longest().max(LEAST_TAIL).next_power_of_two();
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(tail).min(limit)));
        text
    }

    /// Redacts before and after sanitising: some characters that divide a secret go only by it, and some secrets change by it.
    fn sanitised(&self, text: &str, sanitise: impl Fn(&str) -> String) -> String {
        let sanitised = sanitise(&self.redact(text));
        match self.redact(&sanitised) {
            Cow::Borrowed(_) => sanitised,
            Cow::Owned(redacted) => redacted,
        }
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read())
    }
}

/// Every text and key, and numbers that look different as changed text.
fn changed(json: &Json, depth: usize, change: &dyn for<'t> Fn(&'t str) -> Cow<'t, str>) -> Json {
    match json {
        Json::Null | Json::Bool(_) => json.clone(),
        Json::String(text) => change(text).into(),
        Json::Number(number) => {
            let text = number.to_string();
            let redacted = change(&text);
            if redacted == text { json.clone() } else { redacted.into() }
        }
        Json::Array(_) | Json::Object(_) if depth == 0 => MARK.into(),
        Json::Array(items) => items.iter().map(|item| changed(item, depth - 1, change)).collect(),
        Json::Object(fields) => {
            let mut all = serde_json::Map::new();
            for (key, value) in fields {
                let mut key = change(key).into_owned();
                // Two keys may have become one.
                if all.contains_key(&key) {
                    let _ = write!(key, " ({})", all.len());
                }
                all.insert(key, changed(value, depth - 1, change));
            }
            Json::Object(all)
        }
    }
}
