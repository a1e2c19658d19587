//! The outcome that a guest reports at the end of a run: the value of the run, or a failure. Failures can be explained by parsing the code.

use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::check_value::check_value;
use super::deadline::Deadline;
use super::module::GuestModules;
use super::reader::{Asker, ParseOwner, Reading, ScriptReader, StillWanted};
use super::run::REQUIRE_PROLOGUE;
use super::script::{Importable, declares_require, instead_of_global};
use super::stop::Stop;
use super::value::{Wire, invalid};
use crate::error::{Error, ForeignText, Result};
use crate::limits::Limits;

/// The number of UTF-16 code units to which the guest cuts a text (see `prelude.js`).
const GUEST_TEXT_UNITS: usize = 16 * 1024;
const TOO_LONG: &str = "the description of the problem is too long to be shown";

/// The code of a run, and everything that is needed to parse the code. The time for parsing counts against the run.
pub(super) struct AgentCode<'a> {
    pub(super) reader: &'a ScriptReader,
    /// The owner of this code. Each parse of this code uses one of the parses that this owner may run at the same time.
    pub(super) owner: &'a ParseOwner,
    /// The modules that the code can import.
    pub(super) modules: &'a dyn GuestModules,
    pub(super) stop: &'a Stop,
    pub(super) deadline: Deadline,
    /// False if the code was not parsed. The reason is that it is nested too deeply, that the reader failed, or that the reader was
    /// interrupted to parse another owner's code.
    pub(super) was_looked_at: bool,
}

/// The text that is appended to a syntax error of code that was not parsed. Such code may still contain TypeScript types.
const NOT_LOOKED_AT: &str = "; the code could not be parsed before it ran (it is too large, nests too deeply, or takes more than 5 s to parse), so TypeScript types, if it has any, were not removed: write JavaScript, split the code, or run it again";

impl AgentCode<'_> {
    pub(super) fn to_javascript(&self, text: &str) -> Result<Reading> {
        self.reader.to_javascript(text, self.asker(&|| self.is_wanted()))
    }

    fn explain_load(&self, text: &str) -> Option<Error> {
        self.explained(|modules, asker| self.reader.explain_load(text, modules, asker))
    }

    fn explain_syntax(&self, text: &str, message: String, line: Option<u32>) -> Error {
        if !self.was_looked_at {
            return Error::CodeSyntax { message: format!("{message}{NOT_LOOKED_AT}").into(), line, column: None };
        }
        let explained = self.explained(|modules, asker| self.reader.explain_syntax(text, modules, &message, line, asker));
        explained.unwrap_or(Error::CodeSyntax { message: message.into(), line, column: None })
    }

    fn explain_not_a_function(&self, text: &str, line: u32) -> Option<String> {
        self.explained(|modules, asker| self.reader.explain_not_a_function(text, modules, line, asker))
    }

    /// Parses the code to explain an error. Returns `None` if the code was not parsed before the run.
    fn explained<T>(&self, look: impl FnOnce(&[Importable], Asker<'_>) -> Option<T>) -> Option<T> {
        if self.was_looked_at { look(&self.importable(), self.asker(&|| self.is_wanted())) } else { None }
    }

    fn asker<'a>(&'a self, wanted: StillWanted<'a>) -> Asker<'a> {
        Asker { owner: self.owner, wanted }
    }

    fn importable(&self) -> Vec<Importable> {
        self.modules.names().iter().filter_map(|name| self.modules.module(name)).map(|module| Importable::from(&module)).collect()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.stop.reason().is_none() && !self.deadline.remaining().is_zero()
    }
}

/// The JSON text before and after a value.
const VALUE_PREFIX: &str = "{\"value\":";
const VALUE_SUFFIX: &str = "}";
/// The maximum size in bytes of each text in a failure. The guest's own code has already cut these texts to 16 Ki characters.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The maximum number of characters that an error about a malformed outcome quotes from the parse error.
const MAX_PROBLEM_CHARS: usize = 200;

/// A failure in the form in which the guest reports it (see `prelude.js`).
#[derive(Deserialize)]
pub(super) struct GuestFailure {
    kind: FailureKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    stack: String,
    #[serde(default, deserialize_with = "place")]
    line: Option<u32>,
    #[serde(default, deserialize_with = "place")]
    column: Option<u32>,
}

/// Parses a line or column number. Returns `None` for any other value. The guest reads these numbers from the error's `stack`, and agent
/// code can assign any text to that property.
fn place<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u32>, D::Error> {
    let given = Json::deserialize(deserializer)?;
    Ok(given.as_u64().and_then(|place| u32::try_from(place).ok()).filter(|place| *place > 0))
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FailureKind {
    /// The code did not load: it has a syntax error, imports a module or name that does not exist, or threw an exception at its top level.
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

/// Returns the value in the guest's last frame, or the error that the frame describes. `text` is the code that the engine executed.
pub(super) fn finish(limits: &Limits, frame: &[u8], text: &str, code: &AgentCode<'_>) -> Result<Wire> {
    match read_outcome(limits, Wire::from_frame(frame)?)? {
        FinalFrame::Value(wire) => Ok(wire),
        FinalFrame::Failure(failure) => Err(failure.into_error(limits, text, code)),
    }
}

/// The content of the guest's last frame.
enum FinalFrame {
    /// `{"value": …}`. It was validated, so that no later reader has to check it again.
    Value(Wire),
    Failure(GuestFailure),
}

/// Parses the last frame. Agent code can write anything into this frame, so the value is validated here, before other code reads it.
fn read_outcome(limits: &Limits, wire: Wire) -> Result<FinalFrame> {
    if let Some(value) = wire.json.strip_prefix(VALUE_PREFIX) {
        let Some(value) = value.strip_suffix(VALUE_SUFFIX) else { return Err(invalid("it is not exactly one JSON value")) };
        let (size, limit) = (wire.size() - VALUE_PREFIX.len() - VALUE_SUFFIX.len(), limits.max_value_bytes);
        if size > limit {
            return Err(Error::ValueTooLarge { size, limit });
        }
        check_value(value, wire.blobs.len(), limits.max_value_parts)?;
        return Ok(FinalFrame::Value(wire));
    }
    match serde_json::from_str(&wire.json) {
        Ok(GuestOutcome::Failure(failure)) => Ok(FinalFrame::Failure(failure)),
        Ok(GuestOutcome::Oversize(size)) => Err(Error::ValueTooLarge { size, limit: limits.max_value_bytes }),
        Err(error) => Err(Error::InvalidValue { problem: error.to_string().chars().take(MAX_PROBLEM_CHARS).collect::<String>().into() }),
    }
}

/// Cuts a text to at most [`MAX_TEXT_BYTES`] bytes, at a character boundary.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

impl GuestFailure {
    fn into_error(self, limits: &Limits, text: &str, code: &AgentCode<'_>) -> Error {
        let Self { kind, name, message, stack, line, mut column } = self;
        let (name, message, stack) = (cut(name), cut(message), cut(stack));
        let is_cut = reaches_the_guests_limit(&message);
        // QuickJS throws this error if an allocation fails.
        if name == "InternalError" && message == "out of memory" {
            return Error::GuestMemory { limit: limits.guest_heap_bytes };
        }
        // The first line begins with the prologue, which is not part of the agent's code.
        if line == Some(1) && !declares_require(text) {
            column = column.map(|column| column.saturating_sub(u32::try_from(REQUIRE_PROLOGUE.len()).unwrap_or(0)).max(1));
        }
        match kind {
            FailureKind::Handler => Error::NoHandler,
            FailureKind::Value if is_cut => Error::InvalidValue { problem: TOO_LONG.into() },
            FailureKind::Value => Error::InvalidValue { problem: message.into() },
            FailureKind::Load if is_cut => Error::CodeSyntax { message: TOO_LONG.into(), line, column },
            FailureKind::Load if is_resolution(&message) => code.explain_load(text).unwrap_or_else(|| {
                let known: Vec<_> = code.modules.names().iter().map(|name| format!("host:{name}")).collect();
                Error::CodeSyntax { message: format!("{message}; the modules here are: {}", known.join(", ")).into(), line, column }
            }),
            FailureKind::Load if name == "SyntaxError" => code.explain_syntax(text, message, line),
            FailureKind::Load | FailureKind::Throw => {
                // These are the engine's messages for a call of `w.nope()` and of `w.nope.async()`.
                let is_lacking = message.contains("not a function") || message.contains("'async' of undefined");
                let lacking = line.filter(|_| name == "TypeError" && is_lacking);
                let lacking = lacking.and_then(|line| code.explain_not_a_function(text, line));
                let instead = if name == "ReferenceError" { instead_of_global(&message).map(ToOwned::to_owned) } else { None };
                let message = if let Some(more) = lacking.or(instead).filter(|_| !is_cut) { format!("{message}: {more}") } else { message };
                let said =
                    |text: String| if reaches_the_guests_limit(&text) { ForeignText::beginning(text, usize::MAX) } else { text.into() };
                Error::GuestThrew { name: said(name).into(), message: said(message).into(), stack: said(stack).into(), line, column }
            }
        }
    }
}

/// Returns whether the guest may have cut a text. The guest cuts the texts of an error at this length, without a mark.
fn reaches_the_guests_limit(text: &str) -> bool {
    text.len() >= GUEST_TEXT_UNITS && text.encode_utf16().count() >= GUEST_TEXT_UNITS
}

/// Returns whether this is the message of `QuickJS` for a module that does not exist.
fn is_resolution(message: &str) -> bool {
    message.starts_with("Error resolving module") || message.starts_with("Could not load module")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(json: &str, blobs: usize) -> Result<FinalFrame> {
        let frame = Wire { json: json.to_owned(), blobs: vec![vec![1]; blobs] }.to_frame().unwrap();
        read_outcome(&Limits { max_value_bytes: 4096, ..Limits::default() }, Wire::from_frame(&frame)?)
    }

    fn code(json: &str, blobs: usize) -> &'static str {
        handed(json, blobs).err().unwrap().code()
    }

    #[test]
    fn a_value_is_json_with_nothing_around_it() {
        assert!(
            matches!(handed(r#"{"value":[1,{"$bytes":0}]}"#, 1), Ok(FinalFrame::Value(wire)) if wire.json == r#"{"value":[1,{"$bytes":0}]}"#)
        );
        for json in [
            r#"{"value":1} "#,
            r#"{"value":1}}"#,
            r#" {"value":1}"#,
            r#"{"value":1"#,
            r#"{"value":}"#,
            r#"{"value":1,"logs":[]}"#,
            r#"{"value":1},"error":{"code":"ERR_X","message":"forged"},"x":{"y":1}"#,
            r#"{"value":1,"value":2}"#,
            r#"{"value":1e999}"#,
            r#"{"value":"\ud800"}"#,
            r#"{"value":{"$bytes":"length"}}"#,
            "",
            "garbage",
            "null",
            r#"{"other":1}"#,
        ] {
            assert_eq!(code(json, 0), "ERR_INVALID_VALUE", "{json}");
        }
    }

    #[test]
    fn a_value_that_would_cost_its_reader_too_much_is_refused() {
        let deep = format!("{{\"value\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
        let twice = format!("{{\"value\":[{}]}}", vec![r#"{"$bytes":0}"#; 300].join(","));
        assert_eq!(
            (code(&deep, 0), code(&twice, 1), code(r#"{"value":1}"#, 10_001)),
            ("ERR_INVALID_VALUE", "ERR_INVALID_VALUE", "ERR_INVALID_VALUE")
        );
        assert_eq!(
            (code(&format!("{{\"value\":\"{}\"}}", "x".repeat(4096)), 0), code(r#"{"oversize":9}"#, 0)),
            ("ERR_VALUE_TOO_LARGE", "ERR_VALUE_TOO_LARGE")
        );
    }

    #[test]
    fn a_failure_stays_a_failure_whatever_its_place_says() {
        for (line, expected) in
            [("7", Some(7)), ("5000000000", None), ("1e300", None), ("-1", None), ("0", None), ("null", None), ("\"x\"", None)]
        {
            let failure = format!(r#"{{"failure":{{"kind":"throw","name":"Error","message":"mine","line":{line},"column":{line}}}}}"#);
            let Ok(FinalFrame::Failure(failure)) = handed(&failure, 0) else { panic!("{line}") };
            assert_eq!((failure.message.as_str(), failure.line, failure.column), ("mine", expected, expected), "{line}");
        }
    }

    #[test]
    fn what_is_said_of_a_failure_is_bounded() {
        let long = "ß".repeat(1_000_000);
        let failure = serde_json::json!({ "failure": { "kind": "throw", "name": long, "message": long, "stack": long } }).to_string();
        let Ok(FinalFrame::Failure(failure)) = handed(&failure, 0) else { panic!("no failure") };
        assert!(cut(failure.message).len() == MAX_TEXT_BYTES);
        let other = handed(&format!("{{\"{long}\":1}}"), 0).err().unwrap();
        assert!(other.to_string().len() < 1_000);
    }
}
