//! A server that runs as a child process. This module starts and ends the process, uses its standard input and output, and runs the
//! watchdog.

pub(in crate::client) mod boxed;
pub(in crate::client) mod lines;
pub(in crate::client) mod outbox;
pub(in crate::client) mod pipe;
pub(in crate::client) mod process;
pub(in crate::client) mod requests;
pub(in crate::client) mod stderr;
pub(in crate::client) mod transport;
pub(in crate::client) mod watchdog;
