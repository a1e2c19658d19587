//! Text that was not written by this crate. It must be redacted before it leaves the crate.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::redact::Redactor;

/// Number of bytes beyond the limit of a text that are stored. Redaction removes the end of a cut text, because the end may be the
/// beginning of a secret.
const SPARE_BYTES: usize = 16 * 1024;

/// The mark at the end of a cut text.
const CUT_MARK: &str = "… [cut]";

/// Text from a server, a guest, a file, an authorization server or the operating system.
///
/// Only [`ForeignText::open`] returns the text, after redacting it. There is intentionally no other way to read the text: the type has no
/// `Display`, no `Deref` and no `AsRef`, and `Debug` prints only the length.
///
/// ```
/// use hyperlight_mcp::error::ForeignText;
/// use hyperlight_mcp::redact::Redactor;
/// let redactor = Redactor::new(None, None);
/// redactor.add([&"correct-horse".to_owned().into()]);
/// let text = ForeignText::from("the token correct-horse has expired");
/// assert_eq!(format!("{text:?}"), "ForeignText(35 bytes)");
/// assert_eq!(text.open(&redactor), "the token [redacted] has expired");
/// ```
///
/// Code that displays the text before redaction does not compile:
///
/// ```compile_fail,E0277
/// let text = hyperlight_mcp::error::ForeignText::from("correct-horse");
/// println!("{text}");
/// ```
///
/// ```compile_fail,E0308
/// let text = hyperlight_mcp::error::ForeignText::from("correct-horse");
/// let readable: &str = &text;
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignText {
    text: String,
    /// The limit of a text that was cut, in bytes. At most this number of bytes of the redacted text is shown, followed by a mark. `None`
    /// if the text is complete.
    limit: Option<usize>,
    /// Text of this crate that follows the foreign text. It is never cut.
    own_end: String,
}

impl ForeignText {
    /// Creates a text from `text`. If it has more than `limit` bytes, at most `limit` bytes and a mark are shown.
    ///
    /// An attacker may choose the position of the cut, for example by placing a text before a secret, or by guessing the end of the secret.
    /// So the text is redacted before it is cut. If the end of the text was not read, the text near that end is removed as well.
    #[must_use]
    pub fn cut(text: &str, limit: usize) -> Self {
        if text.len() <= limit {
            return text.into();
        }
        let end = text.floor_char_boundary(limit.saturating_add(SPARE_BYTES));
        Self { text: text[..end].to_owned(), limit: Some(limit), own_end: String::new() }
    }

    /// Creates a text that is the beginning of a longer text whose rest was never read.
    #[must_use]
    pub fn beginning(text: impl Into<String>, limit: usize) -> Self {
        Self { text: text.into(), limit: Some(limit), own_end: String::new() }
    }

    /// Puts text of this crate before the foreign text.
    #[must_use]
    pub fn after(self, own: &str) -> Self {
        Self { text: own.to_owned() + &self.text, limit: self.limit.map(|limit| limit + own.len()), own_end: self.own_end }
    }

    /// Puts text of this crate after the foreign text.
    #[must_use]
    pub fn before(self, own: &str) -> Self {
        Self { own_end: self.own_end + own, ..self }
    }

    /// Redacts and sanitises the text. The result contains no secrets, no invisible text and no control sequences for terminals.
    #[must_use]
    pub fn open(&self, redactor: &Redactor) -> String {
        match self.limit {
            Some(limit) => redactor.readable_cut(&self.text, limit) + CUT_MARK + &redactor.readable(&self.own_end),
            None if self.own_end.is_empty() => redactor.readable(&self.text),
            None => redactor.readable(&(self.text.clone() + &self.own_end)),
        }
    }

    /// Returns whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.own_end.is_empty()
    }

    /// Returns the full text. Only for tests without secrets.
    #[cfg(test)]
    pub(crate) fn in_full(&self) -> String {
        self.open(&Redactor::new(None, None))
    }

    /// Returns the text with `secret` redacted. Only for tests.
    #[cfg(test)]
    pub(crate) fn without(&self, secret: &str) -> String {
        let redactor = Redactor::new(None, None);
        redactor.add([&secret.to_owned().into()]);
        self.open(&redactor)
    }
}

impl From<String> for ForeignText {
    fn from(text: String) -> Self {
        Self { text, limit: None, own_end: String::new() }
    }
}

impl From<&str> for ForeignText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for ForeignText {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<&Path> for ForeignText {
    fn from(path: &Path) -> Self {
        path.display().to_string().into()
    }
}

impl From<PathBuf> for ForeignText {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}

impl fmt::Debug for ForeignText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ForeignText({} bytes)", self.text.len())
    }
}
