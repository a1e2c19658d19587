//! Streamable HTTP: our own client beneath rmcp's session handling, so that time-outs, caps, redirects and retries are ours.

mod token;

pub use token::{TokenFuture, TokenSource};
