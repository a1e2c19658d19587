//! Ends boxes that could change what other servers run, or that have files which have become files of the gateway since the boxes were made.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::own_files::{ComparedStart, View};
use super::programs::others;
use crate::blocking::blocking;
use crate::boxes::{Disk, OtherMounts, OwnFile, OwnFileUse, Owner, check_variables, may_write_other_name, place_of, sharing};
use crate::config::{ServerDefinition, SourceKind, Transport, read_env_file};
use crate::error::{Error, Result};
use crate::gateway::core::Core;
use crate::gateway::ending::EndReason;
use crate::gateway::subject::FileOnce;
use crate::registry::RegistryView;
use crate::trust::ApprovalSnapshot;

/// The servers and approvals on which the making of a box is based.
pub(super) struct KnownToBox {
    servers: RegistryView,
    approvals: Option<ApprovalSnapshot>,
    /// The number of starts of servers with an `envFile`, whose content can have changed.
    starts: u64,
}

impl KnownToBox {
    /// Returns whether both values have the same servers and approvals, and the same environment files.
    fn is(&self, other: &Self) -> bool {
        let same = |(one, two): (&ApprovalSnapshot, &ApprovalSnapshot)| one.has_the_approvals_of(two);
        self.starts == other.starts
            && self.servers.is(&other.servers)
            && self.approvals.as_ref().zip(other.approvals.as_ref()).is_some_and(same)
    }
}

impl Core {
    /// Ends servers whose boxes contain a file that has become a file of this gateway, such as the `envFile` of a new entry, or that can
    /// write the program of a new entry. `starting` is a server that is about to start, so its box is not checked.
    pub(in crate::gateway) async fn end_boxes_with_new_files(self: &Arc<Self>, starting: Option<&str>) {
        let mut compared = self.box_maker.own_files.compared.lock().await;
        *compared = None;
        self.end_outdated(&mut compared, starting).await;
    }

    /// Ends the same servers as [`Self::end_boxes_with_new_files`], if a server was added, or approved by any process, since the boxes were
    /// compared last. Otherwise only reads the version of the store.
    pub(in crate::gateway) async fn end_boxes_of_changes(self: &Arc<Self>, starting: Option<&str>) {
        if self.box_maker.own_files.views.lock().is_empty() {
            return;
        }
        let mut compared = self.box_maker.own_files.compared.lock().await;
        self.end_outdated(&mut compared, starting).await;
    }

    /// Ends boxes that could change the program of a server that is about to start. Such a box may be older than the server's approval, or
    /// than the `content` of its environment file, which nobody approves. The boxes end even if the start is interrupted.
    pub(in crate::gateway) async fn end_boxes_before(&self, starting: &ServerDefinition, content: FileOnce) {
        let Some(core) = self.weak.upgrade() else { return };
        // A task adds its servers without a check of the running boxes, and files may have been created since then.
        let is_of_task = starting.source.kind == SourceKind::Task;
        let has_file = matches!(&starting.transport, Transport::Stdio { environment_file: Some(_), .. });
        let (key, name) = (starting.key(), starting.name.clone());
        if has_file {
            let own = &core.box_maker.own_files;
            own.starting.lock().insert(key.clone(), content.clone());
            // A server that ends at each call and is started again would otherwise delay the starts of others.
            let made: u64 = own.made.lock().iter().filter(|(other, _)| **other != name).map(|(_, count)| count).sum();
            let start = ComparedStart { content: content.digest(), made };
            if own.last_starts.lock().insert(key.clone(), start) != Some(start) {
                own.starts.fetch_add(1, Ordering::AcqRel);
            }
        }
        let ending = async move {
            if is_of_task {
                core.end_boxes_with_new_files(Some(&name)).await;
            } else {
                core.end_boxes_of_changes(Some(&name)).await;
            }
            let mut starting = core.box_maker.own_files.starting.lock();
            if starting.get(&key).is_some_and(|known| known.is(&content)) {
                starting.remove(&key);
            }
        };
        drop(tokio::spawn(ending).await);
    }

    /// Reads an environment file for a comparison with boxes. While a server with this file is about to start, returns the content that its
    /// process gets.
    pub(super) fn read_variables_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let known = self.box_maker.own_files.starting.lock().values().find_map(|content| content.known(path));
        known.unwrap_or_else(|| read_env_file(path))
    }

    async fn end_outdated(self: &Arc<Self>, compared: &mut Option<KnownToBox>, starting: Option<&str>) {
        let core = Arc::clone(self);
        // This is read before the boxes are looked up. A box that is recorded later is checked against later changes by `check_current`.
        let Ok(known) = blocking(move || Ok(core.known_to_box())).await else { return };
        // While approvals cannot be read, no server starts.
        if compared.as_ref().is_some_and(|compared| known.approvals.is_none() || compared.is(&known)) {
            return;
        }
        let mut views = self.box_maker.own_files.views.lock().clone();
        views.retain(|name, _| starting != Some(name));
        let Ok(outdated) = self.outdated(views).await else { return };
        for (name, view) in outdated {
            {
                let mut views = self.box_maker.own_files.views.lock();
                // The server may have been started again since the views were copied.
                if views.get(&name).is_none_or(|now| !Arc::ptr_eq(now, &view)) {
                    continue;
                }
                views.remove(&name);
            }
            self.end(&name, EndReason::BoxOutdated).await;
        }
        *compared = Some(known);
    }

    /// Fails if a server was added or approved while the box of another server was made, and this box could write the program of the added
    /// server.
    ///
    /// # Errors
    /// `ERR_BOX_FAILED`.
    pub(super) async fn check_current(&self, server: &ServerDefinition, known: &KnownToBox) -> Result<()> {
        let Some(core) = self.weak.upgrade().filter(|core| !known.is(&core.known_to_box())) else { return Ok(()) };
        let mut views = core.box_maker.own_files.views.lock().clone();
        views.retain(|name, _| *name == server.name);
        // If the box has no view, another check has already found that the box is outdated.
        let is_noted = !views.is_empty();
        if is_noted && core.outdated(views).await?.is_empty() {
            return Ok(());
        }
        core.box_maker.own_files.views.lock().remove(&server.name);
        let problem =
            "another server was added or approved while the box was made, and the box could write what that server runs: try again";
        Err(Error::BoxFailed { server: server.name.clone(), problem: problem.into() })
    }

    /// Returns the servers and approvals on which the making of a box is based.
    pub(super) fn known_to_box(&self) -> KnownToBox {
        let starts = self.box_maker.own_files.starts.load(Ordering::Acquire);
        KnownToBox { servers: self.registry.view(), approvals: self.trust.approvals.snapshot().ok(), starts }
    }

    /// Returns the outdated boxes among `views`, by the names of their servers. A box is outdated if it contains a file that has become a
    /// file of this gateway, if it can make or replace the `envFile` of a server that was approved since, or if it can write the program of
    /// another server. The other server may also be one whose entry is gone but
    /// whose approval is valid.
    async fn outdated(&self, mut views: HashMap<String, Arc<View>>) -> Result<HashMap<String, Arc<View>>> {
        if views.is_empty() {
            return Ok(views);
        }
        self.reading(move |core| {
            let (own_programs, programs, projects) = (core.gateways_programs(), core.code_of_servers(), core.projects());
            let can_write_program = |server: &ServerDefinition, view: &View| {
                let mounts = OtherMounts::of(view.given.iter().map(|given| &given.path), &Disk);
                let writes = |path: &PathBuf| view.writes(path) || mounts.other_names(path, &Disk).iter().any(|name| view.writes(name));
                let approved = core.approved_code(server);
                let approved = approved.iter().filter(|kept| matches!(kept.owner, Owner::Server(_)));
                let others = others(server, &programs);
                let protected: Vec<_> = others.flat_map(|other| core.protected_programs(other.server, &other.code, &projects)).collect();
                let protected = || protected.iter();
                own_programs.iter().chain(approved).any(|kept| writes(&kept.path))
                    || protected().any(writes)
                    || may_write_other_name(protected(), &view.given, &Disk)
            };
            let (all, mut writers) = (views.clone(), BTreeSet::new());
            views.retain(|name, view| {
                let Ok(server) = core.registry.server(name) else { return false };
                let is_new = |file: &OwnFile| {
                    let place = place_of(&file.path);
                    let has = view.given.iter().any(|given| place.starts_with(&given.path) && place != given.path);
                    let is_covered = || view.covered.iter().any(|known| known.path == place);
                    has && file.use_of != OwnFileUse::Variables { by_this: true } && !is_covered() && file.is_hidden_at(&place, &Disk)
                };
                let files = core.own_files(&server);
                let has_made = |file: &OwnFile| file.use_of != OwnFileUse::Base && is_new(file);
                let writes =
                    can_write_program(&server, view) || check_variables(&files, &view.given, &Disk).is_err() || files.iter().any(has_made);
                writers.extend(writes.then(|| name.clone()));
                writes || files.iter().any(is_new)
            });
            // Such a box may have passed an open file to another box.
            let ending = with_sharing(&all, &writers);
            views.extend(all.into_iter().filter(|(name, _)| ending.contains(name)));
            Ok(views)
        })
        .await
    }
}

/// Returns the names of these boxes, and of the boxes that share a path with them.
fn with_sharing(views: &HashMap<String, Arc<View>>, first: &BTreeSet<String>) -> BTreeSet<String> {
    let own = |view: &View| view.given.iter().map(|given| (given.path.clone(), given.access)).collect();
    sharing(first, &views.iter().map(|(name, view)| (name.clone(), own(view))).collect())
}
