//! Classifies a server's messages, and passes results through rmcp unchanged.
//!
//! rmcp's result type is an untagged union, so rmcp may parse a result with an unknown content block or an extra key as another type.
//! Results are therefore wrapped as text under a private key. rmcp keeps the wrapped result unchanged in a `CustomResult`, and
//! [`raw_result`] unwraps it. If rmcp itself needs a result, it gets the result in a form that it can parse.

use std::collections::HashSet;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorData, InitializeResult, JsonRpcError, JsonRpcMessage, JsonRpcResponse,
    JsonRpcVersion2_0, ListToolsResult, RequestId, ServerJsonRpcMessage, ServerResult, Tool,
};
use serde_json::{Map, Value as Json, json};

use super::failure::HttpFailure;
use crate::client::wire::answer::{NO_CONTENT, error_of, is_answer_without_content};
use crate::limits::MAX_LIST_ENTRIES;
use crate::off_runtime::off_the_runtime_if_long;

/// The key under which a result is wrapped as text.
const RAW: &str = "hyperlight-mcp/raw";

/// The form in which a request's result is passed to rmcp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The result reaches the caller unchanged.
    Raw,
    /// The result is passed to rmcp in rmcp's own type.
    Typed,
    /// The result is passed to rmcp, and must be a valid `InitializeResult`.
    Initialize,
    /// The result comes on the same stream as the notifications of the subscription, so the end of this stream is not a failure.
    Listen,
    /// rmcp gets the valid tools, because a tool's schema may require HTTP headers. The caller gets the result unchanged.
    Tools,
    /// The result of `server/discover` is passed to rmcp in rmcp's own type. The answer must arrive within a short time limit.
    Discover,
}

/// A request that waits for its answer.
#[derive(Debug, Clone)]
pub(super) struct Awaited {
    pub(super) id: RequestId,
    pub(super) kind: Kind,
    pub(super) method: String,
}

impl Awaited {
    pub(super) fn of(message: &ClientJsonRpcMessage) -> Option<Self> {
        let JsonRpcMessage::Request(request) = message else { return None };
        let method = request.request.method().to_owned();
        Some(Self { id: request.id.clone(), kind: kind_of(&request.request, &method), method })
    }

    /// Returns whether the request changes nothing at the server. Such a request may be sent again after the server answered 429 or 503.
    pub(super) fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "initialize" | "server/discover" | "ping") || self.method.ends_with("/list")
    }

    pub(super) fn fail(&self, failure: &HttpFailure) -> Answer {
        self.error(failure.to_error_data())
    }

    pub(super) fn error(&self, error: ErrorData) -> Answer {
        Answer { id: self.id.clone(), content: Content::Error(error) }
    }

    /// Converts a JSON-RPC message with a result or an error to the form that rmcp gets.
    fn answer(&self, message: &mut Json) -> Answer {
        if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
            return self.error(error_of(error));
        }
        let result = message.get_mut("result").map(Json::take).unwrap_or_default();
        let content = match self.kind {
            Kind::Raw => Content::Raw(result),
            Kind::Typed | Kind::Listen | Kind::Discover => Content::Typed(result),
            Kind::Tools => tools_page(result),
            Kind::Initialize => match serde_json::from_value::<InitializeResult>(result.clone()) {
                Ok(_) => Content::Typed(result),
                Err(error) => return self.fail(&HttpFailure::Malformed(format!("its answer to initialize is not valid: {error}"))),
            },
        };
        Answer { id: self.id.clone(), content }
    }
}

fn kind_of(request: &ClientRequest, method: &str) -> Kind {
    match (request, method) {
        (ClientRequest::InitializeRequest(_), _) => Kind::Initialize,
        (ClientRequest::DiscoverRequest(_), _) => Kind::Discover,
        (ClientRequest::SubscriptionsListenRequest(_), _) => Kind::Listen,
        (ClientRequest::ListToolsRequest(_), _) => Kind::Tools,
        (_, "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" | "tasks/cancel" | "tasks/update") => Kind::Typed,
        _ => Kind::Raw,
    }
}

/// The kind of a message from the server.
pub(super) enum Inbound {
    /// The answer to the request that is waiting.
    Answer(Box<Answer>),
    /// A notification or a request of the server.
    Other,
    /// An answer to a request other than the one that is waiting.
    Foreign,
    /// JSON that is not a JSON-RPC message.
    Noise,
}

/// Classifies a message. If the message is the answer to the waiting request, also converts it.
pub(super) fn sort(message: &mut Json, awaited: Option<&Awaited>) -> Inbound {
    let Some(fields) = message.as_object() else { return Inbound::Noise };
    if fields.get("method").is_some_and(Json::is_string) {
        return Inbound::Other;
    }
    let is_error = fields.get("error").is_some_and(|error| !error.is_null());
    if !is_error && !fields.contains_key("result") {
        return match awaited.filter(|awaited| is_same(&awaited.id, fields.get("id")) && is_answer_without_content(message)) {
            Some(awaited) => Inbound::Answer(Box::new(awaited.fail(&HttpFailure::Malformed(NO_CONTENT.to_owned())))),
            None => Inbound::Noise,
        };
    }
    // A server that could not parse the request cannot repeat its id. On the request's own stream, an error without an id can only be the
    // answer.
    let unnamed = is_error && fields.get("id").is_none_or(Json::is_null);
    match awaited {
        Some(awaited) if unnamed || is_same(&awaited.id, fields.get("id")) => Inbound::Answer(Box::new(awaited.answer(message))),
        _ => Inbound::Foreign,
    }
}

/// Returns whether two ids are the same. Some servers return a number as a string.
fn is_same(id: &RequestId, found: Option<&Json>) -> bool {
    match (id, found) {
        (RequestId::Number(id), Some(Json::Number(found))) => found.as_i64() == Some(*id),
        (RequestId::Number(id), Some(Json::String(found))) => found.parse() == Ok(*id),
        (RequestId::String(id), Some(Json::String(found))) => id.as_ref() == found,
        _ => false,
    }
}

/// Returns the JSON-RPC error in the body of a refusal. The error's id is ignored.
pub(super) fn error_in(body: &[u8]) -> Option<ErrorData> {
    let message = serde_json::from_slice::<Json>(body).ok()?;
    message.get("error").filter(|error| error.is_object()).map(error_of)
}

/// Makes a page of tools for rmcp without the malformed tools. The page also contains the unchanged result for the caller.
fn tools_page(mut result: Json) -> Content {
    let Some(listed) = result.get_mut("tools").and_then(Json::as_array_mut) else { return Content::Raw(result) };
    // A list with more than `MAX_LIST_ENTRIES` tools is refused later, so the other tools need not be copied.
    listed.truncate(MAX_LIST_ENTRIES + 1);
    let listed = &*listed;
    let is_tool = |tool: &&Json| {
        let known = serde_json::from_value::<Tool>((*tool).clone());
        if let Err(error) = &known {
            tracing::warn!(%error, "a malformed tool was left out");
        }
        known.is_ok()
    };
    let tools: Vec<Json> = listed.iter().filter(is_tool).cloned().collect();
    let mut typed = Map::from_iter([("tools".to_owned(), Json::Array(tools)), ("_meta".to_owned(), json!({ RAW: result.to_string() }))]);
    if let Some(cursor) = result.get("nextCursor").filter(|cursor| cursor.is_string()) {
        typed.insert("nextCursor".to_owned(), cursor.clone());
    }
    Content::Typed(Json::Object(typed))
}

/// An answer in the form that rmcp gets.
pub(super) struct Answer {
    id: RequestId,
    content: Content,
}

enum Content {
    Raw(Json),
    Typed(Json),
    Error(ErrorData),
}

impl Answer {
    #[cfg(test)]
    pub(super) fn is_error(&self) -> bool {
        matches!(self.content, Content::Error(_))
    }

    /// Converts the answer to rmcp's own type.
    pub(super) fn into_message(self) -> ServerJsonRpcMessage {
        let result = match self.content {
            Content::Error(error) => {
                return JsonRpcMessage::Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(self.id), error });
            }
            // The server's own result may look like a wrapped result. Such a result is wrapped too, because `raw_result` would otherwise
            // unwrap it.
            Content::Raw(result) if wrapped(&result).is_some() => ServerResult::CustomResult(CustomResult::new(wrap(result))),
            Content::Raw(result) => ServerResult::CustomResult(CustomResult::new(result)),
            Content::Typed(result) => {
                serde_json::from_value(result).unwrap_or_else(|_| ServerResult::CustomResult(CustomResult::new(Json::Null)))
            }
        };
        JsonRpcMessage::Response(JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id: self.id, result })
    }

    /// Converts the answer to the JSON text that rmcp parses.
    pub(super) fn into_text(self) -> String {
        let (kind, content) = match self.content {
            Content::Raw(result) => ("result", wrap(result)),
            Content::Typed(result) => ("result", result),
            Content::Error(error) => ("error", json!(error)),
        };
        // `json!` is not used here, because it would copy the content, which may be large.
        let fields = [("jsonrpc", json!("2.0")), ("id", json!(self.id)), (kind, content)];
        Json::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()).to_string()
    }
}

/// Wraps a result as text. rmcp tries to parse a result as each of about twenty types, and could fail on deeply nested values.
fn wrap(result: Json) -> Json {
    let text = result.to_string();
    drop(result);
    Json::Object(Map::from_iter([(RAW.to_owned(), Json::String(text))]))
}

fn wrapped(result: &Json) -> Option<&str> {
    let fields = result.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(RAW)?.as_str()
}

/// Returns a result in the form in which the server sent it. A long one leaves the other tasks of the thread to another thread.
pub(in crate::client) fn raw_result(result: ServerResult) -> Json {
    match result {
        ServerResult::CustomResult(CustomResult(result)) => match wrapped(&result) {
            Some(text) => off_the_runtime_if_long(text.len(), || serde_json::from_str(text).unwrap_or_default()),
            None => result,
        },
        ServerResult::ListToolsResult(page) => {
            let bytes = raw_page(&page).map_or(0, str::len);
            off_the_runtime_if_long(bytes, || page_of(page))
        }
        typed => serde_json::to_value(typed).unwrap_or_default(),
    }
}

/// Returns the text of a page of tools as the server wrote it.
fn raw_page(page: &ListToolsResult) -> Option<&str> {
    page.meta.as_ref()?.0.get(RAW)?.as_str()
}

/// Returns a page of tools in the form in which the server sent it.
fn page_of(page: ListToolsResult) -> Json {
    let raw = raw_page(&page).and_then(|text| serde_json::from_str::<Json>(text).ok());
    let Some(mut raw) = raw else { return serde_json::to_value(page).unwrap_or_default() };
    // rmcp removes tools whose schemas require invalid headers. They are removed here too.
    let known: HashSet<&str> = page.tools.iter().map(|tool| tool.name.as_ref()).collect();
    if let Some(tools) = raw.get_mut("tools").and_then(Json::as_array_mut) {
        tools.retain(|tool| tool.get("name").and_then(Json::as_str).is_some_and(|name| known.contains(name)));
    }
    raw
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::off_runtime::MAX_BYTES_AT_ONCE;
    use crate::off_runtime::testing::{LONGEST, one_worker};

    fn awaited(kind: Kind) -> Awaited {
        Awaited { id: RequestId::Number(7), kind, method: "tools/call".into() }
    }

    /// Passes a result through rmcp both as a message and as text, and returns the two results that the caller gets.
    fn through(kind: Kind, result: &Json) -> [Json; 2] {
        let answer = || match sort(&mut json!({ "jsonrpc": "2.0", "id": 7, "result": result }), Some(&awaited(kind))) {
            Inbound::Answer(answer) => *answer,
            _ => panic!("not taken for an answer: {result}"),
        };
        let read = serde_json::from_str::<ServerJsonRpcMessage>(&answer().into_text()).unwrap();
        [answer().into_message(), read].map(|message| match message {
            JsonRpcMessage::Response(response) => raw_result(response.result),
            other => panic!("not a result: {other:?}"),
        })
    }

    #[test]
    fn every_result_reaches_its_caller_as_it_was_sent() {
        let results = [
            json!({ "content": [{ "type": "hologram", "x": 1 }], "vendor": { "a": [1, 2.5, null] } }),
            json!({ "tools": [], "content": [] }),
            json!({ "content": [{ "type": "text", "text": "a", "extra": true }], "isError": true, "structuredContent": null }),
            json!({ "contents": [{ "uri": "a:b", "text": "x", "odd": 1 }] }),
            json!({ "messages": [], "description": "d" }),
            json!({ "completion": { "values": ["a"], "total": 3 } }),
            json!({ "task": { "taskId": "1", "status": "working" } }),
            json!({ "resultType": "complete" }),
            json!({ "resultType": "input_required", "inputRequests": {}, "requestState": "s" }),
            json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": 3 } }),
            json!({ "action": "accept", "content": {} }),
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "a", "version": "1" } }),
            json!({}),
            json!(null),
            json!("text"),
            json!([1, 2]),
            json!({ RAW: "{\"not\":\"ours\"}" }),
            json!({ RAW: 3, "other": 1 }),
        ];
        for result in results {
            assert_eq!(through(Kind::Raw, &result), [result.clone(), result], "unchanged");
        }
    }

    #[test]
    fn a_result_as_deep_as_can_be_read_arrives_over_a_stream_too() {
        let deep: Json = serde_json::from_str(&format!("{}{}", "[".repeat(125), "]".repeat(125))).unwrap();
        assert_eq!(through(Kind::Raw, &deep), [deep.clone(), deep]);
    }

    #[test]
    fn rmcp_understands_a_list_of_tools_and_the_caller_gets_it_whole_but_for_malformed_ones() {
        let page = json!({
            "tools": [
                { "name": "ok", "inputSchema": { "type": "object" }, "vendor": 1 },
                { "name": 3, "inputSchema": {} },
                { "name": "none" },
            ],
            "nextCursor": "2", "vendor": true,
        });
        let expected = json!({ "tools": [page["tools"][0]], "nextCursor": "2", "vendor": true });
        assert_eq!(through(Kind::Tools, &page), [expected.clone(), expected]);
        let Inbound::Answer(answer) = sort(&mut json!({ "id": 7, "result": page }), Some(&awaited(Kind::Tools))) else { panic!() };
        let JsonRpcMessage::Response(response) = answer.into_message() else { panic!() };
        let ServerResult::ListToolsResult(typed) = response.result else { panic!("{:?}", response.result) };
        assert_eq!((typed.tools.len(), typed.next_cursor.as_deref()), (1, Some("2")));
    }

    #[test]
    fn a_list_of_tools_that_is_none_reaches_the_caller() {
        for page in [json!({ "tools": 3 }), json!({}), json!(null)] {
            assert_eq!(through(Kind::Tools, &page), [page.clone(), page]);
        }
    }

    #[test]
    fn a_long_result_leaves_the_thread_of_its_caller_to_other_tasks_while_it_is_unwrapped() {
        for kind in [Kind::Raw, Kind::Tools] {
            let tool = json!({ "name": "t", "inputSchema": { "type": "object" }, "pad": vec![0; MAX_BYTES_AT_ONCE] });
            let answer = json!({ "jsonrpc": "2.0", "id": 7, "result": { "tools": [tool] } });
            let result = move || match sort(&mut answer.clone(), Some(&awaited(kind))) {
                Inbound::Answer(answer) => match serde_json::from_str::<ServerJsonRpcMessage>(&answer.into_text()).unwrap() {
                    JsonRpcMessage::Response(response) => response.result,
                    other => panic!("not a result: {other:?}"),
                },
                _ => panic!("not taken for an answer"),
            };
            let (runtime, begun, has_run) = (one_worker(), Instant::now(), Arc::<AtomicBool>::default());
            let seen = Arc::clone(&has_run);
            // The only worker thread is never free before this task ends.
            let unwrapping = runtime.spawn(async move {
                while !seen.load(Ordering::Relaxed) && begun.elapsed() < LONGEST {
                    raw_result(result());
                }
                seen.load(Ordering::Relaxed)
            });
            runtime.spawn(async move { has_run.store(true, Ordering::Relaxed) });
            assert!(runtime.block_on(unwrapping).unwrap(), "no other task has run");
        }
    }

    #[test]
    fn results_of_other_transports_are_left_alone() {
        let plain = json!({ "content": [], "x": 1 });
        assert_eq!(raw_result(ServerResult::CustomResult(CustomResult::new(plain.clone()))), plain);
        assert_eq!(raw_result(ServerResult::empty(())), json!({}));
    }

    #[test]
    fn a_message_is_told_from_an_answer_and_from_noise() {
        let sorted = |mut message: Json| match sort(&mut message, Some(&awaited(Kind::Raw))) {
            Inbound::Answer(answer) if answer.is_error() => "error",
            Inbound::Answer(_) => "answer",
            Inbound::Other => "other",
            Inbound::Foreign => "foreign",
            Inbound::Noise => "noise",
        };
        assert_eq!(sorted(json!({ "id": 7, "result": null })), "answer");
        assert_eq!(sorted(json!({ "id": "7", "result": {} })), "answer");
        assert_eq!(sorted(json!({ "id": 8, "result": {} })), "foreign");
        assert_eq!(sorted(json!({ "jsonrpc": "2.0", "id": 7 })), "error");
        assert_eq!(sorted(json!({ "jsonrpc": "2.0", "id": 7, "error": null })), "error");
        assert_eq!(sorted(json!({ "jsonrpc": "2.0", "id": 8 })), "noise");
        assert_eq!(sorted(json!({ "id": null, "error": { "code": -32700, "message": "?" } })), "error");
        assert_eq!(sorted(json!({ "id": 7, "error": "no object" })), "error");
        assert_eq!(sorted(json!({ "method": "notifications/progress", "params": {} })), "other");
        assert_eq!(sorted(json!({ "id": 7, "method": "ping" })), "other");
        for noise in [json!(3), json!({}), json!([]), json!({ "id": 7 })] {
            assert_eq!(sorted(noise), "noise");
        }
    }

    #[test]
    fn a_server_cannot_set_a_mark_of_ours() {
        let error = error_of(&json!({ "code": 1, "message": "m", "data": { "hyperlight-mcp/oversize": 1, "own": 2 } }));
        assert_eq!(error.data, Some(json!({ "own": 2 })));
    }

    #[test]
    fn an_answer_to_initialize_that_is_none_says_what_is_missing() {
        let mut message = json!({ "id": 7, "result": { "capabilities": {} } });
        let Inbound::Answer(answer) = sort(&mut message, Some(&awaited(Kind::Initialize))) else { panic!() };
        let JsonRpcMessage::Error(error) = answer.into_message() else { panic!() };
        assert!(error.error.message.contains("protocolVersion"), "{}", error.error.message);
    }
}
