//! An error without what must not leave the crate.

use std::path::PathBuf;

use super::{AuthorizationLack, Error, Words};
use crate::redact::Redactor;
use crate::text::Problem;

/// A part of an error that can be told without what must not leave. Text can only be that by going through the redactor: there is no
/// type of text that stays as it is.
trait Told {
    fn told(self, redactor: &Redactor) -> Self;
}

impl Told for Words {
    fn told(self, redactor: &Redactor) -> Self {
        self.open(redactor)
    }
}

impl Told for String {
    fn told(self, redactor: &Redactor) -> Self {
        redactor.readable(&self)
    }
}

impl Told for PathBuf {
    fn told(self, redactor: &Redactor) -> Self {
        redactor.readable(&self.display().to_string()).into()
    }
}

impl Told for Problem {
    fn told(self, redactor: &Redactor) -> Self {
        let Self { line, column, field, problem } = self;
        Self { line, column, field: field.told(redactor), problem: problem.told(redactor) }
    }
}

impl<T: Told> Told for Vec<T> {
    fn told(self, redactor: &Redactor) -> Self {
        self.into_iter().map(|part| part.told(redactor)).collect()
    }
}

impl<T: Told> Told for Option<T> {
    fn told(self, redactor: &Redactor) -> Self {
        self.map(|part| part.told(redactor))
    }
}

/// Fixed texts of ours, and figures.
macro_rules! told_as_they_are {
    ($($kind:ty),*) => { $(impl Told for $kind {
        fn told(self, _redactor: &Redactor) -> Self {
            self
        }
    })* };
}
told_as_they_are!(&'static str, usize, u64, u32, i64, AuthorizationLack);

/// A field of the name `server` holds a name of the config and stays. Any other is told.
macro_rules! told {
    (server $value:ident $redactor:ident) => {
        $value
    };
    ($field:ident $value:ident $redactor:ident) => {
        $value.told($redactor)
    };
}

/// Takes the error apart and puts it together again. No variant and no field can be left out, and none can pass by the redactor.
macro_rules! redacted {
    ($error:expr, $redactor:ident, $($variant:ident { $($field:ident),* })*) => {
        match $error {
            $(Error::$variant { $($field),* } => Error::$variant { $($field: told!($field $field $redactor)),* },)*
            Error::Internal(problem) => Error::Internal(problem.told($redactor)),
            Error::NoHandler => Error::NoHandler,
            Error::NeverSettles => Error::NeverSettles,
            Error::PluginOff => Error::PluginOff,
        }
    };
}

impl Error {
    /// The same error as it may be told: its texts are redacted, and nothing in them hides or drives a terminal. Names of servers stay:
    /// they are the config's.
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
    /// Opened, for tests: there are no secrets in it.
    pub(crate) fn opened(self) -> Self {
        self.redacted(&Redactor::new(None, None))
    }

    /// All that it says.
    pub(crate) fn in_full(&self) -> String {
        self.clone().opened().to_string()
    }
}
