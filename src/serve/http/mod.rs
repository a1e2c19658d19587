//! Streamable HTTP for an MCP server: a listener with guards, limits and sessions. It serves any handler of rmcp.
//!
//! - `options`: the settings, checked before anything listens
//! - `connection`: accepts connections, with limits on slow clients (`stall_timeout`) and with TLS (`tls`)
//! - `router`: the routes, and the guards that a request passes on its way
//! - `origin`: checks the headers `Host` and `Origin`, against DNS rebinding
//! - `peer`: refuses other users of this machine if no token is required
//! - `access`: identifies the caller by a bearer token (`tokens`) or an OAuth access token (`oauth`, `jwt`)
//! - `rate`: limits the requests per second of each client; for an address above the limit, only known tokens are checked (`known_tokens`)
//! - `callers`: one rmcp service for each caller, so that nobody can use a session of another caller (`sessions`)
//! - `slots`: the slots of a request in the limits, which are kept until its handler has ended and its answer was sent (`answer_body`)
//! - `request_ids`: ensures that two requests of a session that are in progress never have the same id
//! - `streams`: recognises the streams of notifications, which have limits of their own
//! - `metrics`: counters and gauges in the text format of Prometheus

mod access;
mod answer_body;
mod body_shape;
mod callers;
mod connection;
mod jwt;
mod known_tokens;
mod limits;
mod metrics;
mod oauth;
mod options;
mod origin;
mod peer;
mod rate;
mod router;
mod server;
mod sessions;
mod slots;
mod stall_timeout;
mod streams;
mod tls;
mod tokens;

pub use access::Principal;
pub(super) use callers::Owner;
pub use limits::ServeLimits;
pub use metrics::{Metrics, RunInFlight};
pub(super) use options::invalid;
pub use options::{HttpLimits, HttpOptions, Listen, ProtectedResource, TlsFiles};
pub use server::{HttpServer, check, listen};
pub(super) use sessions::SessionEnd;
pub(super) use slots::Slots;
