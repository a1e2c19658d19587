//! Stores the approvals on disk in `approved-mcp.json` in the state folder. The file is checked again whenever an approval is used.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::approval_status::{ApprovalStatus, NotApprovedReason, approval_status};
use super::digest::manifest_digest;
use super::document::{Approval, Approvals, Content, new_id, read, write};
use super::revocations::{ApprovalBasis, Revocations, revoked_meanwhile};
use super::subject::Subject;
use crate::catalog::Manifest;
use crate::error::{Error, Result};
use crate::files;
use crate::store::MachineKey;

const FILE_NAME: &str = "approved-mcp.json";
const LOCK_NAME: &str = "approved-mcp.lock";
/// Maximum number of damaged files that are kept within one second.
const KEPT_ASIDE: u32 = 100;
/// Maximum size of the file. The manifests of any number of servers take less.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Time that a writer waits for other writers. A process that holds the lock for longer is hostile or was stopped.
const LOCK_TIME: Duration = Duration::from_secs(10);

type Servers = BTreeMap<String, Approval>;

/// Called when a damaged file was moved aside, with the reason.
pub type IncidentListener = Arc<dyn Fn(String) + Send + Sync>;

/// Identifies one state of the file. Each change puts a new file in place, so device, inode and times differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, i64, i64);

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec())
    }
}

/// The result of the last reading of the file. Without a stamp, the file is read again the next time.
struct LastRead {
    stamp: Option<Stamp>,
    outcome: Result<Arc<Approvals>>,
}

/// The only part of the program that reads and writes the approval file.
pub struct ApprovalStore {
    folder: PathBuf,
    key: MachineKey,
    /// Not locked while a file is read, so that callers who need only the last result do not wait for a disk.
    last: Mutex<LastRead>,
    revocations: Mutex<Revocations>,
    on_incident: IncidentListener,
}

impl ApprovalStore {
    /// Opens the store. Creates its folder with mode 0700 and this machine's key if they do not exist. Fails if the folder belongs to another user,
    /// or if other users may write to it. Removes the permissions of other users who may only read it.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the folder or the key cannot be created or trusted.
    pub fn open(folder: &Path, on_incident: IncidentListener) -> Result<Self> {
        let failed = |error: io::Error| {
            let problem = format!("the folder cannot be used: {error}. Or choose another stateDir");
            Error::ApprovalStore { path: folder.join(FILE_NAME).into(), problem: problem.into() }
        };
        let folder = files::private_folder(folder).map_err(failed)?.path;
        let key = MachineKey::open(&folder)?;
        let last = Mutex::new(LastRead { stamp: None, outcome: Ok(Arc::default()) });
        Ok(Self { folder, key, last, revocations: Mutex::default(), on_incident })
    }

    /// Returns the key for the digests of literal values.
    #[must_use]
    pub fn key(&self) -> &MachineKey {
        &self.key
    }

    /// Reads the file and returns the extent to which the approval of this subject is valid now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the file cannot be read. Then nothing is approved.
    pub fn approval_status(&self, subject: &Subject) -> Result<ApprovalStatus> {
        self.approval_status_of(&subject.server, |_| subject)
    }

    /// Returns the same as [`Self::approval_status`]. `subject` is called only if the server has an approval. So for a server without an approval, no file
    /// that its entry names is read.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn approval_status_of<S: std::borrow::Borrow<Subject>>(
        &self,
        server: &str,
        subject: impl FnOnce(&Approval) -> S,
    ) -> Result<ApprovalStatus> {
        let approvals = self.read()?;
        Ok(match self.counting(&approvals, server) {
            Some(approval) => approval_status(Some(approval), subject(approval).borrow(), SystemTime::now()),
            None => ApprovalStatus::Unapproved(NotApprovedReason::Never),
        })
    }

    /// Returns the extent to which the approval is valid according to the last reading of the file. Does not read and does not wait.
    ///
    /// # Errors
    /// The error of the last reading.
    pub fn cached_approval_status(&self, server: &str, subject: Option<&Subject>) -> Result<ApprovalStatus> {
        let approvals = self.last().outcome.clone()?;
        Ok(match (self.counting(&approvals, server), subject) {
            (Some(approval), Some(subject)) => approval_status(Some(approval), subject, SystemTime::now()),
            _ => ApprovalStatus::Unapproved(NotApprovedReason::Never),
        })
    }

    /// Returns the approval if it covers both stages and is valid for this subject now.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn full_approval_of(&self, server: &str, subject: impl FnOnce(&Approval) -> Subject) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        let Some(approval) = self.counting(&approvals, server) else { return Ok(None) };
        let holds = matches!(approval_status(Some(approval), &subject(approval), SystemTime::now()), ApprovalStatus::Full(_));
        Ok(holds.then(|| approval.clone()))
    }

    /// Returns the approval of a server, even if it is no longer valid.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn approval(&self, server: &str) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, server).cloned())
    }

    /// Returns the state of a server's approval at the moment when somebody approves, before the program waits for anything. The new approval is
    /// written only if no revocation comes between this moment and the writing.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn basis(&self, server: &str) -> Result<ApprovalBasis> {
        // The count is taken before the file is read, so that a revocation during the reading is noticed too.
        let revocations = self.revocations().count(server);
        let approvals = self.read()?;
        let first_id = self.counting(&approvals, server).map(|approval| approval.first_approval_id().to_owned());
        Ok(ApprovalBasis { first_id, revocations, recorded: approvals.revocations_of(server) })
    }

    /// Approves the command as it is configured. Keeps an existing approval of the tools under the same command, unless it has expired or would last
    /// longer than it was given for. Blocks the thread. Returns the basis for an approval of the tools, which is valid until this approval is revoked.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED` if a revocation came after `basis` was taken. `ERR_APPROVAL_STORE` if the file cannot be written, or if other processes
    /// hold its lock for too long.
    pub fn approve_command(&self, subject: &Subject, valid_for: Option<Duration>, basis: &ApprovalBasis) -> Result<ApprovalBasis> {
        let fresh = approval(subject, valid_for);
        let mut first_id = fresh.id.clone();
        self.approve(&subject.server, basis, |servers| {
            let mut known = servers.remove(&subject.server);
            let mut fresh = fresh;
            if let Some(known) = &mut known {
                known.first_approval_id().clone_into(&mut first_id);
                fresh.direct_names = std::mem::take(&mut known.direct_names);
            }
            let fresh = Approval { first_id: first_id.clone(), ..fresh };
            let approval = match known.filter(|known| known.command_digest == subject.digest && outlasts(known, &fresh)) {
                Some(known) => Approval { manifest: known.manifest, manifest_digest: known.manifest_digest, ..fresh },
                None => fresh,
            };
            servers.insert(subject.server.clone(), approval);
            Ok(())
        })?;
        Ok(ApprovalBasis { first_id: Some(first_id), ..basis.clone() })
    }

    /// Approves the tools under an existing approval of the command. Blocks the thread.
    ///
    /// # Errors
    /// The same as for [`Self::approve_command`]. Also `ERR_NOT_APPROVED` if the command is not approved, and `ERR_DIGEST_CHANGED` if another
    /// command is approved.
    pub fn approve_manifest(
        &self,
        subject: &Subject,
        manifest: Arc<Manifest>,
        valid_for: Option<Duration>,
        basis: &ApprovalBasis,
    ) -> Result<()> {
        let digest = manifest_digest(&manifest);
        let server = &subject.server;
        self.approve(server, basis, |servers| {
            let Some(known) = servers.get_mut(server) else { return Err(revoked_meanwhile(server)) };
            if known.command_digest != subject.digest {
                return Err(Error::DigestChanged { server: server.clone() });
            }
            // The approval of the command determines the program. Its expiry stays if the approval of the tools has no expiry.
            let fresh = approval(subject, valid_for);
            *known = Approval {
                executable: known.executable.take(),
                direct_names: std::mem::take(&mut known.direct_names),
                first_id: known.first_approval_id().to_owned(),
                manifest: Some(manifest),
                manifest_digest: Some(digest),
                expires_at: fresh.expires_at.or(known.expires_at),
                ..fresh
            };
            Ok(())
        })
    }

    /// Writes an approval if no revocation came since its basis was taken. The check runs under the lock, so that earlier revocations are already
    /// written.
    fn approve(&self, server: &str, basis: &ApprovalBasis, change: impl FnOnce(&mut Servers) -> Result<()>) -> Result<()> {
        self.change(|approvals| {
            if self.revocations().is_withheld(server) {
                // An approval whose revocation could not be recorded is removed, and the new one does not inherit its tools.
                approvals.servers.remove(server);
            }
            let came_between = self.revocations().count(server) != basis.revocations;
            if came_between || !basis.is_of(server, approvals) {
                return Err(revoked_meanwhile(server));
            }
            change(&mut approvals.servers)
        })?;
        // If a revocation came during the writing, the server stays withheld, and the revocation removes the new approval.
        if self.revocations().release(server, basis.revocations) { Ok(()) } else { Err(revoked_meanwhile(server)) }
    }

    /// Revokes both stages of an approval in this process, at once and without the disk. The effect lasts until the server is approved again or the
    /// store is dropped.
    pub fn withhold(&self, server: &str) {
        self.revocations().withhold(server);
    }

    /// Revokes an approval for every process. If the revocation cannot be recorded, it is still effective in this process. Blocks the thread.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the file cannot be written, or if other processes hold its lock for too long.
    pub fn revoke(&self, server: &str) -> Result<()> {
        let count = self.revocations().withhold(server);
        let recorded = self.change(|approvals| {
            approvals.revoke(server);
            Ok(())
        });
        match recorded {
            Ok(()) => {
                // The approval is no longer in the file. An approval that another process writes later is valid.
                self.revocations().recorded(server, count);
                Ok(())
            }
            Err(Error::ApprovalStore { path, problem }) => {
                let problem = problem.after(&format!("the revocation of server \"{server}\" could not be recorded: ")).before(
                    ". It is valid in this gateway until the gateway is closed, but other processes may still start the server. Make the file and \
                     its folder writable, then revoke again. Or remove the file, then every server needs approval again",
                );
                Err(Error::ApprovalStore { path, problem })
            }
            Err(other) => Err(other),
        }
    }

    fn counting<'a>(&self, approvals: &'a Approvals, server: &str) -> Option<&'a Approval> {
        approvals.get(server).filter(|_| !self.revocations().is_withheld(server))
    }

    fn read(&self) -> Result<Arc<Approvals>> {
        match self.read_file() {
            Ok((stamp, approvals)) => {
                *self.last() = LastRead { stamp, outcome: Ok(Arc::clone(&approvals)) };
                Ok(approvals)
            }
            Err(error) => {
                *self.last() = LastRead { stamp: None, outcome: Err(error.clone()) };
                Err(error)
            }
        }
    }

    /// Returns the approvals, and the stamp of the file from which they were read.
    fn read_file(&self) -> Result<(Option<Stamp>, Arc<Approvals>)> {
        let path = self.path();
        let stamp = match fs::symlink_metadata(&path) {
            Ok(metadata) => Stamp::of(&metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, Arc::default())),
            Err(error) => return Err(self.failed(&error)),
        };
        if let LastRead { stamp: Some(known), outcome: Ok(approvals) } = &*self.last()
            && *known == stamp
        {
            return Ok((Some(stamp), Arc::clone(approvals)));
        }
        let Some((stamp, bytes)) = self.bytes()? else { return Ok((None, Arc::default())) };
        match read(&bytes, &self.key) {
            Content::Sound(mut approvals) => {
                approvals.name_tools();
                Ok((Some(stamp), Arc::new(approvals)))
            }
            Content::Damaged(_) => {
                // A damaged file approves nothing, whether it was moved or not. If another process holds the lock, that process moves the file, and
                // this one does not wait.
                if let Ok(_lock) = self.lock(Duration::ZERO) {
                    self.keep_damaged_aside()?;
                }
                Ok((None, Arc::default()))
            }
            Content::Foreign(problem) => Err(self.foreign(&problem)),
        }
    }

    /// Returns the content of the file and its stamp. `None` if there is no file.
    fn bytes(&self) -> Result<Option<(Stamp, Vec<u8>)>> {
        let read = |file: File| {
            let stamp = Stamp::of(&file.metadata()?);
            Ok((stamp, files::read_open(&file, MAX_FILE_BYTES)?))
        };
        match files::open_own(&self.path()).and_then(read) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Moves a damaged approval file away, so that a person can examine it and it approves nothing. The caller holds the lock.
    fn keep_damaged_aside(&self) -> Result<()> {
        // Another process may have moved the file already, or written a new one.
        let Some((_, bytes)) = self.bytes()? else { return Ok(()) };
        let Content::Damaged(problem) = read(&bytes, &self.key) else { return Ok(()) };
        let (path, seconds) = (self.path(), seconds(SystemTime::now()));
        for number in 0..KEPT_ASIDE {
            let name = format!("approved-mcp.damaged-{seconds}-{number}.json");
            // A hard link fails if the name is taken, so no kept file is overwritten.
            match fs::hard_link(&path, self.folder.join(&name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => {
                    linked.and_then(|()| fs::remove_file(&path)).map_err(|error| self.failed(&error))?;
                    let message =
                        format!("the approval file was damaged ({problem}); it is kept as {name}, and every server needs approval again");
                    tracing::warn!("{message}");
                    (self.on_incident)(message);
                    return Ok(());
                }
            }
        }
        Err(self.problem(&format!("the file is damaged ({problem}) and cannot be renamed; move it away")))
    }

    fn lock(&self, time: Duration) -> io::Result<File> {
        files::lock_within(&self.folder.join(LOCK_NAME), time)
    }

    /// Reads, changes and writes the file, and then records its current content, even if the change failed.
    fn change(&self, change: impl FnOnce(&mut Approvals) -> Result<()>) -> Result<()> {
        let changed = self.change_file(change);
        let known = self.read().map(drop);
        changed.and(known)
    }

    /// Changes the file under a lock, so that two processes do not lose each other's changes.
    fn change_file(&self, change: impl FnOnce(&mut Approvals) -> Result<()>) -> Result<()> {
        let _lock = self.lock(LOCK_TIME).map_err(|error| self.failed(&error))?;
        let path = self.path();
        let mut approvals = match self.bytes()?.map(|(_, bytes)| read(&bytes, &self.key)) {
            None => Approvals::default(),
            Some(Content::Sound(approvals)) => approvals,
            Some(Content::Damaged(_)) => {
                self.keep_damaged_aside()?;
                Approvals::default()
            }
            Some(Content::Foreign(problem)) => return Err(self.foreign(&problem)),
        };
        // Tools that are approved already are named first.
        approvals.name_tools();
        change(&mut approvals)?;
        approvals.name_tools();
        let bytes = write(approvals, &self.key).map_err(|problem| self.problem(&problem))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(self.problem(&format!("the file would have {} bytes, and the limit is {MAX_FILE_BYTES}", bytes.len())));
        }
        files::replace(&path, &bytes, files::Writing::Durable).map_err(|error| self.failed(&error))
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    fn last(&self) -> MutexGuard<'_, LastRead> {
        self.last.lock()
    }

    fn revocations(&self) -> MutexGuard<'_, Revocations> {
        self.revocations.lock()
    }

    fn foreign(&self, problem: &str) -> Error {
        self.problem(&format!("{problem}. The file was not changed; move it away, or choose another stateDir"))
    }

    fn failed(&self, error: &io::Error) -> Error {
        self.problem(&error.to_string())
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.path().into(), problem: problem.into() }
    }
}

impl fmt::Debug for ApprovalStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApprovalStore").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn approval(subject: &Subject, valid_for: Option<Duration>) -> Approval {
    let (now, id) = (SystemTime::now(), new_id());
    Approval {
        command_digest: subject.digest.clone(),
        executable: subject.executable.clone(),
        manifest: None,
        manifest_digest: None,
        direct_names: BTreeMap::new(),
        first_id: id.clone(),
        id,
        approved_at: seconds(now),
        expires_at: valid_for.map(|time| seconds(now).saturating_add(time.as_secs())),
    }
}

/// Returns whether an approval is valid now, and until the end of a new one.
fn outlasts(known: &Approval, fresh: &Approval) -> bool {
    let Some(end) = known.expires_at else { return true };
    !known.is_expired(SystemTime::now()) && fresh.expires_at.is_some_and(|fresh| fresh <= end)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

mod direct_names;
#[cfg(test)]
mod tests;
