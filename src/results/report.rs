//! Renders the report of a run for a model, within a token budget.

use serde_json::{Map, Value as Json};

use super::excerpt::excerpt;
use super::fit::{fit, fits};
use super::mark::Handle;
use super::text::{head, tail, text_tokens};
use crate::catalog::estimate_tokens;
use crate::sandbox::{LogEntry, Value};

/// The log may use at most the budget divided by this number. The value gets the rest.
const LOG_SHARE: usize = 4;
/// Warnings may use at most the budget divided by this number.
const WARNING_SHARE: usize = 8;
/// One entry may use at most the share of its list, divided by this number.
const ENTRY_SHARE: usize = 3;
/// Tokens of a list without entries, but with a mark for omitted entries.
const LIST_OVERHEAD: usize = 12;
/// Tokens of the quotes and the comma of an entry.
const ENTRY_OVERHEAD: usize = 2;
/// Tokens of the braces and the field names of a report.
const REPORT_OVERHEAD: usize = 8;
/// Minimum number of tokens for each part of a report.
const LEAST: usize = 16;

/// The failure of a run. The caller has already redacted its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError<'a> {
    pub code: &'a str,
    pub message: &'a str,
    /// Line in the agent's code, counted from 1.
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// The parts of a run's report.
#[derive(Debug, Clone)]
pub struct ModelReport<'a> {
    /// The whole value that the run returned, or the error with which it failed.
    pub outcome: Result<&'a Value, ModelError<'a>>,
    /// The agent's own code, from which an excerpt is made. If it is empty, there is no excerpt.
    pub code: &'a str,
    pub logs: &'a [LogEntry],
    pub warnings: &'a [String],
}

/// Returns the report as plain JSON within a token budget.
///
/// The report is one object. It contains `value`, or `error` with `code`, `message`, `line`, `column` and `excerpt`, as far as these are
/// known. `logs` and `warnings` follow, unless they are empty. A log entry is a text. The text begins with the entry's level, unless the
/// level is `log`. If the log is too long, its last entries are kept, because they are the most useful. The value gets all tokens that the
/// log and the warnings do not need, which is at least half of the budget. `handle` is called only if the value must be cut. This function
/// saves the value, and returns a reference to the whole value.
///
/// ```
/// use hyperlight_mcp::results::{Handle, ModelReport, for_model};
/// use hyperlight_mcp::sandbox::{LogEntry, LogLevel, Value};
///
/// let (value, logs) = (Value::from(7.to_string()), [LogEntry { level: LogLevel::Warn, is_cut: false, text: "slow".into() }]);
/// let report = ModelReport { outcome: Ok(&value), code: "", logs: &logs, warnings: &[] };
/// let json = for_model(&report, 100, || Handle::None);
/// assert_eq!(json.to_string(), r#"{"value":"7","logs":["warn: slow"]}"#);
/// ```
#[must_use]
pub fn for_model<'h>(report: &ModelReport<'_>, budget: usize, handle: impl FnOnce() -> Handle<'h>) -> Json {
    let tokens = |json: &Json| estimate_tokens(&json.to_string());
    let handle = match report.outcome {
        Ok(value) => {
            let whole = stays_whole(report, value, budget).then(|| render(report, budget, Handle::None));
            if let Some(json) = whole.filter(|json| tokens(json) <= budget) {
                return json;
            }
            handle()
        }
        Err(_) => Handle::None,
    };
    // The size of a report is estimated from its parts. If the rendered report exceeds the budget, it is rendered again with fewer
    // tokens.
    let mut within = budget;
    loop {
        let json = render(report, within, handle);
        let tokens = tokens(&json);
        if tokens <= budget || within < LEAST {
            return json;
        }
        within -= (tokens - budget).max(within / 32 + 1).min(within);
    }
}

/// Returns whether the whole value fits into the budget together with the rendered log and warnings.
fn stays_whole(report: &ModelReport<'_>, value: &Value, budget: usize) -> bool {
    let rest = rest(report, budget);
    fits(value, budget.saturating_sub(rest.tokens + REPORT_OVERHEAD))
}

/// The rendered log and warnings.
struct Rest {
    logs: Vec<String>,
    warnings: Vec<String>,
    tokens: usize,
}

fn rest(report: &ModelReport<'_>, budget: usize) -> Rest {
    let warnings = listed(report.warnings.iter().map(String::clone), report.warnings.len(), budget / WARNING_SHARE, false, "warnings");
    let entry = |entry: &LogEntry| match entry.level.as_str() {
        "log" => entry.text.clone(),
        level => format!("{level}: {}", entry.text),
    };
    let logs = listed(report.logs.iter().rev().map(entry), report.logs.len(), budget / LOG_SHARE, true, "entries");
    let tokens = [&logs, &warnings].into_iter().filter(|list| !list.is_empty()).map(|list| list_tokens(list)).sum();
    Rest { logs, warnings, tokens }
}

fn render(report: &ModelReport<'_>, budget: usize, handle: Handle<'_>) -> Json {
    let rest = rest(report, budget);
    let room = budget.saturating_sub(rest.tokens + REPORT_OVERHEAD);
    let mut json = Map::new();
    match &report.outcome {
        Ok(value) => {
            let fitted = fit(value, room, handle).map(|fitted| fitted.value);
            json.insert("value".to_owned(), fitted.unwrap_or_else(|| (*value).clone()).into_json());
        }
        Err(error) => {
            json.insert("error".to_owned(), described(error, report.code, room));
        }
    }
    let mut list = |name: &str, entries: Vec<String>| {
        if !entries.is_empty() {
            json.insert(name.to_owned(), Json::from(entries));
        }
    };
    list("logs", rest.logs);
    list("warnings", rest.warnings);
    Json::Object(json)
}

fn described(error: &ModelError<'_>, code: &str, room: usize) -> Json {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), error.code.into());
    let excerpt = error.line.and_then(|line| excerpt(code, line, error.column));
    let for_message = room.saturating_sub(excerpt.as_deref().map_or(0, |text| text_tokens(text, room)).min(room / 2) + 3 * REPORT_OVERHEAD);
    fields.insert("message".to_owned(), shortened(error.message, for_message.max(LEAST)).into());
    for (name, number) in [("line", error.line), ("column", error.column)] {
        if let Some(number) = number {
            fields.insert(name.to_owned(), number.into());
        }
    }
    // An excerpt that does not fit is left out completely, because a cut excerpt is not useful.
    if let Some(excerpt) = excerpt.filter(|text| text_tokens(text, room) <= room / 2) {
        fields.insert("excerpt".to_owned(), excerpt.into());
    }
    Json::Object(fields)
}

/// Returns as many entries as fit into `tokens` tokens, in their original order. If `last` is true, keeps the last entries instead of the
/// first ones; `entries` must then yield the last entry first.
fn listed(entries: impl Iterator<Item = String>, count: usize, tokens: usize, last: bool, what: &str) -> Vec<String> {
    let room = tokens.saturating_sub(LIST_OVERHEAD);
    let (mut left, most) = (room, (room / ENTRY_SHARE).max(LEAST));
    let mut shown: Vec<String> = Vec::new();
    for entry in entries {
        let entry = shortened(&entry, most);
        let Some(rest) = left.checked_sub(text_tokens(&entry, room) + ENTRY_OVERHEAD) else { break };
        left = rest;
        shown.push(entry);
    }
    let mark = (shown.len() < count).then(|| {
        let side = if last { "earlier" } else { "more" };
        format!("… {} {side} {what} left out", count - shown.len())
    });
    shown.extend(mark);
    if last {
        shown.reverse();
    }
    shown
}

fn list_tokens(entries: &[String]) -> usize {
    entries.iter().map(|entry| text_tokens(entry, usize::MAX) + ENTRY_OVERHEAD).sum::<usize>() + ENTRY_OVERHEAD + 2
}

/// Returns a text that is shortened to `tokens` tokens. The result consists of the beginning and the end of the original text.
fn shortened(text: &str, tokens: usize) -> String {
    if text_tokens(text, tokens) <= tokens {
        return text.to_owned();
    }
    let room = tokens.saturating_sub(4);
    let head = head(text, room - room / 2);
    format!("{head} … {}", tail(&text[head.len()..], room / 2))
}
