//! Redacts errors before they leave the crate.
//!
//! Two rules ensure that a secret does not leak if somebody forgets this step:
//!
//! - Foreign text in an error is closed ([`ErrorText`], [`ErrorProblems`]). An error that was not redacted shows a placeholder in its place, at
//!   every exit: in Node, at the command line, in the guest, in events and in traces.
//! - [`Redact`] is not implemented for `String`. The macro below names every field of every variant, so a new field that can hold text does
//!   not compile until its author has chosen [`ErrorText`] or [`OwnText`] for it.
//!
//! There could be a second error type that only redaction produces. Then the compiler would also report a forgotten redaction. But this
//! would double the signature of every function between a server and the exits, and a closed field protects the secret just as well.

use super::{Error, ErrorProblems, ErrorText, MissingCallback, OwnText};
use crate::redact::Redactor;

/// A part of an error that can be redacted. The trait is not implemented for `String`, so an error with such a field does not compile.
trait Redact {
    fn redact_with(self, redactor: &Redactor) -> Self;
}

/// Implements [`Redact`] for the text types. All of them go through the redactor.
macro_rules! redacted_text {
    ($($text:ty),*) => { $(impl Redact for $text {
        fn redact_with(self, redactor: &Redactor) -> Self {
            self.redacted(redactor)
        }
    })* };
}
redacted_text!(ErrorText, ErrorProblems, OwnText);

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

impl Redact for Box<Error> {
    fn redact_with(self, redactor: &Redactor) -> Self {
        Self::new((*self).redacted(redactor))
    }
}

/// Implements [`Redact`] for types that contain no untrusted text: fixed texts and numbers.
macro_rules! unchanged_by_redaction {
    ($($kind:ty),*) => { $(impl Redact for $kind {
        fn redact_with(self, _redactor: &Redactor) -> Self {
            self
        }
    })* };
}
unchanged_by_redaction!(&'static str, usize, u64, u32, i64, MissingCallback);

/// Redacts a field. A field named `server` is not changed: it contains the name of a server in the config, or the name that a caller asked
/// for.
macro_rules! redact_field {
    (server $value:ident $redactor:ident) => {
        $value
    };
    ($field:ident $value:ident $redactor:ident) => {
        $value.redact_with($redactor)
    };
}

/// Destructures the error without `..` and builds it again. So a new variant or field does not compile until it is listed.
macro_rules! redacted {
    ($error:expr, $redactor:ident, $($variant:ident { $($field:ident),* })*) => {
        match $error {
            $(Error::$variant { $($field),* } => Error::$variant { $($field: redact_field!($field $field $redactor)),* },)*
            Error::Internal(problem) => Error::Internal(problem.redact_with($redactor)),
            Error::NoHandler => Error::NoHandler,
            Error::NeverSettles => Error::NeverSettles,
            Error::PluginOff => Error::PluginOff,
            Error::BootNoTools => Error::BootNoTools,
        }
    };
}

impl Error {
    /// Returns the error with its texts redacted and sanitised, so that they can be read: they contain no secrets, no invisible text and no
    /// control sequences for terminals. Names of servers are not changed.
    // Long: one line for each variant.
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
            NotGranted { agent, server, item, reason, instead }
            UnknownToolbox { toolbox, known }
            GrantInConfig { what, place }
            ProfileConflict { problem }
            DigestChanged { server }
            ProviderDigestChanged { provider }
            FetchNotApproved { agent, hosts, reason, way_out }
            FetchDigestChanged { agent }
            UnknownProvider { provider, known }
            Provider { provider, problem }
            UnknownTool { server, tool, meant, known }
            UnknownDirectName { name, known }
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
            UnusableAnswer { server, tool, problem }
            MalformedAnswer { server, request, problem }
            ResponseTooLarge { what, size, limit, limit_name }
            OutputSchema { server, tool, problem }
            ArgumentsTooLarge { what, size, limit }
            InvalidArguments { what, problem }
            InputTooLarge { size, limit }
            ValueTooLarge { size, limit }
            ValueTooManyParts { limit }
            NotSaved { id, max_age_ms, max_bytes }
            UnknownSession { problem }
            UnknownCall { field, problem }
            InvalidRequest { problem }
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
            ToolFailed { server, tool, message }
            ApprovalStore { path, problem }
            Store { path, problem }
            TooManyProposals { what, limit }
            Busy { what, limit }
            PluginNotApproved { problem }
            BootPrompt { problem }
            BootSecret { name, problem }
            BootModel { problem }
            BootRefused { what, reason }
            BootPlan { problem }
            BootHandler { tool, problem }
            BootCache { path, problem }
            BootNotCached { path }
            Io { what, problem }
        }
    }
}

#[cfg(test)]
impl Error {
    /// Returns the error with readable texts. For tests without secrets.
    pub(crate) fn opened(self) -> Self {
        self.redacted(&Redactor::new(None, None))
    }

    /// Returns the full message. For tests.
    pub(crate) fn in_full(&self) -> String {
        self.clone().opened().to_string()
    }
}
