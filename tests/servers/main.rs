//! Tests with servers in processes or behind HTTP, of connections, calls and gateways. They are one program, because the code that each
//! file would compile separately is nearly the same.

#![allow(clippy::large_futures, reason = "each is awaited once, by a test")]
#![cfg(target_os = "linux")]

mod added_states;
mod agents;
mod approved_again;
mod audit;
mod boxes;
mod client;
mod direct;
mod disk;
mod elicitation;
mod gateway;
mod grants;
mod grants_states;
mod hostile;
mod lifecycle;
mod list;
mod managed;
mod profiles;
mod programs;
mod protocol;
mod questions;
mod resources_and_prompts;
mod results;
mod serve_clients;
mod store;
mod tasks;
mod telemetry;
mod trust;
mod typed;

#[path = "../support/mod.rs"]
mod support;
