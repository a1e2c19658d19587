//! Cuts a value to an approximate number of tokens. Each part gets a share of the budget. A mark replaces each part that is left out.

use super::mark::{bytes_mark, items_mark, keys_mark, mark_key, names_mark, text_mark};
use super::measure::{COMMA, FIELD, MAX_KEY_BYTES, MIN_SHARE, Node, QUOTES, parts};
use super::omission::{OmissionKind, Omissions, Step};
use super::share::share;
use super::text::{head, length, tail, text_tokens};
use crate::sandbox::Value;

/// A list shows at least this number of its first items, if its tokens are enough to give each of them [`MIN_SHARE`] tokens. A few long
/// items are more useful to a model than many short ones.
const MIN_ITEMS: usize = 4;
/// Minimum number of fields that a record shows. It is higher than the number of items, because the fields of a record are seldom similar
/// to each other.
const MIN_FIELDS: usize = 16;
/// Number of tokens below which a cut text shows only its beginning. With more tokens, it also shows its end.
const MIN_FOR_TAIL: usize = 40;

/// Cuts a measured value to about `tokens` tokens. `note` is added to the outermost mark.
pub(super) fn cut(value: &Value, nodes: &[Node], tokens: usize, note: &str) -> (Value, Omissions) {
    let mut cutter = Cutter { nodes, note, path: Vec::new(), omissions: Omissions::default() };
    let (cut, _) = cutter.part(value, 0, tokens);
    (cut, cutter.omissions)
}

/// Cuts a value recursively. The recursion follows the nodes, so it is at most [`super::MAX_DEPTH`] levels deep.
struct Cutter<'a> {
    nodes: &'a [Node],
    note: &'a str,
    path: Vec<Step<'a>>,
    omissions: Omissions,
}

/// A value as it is shown, and its cost in tokens.
type Shown = (Value, usize);

impl<'a> Cutter<'a> {
    fn part(&mut self, value: &'a Value, node: usize, tokens: usize) -> Shown {
        let cost = self.nodes[node].cost as usize;
        match value {
            _ if cost <= tokens => (value.clone(), cost),
            Value::Null | Value::Bool(_) | Value::Number(_) => (value.clone(), cost),
            Value::Text(text) => self.text(text, node, tokens),
            Value::Bytes(bytes) => {
                self.omit(node, OmissionKind::Bytes, 0, bytes.len());
                let mark = bytes_mark(bytes.len(), self.note());
                let cost = text_tokens(&mark, usize::MAX) + QUOTES;
                (Value::Text(mark), cost)
            }
            Value::List(items) => self.list(items, node, tokens),
            Value::Record(fields) => self.record(fields, node, tokens),
        }
    }

    /// Returns the note for the current mark. Only the outermost mark has a note.
    fn note(&self) -> &'a str {
        if self.path.is_empty() { self.note } else { "" }
    }

    fn omit(&mut self, node: usize, kind: OmissionKind, kept: usize, of: usize) {
        self.omissions.add(node, &self.path, kind, kept, of);
    }

    fn text(&mut self, text: &'a str, node: usize, tokens: usize) -> Shown {
        let of = length(text);
        let mark = |kept: usize| text_mark(of - kept, self.note());
        let for_mark = text_tokens(&mark(0), usize::MAX) + QUOTES;
        let room = tokens.saturating_sub(for_mark);
        let for_tail = if room < MIN_FOR_TAIL { 0 } else { room / 3 };
        let head = head(text, room - for_tail);
        let tail = tail(&text[head.len()..], for_tail);
        let kept = length(head) + length(tail);
        let cut = match tail {
            "" => head.to_owned() + &mark(kept),
            tail => format!("{head}{} … {tail}", mark(kept)),
        };
        self.omit(node, OmissionKind::Text, kept, of);
        (Value::Text(cut), for_mark + room)
    }

    fn list(&mut self, items: &'a [Value], node: usize, tokens: usize) -> Shown {
        let whole = items.len();
        let for_mark = text_tokens(&items_mark(0, whole, self.note()), usize::MAX) + QUOTES + COMMA;
        let room = tokens.saturating_sub(QUOTES + for_mark);
        let least = MIN_SHARE.max(room / MIN_ITEMS);
        let mut left = room;
        let mut chosen = Vec::new();
        for (index, part) in parts(self.nodes, node).enumerate() {
            let cost = self.nodes[part].cost as usize;
            let Some(rest) = left.checked_sub(COMMA + cost.min(least)) else { break };
            left = rest;
            chosen.push((index, part));
        }
        // If all items are shown, no mark is needed. The tokens of the mark are then used for the items.
        let spare = if chosen.len() == whole && self.note().is_empty() { for_mark } else { 0 };
        let shown = self.shared(room + spare - COMMA * chosen.len(), &chosen, |index| (Step::Index(index), &items[index]));
        let mut cost = QUOTES + COMMA * shown.len();
        let mut cut = Vec::with_capacity(shown.len() + 1);
        for (value, used) in shown {
            cost += used;
            cut.push(value);
        }
        if self.leaves_mark(node, OmissionKind::Items, cut.len(), whole) {
            cut.push(Value::Text(items_mark(cut.len(), whole, self.note())));
            cost += for_mark;
        }
        (Value::List(cut), cost)
    }

    fn record(&mut self, fields: &'a [(String, Value)], node: usize, tokens: usize) -> Shown {
        let whole = fields.len();
        let for_mark = text_tokens(&keys_mark(0, whole, self.note()), usize::MAX) + QUOTES + FIELD + 2;
        let room = tokens.saturating_sub(QUOTES + for_mark);
        let least = MIN_SHARE.max(room / MIN_FIELDS);
        let (mut left, mut for_keys) = (room, 0);
        let mut chosen = Vec::new();
        for (index, part) in parts(self.nodes, node).enumerate() {
            let (key, cost) = (self.nodes[part].key as usize + FIELD, self.nodes[part].cost as usize);
            // No further field fits, because even a field with an empty name costs more than `FIELD` tokens.
            if left <= FIELD {
                break;
            }
            if fields[index].0.len() > MAX_KEY_BYTES {
                continue;
            }
            if let Some(rest) = left.checked_sub(key + cost.min(least)) {
                (left, for_keys) = (rest, for_keys + key);
                chosen.push((index, part));
            }
        }
        let spare = if chosen.len() == whole && self.note().is_empty() { for_mark } else { 0 };
        let shown = self.shared(room + spare - for_keys, &chosen, |index| (Step::Key(&fields[index].0), &fields[index].1));
        let mut cost = QUOTES + for_keys;
        let mut cut = Vec::with_capacity(shown.len() + 1);
        for ((value, used), (index, _)) in shown.into_iter().zip(&chosen) {
            cost += used;
            cut.push((fields[*index].0.clone(), value));
        }
        if self.leaves_mark(node, OmissionKind::Keys, cut.len(), whole) {
            let names = left_out(fields, &chosen);
            let mark = names_mark(names, whole, self.note()).unwrap_or_else(|| keys_mark(cut.len(), whole, self.note()));
            cut.push((mark_key(fields.iter().map(|(key, _)| key.as_str())), Value::Text(mark)));
            cost += for_mark;
        }
        (Value::Record(cut), cost)
    }

    /// Returns the chosen parts in their order, each cut to its share of the tokens.
    fn shared(&mut self, tokens: usize, chosen: &[(usize, usize)], part: impl Fn(usize) -> (Step<'a>, &'a Value)) -> Vec<Shown> {
        let costs: Vec<usize> = chosen.iter().map(|(_, node)| self.nodes[*node].cost as usize).collect();
        let mut shown: Vec<Shown> = vec![(Value::Null, 0); chosen.len()];
        share(tokens, &costs, |place, allowed| {
            let (index, node) = chosen[place];
            let (step, value) = part(index);
            self.path.push(step);
            shown[place] = self.part(value, node, allowed);
            self.path.pop();
            shown[place].1
        });
        shown
    }

    /// Returns whether a list or record gets a mark for omitted parts. If there is a note, the outermost list or record always gets a
    /// mark. Also records the omission.
    fn leaves_mark(&mut self, node: usize, kind: OmissionKind, kept: usize, of: usize) -> bool {
        if kept < of {
            let inside = !self.path.is_empty();
            self.omit(node, if kept == 0 && inside { OmissionKind::Depth } else { kind }, kept, of);
        }
        kept < of || !self.note().is_empty()
    }
}

/// Returns the names of the fields that were not chosen.
fn left_out<'a>(fields: &'a [(String, Value)], chosen: &[(usize, usize)]) -> impl Iterator<Item = &'a str> {
    let mut chosen = chosen.iter().map(|(index, _)| *index).peekable();
    let others = fields.iter().enumerate().filter(move |(index, _)| chosen.next_if_eq(index).is_none());
    others.map(|(_, (key, _))| key.as_str())
}
