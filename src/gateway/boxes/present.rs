//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use std::collections::BTreeMap;

use super::programs::{Outside, kept_of};
use crate::boxes::{Disk, OtherServer, Present, examine, present, sentences_of_other};
use crate::config::{BoxDefinition, ServerDefinition, Transport};
use crate::gateway::core::Core;
use crate::registry::KnownServer;

impl Core {
    /// Returns what the box of a server has on this machine now, and what it can change that runs outside. If the program is missing, or a value
    /// that the entry names, one sentence says so, and the rest is what is known without it. Reads the disk.
    pub(in crate::gateway) fn present_in_box(&self, server: &ServerDefinition) -> Present {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return Present::default() };
        let kept = || self.kept_from(server);
        let outside = Outside { files: &self.own_files(server), kept: &kept };
        let found = self.with_possible_box(server, settings, &outside, |request, lack| (present(request, &Disk), lack));
        let Some((mut present, lack)) = found else { return Present::default() };
        present.sentences.splice(0..0, lack.map(|lack| lack.sentence()));
        present
    }

    /// Returns sentences about what the boxes of other servers, approved or not, can change that a server runs. They come from the settings of
    /// these servers, so they do not depend on whether these run. Reads the disk.
    pub(super) fn changeable_by_others(&self, server: &ServerDefinition) -> Vec<String> {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return Vec::new();
        }
        // The server may be the proposal of an agent, which does not count for boxes before its approval.
        let own = kept_of(&OtherServer::Named(server.name.clone()), &self.code_of(server));
        let key = server.key();
        let by_box: BTreeMap<_, _> = self
            .processes()
            .filter(|known| known.is_in_force && known.server.key() != key)
            .filter_map(|KnownServer { server: other, .. }| {
                let Some(BoxDefinition::On(settings)) = &other.in_box else { return None };
                let kept = || own.clone();
                let outside = Outside { files: &[], kept: &kept };
                // A box that cannot be made now may be made later, without another look at this server.
                let examined = self.with_possible_box(&other, settings, &outside, |request, _| examine(request, &Disk))?;
                Some((other.name.clone(), examined.decided.changes.of_servers))
            })
            .collect();
        sentences_of_other(&by_box, &server.name)
    }
}
