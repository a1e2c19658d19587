//! Applies the rule for links in projects ([`Projects::led_out`]) to the programs, files and configs of servers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::programs::{kept_of, unprotected};
use crate::boxes::{Access, Code, Disk, Kept, OtherServer, Owner, WithinProjects, is_of_system, leads_to_system, place_of};
use crate::config::{ServerDefinition, Transport, led_out_problem};
use crate::error::Result;
use crate::files::Projects;
use crate::gateway::core::Core;
use crate::trust::{NamedFiles, NotApprovedReason};

impl Core {
    /// Returns the projects of this moment. The folders that boxes may write are those of the approved servers, and those of the boxes that
    /// were made.
    pub(super) fn projects(&self) -> Projects {
        let approvals = self.trust.approvals.snapshot().ok();
        let approved = approvals.iter().flat_map(|approvals| approvals.valid(SystemTime::now()));
        let approved = approved.flat_map(|(_, approval)| approval.writes.iter().map(PathBuf::from));
        let views = self.box_maker.own_files.views.lock().clone();
        let made = views.values().flat_map(|view| &view.given).filter(|given| given.access == Access::Write);
        let written = approved.chain(made.map(|given| given.path.clone()));
        Projects::new(&self.surroundings.workspace_folder, &self.surroundings.user_home, written)
    }

    /// Returns those programs of a server that are protected from the boxes of other servers. What is behind a link that leads out of a
    /// project, or is perhaps another file of the user by a hard link, is protected only as far as a valid approval has it.
    pub(super) fn protected_programs(&self, server: &ServerDefinition, code: &Code, projects: &Projects) -> BTreeSet<PathBuf> {
        if !self.is_protected(server) {
            return BTreeSet::new();
        }
        let approvals = self.trust.approvals.snapshot().ok();
        let key = server.key();
        let valid = approvals.iter().flat_map(|approvals| approvals.valid(SystemTime::now())).find(|(known, _)| *known == key);
        let approval = valid.map(|(_, approval)| approval).filter(|approval| approval.command_digest == self.subject(server).digest);
        let is_own = |path: &Path| projects.led_out(path).is_none() && (approval.is_some() || !projects.has_other_names(path));
        if code.programs.iter().all(|path| is_own(path)) {
            return code.programs.clone();
        }
        // A file behind the link is one of the programs too.
        let within = self.code_with(server, &WithinProjects { projects, lookup: &Disk }).programs;
        let is_bound = |path: &Path| approval.is_some_and(|approval| is_bound(&approval.named, &place_of(path)));
        code.programs.iter().filter(|path| (within.contains(*path) && is_own(path)) || is_bound(path)).cloned().collect()
    }

    /// Returns what boxes must respect of a server's code. Boxes may write programs that are not protected, and both approvals name them.
    pub(super) fn kept_of_server(&self, server: &ServerDefinition, name: &OtherServer, code: &Code, projects: &Projects) -> Vec<Kept> {
        let protected = self.protected_programs(server, code, projects);
        let (kept, others) = kept_of(name, code).into_iter().partition::<Vec<_>, _>(|kept| protected.contains(&kept.path));
        kept.into_iter().chain(unprotected(others)).collect()
    }

    /// Returns the places of a server's programs to which links lead out of projects, and which an approval binds. No approval is needed for
    /// places that each box has as a part of the system, and that no box may write. Reads the disk.
    pub(in crate::gateway) fn linked_programs(&self, server: &ServerDefinition) -> Vec<String> {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return Vec::new();
        }
        let projects = self.projects();
        Core::linked_in(&self.code_of(server), &projects)
    }

    pub(super) fn linked_in(code: &Code, projects: &Projects) -> Vec<String> {
        let places = code.programs.iter().filter_map(|path| projects.led_out(path));
        let is_to_bind = |place: &PathBuf| !is_of_system(place, &Disk) || projects.is_written(place);
        let places: BTreeSet<PathBuf> = places.filter(is_to_bind).collect();
        places.into_iter().filter_map(|place| place.into_os_string().into_string().ok()).collect()
    }

    /// Checks the links of a server that is about to start. Reads the disk.
    ///
    /// # Errors
    /// `ERR_CONFIG_INVALID` if a link leads the `envFile` out of a project. `ERR_NOT_APPROVED` if a link leads a program out of a project, to
    /// a place that the approval does not have.
    pub(in crate::gateway) fn check_links(&self, server: &ServerDefinition) -> Result<()> {
        let projects = self.projects();
        if let Some(file) = self.variables_file(server) {
            // Without a project, a link of the user may lead to the system. No box may write there, unless an entry gives it the place.
            let place = projects.led_out(&file);
            let written = || Some(place_of(&file)).filter(|place| leads_to_system(&file, &Disk) && projects.is_written(place));
            if let Some(place) = place.or_else(written) {
                return Err(server.origin.error(vec![server.origin.problem("envFile", led_out_problem(&file, &place))]));
            }
        }
        let linked = self.linked_programs(server);
        let approval = self.trust.approvals.approval(&server.key())?;
        // Without an approval, the start does not get here: the check of the command has already failed.
        let covers = approval.is_none_or(|approval| approval.covers_linked(&linked));
        if covers { Ok(()) } else { Err(NotApprovedReason::Links.refusal(&server.name)) }
    }

    /// Returns whether others than the user decide which file a path of an entry, or of a config, names.
    pub(super) fn is_led_by_others(path: &Path, projects: &Projects) -> bool {
        projects.led_out(path).is_some() || leads_to_system(path, &Disk)
    }
}

/// Returns whether an approval has a place as a program, or as a part of one.
pub(super) fn is_bound(named: &NamedFiles, place: &Path) -> bool {
    named.programs.iter().any(|program| place.starts_with(program))
}

/// Returns whether a program of an approval, or a file in its place, is the one that was approved.
pub(super) fn is_as_approved(named: &NamedFiles, path: &Path, projects: &Projects) -> bool {
    projects.led_out(path).is_none_or(|place| is_bound(named, &place))
}

/// Returns the same code of an approved server, without protection for programs to which a link leads that was changed since.
pub(super) fn without_unbound(named: &NamedFiles, kept: Vec<Kept>, projects: &Projects) -> Vec<Kept> {
    let is_program = |kept: &Kept| matches!(kept.owner, Owner::Server(_));
    let is_kept = |kept: &Kept| !is_program(kept) || is_as_approved(named, &kept.path, projects);
    let (kept, others) = kept.into_iter().partition::<Vec<_>, _>(is_kept);
    kept.into_iter().chain(unprotected(others)).collect()
}
