//! Streamable HTTP. rmcp handles the sessions, and uses the HTTP client of this module. The client has its own time limits, size limits,
//! redirects and retries.
//!
//! - `target`: checks the address and the headers of a server
//! - `exchange`: sends one request, with tokens, redirects (`redirect`) and retries (`retry`)
//! - `client`: implements rmcp's trait, which posts messages, opens streams and ends sessions
//! - `cancellation`: stores the unanswered requests, and cancels them at the server before MCP 2026-07-28
//! - `stream`: reads event streams (`sse`) and resumes them (`resume`)
//! - `body`: reads bodies, and limits how much of them is in memory at once (`budget`) and is handled at once (`long_messages`)
//! - `raw`: passes results through rmcp unchanged
//! - `failure`: failures of requests, with advice for the operator

mod body;
mod budget;
mod cancellation;
mod client;
mod exchange;
mod failure;
mod legacy;
mod long_messages;
mod raw;
mod redirect;
mod resume;
mod retry;
mod sse;
mod stream;
mod target;
mod tls;
mod token;
mod transport;

#[cfg(test)]
pub(in crate::client) mod testing;
#[cfg(test)]
mod tests;

pub(in crate::client) use cancellation::Farewell;
pub(in crate::client) use client::SESSION_RENEWED;
pub(in crate::client) use failure::{HttpFailure, failure_of, failure_of_start};
pub(in crate::client) use raw::raw_result;
pub(in crate::client) use target::HttpLimits;
pub(in crate::client) use transport::http_transport;

pub use target::HttpTarget;
pub use token::{TokenFuture, TokenSource};
