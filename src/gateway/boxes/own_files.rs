//! Keeps the gateway's own files out of boxes: finds these files, and ends a server if such a file is replaced while the server's box has
//! the folder of the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::covered::{Covered, Marked};
use super::programs::{approved_seen_from, others, seen_from};
use crate::blocking::blocking;
use crate::boxes::{
    Access, Contents, Disk, FileOwner, FileTrust, Given, Lookup as _, OtherMounts, OwnFile, OwnFileUse, Owner, check_secret,
    check_variables, place_of,
};
use crate::client::{ConnectionState, KeptAlive, Life};
use crate::config::{ServerDefinition, SourceKind, Transport, environment_file, read_env_file};
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::gateway::core::Core;
use crate::gateway::ending::EndReason;
use crate::gateway::subject::FileOnce;
use crate::registry::{KnownServer, RegistryView};
use crate::trust::{Approval, ApprovalSnapshot};

/// The time between two checks whether a covered file was replaced, or a server was added or approved.
const INTERVAL: Duration = Duration::from_millis(100);

/// The gateway's own files, and the boxes that have the folders of these files.
#[derive(Default)]
pub(super) struct OwnFiles {
    /// Files with tokens or keys of the MCP server that serves this gateway (`serve`).
    secrets: Mutex<Vec<PathBuf>>,
    views: Mutex<HashMap<String, Arc<View>>>,
    /// The servers and approvals that the running boxes were compared with last. The lock is held while boxes are compared and ended, so
    /// that each caller continues only after these boxes have ended.
    compared: tokio::sync::Mutex<Option<KnownToBox>>,
    is_watching: AtomicBool,
    /// The number of starts of servers with an `envFile`. A box that is made during such a start is compared with it.
    starts: AtomicU64,
    /// The environment files of servers that are about to start, by the keys of the servers, with the content that they get.
    starting: Mutex<HashMap<String, FileOnce>>,
    /// True if a config file was replaced in a folder that a box could write. Becomes false when a person or the agent's code requests a
    /// reload of the config.
    is_config_held: AtomicBool,
}

/// The paths that the box of a server got at the last start of the server, and the files of this gateway within these paths.
struct View {
    given: Vec<Given>,
    /// The files of this gateway that are within `given` folders but hidden from the box. Holds the files that existed before the start.
    covered: Vec<Covered>,
    /// Tells whether the box is still about to be made or has processes, or has ended.
    life: Life,
}

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

impl View {
    /// Returns whether the box can write a file or folder, because the box may write a folder that contains it.
    fn writes(&self, path: &Path) -> bool {
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
        let bases = bases.filter_map(|path| file(path, self.use_of_base(path)));
        configs.chain(bases).chain(self.variables_files(server)).chain(secrets).collect()
    }

    fn use_of_base(&self, base: &Path) -> OwnFileUse {
        let (project, base) = (place_of(&self.surroundings.workspace_folder), absolute(base).unwrap_or_else(|_| base.to_owned()));
        let within = base.strip_prefix(&self.surroundings.workspace_folder).or_else(|_| base.strip_prefix(&project));
        if within.is_ok_and(|within| place_of(&base) != project.join(within)) { OwnFileUse::LinkedBase } else { OwnFileUse::Base }
    }

    /// Returns the files with variables (`envFile`) of the servers of the user and of approved servers, each with the most trusted server
    /// whose entry names the file. `own` is the server in the box. Other entries take no file away from a box. The approvals of both servers
    /// name the file instead.
    fn variables_files(&self, own: &ServerDefinition) -> Vec<OwnFile> {
        let of_own = self.variables_file(own);
        // Entries that cannot be used now are included: they can become usable later, with the same file.
        let servers = self.registry.known_servers();
        let keys: BTreeSet<String> = servers.iter().map(|known| known.server.key()).collect();
        // If the approvals cannot be read, no server starts, so their files are not needed.
        let (approvals, now) = (self.trust.approvals.snapshot().ok(), SystemTime::now());
        let valid: BTreeMap<&str, &Approval> = approvals.iter().flat_map(|approvals| approvals.valid(now)).collect();
        let known = servers.iter().filter_map(|KnownServer { server, .. }| {
            let path = self.variables_file(server)?;
            let approval = valid.get(server.key().as_str());
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
        let file = |(path, owner)| {
            let by_this = of_own.as_ref() == Some(&path);
            OwnFile { path, use_of: OwnFileUse::Variables { by_this }, server: (!by_this).then_some(owner) }
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
            core.box_maker.own_files.starting.lock().insert(key.clone(), content.clone());
            core.box_maker.own_files.starts.fetch_add(1, Ordering::AcqRel);
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
            let (own_programs, programs) = (core.gateways_programs(), core.code_of_servers());
            let can_write_program = |server: &ServerDefinition, view: &View| {
                let mounts = OtherMounts::of(view.given.iter().map(|given| &given.path), &Disk);
                let writes = |path: &PathBuf| view.writes(path) || mounts.other_names(path, &Disk).iter().any(|name| view.writes(name));
                let approved = core.approved_code(server);
                let approved = approved.iter().filter(|kept| matches!(kept.owner, Owner::Server(_)));
                own_programs.iter().chain(approved).any(|kept| writes(&kept.path))
                    || others(server, &programs).any(|other| core.is_protected(other.server) && other.code.programs.iter().any(writes))
            };
            views.retain(|name, view| {
                let Ok(server) = core.registry.server(name) else { return false };
                let is_new = |file: &OwnFile| {
                    let place = place_of(&file.path);
                    let has = view.given.iter().any(|given| place.starts_with(&given.path) && place != given.path);
                    let is_covered = || view.covered.iter().any(|known| known.path == place);
                    has && file.use_of != OwnFileUse::Variables { by_this: true } && !is_covered() && file.is_hidden_at(&place, &Disk)
                };
                let files = core.own_files(&server);
                files.iter().any(is_new) || check_variables(&files, &view.given, &Disk).is_err() || can_write_program(&server, view)
            });
            Ok(views)
        })
        .await
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
