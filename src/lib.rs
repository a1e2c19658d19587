//! MCP servers as synchronous modules inside a Hyperlight micro-VM.
//!
//! Agent-written JavaScript runs in a VM of its own; each approved MCP server is a module `host:mcp-<name>` there, and
//! its tools are plain functions. A call goes guest → [`sandbox`] → [`bridge`] → [`client`] → server and back, on a
//! thread of the run's own and a tokio runtime of ours: never through Node's main thread.
//!
//! The rooms, and what each may know, are described in `docs/ARCHITECTURE.md`:
//!
//! - [`text`], [`redact`], `files`, `queue`, [`error`], [`limits`]: the ground, which knows no room above it
//! - [`config`]: what the operator wrote
//! - [`registry`]: which servers exist now
//! - [`trust`]: may it run, may a model read it
//! - [`catalog`]: tools as a guest and a model see them
//! - [`client`]: live connections; knows rmcp
//! - [`sandbox`]: the micro-VM; knows nothing of MCP
//! - [`bridge`]: a server is a host module
//! - [`results`]: what a run returns to a model, within a budget
//! - [`gateway`]: the one object an agent holds
//! - [`agent`]: what an agent gives to its model
//! - [`command`]: what a person types in an agent; [`cli`]: the program `hyperlight-mcp`
//! - `node`: the classes for Node; the only room that knows napi

pub mod agent;
mod blocking;
pub mod bridge;
pub mod catalog;
pub mod cli;
pub mod client;
mod clock;
pub mod command;
pub mod config;
pub mod error;
mod files;
pub mod gateway;
pub mod limits;
#[cfg(feature = "node")]
mod node;
mod queue;
pub mod redact;
pub mod registry;
pub mod results;
pub mod sandbox;
pub mod text;
pub mod trust;

pub use error::{Error, Result};
pub use gateway::{Gateway, GatewayOptions};
pub use limits::Limits;
