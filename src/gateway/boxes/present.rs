//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::programs::{Outside, kept_of, others};
use crate::boxes::{Code, Disk, Kept, OtherServer, Owner, Present, examine, present, sentences_of_other};
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
        let code = self.code_of(server);
        let mut own = kept_of(&OtherServer::Named(server.name.clone()), &code);
        let mut protecting = Vec::new();
        if !self.counts_for_boxes()(server) {
            // The proposal of an agent is not kept from boxes before its approval. So they may write its programs while a person decides.
            for kept in &mut own {
                if let Owner::Server(server) = &kept.owner {
                    kept.owner = Owner::Runs(server.clone());
                }
            }
            protecting = self.programs_above(&code);
        }
        let key = server.key();
        let by_box: BTreeMap<_, _> = self
            .processes()
            .filter(|known| known.is_in_force && known.server.key() != key)
            .filter_map(|KnownServer { server: other, .. }| {
                let Some(BoxDefinition::On(settings)) = &other.in_box else { return None };
                let kept = || own.iter().cloned().chain(protected(&other, &protecting)).collect();
                let outside = Outside { files: &[], kept: &kept };
                // A box that cannot be made now may be made later, without another look at this server.
                let examined = self.with_possible_box(&other, settings, &outside, |request, _| examine(request, &Disk))?;
                Some((other.name.clone(), examined.decided.changes.of_servers))
            })
            .collect();
        sentences_of_other(&by_box, &server.name)
    }

    /// Returns the servers that are kept from boxes, with those of their programs that are, or contain, a program of a server that is not.
    fn programs_above(&self, code: &Code) -> Vec<(KnownServer, Code)> {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let all = code.programs.iter().flat_map(|path| [path.clone(), real(path)]);
        let above: BTreeSet<PathBuf> = all.flat_map(|path| path.ancestors().map(PathBuf::from).collect::<Vec<_>>()).collect();
        let mut servers = self.code_of_servers();
        for (_, code) in &mut servers {
            code.programs.retain(|path| above.contains(path) || above.contains(&real(path)));
        }
        servers
    }
}

/// Returns what the box of a server cannot write because other servers run it. The sentences of the examined server do not name these servers.
fn protected(own: &ServerDefinition, servers: &[(KnownServer, Code)]) -> Vec<Kept> {
    let kept = |path: &PathBuf| Kept { path: path.clone(), owner: Owner::Server(OtherServer::OtherVersion) };
    others(own, servers).flat_map(|(_, code)| code.programs.iter().map(kept).collect::<Vec<_>>()).collect()
}
