//! `saved` of `host:mcp`: what earlier runs of the sandbox returned and a model was shown cut.

use std::sync::PoisonError;
use std::time::Instant;

use super::offers::{given, invalid};
use super::server_calls::{ServerCalls, throw};
use crate::error::{Error, Result};
use crate::results::part;
use crate::sandbox::{Arguments, HostReply, Value, reply_capacity};

/// What is around a value in its answer, and around each of its blobs.
const FRAME: usize = 64;

impl ServerCalls {
    /// `saved(id, pointer?)`: the value, or its part at a JSON Pointer.
    pub(super) fn saved(&self, arguments: Arguments) -> HostReply {
        self.saved_part(arguments).map_or_else(|error| throw(&error), HostReply::Value)
    }

    fn saved_part(&self, arguments: Arguments) -> Result<Value> {
        let mut given = given("saved", arguments, self.limits.max_argument_bytes)?.into_iter();
        let (id, pointer) = match (given.next(), given.next(), given.next()) {
            (Some(Value::Text(id)), None | Some(Value::Null), None) => (id, String::new()),
            (Some(Value::Text(id)), Some(Value::Text(pointer)), None) => (id, pointer),
            _ => return Err(invalid("saved", "expected saved(id), or saved(id, \"/json/pointer\")")),
        };
        let wire = {
            let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            let found = saved.get(&id, Instant::now()).cloned();
            let (max_bytes, max_age_ms) = saved.limits();
            found.ok_or(Error::NotSaved { id, max_age_ms, max_bytes })?
        };
        let value = part(returned(Value::from_wire(wire)?)?, &pointer).map_err(|error| invalid("saved", &error.0))?;
        self.small_enough(&pointer, value)
    }

    /// Refuses what the guest's buffer has no room for, as writing beyond it would end the guest.
    fn small_enough(&self, pointer: &str, value: Value) -> Result<Value> {
        let wire = value.to_wire();
        let (size, limit) = (wire.size() + FRAME * (1 + wire.blobs.len()), reply_capacity(&self.limits));
        if size <= limit {
            return Ok(value);
        }
        let what = match pointer {
            "" => "the saved value (ask for a part of it: saved(id, \"/json/pointer\"))",
            _ => "this part of the saved value (ask for a smaller one)",
        };
        Err(Error::ResponseTooLarge { what: what.to_owned(), size: size.to_string(), limit, limit_name: "the guest's buffer" })
    }
}

/// What a handler returned: runs hand it over as `{ value }`.
fn returned(outcome: Value) -> Result<Value> {
    match outcome {
        Value::Record(mut fields) if fields.len() == 1 => Ok(fields.swap_remove(0).1),
        _ => Err(Error::Internal("a saved value has no frame".to_owned())),
    }
}
