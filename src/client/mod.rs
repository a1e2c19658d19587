//! Live connections to MCP servers: the only room that knows rmcp, and the only one that starts processes.

mod answer;
mod asked;
mod caller;
mod calls;
mod clock;
mod connection;
mod discovery;
mod era;
mod form;
mod handler;
mod heard;
mod http;
mod json;
mod keeper;
mod lifecycle;
mod lines;
mod link;
mod listen;
mod oauth;
mod observed;
mod offers;
mod open;
mod outbox;
mod pace;
mod paging;
mod pipe;
mod pool;
mod process;
mod questions;
mod reading;
mod requests;
mod routing;
mod stderr;
mod tap;
mod tasks;
mod timer;
mod tools;
mod transport;
mod updates;
mod uses;
mod visit;
mod watch;
mod watchdog;

pub use answer::{CallFailure, Sent};
pub use caller::{Caller, Elicitation, ElicitationAnswer, Observer, Question, Reply, Sampling};
pub use clock::CallLimits;
pub use connection::Connection;
pub use era::Era;
pub use form::{Form, FormProblem};
pub use http::{HttpTarget, TokenFuture, TokenSource};
pub use lifecycle::{Closed, ConnectionState, Lifecycle, Permit, Transition};
pub use oauth::{
    Authorization, AuthorizationPrompt, Authorize, ConfirmIssuer, Credential, Grant, IssuerPrompt, OAuth, OAuthContext, OAuthSettings,
    OnSecret, SigningAlgorithm, TokenStore,
};
pub use offers::{Completed, OfferRequest};
pub use open::{ConnectClock, Heard, Launch, Redact, Target};
pub use pool::{Connections, Lease, LeaseOrigin, Wanted};
pub use tap::{LogData, Notice};
pub use tools::ToolRequest;
pub use watch::Watch;
pub use watchdog::Watchdog;
