//! Redacts errors: no text of an error leaves the crate unredacted.

use std::path::PathBuf;

use super::{AuthorizationLack, Error, Words};
use crate::redact::Redactor;
use crate::text::Problem;

/// A part of an error that can be redacted. Every type of text goes through the redactor; none is left unchanged.
trait Redact {
    fn redact_with(self, redactor: &Redactor) -> Self;
}

impl Redact for Words {
    fn redact_with(self, redactor: &Redactor) -> Self {
        self.open(redactor)
    }
}

impl Redact for String {
    fn redact_with(self, redactor: &Redactor) -> Self {
        redactor.readable(&self)
    }
}

impl Redact for PathBuf {
    fn redact_with(self, redactor: &Redactor) -> Self {
        redactor.readable(&self.display().to_string()).into()
    }
}

impl Redact for Problem {
    fn redact_with(self, redactor: &Redactor) -> Self {
        let Self { line, column, field, problem } = self;
        Self { line, column, field: field.redact_with(redactor), problem: problem.redact_with(redactor) }
    }
}

impl<T: Redact> Redact for Vec<T> {
    fn redact_with(self, redactor: &Redactor) -> Self {
        self.into_iter().map(|part| part.redact_with(redactor)).collect()
    }
}

impl<T: Redact> Redact for Option<T> {
    fn redact_with(self, redactor: &Redactor) -> Self {
        self.map(|part| part.redact_with(redactor))
    }
}

/// Implements [`Redact`] for types that hold no untrusted text: fixed texts and figures.
macro_rules! unchanged_by_redaction {
    ($($kind:ty),*) => { $(impl Redact for $kind {
        fn redact_with(self, _redactor: &Redactor) -> Self {
            self
        }
    })* };
}
unchanged_by_redaction!(&'static str, usize, u64, u32, i64, AuthorizationLack);

/// Redacts a field. A field named `server` is a name of the config and stays; any other is redacted.
macro_rules! redact_field {
    (server $value:ident $redactor:ident) => {
        $value
    };
    ($field:ident $value:ident $redactor:ident) => {
        $value.redact_with($redactor)
    };
}

/// Destructures the error and builds it anew, so that no variant and no field can be forgotten or left unredacted.
macro_rules! redacted {
    ($error:expr, $redactor:ident, $($variant:ident { $($field:ident),* })*) => {
        match $error {
            $(Error::$variant { $($field),* } => Error::$variant { $($field: redact_field!($field $field $redactor)),* },)*
            Error::Internal(problem) => Error::Internal(problem.redact_with($redactor)),
            Error::NoHandler => Error::NoHandler,
            Error::NeverSettles => Error::NeverSettles,
            Error::PluginOff => Error::PluginOff,
        }
    };
}

impl Error {
    /// Returns the error with its texts redacted and sanitised: they contain no invisible text and no terminal control. Names of servers
    /// stay, as they are names of the config.
    // Long: it names each variant and its fields, so that a new one cannot be forgotten.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        redacted! { self, redactor,
            InvalidOption { method, problem }
            ConfigUnreadable { path, problem }
            ConfigSyntax { file, line, column, problem }
            ConfigInvalid { file, problems }
            TooManyServers { count, limit }
            UnknownServer { server, place, known }
            NotApproved { server, reason }
            NotEnabled { server }
            ServerDisabled { server }
            DisabledByPerson { server }
            OperatorOnly { what, problem }
            DigestChanged { server }
            UnknownTool { server, tool, meant, known }
            UnknownModule { name, meant, known }
            ToolChanged { server, tool }
            ToolVanished { server, tool }
            UnknownResource { server, uri, known }
            ResourceChanged { server, uri }
            UnknownPrompt { server, prompt, known }
            PromptChanged { server, prompt }
            CallDenied { server, tool, reason }
            UnsupportedTransport { server, problem }
            InsecureUrl { server, origin }
            SpawnFailed { server, command, problem }
            ConnectFailed { server, problem }
            ConnectTimeout { server, limit_ms, hint }
            TooManyConnections { server, limit, holders }
            ServerUnavailable { server, failures, retry_in_ms }
            ServerExited { server, during, status, stderr }
            RequestFailed { server, tool, problem }
            CallTimeout { server, tool, limit_ms, limit_name }
            AuthorizationRequired { server, issuer, lack }
            AuthorizationFailed { server, issuer, problem }
            Protocol { server, tool, code, message }
            ResponseTooLarge { what, size, limit, limit_name }
            OutputSchema { server, tool, problem }
            ArgumentsTooLarge { what, size, limit }
            InvalidArguments { what, problem }
            InputTooLarge { size, limit }
            ValueTooLarge { size, limit }
            NotSaved { id, max_age_ms, max_bytes }
            CodeTooLarge { size, limit }
            CodeSyntax { message, line, column }
            GuestThrew { name, message, stack, line, column }
            InvalidValue { problem }
            RunTimeout { limit_ms }
            Aborted { what }
            Closed { what }
            GuestMemory { limit }
            GuestCrashed { problem }
            NoHypervisor { problem, remedy }
            NameTaken { name, problem }
            HostFunction { function, message }
            ApprovalStore { path, problem }
            Busy { what, limit }
            PluginNotApproved { problem }
            Io { what, problem }
        }
    }
}

#[cfg(test)]
impl Error {
    /// Opens the error's texts, for tests without secrets.
    pub(crate) fn opened(self) -> Self {
        self.redacted(&Redactor::new(None, None))
    }

    /// Returns the full message, for tests.
    pub(crate) fn in_full(&self) -> String {
        self.clone().opened().to_string()
    }
}
