//! Live connections to MCP servers: the only room that knows rmcp, and the only one that starts processes.
//!
//! - `pool`: which servers are connected, for whom, and until when
//! - `connection`: one live connection: how it begins, and what can be asked of the server
//! - `inbound`: what the server sends of its own accord
//! - `stdio`, `http`: what carries the messages; `wire`: the messages themselves
//! - `oauth`: tokens for servers behind HTTP
//! - `clock`: how long a call may still take

mod clock;
mod connection;
mod http;
mod inbound;
mod oauth;
mod pool;
mod stdio;
mod wire;

pub use clock::CallLimits;
pub use connection::Connection;
pub use connection::era::Era;
pub use connection::offers::{Completed, OfferRequest};
pub use connection::open::{ConnectClock, Launch, Redact, StderrListener, Target};
pub use connection::resource_changes::Watch;
pub use connection::tools::ToolRequest;
pub use http::{HttpTarget, TokenFuture, TokenSource};
pub use inbound::caller::{Caller, Elicitation, ElicitationAnswer, Observer, Question, Reply, Sampling};
pub use inbound::form::{Form, FormProblem};
pub use inbound::notification::{LogData, Notice};
pub use oauth::{
    Authorization, AuthorizationPrompt, Authorize, ConfirmIssuer, Credential, Grant, IssuerPrompt, OAuth, OAuthContext, OAuthSettings,
    OnSecret, SigningAlgorithm, TokenStore,
};
pub use pool::lifecycle::{Closed, ConnectDecision, ConnectionState, Lifecycle, Transition};
pub use pool::{ConnectionRequest, Connections, Lease, LeaseOrigin};
pub use stdio::watchdog::Watchdog;
pub use wire::answer::{CallFailure, Sent};
