//! A connection's life, and what becomes of calls whose server does not live to answer them.

#![allow(clippy::large_futures, reason = "each is awaited once, by a test")]
#![cfg(target_os = "linux")]

mod connections;
mod repeats;

#[path = "../support/mod.rs"]
mod support;
