//! Decides which servers are protected from the boxes of other servers.

use std::path::Path;
use std::time::SystemTime;

use crate::config::{ServerDefinition, ServerSource, SourceKind};
use crate::gateway::core::Core;

impl Core {
    /// Returns whether the user has written the entry of a server: in the operator's own config, or in a config of another program outside of
    /// the project. Anybody can commit an entry to a config in the project, and agents and providers bring entries too.
    pub(super) fn is_of_user(&self, server: &ServerDefinition) -> bool {
        // The origin has the path as a text, in which a name that is not Unicode is replaced.
        let project = self.surroundings.workspace_folder.display().to_string();
        let is_of_project = || Path::new(server.origin.file()).starts_with(&project);
        server.source.is_operators_config() || (server.is_of_base() && !is_of_project())
    }

    /// Returns whether the programs and variables of a server are protected from the boxes of other servers: the entry is one of the user, or
    /// a person has approved it as it is now. Other entries take nothing away from a box. The approvals of both servers name what the box
    /// can change instead.
    pub(super) fn is_protected(&self, server: &ServerDefinition) -> bool {
        if self.is_of_user(server) {
            return true;
        }
        // If the approvals cannot be read, every server is protected.
        let Ok(approvals) = self.trust.approvals.snapshot() else { return true };
        let key = server.key();
        let approval = approvals.valid(SystemTime::now()).find(|(known, _)| **known == *key);
        approval.is_some_and(|(_, approval)| approval.command_digest == self.subject(server).digest)
    }

    /// Returns a function that tells whether approvals of other servers name a server: a server that an agent has proposed is named only
    /// after a person has approved it.
    pub(super) fn counts_for_boxes(&self) -> impl Fn(&ServerDefinition) -> bool + 'static {
        // If the approvals cannot be read, every server is protected.
        let approvals = self.trust.approvals.snapshot().ok();
        let is_approved = move |server: &ServerDefinition| approvals.as_ref().is_none_or(|approvals| approvals.has(&server.key()));
        move |server| server.source.kind != SourceKind::Agent || is_approved(server)
    }

    /// Returns a function that returns whether a person knows a server: the operator's own config has it, or it has an approval.
    pub(super) fn is_known_to_person(&self) -> impl Fn(&ServerDefinition) -> bool + 'static {
        let approvals = self.trust.approvals.snapshot().ok();
        move |server| server.source == ServerSource::default() || approvals.as_ref().is_some_and(|approvals| approvals.has(&server.key()))
    }
}
