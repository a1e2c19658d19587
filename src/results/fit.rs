//! The largest cut of a value that a budget holds.

use serde_json::Value as Json;

use super::cut::cut;
use super::mark::Handle;
use super::measure::measure;
use super::omission::Omission;
use super::plain::tokens_within;
use crate::sandbox::Value;

/// Cuts are estimated before they are counted: so often one is corrected.
const ATTEMPTS: usize = 8;
/// A cut that uses so much of its budget, in per cent, is large enough.
const ENOUGH: usize = 94;

/// A value that was cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Of the whole value's type as JSON has types: a text, a list or a record. All that it has beside marks is in the whole value at the
    /// same path.
    pub value: Value,
    /// The omissions, in the order of the value: the first thousand at most.
    pub omitted: Vec<Omission>,
}

/// Returns whether a value fits into a budget of tokens, in the form that a model reads.
///
/// ```
/// use hyperlight_mcp::{results::fits, sandbox::Value};
///
/// assert!(fits(&Value::from("short"), 3));
/// assert!(!fits(&Value::from("rather long for three tokens"), 3));
/// ```
#[must_use]
pub fn fits(value: &Value, budget: usize) -> bool {
    tokens_within(value, budget).is_some()
}

/// The largest sensible cut of a value within a budget of tokens; `None` where it fits as it is.
///
/// Small parts stay whole and large ones share what is left alike: of a text its beginning and its end stay, of a list the first items, of
/// a record as many fields as get a share. What is left out leaves a mark that says how much it was: in a text, as the last item of a list,
/// as the last field of a record (`…`). The outermost mark says by `handle` where the whole value is. With less than
/// [`super::MIN_RESULT_TOKENS`], the outermost mark alone may be more than the budget.
///
/// ```
/// use hyperlight_mcp::results::{Handle, fit};
/// use hyperlight_mcp::sandbox::Value;
///
/// let value = Value::from(serde_json::json!({ "title": "a report", "body": "word ".repeat(9_000) }));
/// let fitted = fit(&value, 100, Handle::Saved("k3")).unwrap();
/// let Value::Record(fields) = &fitted.value else { panic!() };
/// assert_eq!(fields[0], ("title".to_owned(), Value::from("a report")));
/// assert_eq!(fields[2], ("…".to_owned(), Value::from("cut inside; saved(\"k3\") of host:mcp has all of it")));
/// assert_eq!((fitted.omitted[0].path.as_str(), fitted.omitted[0].of), ("/body", 45_000));
/// ```
#[must_use]
pub fn fit(value: &Value, budget: usize, handle: Handle<'_>) -> Option<Fitted> {
    if fits(value, budget) {
        return None;
    }
    // A cut that was estimated as more than the budget may be less when it is counted.
    let most = budget.saturating_mul(2);
    let (nodes, note) = (measure(value, most), handle.note());
    let attempt = |tokens| {
        let (value, omissions) = cut(value, &nodes, tokens, &note);
        let tokens = tokens_within(&value, most);
        (tokens, Fitted { value, omitted: omissions.into_list() })
    };
    let (mut fitted, mut best) = (None, 0);
    // What is known to fit, and what is known to be too much.
    let (mut below, mut above) = (0, most);
    let mut next = budget;
    for _ in 0..ATTEMPTS {
        match attempt(next) {
            (Some(tokens), cut) if tokens <= budget => {
                below = next;
                if tokens >= best {
                    (fitted, best) = (Some(cut), tokens);
                }
                if tokens.saturating_mul(100) >= budget.saturating_mul(ENOUGH) {
                    break;
                }
                // In proportion to what was used, as far as that is not known to be too much.
                next = next.saturating_mul(budget) / tokens.max(1);
            }
            (tokens, _) => {
                above = next;
                // A little less than in proportion, or once more it would be too much by a token.
                next = (next.saturating_mul(budget) / tokens.unwrap_or(most).max(1)).saturating_sub(1 + budget / 500);
            }
        }
        if next >= above || next <= below {
            next = usize::midpoint(below, above);
        }
        if next <= below || above - below <= budget / 64 {
            break;
        }
    }
    Some(fitted.unwrap_or_else(|| attempt(0).1))
}

/// The same for plain JSON that nothing keeps: what does not fit is cut.
///
/// ```
/// use hyperlight_mcp::results::fit_json;
///
/// let text = fit_json(serde_json::json!({ "rows": vec!["a row"; 1_000] }), 100).to_string();
/// assert!(text.len() < 400 && text.contains(" of 1000 items left out"), "{text}");
/// ```
#[must_use]
pub fn fit_json(json: Json, budget: usize) -> Json {
    let value = Value::from(json);
    match fit(&value, budget, Handle::None) {
        Some(fitted) => fitted.value.into_json(),
        None => value.into_json(),
    }
}
