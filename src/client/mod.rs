//! Live connections to MCP servers: the only room that knows rmcp, and the only one that starts processes.

mod connection;
mod handler;
mod pool;
mod process;
mod transport;
mod watchdog;

pub use connection::{CallLimits, Connection};
pub use pool::Connections;
pub use process::{Launch, Redact};
pub use watchdog::Watchdog;
