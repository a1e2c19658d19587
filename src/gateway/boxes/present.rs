//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use super::programs::{Outside, kept_of, others};
use crate::boxes::{
    Change, ChangeableBy, Code, Disk, Kept, OtherServer, Owner, Present, changeable_by, changes_by_writing, examine, present,
};
use crate::config::{BoxDefinition, ServerDefinition, Transport, server_of_key};
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

    /// Returns what the boxes of other servers, approved or not, can change that a server runs. It comes from the settings of these servers, so it
    /// does not depend on whether these run. The entry of an approved server can be gone, and come back with its approval. Reads the disk.
    pub(in crate::gateway) fn changeable_by_others(&self, server: &ServerDefinition) -> ChangeableBy {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return ChangeableBy::default();
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
        let (mut by_box, mut writes) = (BTreeMap::<String, BTreeSet<Change>>::new(), BTreeMap::new());
        for KnownServer { server: other, .. } in self.processes().filter(|known| known.is_in_force && known.server.key() != key) {
            let Some(BoxDefinition::On(settings)) = &other.in_box else { continue };
            let kept = || own.iter().cloned().chain(protected(&other, &protecting)).collect();
            let outside = Outside { files: &[], kept: &kept };
            // A box that cannot be made now may be made later, without another look at this server.
            let examined = self.with_possible_box(&other, settings, &outside, |request, _| examine(request, &Disk));
            let Some(examined) = examined else { continue };
            by_box.entry(other.name.clone()).or_default().extend(examined.decided.changes.of_servers);
            writes.insert(other.key(), examined.writes);
        }
        for (key, written) in self.written_at_approval(&key) {
            if writes.get(&key).is_none_or(|now| !written.is_subset(now)) {
                let kept: Vec<Kept> = own.iter().cloned().chain(protecting.iter().flat_map(|(_, code)| kept_programs(code))).collect();
                let changes = changes_by_writing(&written, &kept, &Disk);
                by_box.entry(server_of_key(&key).to_owned()).or_default().extend(changes);
            }
        }
        changeable_by(&by_box, &server.name)
    }

    /// Returns what the boxes of all approved servers except one could write at their approval, by the keys of the servers.
    fn written_at_approval(&self, own_key: &str) -> BTreeMap<String, BTreeSet<PathBuf>> {
        let Ok(approvals) = self.trust.approvals.snapshot() else { return BTreeMap::new() };
        let others = approvals.valid(SystemTime::now()).filter(|(key, approval)| *key != own_key && !approval.writes.is_empty());
        others.map(|(key, approval)| (key.to_owned(), approval.writes.iter().map(PathBuf::from).collect())).collect()
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
    others(own, servers).flat_map(|(_, code)| kept_programs(&code)).collect()
}

fn kept_programs(code: &Code) -> Vec<Kept> {
    code.programs.iter().map(|path| Kept { path: path.clone(), owner: Owner::Server(OtherServer::OtherVersion) }).collect()
}
