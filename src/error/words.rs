//! Untrusted text in errors.

use std::fmt;

use crate::redact::Redactor;

/// Bytes that are kept of a text beyond its limit. Redaction removes the end of a cut text, as it may be the beginning of a secret.
const SPARE_BYTES: usize = 16 * 1024;

/// The mark at the end of a cut text.
const CUT_MARK: &str = "… [cut]";

/// Text of a server, a guest, an authorization server or the system. It is closed until redaction opens it: no other code can read it, and
/// printing it earlier shows nothing of it.
///
/// ```
/// use hyperlight_mcp::error::Words;
/// use hyperlight_mcp::redact::Redactor;
/// let redactor = Redactor::new(None, None);
/// redactor.add([&"correct-horse".to_owned().into()]);
/// let words = Words::from("the token correct-horse has expired");
/// assert_eq!(words.to_string(), "[not redacted]");
/// assert_eq!(words.open(&redactor).to_string(), "the token [redacted] has expired");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Words(Box<State>);

#[derive(Clone, PartialEq, Eq)]
enum State {
    /// Not redacted yet. With a `limit`, the text was cut, and at most `limit` bytes of the redacted text are shown.
    Closed {
        text: String,
        limit: Option<usize>,
    },
    Open(String),
}

impl Words {
    /// Boxed, to keep errors small: an error is moved far more often than it is printed.
    fn new(state: State) -> Self {
        Self(Box::new(state))
    }

    /// Returns the beginning of a text with more than `limit` bytes. At most `limit` bytes and a mark are shown.
    ///
    /// An attacker may choose the position of the cut, by the text before a secret or by a guess at its end. So redaction comes before the
    /// cut, and the text near an unread end is removed as well.
    #[must_use]
    pub fn cut(text: &str, limit: usize) -> Self {
        if text.len() <= limit {
            return text.into();
        }
        let end = text.floor_char_boundary(limit.saturating_add(SPARE_BYTES));
        Self::new(State::Closed { text: text[..end].to_owned(), limit: Some(limit) })
    }

    /// Returns a text that is the beginning of a longer one, whose rest was never read.
    #[must_use]
    pub fn beginning(text: impl Into<String>, limit: usize) -> Self {
        Self::new(State::Closed { text: text.into(), limit: Some(limit) })
    }

    /// Puts trusted text before this one.
    #[must_use]
    pub fn after(self, ours: &str) -> Self {
        let before = |text: String| ours.to_owned() + &text;
        Self::new(match *self.0 {
            State::Closed { text, limit } => State::Closed { text: before(text), limit: limit.map(|limit| limit + ours.len()) },
            State::Open(text) => State::Open(before(text)),
        })
    }

    /// Redacts and sanitises the text: it then has no secrets, no invisible text and no terminal control, and can be printed.
    #[must_use]
    pub fn open(self, redactor: &Redactor) -> Self {
        Self::new(State::Open(match *self.0 {
            State::Closed { text, limit: Some(limit) } => redactor.readable_cut(&text, limit) + CUT_MARK,
            // An open text is redacted again: the redactor may know more secrets now.
            State::Closed { text, limit: None } | State::Open(text) => redactor.readable(&text),
        }))
    }

    /// Returns the full text, for tests without secrets.
    #[cfg(test)]
    pub(crate) fn in_full(&self) -> String {
        self.clone().open(&Redactor::new(None, None)).to_string()
    }

    /// Returns the text as it is printed if `secret` is a secret, for tests.
    #[cfg(test)]
    pub(crate) fn without(&self, secret: &str) -> String {
        let redactor = Redactor::new(None, None);
        redactor.add([&secret.to_owned().into()]);
        self.clone().open(&redactor).to_string()
    }

    /// Returns whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (State::Closed { text, .. } | State::Open(text)) = &*self.0;
        text.is_empty()
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self::new(State::Closed { text, limit: None })
    }
}

impl From<&str> for Words {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match &*self.0 {
            State::Open(text) => text,
            State::Closed { text, .. } if text.is_empty() => "",
            State::Closed { .. } => "[not redacted]",
        })
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{self}\"")
    }
}
