//! Stands in for `crate::results` until that is merged: the same functions, cutting in a plainer way.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::catalog::estimate_tokens;
use crate::error::Error;
use crate::gateway::{RunOptions, Sandbox};
use crate::sandbox::Value;

/// What came of a run, for a model.
pub(super) struct ModelRun {
    pub(super) report: Json,
    pub(super) error: Option<Error>,
}

pub(super) async fn run_for_model(sandbox: &Arc<Sandbox>, code: String, options: RunOptions, budget: usize) -> ModelRun {
    let run = sandbox.run(code, options).await;
    let mut report = Map::new();
    let mut failure = None;
    match run.outcome.value.and_then(Value::from_wire).map(Value::into_json) {
        Ok(mut outcome) => {
            report.insert("value".to_owned(), outcome.get_mut("value").map(Json::take).unwrap_or_default());
        }
        Err(error) => {
            let mut fields = json!({ "code": error.code(), "message": error.to_string() });
            if let Error::GuestThrew { line, column, .. } | Error::CodeSyntax { line, column, .. } = &error {
                (fields["line"], fields["column"]) = (json!(line), json!(column));
            }
            report.insert("error".to_owned(), fields);
            failure = Some(error);
        }
    }
    let logs: Vec<_> = run.outcome.logs.into_iter().map(|entry| entry.text).collect();
    for (name, texts) in [("logs", logs), ("warnings", run.warnings)] {
        if !texts.is_empty() {
            report.insert(name.to_owned(), json!(texts));
        }
    }
    ModelRun { report: fit_json(Json::Object(report), budget), error: failure }
}

pub(super) fn fit_json(json: Json, budget: usize) -> Json {
    let text = json.to_string();
    if estimate_tokens(&text) <= budget {
        return json;
    }
    let kept = &text[..text.floor_char_boundary(budget)];
    Json::String(format!("{kept}… [cut]"))
}
