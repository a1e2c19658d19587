//! A server that is a process of ours: its start and end, and the lines to it and from it.

pub(in crate::client) mod lines;
pub(in crate::client) mod outbox;
pub(in crate::client) mod pipe;
pub(in crate::client) mod process;
pub(in crate::client) mod requests;
pub(in crate::client) mod stderr;
pub(in crate::client) mod transport;
pub(in crate::client) mod watchdog;
