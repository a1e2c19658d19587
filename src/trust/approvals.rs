//! The approvals on disk: `approved-mcp.json` in the state folder, looked at again whenever one counts.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::digest::manifest_digest;
use super::document::{Approval, Approvals, Content, new_id, read, write};
use super::key::MachineKey;
use super::revocations::{ApprovalBasis, Revocations, revoked_meanwhile};
use super::standing::{NotApprovedReason, Standing, standing};
use super::subject::Subject;
use crate::catalog::Manifest;
use crate::error::{Error, Result};
use crate::files;

const FILE_NAME: &str = "approved-mcp.json";
const LOCK_NAME: &str = "approved-mcp.lock";
/// Files kept aside in one second, at most.
const KEPT_ASIDE: u32 = 100;
/// Limit of the file. The manifests of any number of servers take less.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Time that a writer waits for others. One that holds the lock for longer means harm, or was stopped.
const LOCK_TIME: Duration = Duration::from_secs(10);

type Servers = BTreeMap<String, Approval>;

/// Told when a file was kept aside, and why.
pub type IncidentListener = Arc<dyn Fn(String) + Send + Sync>;

/// Tells one state of the file from another: each is a new file, put in place as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, i64, i64);

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec())
    }
}

/// Content of the file when it was last read. Without a stamp it is read again the next time.
struct LastRead {
    stamp: Option<Stamp>,
    outcome: Result<Arc<Approvals>>,
}

/// The one owner of the approval file.
pub struct ApprovalStore {
    folder: PathBuf,
    key: MachineKey,
    /// Never held while a file is read: who asks for what is known does not wait for a disk.
    last: Mutex<LastRead>,
    revocations: Mutex<Revocations>,
    on_incident: IncidentListener,
    warning: Option<String>,
}

impl ApprovalStore {
    /// Opens the store, creating its folder with mode 0700 and this machine's key. A folder of another user, or into which others may
    /// write, is refused; one into which they may only look is closed to them.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the folder or the key cannot be created, or not be trusted.
    pub fn open(folder: &Path, on_incident: IncidentListener) -> Result<Self> {
        let failed = |error: io::Error| {
            let problem = format!("the folder cannot be used: {error}; or choose another stateDir");
            Error::ApprovalStore { path: folder.join(FILE_NAME), problem }
        };
        let files::PrivateFolder { path: folder, was_open } = files::private_folder(folder).map_err(failed)?;
        let warning = was_open.map(|mode| {
            format!("others could look into the state folder {} (mode {mode:o}): it has mode 700 from now on", folder.display())
        });
        let key = MachineKey::open(&folder)?;
        let last = Mutex::new(LastRead { stamp: None, outcome: Ok(Arc::default()) });
        Ok(Self { folder, key, last, revocations: Mutex::default(), on_incident, warning })
    }

    /// Warning about a state folder that others could look into, and that was closed to them when the store was opened.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Key of the digests of literal values.
    #[must_use]
    pub fn key(&self) -> &MachineKey {
        &self.key
    }

    /// Looks up how far the approval on disk holds for this subject, now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be read: nothing is approved then.
    pub fn standing(&self, subject: &Subject) -> Result<Standing> {
        self.standing_of(&subject.server, |_| subject)
    }

    /// The same, of a subject that is made only where there is an approval: for a server without one, nothing that its entry names is
    /// looked at.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn standing_of<S: std::borrow::Borrow<Subject>>(&self, server: &str, subject: impl FnOnce(&Approval) -> S) -> Result<Standing> {
        let approvals = self.read()?;
        Ok(match self.counting(&approvals, server) {
            Some(approval) => standing(Some(approval), subject(approval).borrow(), SystemTime::now()),
            None => Standing::Unapproved(NotApprovedReason::Never),
        })
    }

    /// Tells how far the approval holds by the last reading of the file. Reads nothing and waits for nothing.
    ///
    /// # Errors
    /// That of the last reading.
    pub fn known_standing(&self, server: &str, subject: Option<&Subject>) -> Result<Standing> {
        let approvals = self.last().outcome.clone()?;
        Ok(match (self.counting(&approvals, server), subject) {
            (Some(approval), Some(subject)) => standing(Some(approval), subject, SystemTime::now()),
            _ => Standing::Unapproved(NotApprovedReason::Never),
        })
    }

    /// The approval of both stages, where it holds for this subject, now.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn full_approval_of(&self, server: &str, subject: impl FnOnce(&Approval) -> Subject) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        let Some(approval) = self.counting(&approvals, server) else { return Ok(None) };
        let holds = matches!(standing(Some(approval), &subject(approval), SystemTime::now()), Standing::Full(_));
        Ok(holds.then(|| approval.clone()))
    }

    /// The approval of a server, even if it does not hold any more.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn approval(&self, server: &str) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, server).cloned())
    }

    /// The state of a server's approval at the moment when somebody says yes, before anything is waited for. The yes counts only if no
    /// revocation comes between this moment and its writing.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn basis(&self, server: &str) -> Result<ApprovalBasis> {
        // Counted before the file is read: a revocation during the reading came between as well.
        let revocations = self.revocations().count(server);
        let approvals = self.read()?;
        let first_id = self.counting(&approvals, server).map(|approval| approval.lineage().to_owned());
        Ok(ApprovalBasis { first_id, revocations, recorded: approvals.revocations_of(server) })
    }

    /// Approves the command as it is configured. An approval of the tools under the same command is kept. Blocks. Returns the basis of a yes
    /// to the tools, which holds until this approval is revoked.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED` where a revocation came after `basis` was taken. `ERR_APPROVAL_STORE` where the file cannot be written, or others
    /// hold its lock for too long.
    pub fn approve_command(&self, subject: &Subject, valid_for: Option<Duration>, basis: &ApprovalBasis) -> Result<ApprovalBasis> {
        let fresh = approval(subject, valid_for);
        let mut first_id = fresh.id.clone();
        self.approve(&subject.server, basis, |servers| {
            let known = servers.remove(&subject.server);
            if let Some(known) = &known {
                known.lineage().clone_into(&mut first_id);
            }
            let fresh = Approval { first_id: first_id.clone(), ..fresh };
            let approval = match known.filter(|known| known.command_digest == subject.digest) {
                Some(known) => Approval { manifest: known.manifest, manifest_digest: known.manifest_digest, ..fresh },
                None => fresh,
            };
            servers.insert(subject.server.clone(), approval);
            Ok(())
        })?;
        Ok(ApprovalBasis { first_id: Some(first_id), ..basis.clone() })
    }

    /// Approves the tools under an approval of the command that is there already. Blocks.
    ///
    /// # Errors
    /// As [`Self::approve_command`]; `ERR_NOT_APPROVED` as well where there is no approval of the command, and `ERR_DIGEST_CHANGED` where it
    /// is of another command.
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
            // The first stage decides which program it is, and its end stays where this yes has none.
            let fresh = approval(subject, valid_for);
            *known = Approval {
                executable: known.executable.take(),
                first_id: known.lineage().to_owned(),
                manifest: Some(manifest),
                manifest_digest: Some(digest),
                expires_at: fresh.expires_at.or(known.expires_at),
                ..fresh
            };
            Ok(())
        })
    }

    /// Writes a yes, if no revocation came since its basis was taken. That is looked at under the lock: whoever revoked before has written.
    fn approve(&self, server: &str, basis: &ApprovalBasis, change: impl FnOnce(&mut Servers) -> Result<()>) -> Result<()> {
        self.change(|approvals| {
            if self.revocations().is_withheld(server) {
                // An approval whose revocation could not be recorded is not carried over.
                approvals.servers.remove(server);
            }
            let came_between = self.revocations().count(server) != basis.revocations;
            if came_between || !basis.is_of(server, approvals) {
                return Err(revoked_meanwhile(server));
            }
            change(&mut approvals.servers)
        })?;
        // A revocation that came during the writing keeps its mark, and removes what was written.
        if self.revocations().release(server, basis.revocations) { Ok(()) } else { Err(revoked_meanwhile(server)) }
    }

    /// Takes an approval back here, both stages: at once, without the disk, until the server is approved again or the store is dropped.
    pub fn withhold(&self, server: &str) {
        self.revocations().withhold(server);
    }

    /// Takes an approval back for every process. Where that cannot be recorded, it holds here all the same. Blocks.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be written, or others hold its lock for too long.
    pub fn revoke(&self, server: &str) -> Result<()> {
        let count = self.revocations().withhold(server);
        let recorded = self.change(|approvals| {
            approvals.revoke(server);
            Ok(())
        });
        match recorded {
            Ok(()) => {
                // It is in no file any more: an approval that another process writes from now on counts.
                self.revocations().recorded(server, count);
                Ok(())
            }
            Err(Error::ApprovalStore { path, problem }) => {
                let way_out = format!(
                    "the revocation of server \"{server}\" could not be recorded: {problem}. It holds in this gateway until that is closed; \
                     other processes may still start the server. Put right what keeps the file from being written, then revoke again; or \
                     remove the file, and every server needs approval again"
                );
                Err(Error::ApprovalStore { path, problem: way_out })
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

    /// The approvals, and the stamp of the file that they were read from.
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
            Content::Sound(approvals) => Ok((Some(stamp), Arc::new(approvals))),
            Content::Damaged(_) => {
                // Nothing is approved, moved or not. Who holds the lock does what is to be done, or is not waited for here.
                if let Ok(_lock) = self.lock(Duration::ZERO) {
                    self.keep_damaged_aside()?;
                }
                Ok((None, Arc::default()))
            }
            Content::Foreign(problem) => Err(self.foreign(&problem)),
        }
    }

    /// What the file holds, and its stamp then; `None` where there is none.
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

    /// Moves a damaged file of ours out of the way, so that it can be looked at and approves nothing. Under the lock.
    fn keep_damaged_aside(&self) -> Result<()> {
        // Another process may have done so, or written a new one.
        let Some((_, bytes)) = self.bytes()? else { return Ok(()) };
        let Content::Damaged(problem) = read(&bytes, &self.key) else { return Ok(()) };
        let (path, seconds) = (self.path(), seconds(SystemTime::now()));
        for number in 0..KEPT_ASIDE {
            let name = format!("approved-mcp.damaged-{seconds}-{number}.json");
            // A hard link fails where the name is taken: nothing that was kept is written over.
            match fs::hard_link(&path, self.folder.join(&name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => {
                    linked.and_then(|()| fs::remove_file(&path)).map_err(|error| self.failed(&error))?;
                    let message =
                        format!("the approvals were damaged ({problem}): they are kept as {name}, and every server needs approval again");
                    tracing::warn!("{message}");
                    (self.on_incident)(message);
                    return Ok(());
                }
            }
        }
        Err(self.problem(&format!("it is damaged ({problem}) and cannot be kept aside: move it away")))
    }

    fn lock(&self, time: Duration) -> io::Result<File> {
        files::lock_within(&self.folder.join(LOCK_NAME), time)
    }

    /// Reads, changes and writes, and knows from then on what the file holds, changed or not.
    fn change(&self, change: impl FnOnce(&mut Approvals) -> Result<()>) -> Result<()> {
        let changed = self.change_file(change);
        let known = self.read().map(drop);
        changed.and(known)
    }

    /// Under a lock, so that two processes at once lose nothing.
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
        change(&mut approvals)?;
        let bytes = write(approvals, &self.key).map_err(|problem| self.problem(&problem))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(self.problem(&format!("it would have {} bytes, more than the {MAX_FILE_BYTES} that are read", bytes.len())));
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
        self.problem(&format!("{problem}. It is left as it is; move it away, or choose another stateDir"))
    }

    fn failed(&self, error: &io::Error) -> Error {
        self.problem(&error.to_string())
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.path(), problem: problem.to_owned() }
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
        first_id: id.clone(),
        id,
        approved_at: seconds(now),
        expires_at: valid_for.map(|time| seconds(now).saturating_add(time.as_secs())),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
