//! Sentences for an approval request about the files and programs of this machine that a box has now, in addition to those that the config
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use super::programs::{Outside, approved_seen_from, others, seen_from};
use crate::boxes::{
    Change, ChangeableBy, Code, Disk, FileOwner, FileTrust, Kept, OtherServer, OwnFile, OwnFileUse, Owner, Present, changeable_by,
    changes_by_writing, examine, is_hidden_if_given, present,
};
use crate::config::{BoxDefinition, ServerDefinition, Transport, server_of_key};
use crate::files::Projects;
use crate::gateway::core::Core;
use crate::registry::KnownServer;

impl Core {
    /// Describes the paths of this machine that the box of a server has now, and the files that this box can change and that run outside of
    /// it. If the program, or a value that the entry names, is missing, one sentence says so. The other sentences then describe what is
    /// known without it. Reads the disk.
    pub(in crate::gateway) fn present_in_box(&self, server: &ServerDefinition) -> Present {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return Present::default() };
        let kept = || self.kept_from(server);
        let known = self.known_neighbours(server);
        let outside = Outside { files: &self.own_files(server), kept: &kept, is_always_named: &|other| known.contains(other) };
        let found = self.with_possible_box(server, settings, &outside, |request, lack| (present(request, &Disk), lack));
        let Some((mut present, lack)) = found else { return Present::default() };
        present.sentences.splice(0..0, lack.map(|lack| lack.sentence()));
        present
    }

    /// Describes which programs and files of a server the boxes of other servers, approved or not, can change. The result depends on the
    /// settings of these servers, and not on whether they run. It also includes servers that are approved but whose entries are gone,
    /// because an entry can come back with its approval. Reads the disk.
    pub(in crate::gateway) fn changeable_by_others(&self, server: &ServerDefinition) -> ChangeableBy {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return ChangeableBy::default();
        }
        let (code, projects) = (self.code_of(server), self.projects());
        // A box may write the other programs while a person decides.
        let mut own = self.kept_of_server(server, &OtherServer::Named(server.name.clone()), &code, &projects);
        // Each box that is examined hides the file of a protected server, if it can.
        let is_protected = self.is_protected(server);
        let variables = self.variables_file(server).filter(|file| is_protected && !Self::is_led_by_others(file, &projects));
        let own_file = variables.clone().map(|path| OwnFile {
            path,
            use_of: OwnFileUse::Variables { by_this: false },
            leads_out: false,
            server: Some(FileOwner { server: OtherServer::Named(server.name.clone()), is_gone: false, trust: FileTrust::Unapproved }),
        });
        let protecting = if is_protected { Vec::new() } else { self.programs_above(&code, &projects) };
        let key = server.key();
        let (mut by_box, mut writes) = (BTreeMap::<String, BTreeSet<Change>>::new(), BTreeMap::new());
        for KnownServer { server: other, .. } in self.processes().filter(|known| known.is_in_force && known.server.key() != key) {
            let Some(BoxDefinition::On(settings)) = &other.in_box else { continue };
            let kept = || own.iter().cloned().chain(protected(&other, &protecting)).collect();
            let outside = Outside { files: own_file.as_slice(), kept: &kept, is_always_named: &|_| true };
            // A box that cannot be made now may be made later, and this server is not checked again then. So the box is examined as far as
            // possible.
            let examined = self.with_possible_box(&other, settings, &outside, |request, _| examine(request, &Disk));
            let Some(examined) = examined else { continue };
            by_box.entry(other.name.clone()).or_default().extend(examined.decided.changes.of_servers);
            writes.insert(other.key(), examined.writes);
        }
        own.retain(|kept| Some(&kept.path) != variables.as_ref() || !is_hidden_if_given(&kept.path, &Disk));
        for (key, written) in self.written_at_approval(&key) {
            if writes.get(&key).is_none_or(|now| !written.is_subset(now)) {
                let kept: Vec<Kept> = own.iter().cloned().chain(protecting.iter().flat_map(|(_, code)| kept_programs(code))).collect();
                let changes = changes_by_writing(&written, &kept, &Disk);
                by_box.entry(server_of_key(&key).to_owned()).or_default().extend(changes);
            }
        }
        let known: BTreeSet<String> = self.known_neighbours(server).iter().filter_map(|other| other.name().map(str::to_owned)).collect();
        changeable_by(&by_box, &server.name, &|name| known.contains(name))
    }

    /// Returns the other servers that a person knows, as an approval of this server names them.
    fn known_neighbours(&self, own: &ServerDefinition) -> BTreeSet<OtherServer> {
        let is_known = self.is_known_to_person();
        let servers = self.processes().filter(|known| is_known(&known.server));
        let servers = servers.map(|KnownServer { server, .. }| seen_from(own, &server.name, &server.source));
        let approvals = self.trust.approvals.snapshot().ok();
        let approved = approvals.iter().flat_map(|approvals| approvals.valid(SystemTime::now()));
        servers.chain(approved.map(|(key, _)| approved_seen_from(own, key))).collect()
    }

    /// Returns the paths that the boxes of all approved servers except `own_key` could write when they were approved, by the keys of the
    /// servers.
    fn written_at_approval(&self, own_key: &str) -> BTreeMap<String, BTreeSet<PathBuf>> {
        let Ok(approvals) = self.trust.approvals.snapshot() else { return BTreeMap::new() };
        let others = approvals.valid(SystemTime::now()).filter(|(key, approval)| *key != own_key && !approval.writes.is_empty());
        others.map(|(key, approval)| (key.to_owned(), approval.writes.iter().map(PathBuf::from).collect())).collect()
    }

    /// Returns all servers that are protected from boxes. Each has only those of its programs that are, or contain, a program in `code`.
    /// `code` is the code of a server that is not protected.
    fn programs_above(&self, code: &Code, projects: &Projects) -> Vec<(KnownServer, Code)> {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let all = code.programs.iter().flat_map(|path| [path.clone(), real(path)]);
        let above: BTreeSet<PathBuf> = all.flat_map(|path| path.ancestors().map(PathBuf::from).collect::<Vec<_>>()).collect();
        let mut servers = self.code_of_servers();
        for (known, code) in &mut servers {
            code.programs = self.protected_programs(&known.server, code, projects);
            code.programs.retain(|path| above.contains(path) || above.contains(&real(path)));
        }
        servers
    }
}

/// Returns the paths that the box of a server cannot write because other servers run them. The sentences about the examined server do not
/// name these other servers.
fn protected(own: &ServerDefinition, servers: &[(KnownServer, Code)]) -> Vec<Kept> {
    others(own, servers).flat_map(|other| kept_programs(&other.code)).collect()
}

fn kept_programs(code: &Code) -> Vec<Kept> {
    code.programs.iter().map(|path| Kept { path: path.clone(), owner: Owner::Server(OtherServer::OtherVersion) }).collect()
}
