//! A server within this process. It uses the MCP protocol over a pipe in memory. The same rules therefore apply to it as to other servers:
//! manifests, drift, limits, cancellation and shutdown.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Map, Value as Json, json};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::inbound::caller::Caller;
use super::inbound::calls::Calls;
use crate::limits::MAX_WIRE_MESSAGE_BYTES;

/// Size of the pipe's buffer in each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// The tools of a server within this process.
pub trait LocalTools: Send + Sync {
    /// Returns the tools in the form of `tools/list`.
    fn list(&self) -> Vec<Json>;

    /// Calls a tool for a caller, and returns its result in the form of `tools/call`. Dropping the future cancels the call.
    fn call(&self, tool: String, arguments: Map<String, Json>, caller: &dyn Caller) -> Pin<Box<dyn Future<Output = Json> + Send>>;
}

/// A running server within this process. It ends when this value is dropped.
pub(in crate::client) struct LocalServer {
    ended: CancellationToken,
    _ends_with_this: DropGuard,
}

impl LocalServer {
    /// Starts the server of a connection that has these calls. Returns the client's two ends of the pipe: the end for reading and the end
    /// for writing.
    pub(in crate::client) fn start(
        name: &str,
        tools: Arc<dyn LocalTools>,
        calls: Arc<Calls>,
    ) -> (Self, impl AsyncRead + Send + Unpin + use<>, impl AsyncWrite + Send + Unpin + use<>) {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let ended = CancellationToken::new();
        tokio::spawn(serve(Handler { name: name.to_owned(), tools, calls }, server, ended.clone()));
        let (read, write) = tokio::io::split(client);
        let guard = ended.clone().drop_guard();
        (Self { ended, _ends_with_this: guard }, read, write)
    }

    /// Ends the server. Its calls are cancelled.
    pub(in crate::client) fn end(&self) {
        self.ended.cancel();
    }

    pub(in crate::client) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Resolves once the server has been ended.
    pub(in crate::client) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

async fn serve(handler: Handler, pipe: DuplexStream, ended: CancellationToken) {
    let (read, write) = tokio::io::split(pipe);
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_WIRE_MESSAGE_BYTES);
    match handler.serve_with_ct(transport, ended.clone()).await {
        // The client's end of the pipe was closed, or `ended` was cancelled.
        Ok(running) => drop(running.waiting().await),
        Err(error) => tracing::debug!(%error, "a server within this process did not begin"),
    }
    ended.cancel();
}

struct Handler {
    name: String,
    tools: Arc<dyn LocalTools>,
    /// The calls of the connection, in which the caller of each request is found.
    calls: Arc<Calls>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(self.name.clone(), env!("CARGO_PKG_VERSION"));
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools: Result<Vec<Tool>, _> = self.tools.list().into_iter().map(serde_json::from_value).collect();
        tools.map(ListToolsResult::with_all_items).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        // The client records a call before it sends the request. So a request without a caller belongs to a call that is over.
        let over = || ErrorData::internal_error("the call is over", None);
        let caller = self.calls.with_id(&context.id).ok_or_else(over)?.caller;
        let calling = self.tools.call(request.name.into_owned(), request.arguments.unwrap_or_default(), &*caller);
        drop(caller);
        let Some(result) = context.ct.run_until_cancelled(calling).await else {
            return Err(ErrorData::internal_error("the call was cancelled", None));
        };
        Ok(CallToolResponse::from(checked(result)))
    }
}

/// Parses a result. A result that MCP does not allow becomes an error of the tool.
fn checked(result: Json) -> CallToolResult {
    serde_json::from_value(result).unwrap_or_else(|error| {
        let text = format!("the tool returned a result that MCP does not allow: {error}");
        let failed = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
        serde_json::from_value(failed).unwrap_or_default()
    })
}
