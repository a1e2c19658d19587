//! Permissions that a person gave for more than one call. A permission applies only to exactly one subject (`AllowedSubject`), and ends
//! with the server's approval. After a revocation, a new approval, a change or a disabling of the server, the person is asked again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

/// The calls to which a permission applies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AllowedSubject {
    /// Calls of one tool. Contains the digest of everything that the server says about the tool.
    Tool(String),
    /// Requests of one method for the items in the manifest with this digest.
    Requests { method: &'static str, manifest: String },
}

/// A permission for more than one call. Two permissions are equal if the person has based both answers on equal facts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AllowedCall {
    pub(super) server: String,
    /// The digest of the approved command.
    pub(super) command: String,
    /// The id of the approval. Each new approval has a new id, even if another process made it.
    pub(super) approval: String,
    /// The number of decisions about the server in this gateway. When the server is disabled or its config changes, the number increases,
    /// and this ends the permission.
    pub(super) decisions: u64,
    pub(super) subject: AllowedSubject,
}

/// The calls that a person allowed for one run, or for the session of a gateway.
#[derive(Debug, Default)]
pub(super) struct AllowedCalls(Mutex<BTreeSet<AllowedCall>>);

impl AllowedCalls {
    pub(super) fn add(&self, allowed: AllowedCall) {
        self.all().insert(allowed);
    }

    pub(super) fn contain(&self, allowed: &AllowedCall) -> bool {
        self.all().contains(allowed)
    }

    /// Removes the permissions for a server. These permissions are already invalid, so the removal only frees memory.
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
