//! What a server may ask of us, and is told of us.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// Answers a server's own requests: pings, and nothing else yet. What rmcp declines by default stays declined.
#[derive(Debug, Clone)]
pub(super) struct Handler;

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("hyperlight-mcp", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), implementation).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}
