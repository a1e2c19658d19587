//! Threads for connections over the network. They are separate from the threads of the runtime that handles calls.

use crate::network::{NetworkRuntime, NetworkThreads};

/// Returns the threads that carry the network traffic of the boxes of one gateway. A server in a box that sends a flood of traffic takes
/// time of these threads only.
pub(crate) fn border_threads() -> NetworkRuntime {
    NetworkRuntime::new(NetworkThreads { name: "mcp-box", workers: 2, blocking: 32 })
}

/// Returns the threads for the connections of one gateway to servers over HTTP. There are two threads, so that a server that keeps one
/// thread busy does not stop the other servers.
pub(crate) fn network() -> NetworkRuntime {
    NetworkRuntime::new(NetworkThreads { name: "mcp-http", workers: 2, blocking: 64 })
}
