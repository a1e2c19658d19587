//! Removes secrets and the paths of the host's folders from every text that leaves the crate.
//!
//! An attacker may write a text and read its redacted form. The attacker must not learn a secret in this way. Therefore only complete forms
//! of a secret are replaced. A text that was cut also loses some bytes at its end, and their number does not depend on the text.

mod arguments;
mod base64;
mod composite;
mod content;
mod fingerprint;
mod forms;
mod kept;
mod passwords;
mod paths;
mod reader;
mod search;
mod secret_rules;
mod settings;
mod stream;

use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::Value as Json;

use self::kept::Kept;
use self::paths::Folders;
use self::search::Known;
use crate::text::{sanitise_json, sanitise_line, sanitise_text, visible};

pub use arguments::secrets_of_arguments;
pub use composite::secrets_within;
pub use kept::SecretHolder;
pub(crate) use passwords::passwords_of_words;
pub use reader::WrittenPaths;
pub(crate) use secret_rules::{is_key_name, is_known_token, is_plain, is_secret_name, is_secret_segment};
pub use secret_rules::{is_redactable, is_secret};
pub(crate) use stream::{Replacements, SecretStream};

/// Text that replaces a secret.
const MARK: &str = "[redacted]";

/// Maximum number of redaction rounds. More than one may be needed, because a replacement joins the texts around it. This seldom forms a
/// new path or secret.
const ROUNDS: usize = 4;

/// Maximum depth of JSON, which is also the limit of the JSON parser. Deeper lists and objects are replaced completely.
const JSON_DEPTH: usize = 128;

/// Minimum number of bytes that are removed from the end of a text that was cut.
const LEAST_TAIL: usize = 1024;

/// Redactor that removes known secrets, in all forms that a text may contain. It also shortens the paths of folders that identify the
/// host's user.
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
    /// The search data. New data is built without holding this lock, so no search has to wait for it.
    known: RwLock<Arc<Known>>,
    kept: Mutex<Kept>,
    /// Lock that is held while new search data is built.
    building: Mutex<()>,
    folders: Folders,
}

/// The secrets that a redactor knew at one moment.
pub(crate) struct RedactorState(Arc<Known>);

impl RedactorState {
    /// Returns whether the redactor knew the same secrets at both moments.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").field("secrets", &self.known().count()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Makes a redactor that knows no secrets. A folder that is not absolute is ignored, and so is the root folder.
    #[must_use]
    pub fn new(home: Option<&Path>, workspace: Option<&Path>) -> Self {
        Self { known: RwLock::default(), kept: Mutex::default(), building: Mutex::default(), folders: Folders::new(home, workspace) }
    }

    /// Returns the secrets that are known now, as a value that can be compared with a later one.
    pub(crate) fn state(&self) -> RedactorState {
        RedactorState(self.known())
    }

    /// Redacts these secrets from now on, for ever. Secrets of fewer than eight characters are ignored. When this method returns, the
    /// secrets are redacted. So add a secret before it is used. Searches in other threads do not have to wait. For secrets that another
    /// program issues, see [`Redactor::holder`].
    pub fn add<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretString>) {
        self.keep(None, &secrets.into_iter().collect::<Vec<_>>());
    }

    /// Returns the text with its secrets replaced and its paths shortened. Redacting the result again changes nothing.
    ///
    /// A secret is only replaced if the text contains it completely. So cut a text after redacting it, or pass on a
    /// [`ForeignText`](crate::error::ForeignText), which records that it was cut.
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

    /// Returns the text with its secrets replaced, but with complete paths. Used for texts with paths that somebody has to use or to
    /// decide about.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::redact::Redactor::new(None, None);
    /// redactor.add([&"correct-horse".to_owned().into()]);
    /// assert_eq!(redactor.without_secrets("/srv/data/prod/db?key=correct-horse"), "/srv/data/prod/db?key=[redacted]");
    /// ```
    #[must_use]
    pub fn without_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known();
        let mut text = Cow::Borrowed(text);
        for _ in 0..ROUNDS {
            let Some(next) = known.blank(&text) else { break };
            text = Cow::Owned(next);
        }
        text
    }

    /// Redacts every text and key in a JSON value. Also replaces numbers that are secrets.
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

    /// Returns a JSON value in which secrets are replaced in all texts, keys and numbers. Paths are not shortened. Used for answers that
    /// a model reads.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::redact::Redactor::new(None, None);
    /// redactor.add([&"0123456789".to_owned().into()]);
    /// let answer = serde_json::json!({ "text": "/srv/data/prod/0123456789" });
    /// assert_eq!(redactor.json_without_secrets(&answer), serde_json::json!({ "text": "/srv/data/prod/[redacted]" }));
    /// ```
    #[must_use]
    pub fn json_without_secrets(&self, json: &Json) -> Json {
        changed(json, JSON_DEPTH, &|text| self.without_secrets(text))
    }

    /// Returns a text that is safe to show. It contains no terminal control sequences, no invisible characters and no secrets. A secret
    /// that is divided by invisible characters is replaced too. Every text that is both sanitised and redacted goes through this method,
    /// [`Redactor::readable_text`], [`Redactor::readable_line`] or `readable_question`.
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

    /// Returns a readable text that is also harmless within a comment or a code span. The text is cut to `max_chars` characters.
    #[must_use]
    pub fn readable_text(&self, text: &str, max_chars: usize) -> String {
        // The text is already sanitised, so this call only cuts it.
        sanitise_text(&self.sanitised(text, |text| sanitise_text(text, usize::MAX)), max_chars)
    }

    /// Returns a readable text on one line, cut to `max_chars` characters.
    #[must_use]
    pub fn readable_line(&self, text: &str, max_chars: usize) -> String {
        sanitise_line(&self.sanitised(text, |text| sanitise_line(text, usize::MAX)), max_chars)
    }

    /// Returns the text of a question in the same form as [`Redactor::readable_text`], but with complete paths. With shortened paths, two
    /// different paths could look the same to the person who decides.
    pub(crate) fn readable_question(&self, text: &str, max_chars: usize) -> String {
        let sanitised = sanitise_text(&self.without_secrets(text), usize::MAX);
        sanitise_text(&self.without_secrets(&sanitised), max_chars)
    }

    /// Makes every text and key in a JSON value readable. Each is cut to `max_chars` characters.
    #[must_use]
    pub fn readable_json(&self, json: &Json, max_chars: usize) -> Json {
        let sanitised = sanitise_json(&self.redact_json(json), usize::MAX);
        sanitise_json(&self.redact_json(&sanitised), max_chars)
    }

    /// Applies [`Redactor::readable`] to every text and key in a JSON value.
    #[must_use]
    pub fn visible_json(&self, json: &Json) -> Json {
        changed(json, JSON_DEPTH, &|text| self.readable(text).into())
    }

    /// Returns the readable form of a text that was already cut because of its length. The last bytes of the text are removed, because
    /// they may be the beginning of a secret. Their number only depends on the forms of the secrets, never on the text. At most `limit`
    /// bytes of the rest are returned.
    pub(crate) fn readable_cut(&self, text: &str, limit: usize) -> String {
        let mut text = self.readable(text);
        let tail = self.known().longest().max(LEAST_TAIL).next_power_of_two();
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(tail).min(limit)));
        text
    }

    /// Redacts a text both before and after sanitising it. Sanitising can join the parts of a divided secret. It can also change a secret
    /// so that it is no longer found.
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

/// Applies `change` to every text and key. If the text form of a number would change, the number is replaced by the changed text.
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
                let key = distinct(change(key).into_owned(), all.len(), |key| all.contains_key(key));
                all.insert(key, changed(value, depth - 1, change));
            }
            Json::Object(all)
        }
    }
}

/// Returns the key of the field that follows `count` fields. If a field has the key already, adds a number to the key, because two keys that
/// were different may be equal after redaction. The number is added again while there is a field with the numbered key.
pub(crate) fn distinct(mut key: String, count: usize, is_used: impl Fn(&str) -> bool) -> String {
    while is_used(&key) {
        let _ = write!(key, " ({count})");
    }
    key
}
