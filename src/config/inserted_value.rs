//! Values that the redactor may have to remove from texts. Each value has a source, which decides whether it is redacted.

use secrecy::{ExposeSecret as _, SecretString};

use crate::redact::is_redactable;

/// A value that was inserted into a server's settings.
#[derive(Debug)]
pub struct InsertedValue {
    pub value: SecretString,
    pub source: Source,
}

/// The source of an inserted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A person's answer, a text that contains an answer, or a value of a field that is always secret.
    Confidential,
    /// A variable or a file. The text has the names under which the value is known, separated by spaces (`env.DB_PASSWORD`). The redactor
    /// judges by these names whether the value is secret.
    Named(String),
}

impl InsertedValue {
    /// Returns whether the value must be redacted. Typed secrets may look like ordinary words, so only their length decides. The redactor checks
    /// the length.
    ///
    /// ```
    /// use hyperlight_mcp::config::{InsertedValue, Source};
    /// let is_redactable = |source, value: &str| InsertedValue { value: value.into(), source }.is_redactable();
    /// assert!(is_redactable(Source::Confidential, "swordfish"));
    /// assert!(is_redactable(Source::Named("env.DB_PASSWORD".to_owned()), "swordfish"));
    /// assert!(!is_redactable(Source::Named("env.NODE_ENV".to_owned()), "production"));
    /// ```
    #[must_use]
    pub fn is_redactable(&self) -> bool {
        match &self.source {
            Source::Confidential => true,
            Source::Named(names) => is_redactable(names, self.value.expose_secret()),
        }
    }
}
