//! What a guest says at the end of a run: its value, or a failure, which a look at the code may explain.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::deadline::Deadline;
use super::module::GuestModules;
use super::reader::ScriptReader;
use super::run::REQUIRE_PROLOGUE;
use super::script::{Importable, declares_require, instead_of_global};
use super::stop::Stop;
use super::value::Wire;
use crate::error::{Error, Result, Words};
use crate::limits::Limits;

/// UTF-16 units that the guest sends of a text at most (`prelude.js`).
const GUEST_TEXT_UNITS: usize = 16 * 1024;
const TOO_LONG: &str = "what is wrong takes more words than can be told";

/// What a run's code is read with: for as long as the run goes on, its look counts against the run's time.
pub(super) struct AgentCode<'a> {
    pub(super) reader: &'a ScriptReader,
    /// What it can import.
    pub(super) modules: &'a dyn GuestModules,
    pub(super) stop: &'a Stop,
    pub(super) deadline: Deadline,
}

impl AgentCode<'_> {
    pub(super) fn to_javascript(&self, text: &str) -> Result<Option<String>> {
        self.reader.to_javascript(text, &|| self.is_wanted())
    }

    fn explain_load(&self, text: &str) -> Option<Error> {
        self.reader.explain_load(text, &self.importable(), &|| self.is_wanted())
    }

    fn explain_syntax(&self, text: &str, message: String, line: Option<u32>) -> Error {
        self.reader.explain_syntax(text, &self.importable(), message, line, &|| self.is_wanted())
    }

    fn explain_not_a_function(&self, text: &str, line: u32) -> Option<String> {
        self.reader.explain_not_a_function(text, &self.importable(), line, &|| self.is_wanted())
    }

    fn importable(&self) -> Vec<Importable> {
        self.modules.names().iter().filter_map(|name| self.modules.module(name)).map(|module| Importable::from(&module)).collect()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.stop.reason().is_none() && !self.deadline.remaining().is_zero()
    }
}

const VALUE_PREFIX: &str = "{\"value\":";

/// A value as a guest hands it over: JSON, and nothing beside it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "value")]
    _value: IgnoredAny,
}

/// How the guest describes a failure; see `prelude.js`.
#[derive(Deserialize)]
pub(super) struct GuestFailure {
    kind: FailureKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    stack: String,
    line: Option<u32>,
    column: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FailureKind {
    /// The code did not load: it does not parse, imports what is not there, or threw at its top level.
    Load,
    Handler,
    Throw,
    Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GuestOutcome {
    Failure(GuestFailure),
    Oversize(usize),
}

/// The value in the guest's last frame, or what went wrong. `text` is the code as the engine got it.
pub(super) fn finish(limits: &Limits, frame: &[u8], text: &str, code: &AgentCode<'_>) -> Result<Wire> {
    let wire = Wire::from_frame(frame)?;
    if wire.json.starts_with(VALUE_PREFIX) {
        let size = wire.size() - VALUE_PREFIX.len() - 1;
        if size > limits.max_value_bytes {
            return Err(Error::ValueTooLarge { size, limit: limits.max_value_bytes });
        }
        // Agent code can hand over whatever it likes; what is read later as a value is one.
        let envelope = serde_json::from_str::<Envelope>(&wire.json);
        return envelope.map(|_| wire).map_err(|error| Error::InvalidValue { problem: error.to_string() });
    }
    let outcome: GuestOutcome =
        serde_json::from_str(&wire.json).map_err(|error| Error::GuestCrashed { problem: error.to_string().into() })?;
    Err(match outcome {
        GuestOutcome::Oversize(size) => Error::ValueTooLarge { size, limit: limits.max_value_bytes },
        GuestOutcome::Failure(failure) => failure.into_error(limits, text, code),
    })
}

impl GuestFailure {
    fn into_error(self, limits: &Limits, text: &str, code: &AgentCode<'_>) -> Error {
        let Self { kind, name, message, stack, line, mut column } = self;
        let is_cut = reaches_the_guests_limit(&message);
        // QuickJS throws this where an allocation of its own fails.
        if name == "InternalError" && message == "out of memory" {
            return Error::GuestMemory { limit: limits.guest_heap_bytes };
        }
        // What stands before the code on its first line is not the agent's.
        if line == Some(1) && !declares_require(text) {
            column = column.map(|column| column.saturating_sub(u32::try_from(REQUIRE_PROLOGUE.len()).unwrap_or(0)).max(1));
        }
        match kind {
            FailureKind::Handler => Error::NoHandler,
            FailureKind::Value if is_cut => Error::InvalidValue { problem: TOO_LONG.to_owned() },
            FailureKind::Value => Error::InvalidValue { problem: message },
            FailureKind::Load if is_cut => Error::CodeSyntax { message: TOO_LONG.to_owned(), line, column },
            FailureKind::Load if is_resolution(&message) => code.explain_load(text).unwrap_or_else(|| {
                let known: Vec<_> = code.modules.names().iter().map(|name| format!("host:{name}")).collect();
                Error::CodeSyntax { message: format!("{message}; the modules here are: {}", known.join(", ")), line, column }
            }),
            FailureKind::Load if name == "SyntaxError" => code.explain_syntax(text, message, line),
            FailureKind::Load | FailureKind::Throw => {
                // `w.nope()`, `w.nope.async()`
                let is_lacking = message.contains("not a function") || message.contains("'async' of undefined");
                let lacking = line.filter(|_| name == "TypeError" && is_lacking);
                let lacking = lacking.and_then(|line| code.explain_not_a_function(text, line));
                let instead = if name == "ReferenceError" { instead_of_global(&message).map(ToOwned::to_owned) } else { None };
                let message = if let Some(more) = lacking.or(instead).filter(|_| !is_cut) { format!("{message}: {more}") } else { message };
                let said = |text: String| if reaches_the_guests_limit(&text) { Words::beginning(text, usize::MAX) } else { text.into() };
                Error::GuestThrew { name: said(name), message: said(message), stack: said(stack), line, column }
            }
        }
    }
}

/// The guest cuts what it says of an error, and does not say so: a text of that length may have lost its end.
fn reaches_the_guests_limit(text: &str) -> bool {
    text.len() >= GUEST_TEXT_UNITS && text.encode_utf16().count() >= GUEST_TEXT_UNITS
}

/// `QuickJS`'s words for a module that is not there.
fn is_resolution(message: &str) -> bool {
    message.starts_with("Error resolving module") || message.starts_with("Could not load module")
}
