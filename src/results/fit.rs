//! Finds the largest cut of a value that fits into a token budget.

use serde_json::Value as Json;

use super::cut::cut;
use super::mark::Handle;
use super::measure::measure;
use super::omission::Omission;
use super::plain::tokens_within;
use crate::sandbox::Value;

/// Maximum number of attempts to find a cut. More than one attempt may be needed, because the cost of a cut is only estimated before the
/// cut is made.
const ATTEMPTS: usize = 8;
/// A cut that uses at least this percentage of the budget is large enough.
const ENOUGH: usize = 94;

/// A value that was cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The cut value. The cut value has the same JSON type as the whole value: a text, a list or a record. Apart from marks, each of its
    /// parts exists in the whole value at the same path.
    pub value: Value,
    /// The omissions, in the order in which they occur in the value. At most a thousand omissions are listed.
    pub omitted: Vec<Omission>,
}

/// Returns whether a value fits into a budget of tokens, written as the JSON that a model reads.
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

/// Returns the largest useful cut of a value within a token budget, or `None` if the whole value fits.
///
/// Small parts are not cut, and large parts share the rest of the budget equally. A text keeps its beginning and its end, a list keeps its
/// first items, and a record keeps as many fields as can get a share of the budget. A mark replaces each omission and says how much was
/// left out: inside a text, as the last item of a list, or as the last field (`…`) of a record. The outermost mark contains `handle`, which
/// refers to the whole value. If the budget is below [`super::MIN_RESULT_TOKENS`], the outermost mark alone may exceed the budget.
///
/// ```
/// use hyperlight_mcp::results::{Handle, fit};
/// use hyperlight_mcp::sandbox::Value;
///
/// let value = Value::from(serde_json::json!({ "title": "a report", "body": "word ".repeat(9_000) }));
/// let fitted = fit(&value, 100, Handle::Saved("k3")).unwrap();
/// let Value::Record(fields) = &fitted.value else { panic!() };
/// assert_eq!(fields[0], ("title".to_owned(), Value::from("a report")));
/// assert_eq!(fields[2], ("…".to_owned(), Value::from("nested values were cut; saved(\"k3\") of host:mcp has all of it")));
/// assert_eq!((fitted.omitted[0].path.as_str(), fitted.omitted[0].of), ("/body", 45_000));
/// ```
#[must_use]
pub fn fit(value: &Value, budget: usize, handle: Handle<'_>) -> Option<Fitted> {
    if fits(value, budget) {
        return None;
    }
    // The estimated cost of a cut can be higher than the number of tokens that are counted afterwards. So cuts whose estimated cost exceeds
    // the budget are tried too.
    let most = budget.saturating_mul(2);
    let (nodes, note) = (measure(value, most), handle.note());
    let attempt = |tokens| {
        let (value, omissions) = cut(value, &nodes, tokens, &note);
        let tokens = tokens_within(&value, most);
        (tokens, Fitted { value, omitted: omissions.into_list() })
    };
    let (mut fitted, mut best) = (None, 0);
    // The largest attempt that fitted into the budget, and the smallest attempt that was too large.
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
                // The attempt does not use the whole budget. The next attempt is larger in proportion, but smaller than the smallest
                // attempt that was too large.
                next = next.saturating_mul(budget) / tokens.max(1);
            }
            (tokens, _) => {
                above = next;
                // The next attempt is slightly below the exact proportion. Otherwise it could exceed the budget again by a single token.
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

/// Cuts plain JSON to a token budget. The whole value is not saved, so marks do not refer to it.
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
