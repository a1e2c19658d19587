//! Answers the calls of the guest's `fetch`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::fetch::{FetchError, FetchRequest, FetchResponse, FetchSession, RedirectMode};
use crate::sandbox::{Arguments, HostAnswer, HostCall, HostReply, Value};

/// The module of the guest's own calls for `fetch`. No module that code imports can have this name.
pub const FETCH_MODULE: &str = "fetch:";

/// JavaScript's largest safe integer. Up to this number, JavaScript can represent each whole number exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The fetches of one run, as calls of its guest. The guest is not trusted, so this module repeats the checks that the guest makes itself.
///
/// | function | arguments | value |
/// |---|---|---|
/// | `open` | `[{ id?, method, url, headers: [[name, value]…], redirect, body?: bytes }]` | `{ body: number \| null, status, statusText, url, redirected, headers: [[name, value]…] }` |
/// | `read` | `[body]` | bytes, or `null` at the end |
/// | `cancel` | `[body]` | `null` |
/// | `abort` | `[id]` | `null`; ends the request that was opened with this number and has no response yet |
///
/// Dropping a [`FetchCalls`] ends all fetches of its run.
pub struct FetchCalls {
    session: FetchSession,
    /// Maximum size in bytes of a request from the guest. The size is the size of the request's text and of its body together.
    max_request_bytes: usize,
    /// Requests without a response, by the numbers that the guest gave them.
    opening: Opening,
}

/// Cancellation tokens of a guest's requests, by the numbers of the requests.
#[derive(Clone, Default)]
struct Opening(Arc<Mutex<HashMap<u64, CancellationToken>>>);

impl Opening {
    /// Adds a request. If another request has the same number, the new request replaces it.
    fn begin(&self, id: u64) -> CancellationToken {
        let aborted = CancellationToken::new();
        self.0.lock().insert(id, aborted.clone());
        aborted
    }

    fn end(&self, id: u64) -> Option<CancellationToken> {
        self.0.lock().remove(&id)
    }
}

impl FetchCalls {
    /// Returns the calls of a run. `max_request_bytes` is `limits.maxArgumentBytes`.
    #[must_use]
    pub fn new(session: FetchSession, max_request_bytes: usize) -> Self {
        Self { session, max_request_bytes, opening: Opening::default() }
    }

    /// Returns whether a call is for this module.
    #[must_use]
    pub fn owns(module: &str) -> bool {
        module == FETCH_MODULE
    }

    /// Starts a call. Failures become a `TypeError` with a code.
    #[must_use]
    pub fn start(&self, call: HostCall) -> HostAnswer {
        let HostCall { module: _, function, arguments } = call;
        match self.begin(&function, arguments) {
            Ok(answer) => answer,
            Err(error) => later(async move { Err(error) }),
        }
    }

    fn begin(&self, function: &str, arguments: Arguments) -> Result<HostAnswer, FetchError> {
        let argument = only(arguments, self.max_request_bytes)?;
        Ok(match function {
            "open" => {
                let (id, request) = request_of(argument)?;
                let response = self.session.open(request);
                let Some(id) = id else { return Ok(later(async move { response.await.map(value_of_response) })) };
                let (opening, aborted) = (self.opening.clone(), self.opening.begin(id));
                later(async move {
                    let outcome = tokio::select! {
                        biased;
                        () = aborted.cancelled() => return Err(FetchError::Ended),
                        outcome = response => outcome,
                    };
                    opening.end(id);
                    outcome.map(value_of_response)
                })
            }
            "read" => {
                let reading = self.session.read(number_of(&argument)?);
                later(async move { Ok(reading.await?.map_or(Value::Null, |chunk| Value::Bytes(chunk.into()))) })
            }
            "cancel" => {
                self.session.cancel(number_of(&argument)?);
                later(async { Ok(Value::Null) })
            }
            "abort" => {
                if let Some(aborted) = self.opening.end(number_of(&argument)?) {
                    aborted.cancel();
                }
                later(async { Ok(Value::Null) })
            }
            _ => return Err(invalid("there is no such function")),
        })
    }
}

fn later(answer: impl Future<Output = Result<Value, FetchError>> + Send + 'static) -> HostAnswer {
    HostAnswer::Later(Box::pin(async move { answer.await.map_or_else(|error| thrown(&error), HostReply::Value) }))
}

/// Returns the exception for a failed fetch. In the Fetch standard, every failure is a `TypeError`.
fn thrown(error: &FetchError) -> HostReply {
    HostReply::Throw { name: Some("TypeError".to_owned()), message: error.to_string(), code: Some(error.code().to_owned()) }
}

fn invalid(problem: &str) -> FetchError {
    FetchError::InvalidRequest { problem: problem.to_owned() }
}

fn only(arguments: Arguments, limit: usize) -> Result<Value, FetchError> {
    let too_large = |size: usize| {
        let problem = format!("the request has {size} bytes");
        Err(FetchError::LimitExceeded { problem, limit_name: "maxArgumentBytes", limit: limit as u64 })
    };
    match arguments {
        Arguments::Given(mut given) if given.len() == 1 => {
            let argument = given.remove(0);
            let size = argument.wire_size();
            if size > limit { too_large(size) } else { Ok(argument) }
        }
        Arguments::Given(_) => Err(invalid("it takes one argument")),
        Arguments::Oversize(size) => too_large(size),
        Arguments::Invalid(problem) => Err(invalid(&format!("the request is not a value that can leave the VM: {problem}"))),
    }
}

/// Returns the request, and the number that the guest gave it.
fn request_of(argument: Value) -> Result<(Option<u64>, FetchRequest), FetchError> {
    let Value::Record(fields) = argument else { return Err(invalid("the request is not an object")) };
    let mut request = FetchRequest { method: String::new(), ..FetchRequest::get("") };
    let mut id = None;
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("id", value) => id = Some(number_of(&value)?),
            ("method", Value::Text(method)) => request.method = method,
            ("url", Value::Text(url)) => request.url = url,
            ("headers", Value::List(headers)) => request.headers = headers.into_iter().map(header_of).collect::<Result<_, _>>()?,
            ("redirect", Value::Text(mode)) => request.redirect = redirect_of(&mode)?,
            ("body", Value::Bytes(body)) => request.body = Some(Bytes::from(body)),
            ("body", Value::Null) => request.body = None,
            _ => return Err(invalid("a field of the request has a wrong name or type")),
        }
    }
    Ok((id, request))
}

fn header_of(value: Value) -> Result<(String, String), FetchError> {
    let wrong = || invalid("each header must be a list of a name and a value");
    let Value::List(pair) = value else { return Err(wrong()) };
    match <[Value; 2]>::try_from(pair) {
        Ok([Value::Text(name), Value::Text(value)]) => Ok((name, value)),
        _ => Err(wrong()),
    }
}

fn redirect_of(mode: &str) -> Result<RedirectMode, FetchError> {
    match mode {
        "follow" => Ok(RedirectMode::Follow),
        "error" => Ok(RedirectMode::Error),
        "manual" => Ok(RedirectMode::Manual),
        _ => Err(invalid("redirect must be \"follow\", \"error\" or \"manual\"")),
    }
}

/// Returns the number of a body or a request. The guest may write a whole number as `1` or as `1.0`.
fn number_of(argument: &Value) -> Result<u64, FetchError> {
    let wrong = || invalid("the number of a body or a request must be a whole number");
    let Value::Number(number) = argument else { return Err(wrong()) };
    number.as_u64().filter(|number| *number <= MAX_SAFE_INTEGER).ok_or_else(wrong)
}

fn value_of_response(response: FetchResponse) -> Value {
    let FetchResponse { status, status_text, url, redirected, headers, body } = response;
    let header = |(name, value)| Value::List(vec![Value::Text(name), Value::Text(value)]);
    Value::record([
        ("body", body.map_or(Value::Null, |body| Value::Number(body.into()))),
        ("status", Value::Number(status.into())),
        ("statusText", Value::Text(status_text)),
        ("url", Value::Text(url)),
        ("redirected", Value::Bool(redirected)),
        ("headers", Value::List(headers.into_iter().map(header).collect())),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::fetch::{AllowedHosts, FetchPolicy, Fetcher, NoObserver};

    const MAX_BYTES: usize = 1_000;

    fn calls() -> FetchCalls {
        let policy = FetchPolicy::new(AllowedHosts::parse(["api.example.org"]).unwrap(), "Add it to fetch.hosts.");
        FetchCalls::new(Fetcher::new().session(policy, Arc::new(NoObserver)).unwrap(), MAX_BYTES)
    }

    async fn call(function: &str, arguments: Arguments) -> HostReply {
        let call = HostCall { module: FETCH_MODULE.to_owned(), function: function.to_owned(), arguments };
        match calls().start(call) {
            HostAnswer::Ready(_) => panic!("the answer of {function} is not given at once"),
            HostAnswer::Later(answer) => answer.await,
        }
    }

    fn given(argument: serde_json::Value) -> Arguments {
        Arguments::Given(vec![argument.into()])
    }

    #[tokio::test]
    async fn a_failure_is_a_type_error_with_a_code() {
        let request = json!({ "method": "GET", "url": "https://evil.example/", "headers": [], "redirect": "follow" });
        let HostReply::Throw { name, message, code } = call("open", given(request)).await else { panic!("it was sent") };
        assert_eq!(message, "Fetch blocked: domain \"evil.example\" not in whitelist. Add it to fetch.hosts.");
        assert_eq!((name.as_deref(), code.as_deref()), (Some("TypeError"), Some("ERR_FETCH_HOST_NOT_ALLOWED")));
    }

    #[tokio::test]
    async fn a_request_has_as_many_bytes_as_the_limit_allows() {
        let request =
            |url: &str| json!({ "method": "GET", "url": format!("https://evil.example/{url}"), "headers": [], "redirect": "follow" });
        let most = MAX_BYTES - Value::from(request("")).wire_size();
        for (bytes, expected) in [(most, "ERR_FETCH_HOST_NOT_ALLOWED"), (most + 1, "ERR_FETCH_LIMIT")] {
            let HostReply::Throw { code, message, .. } = call("open", given(request(&"x".repeat(bytes)))).await else {
                panic!("it was sent")
            };
            assert_eq!(code.as_deref(), Some(expected), "{message}");
        }
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        for wrong in [
            json!(1),
            json!({ "method": "GET", "url": 1 }),
            json!({ "method": "GET", "url": "https://api.example.org/", "headers": [["a"]] }),
            json!({ "method": "GET", "url": "https://api.example.org/", "headers": [["a", 1]] }),
            json!({ "method": "GET", "url": "https://api.example.org/", "redirect": "away" }),
            json!({ "method": "GET", "url": "https://api.example.org/", "body": "text" }),
            json!({ "method": "GET", "url": "https://api.example.org/", "proxy": "x" }),
            json!({ "url": "https://api.example.org/" }),
        ] {
            let HostReply::Throw { code, .. } = call("open", given(wrong.clone())).await else { panic!("{wrong}") };
            assert_eq!(code.as_deref(), Some("ERR_FETCH_INVALID_REQUEST"), "{wrong}");
        }
        for arguments in [Arguments::Oversize(9), Arguments::Invalid("deep".into()), Arguments::Given(Vec::new())] {
            assert!(matches!(call("open", arguments).await, HostReply::Throw { .. }));
        }
        for (function, argument) in
            [("read", json!("1")), ("read", json!(-1)), ("read", json!(7)), ("cancel", json!(0.5)), ("other", json!(1))]
        {
            assert!(matches!(call(function, given(argument)).await, HostReply::Throw { .. }), "{function}");
        }
        assert_eq!(call("cancel", given(json!(7))).await, HostReply::Value(Value::Null));
        assert_eq!(call("abort", given(json!(7))).await, HostReply::Value(Value::Null));
    }
}
