//! Makes calls directly through the client module, as a gateway would make them.

use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::client::{
    CallLimits, Caller, Connection, ConnectionRequest, Connections, Launch, Lease, Observer, ToolRequest, Watchdog,
};
use serde_json::{Value as Json, json};

use super::{SilentObserver, TestFolder, object, patience};

/// The longest time that closing takes: at most 2 s until the server ends by itself, at most 2 s after SIGTERM, and the time after SIGKILL.
pub const CLOSE_LIMIT: Duration = Duration::from_millis(4500);

pub async fn call(connection: &Connection, tool: &str, arguments: Json) -> hyperlight_mcp::Result<Json> {
    call_for(connection, tool, arguments, patience()).await
}

pub async fn call_for(connection: &Connection, tool: &str, arguments: Json, timeout: Duration) -> hyperlight_mcp::Result<Json> {
    call_as(connection, tool, arguments, CallLimits::fixed(timeout), Arc::new(SilentObserver)).await
}

pub async fn call_as(
    connection: &Connection,
    tool: &str,
    arguments: Json,
    limits: CallLimits,
    caller: Arc<dyn Caller>,
) -> hyperlight_mcp::Result<Json> {
    let request = ToolRequest { tool: tool.to_owned(), arguments: object(arguments).into(), as_task: false, limits, caller };
    connection.call(request).await.map_err(|failure| failure.error)
}

/// Makes a call for this caller, with a long time limit.
pub async fn call_by(caller: &Arc<dyn Caller>, connection: &Connection, tool: &str, arguments: Json) -> hyperlight_mcp::Result<Json> {
    call_as(connection, tool, arguments, CallLimits::fixed(patience()), Arc::clone(caller)).await
}

pub async fn echoes(connection: &Connection) {
    let value = json!({ "deep": [1, null, "ß"] });
    assert_eq!(call(connection, "echo", json!({ "value": value })).await.unwrap()["structuredContent"]["value"], value);
}

pub fn connections(test_folder: &TestFolder, observer: Arc<dyn Observer>, most: usize) -> Connections {
    Connections::new(Watchdog::new(test_folder.watchdog_program()), observer, most, 3)
}

pub fn wanted(server: &str) -> ConnectionRequest {
    ConnectionRequest { server: server.to_owned(), pinned: false, idle_timeout: None, keep_alive: None, patience: patience() }
}

pub async fn get(connections: &Connections, wanted: &ConnectionRequest, launch: Launch) -> hyperlight_mcp::Result<Lease> {
    connections.get(wanted, async { Ok(launch) }).await
}

/// Connects to a server that has no flags.
pub async fn plain(connections: &Connections, test_folder: &TestFolder, server: &str) -> hyperlight_mcp::Result<Lease> {
    get(connections, &wanted(server), test_folder.launch(server, &[])).await
}
