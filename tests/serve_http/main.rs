//! The HTTP server over real sockets, with a small MCP handler of these tests.

mod callers;
mod closing;
mod guards;
mod hostile;
mod oauth;
mod support;
mod tls;
mod users;
