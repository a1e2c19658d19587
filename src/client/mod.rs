//! Live connections to MCP servers: the only room that knows rmcp, and the only one that starts processes.

mod connection;
mod handler;
mod http;
mod oauth;
mod pool;
mod process;
mod tap;
mod transport;
mod watchdog;

pub use connection::{CallLimits, Connection};
pub use http::{TokenFuture, TokenSource};
pub use oauth::{
    Authorization, AuthorizationPrompt, Authorize, Grant, OAuth, OAuthContext, OAuthSettings, OnSecret, SigningAlgorithm, TokenStore,
};
pub use pool::Connections;
pub use process::{Launch, Redact};
pub use watchdog::Watchdog;
