//! Fits the results of runs into a budget of tokens for a model: shortens values, saves the whole values, and creates reports.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::sandbox::{RunOptions, RunReport, Sandbox, failed};
use crate::blocking::blocking;
use crate::error::{Error, Result};
use crate::redact::{Redactor, distinct};
use crate::results::{
    Handle, MIN_RESULT_TOKENS, Media, ModelError, ModelReport, SAVED_ID_BYTES, fit, fits, for_model, saved_id, take_media,
};
use crate::sandbox::{Value, Wire};

/// The field of a report that has the value's images and sounds, as MCP content blocks. The JSON that a model reads does not contain it.
pub const CONTENT: &str = "content";

/// The report of a run for a model.
#[derive(Debug)]
pub struct ModelRun {
    /// The report within the budget: `{ value }` or `{ error: { code, message, line?, column?, excerpt? } }`, with `logs` and `warnings`
    /// unless they are empty. A shortened value contains a handle, with which later runs can read the whole value.
    pub report: Json,
    /// The error, if the run failed.
    pub error: Option<Error>,
}

/// The result of saving a value that has to be shortened.
enum Saved {
    As(String),
    TooLarge,
}

/// Returns an error for a budget of tokens that is too small for a useful value.
pub(super) fn check_budget(method: &'static str, tokens: Option<usize>) -> Result<()> {
    match tokens {
        Some(tokens) if tokens < MIN_RESULT_TOKENS => Err(Error::InvalidOption {
            method,
            problem: format!("maxResultTokens must be at least {MIN_RESULT_TOKENS}, not {tokens}").into(),
        }),
        _ => Ok(()),
    }
}

impl Sandbox {
    /// Runs code, and creates a report for a model from the run's value, log and warnings, within a budget of tokens. If the log is too
    /// long, its last lines are kept. A value that has to be shortened is saved first. Ignores `max_result_tokens` in `options`.
    pub fn run_for_model(
        self: &Arc<Self>,
        code: String,
        options: RunOptions,
        budget: usize,
    ) -> impl Future<Output = ModelRun> + Send + use<> {
        let checked = check_budget("Sandbox.run", Some(budget));
        let run = self.queued(code.clone(), options);
        let this = Arc::clone(self);
        async move {
            let report = match checked {
                Ok(()) => run.await,
                Err(error) => failed(error),
            };
            let error = report.outcome.value.as_ref().err().cloned();
            let core = Arc::clone(&this.core);
            let rendered = blocking(move || this.rendered(&report, &code, budget.max(MIN_RESULT_TOKENS))).await;
            match rendered {
                Ok(report) => ModelRun { report, error },
                Err(failure) => {
                    let failure = core.redacted(failure);
                    let report = json!({ "error": { "code": failure.code(), "message": failure.for_model() } });
                    ModelRun { report, error: error.or(Some(failure)) }
                }
            }
        }
    }

    /// Shortens the report's value to the budget of the run. If the run sets no budget, the sandbox's budget is used.
    pub(super) async fn within_budget(self: Arc<Self>, mut report: RunReport, budget: Option<usize>) -> RunReport {
        let Some(budget) = budget.or(self.max_result_tokens) else { return report };
        let Ok(wire) = report.outcome.value else { return report };
        let core = Arc::clone(&self.core);
        let cut = blocking(move || self.cut(wire, budget)).await;
        match cut {
            Ok(cut) => {
                report.outcome.value = Ok(cut.value);
                report.omitted = cut.omitted;
                report.saved_as = cut.saved_as;
                report.warnings.extend(cut.warning);
            }
            Err(error) => report.outcome.value = Err(core.redacted(error)),
        }
        report
    }

    fn cut(&self, wire: Wire, budget: usize) -> Result<CutValue> {
        let value = returned(&wire)?;
        if fits(&value, budget) {
            return Ok(CutValue { value: wire, omitted: Vec::new(), saved_as: None, warning: None });
        }
        let size = wire.size();
        let saved = self.keep(wire)?;
        let Some(fitted) = fit(&value, budget, saved.handle()) else {
            return Err(Error::Internal("a value that does not fit was not cut".into()));
        };
        let limit = self.core.limits.max_saved_bytes;
        let (saved_as, warning) = match saved {
            Saved::As(id) => (Some(id), None),
            Saved::TooLarge => {
                let why = format!("it has {size} bytes; limits.maxSavedBytes is {limit}");
                (None, Some(format!("the value was cut to {budget} tokens (maxResultTokens) and is not saved: {why}")))
            }
        };
        Ok(CutValue { value: Value::record([("value", fitted.value)]).to_wire(), omitted: fitted.omitted, saved_as, warning })
    }

    fn rendered(&self, report: &RunReport, code: &str, budget: usize) -> Result<Json> {
        let redact = |text: &str| self.core.redactor.redact(text).into_owned();
        let render = |outcome, code: &str, budget: usize, handle: Handle<'_>| {
            let report = ModelReport { outcome, code, logs: &report.outcome.logs, warnings: &report.warnings };
            for_model(&report, budget, || handle)
        };
        match &report.outcome.value {
            Ok(wire) => {
                // Secrets in the value are replaced for the model. The saved value is not redacted, because only the guest reads it.
                let value = redacted(&self.core.redactor, returned(wire)?);
                let (value, media) = take_media(value, budget);
                let media_tokens: usize = media.iter().map(|one| one.tokens).sum();
                let budget = budget.saturating_sub(media_tokens).max(MIN_RESULT_TOKENS);
                let mut must_be_cut = false;
                let whole = ModelReport { outcome: Ok(&value), code: "", logs: &report.outcome.logs, warnings: &report.warnings };
                let json = for_model(&whole, budget, || {
                    must_be_cut = true;
                    Handle::None
                });
                if !must_be_cut {
                    return Ok(with_content(json, &media));
                }
                let saved = self.keep(wire.clone())?;
                Ok(with_content(render(Ok(&value), "", budget, saved.handle()), &media))
            }
            Err(error) => {
                let (line, column) = match error {
                    Error::GuestThrew { line, column, .. } | Error::CodeSyntax { line, column, .. } => (*line, *column),
                    _ => (None, None),
                };
                let error = ModelError { code: error.code(), message: &error.for_model(), line, column };
                // The code is redacted too, because it may contain secrets.
                Ok(render(Err(error), &redact(code), budget, Handle::None))
            }
        }
    }

    /// Saves a value for later runs of this sandbox.
    fn keep(&self, value: Wire) -> Result<Saved> {
        let mut random = [0; SAVED_ID_BYTES];
        getrandom::fill(&mut random)
            .map_err(|error| Error::Io { what: "a handle for the value".into(), problem: error.to_string().into() })?;
        let id = saved_id(random);
        let mut saved = self.saved.lock();
        Ok(if saved.save(id.clone(), value, Instant::now()) { Saved::As(id) } else { Saved::TooLarge })
    }
}

impl Saved {
    fn handle(&self) -> Handle<'_> {
        match self {
            Self::As(id) => Handle::Saved(id),
            Self::TooLarge => Handle::TooLarge,
        }
    }
}

/// A value that fits its budget, with information about what was omitted.
struct CutValue {
    /// The value in the form `{"value": …}`.
    value: Wire,
    omitted: Vec<crate::results::Omission>,
    saved_as: Option<String>,
    warning: Option<String>,
}

/// Adds the images and sounds of a value to its report, as the field [`CONTENT`].
fn with_content(mut report: Json, media: &[Media]) -> Json {
    if !media.is_empty() {
        report[CONTENT] = media.iter().map(Media::block).collect();
    }
    report
}

/// Returns the value that the handler returned. The guest sends it as the only field of an object.
fn returned(wire: &Wire) -> Result<Value> {
    match Value::from_wire(wire.clone()) {
        Ok(Value::Record(mut fields)) if fields.len() == 1 => Ok(fields.swap_remove(0).1),
        Ok(_) => Err(Error::Internal("a run returned a value in an unexpected form".into())),
        Err(Error::InvalidValue { problem }) => {
            Err(Error::InvalidValue { problem: problem.after("it cannot be measured for maxResultTokens: ") })
        }
        Err(error) => Err(error),
    }
}

/// Replaces the secrets in a value in each form in which the model reads them: in texts, keys, numbers, and bytes (which become base64).
/// Paths are not changed, because the model's next code uses them. The recursion is bounded, because values from a guest have a limited
/// depth.
fn redacted(redactor: &Redactor, value: Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(redactor.without_secrets(&text).into_owned()),
        Value::Number(number) => match changed(redactor, &number.to_string()) {
            Some(blanked) => Value::Text(blanked),
            None => Value::Number(number),
        },
        Value::Bytes(bytes) => redacted_bytes(redactor, bytes),
        Value::List(items) => Value::List(items.into_iter().map(|item| redacted(redactor, item)).collect()),
        Value::Record(fields) => Value::Record(redacted_fields(redactor, fields)),
        Value::Null | Value::Bool(_) => value,
    }
}

/// Replaces the secrets in the keys and values of fields. Keys that are equal without their secrets get numbers, so that no value is lost.
fn redacted_fields(redactor: &Redactor, fields: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut is_changed = false;
    let blanked = fields.into_iter().map(|(key, value)| {
        let changed_key = changed(redactor, &key);
        is_changed |= changed_key.is_some();
        (changed_key.unwrap_or(key), redacted(redactor, value))
    });
    let mut fields: Vec<_> = blanked.collect();
    if is_changed {
        let mut used = HashSet::with_capacity(fields.len());
        for (key, _) in &mut fields {
            *key = distinct(std::mem::take(key), used.len(), |key| used.contains(key));
            used.insert(key.clone());
        }
    }
    fields
}

/// Replaces the secrets in bytes. Checks the bytes as text (if they are valid UTF-8), and also their base64 text.
fn redacted_bytes(redactor: &Redactor, bytes: Vec<u8>) -> Value {
    if let Some(blanked) = std::str::from_utf8(&bytes).ok().and_then(|text| changed(redactor, text)) {
        return Value::Bytes(blanked.into_bytes());
    }
    match changed(redactor, &STANDARD.encode(&bytes)) {
        Some(blanked) => Value::Text(blanked),
        None => Value::Bytes(bytes),
    }
}

/// Returns the text without its secrets. Returns `None` if the text contains no secret.
fn changed(redactor: &Redactor, text: &str) -> Option<String> {
    let blanked = redactor.without_secrets(text);
    (blanked != text).then(|| blanked.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_equal_without_their_secrets_keep_their_values() {
        let redactor = Redactor::new(None, None);
        redactor.add([&"correct-horse".to_owned().into(), &"battery-staple".to_owned().into()]);
        let fields = json!({ "[redacted] (2)": 0, "correct-horse": 1, "battery-staple": 2, "[redacted]": 3, "own": 4 });
        let read = redacted(&redactor, Value::from(fields.clone())).into_json();
        let keys: Vec<_> = read.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["[redacted] (2)", "[redacted]", "[redacted] (2) (2)", "[redacted] (3)", "own"]);
        assert_eq!(read.as_object().unwrap().values().cloned().collect::<Json>(), json!([0, 1, 2, 3, 4]));
        assert_eq!(redactor.json_without_secrets(&fields), read);
    }

    #[test]
    fn a_model_reads_no_secret_in_bytes_and_numbers() {
        let redactor = Redactor::new(None, None);
        redactor.add([
            &"Zx9Qw8Er7Ty6Ui5Op4As3Df2".to_owned().into(),
            &"7391028465731902".to_owned().into(),
            &"correct horse".to_owned().into(),
        ]);
        let mut image = vec![0xff, 0xd8];
        image.extend(b"KEY=Zx9Qw8Er7Ty6Ui5Op4As3Df2;");
        let read = |value: Value| redacted(&redactor, value).into_json();
        for (value, expected) in [
            (Value::Bytes(b"KEY=Zx9Qw8Er7Ty6Ui5Op4As3Df2".to_vec()), json!(STANDARD.encode("KEY=[redacted]"))),
            (Value::Bytes(b"a=correct%20horse".to_vec()), json!(STANDARD.encode("a=[redacted]"))),
            (Value::Number(7_391_028_465_731_902_u64.into()), json!("[redacted]")),
            (Value::from(json!({ "pins": [7_391_028_465_731_902_u64, 7] })), json!({ "pins": ["[redacted]", 7] })),
            (Value::Bytes(vec![0, 1, 255]), json!("AAH/")),
            (Value::from(json!([null, true, "/srv/data/a", 1.5])), json!([null, true, "/srv/data/a", 1.5])),
        ] {
            assert_eq!(read(value.clone()), expected, "{value:?}");
        }
        let image = read(Value::Bytes(image));
        assert!(image.as_str().is_some_and(|text| text.contains("[redacted]") && !text.contains("WeDlRdzhF")), "{image}");
    }
}
