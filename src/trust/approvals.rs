//! Keeps the approvals in the store of the state folder. Each use of an approval checks it again. An approval and the server's count of
//! revocations change in one transaction.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::earlier_file::EarlierFile;
use self::rows::{parsed, write_changed};
use super::approval_status::{ApprovalStatus, NotApprovedReason, approval_status};
use super::digest::manifest_digest;
use super::document::{Approval, Approvals, NamedFiles, new_id};
use super::revocations::{ApprovalBasis, Revocations, revoked_meanwhile};
use super::subject::Subject;
use crate::catalog::Manifest;
use crate::config::server_of_key;
use crate::error::{Error, Result};
use crate::store::{Kind, Rows, Store};

/// The kinds of rows that contain approvals. Both kinds are read at one moment, and changed in one transaction.
const KINDS: [Kind; 2] = [Kind::Approval, Kind::Revocation];

type Servers = BTreeMap<String, Arc<Approval>>;

/// A callback that is called with the reason when approvals turn out to be damaged.
pub type IncidentListener = Arc<dyn Fn(String) + Send + Sync>;

/// The approvals as they were last read.
struct LastRead {
    /// The rows from which the approvals were read.
    rows: [Arc<Rows>; 2],
    outcome: Result<Arc<Approvals>>,
}

/// The approvals of all servers at one moment.
#[derive(Debug, Clone)]
pub struct ApprovalSnapshot(Arc<Approvals>);

impl ApprovalSnapshot {
    /// Returns whether a person has approved the command of the server with this key. The approval may have ended since then.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }

    /// Returns whether the server with this key has an approval that ends at some time.
    #[must_use]
    pub fn expires(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|approval| approval.expires_at.is_some())
    }

    /// Returns the earliest time after `now` at which an approval ends. `None` if no approval ends after `now`.
    #[must_use]
    pub fn next_end(&self, now: SystemTime) -> Option<SystemTime> {
        let ends = self.0.servers.values().filter_map(|approval| approval.expires_at);
        ends.map(|end| UNIX_EPOCH + Duration::from_secs(end)).filter(|end| *end > now).min()
    }

    /// Returns the files that the entries of all approved commands named at their approval, each with the key of its server.
    pub fn named_files(&self, now: SystemTime) -> impl Iterator<Item = (&str, &NamedFiles)> {
        self.valid(now).map(|(key, approval)| (key, &approval.named))
    }

    /// Returns all approvals that are valid, each with the key of its server.
    pub(crate) fn valid(&self, now: SystemTime) -> impl Iterator<Item = (&str, &Approval)> {
        let valid = self.0.servers.iter().filter(move |(_, approval)| !approval.is_expired(now));
        valid.map(|(key, approval)| (key.as_str(), &**approval))
    }

    /// Returns whether two snapshots contain the very same approvals. Snapshots of a damaged store are read anew each time, and contain none.
    #[must_use]
    pub fn has_the_approvals_of(&self, other: &Self) -> bool {
        let has = |(key, approval): (&String, &Arc<Approval>)| other.0.get(key).is_some_and(|other| Arc::ptr_eq(approval, other));
        self.is(other) || (self.0.servers.len() == other.0.servers.len() && self.0.servers.iter().all(has))
    }

    /// Returns whether this is the very same snapshot, so that no approval has changed in between.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The only part of the program that reads and writes approvals. Each server is identified by its key
/// ([`ServerDefinition::key`](crate::config::ServerDefinition::key)), so that two servers with one name but different sources never share
/// an approval.
pub struct ApprovalStore {
    store: Arc<Store>,
    /// The file in which earlier versions kept the approvals. Its content is moved into the store.
    earlier: EarlierFile,
    /// The approvals as they were last read. The lock is not held while rows are read, so that callers who need only the last result do not
    /// wait for a disk.
    last: Mutex<LastRead>,
    revocations: Mutex<Revocations>,
}

impl ApprovalStore {
    /// Opens the approvals of a store. Moves approvals of earlier versions from `approved-mcp.json` into the store. If that file cannot be
    /// used, nothing is approved. A damaged file is kept aside and reported. For any other unusable file, each use fails until the file is
    /// moved away.
    #[must_use]
    pub fn open(store: Arc<Store>, on_incident: IncidentListener) -> Self {
        let last = Mutex::new(LastRead { rows: Default::default(), outcome: Ok(Arc::default()) });
        let earlier = EarlierFile::new(store.folder(), on_incident);
        let approvals = Self { store, earlier, last, revocations: Mutex::default() };
        // A problem is ignored here: it is reported to each caller that needs an approval.
        let _ = approvals.read();
        approvals
    }

    /// Reads the approvals, and returns which stages of this subject are approved now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the approvals cannot be read. Then nothing is approved.
    pub fn approval_status(&self, subject: &Subject) -> Result<ApprovalStatus> {
        self.approval_status_of(&subject.key, |_| subject)
    }

    /// Reads the approvals, and returns which stages of a server are approved now. `subject` is called only if the server has an approval.
    /// So if a server has no approval, the files that its entry names are not read.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn approval_status_of<S: std::borrow::Borrow<Subject>>(
        &self,
        key: &str,
        subject: impl FnOnce(&Approval) -> S,
    ) -> Result<ApprovalStatus> {
        Ok(self.status_in(&self.snapshot()?, key, subject))
    }

    /// Reads the approvals of all servers. One snapshot can be used for any number of servers, so that a list of servers needs only one
    /// reading.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn snapshot(&self) -> Result<ApprovalSnapshot> {
        self.read().map(ApprovalSnapshot)
    }

    /// Returns the keys of the servers that have no approval in this process, whatever the store contains: their approval is being revoked, or
    /// the revocation could not be recorded.
    #[must_use]
    pub fn withheld(&self) -> Vec<String> {
        self.revocations().withheld().map(str::to_owned).collect()
    }

    /// Returns the approvals as they were last read from the store. Neither reads nor waits.
    ///
    /// # Errors
    /// The error of the last reading.
    pub fn last_snapshot(&self) -> Result<ApprovalSnapshot> {
        self.last().outcome.clone().map(ApprovalSnapshot)
    }

    /// Returns the degree to which the approval in a snapshot is valid now. `subject` is called only if the server has an approval. An
    /// approval that this process has revoked since the snapshot is not valid.
    pub fn status_in<S: std::borrow::Borrow<Subject>>(
        &self,
        snapshot: &ApprovalSnapshot,
        key: &str,
        subject: impl FnOnce(&Approval) -> S,
    ) -> ApprovalStatus {
        match self.counting(&snapshot.0, key) {
            Some(approval) => approval_status(Some(approval), subject(approval).borrow(), SystemTime::now()),
            None => ApprovalStatus::Unapproved(NotApprovedReason::Never),
        }
    }

    /// Returns the degree to which the approval is valid, from the approvals as they were last read. Neither reads nor waits.
    ///
    /// # Errors
    /// The error of the last reading.
    pub fn cached_approval_status(&self, key: &str, subject: Option<&Subject>) -> Result<ApprovalStatus> {
        let snapshot = self.last_snapshot()?;
        Ok(subject.map_or(ApprovalStatus::Unapproved(NotApprovedReason::Never), |subject| self.status_in(&snapshot, key, |_| subject)))
    }

    /// Returns the approval if it covers both stages and is currently valid for this subject.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn full_approval_of(&self, key: &str, subject: impl FnOnce(&Approval) -> Subject) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        let Some(approval) = self.counting(&approvals, key) else { return Ok(None) };
        let holds = matches!(approval_status(Some(approval), &subject(approval), SystemTime::now()), ApprovalStatus::Full(_));
        Ok(holds.then(|| Approval::clone(approval)))
    }

    /// Returns the approval of a server, even if it is no longer valid.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn approval(&self, key: &str) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, key).map(|approval| Approval::clone(approval)))
    }

    /// Returns the id of a server's approval ([`Approval::first_approval_id`]), even if it is no longer valid.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn first_approval_id(&self, key: &str) -> Result<Option<String>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, key).map(|approval| approval.first_approval_id().to_owned()))
    }

    /// Returns the ids of all approvals ([`Approval::first_approval_id`]), even of those that are no longer valid, by the keys of the
    /// servers.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn first_approval_ids(&self) -> Result<BTreeMap<String, String>> {
        let approvals = self.read()?;
        let counting = approvals.servers.keys().filter_map(|key| Some((key, self.counting(&approvals, key)?)));
        Ok(counting.map(|(key, approval)| (key.clone(), approval.first_approval_id().to_owned())).collect())
    }

    /// Returns the state of a server's approval. Call it at the moment when a person approves, before the program waits for anything. The
    /// new approval is written only if there was no revocation since this moment.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn basis(&self, key: &str) -> Result<ApprovalBasis> {
        // The count is taken before the approvals are read. So a revocation during the reading is detected too.
        let revocations = self.revocations().count(key);
        let approvals = self.read()?;
        let first_id = self.counting(&approvals, key).map(|approval| approval.first_approval_id().to_owned());
        Ok(ApprovalBasis { first_id, revocations, recorded: approvals.revocations_of(key), others: None })
    }

    /// Returns a basis for an approval whose request depends on which other servers are approved now. The approval is written only if these
    /// approvals are still the same.
    ///
    /// # Errors
    /// The same as for [`Self::approval_status`].
    pub fn basis_with_others(&self, key: &str, basis: &ApprovalBasis) -> Result<ApprovalBasis> {
        Ok(ApprovalBasis { others: Some(self.read()?.ids_of_others(key)), ..basis.clone() })
    }

    /// Approves the command as it is configured. Keeps an existing approval of the tools if it has the same command, has not expired, and
    /// would not become valid for longer than it was given for. Blocks the thread. Returns the [`ApprovalBasis`] for an approval of the
    /// tools, which is valid until this approval is revoked.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED` if a revocation came after `basis` was taken. `ERR_DIGEST_CHANGED` if another server was approved after
    /// [`Self::basis_with_others`]. `ERR_APPROVAL_STORE` if the store cannot be written, or if other processes
    /// hold its lock for too long.
    pub fn approve_command(&self, subject: &Subject, valid_for: Option<Duration>, basis: &ApprovalBasis) -> Result<ApprovalBasis> {
        let fresh = approval(subject, valid_for);
        let mut first_id = fresh.id.clone();
        self.approve(subject, basis, |servers| {
            let mut known = servers.remove(&subject.key).map(Arc::unwrap_or_clone);
            let mut fresh = fresh;
            if let Some(known) = &mut known {
                known.first_approval_id().clone_into(&mut first_id);
                fresh.direct_names = std::mem::take(&mut known.direct_names);
                fresh.prompt_names = std::mem::take(&mut known.prompt_names);
            }
            let fresh = Approval { first_id: first_id.clone(), ..fresh };
            let approval = match known.filter(|known| known.command_digest == subject.digest && outlasts(known, &fresh)) {
                Some(known) => Approval { manifest: known.manifest, manifest_digest: known.manifest_digest, ..fresh },
                None => fresh,
            };
            servers.insert(subject.key.clone(), Arc::new(approval));
            Ok(())
        })?;
        Ok(ApprovalBasis { first_id: Some(first_id), others: None, ..basis.clone() })
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
        self.approve(subject, basis, |servers| {
            let Some(known) = servers.get_mut(&subject.key).map(Arc::make_mut) else { return Err(revoked_meanwhile(&subject.server)) };
            if known.command_digest != subject.digest {
                return Err(Error::DigestChanged { server: subject.server.clone() });
            }
            // The approval of the command determines the program and its folders. It never becomes valid for longer by an approval of the
            // tools: of two ends, the earlier one counts.
            let fresh = approval(subject, valid_for);
            *known = Approval {
                executable: known.executable.take(),
                places: std::mem::take(&mut known.places),
                named: std::mem::take(&mut known.named),
                makes: std::mem::take(&mut known.makes),
                writes: std::mem::take(&mut known.writes),
                direct_names: std::mem::take(&mut known.direct_names),
                prompt_names: std::mem::take(&mut known.prompt_names),
                first_id: known.first_approval_id().to_owned(),
                manifest: Some(manifest),
                manifest_digest: Some(digest),
                expires_at: [fresh.expires_at, known.expires_at].into_iter().flatten().min(),
                ..fresh
            };
            Ok(())
        })
    }

    /// Writes an approval, unless there was a revocation after `basis` was taken. `basis` is taken at the moment when the person approves.
    /// The check runs in the transaction, so that earlier revocations are already written.
    fn approve(&self, subject: &Subject, basis: &ApprovalBasis, change: impl FnOnce(&mut Servers) -> Result<()>) -> Result<()> {
        let Subject { server, key, .. } = subject;
        self.change(|approvals| {
            if self.revocations().is_withheld(key) {
                // An approval whose revocation could not be recorded is removed, and the new one does not inherit its tools.
                approvals.servers.remove(key);
            }
            let came_between = self.revocations().count(key) != basis.revocations;
            if came_between || !basis.is_of(key, approvals) {
                return Err(revoked_meanwhile(server));
            }
            if !basis.has_others(key, approvals) {
                return Err(Error::DigestChanged { server: server.clone() });
            }
            change(&mut approvals.servers)
        })?;
        // If a revocation began during the writing, the server stays withheld, and the revocation removes the new approval.
        if self.revocations().release(key, basis.revocations) { Ok(()) } else { Err(revoked_meanwhile(server)) }
    }

    /// Revokes both stages of an approval in this process. Takes effect at once, without access to the disk. The effect lasts until the
    /// server is approved again or the store is dropped.
    pub fn withhold(&self, key: &str) {
        self.revocations().withhold(key);
    }

    /// Revokes an approval for every process. If the revocation cannot be recorded, it is still effective in this process. Blocks the thread.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the store cannot be written, or if other processes hold its lock for too long.
    pub fn revoke(&self, key: &str) -> Result<()> {
        let count = self.revocations().withhold(key);
        let recorded = self.change(|approvals| {
            approvals.revoke(key);
            Ok(())
        });
        match recorded {
            Ok(()) => {
                // The approval is no longer in the store. An approval that another process writes later is valid.
                self.revocations().recorded(key, count);
                Ok(())
            }
            Err(Error::ApprovalStore { path, problem }) => {
                let problem = problem.after(&format!("the revocation of server \"{}\" could not be recorded: ", server_of_key(key))).before(
                    ". It is valid in this gateway until the gateway is closed, but other processes may still start the server. Make the store and \
                     its folder writable, then revoke again. Or move the store away, then every server needs approval again",
                );
                Err(Error::ApprovalStore { path, problem })
            }
            Err(other) => Err(other),
        }
    }

    fn counting<'a>(&self, approvals: &'a Approvals, key: &str) -> Option<&'a Arc<Approval>> {
        approvals.get(key).filter(|_| !self.revocations().is_withheld(key))
    }

    fn read(&self) -> Result<Arc<Approvals>> {
        match self.read_rows() {
            Ok((rows, approvals)) => {
                *self.last() = LastRead { rows, outcome: Ok(Arc::clone(&approvals)) };
                Ok(approvals)
            }
            Err(error) => {
                self.last().outcome = Err(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the approvals, and the rows from which they were read.
    fn read_rows(&self) -> Result<([Arc<Rows>; 2], Arc<Approvals>)> {
        self.earlier.move_into(self)?;
        let rows = self.store.rows_of(KINDS).map_err(as_approvals)?;
        let (known, outcome) = self.known();
        let is_same = known.iter().zip(&rows).all(|(known, now)| Arc::ptr_eq(known, now));
        let approvals = match outcome {
            Some(approvals) if is_same => approvals,
            outcome => {
                let mut approvals = parsed(&rows, &known, outcome.as_deref()).map_err(|problem| self.problem(&problem))?;
                // Approvals by versions that did not name prompts get these names here. Every process assigns the same names.
                approvals.name_prompts();
                Arc::new(approvals)
            }
        };
        Ok((rows, approvals))
    }

    /// Returns the rows that were read last, and the approvals if they could be read.
    fn known(&self) -> ([Arc<Rows>; 2], Option<Arc<Approvals>>) {
        let last = self.last();
        (last.rows.clone(), last.outcome.as_ref().ok().map(Arc::clone))
    }

    /// Changes the approvals in one transaction. Then reads them again, even if the change failed.
    fn change(&self, change: impl FnOnce(&mut Approvals) -> Result<()>) -> Result<()> {
        let changed = self.earlier.move_into(self).and_then(|()| self.change_rows(change));
        let known = self.read().map(drop);
        changed.and(known)
    }

    fn change_rows(&self, change: impl FnOnce(&mut Approvals) -> Result<()>) -> Result<()> {
        let (known, outcome) = self.known();
        let changed = self.store.change_all(KINDS, |rows| {
            let present: [&Rows; 2] = [&rows[0], &rows[1]];
            let before = parsed(&present, &known, outcome.as_deref()).map_err(|problem| self.problem(&problem))?;
            let mut approvals = before.clone();
            change(&mut approvals)?;
            approvals.name_tools();
            approvals.name_prompts();
            write_changed(rows, &before, &approvals).map_err(|problem| self.problem(&problem))
        });
        changed.map_err(as_approvals)
    }

    fn last(&self) -> MutexGuard<'_, LastRead> {
        self.last.lock()
    }

    fn revocations(&self) -> MutexGuard<'_, Revocations> {
        self.revocations.lock()
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.store.folder().join("store.sqlite3").into(), problem: problem.into() }
    }
}

/// Converts an error of the store to an error of the approvals, which says that nothing is approved.
fn as_approvals(error: Error) -> Error {
    match error {
        Error::Store { path, problem } => Error::ApprovalStore { path, problem },
        other => other,
    }
}

impl fmt::Debug for ApprovalStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApprovalStore").field("store", &self.store).finish_non_exhaustive()
    }
}

fn approval(subject: &Subject, valid_for: Option<Duration>) -> Approval {
    let (now, id) = (SystemTime::now(), new_id());
    Approval {
        command_digest: subject.digest.clone(),
        executable: subject.executable.clone(),
        places: subject.places.clone().unwrap_or_default(),
        named: subject.named.clone(),
        makes: subject.present.makes.clone(),
        writes: subject.present.writes.clone(),
        manifest: None,
        manifest_digest: None,
        direct_names: BTreeMap::new(),
        prompt_names: BTreeMap::new(),
        first_id: id.clone(),
        id,
        approved_at: seconds(now),
        expires_at: valid_for.map(|time| seconds(now).saturating_add(time.as_secs())),
    }
}

/// Returns whether `known` is valid now, and does not expire before `fresh`.
fn outlasts(known: &Approval, fresh: &Approval) -> bool {
    let Some(end) = known.expires_at else { return true };
    !known.is_expired(SystemTime::now()) && fresh.expires_at.is_some_and(|fresh| fresh <= end)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

mod direct_names;
mod earlier_file;
mod prompt_names;
mod rows;
#[cfg(test)]
mod tests;
