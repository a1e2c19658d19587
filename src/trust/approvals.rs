//! The approvals on disk: `approved-mcp.json` in the state folder, looked at again whenever one counts.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::digest::manifest_digest;
use super::document::{Approval, Approvals, Content, new_id, read, write};
use super::key::MachineKey;
use super::subject::Subject;
use crate::catalog::Manifest;
use crate::error::{Error, Result};

const FILE_NAME: &str = "approved-mcp.json";
const LOCK_NAME: &str = "approved-mcp.lock";
/// Files kept aside in one second, at most.
const KEPT_ASIDE: u32 = 100;

/// How far an approval holds for a server as it is configured now.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nothing may run.
    Unapproved(Lack),
    /// The server may be started, to read its tools.
    Command,
    /// Its tools may be called.
    Full(Arc<Manifest>),
}

/// Why nothing may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Nobody has said yes, or somebody has taken it back.
    Never,
    /// What would run is not what was approved.
    Changed,
    /// The same, where the folder decides what would run: it may have been approved in another one.
    Elsewhere,
    /// The approval's time is over.
    Expired,
    /// The program's content changed, and the config says `pinExecutable`.
    Executable,
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Never => "nobody has approved it",
            Self::Changed => "its entry in the config changed after it was approved",
            Self::Elsewhere => {
                "its entry in the config changed after it was approved, or was approved in another folder, where its paths lead elsewhere"
            }
            Self::Expired => "its approval has expired",
            Self::Executable => "its program changed on disk after it was approved (pinExecutable)",
        })
    }
}

/// Told when a file was kept aside, and why.
pub type IncidentListener = Arc<dyn Fn(String) + Send + Sync>;

/// Tells one state of the file from another: each is a new file, put in place as a whole.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, i64, i64);

/// The one owner of the approval file.
pub struct ApprovalStore {
    folder: PathBuf,
    key: MachineKey,
    cached: Mutex<Option<(Stamp, Arc<Approvals>)>>,
    on_incident: IncidentListener,
}

impl ApprovalStore {
    /// Opens the store, creating its folder with mode 0700 and this machine's key.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the folder or the key cannot be created.
    pub fn open(folder: &Path, on_incident: IncidentListener) -> Result<Self> {
        let problem = |problem: String| Error::ApprovalStore { path: folder.join(FILE_NAME), problem };
        if !folder.is_dir() {
            let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.map_err(|error| problem(format!("the folder cannot be created: {error}")))?;
        }
        // Whoever may write to the folder could put another file in the place of ours.
        let mode = fs::metadata(folder).map_err(|error| problem(error.to_string()))?.permissions().mode();
        if mode & 0o022 != 0 {
            return Err(problem(format!(
                "others may write to the folder (mode {:o}): chmod 700 it, or choose another stateDir",
                mode & 0o7777
            )));
        }
        let key = MachineKey::open(folder)?;
        Ok(Self { folder: folder.to_owned(), key, cached: Mutex::default(), on_incident })
    }

    /// What keys the digests of literal values.
    #[must_use]
    pub fn key(&self) -> &MachineKey {
        &self.key
    }

    /// How far the approval on disk holds for this subject, now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be read: nothing is approved then.
    pub fn standing(&self, subject: &Subject) -> Result<Standing> {
        Ok(standing(self.read()?.get(&subject.server), subject, SystemTime::now()))
    }

    /// The approval of both stages, where it holds for this subject, now.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn full_approval(&self, subject: &Subject) -> Result<Option<Approval>> {
        let approvals = self.read()?;
        let approval = approvals.get(&subject.server);
        let holds = matches!(standing(approval, subject, SystemTime::now()), Standing::Full(_));
        Ok(approval.filter(|_| holds).cloned())
    }

    /// What was approved, whether or not it still holds.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn approval(&self, server: &str) -> Result<Option<Approval>> {
        Ok(self.read()?.get(server).cloned())
    }

    /// Approves the command as it is configured. An approval of the tools under the same command is kept.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be written.
    pub fn approve_command(&self, subject: &Subject, valid_for: Option<Duration>) -> Result<()> {
        let fresh = approval(subject, valid_for);
        self.change(|servers| {
            let kept = servers.remove(&subject.server).filter(|known| known.command_digest == subject.digest);
            let approval = match kept {
                Some(known) => Approval { manifest: known.manifest, manifest_digest: known.manifest_digest, ..fresh },
                None => fresh,
            };
            servers.insert(subject.server.clone(), approval);
        })
    }

    /// Approves the tools, and the command with them.
    ///
    /// # Errors
    /// As [`Self::approve_command`].
    pub fn approve_manifest(&self, subject: &Subject, manifest: Arc<Manifest>, valid_for: Option<Duration>) -> Result<()> {
        let digest = manifest_digest(&manifest);
        let mut fresh = Approval { manifest: Some(manifest), manifest_digest: Some(digest), ..approval(subject, valid_for) };
        self.change(|servers| {
            // What was said of the command stays: which program it is, and until when.
            if let Some(known) = servers.get(&subject.server).filter(|known| known.command_digest == subject.digest) {
                fresh.executable.clone_from(&known.executable);
                fresh.expires_at = fresh.expires_at.or(known.expires_at);
            }
            servers.insert(subject.server.clone(), fresh);
        })
    }

    /// Takes an approval back, both stages.
    ///
    /// # Errors
    /// As [`Self::approve_command`].
    pub fn revoke(&self, server: &str) -> Result<()> {
        self.change(|servers| {
            servers.remove(server);
        })
    }

    fn read(&self) -> Result<Arc<Approvals>> {
        let path = self.folder.join(FILE_NAME);
        // The stamp comes first: a file that is put in place meanwhile is read, and read again the next time.
        let stamp = match fs::metadata(&path) {
            Ok(metadata) => {
                Stamp(metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(self.problem(&error.to_string())),
        };
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, approvals)) = cached.as_ref().filter(|(known, _)| *known == stamp) {
            return Ok(Arc::clone(approvals));
        }
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(self.problem(&error.to_string())),
        };
        let approvals = match read(&bytes, &self.key) {
            Content::Sound(approvals) => Arc::new(approvals),
            Content::Damaged(problem) => {
                drop(cached);
                self.keep_aside(&problem)?;
                return Ok(Arc::default());
            }
            Content::Foreign(problem) => {
                return Err(self.problem(&format!("{problem}. It is left as it is; move it away, or choose another stateDir")));
            }
        };
        *cached = Some((stamp, Arc::clone(&approvals)));
        Ok(approvals)
    }

    /// Moves a damaged file of ours out of the way, so that it can be looked at and approves nothing.
    fn keep_aside(&self, problem: &str) -> Result<()> {
        let _lock = self.lock()?;
        let path = self.folder.join(FILE_NAME);
        // Another process may have done so, or written a new one.
        match fs::read(&path) {
            Ok(bytes) if matches!(read(&bytes, &self.key), Content::Damaged(_)) => {}
            _ => return Ok(()),
        }
        let seconds = seconds(SystemTime::now());
        for number in 0..KEPT_ASIDE {
            let name = format!("approved-mcp.damaged-{seconds}-{number}.json");
            // A hard link fails where the name is taken: nothing that was kept is written over.
            match fs::hard_link(&path, self.folder.join(&name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => {
                    linked.and_then(|()| fs::remove_file(&path)).map_err(|error| self.problem(&error.to_string()))?;
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

    fn lock(&self) -> Result<File> {
        let failed = |error: std::io::Error| self.problem(&error.to_string());
        let lock = File::options().create(true).truncate(false).write(true).open(self.folder.join(LOCK_NAME)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(lock)
    }

    /// Reads, changes and writes under a lock, so that two processes at once lose nothing.
    fn change(&self, change: impl FnOnce(&mut Approvals)) -> Result<()> {
        let failed = |error: std::io::Error| self.problem(&error.to_string());
        // What is damaged is moved first: that takes the lock itself.
        self.read()?;
        let _lock = self.lock()?;
        let mut approvals = self.read_locked()?;
        change(&mut approvals);
        let bytes = write(approvals, &self.key).map_err(|problem| self.problem(&problem))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(failed)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(self.folder.join(FILE_NAME)).map_err(|error| failed(error.error))?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    fn read_locked(&self) -> Result<Approvals> {
        match fs::read(self.folder.join(FILE_NAME)) {
            Ok(bytes) => match read(&bytes, &self.key) {
                Content::Sound(approvals) => Ok(approvals),
                Content::Damaged(problem) | Content::Foreign(problem) => Err(self.problem(&problem)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Approvals::new()),
            Err(error) => Err(self.problem(&error.to_string())),
        }
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.folder.join(FILE_NAME), problem: problem.to_owned() }
    }
}

impl fmt::Debug for ApprovalStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApprovalStore").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn standing(approval: Option<&Approval>, subject: &Subject, now: SystemTime) -> Standing {
    let Some(approval) = approval else { return Standing::Unapproved(Lack::Never) };
    if approval.command_digest != subject.digest {
        return Standing::Unapproved(if subject.folder.is_some() { Lack::Elsewhere } else { Lack::Changed });
    }
    if approval.is_expired(now) {
        return Standing::Unapproved(Lack::Expired);
    }
    // A program that cannot be read cannot be compared.
    if subject.pin_executable && (subject.executable.is_none() || approval.executable != subject.executable) {
        return Standing::Unapproved(Lack::Executable);
    }
    match (&approval.manifest, &approval.manifest_digest) {
        (Some(manifest), Some(_)) => Standing::Full(Arc::clone(manifest)),
        _ => Standing::Command,
    }
}

fn approval(subject: &Subject, valid_for: Option<Duration>) -> Approval {
    let now = SystemTime::now();
    Approval {
        command_digest: subject.digest.clone(),
        executable: subject.executable.clone(),
        manifest: None,
        manifest_digest: None,
        id: new_id(),
        approved_at: seconds(now),
        expires_at: valid_for.map(|time| seconds(now).saturating_add(time.as_secs())),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Executable;

    fn subject(digest: &str) -> Subject {
        Subject {
            server: "a".into(),
            digest: digest.into(),
            shown_digest: digest.into(),
            executable: None,
            pin_executable: false,
            folder: None,
        }
    }

    fn manifest() -> Arc<Manifest> {
        Arc::new(Manifest {
            protocol_version: "2025-11-25".into(),
            server_name: "s".into(),
            server_version: "1".into(),
            ..Manifest::default()
        })
    }

    fn open(folder: &Path) -> ApprovalStore {
        ApprovalStore::open(folder, Arc::new(|_| {})).unwrap()
    }

    #[test]
    fn an_approval_holds_for_what_was_approved_and_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("state"));
        assert_eq!(store.standing(&subject("1")).unwrap(), Standing::Unapproved(Lack::Never));
        store.approve_command(&subject("1"), None).unwrap();
        assert_eq!(store.standing(&subject("1")).unwrap(), Standing::Command);
        store.approve_manifest(&subject("1"), manifest(), None).unwrap();
        assert_eq!(store.standing(&subject("1")).unwrap(), Standing::Full(manifest()));
        assert_eq!(store.standing(&subject("2")).unwrap(), Standing::Unapproved(Lack::Changed));
    }

    #[test]
    fn each_yes_is_another_approval_and_it_is_full_with_its_tools() {
        let folder = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (open(folder.path()), open(folder.path()));
        let full = |digest: &str| store.full_approval(&subject(digest)).unwrap().map(|approval| approval.id);
        store.approve_command(&subject("1"), None).unwrap();
        assert_eq!(full("1"), None);
        store.approve_manifest(&subject("1"), manifest(), None).unwrap();
        let first = full("1").unwrap();
        assert_eq!((full("1").as_ref(), full("2")), (Some(&first), None));
        elsewhere.revoke("a").unwrap();
        elsewhere.approve_manifest(&subject("1"), manifest(), None).unwrap();
        assert_ne!(full("1").unwrap(), first);
    }

    #[test]
    fn an_approval_can_have_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        store.approve_manifest(&subject("1"), manifest(), Some(Duration::from_hours(1))).unwrap();
        assert_eq!(store.standing(&subject("1")).unwrap(), Standing::Full(manifest()));
        let later = SystemTime::now() + Duration::from_hours(2);
        assert_eq!(standing(store.read().unwrap().get("a"), &subject("1"), later), Standing::Unapproved(Lack::Expired));
    }

    #[test]
    fn a_pinned_program_that_changed_needs_approval_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let program = |sha256: &str| Some(Executable { path: "/bin/x".into(), sha256: sha256.into() });
        let now = |sha256, pin_executable| Subject { executable: program(sha256), pin_executable, ..subject("1") };
        store.approve_command(&now("good", false), None).unwrap();
        assert_eq!(store.standing(&now("evil", true)).unwrap(), Standing::Unapproved(Lack::Executable));
        assert_eq!(store.standing(&now("evil", false)).unwrap(), Standing::Command);
        assert_eq!(store.standing(&now("good", true)).unwrap(), Standing::Command);
        let unreadable = Subject { pin_executable: true, ..subject("1") };
        assert_eq!(store.standing(&unreadable).unwrap(), Standing::Unapproved(Lack::Executable));
    }

    #[test]
    fn a_yes_to_the_tools_keeps_what_was_said_of_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let program = |sha256: &str| Some(Executable { path: "/bin/x".into(), sha256: sha256.into() });
        let first = Subject { executable: program("first"), ..subject("1") };
        store.approve_command(&first, Some(Duration::from_hours(1))).unwrap();
        let second = Subject { executable: program("second"), ..subject("1") };
        store.approve_manifest(&second, manifest(), None).unwrap();
        let approval = store.approval("a").unwrap().unwrap();
        assert!(approval.executable == program("first") && approval.expires_at.is_some());
    }

    #[test]
    fn a_revocation_in_another_process_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (open(folder.path()), open(folder.path()));
        here.approve_manifest(&subject("1"), manifest(), None).unwrap();
        assert_eq!(here.standing(&subject("1")).unwrap(), Standing::Full(manifest()));
        there.revoke("a").unwrap();
        assert_eq!(here.standing(&subject("1")).unwrap(), Standing::Unapproved(Lack::Never));
    }

    #[test]
    fn a_tampered_file_approves_nothing_is_kept_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&incidents);
        let store = ApprovalStore::open(folder.path(), Arc::new(move |message| seen.lock().unwrap().push(message))).unwrap();
        store.approve_command(&subject("1"), None).unwrap();
        let path = folder.path().join(FILE_NAME);
        let tampered = fs::read_to_string(&path).unwrap().replace("\"1\"", "\"2\"");
        fs::write(&path, &tampered).unwrap();
        assert_eq!(store.standing(&subject("2")).unwrap(), Standing::Unapproved(Lack::Never));
        let kept: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains("damaged"))
            .collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(fs::read_to_string(&kept[0]).unwrap(), tampered);
        assert!(incidents.lock().unwrap()[0].contains("approval again"));
        store.approve_command(&subject("2"), None).unwrap();
        assert_eq!(store.standing(&subject("2")).unwrap(), Standing::Command);
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error_and_is_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let path = folder.path().join(FILE_NAME);
        for foreign in ["{", "", r#"{ "servers": { "a": {} } }"#] {
            fs::write(&path, foreign).unwrap();
            let error = store.standing(&subject("1")).unwrap_err();
            assert!(error.code() == "ERR_APPROVAL_STORE" && error.to_string().contains("stateDir"), "{error}");
            assert!(store.approve_command(&subject("1"), None).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
    }

    #[test]
    fn folder_and_files_are_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        open(&state).approve_command(&subject("1"), None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(FILE_NAME))), (0o700, 0o600));
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let error = ApprovalStore::open(&state, Arc::new(|_| {})).unwrap_err();
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }

    #[test]
    fn many_writers_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for index in 0..16 {
                let path = folder.path();
                scope.spawn(move || {
                    let subject = Subject { server: format!("s{index}"), ..subject("1") };
                    open(path).approve_command(&subject, None).unwrap();
                });
            }
        });
        assert_eq!(open(folder.path()).read().unwrap().len(), 16);
    }
}
