//! Tools of servers that are listed directly. Each is listed under its own name, together with this program's tools.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, MetaObject, Tool, ToolAnnotations};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde::Deserialize as _;
use serde_json::{Map, Value as Json, json};

use super::answers::{data, refused, with_meta};
use super::handler::{Answer, Client, Handler, in_rounds};
use super::paused_calls::Step;
use super::resources_and_prompts::ResourcesAndPrompts;
use super::{ServeOptions, stateless};
use crate::agent;
use crate::catalog::{DirectTool, drop_reserved_keys, drop_reserved_keys_within};
use crate::error::{Error, Result};
use crate::gateway::Agent;
use crate::text::sanitise_line;

/// The key in `_meta` for the error code of a failure that the tool did not report itself.
const CODE_KEY: &str = "io.hyperlight-mcp/code";

/// The maximum length of a name in an error, in characters.
pub(super) const MAX_NAME_CHARS: usize = 200;

/// The servers whose tools are listed directly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Direct {
    #[default]
    Off,
    /// All servers, including those that are approved later.
    All,
    Of(Vec<String>),
    /// Only the tools of one server are served, under the names that the server gives them. The tools of this program are not served.
    Only(String),
}

impl Direct {
    /// Returns the servers that were named.
    pub(super) fn servers(&self) -> impl Iterator<Item = &str> {
        let named = match self {
            Self::Off | Self::All => &[],
            Self::Of(servers) => &servers[..],
            Self::Only(server) => std::slice::from_ref(server),
        };
        named.iter().map(String::as_str)
    }

    fn has(&self, server: &str) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Of(servers) => servers.iter().any(|name| name == server),
            Self::Only(only) => only == server,
        }
    }

    /// Returns the server that is served alone: only its tools, resources and prompts are served. Returns `None` if there is no such
    /// server.
    pub(super) fn only(&self) -> Option<&str> {
        if let Self::Only(server) = self { Some(server) } else { None }
    }

    /// Returns the tool of this program that a host calls by this name, if such tools are served.
    pub(super) fn own_tool(&self, name: &str) -> Option<agent::Tool> {
        if self.has_own_tools() { agent::Tool::named(name) } else { None }
    }

    pub(super) fn has_own_tools(&self) -> bool {
        !matches!(self, Self::Only(_))
    }
}

impl Handler {
    /// Returns the definitions of the tools that the client can call directly.
    pub(super) async fn direct_definitions(&self, context: &RequestContext<RoleServer>) -> Answer<Vec<Tool>> {
        if self.served.0.options.direct == Direct::Off {
            return Ok(Vec::new());
        }
        let options = self.served.0.options.clone();
        let defined = move |agent: &Agent, items: &ResourcesAndPrompts| {
            Ok(listed(&options, agent)?.into_iter().map(|tool| definition(tool, items)).collect())
        };
        self.with_items(context, defined).await
    }

    /// Calls a tool of a server. The gateway applies the same checks to this call as to a call by the code of a run.
    pub(super) async fn call_direct(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<CallToolResponse> {
        let refusal = |error: &Error, stateless| Ok(CallToolResponse::from(result(failure(error, None), stateless)));
        let stateless = in_rounds(&context);
        if let Err(error) = self.check_arguments(&request) {
            return refusal(&error, stateless);
        }
        let name = request.name.into_owned();
        let (agent, options, wanted) = (self.session(&context)?.agent.clone(), self.served.0.options.clone(), name.clone());
        let look_up = move || {
            let found = found(&options, &agent, &wanted)?;
            if found.is_none() {
                agent.note_unknown_direct_name(options.direct.only(), &wanted);
            }
            Ok(found)
        };
        let looking = self.served.0.items.look_up(&self.caller.key, look_up);
        let found = looking.await.map_err(|error| refused(&error))?;
        let Some((server, tool)) = found else {
            let problem = format!("there is no tool \"{}\"", sanitise_line(&name, MAX_NAME_CHARS));
            return Err(ErrorData::invalid_params(problem, Some(data("ERR_UNKNOWN_TOOL"))));
        };
        let arguments = request.arguments.unwrap_or_default();
        let input = match self.input(request.request_state, request.input_responses, &json!(["tools/call", name, arguments])) {
            Ok(input) => input,
            Err(error) => return refusal(&error, stateless),
        };
        let (sign_in, links) = (self.served.0.options.sign_in.clone(), self.links());
        let work_of = move |client: Client| async move {
            let options = client.call_options();
            let agent = &client.session.agent;
            let answer = match agent.call_for_model((&server, &tool), arguments, options, &client.stop).await {
                Ok(answer) => links.served(agent, &server, answer).await,
                refused => refused,
            };
            let answer = answer.map_or_else(|error| failure(&error, sign_in.as_deref()), of_server);
            // Since 2026-07-28, if a call fails because the client lacks a capability, the call must be refused with the name of this
            // capability. A call that succeeds did not need the capability.
            let refusal = (stateless && answer["isError"] == true).then(|| client.callbacks.lacking.refusal()).flatten();
            refusal.map_or(Ok(answer), Err)
        };
        let answer_of = |step| {
            Ok(match step {
                Step::Done(answer) => CallToolResponse::from(result(answer, stateless)),
                Step::Ask(questions) => CallToolResponse::from(questions),
            })
        };
        self.asking(context, input, work_of, answer_of).await
    }

    /// Returns the names of the tools that a session can call directly now. A model can change these tools by enabling or disabling servers
    /// for its session. Returns `None` if a model cannot change the list, because there is no session or no tools are listed directly.
    pub(super) async fn direct_names(&self, context: &RequestContext<RoleServer>) -> Answer<Option<Vec<String>>> {
        if self.served.0.options.direct == Direct::Off || stateless::owner(context).is_some() {
            return Ok(None);
        }
        self.session(context)?;
        self.names_now().await.map(Some)
    }

    /// Notifies only this client that its lists have changed, if its direct tools differ from `before`.
    pub(super) async fn tell_of_direct_tools(&self, before: &[String], peer: &Peer<RoleServer>) -> Answer<()> {
        if self.names_now().await? != before {
            // Sending fails if the client is gone. In this case, the client needs no list.
            let _ = peer.notify_tool_list_changed().await;
            let _ = peer.notify_resource_list_changed().await;
            let _ = peer.notify_prompt_list_changed().await;
        }
        Ok(())
    }

    async fn names_now(&self) -> Answer<Vec<String>> {
        let Some(session) = self.session_cell().get().cloned() else { return Ok(Vec::new()) };
        let options = self.served.0.options.clone();
        let names = move || Ok(listed(&options, &session.agent)?.into_iter().map(|tool| tool.name).collect());
        self.served.0.items.in_turn(&self.caller.key, names).await.map_err(|error| refused(&error))
    }
}

/// Returns the tools that are listed directly. Leaves out tools that have the same name as a tool of this program.
fn listed(options: &ServeOptions, agent: &Agent) -> Result<Vec<DirectTool>> {
    let mut tools = agent.direct_tools(options.names)?;
    tools.retain(|tool| options.direct.has(&tool.server) && options.direct.own_tool(&tool.name).is_none());
    if !options.direct.has_own_tools() {
        for tool in &mut tools {
            tool.name.clone_from(&tool.tool);
        }
    }
    Ok(tools)
}

/// Returns the server and the original name of a tool, given the name in the list. Describes no tool, so an unknown name costs no more than
/// a known one.
fn found(options: &ServeOptions, agent: &Agent, name: &str) -> Result<Option<(String, String)>> {
    match &options.direct {
        Direct::Off => return Ok(None),
        Direct::Only(server) => {
            return Ok(agent.has_direct_tool(server, name)?.then(|| (server.clone(), name.to_owned())));
        }
        Direct::All | Direct::Of(_) => {}
    }
    // No similar name is looked for: it could be one of a server that is not listed directly, and the search would describe all tools.
    let Some((server, tool)) = agent.find_tool_named(name)? else { return Ok(None) };
    let is_listed = agent.names_of(&server, &tool)?.is_some_and(|names| names.in_style(options.names) == name);
    Ok((is_listed && options.direct.has(&server)).then_some((server, tool)))
}

fn definition(tool: DirectTool, items: &ResourcesAndPrompts) -> Tool {
    let DirectTool { name, server, tool: _, title, description, input_schema, output_schema, annotations, meta, icons } = tool;
    let mut definition = Tool::default();
    definition.name = name.into();
    definition.title = title;
    definition.description = description.map(Into::into);
    definition.input_schema = Arc::new(input_schema);
    definition.output_schema = output_schema.map(Arc::new);
    definition.annotations = annotations.as_ref().map(hints);
    definition.icons = icons.and_then(|icons| serde_json::from_value(icons).ok());
    definition.meta = Some(MetaObject::from(with_served_view(meta, &server, items)));
    definition
}

/// Reads each hint separately, so that a hint of a wrong type does not affect the other hints.
fn hints(annotations: &Json) -> ToolAnnotations {
    let hint = |name: &str| annotations.get(name).and_then(Json::as_bool);
    let title = annotations.get("title").and_then(Json::as_str).map(str::to_owned);
    ToolAnnotations::from_raw(title, hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint"), hint("openWorldHint"))
}

/// Replaces the URI of a tool's view by the URI under which the view is served.
fn with_served_view(meta: Map<String, Json>, server: &str, items: &ResourcesAndPrompts) -> Map<String, Json> {
    let mut meta = Json::Object(meta);
    for place in ["/ui/resourceUri", "/ui~1resourceUri"] {
        if let Some(uri) = meta.pointer_mut(place)
            && let Some(own) = uri.as_str()
        {
            *uri = items.served_uri(server, own).into();
        }
    }
    if let Json::Object(meta) = meta { meta } else { Map::new() }
}

/// Removes the keys of this program and of the protocol from a server's result. Otherwise a host could send back a handle that the server
/// has invented. A host could also treat an error code or a task of the server as one of this program.
fn of_server(mut answer: Json) -> Json {
    for place in ["meta", "_meta"] {
        answer.get_mut(place).and_then(Json::as_object_mut).into_iter().for_each(drop_reserved_keys);
    }
    drop_reserved_keys_within(&mut answer);
    answer
}

/// Converts an error of the gateway to a result, so that the model reads the error in the same way as a failure of the tool. The message
/// may contain text of the server, because the server is approved and the model gets its results anyway. The code is in `_meta`, because
/// `structuredContent` would have to match the tool's schema. For an error about a missing authorization, `sign_in` is appended to the
/// message.
fn failure(error: &Error, sign_in: Option<&str>) -> Json {
    let advice = sign_in.filter(|_| matches!(error, Error::AuthorizationRequired { .. } | Error::AuthorizationFailed { .. }));
    let text = advice.map_or_else(|| error.for_guest(), |advice| format!("{}: {advice}", error.for_guest()));
    json!({ "content": [{ "type": "text", "text": text }], "isError": true, "meta": { CODE_KEY: error.code() } })
}

/// Converts a server's result. The result stays unchanged, except for content blocks of unknown types, which become text. Up to protocol
/// 2025-11-25 structured content must be an object, because hosts refuse other values.
fn result(answer: Json, stateless: bool) -> CallToolResult {
    let mut answer = with_meta(answer);
    let mut taken = |key: &str| answer.get_mut(key).map(Json::take);
    let blocks = if let Some(Json::Array(blocks)) = taken("content") { blocks } else { Vec::new() };
    let mut result = CallToolResult::success(blocks.iter().map(block).collect());
    result.is_error = Some(taken("isError") == Some(Json::Bool(true)));
    result.structured_content = taken("structuredContent").filter(|content| stateless || content.is_object());
    result.meta = taken("_meta").and_then(|meta| serde_json::from_value(meta).ok());
    result
}

fn block(block: &Json) -> ContentBlock {
    ContentBlock::deserialize(block).unwrap_or_else(|_| ContentBlock::text(block.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_stays_as_the_server_gave_it() {
        let given = json!({
            "content": [{ "type": "text", "text": "a", "annotations": { "audience": ["user"] }, "_meta": { "x": 1 } },
                { "type": "resource", "resource": { "uri": "ui://v", "mimeType": "text/html;profile=mcp-app", "text": "<p>", "_meta": { "ui": {} } } }],
            "structuredContent": { "a": 1 }, "isError": false, "_meta": { "k": [1] },
        });
        let mut answer = given.clone();
        let meta = answer.as_object_mut().unwrap().shift_remove("_meta").unwrap();
        answer["meta"] = meta;
        let mut served = json!(result(answer, false));
        served.as_object_mut().unwrap().shift_remove("resultType");
        assert_eq!(served, given);
    }

    #[test]
    fn a_server_sets_no_key_of_ours_or_of_the_protocol_in_a_result() {
        let task = json!({ "taskId": "1" });
        let meta = json!({ CODE_KEY: "ERR_X", "io.hyperlight-mcp/session": "stolen", "io.modelcontextprotocol/related-task": task, "progressToken": 1, "vendor/x": 1 });
        for place in ["meta", "_meta"] {
            let served = json!(result(of_server(json!({ "content": [], place: meta })), true));
            assert_eq!(served["_meta"], json!({ "vendor/x": 1 }), "{place}");
        }
        let content = json!([
            { "type": "text", "text": "t", "_meta": meta },
            { "type": "resource", "resource": { "uri": "a:b", "text": "t", "_meta": meta }, "_meta": meta },
        ]);
        let served = json!(result(of_server(json!({ "content": content })), true)).to_string();
        assert!(["io.hyperlight-mcp", "io.modelcontextprotocol", "progressToken"].iter().all(|key| !served.contains(key)), "{served}");
        assert!(served.contains("vendor/x"), "{served}");
    }

    #[test]
    fn what_a_host_could_not_read_is_given_in_a_form_that_it_can() {
        let answer = json!({ "content": [{ "type": "hologram", "x": 1 }, 5], "structuredContent": [1], "isError": true });
        let old = json!(result(answer.clone(), false));
        assert_eq!(old["content"][0], json!({ "type": "text", "text": r#"{"type":"hologram","x":1}"# }));
        assert_eq!((&old["structuredContent"], &old["isError"]), (&Json::Null, &json!(true)));
        assert_eq!(json!(result(answer, true))["structuredContent"], json!([1]));
    }

    #[test]
    fn a_refusal_is_a_result_that_a_model_reads_and_no_structured_content() {
        let failed = json!(result(failure(&Error::NotEnabled { server: "a".into() }, Some("sign in")), true));
        assert!(failed["content"][0]["text"].as_str().unwrap().contains("not enabled"));
        assert_eq!((&failed["isError"], &failed["_meta"][CODE_KEY]), (&json!(true), &json!("ERR_NOT_ENABLED")));
        assert_eq!(failed.get("structuredContent"), None);
    }

    #[test]
    fn a_missing_authorization_is_followed_by_what_the_user_can_do() {
        let error = Error::authorization_required("a", None, crate::error::MissingCallback::Page);
        let text = |sign_in| failure(&error, sign_in)["content"][0]["text"].clone();
        assert_eq!(
            text(Some("the user has to sign in: x test SERVER")),
            "the server requires authorization: the user has to sign in: x test SERVER"
        );
        assert_eq!(text(None), "the server requires authorization");
    }

    #[test]
    fn no_tool_of_a_server_can_have_the_name_of_a_tool_of_our_own() {
        assert_eq!(agent::Tool::ALL.map(agent::Tool::name), crate::catalog::RESERVED_NAMES);
    }
}
