//! Measures the cost of each part of a value. A value is measured only once, before it is cut.

use serde_json::Number;

use super::MAX_DEPTH;
use super::text::{byte_tokens, text_tokens};
use crate::catalog::estimate_tokens;
use crate::sandbox::Value;

/// The cost of a part that is nested deeper than the limit. This cost exceeds every budget.
const TOO_DEEP: u32 = u32::MAX / 4;

/// Minimum number of tokens that a shown part gets, unless it costs less. This is enough for the beginning of the part and a mark.
pub(super) const MIN_SHARE: usize = 24;
/// Maximum length in bytes of a key in a cut. Fields with longer keys are left out, because keys cannot be cut and are part of every
/// path.
pub(super) const MAX_KEY_BYTES: usize = 256;
/// So many times more fields are measured than a cut could show (see `record`).
const FIELDS_LOOKED_AT: usize = 16;

/// Tokens for a text's quotes, or for the brackets of a list or record.
pub(super) const QUOTES: usize = 1;
/// Tokens of the comma after an item.
pub(super) const COMMA: usize = 1;
/// Tokens of the quotes, the colon and the comma of a field.
pub(super) const FIELD: usize = 3;

/// The measurement of a value. In a list of nodes, the node of a value is followed by the nodes of the value's parts, in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// Approximate number of tokens, or a number above the budget.
    pub(super) cost: u32,
    /// Tokens of the key if the value is a field of a record, and otherwise 0.
    pub(super) key: u32,
    /// Number of nodes that belong to the value: its own node and the nodes of all nested parts.
    pub(super) nodes: u32,
}

/// Measures a value for cuts of at most `cap` tokens. Parts that such a cut could not show in any case are not measured.
pub(super) fn measure(value: &Value, cap: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    visit(value, 0, cap, 0, &mut nodes);
    nodes
}

/// Returns the node indexes of a list's elements or a record's fields.
pub(super) fn parts(nodes: &[Node], index: usize) -> impl Iterator<Item = usize> {
    let end = index + nodes[index].nodes as usize;
    let mut next = index + 1;
    std::iter::from_fn(move || {
        let part = next;
        next += nodes.get(part).map_or(1, |node| node.nodes as usize);
        (part < end).then_some(part)
    })
}

fn visit(value: &Value, key: u32, cap: usize, depth: usize, nodes: &mut Vec<Node>) -> u32 {
    let index = nodes.len();
    nodes.push(Node { cost: 0, key, nodes: 1 });
    let cost = match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(number) => bounded(number_tokens(number)),
        Value::Text(text) => bounded(text_tokens(text, cap) + QUOTES),
        Value::Bytes(bytes) => bounded(byte_tokens(bytes, cap) + QUOTES),
        Value::List(_) | Value::Record(_) if depth >= MAX_DEPTH => TOO_DEEP,
        Value::List(items) => list(items, cap, depth + 1, nodes),
        Value::Record(fields) => record(fields, cap, depth + 1, nodes),
    };
    nodes[index].cost = cost;
    nodes[index].nodes = bounded(nodes.len() - index);
    cost
}

/// Measures the items of a list in order. Stops when the measured items would exceed `cap` even if each of them gets only [`MIN_SHARE`],
/// because a cut cannot show more items than that.
fn list(items: &[Value], cap: usize, depth: usize, nodes: &mut Vec<Node>) -> u32 {
    let (mut cost, mut least) = (bounded(QUOTES), 0);
    for item in items {
        let item = visit(item, 0, cap, depth, nodes);
        cost = cost.saturating_add(item).saturating_add(bounded(COMMA));
        least += COMMA + MIN_SHARE.min(item as usize);
        if least > cap {
            break;
        }
    }
    cost
}

/// Measures the fields of a record. Measures more fields than a cut could show, because a small field may be shown even if larger fields
/// before it are left out.
fn record(fields: &[(String, Value)], cap: usize, depth: usize, nodes: &mut Vec<Node>) -> u32 {
    let (mut cost, mut least) = (bounded(QUOTES), 0);
    for (key, value) in fields {
        let tokens = bounded(text_tokens(key, cap));
        let value = visit(value, tokens, cap, depth, nodes);
        cost = cost.saturating_add(value).saturating_add(tokens).saturating_add(bounded(FIELD));
        if key.len() <= MAX_KEY_BYTES {
            least += FIELD + tokens as usize + MIN_SHARE.min(value as usize);
        }
        if least > cap.saturating_mul(FIELDS_LOOKED_AT) {
            break;
        }
    }
    cost
}

/// Returns how many tokens a number takes. The digits of an integer are counted without formatting the integer.
fn number_tokens(number: &Number) -> usize {
    let digits = |number: u64| number.checked_ilog10().map_or(1, |digits| digits as usize / 3 + 1);
    match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => digits(number),
        (None, Some(number)) => 1 + digits(number.unsigned_abs()),
        (None, None) => estimate_tokens(&number.to_string()),
    }
}

fn bounded(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    #[test]
    fn numbers_cost_what_their_text_does() {
        for number in [json!(0), json!(7), json!(999), json!(1_000), json!(-12_345), json!(u64::MAX), json!(i64::MIN), json!(1.5e300)] {
            let Json::Number(number) = number else { unreachable!() };
            assert_eq!(number_tokens(&number), estimate_tokens(&number.to_string()), "{number}");
        }
    }

    #[test]
    fn what_no_cut_could_show_is_not_looked_at() {
        let numbers = Value::List(vec![Value::Number(7.into()); 100_000]);
        assert!(measure(&numbers, 100).len() < 100);
        let nodes = measure(&Value::Record((0..100_000).map(|key| (key.to_string(), Value::Null)).collect()), 100);
        assert!((100..1_000).contains(&nodes.len()) && nodes[0].cost > 100);
    }

    #[test]
    fn each_part_has_its_node_and_the_whole_costs_about_what_its_text_does() {
        let json = json!({ "rows": [{ "city": "Rome", "degrees": 31 }, { "city": "Oslo", "degrees": 12 }], "note": "sunny", "none": [] });
        let nodes = measure(&Value::from(json.clone()), 1_000);
        assert_eq!(nodes.len(), 10);
        assert_eq!(parts(&nodes, 0).collect::<Vec<_>>(), [1, 8, 9]);
        assert_eq!(parts(&nodes, 1).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(parts(&nodes, 9).count(), 0);
        let exact = estimate_tokens(&json.to_string());
        assert!((nodes[0].cost as usize).abs_diff(exact) * 5 < exact, "{} {exact}", nodes[0].cost);
    }
}
