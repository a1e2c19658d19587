//! Records the revocations of this process. An approval that began before a revocation cannot undo it.

use std::collections::{BTreeMap, BTreeSet};

use super::document::Approvals;
use crate::error::Error;

/// The state of a server's approval at the moment when a person approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalBasis {
    /// [`Approval::first_approval_id`](super::Approval::first_approval_id) of the approval that was valid when the person approved. A
    /// revocation in another process removes this id.
    pub(super) first_id: Option<String>,
    /// Number of revocations in this process when the person approved.
    pub(super) revocations: u64,
    /// Number of revocations by all processes in the store when the person approved.
    pub(super) recorded: u64,
    /// The ids of the approvals of all other servers, by the keys of the servers, if the request that is approved depends on them.
    pub(super) others: Option<BTreeMap<String, String>>,
}

impl ApprovalBasis {
    /// Returns whether the other servers have the approvals with which the request was made.
    pub(super) fn has_others(&self, server: &str, now: &Approvals) -> bool {
        self.others.as_ref().is_none_or(|others| *others == now.ids_of_others(server))
    }

    /// Returns whether nothing of the server was revoked since the person approved: neither the approval that was valid then, nor a later
    /// one.
    pub(super) fn is_of(&self, server: &str, now: &Approvals) -> bool {
        let counts = |first_id: &str| now.get(server).is_some_and(|approval| approval.first_approval_id() == first_id);
        self.recorded == now.revocations_of(server) && self.first_id.as_deref().is_none_or(counts)
    }
}

/// Returns the error for an approval that was interrupted by a revocation.
pub(super) fn revoked_meanwhile(server: &str) -> Error {
    let reason = "it was revoked while this approval was being recorded, so this approval has no effect: approve it again".to_owned();
    Error::NotApproved { server: server.to_owned(), reason: reason.into() }
}

/// The revocations in this process: their number for each server, and the servers whose revocation is not recorded on disk.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    /// Servers whose approval is being revoked, or whose revocation could not be recorded. In this process they have no approval, whatever
    /// the store contains.
    withheld: BTreeSet<String>,
    counts: BTreeMap<String, u64>,
}

impl Revocations {
    pub(super) fn is_withheld(&self, server: &str) -> bool {
        self.withheld.contains(server)
    }

    pub(super) fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld.iter().map(String::as_str)
    }

    pub(super) fn count(&self, server: &str) -> u64 {
        self.counts.get(server).copied().unwrap_or_default()
    }

    /// Begins a revocation and returns its number.
    pub(super) fn withhold(&mut self, server: &str) -> u64 {
        self.withheld.insert(server.to_owned());
        self.raise(server)
    }

    /// Ends a revocation that is now recorded on disk, unless a later one has begun. Raises the number again, so that approvals that began
    /// during the revocation fail as well.
    pub(super) fn recorded(&mut self, server: &str, count: u64) {
        self.release(server, count);
        self.raise(server);
    }

    /// Makes the approval on disk valid again, unless there were more revocations than `count`. Returns whether it is now valid.
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
