//! Calls without a session (MCP 2026-07-28 over HTTP): their caller, and the handle by which later calls find the values that earlier runs
//! have saved.

use std::sync::{Arc, Weak};
use std::time::Instant;

use rmcp::model::{JsonObject, MetaObject, ProtocolVersion, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value as Json, json};

use super::http::Owner;
use super::session::Session;
use super::{Served, Shared};
use crate::agent::Tool as AgentTool;
use crate::error::{Error, Result};

/// The name of an argument of `run_javascript`, and of a field in its result. Both contain the handle.
const FIELD: &str = "session";
/// The key of the handle in `_meta`, both in a call and in its result. A host can use it to pass on the handle without the model.
const META: &str = "io.hyperlight-mcp/session";
const DESCRIPTION: &str = "The session that an earlier result gave, so that saved(\"<id>\") finds its values; null for none.";
const INVALID_REQUEST: &str = "ERR_INVALID_REQUEST";
const NO_ROOM: &str = "no later run can read what this run saved: there are too many sessions, or this one has ended. Return less, or use the value in this run";

/// Returns the caller of a request without a session. Returns `None` if the request belongs to a session.
pub(super) fn owner(context: &RequestContext<RoleServer>) -> Option<Owner> {
    let is_stateless = context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    let parts = context.extensions.get::<http::request::Parts>().filter(|_| is_stateless)?;
    parts.extensions.get::<Owner>().cloned()
}

/// Refuses a request without a session if it names a version of the protocol before 2026-07-28. In such a version, the server sends each
/// question as a request. Without a session, such a request cannot reach the client.
///
/// # Errors
/// Returns `ERR_INVALID_REQUEST` with the versions that the request may name.
pub(super) fn check_version(context: &RequestContext<RoleServer>) -> std::result::Result<(), ErrorData> {
    let least = ProtocolVersion::V_2026_07_28;
    let is_over_http = context.extensions.get::<http::request::Parts>().is_some();
    // A request with all these fields does not belong to a session, even if its headers contain a session id.
    let is_self_contained = context.meta.missing_required_keys(&least).is_empty();
    match context.meta.protocol_version() {
        Some(named) if is_over_http && is_self_contained && named.as_str() < least.as_str() => Err(too_old(named)),
        _ => Ok(()),
    }
}

fn too_old(named: ProtocolVersion) -> ErrorData {
    let mut error = ErrorData::unsupported_protocol_version(named, &[ProtocolVersion::V_2026_07_28]);
    error.message =
        "protocolVersion: a request without a session must name 2026-07-28; for an older version, begin a session with initialize".into();
    if let Some(Json::Object(data)) = &mut error.data {
        data.insert("code".to_owned(), INVALID_REQUEST.into());
    }
    error
}

/// Adds the handle to the input and output schemas of `run_javascript`.
pub(super) fn offer(tools: &mut [Tool]) {
    let run = tools.iter_mut().find(|tool| tool.name == AgentTool::RunJavascript.name());
    let Some(run) = run else { return };
    let input = Arc::make_mut(&mut run.input_schema);
    add(input, json!({ "type": ["string", "null"], "description": DESCRIPTION }));
    if let Some(required) = input.get_mut("required").and_then(Json::as_array_mut) {
        required.push(FIELD.into());
    }
    if let Some(output) = &mut run.output_schema {
        add(Arc::make_mut(output), json!({ "type": "string" }));
    }
}

fn add(schema: &mut JsonObject, property: Json) {
    if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
        properties.insert(FIELD.to_owned(), property);
    }
}

/// Returns the `_meta` of a result that contains a handle.
pub(super) fn meta(answer: &Json) -> Option<MetaObject> {
    let handle = answer.get(FIELD)?.as_str()?;
    Some(MetaObject(JsonObject::from_iter([(META.to_owned(), handle.into())])))
}

/// Stores the session of a run, with the run's saved values, for later calls of the same caller.
pub(super) struct Keeper {
    /// A weak reference, because the shared state stores calls that wait for an answer, and these calls contain this value.
    shared: Weak<Shared>,
    owner: Owner,
    /// The handle that the call contains.
    handle: Option<String>,
}

impl Keeper {
    /// Removes the handle from the arguments of a call. Returns `None` for a call in a session, and for a call that runs no code.
    pub(super) fn of(served: &Served, context: &RequestContext<RoleServer>, name: &str, arguments: &mut Json) -> Option<Self> {
        let owner = owner(context).filter(|_| name == AgentTool::RunJavascript.name())?;
        let of_model = arguments.as_object_mut().and_then(|arguments| arguments.shift_remove(FIELD));
        let of_host = || context.meta.get(META).cloned();
        let handle = of_model.filter(|handle| !handle.is_null()).or_else(of_host);
        let handle = handle.map(|handle| handle.as_str().map_or_else(|| handle.to_string(), str::to_owned));
        Some(Self { shared: Arc::downgrade(&served.0), owner, handle })
    }

    pub(super) fn handle(&self) -> Option<&str> {
        self.handle.as_deref()
    }

    /// Returns the session to which the handle in the call belongs.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SESSION`.
    pub(super) fn session(&self) -> Result<Option<Arc<Session>>> {
        let Some((shared, handle)) = self.shared.upgrade().zip(self.handle.as_deref()) else { return Ok(None) };
        shared.handles.find(&self.owner, handle, Instant::now()).map(Some)
    }

    /// Adds the handle to the answer of a run, if the run has saved something or the call had a handle.
    pub(super) fn kept(&self, session: &Arc<Session>, mut answer: Json) -> Json {
        let now = Instant::now();
        let bytes = session.agent.saved_bytes(now);
        if bytes == 0 && self.handle.is_none() {
            return answer;
        }
        let keep = |shared: Arc<Shared>| shared.handles.keep(&self.owner, self.handle.as_deref(), session, bytes, now);
        let kept = self.shared.upgrade().map_or(Ok(None), keep);
        let Some(fields) = answer.as_object_mut() else { return answer };
        if let Ok(Some(handle)) = kept {
            fields.insert(FIELD.to_owned(), handle.into());
            return answer;
        }
        let warnings = fields.entry("warnings").or_insert_with(|| json!([]));
        if let Some(warnings) = warnings.as_array_mut() {
            warnings.push(NO_ROOM.into());
        }
        answer
    }
}

/// Returns the answer to a call that was refused before it started, for example because of an unknown handle.
pub(super) fn refusal(error: &Error) -> Json {
    json!({ "error": { "code": error.code(), "message": error.for_model() } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ToolDefinition;
    use crate::serve::answers;

    #[test]
    fn a_version_that_cannot_be_asked_is_refused_with_the_one_that_can() {
        let error = too_old(ProtocolVersion::V_2025_11_25);
        let data = json!({ "requested": "2025-11-25", "supported": ["2026-07-28"], "code": "ERR_INVALID_REQUEST" });
        assert_eq!(error.data, Some(data));
        assert!(error.message.contains("initialize"));
    }

    #[test]
    fn the_argument_of_the_handle_is_as_strict_as_the_others() {
        let schema = json!({ "type": "object", "properties": { "code": { "type": "string" } }, "required": ["code"] });
        let named = |name| answers::definition(ToolDefinition { name, description: "d".to_owned(), input_schema: schema.clone() });
        let mut tools = vec![named("search_mcp_tools"), named("run_javascript")];
        offer(&mut tools);
        let input = Json::Object((*tools[1].input_schema).clone());
        assert_eq!(input["required"], json!(["code", FIELD]));
        assert_eq!(input["properties"][FIELD]["type"], json!(["string", "null"]));
        assert!(tools[1].output_schema.as_ref().unwrap()["properties"][FIELD].is_object());
        assert!(!tools[0].input_schema["properties"].as_object().unwrap().contains_key(FIELD));
    }
}
