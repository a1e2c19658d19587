//! Values that are kept for redaction, each with what tells whether it is worth blanking.

use secrecy::{ExposeSecret as _, SecretString};

use crate::redact::is_redactable;

/// A value that was put into a server's settings.
#[derive(Debug)]
pub struct Learnt {
    pub value: SecretString,
    pub source: Source,
}

/// The place where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A person's answer, a text with such an answer in it, or a field that holds nothing but a secret.
    Confidential,
    /// A variable or a file, with the names under which the value is known, apart by blanks.
    Named(String),
}

impl Learnt {
    /// Returns whether the value is blanked. A person types secrets that look like any word, so of those only the length decides, which the
    /// redactor looks at itself.
    ///
    /// ```
    /// use hyperlight_mcp::config::{Learnt, Source};
    /// let is_redactable = |source, value: &str| Learnt { value: value.into(), source }.is_redactable();
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
