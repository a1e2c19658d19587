//! Reads the description of a connected server: its name, its instructions, and its lists.

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ProtocolVersion};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::Value as Json;

use super::host_fields::is_kept_meta;
use super::resources_and_prompts::REQUEST_METHODS;
use super::{paging, resources_and_prompts};
use crate::catalog::{Manifest, Tool, kept_icons};
use crate::client::http::{HttpFailure, failure_of, raw_result};
use crate::client::wire::answer::{error_data, in_error, protocol_error};
use crate::error::{Error, Result};

/// Longest name of a tool. MCP recommends at most 64 characters.
const MAX_TOOL_NAME_BYTES: usize = 1_024;

/// Reads all lists that the server offers.
pub(in crate::client) async fn discover(server: &str, peer: &Peer<RoleClient>) -> Result<Manifest> {
    let info = peer.peer_info().ok_or_else(|| connect_failed(server, "its handshake gave no server information"))?;
    let version = info.protocol_version.as_str();
    if !ProtocolVersion::KNOWN_VERSIONS.contains(&info.protocol_version) {
        let known: Vec<_> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
        let known = known.join(", ");
        return Err(connect_failed(server, &format!("it uses MCP version \"{version}\"; the supported versions are {known}")));
    }
    let implementation = info.server_info.as_ref();
    let mut manifest = Manifest {
        protocol_version: version.to_owned(),
        server_name: implementation.map(|about| about.name.clone()).unwrap_or_default(),
        server_version: implementation.map(|about| about.version.clone()).unwrap_or_default(),
        instructions: info.instructions.clone(),
        ..Manifest::default()
    };
    if info.capabilities.tools.is_some() {
        let page = |cursor| list_tools(server, peer, cursor);
        let listed = paging::collect(server, "tools", page).await?;
        manifest.tools = listed.iter().filter_map(|tool| read_tool(server, tool)).collect();
    }
    let resources_and_prompts = resources_and_prompts::discover(server, peer, &info.capabilities).await?;
    (manifest.resources, manifest.resource_templates, manifest.prompts) =
        (resources_and_prompts.resources, resources_and_prompts.resource_templates, resources_and_prompts.prompts);
    Ok(manifest)
}

async fn list_tools(server: &str, peer: &Peer<RoleClient>, cursor: Option<String>) -> Result<Json> {
    let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
    let request = ClientRequest::ListToolsRequest(ListToolsRequest { params, ..ListToolsRequest::default() });
    let answer = match peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    Ok(raw_result(answer.map_err(|error| unlisted(server, "tools", &error))?))
}

/// Makes the error for a list of the server that cannot be read.
pub(super) fn unlisted(server: &str, kind: &str, error: &ServiceError) -> Error {
    let problem = match (failure_of(error), error_data(error)) {
        // A token error already contains its reason, so it is returned unchanged.
        (Some(HttpFailure::Token(error)), _) => return *error,
        (Some(failure), _) => failure.to_string(),
        (None, Some(data)) => match protocol_error(server, &format!("{kind}/list"), data) {
            Error::Protocol { code, message, .. } => {
                let problem = message.after(&format!("its {kind} cannot be listed: the server answered with JSON-RPC error {code}: "));
                return Error::ConnectFailed { server: server.to_owned(), problem };
            }
            Error::UnusableAnswer { problem, .. } => {
                let problem = problem.after(&format!("its {kind} cannot be listed: the answer cannot be used: "));
                return Error::ConnectFailed { server: server.to_owned(), problem };
            }
            Error::ResponseTooLarge { size, limit, limit_name, .. } => {
                format!("the answer of {server}.{kind}/list has {size} bytes; the limit is {limit} ({limit_name})")
            }
            other => other.to_string(),
        },
        (None, None) => error.to_string(),
    };
    connect_failed(server, &format!("its {kind} cannot be listed: {problem}"))
}

/// Parses a tool. Returns `None` for a malformed tool, so that the other tools remain usable.
fn read_tool(server: &str, tool: &Json) -> Option<Tool> {
    let mut parsed = serde_json::from_value::<Tool>(tool.clone()).ok().filter(is_well_formed);
    if let Some(tool) = &mut parsed {
        // An output schema of `true` or `false` does not describe the result, so it is dropped.
        tool.output_schema = tool.output_schema.take().filter(|schema| !schema.is_boolean());
        tool.meta = tool.meta.take().filter(|meta| is_kept_meta(server, meta));
        tool.icons = kept_icons(server, tool.icons.as_ref());
    } else {
        tracing::warn!(server, "a malformed tool was left out");
    }
    parsed
}

/// Returns whether the tool's name can be used and its schemas and annotations have valid JSON types. Missing fields are valid. A schema
/// may be an object, `true` or `false` (JSON Schema 2020-12, Core 4.3.2).
fn is_well_formed(tool: &Tool) -> bool {
    let others = [&tool.annotations, &tool.execution];
    let is_schema = |schema: &Json| schema.is_object() || schema.is_boolean();
    tool.name.len() <= MAX_TOOL_NAME_BYTES
        && !REQUEST_METHODS.contains(&tool.name.as_str())
        && (tool.input_schema.is_null() || is_schema(&tool.input_schema))
        && tool.output_schema.as_ref().is_none_or(is_schema)
        && others.into_iter().flatten().all(Json::is_object)
}

pub(super) fn connect_failed(server: &str, problem: &str) -> Error {
    Error::ConnectFailed { server: server.to_owned(), problem: in_error(problem).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_malformed_tool_is_left_out_and_the_others_stay() {
        let tools = json!([
            { "name": 1 },
            { "name": "ok", "inputSchema": {}, "annotations": null },
            { "name": "no-schema" },
            { "name": "any", "inputSchema": true, "outputSchema": true },
            { "name": "null", "inputSchema": null },
            { "name": "x", "inputSchema": 3 },
            { "name": "y", "inputSchema": {}, "annotations": "read-only" },
            { "name": "z", "inputSchema": {}, "outputSchema": [] },
        ]);
        let names: Vec<_> = tools.as_array().unwrap().iter().filter_map(|tool| read_tool("s", tool)).map(|tool| tool.name).collect();
        assert_eq!(names, ["ok", "no-schema", "any", "null"]);
    }

    #[test]
    fn a_tool_with_the_name_of_a_request_is_left_out() {
        let named = |name: &str| read_tool("s", &json!({ "name": name, "inputSchema": {} })).map(|tool| tool.name);
        for method in REQUEST_METHODS {
            assert_eq!(named(method), None);
        }
        assert_eq!(named("resources_read").as_deref(), Some("resources_read"));
    }

    #[test]
    fn meta_is_kept_where_it_is_an_object_of_some_size() {
        let kept = |meta: Json| read_tool("s", &json!({ "name": "a", "_meta": meta })).unwrap().meta;
        assert_eq!(kept(json!({ "a": 1 })), Some(json!({ "a": 1 })));
        for meta in [json!({}), json!(null), json!("x"), json!([1]), json!({ "a": "x".repeat(super::super::host_fields::MAX_BYTES) })] {
            assert_eq!(kept(meta), None);
        }
    }
}
