//! Keeps the gateway's own files out of boxes: finds these files, and ends a server if such a file is replaced while the server's box has
//! the folder of the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::covered::{Covered, Marked};
use super::outdated::KnownToBox;
use super::programs::{approved_seen_from, seen_from};
use crate::blocking::blocking;
use crate::boxes::{Access, Contents, Disk, FileOwner, FileTrust, Given, Lookup as _, OwnFile, OwnFileUse, check_secret, place_of};
use crate::client::{ConnectionState, KeptAlive, Life};
use crate::config::{ServerDefinition, Transport, environment_file};
use crate::error::{Error, Result};
use crate::files::Projects;
use crate::gateway::Gateway;
use crate::gateway::core::Core;
use crate::gateway::ending::EndReason;
use crate::gateway::subject::FileOnce;
use crate::registry::KnownServer;
use crate::trust::Approval;

/// The time between two checks whether a covered file was replaced, or a server was added or approved.
const INTERVAL: Duration = Duration::from_millis(100);

/// The gateway's own files, and the boxes that have the folders of these files.
#[derive(Default)]
pub(super) struct OwnFiles {
    /// Files with tokens or keys of the MCP server that serves this gateway (`serve`).
    secrets: Mutex<Vec<PathBuf>>,
    pub(super) views: Mutex<HashMap<String, Arc<View>>>,
    /// The servers and approvals that the running boxes were compared with last. The lock is held while boxes are compared and ended, so
    /// that each caller continues only after these boxes have ended.
    pub(super) compared: tokio::sync::Mutex<Option<KnownToBox>>,
    is_watching: AtomicBool,
    /// The number of starts of servers with an `envFile` that was not compared yet. A box that is made during such a start is compared with
    /// it.
    pub(super) starts: AtomicU64,
    /// The number of boxes that were made for each server.
    pub(super) made: Mutex<HashMap<String, u64>>,
    /// The last start of each server with an `envFile`, by the keys of the servers.
    pub(super) last_starts: Mutex<HashMap<String, ComparedStart>>,
    /// The environment files of servers that are about to start, by the keys of the servers, with the content that they get.
    pub(super) starting: Mutex<HashMap<String, FileOnce>>,
    /// True if a config file was replaced in a folder that a box could write. Becomes false when a person or the agent's code requests a
    /// reload of the config.
    is_config_held: AtomicBool,
}

/// A start of a server with an `envFile` with which the boxes were compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ComparedStart {
    /// The digest of the content of the file.
    pub(super) content: Option<[u8; 32]>,
    /// The number of boxes that had been made for other servers.
    pub(super) made: u64,
}

/// The paths that the box of a server got at the last start of the server, and the files of this gateway within these paths.
pub(super) struct View {
    pub(super) given: Vec<Given>,
    /// The files of this gateway that are within `given` folders but hidden from the box. Holds the files that existed before the start.
    pub(super) covered: Vec<Covered>,
    /// Tells whether the box is still about to be made or has processes, or has ended.
    life: Life,
}

impl View {
    /// Returns whether the box can write a file or folder, because the box may write a folder that contains it.
    pub(super) fn writes(&self, path: &Path) -> bool {
        let containing = self.given.iter().filter(|given| path.starts_with(&given.path));
        let innermost = containing.max_by_key(|given| given.path.as_os_str().len());
        // A path that cannot be read now counts as an existing path, because something may be there later.
        let is_place = match path.canonicalize() {
            Ok(real) => real == path,
            Err(_) => Disk.is_unknown(path),
        };
        innermost.is_some_and(|given| given.access == Access::Write && given.path != path) && is_place
    }
}

impl Core {
    /// Returns the files of this gateway that the box of a server must not change.
    pub(super) fn own_files(&self, server: &ServerDefinition) -> Vec<OwnFile> {
        let file = |path: &Path, use_of| Some(OwnFile::new(absolute(path).ok()?, use_of));
        let config = self.source.path();
        let bases = self.source.last_read();
        let bases = bases.iter().map(|(path, _)| path.as_path()).filter(|path| Some(*path) != config);
        let secrets = self.box_maker.own_files.secrets.lock().clone();
        let secrets = secrets.iter().filter_map(|path| file(path, OwnFileUse::Secret));
        let configs = config.into_iter().filter_map(|path| file(path, OwnFileUse::Config));
        let projects = self.projects();
        let bases = bases.filter_map(|path| file(path, self.use_of_base(path, &projects)));
        configs.chain(bases).chain(self.variables_files(server, &projects)).chain(secrets).collect()
    }

    fn use_of_base(&self, base: &Path, projects: &Projects) -> OwnFileUse {
        if Self::is_led_by_others(base, projects) {
            return OwnFileUse::LinkedBase;
        }
        // Within the project too, its author decides which file of the user a link takes away from a box.
        let (project, base) = (place_of(&self.surroundings.workspace_folder), absolute(base).unwrap_or_else(|_| base.to_owned()));
        let within = base.strip_prefix(&self.surroundings.workspace_folder).or_else(|_| base.strip_prefix(&project));
        if within.is_ok_and(|within| place_of(&base) != project.join(within)) { OwnFileUse::LinkedBase } else { OwnFileUse::Base }
    }

    /// Returns the files with variables (`envFile`) of the servers of the user and of approved servers, each with the most trusted server
    /// whose entry names the file. `own` is the server in the box. Other entries take no file away from a box. The approvals of both servers
    /// name the file instead.
    fn variables_files(&self, own: &ServerDefinition, projects: &Projects) -> Vec<OwnFile> {
        let of_own = self.variables_file(own);
        // Entries that cannot be used now are included: they can become usable later, with the same file.
        let servers = self.registry.known_servers();
        let keys: BTreeSet<String> = servers.iter().map(|known| known.server.key()).collect();
        // If the approvals cannot be read, no server starts, so their files are not needed.
        let (approvals, now) = (self.trust.approvals.snapshot().ok(), SystemTime::now());
        let valid: BTreeMap<&str, &Approval> = approvals.iter().flat_map(|approvals| approvals.valid(now)).collect();
        let known = servers.iter().filter_map(|KnownServer { server, .. }| {
            let approval = valid.get(server.key().as_str());
            // A project can have very many long entries. Their files protect nothing before an approval, so their paths are not even built.
            if approval.is_none() && !self.is_of_user(server) {
                return None;
            }
            let path = self.variables_file(server)?;
            let is_approved = approval.is_some_and(|approval| self.is_approved_with(server, approval, &path));
            let trust = match self.is_of_user(server) {
                _ if is_approved => FileTrust::Approved,
                true => FileTrust::Configured,
                false => return None,
            };
            Some((path, FileOwner { server: seen_from(own, &server.name, &server.source), is_gone: false, trust }))
        });
        let approved = valid.iter().filter_map(|(key, approval)| {
            let owner = FileOwner { server: approved_seen_from(own, key), is_gone: !keys.contains(*key), trust: FileTrust::Approved };
            Some((PathBuf::from(approval.named.environment_file.as_ref()?), owner))
        });
        let mut files: BTreeMap<PathBuf, FileOwner> = BTreeMap::new();
        for (path, owner) in known.chain(approved) {
            if files.get(&path).is_none_or(|known| owner.trust > known.trust) {
                files.insert(path, owner);
            }
        }
        let file = |(path, owner): (PathBuf, FileOwner)| {
            let by_this = of_own.as_ref() == Some(&path);
            let is_doubtful = || !by_this && owner.trust < FileTrust::Approved && projects.has_other_names(&path);
            let leads_out = Self::is_led_by_others(&path, projects) || is_doubtful();
            OwnFile { path, use_of: OwnFileUse::Variables { by_this }, server: (!by_this).then_some(owner), leads_out }
        };
        files.into_iter().map(file).collect()
    }

    /// Returns the file from which a server gets its variables (`envFile`).
    pub(super) fn variables_file(&self, server: &ServerDefinition) -> Option<PathBuf> {
        // Where a server starts is looked up only for a server that has such a file.
        let Transport::Stdio { environment_file: Some(_), .. } = &server.transport else { return None };
        absolute(environment_file(server, &self.surroundings, self.locality(server))?).ok()
    }

    /// Returns whether an approval of a server allows the server to start with this `envFile`. Variables in the path can lead elsewhere than
    /// at the approval.
    fn is_approved_with(&self, server: &ServerDefinition, approval: &Approval, file: &Path) -> bool {
        approval.named.environment_file.as_deref().map(Path::new) == Some(file) || approval.command_digest == self.subject(server).digest
    }

    /// Returns whether a file is the config of this gateway, or a config from which it takes servers.
    pub(super) fn is_read_as_config(&self, path: &Path) -> bool {
        // The path of a config may be relative, or lead through links.
        let Ok(real) = path.canonicalize() else { return false };
        let bases = self.source.last_read();
        let mut configs = self.source.path().into_iter().chain(bases.iter().map(|(base, _)| base.as_path()));
        configs.any(|file| file.canonicalize().is_ok_and(|file| file == real))
    }

    /// Records what the box of a server gets, before the server starts. From then on, watches the covered files of the box. If the box may
    /// write something, watches also for servers that are added or approved. Returns a value that the box must keep as long as it has
    /// processes.
    ///
    /// # Errors
    /// `ERR_BOX_FAILED` if a covered file cannot be opened, or if this gateway has other files now than `files`.
    pub(super) fn note_view(&self, server: &ServerDefinition, contents: &Contents, files: &[OwnFile]) -> Result<KeptAlive> {
        let failed = |problem: String| Error::BoxFailed { server: server.name.clone(), problem: problem.into() };
        let Contents { given, hidden, .. } = contents;
        let innermost =
            |path: &Path| given.iter().filter(|given| path.starts_with(&given.path)).max_by_key(|given| given.path.as_os_str().len());
        // A file that is read-only only because of a mount, within a folder that the box may write, could be written if the mount were
        // removed.
        let is_within =
            |path: &Path| given.iter().any(|above| above.access == Access::Write && path.starts_with(&above.path) && path != above.path);
        let read = given.iter().filter(|given| given.access == Access::Read && is_within(&given.path)).map(|given| &given.path);
        let known: Vec<Arc<Marked>> = {
            let views = self.box_maker.own_files.views.lock();
            views.values().flat_map(|view| &view.covered).filter_map(Covered::marked).cloned().collect()
        };
        let covered = hidden.iter().chain(read).filter_map(|path| {
            let is_written = innermost(path)?.access == Access::Write;
            let is_config = files.iter().any(|file| file.use_of == OwnFileUse::Config && is_same_place(&file.path, path));
            let unopened = |error| failed(format!("{}, which its box must not have, cannot be opened: {error}", path.display()));
            Some(Covered::new(path.clone(), is_config, is_written, &known).map_err(unopened))
        });
        let covered = covered.collect::<Result<Vec<_>>>()?;
        let is_to_watch = !covered.is_empty() || given.iter().any(|given| given.access == Access::Write);
        let (alive, life) = KeptAlive::new();
        let view = Arc::new(View { given: given.clone(), covered, life });
        *self.box_maker.own_files.made.lock().entry(server.name.clone()).or_default() += 1;
        self.box_maker.own_files.views.lock().insert(server.name.clone(), view);
        // Another file may have become a file of this gateway while the paths were looked up. Later changes are found by the watch, which
        // has the view from now on.
        let is_known = |file: &OwnFile| files.iter().any(|known| (&known.path, known.use_of) == (&file.path, file.use_of));
        if !self.own_files(server).iter().all(is_known) {
            return Err(failed("the files that belong to this gateway changed while the box was made: try again".to_owned()));
        }
        if is_to_watch && !self.box_maker.own_files.is_watching.swap(true, Ordering::AcqRel) {
            self.watch_boxes();
        }
        Ok(alive)
    }

    fn watch_boxes(&self) {
        let Some(runtime) = self.trust.approval_cache.runtime() else { return };
        let (core, closed) = (Weak::clone(&self.weak), self.closed.clone());
        drop(runtime.spawn(async move {
            let files = async {
                while let Some(core) = core.upgrade() {
                    core.end_uncovered().await;
                    drop(core);
                    tokio::time::sleep(INTERVAL).await;
                }
            };
            // Comparing the programs of many servers takes a long time. The check of the covered files does not wait for this.
            let changes = async {
                while let Some(core) = core.upgrade() {
                    core.end_boxes_of_changes(None).await;
                    drop(core);
                    tokio::time::sleep(INTERVAL).await;
                }
            };
            let watch = async { tokio::join!(files, changes) };
            tokio::select! {
                () = closed.cancelled() => {}
                _ = watch => {}
            }
        }));
    }

    /// Ends each server whose box now has a file of this gateway that it should not have, because the file was replaced or created since
    /// the server started. The next call starts such a server again, in a box that hides the file.
    async fn end_uncovered(self: &Arc<Self>) {
        let views: Vec<(String, Arc<View>)> =
            self.box_maker.own_files.views.lock().iter().map(|(name, view)| (name.clone(), Arc::clone(view))).collect();
        let look = move || {
            let looked = views.into_iter().map(|(name, view)| {
                // The order matters: `is_alive` is read first. A file that is not replaced after the end of its box was not replaced while
                // the box was alive.
                let is_alive = view.life.is_alive();
                let replaced: Vec<usize> =
                    view.covered.iter().enumerate().filter(|(_, file)| file.is_replaced()).map(|(index, _)| index).collect();
                (name, view, is_alive, replaced)
            });
            Ok(looked.filter(|(_, _, is_alive, replaced)| !is_alive || !replaced.is_empty()).collect::<Vec<_>>())
        };
        for (name, view, is_alive, replaced) in blocking(look).await.unwrap_or_default() {
            let replaced = || replaced.iter().filter_map(|index| view.covered.get(*index));
            // A server can also have written the file just before its end.
            if replaced().any(|file| file.is_config && file.is_written) {
                self.box_maker.own_files.is_config_held.store(true, Ordering::Release);
            }
            let is_started = matches!(self.connections.state(&name), ConnectionState::Connected | ConnectionState::Connecting);
            // A box that is about to be made, or that is ending, is checked again later.
            if is_alive && !is_started {
                continue;
            }
            {
                let mut views = self.box_maker.own_files.views.lock();
                // The server may have been started again since the views were copied.
                if views.get(&name).is_some_and(|now| Arc::ptr_eq(now, &view)) {
                    views.remove(&name);
                }
            }
            if !is_alive {
                continue;
            }
            let files: Vec<String> = replaced().map(|file| file.path.display().to_string()).collect();
            self.end(&name, EndReason::BoxOutdated).await;
            let problem = format!(
                "{} was replaced while the box of server \"{name}\" had the folder of this file: the server was ended, and the next call starts it again",
                files.join(", ")
            );
            self.events.warn(problem);
        }
    }

    /// Returns whether a config file was replaced in a folder that a box could write, and neither a person nor the agent's code has
    /// requested a reload since then.
    pub(in crate::gateway) async fn is_config_held(self: &Arc<Self>) -> bool {
        self.end_uncovered().await;
        self.box_maker.own_files.is_config_held.load(Ordering::Acquire)
    }

    /// Allows automatic reads of the config again, because a person or the agent's code has requested a reload.
    pub(in crate::gateway) fn release_config(&self) {
        self.box_maker.own_files.is_config_held.store(false, Ordering::Release);
    }
}

fn is_same_place(file: &Path, place: &Path) -> bool {
    file == place || file.canonicalize().is_ok_and(|real| real == place)
}

impl Gateway {
    /// Hides files of the MCP server that serves this gateway (`serve`) from all boxes that start from now on.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the box of a server that was started has one of the files.
    pub(crate) fn keep_from_boxes(&self, files: &[PathBuf]) -> Result<()> {
        let own = &self.core.box_maker.own_files;
        own.secrets.lock().extend(files.iter().cloned());
        let views = own.views.lock().clone();
        let views = || views.iter().filter(|(_, view)| view.life.is_alive());
        for file in files {
            let Ok(path) = absolute(file) else { continue };
            let reached = views().find_map(|(name, view)| Some((name, check_secret(&path, &view.given, &Disk).err()?)));
            if let Some((name, problem)) = reached {
                own.secrets.lock().retain(|kept| !files.contains(kept));
                let problem = format!(
                    "the box of server \"{name}\", which is running, lets this server read the file, or change who may connect to the gateway: \
                     {problem}"
                );
                return Err(Error::InvalidOption { method: "serve", problem: problem.into() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "own_files_tests.rs"]
mod tests;
