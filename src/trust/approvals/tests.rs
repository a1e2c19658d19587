use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::files::testing::{at_once, pipe};
use crate::trust::Executable;

fn subject(digest: &str) -> Subject {
    Subject {
        server: "a".into(),
        key: "a".into(),
        digest: digest.into(),
        shown_digest: digest.into(),
        executable: None,
        pin_executable: false,
        folder: None,
        addresses: Vec::new(),
    }
}

fn manifest() -> Arc<Manifest> {
    Arc::new(Manifest { protocol_version: "2025-11-25".into(), server_name: "s".into(), server_version: "1".into(), ..Manifest::default() })
}

fn open(folder: &Path) -> ApprovalStore {
    ApprovalStore::open(folder, Arc::new(|_| {})).unwrap()
}

impl ApprovalStore {
    fn yes_to_command(&self, subject: &Subject, valid_for: Option<Duration>) -> Result<ApprovalBasis> {
        self.approve_command(subject, valid_for, &self.basis(&subject.server)?)
    }

    /// Approves the command and the tools for a time.
    fn yes_to_tools_for(&self, valid_for: Option<Duration>) {
        let basis = self.yes_to_command(&subject("1"), valid_for).unwrap();
        self.approve_manifest(&subject("1"), manifest(), valid_for, &basis).unwrap();
    }

    /// Approves the tools, and before that the command if it is not approved.
    fn yes_to_tools(&self, subject: &Subject, valid_for: Option<Duration>) -> Result<()> {
        let basis = match self.approval_status(subject)? {
            ApprovalStatus::Unapproved(_) => self.yes_to_command(subject, valid_for)?,
            ApprovalStatus::Command | ApprovalStatus::Full(_) => self.basis(&subject.server)?,
        };
        self.approve_manifest(subject, manifest(), valid_for, &basis)
    }
}

#[test]
fn an_approval_holds_for_what_was_approved_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("state"));
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    store.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
    store.yes_to_tools(&subject("1"), None).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()));
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Changed));
}

#[test]
fn each_yes_is_another_approval_and_it_is_full_with_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let (store, elsewhere) = (open(folder.path()), open(folder.path()));
    let full = |digest: &str| store.full_approval_of("a", |_| subject(digest)).unwrap().map(|approval| approval.id);
    store.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(full("1"), None);
    store.yes_to_tools(&subject("1"), None).unwrap();
    let first = full("1").unwrap();
    assert_eq!((full("1").as_ref(), full("2")), (Some(&first), None));
    elsewhere.revoke("a").unwrap();
    elsewhere.yes_to_tools(&subject("1"), None).unwrap();
    assert_ne!(full("1").unwrap(), first);
}

#[test]
fn an_approval_can_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_tools(&subject("1"), Some(Duration::from_hours(1))).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()));
    let later = SystemTime::now() + Duration::from_hours(2);
    assert_eq!(
        approval_status(store.read().unwrap().get("a"), &subject("1"), later),
        ApprovalStatus::Unapproved(NotApprovedReason::Expired)
    );
}

#[test]
fn a_yes_to_the_command_does_not_prolong_a_yes_to_the_tools() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let hours = |hours| Some(Duration::from_hours(hours));
    // Each case: the time for which the tools were approved, the time for which the command was approved later, and the expected status.
    let tools = || ApprovalStatus::Full(manifest());
    let cases = [
        (Some(Duration::ZERO), None, ApprovalStatus::Command),
        (Some(Duration::ZERO), hours(1), ApprovalStatus::Command),
        (hours(1), None, ApprovalStatus::Command),
        (hours(1), hours(2), ApprovalStatus::Command),
        (hours(2), hours(1), tools()),
        (None, hours(1), tools()),
        (None, None, tools()),
    ];
    for (first, later, expected) in cases {
        store.revoke("a").unwrap();
        store.yes_to_tools_for(first);
        store.yes_to_command(&subject("1"), later).unwrap();
        assert_eq!(store.approval_status(&subject("1")).unwrap(), expected, "{first:?} {later:?}");
    }
}

#[test]
fn a_pinned_program_that_changed_needs_approval_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let program = |sha256: &str| Some(Executable { path: "/bin/x".into(), sha256: sha256.into() });
    let now = |sha256, pin_executable| Subject { executable: program(sha256), pin_executable, ..subject("1") };
    store.yes_to_command(&now("good", false), None).unwrap();
    assert_eq!(store.approval_status(&now("evil", true)).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Executable));
    assert_eq!(store.approval_status(&now("evil", false)).unwrap(), ApprovalStatus::Command);
    assert_eq!(store.approval_status(&now("good", true)).unwrap(), ApprovalStatus::Command);
    let unreadable = Subject { pin_executable: true, ..subject("1") };
    assert_eq!(store.approval_status(&unreadable).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Unreadable));
}

#[test]
fn a_yes_to_the_tools_keeps_what_was_said_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let program = |sha256: &str| Some(Executable { path: "/bin/x".into(), sha256: sha256.into() });
    let first = Subject { executable: program("first"), ..subject("1") };
    store.yes_to_command(&first, Some(Duration::from_hours(1))).unwrap();
    let second = Subject { executable: program("second"), ..subject("1") };
    store.yes_to_tools(&second, None).unwrap();
    let approval = store.approval("a").unwrap().unwrap();
    assert!(approval.executable == program("first") && approval.expires_at.is_some());
}

#[test]
fn a_revocation_in_another_process_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()), open(folder.path()));
    here.yes_to_tools(&subject("1"), None).unwrap();
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()));
    there.revoke("a").unwrap();
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn a_yes_to_the_tools_that_was_under_way_does_not_undo_the_revocation_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()), open(folder.path()));
    let basis = here.yes_to_command(&subject("1"), None).unwrap();
    there.revoke("a").unwrap();
    let overtaken = |store: &ApprovalStore| store.approve_manifest(&subject("1"), manifest(), None, &basis).unwrap_err();
    let error = overtaken(&here);
    assert!(error.code() == "ERR_NOT_APPROVED" && error.in_full().contains("only a later approval"), "{error}");
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    // A later approval of the command does not become an approval of the tools.
    there.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(overtaken(&here).code(), "ERR_NOT_APPROVED");
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn a_yes_to_the_command_that_waited_for_the_lock_does_not_undo_the_revocation_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()), open(folder.path()));
    here.yes_to_tools(&subject("1"), None).unwrap();
    let basis = here.basis("a").unwrap();
    there.revoke("a").unwrap();
    assert_eq!(here.approve_command(&subject("1"), None, &basis).unwrap_err().code(), "ERR_NOT_APPROVED");
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn a_yes_that_waits_for_the_lock_and_a_revocation_of_the_same_process_leave_nothing_approved() {
    let folder = tempfile::tempdir().unwrap();
    let store = &open(folder.path());
    store.yes_to_tools(&subject("1"), None).unwrap();
    let lock = store.lock(Duration::ZERO).unwrap();
    let basis = &store.basis("a").unwrap();
    std::thread::scope(|scope| {
        let yes = scope.spawn(move || store.approve_manifest(&subject("1"), manifest(), None, basis));
        // The result does not depend on which of the two gets the lock first.
        store.withhold("a");
        let revocation = scope.spawn(move || store.revoke("a"));
        drop(lock);
        assert_eq!(yes.join().unwrap().unwrap_err().code(), "ERR_NOT_APPROVED");
        revocation.join().unwrap().unwrap();
    });
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(open(folder.path()).approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn a_first_yes_that_was_under_way_does_not_undo_a_revocation_of_the_same_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let before = store.basis("a").unwrap();
    store.withhold("a");
    let during = store.basis("a").unwrap();
    store.revoke("a").unwrap();
    for basis in [before, during] {
        assert_eq!(store.approve_command(&subject("1"), None, &basis).unwrap_err().code(), "ERR_NOT_APPROVED");
    }
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    store.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn a_first_yes_that_was_under_way_while_another_process_approved_and_revoked_does_not_undo_that() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()), open(folder.path()));
    let basis = here.basis("a").unwrap();
    there.yes_to_tools(&subject("1"), None).unwrap();
    there.revoke("a").unwrap();
    let error = here.approve_command(&subject("1"), None, &basis).unwrap_err();
    assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("only a later approval"), "{error}");
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    here.yes_to_tools(&subject("1"), None).unwrap();
    assert_eq!(there.approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()));
}

#[test]
fn two_that_say_yes_at_once_are_both_heard() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path()), open(folder.path()));
    let (first, second) = (here.basis("a").unwrap(), there.basis("a").unwrap());
    let first = here.approve_command(&subject("1"), None, &first).unwrap();
    let second = there.approve_command(&subject("1"), None, &second).unwrap();
    here.approve_manifest(&subject("1"), manifest(), None, &first).unwrap();
    there.approve_manifest(&subject("1"), manifest(), None, &second).unwrap();
    assert_eq!(here.approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()));
}

#[test]
fn a_yes_to_the_tools_of_another_command_than_was_approved_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let basis = store.yes_to_command(&subject("1"), None).unwrap();
    store.yes_to_command(&subject("2"), None).unwrap();
    assert_eq!(store.approve_manifest(&subject("1"), manifest(), None, &basis).unwrap_err().code(), "ERR_DIGEST_CHANGED");
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn a_tampered_file_approves_nothing_is_kept_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let incidents = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&incidents);
    let store = ApprovalStore::open(folder.path(), Arc::new(move |message| seen.lock().push(message))).unwrap();
    store.yes_to_command(&subject("1"), None).unwrap();
    let path = folder.path().join(FILE_NAME);
    let tampered = fs::read_to_string(&path).unwrap().replace("\"1\"", "\"2\"");
    fs::write(&path, &tampered).unwrap();
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    let kept: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("damaged"))
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), tampered);
    assert!(incidents.lock()[0].contains("approval again"));
    store.yes_to_command(&subject("2"), None).unwrap();
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn a_file_that_is_not_ours_is_an_error_and_is_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let path = folder.path().join(FILE_NAME);
    for foreign in ["{", "", r#"{ "servers": { "a": {} } }"#] {
        fs::write(&path, foreign).unwrap();
        let error = store.approval_status(&subject("1")).unwrap_err();
        assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("stateDir"), "{error}");
        assert!(store.yes_to_command(&subject("1"), None).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
    }
}

#[test]
fn folder_and_files_are_the_users_alone() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    open(&state).yes_to_command(&subject("1"), None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&state.join(FILE_NAME)), mode(&state.join(LOCK_NAME))), (0o700, 0o600, 0o600));
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let error = ApprovalStore::open(&state, Arc::new(|_| {})).unwrap_err();
    assert!(error.in_full().contains("chmod 700"), "{error}");
}

#[test]
fn many_writers_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for index in 0..16 {
            let path = folder.path();
            scope.spawn(move || {
                let subject = Subject { server: format!("s{index}"), ..subject("1") };
                open(path).yes_to_command(&subject, None).unwrap();
            });
        }
    });
    assert_eq!(open(folder.path()).read().unwrap().servers.len(), 16);
}

#[test]
fn approvals_that_others_may_have_written_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_command(&subject("1"), None).unwrap();
    let path = folder.path().join(FILE_NAME);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = store.approval_status(&subject("1")).unwrap_err();
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("chmod 600"), "{error}");
    assert!(store.yes_to_command(&subject("1"), None).is_err());
    // A file that others can only read was written by its owner alone. It is valid, and their permission is removed.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn approvals_of_another_user_are_refused() {
    // Only root can give a file away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_command(&subject("1"), None).unwrap();
    let path = folder.path().join(FILE_NAME);
    for (owned, fails) in [(path, None), (folder.path().join("machine.key"), Some(())), (folder.path().to_owned(), Some(()))] {
        std::os::unix::fs::chown(&owned, Some(12_345), None).unwrap();
        let error = match fails {
            None => store.approval_status(&subject("1")).unwrap_err(),
            Some(()) => ApprovalStore::open(folder.path(), Arc::new(|_| {})).unwrap_err(),
        };
        assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("another user (uid 12345"), "{error}");
        std::os::unix::fs::chown(&owned, Some(0), None).unwrap();
    }
}

#[test]
fn a_pipe_or_a_link_in_the_place_of_the_approvals_is_an_error_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    pipe(folder.path(), FILE_NAME);
    let (store, error) = at_once(move || {
        let error = store.approval_status(&subject("1")).unwrap_err();
        (store, error)
    });
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("not a regular file"), "{error}");
    let elsewhere = tempfile::tempdir().unwrap();
    open(elsewhere.path()).yes_to_command(&subject("1"), None).unwrap();
    fs::remove_file(folder.path().join(FILE_NAME)).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join(FILE_NAME), folder.path().join(FILE_NAME)).unwrap();
    assert!(store.approval_status(&subject("1")).unwrap_err().in_full().contains("symbolic link"));
}

#[test]
fn a_revocation_that_cannot_be_recorded_says_so_and_holds_here_until_a_new_yes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_tools(&subject("1"), None).unwrap();
    // Root can write despite the mode, but even root cannot replace this folder with a file.
    let (path, aside) = (folder.path().join(LOCK_NAME), folder.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    let error = store.revoke("a").unwrap_err();
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("could not be recorded"), "{error}");
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(store.cached_approval_status("a", Some(&subject("1"))).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(open(folder.path()).approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()), "what the file says");
    fs::remove_dir(&path).unwrap();
    // The approval of the command does not restore the revoked tools.
    store.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn what_is_known_is_told_while_the_file_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_command(&subject("1"), None).unwrap();
    fs::remove_file(folder.path().join(FILE_NAME)).unwrap();
    let known = || store.cached_approval_status("a", Some(&subject("1"))).unwrap();
    assert_eq!(known(), ApprovalStatus::Command);
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(known(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn what_killed_writers_left_is_removed_with_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let left = folder.path().join(format!(".{FILE_NAME}.a1B2c3.tmp"));
    fs::write(&left, "half").unwrap();
    File::open(&left).unwrap().set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
    store.yes_to_command(&subject("1"), None).unwrap();
    assert!(!left.exists());
}

#[test]
fn nothing_of_a_server_without_an_approval_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let approval_status = store.approval_status_of("a", |_| -> Subject { panic!("nothing is approved") }).unwrap();
    assert_eq!(approval_status, ApprovalStatus::Unapproved(NotApprovedReason::Never));
}
