//! Revocations of this process, and the rule that an approval begun before a revocation does not undo it.

use std::collections::{BTreeMap, BTreeSet};

use super::document::Approvals;
use crate::error::Error;

/// The state of a server's approval when somebody said yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalBasis {
    /// [`Approval::lineage`](super::Approval::lineage) of the approval that counted then. A revocation in another process ends it.
    pub(super) first_id: Option<String>,
    /// Number of revocations in this process until then.
    pub(super) revocations: u64,
    /// Number of revocations in all processes that the file recorded then.
    pub(super) recorded: u64,
}

impl ApprovalBasis {
    /// Returns whether the file records no revocation since: neither of the approval that counted then, nor of one that came and went.
    pub(super) fn is_of(&self, server: &str, now: &Approvals) -> bool {
        let counts = |first_id: &str| now.get(server).is_some_and(|approval| approval.lineage() == first_id);
        self.recorded == now.revocations_of(server) && self.first_id.as_deref().is_none_or(counts)
    }
}

/// Error of a yes that a revocation overtook.
pub(super) fn revoked_meanwhile(server: &str) -> Error {
    let reason = "its approval was taken back while this yes was under way, and a revocation is only undone by a later yes".to_owned();
    Error::NotApproved { server: server.to_owned(), reason }
}

/// Revocations in this process: their number for each server, and those that are not recorded on disk.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    /// Servers whose approval is being taken back, or whose revocation could not be recorded. They have none here, whatever the file says.
    withheld: BTreeSet<String>,
    counts: BTreeMap<String, u64>,
}

impl Revocations {
    pub(super) fn is_withheld(&self, server: &str) -> bool {
        self.withheld.contains(server)
    }

    pub(super) fn count(&self, server: &str) -> u64 {
        self.counts.get(server).copied().unwrap_or_default()
    }

    /// Begins a revocation, and returns its number.
    pub(super) fn withhold(&mut self, server: &str) -> u64 {
        self.withheld.insert(server.to_owned());
        self.raise(server)
    }

    /// Ends a revocation that is recorded on disk, unless a later one has begun. It counts once more, so that it overtakes a yes that was
    /// said after it began as well.
    pub(super) fn recorded(&mut self, server: &str, count: u64) {
        self.release(server, count);
        self.raise(server);
    }

    /// Lets the approval on disk count again, unless there were more revocations than `count`. Returns whether it counts.
    pub(super) fn release(&mut self, server: &str, count: u64) -> bool {
        let is_last = self.count(server) == count;
        if is_last {
            self.withheld.remove(server);
        }
        is_last
    }

    fn raise(&mut self, server: &str) -> u64 {
        let count = self.counts.entry(server.to_owned()).or_default();
        *count += 1;
        *count
    }
}
