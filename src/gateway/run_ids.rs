//! The numbers of runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next run. The counter is global because a run is identified by its number and the id of its process, and a process can
/// have several gateways, each served several times.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns a number for a run ([`RunOptions::run_id`](super::RunOptions::run_id)) that no other run of this process has.
///
/// ```
/// use hyperlight_mcp::gateway::next_run_id;
///
/// assert!(next_run_id() < next_run_id());
/// ```
#[must_use]
pub fn next_run_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}
