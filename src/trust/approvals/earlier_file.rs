//! The file `approved-mcp.json`, in which earlier versions kept the approvals. An undamaged file is moved into the store once, without
//! asking a person. A damaged file approves nothing and is kept aside. Any other file is an error, and is never changed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::{ApprovalStore, IncidentListener, KINDS, as_approvals, seconds};
use crate::error::{Error, Result};
use crate::files;
use crate::store::MachineKey;
use crate::trust::document::{Approvals, Content, read};

pub(super) const FILE_NAME: &str = "approved-mcp.json";
/// The name of the file after its approvals were moved.
const MIGRATED: &str = "approved-mcp.json.migrated";
/// The lock that earlier versions held while they changed the file.
const LOCK_NAME: &str = "approved-mcp.lock";
/// Maximum time to wait for another process that moves the file. A process that holds the lock for longer is hostile or was stopped.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// Maximum number of damaged files that are kept from the same second.
const KEPT_ASIDE: u32 = 100;
/// Maximum size of the file in bytes. The manifests of any number of servers take less.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The progress of moving the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The file was not examined yet, or could not be moved.
    Open,
    Done,
}

/// The file of earlier versions in one state folder.
pub(super) struct EarlierFile {
    folder: PathBuf,
    on_incident: IncidentListener,
    /// Locked while the file is moved. Once that is done, nobody waits for this lock.
    progress: Mutex<Progress>,
}

impl EarlierFile {
    pub(super) fn new(folder: &Path, on_incident: IncidentListener) -> Self {
        Self { folder: folder.to_owned(), on_incident, progress: Mutex::new(Progress::Open) }
    }

    /// Moves the approvals of the file into the store, unless this was already done.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` for a file that cannot be read, or that this program did not write.
    pub(super) fn move_into(&self, approvals: &ApprovalStore) -> Result<()> {
        let mut progress = self.progress.lock();
        if *progress == Progress::Open {
            self.migrate(approvals)?;
            *progress = Progress::Done;
        }
        Ok(())
    }

    fn migrate(&self, approvals: &ApprovalStore) -> Result<()> {
        if self.content(approvals.store.key())?.is_none() {
            return Ok(());
        }
        let _lock = files::lock_within(&self.folder.join(LOCK_NAME), LOCK_TIME).map_err(|error| self.failed(&error))?;
        // Another process may have moved the file in the meantime.
        match self.content(approvals.store.key())? {
            None => Ok(()),
            Some(Content::Foreign(problem)) => {
                Err(self.problem(&format!("{problem}. The file was not changed; move it away, or choose another stateDir")))
            }
            Some(Content::Damaged(problem)) => self.keep_aside(&format!("the approval file was damaged ({problem})")),
            Some(Content::Sound(earlier)) => self.take_over(earlier, approvals),
        }
    }

    /// Moves the approvals into the store if the store has never had any. Otherwise the file is older than the store, or was restored, and
    /// approves nothing.
    fn take_over(&self, earlier: Approvals, approvals: &ApprovalStore) -> Result<()> {
        let mut is_new = true;
        for kind in KINDS {
            is_new &= approvals.store.is_new(kind).map_err(as_approvals)?;
        }
        if is_new {
            approvals.change_rows(|approvals| {
                *approvals = earlier;
                Ok(())
            })?;
        }
        let migrated = self.folder.join(MIGRATED);
        match self.rename(&migrated) {
            // The store may already contain these approvals: a process may have been killed after it moved them and before it renamed the
            // file.
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.keep_aside("an approval file of an earlier version was found next to the store, which already has approvals")
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Reads the file. Returns `None` if there is no file.
    fn content(&self, key: &MachineKey) -> Result<Option<Content>> {
        match files::read_own(&self.path(), MAX_FILE_BYTES) {
            Ok(bytes) => Ok(Some(read(&bytes, key))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Moves the file away, so that a person can examine it and it approves nothing.
    fn keep_aside(&self, problem: &str) -> Result<()> {
        let seconds = seconds(SystemTime::now());
        for number in 0..KEPT_ASIDE {
            let name = format!("approved-mcp.damaged-{seconds}-{number}.json");
            match self.rename(&self.folder.join(&name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                renamed => {
                    renamed.map_err(|error| self.failed(&error))?;
                    let message = format!("{problem}; it is kept as {name}, and everything that it approved needs a new approval");
                    tracing::warn!("{message}");
                    (self.on_incident)(message);
                    return Ok(());
                }
            }
        }
        Err(self.problem(&format!("{problem}, and the file cannot be renamed; move it away")))
    }

    /// Renames the file without overwriting another one: creating a hard link fails if the name is taken.
    fn rename(&self, name: &Path) -> io::Result<()> {
        fs::hard_link(self.path(), name)?;
        fs::remove_file(self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    fn failed(&self, error: &io::Error) -> Error {
        self.problem(&error.to_string())
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.path().into(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use super::super::tests::{open, open_with, subject};
    use super::*;
    use crate::files::testing::{at_once, pipe};
    use crate::trust::document::{Approval, NamedFiles, write};
    use crate::trust::{ApprovalStatus, NotApprovedReason};

    const NEVER: ApprovalStatus = ApprovalStatus::Unapproved(NotApprovedReason::Never);

    fn path(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join(FILE_NAME)
    }

    /// Writes an approval file like an earlier version, with an approval of the command of server `a`.
    fn write_earlier(folder: &tempfile::TempDir) -> Vec<u8> {
        let approval = Approval {
            command_digest: "1".to_owned(),
            executable: None,
            places: Vec::new(),
            named: NamedFiles::default(),
            makes: Vec::new(),
            writes: Vec::new(),
            manifest: None,
            manifest_digest: None,
            direct_names: BTreeMap::new(),
            prompt_names: BTreeMap::new(),
            id: "x".to_owned(),
            first_id: "x".to_owned(),
            approved_at: 1,
            expires_at: None,
        };
        let approvals = Approvals { servers: [("a".to_owned(), Arc::new(approval))].into(), revocations: [("b".to_owned(), 7)].into() };
        let bytes = write(approvals, &MachineKey::open(folder.path()).unwrap()).unwrap();
        files::replace(&path(folder), &bytes, files::Writing::Quick).unwrap();
        bytes
    }

    fn aside(folder: &tempfile::TempDir) -> Vec<Vec<u8>> {
        let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_string_lossy().contains("damaged")).map(|path| fs::read(path).unwrap()).collect()
    }

    #[test]
    fn a_sound_file_moves_in_once_and_is_kept_and_a_copy_of_it_never_counts_again() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = write_earlier(&folder);
        let incidents = Arc::default();
        let store = open_with(folder.path(), &incidents);
        assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
        assert_eq!(store.read().unwrap().revocations_of("b"), 7);
        assert!(!path(&folder).exists() && incidents.lock().is_empty());
        assert_eq!(fs::read(folder.path().join(MIGRATED)).unwrap(), bytes);
        store.revoke("a").unwrap();
        drop(store);
        // The approval that was revoked in the meantime is not restored by the file.
        fs::copy(folder.path().join(MIGRATED), path(&folder)).unwrap();
        let store = open_with(folder.path(), &incidents);
        assert_eq!(store.approval_status(&subject("1")).unwrap(), NEVER);
        assert!(incidents.lock().len() == 1 && incidents.lock()[0].contains("earlier version"), "{incidents:?}");
        assert_eq!(aside(&folder), [bytes]);
    }

    #[test]
    fn a_process_that_is_killed_between_the_store_and_the_name_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write_earlier(&folder);
        drop(open(folder.path()));
        fs::rename(folder.path().join(MIGRATED), path(&folder)).unwrap();
        let incidents = Arc::default();
        let store = open_with(folder.path(), &incidents);
        assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
        assert!(folder.path().join(MIGRATED).exists() && !path(&folder).exists() && incidents.lock().is_empty());
    }

    #[test]
    fn many_that_open_at_once_move_it_once() {
        let folder = tempfile::tempdir().unwrap();
        write_earlier(&folder);
        let incidents = Arc::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let store = open_with(folder.path(), &incidents);
                    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
                });
            }
        });
        assert!(incidents.lock().is_empty() && aside(&folder).is_empty(), "{incidents:?}");
    }

    #[test]
    fn a_damaged_file_approves_nothing_is_kept_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let tampered = String::from_utf8(write_earlier(&folder)).unwrap().replace("\"1\"", "\"2\"");
        fs::write(path(&folder), &tampered).unwrap();
        let incidents = Arc::default();
        let store = open_with(folder.path(), &incidents);
        assert_eq!(store.approval_status(&subject("2")).unwrap(), NEVER);
        assert_eq!(aside(&folder), [tampered.into_bytes()]);
        assert!(incidents.lock().len() == 1 && incidents.lock()[0].contains("a new approval"), "{incidents:?}");
        store.yes_to_command(&subject("2"), None).unwrap();
        assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Command);
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error_until_it_is_moved_and_is_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        for foreign in ["{", "", r#"{ "servers": { "a": {} } }"#] {
            fs::write(path(&folder), foreign).unwrap();
            let store = open(folder.path());
            let error = store.approval_status(&subject("1")).unwrap_err();
            assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("stateDir"), "{error}");
            assert!(store.yes_to_command(&subject("1"), None).is_err() && store.cached_approval_status("a", None).is_err());
            assert_eq!(fs::read_to_string(path(&folder)).unwrap(), foreign);
            fs::remove_file(path(&folder)).unwrap();
            assert_eq!(store.approval_status(&subject("1")).unwrap(), NEVER);
        }
    }

    #[test]
    fn a_file_that_others_may_have_written_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = write_earlier(&folder);
        fs::set_permissions(path(&folder), fs::Permissions::from_mode(0o666)).unwrap();
        let store = open(folder.path());
        let error = store.approval_status(&subject("1")).unwrap_err();
        assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("chmod 600"), "{error}");
        assert_eq!(fs::read(path(&folder)).unwrap(), bytes);
        // Only the owner could write this file, so it is used even if others could read it.
        fs::set_permissions(path(&folder), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
    }

    #[test]
    fn a_pipe_or_a_link_in_its_place_is_an_error_and_not_waited_for() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        pipe(folder.path(), FILE_NAME);
        let at = folder.path().to_owned();
        let error = at_once(move || open(&at).approval_status(&subject("1")).unwrap_err());
        assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("not a regular file"), "{error}");
        write_earlier(&elsewhere);
        fs::remove_file(path(&folder)).unwrap();
        std::os::unix::fs::symlink(path(&elsewhere), path(&folder)).unwrap();
        assert!(open(folder.path()).approval_status(&subject("1")).unwrap_err().in_full().contains("symbolic link"));
    }
}
