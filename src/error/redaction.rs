//! Redacts errors before they leave the crate.
//!
//! Two rules ensure that a secret does not leak if the author of new code forgets to redact an error:
//!
//! - Foreign text in an error cannot be read before redaction ([`ErrorText`], [`ErrorProblems`]). An error that was not redacted shows a
//!   placeholder instead, wherever it leaves the crate: in Node, at the command line, in the guest, in events and in traces.
//! - [`Redact`] is not implemented for `String`. The macro below names every field of every variant, so a new field that can hold text does
//!   not compile until its author has chosen [`ErrorText`] or [`OwnText`] for it.
//!
//! Instead, there could be a second error type that only redaction produces. The compiler would then also report a forgotten redaction. But
//! this would double the signature of every function between a server and the places at which errors leave the crate. A field that cannot
//! be read protects the secret just as well.

use std::cell::RefCell;

use super::{Error, ErrorProblems, ErrorText, MissingCallback, OwnText};
use crate::redact::Redactor;
use crate::text::marked_name;

/// A change that is applied to all parts of an error.
#[derive(Clone, Copy)]
enum Change<'r> {
    Redact(&'r Redactor),
    /// Replaces the names that servers have in the registry by the names that code imports, for example `weather@staging` by `weather`.
    /// Records the names that were replaced.
    NameAsImported(&'r RefCell<Vec<String>>),
}

impl Change<'_> {
    fn of_server(self, name: String) -> String {
        match self {
            Self::Redact(_) => name,
            Self::NameAsImported(replaced) => {
                let imported = marked_name(&name).0.to_owned();
                if imported != name {
                    replaced.borrow_mut().push(name);
                }
                imported
            }
        }
    }

    fn of_servers(self, names: Vec<OwnText>) -> Vec<OwnText> {
        match self {
            Self::Redact(redactor) => names.into_iter().map(|name| name.redacted(redactor)).collect(),
            Self::NameAsImported(_) => names.into_iter().map(|name| marked_name(&name).0.into()).collect(),
        }
    }
}

/// A part of an error that can be redacted. The trait is not implemented for `String`, so an error with such a field does not compile.
trait Redact {
    fn changed_by(self, change: Change<'_>) -> Self;
}

/// Implements [`Redact`] for the text types. All of these texts are passed to the redactor.
macro_rules! redacted_text {
    ($($text:ty),*) => { $(impl Redact for $text {
        fn changed_by(self, change: Change<'_>) -> Self {
            match change {
                Change::Redact(redactor) => self.redacted(redactor),
                Change::NameAsImported(_) => self,
            }
        }
    })* };
}
redacted_text!(ErrorText, ErrorProblems, OwnText);

impl<T: Redact> Redact for Vec<T> {
    fn changed_by(self, change: Change<'_>) -> Self {
        self.into_iter().map(|part| part.changed_by(change)).collect()
    }
}

impl<T: Redact> Redact for Option<T> {
    fn changed_by(self, change: Change<'_>) -> Self {
        self.map(|part| part.changed_by(change))
    }
}

impl Redact for Box<Error> {
    fn changed_by(self, change: Change<'_>) -> Self {
        Self::new((*self).changed_by(change))
    }
}

/// Implements [`Redact`] for types that contain no untrusted text: fixed texts and numbers.
macro_rules! unchanged_by_redaction {
    ($($kind:ty),*) => { $(impl Redact for $kind {
        fn changed_by(self, _change: Change<'_>) -> Self {
            self
        }
    })* };
}
unchanged_by_redaction!(&'static str, usize, u64, u32, i64, MissingCallback);

/// Changes a field. A field with the name `server` is not redacted: it contains the name of a server in the config, or the name that a
/// caller requested. The field `holders` contains names of servers, too.
macro_rules! change_field {
    (server $value:ident $change:ident) => {
        $change.of_server($value)
    };
    (holders $value:ident $change:ident) => {
        $change.of_servers($value)
    };
    ($field:ident $value:ident $change:ident) => {
        $value.changed_by($change)
    };
}

/// Destructures the error without `..` and builds it again. With this, a new variant or field does not compile until it is listed.
macro_rules! changed {
    ($error:expr, $change:ident, $($variant:ident { $($field:ident),* })*) => {
        match $error {
            $(Error::$variant { $($field),* } => Error::$variant { $($field: change_field!($field $field $change)),* },)*
            Error::Internal(problem) => Error::Internal(problem.changed_by($change)),
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
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        self.changed_by(Change::Redact(redactor))
    }

    /// Returns the message for a model or for agent code. Both know a variant of a server by the name that code imports. Therefore this
    /// name replaces the name in the registry, including in the texts of the error.
    pub(super) fn named_as_imported(&self, message: impl Fn(&Self) -> String) -> String {
        let replaced = RefCell::default();
        let error = self.clone().changed_by(Change::NameAsImported(&replaced));
        replaced.into_inner().iter().fold(message(&error), |text, name| text.replace(name.as_str(), marked_name(name).0))
    }

    // Long: one line for each variant.
    fn changed_by(self, change: Change<'_>) -> Self {
        changed! { self, change,
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
            UnknownResource { server, uri, known, untried }
            ResourceChanged { server, uri }
            UnknownPrompt { server, prompt, known }
            PromptChanged { server, prompt }
            CallDenied { server, tool, reason }
            UnsupportedTransport { server, problem }
            InsecureUrl { server, origin }
            SpawnFailed { server, command, problem }
            BoxFailed { server, problem }
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
            RunTimeout { limit_ms, limit }
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
            Unanswered { problem }
            Io { what, problem }
        }
    }
}

#[cfg(test)]
impl Error {
    /// Returns the error with readable texts. Only for tests without secrets.
    pub(crate) fn opened(self) -> Self {
        self.redacted(&Redactor::new(None, None))
    }

    /// Returns the full message. Only for tests.
    pub(crate) fn in_full(&self) -> String {
        self.clone().opened().to_string()
    }
}
