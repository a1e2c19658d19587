//! Calls that a person has allowed beyond one answer. An entry names exactly its subject and ends with the approval. After a revocation, a new
//! approval, a change or a disabling, the person is asked again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

/// The calls that an entry is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AllowedSubject {
    /// Calls of one tool, by the digest of everything that its server says about it.
    Tool(String),
    /// Requests of one method for the items of the manifest with this digest.
    Requests { method: &'static str, manifest: String },
}

/// A permission for more than one call. Two are equal if everything is equal on which the person's answer was based.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AllowedCall {
    pub(super) server: String,
    /// The digest of the approved command.
    pub(super) command: String,
    /// The id of the approval. A new approval has a new id, also if another process made it.
    pub(super) approval: String,
    /// The number of decisions about the server in this gateway. Disabling the server or changing its config raises it, and so ends the permission.
    pub(super) decisions: u64,
    pub(super) subject: AllowedSubject,
}

/// The calls that were allowed for one run, or of a gateway's session.
#[derive(Debug, Default)]
pub(super) struct AllowedCalls(Mutex<BTreeSet<AllowedCall>>);

impl AllowedCalls {
    pub(super) fn add(&self, allowed: AllowedCall) {
        self.all().insert(allowed);
    }

    pub(super) fn contain(&self, allowed: &AllowedCall) -> bool {
        self.all().contains(allowed)
    }

    /// Removes the permissions for a server. They are no longer valid, so this only frees their memory.
    pub(super) fn forget(&self, server: &str) {
        self.all().retain(|allowed| allowed.server != server);
    }

    /// Removes all permissions, because their agent has ended.
    pub(super) fn forget_all(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<AllowedCall>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_call() -> AllowedCall {
        AllowedCall {
            server: "a".into(),
            command: "c".into(),
            approval: "1".into(),
            decisions: 0,
            subject: AllowedSubject::Tool("t".into()),
        }
    }

    #[test]
    fn a_permission_is_for_what_it_was_given_for_and_for_nothing_else() {
        let allowed = AllowedCalls::default();
        allowed.add(allowed_call());
        assert!(allowed.contain(&allowed_call()));
        let others = [
            AllowedCall { server: "b".into(), ..allowed_call() },
            AllowedCall { command: "d".into(), ..allowed_call() },
            AllowedCall { approval: "2".into(), ..allowed_call() },
            AllowedCall { decisions: 1, ..allowed_call() },
            AllowedCall { subject: AllowedSubject::Tool("u".into()), ..allowed_call() },
            AllowedCall { subject: AllowedSubject::Requests { method: "t", manifest: "t".into() }, ..allowed_call() },
        ];
        assert!(others.iter().all(|other| !allowed.contain(other)));
        allowed.forget("b");
        assert!(allowed.contain(&allowed_call()));
        allowed.forget("a");
        assert!(!allowed.contain(&allowed_call()));
    }
}
