//! The types of text in the fields of [`Error`](super::Error). An error with a field of type `String` does not compile, because redaction
//! is not defined for `String` (`redaction.rs`). The names of servers are the only exception.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use super::ForeignText;
use crate::redact::Redactor;
use crate::text::Problem;

/// The placeholder that is shown for foreign text in an error that was not redacted.
const NOT_REDACTED: &str = "[not redacted]";

/// Foreign text as a field of an error. It cannot be read before the error is redacted.
///
/// The type has no `Display`, so a foreign text cannot be formatted into another text by mistake. [`ErrorText::shown`] returns the redacted
/// text. Before redaction, it returns a placeholder.
///
/// ```compile_fail,E0277
/// println!("{}", hyperlight_mcp::error::ErrorText::from("correct-horse"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorText(Box<State>);

#[derive(Clone, PartialEq, Eq)]
enum State {
    Closed(ForeignText),
    Open(String),
}

impl ErrorText {
    /// The state is boxed to keep errors small, because an error is moved far more often than it is printed.
    fn new(state: State) -> Self {
        Self(Box::new(state))
    }

    /// Creates a text that can be read before redaction. Use this function only for texts of this crate, and for text from the caller who
    /// gets the error. The text is still redacted later.
    #[must_use]
    pub fn own(text: impl Into<String>) -> Self {
        Self::new(State::Open(text.into()))
    }

    /// Returns the redacted text, or a placeholder if the error was not redacted.
    #[must_use]
    pub fn shown(&self) -> &str {
        match &*self.0 {
            State::Open(text) => text,
            State::Closed(text) if text.is_empty() => "",
            State::Closed(_) => NOT_REDACTED,
        }
    }

    /// Puts text of this crate before this text.
    #[must_use]
    pub fn after(self, own: &str) -> Self {
        Self::new(match *self.0 {
            State::Closed(text) => State::Closed(text.after(own)),
            State::Open(text) => State::Open(own.to_owned() + &text),
        })
    }

    /// Puts text of this crate after this text.
    #[must_use]
    pub fn before(self, own: &str) -> Self {
        Self::new(match *self.0 {
            State::Closed(text) => State::Closed(text.before(own)),
            State::Open(text) => State::Open(text + own),
        })
    }

    /// Redacts and sanitises the text. A text that was already redacted is redacted again, because the redactor may know more secrets now.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        Self::new(State::Open(match *self.0 {
            State::Closed(text) => text.open(redactor),
            State::Open(text) => redactor.readable(&text),
        }))
    }

    /// Returns the full text. Only for tests without secrets.
    #[cfg(test)]
    pub(crate) fn in_full(&self) -> String {
        self.clone().redacted(&Redactor::new(None, None)).shown().to_owned()
    }
}

impl<T: Into<ForeignText>> From<T> for ErrorText {
    fn from(text: T) -> Self {
        Self::new(State::Closed(text.into()))
    }
}

impl fmt::Debug for ErrorText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            State::Closed(text) => text.fmt(formatter),
            State::Open(text) => text.fmt(formatter),
        }
    }
}

/// The problems of a config or an environment file, as a field of an error. They cannot be read before the error is redacted, because a
/// problem quotes names from the file.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorProblems {
    problems: Vec<Problem>,
    is_open: bool,
}

impl ErrorProblems {
    /// Returns the list of the file's problems. Returns a placeholder if the error was not redacted.
    #[must_use]
    pub fn list(&self, file: &ErrorText) -> String {
        if self.is_open { Problem::list(file.shown(), &self.problems) } else { format!("{}: {NOT_REDACTED}", file.shown()) }
    }

    /// Returns the first problems, and one more that counts the others if there are some.
    #[must_use]
    pub(crate) fn first(mut self, most: usize) -> Self {
        let more = self.problems.len().saturating_sub(most);
        self.problems.truncate(most);
        self.problems.extend((more > 0).then(|| Problem::new("", None, format!("{more} more problems"))));
        self
    }

    /// Redacts and sanitises every text of the problems.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        let opened = |problem| {
            let Problem { line, column, field, problem } = problem;
            Problem { line, column, field: redactor.readable(&field), problem: redactor.readable(&problem) }
        };
        Self { problems: self.problems.into_iter().map(opened).collect(), is_open: true }
    }

    /// Returns the problems. Only for tests without secrets.
    #[cfg(test)]
    pub(crate) fn in_full(&self) -> Vec<Problem> {
        self.problems.clone()
    }
}

impl From<Vec<Problem>> for ErrorProblems {
    fn from(problems: Vec<Problem>) -> Self {
        Self { problems, is_open: false }
    }
}

impl fmt::Debug for ErrorProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_open { self.problems.fmt(formatter) } else { write!(formatter, "ErrorProblems({} problems)", self.problems.len()) }
    }
}

/// Text of this crate as a field of an error. It can be read before redaction, and is still redacted later.
///
/// A field has this type if it contains sentences of this crate, names that the config allows, numbers, or text from the caller who gets
/// the error. Text from any other source needs [`ErrorText`].
#[derive(Clone, PartialEq, Eq)]
pub struct OwnText(String);

impl OwnText {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Redacts and sanitises the text.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        Self(redactor.readable(&self.0))
    }
}

impl From<String> for OwnText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for OwnText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Deref for OwnText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for OwnText {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for OwnText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for OwnText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for OwnText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for OwnText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
