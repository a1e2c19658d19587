//! What a server says of itself once it is connected: its name, its instructions, its lists.

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::Value as Json;

use super::http::raw_result;
use super::{offers, paging};
use crate::catalog::{Manifest, Tool};
use crate::error::{Error, Result};

/// A longer name is none; the protocol's own advice is 64 characters.
const MAX_TOOL_NAME_BYTES: usize = 1_024;

/// Reads all lists that the server offers.
pub(super) async fn discover(server: &str, peer: &Peer<RoleClient>) -> Result<Manifest> {
    let info = peer.peer_info().ok_or_else(|| connect_failed(server, "it did not introduce itself"))?;
    let implementation = info.server_info.as_ref();
    let mut manifest = Manifest {
        protocol_version: info.protocol_version.to_string(),
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
    let offers = offers::discover(server, peer, &info.capabilities).await?;
    (manifest.resources, manifest.resource_templates, manifest.prompts) = (offers.resources, offers.resource_templates, offers.prompts);
    Ok(manifest)
}

async fn list_tools(server: &str, peer: &Peer<RoleClient>, cursor: Option<String>) -> Result<Json> {
    let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
    let request = ClientRequest::ListToolsRequest(ListToolsRequest { params, ..ListToolsRequest::default() });
    let answer = match peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    let unlisted = |error: rmcp::service::ServiceError| connect_failed(server, &format!("its tools cannot be listed: {error}"));
    Ok(raw_result(answer.map_err(unlisted)?))
}

/// A malformed tool is left out; the others stay.
fn read_tool(server: &str, tool: &Json) -> Option<Tool> {
    let parsed = serde_json::from_value::<Tool>(tool.clone())
        .ok()
        .filter(|tool| tool.input_schema.is_object() && tool.name.len() <= MAX_TOOL_NAME_BYTES);
    if parsed.is_none() {
        tracing::warn!(server, "a malformed tool was left out");
    }
    parsed
}

pub(super) fn connect_failed(server: &str, problem: &str) -> Error {
    Error::ConnectFailed { server: server.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_malformed_tool_is_left_out_and_the_others_stay() {
        let tools = json!([{ "name": 1 }, { "name": "ok", "inputSchema": {} }, { "name": "no-schema" }, { "name": "x", "inputSchema": 3 }]);
        let names: Vec<_> = tools.as_array().unwrap().iter().filter_map(|tool| read_tool("s", tool)).map(|tool| tool.name).collect();
        assert_eq!(names, ["ok"]);
    }
}
