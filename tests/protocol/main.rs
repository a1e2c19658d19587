//! The protocol, both eras, over stdio and HTTP: how a connection begins, what it lists, what it carries, and what it survives.

#![allow(clippy::large_futures, reason = "each is awaited once, by a test")]
#![cfg(target_os = "linux")]

mod calls;
mod eras;
mod http;
mod lists;
mod tasks;
mod wire;

#[path = "../support/mod.rs"]
mod support;
