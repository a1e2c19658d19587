//! Grants: permissions of a person for more than one call. A grant names exactly what it was given for, and ends with its approval: whatever
//! comes after a revocation, a re-approval, a change or a disabling is another thing, and asks again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

/// The calls that a grant is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Granted {
    /// One tool, as it was described: the digest of all that its server says of it.
    Tool(String),
    /// Requests of one method, of what the manifest of this digest lists.
    Requests { method: &'static str, manifest: String },
}

/// A grant's key: two are equal where everything is that the person's answer rested on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) server: String,
    /// The digest of the approved command.
    pub(super) command: String,
    /// The approval's own id: one that was given anew is another, whichever process gave it.
    pub(super) approval: String,
    /// Number of decisions about the server in this gateway: a disabling or another config ends a grant, too.
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

    /// Drops those of a server. None of them would count any more; this frees their memory.
    pub(super) fn forget(&self, server: &str) {
        self.all().retain(|grant| grant.server != server);
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
