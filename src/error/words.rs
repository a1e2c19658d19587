//! Text that others have said.

use std::fmt;

use crate::redact::Redactor;

/// So much more than is shown is kept of a text that is too long: redaction takes away its end, which may be a secret's beginning.
const SPARE_BYTES: usize = 16 * 1024;

/// What stands where a text was cut.
const CUT_MARK: &str = "… [cut]";

/// Words of a server, a guest, an authorization server or the system. They are closed until redaction opens them: nothing else can read
/// them, and whoever prints them too early prints none of them.
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
    /// `limit`: the text was cut for its length; of what redaction leaves, so many bytes are shown.
    Closed {
        text: String,
        limit: Option<usize>,
    },
    Open(String),
}

impl Words {
    /// Boxed: an error is handed about far more often than it is told.
    fn new(state: State) -> Self {
        Self(Box::new(state))
    }

    /// Of a text with more than `limit` bytes, the beginning. What is shown has at most `limit` bytes, and a mark.
    ///
    /// Where the cut falls may be for others to choose: by what they put before a secret, or by a guess at its end. So redaction comes
    /// before the cut, and of what was cut away unread, the neighbourhood goes as well, whatever it holds.
    #[must_use]
    pub fn cut(text: &str, limit: usize) -> Self {
        if text.len() <= limit {
            return text.into();
        }
        let end = text.floor_char_boundary(limit.saturating_add(SPARE_BYTES));
        Self::new(State::Closed { text: text[..end].to_owned(), limit: Some(limit) })
    }

    /// The beginning of a text of which the rest was never read.
    #[must_use]
    pub fn beginning(text: impl Into<String>, limit: usize) -> Self {
        Self::new(State::Closed { text: text.into(), limit: Some(limit) })
    }

    /// These words after some of ours.
    #[must_use]
    pub fn after(self, ours: &str) -> Self {
        let before = |text: String| ours.to_owned() + &text;
        Self::new(match *self.0 {
            State::Closed { text, limit } => State::Closed { text: before(text), limit: limit.map(|limit| limit + ours.len()) },
            State::Open(text) => State::Open(before(text)),
        })
    }

    /// Without secrets, and with nothing in them that hides or drives a terminal: from now on these can be printed.
    #[must_use]
    pub fn open(self, redactor: &Redactor) -> Self {
        Self::new(State::Open(match *self.0 {
            State::Closed { text, limit: Some(limit) } => redactor.readable_cut(&text, limit) + CUT_MARK,
            // There may be more secrets than when they were opened.
            State::Closed { text, limit: None } | State::Open(text) => redactor.readable(&text),
        }))
    }

    /// All of them, for tests: there are no secrets in them.
    #[cfg(test)]
    pub(crate) fn in_full(&self) -> String {
        self.clone().open(&Redactor::new(None, None)).to_string()
    }

    /// These words as they are told where this is a secret, for tests.
    #[cfg(test)]
    pub(crate) fn without(&self, secret: &str) -> String {
        let redactor = Redactor::new(None, None);
        redactor.add([&secret.to_owned().into()]);
        self.clone().open(&redactor).to_string()
    }

    /// No words at all.
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
