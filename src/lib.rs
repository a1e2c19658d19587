//! MCP servers as synchronous modules inside a Hyperlight micro-VM.
//!
//! Agent-written JavaScript runs in its own VM. In the VM, each approved MCP server is a module `host:mcp-<name>`, and the server's tools
//! are plain functions. A call takes this way: guest → [`sandbox`] → [`bridge`] → [`client`] → server, and back. It runs on the run's own
//! thread and on this crate's tokio runtime, never on Node's main thread.
//!
//! `docs/ARCHITECTURE.md` describes the modules and their permitted dependencies:
//!
//! - [`text`], [`redact`], `files`, `queue`, `turns`, `off_runtime`, [`error`], [`limits`]: the basic modules, which use none of the modules below
//! - [`store`]: stores the data on which decisions depend, in an authenticated `SQLite` database
//! - [`telemetry`]: spans for OpenTelemetry
//! - [`config`]: reads and checks the operator's config
//! - [`registry`]: lists the servers that exist now, with their state
//! - [`trust`]: decides whether a server may run, and whether a model may read its tools
//! - [`boxes`]: the files and hosts that a server's process may use
//! - [`embedding`]: vectors of texts, which the program of an optional package computes
//! - [`catalog`]: describes the tools for a guest and for a model
//! - [`client`]: manages the live connections; uses rmcp's client side
//! - [`sandbox`]: runs the micro-VM; does not depend on MCP
//! - [`fetch`]: the only way from agent code to the network
//! - [`bridge`]: makes each server a host module of the guest
//! - [`results`]: limits the size of a run's result for a model
//! - [`gateway`]: the object through which an agent uses everything else
//! - [`agent`]: the tools and texts that an agent gives to its model
//! - [`boot`]: makes tools from a prompt
//! - [`serve`]: the gateway as an MCP server; uses rmcp's server side
//! - [`command`]: the commands that a person types in an agent; [`cli`]: the program `hyperlight-mcp`
//!
//! The classes for Node are a separate package, in `src/node`. Only that package uses napi.

pub mod agent;
pub mod blocking;
pub mod boot;
pub mod booted;
pub mod boxes;
pub mod bridge;
mod caller_memory;
pub mod catalog;
pub mod cli;
pub mod client;
mod clock;
pub mod command;
pub mod config;
pub mod embedding;
pub mod error;
pub mod fetch;
mod files;
pub mod gateway;
pub mod limits;
mod network;
mod off_runtime;
mod queue;
pub mod redact;
pub mod registry;
pub mod results;
pub mod sandbox;
mod schema_engine;
pub mod serve;
pub mod store;
pub mod telemetry;
pub mod text;
mod tls;
pub mod trust;
mod turns;

pub use error::{Error, Result};
pub use gateway::{Gateway, GatewayOptions};
pub use limits::{LimitChanges, Limits};
