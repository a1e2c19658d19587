//! Streamable HTTP: our own client beneath rmcp's session handling, which has time-outs, caps, redirects and retries of its own.
//!
//! - `target`: where a server is, checked
//! - `exchange`: one request: tokens, `redirect`, `retry`
//! - `client`: what rmcp asks for: post a message, open a stream, end a session
//! - `stream`: events (`sse`), resumed (`resume`)
//! - `body`: bodies, and how much of them is held at once (`budget`)
//! - `raw`: results past rmcp's types
//! - `failure`: what went wrong, and what to do

mod body;
mod budget;
mod client;
mod exchange;
mod failure;
mod legacy;
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
mod testing;
#[cfg(test)]
mod tests;

pub(in crate::client) use client::SESSION_RENEWED;
pub(in crate::client) use failure::{HttpFailure, failure_of, failure_of_start};
pub(in crate::client) use raw::{error_of, raw_result};
pub(in crate::client) use target::HttpLimits;
pub(in crate::client) use transport::http_transport;

pub use target::HttpTarget;
pub use token::{TokenFuture, TokenSource};
