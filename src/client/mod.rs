//! Live connections to MCP servers: the only room that knows rmcp, and the only one that starts processes.

mod connection;
mod handler;
mod http;
mod pool;
mod process;
mod tap;
mod transport;
mod watchdog;

pub use connection::{CallLimits, Connection};
pub use http::{HttpTarget, TokenFuture, TokenSource};
pub use pool::Connections;
pub use process::{Launch, Redact};
pub use watchdog::Watchdog;
