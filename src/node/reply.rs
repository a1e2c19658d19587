//! The reply that a native promise returns to the glue code. It is one JSON text, `{ ok }` or `{ error }`, and the bytes that belong to
//! this text.

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use napi::Env;
use napi::bindgen_prelude::{Either, FnArgs, Object, Uint8Array, Unknown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::events::after_events;
use super::runtime::GatewayRuntime;
use super::{glue, options};
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::sandbox::{HostReply, Value, Wire};

/// An outcome in the form that is sent to JavaScript.
pub(super) struct Reply(Wire);

/// The list `[json, …blobs]` for JavaScript.
pub(super) type Parts = Vec<Either<String, Uint8Array>>;

impl Reply {
    /// Creates the reply for a plain value or an error.
    pub(super) fn new<T: Serialize>(outcome: Result<T>) -> Self {
        match outcome.and_then(|value| serde_json::to_value(value).map_err(|error| Error::Internal(error.to_string().into()))) {
            // The value is first converted to `Value`. This escapes JSON of a server that looks like a placeholder for bytes.
            Ok(json) => Self(Value::record([("ok", Value::from(json))]).to_wire()),
            Err(error) => Self::failure(&error, json!({})),
        }
    }

    /// Creates the reply for an error, with the additional fields in `more`.
    pub(super) fn failure(error: &Error, more: Json) -> Self {
        let mut fields = more;
        fields["code"] = error.code().into();
        fields["message"] = error.to_string().into();
        if let Error::GuestThrew { name, stack, line, column, .. } = error {
            fields["guest"] = json!({ "name": name.shown(), "stack": stack.shown(), "line": line, "column": column });
        }
        if let Error::CodeSyntax { line, column, .. } = error {
            fields["line"] = json!(line);
            fields["column"] = json!(column);
        }
        Self(Value::record([("error", Value::from(fields))]).to_wire())
    }

    /// Creates the reply with the result that a guest would get: `{ value }`, or the error that would be thrown in the guest.
    pub(super) fn of_host(reply: HostReply) -> Self {
        match reply {
            HostReply::Value(value) => Self(Value::record([("ok", Value::record([("value", value)]))]).to_wire()),
            HostReply::Written(Wire { json, blobs }) => Self(Wire { json: format!("{{\"ok\":{json}}}"), blobs }),
            HostReply::Throw { message, code, .. } => {
                let code = code.map(|code| ("code".to_owned(), Value::Text(code)));
                let fields = [("message".to_owned(), Value::Text(message))].into_iter().chain(code).collect();
                Self(Value::record([("error", Value::Record(fields))]).to_wire())
            }
        }
    }

    /// Creates the reply for a guest's value with further fields. `value.json` is `{"value":…}`.
    pub(super) fn with_guest_value(value: Wire, fields: &Json) -> Self {
        let fields = fields.to_string();
        // Two JSON objects are joined: the closing brace of the value and the opening brace of `fields` are removed.
        let json = format!("{{\"ok\":{},{}}}", &value.json[..value.json.len() - 1], &fields[1..]);
        Self(Wire { json, blobs: value.blobs })
    }

    /// Returns the size in bytes of the JSON that JavaScript's thread has to parse. Byte arrays are not parsed.
    fn bytes(&self) -> usize {
        self.0.json.len()
    }

    pub(super) fn into_parts(self) -> Parts {
        let blobs = self.0.blobs.into_iter().map(|blob| Either::B(Uint8Array::from(blob)));
        std::iter::once(Either::A(self.0.json)).chain(blobs).collect()
    }
}

/// Runs a method whose arguments and result are plain data. `subject` is the object to which the method belongs. It is cloned for the work.
pub(super) fn method<'env, const N: usize, S, A, T, F, W>(
    env: &'env Env,
    core: &GatewayRuntime,
    subject: &S,
    name: &'static str,
    args: [Option<Unknown<'env>>; N],
    work: F,
) -> napi::Result<Object<'env>>
where
    S: Clone + Send + 'static,
    A: DeserializeOwned + Send + 'static,
    T: Serialize,
    F: Fn(S, A) -> W + Send + Clone + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let (core, subject) = (core.clone(), subject.clone());
    let start = env.create_function_from_closure::<(), Object<'static>, _>(name, move |context| {
        let env = Env::from_raw(context.env.raw());
        let json: String = context.get(0)?;
        let (subject, work) = (subject.clone(), work.clone());
        let native = promise(&env, &core, async move {
            match options::arguments::<A>(name, &json) {
                Ok(arguments) => Reply::new(work(subject, arguments).await),
                Err(error) => Reply::new::<T>(Err(error)),
            }
        })?;
        Ok(glue::detached(&native))
    })?;
    glue::call(env, "method", FnArgs::from((start, name, Vec::from(args))))
}

/// Returns a promise of a reply. The promise is settled by work on the tokio runtime.
pub(super) fn promise<'env>(
    env: &'env Env,
    core: &GatewayRuntime,
    work: impl Future<Output = Reply> + Send + 'static,
) -> napi::Result<Object<'env>> {
    promise_of(env, core, work, Reply::bytes, |reply, _| Ok(reply.into_parts()))
}

/// Returns a promise of any value. The promise is settled when a turn of the event loop has room for it, after earlier events were
/// delivered. `bytes` returns the size of the JSON that JavaScript's thread has to parse. `convert` runs on that thread.
pub(super) fn promise_of<'env, T, V>(
    env: &'env Env,
    core: &GatewayRuntime,
    work: impl Future<Output = T> + Send + 'static,
    bytes: impl FnOnce(&T) -> usize + Send + 'static,
    convert: impl FnOnce(T, Env) -> napi::Result<V> + Send + 'static,
) -> napi::Result<Object<'env>>
where
    T: Send + 'static,
    V: napi::bindgen_prelude::ToNapiValue + 'static,
{
    let (deferred, promise) = env.create_deferred()?;
    let (events, outcomes) = (core.events(), glue::outcomes(env)?);
    let unsettled = Unsettled::new(move |outcome: Result<T>| {
        outcomes.send(outcome.as_ref().map_or(0, bytes), move |settling| {
            deferred.resolve(move |env| {
                settling.settled(&env);
                convert(outcome.map_err(|error| glue::thrown(&env, &error))?, env)
            });
        });
    });
    core.spawn(async move {
        // If the work panics, the promise is settled with `ERR_INTERNAL`.
        let outcome = AssertUnwindSafe(after_events(events, work)).catch_unwind().await;
        unsettled.settle(outcome.map_err(|_| Error::Internal("a panic ended the operation".into())));
    });
    Ok(promise)
}

/// A pending promise. If the work of the promise is dropped, the promise is settled with `ERR_CLOSED`, so that no promise stays pending
/// forever.
struct Unsettled<T, S: FnOnce(Result<T>)> {
    settle: Option<S>,
    outcome: PhantomData<fn(T)>,
}

impl<T, S: FnOnce(Result<T>)> Unsettled<T, S> {
    fn new(settle: S) -> Self {
        Self { settle: Some(settle), outcome: PhantomData }
    }

    fn settle(mut self, outcome: Result<T>) {
        if let Some(settle) = self.settle.take() {
            settle(outcome);
        }
    }
}

impl<T, S: FnOnce(Result<T>)> Drop for Unsettled<T, S> {
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            settle(Err(Error::Closed { what: "gateway" }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_whose_work_is_dropped_is_settled_once() {
        let outcomes = std::cell::RefCell::new(Vec::new());
        let unsettled = || Unsettled::new(|outcome: Result<u8>| outcomes.borrow_mut().push(outcome));
        unsettled().settle(Ok(1));
        drop(unsettled());
        let outcomes = outcomes.into_inner();
        assert!(matches!(outcomes[..], [Ok(1), Err(Error::Closed { .. })]), "{outcomes:?}");
    }
}
