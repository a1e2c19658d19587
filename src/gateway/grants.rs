//! Grants: permissions of a person for more than one call. A grant names exactly its subject and ends with the approval. After a revocation, a new
//! approval, a change or a disabling, the person is asked again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

/// The calls that a grant allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Granted {
    /// Calls of one tool, by the digest of everything that its server says about it.
    Tool(String),
    /// Requests of one method for the items of the manifest with this digest.
    Requests { method: &'static str, manifest: String },
}

/// A grant. Two grants are equal if everything is equal on which the person's answer was based.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) server: String,
    /// The digest of the approved command.
    pub(super) command: String,
    /// The id of the approval. A new approval has a new id, also if another process made it.
    pub(super) approval: String,
    /// The number of decisions about the server in this gateway. Disabling the server or changing its config raises it, and so ends a grant.
    pub(super) decisions: u64,
    pub(super) granted: Granted,
}

/// The grants of one run, or of a gateway's session.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<BTreeSet<Grant>>);

impl Grants {
    pub(super) fn add(&self, grant: Grant) {
        self.all().insert(grant);
    }

    pub(super) fn contain(&self, grant: &Grant) -> bool {
        self.all().contains(grant)
    }

    /// Removes the grants of a server. They are no longer valid, so this only frees their memory.
    pub(super) fn forget(&self, server: &str) {
        self.all().retain(|grant| grant.server != server);
    }

    /// Removes all grants, because their agent has ended.
    pub(super) fn forget_all(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Grant>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant { server: "a".into(), command: "c".into(), approval: "1".into(), decisions: 0, granted: Granted::Tool("t".into()) }
    }

    #[test]
    fn a_grant_is_for_what_it_was_given_for_and_for_nothing_else() {
        let grants = Grants::default();
        grants.add(grant());
        assert!(grants.contain(&grant()));
        let others = [
            Grant { server: "b".into(), ..grant() },
            Grant { command: "d".into(), ..grant() },
            Grant { approval: "2".into(), ..grant() },
            Grant { decisions: 1, ..grant() },
            Grant { granted: Granted::Tool("u".into()), ..grant() },
            Grant { granted: Granted::Requests { method: "t", manifest: "t".into() }, ..grant() },
        ];
        assert!(others.iter().all(|other| !grants.contain(other)));
        grants.forget("b");
        assert!(grants.contain(&grant()));
        grants.forget("a");
        assert!(!grants.contain(&grant()));
    }
}
