//! Live connections to MCP servers. Only this module uses the rmcp crate, and only this module starts server processes.
//!
//! - `pool`: the open connections, their users, and the time at which each is closed
//! - `connection`: one live connection, with its handshake and its requests
//! - `inbound`: the notifications and requests that the server sends
//! - `stdio`, `http`: the two transports; `wire`: parsing of messages
//! - `local`: servers within this process
//! - `oauth`: tokens for servers that are reached over HTTP
//! - `proxies`: the proxies of this process
//! - `clock`: the time limits of calls
//! - `threads`: the threads of connections over the network

mod clock;
mod connection;
mod http;
mod inbound;
mod local;
mod oauth;
mod pool;
mod proxies;
mod stdio;
mod threads;
mod wire;

#[cfg(test)]
mod abandoned_tests;

pub use clock::CallLimits;
pub use connection::Connection;
pub use connection::era::Era;
pub use connection::open::{ConnectClock, Launch, Target};
pub use connection::resource_changes::Watch;
pub(crate) use connection::resources_and_prompts::REQUEST_METHODS;
pub use connection::resources_and_prompts::{Completed, ResourceOrPromptRequest};
pub use connection::tools::ToolRequest;
pub use http::{HttpTarget, TokenFuture, TokenSource};
pub use inbound::authorization::{AuthorizationPrompt, Credential, IssuerPrompt};
pub use inbound::caller::{Caller, Elicitation, ElicitationAnswer, Observer, Question, Reply, Sampling, SentRequest, TraceFields};
pub use inbound::form::{Form, FormProblem};
pub use inbound::notification::{LogData, Notice};
pub use inbound::owner::RequestOwner;
pub use local::LocalTools;
pub use oauth::{CheckApproved, Grant, OAuth, OAuthContext, OAuthSettings, OnSecret, SigningAlgorithm, TokenStore};
pub use pool::lifecycle::{Closed, ConnectDecision, ConnectionState, Lifecycle, Transition};
pub use pool::{ConnectionRequest, Connections, Hold, Lease, LeaseOrigin};
pub use proxies::proxy_logins;
pub use stdio::boxed::Boxed;
pub(crate) use stdio::boxed::{KeptAlive, Life};
pub use stdio::stderr::{Redact, StderrListener};
pub use stdio::watchdog::Watchdog;
pub(crate) use threads::{border_threads, network};
pub use wire::answer::{CallFailure, Sent};
