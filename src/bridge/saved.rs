//! Implements `saved` of `host:mcp`. `saved` returns values of earlier runs of the sandbox, of which a model only saw a part.
//!
//! A value is returned as the text in which it was stored, or as a part of that text. The text is not parsed into values, so even frequent
//! requests of a guest cost little.

use std::collections::BTreeMap;
use std::time::Instant;

use super::resources_and_prompts::{given, invalid};
use super::server_calls::ServerCalls;
use crate::error::{Error, Result};
use crate::redact::WrittenPaths;
use crate::results::part;
use crate::sandbox::{Arguments, HostReply, Value, Wire, reply_capacity};

/// Maximum number of bytes that the answer adds to a value, and that it adds to each blob of the value.
const FRAME: usize = 64;
/// The text with which a saved value and a reply begin: `{"value":…}`.
const VALUE: &str = "{\"value\":";
/// The JSON text before the number of a blob. This text cannot occur inside a string, because quotes in a string are escaped.
const BLOB: &str = "{\"$bytes\":";

impl ServerCalls {
    /// Implements `saved(id, pointer?)`. `saved` returns the whole value, or the part of it that a JSON Pointer names.
    pub(super) fn saved(&self, arguments: Arguments) -> HostReply {
        // The pointer looks like a path. The code has written it, so an error repeats it in full.
        let mut pointer = WrittenPaths::default();
        self.saved_part(arguments, &mut pointer).map_or_else(|error| self.throw_to_writer(error, &pointer), HostReply::Written)
    }

    fn saved_part(&self, arguments: Arguments, written: &mut WrittenPaths) -> Result<Wire> {
        let mut given = given("saved", arguments, self.limits.max_argument_bytes)?.into_iter();
        let (id, pointer) = match (given.next(), given.next(), given.next()) {
            (Some(Value::Text(id)), None | Some(Value::Null), None) => (id, String::new()),
            (Some(Value::Text(id)), Some(Value::Text(pointer)), None) => (id, pointer),
            _ => return Err(invalid("saved", "expected saved(id), or saved(id, \"/json/pointer\")")),
        };
        written.add(&pointer);
        let mut saved = self.saved.lock();
        let (max_bytes, max_age_ms) = saved.limits();
        let outcome = saved.get(&id, Instant::now()).ok_or(Error::NotSaved { id: id.into(), max_age_ms, max_bytes })?;
        part_of(outcome, &pointer, reply_capacity(&self.limits))
    }
}

/// Returns a part of the value that a handler returned, as a reply to the guest.
fn part_of(outcome: &Wire, pointer: &str, limit: usize) -> Result<Wire> {
    let value = outcome.json.strip_prefix(VALUE).ok_or_else(|| Error::Internal("a saved value has no envelope".into()))?;
    let found = part(value, pointer).map_err(|error| invalid("saved", &error.0))?;
    let pieces = Pieces::of(found, outcome.blobs.len())?;
    let bytes: usize = pieces.blobs.keys().map(|index| outcome.blobs[*index].len()).sum();
    check_size(pointer, found.len() + bytes + FRAME * (1 + pieces.blobs.len()), limit)?;
    let mut blobs = vec![Vec::new(); pieces.blobs.len()];
    for (from, to) in &pieces.blobs {
        blobs[*to].clone_from(&outcome.blobs[*from]);
    }
    Ok(Wire { json: pieces.written(found), blobs })
}

/// Fails if a value exceeds the guest's buffer. Writing beyond the end of the buffer would stop the guest.
fn check_size(pointer: &str, size: usize, limit: usize) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let what = match pointer {
        "" => "the saved value (ask for a part of it: saved(id, \"/json/pointer\"))",
        _ => "this part of the saved value (ask for a smaller one)",
    };
    Err(Error::ResponseTooLarge { what: what.into(), size: size.to_string().into(), limit, limit_name: "the guest's buffer" })
}

/// The blobs (byte arrays) that a part of a value refers to. The part is returned together with only these blobs, and they get new numbers.
#[derive(Default)]
struct Pieces {
    /// One entry for each reference to a blob: the start and the end of the blob's number in the text, and the new number of the blob.
    numbers: Vec<(usize, usize, usize)>,
    /// New number of each blob, keyed by its old number.
    blobs: BTreeMap<usize, usize>,
}

impl Pieces {
    fn of(part: &str, count: usize) -> Result<Self> {
        let mut pieces = Self::default();
        for (at, _) in part.match_indices(BLOB) {
            let start = at + BLOB.len();
            let digits = part[start..].bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                // This is not a reference to a blob, but an escaped object of the guest that has the key `$bytes`.
                continue;
            }
            let missing = || Error::Internal("a saved value refers to a blob that does not exist".into());
            let index = part[start..start + digits].parse().ok().filter(|index| *index < count).ok_or_else(missing)?;
            let next = pieces.blobs.len();
            let new = *pieces.blobs.entry(index).or_insert(next);
            pieces.numbers.push((start, start + digits, new));
        }
        Ok(pieces)
    }

    fn written(&self, part: &str) -> String {
        let mut json = String::with_capacity(VALUE.len() + part.len() + 1);
        json.push_str(VALUE);
        let mut from = 0;
        for (start, end, number) in &self.numbers {
            json.push_str(&part[from..*start]);
            json.push_str(&number.to_string());
            from = *end;
        }
        json.push_str(&part[from..]);
        json.push('}');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn returned(value: Value) -> Wire {
        Value::record([("value", value)]).to_wire()
    }

    fn read(outcome: &Wire, pointer: &str) -> Value {
        let Value::Record(mut fields) = Value::from_wire(part_of(outcome, pointer, 1000).unwrap()).unwrap() else { panic!("no record") };
        fields.remove(0).1
    }

    #[test]
    fn a_part_goes_back_as_it_was_with_its_own_bytes_and_no_others() {
        let bytes = |byte: u8| Value::Bytes(vec![byte; 3]);
        let rows = Value::List(vec![bytes(1), Value::record([("text", Value::from("{\"$bytes\":0}")), ("b", bytes(2))])]);
        let escaped = Value::record([("$bytes", Value::List(vec![bytes(3)]))]);
        let outcome = returned(Value::record([("rows", rows.clone()), ("escaped", escaped.clone()), ("last", bytes(4))]));
        assert_eq!(part_of(&outcome, "", 1000).unwrap(), outcome);
        assert_eq!(read(&outcome, "/rows"), rows);
        assert_eq!(read(&outcome, "/escaped"), escaped);
        assert_eq!(read(&outcome, "/escaped/$bytes/0"), bytes(3));
        assert_eq!(part_of(&outcome, "/last", 1000).unwrap().blobs, [vec![4; 3]]);
    }

    #[test]
    fn what_the_guest_has_no_room_for_is_refused_before_it_is_copied() {
        let outcome = returned(Value::List(vec![Value::Bytes(vec![7; 900]), Value::from("x".repeat(900))]));
        for (pointer, word) in [("", "ask for a part"), ("/0", "ask for a smaller"), ("/1", "ask for a smaller")] {
            let error = part_of(&outcome, pointer, 900).unwrap_err();
            assert_eq!(error.code(), "ERR_RESPONSE_TOO_LARGE");
            assert!(error.in_full().contains(word), "{error}");
        }
    }

    #[test]
    fn bytes_that_a_text_names_often_are_copied_once() {
        let often =
            Wire { json: format!("{{\"value\":[{}]}}", [BLOB, "0}"].concat().repeat(9).replace("}{", "},{")), blobs: vec![vec![1]] };
        assert_eq!(part_of(&often, "", 1000).unwrap().blobs.len(), 1);
        let none = Wire { json: "{\"value\":{\"$bytes\":7}}".to_owned(), blobs: Vec::new() };
        assert_eq!(part_of(&none, "", 1000).unwrap_err().code(), "ERR_INTERNAL");
        assert_eq!(read(&returned(Value::from(json!({ "a": [1, { "b": null }] }))), "/a/1/b"), Value::Null);
    }
}
