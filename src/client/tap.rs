//! A look at what a server sends, in the order in which it sends it. rmcp handles each notification in a task of its own,
//! so that two of them can change places.

use std::sync::Arc;

use serde_json::Value as Json;

/// Shown each message before rmcp is. `true`: it was taken, and rmcp never sees it. Must not block.
pub(in crate::client) type Tap = Arc<dyn Fn(&Json) -> bool + Send + Sync>;
