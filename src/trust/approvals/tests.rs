use std::path::Path;

use rusqlite::Connection;

use super::*;
use crate::boxes::{ChangeableBy, Present};
use crate::config::{ServerSource, SourceKind};
use crate::trust::{Executable, NamedFiles};

pub(super) fn subject(digest: &str) -> Subject {
    Subject {
        server: "a".into(),
        key: "a".into(),
        digest: digest.into(),
        shown_digest: digest.into(),
        executable: None,
        places: None,
        linked: Vec::new(),
        present: Present::default(),
        changeable_by: ChangeableBy::default(),
        named: NamedFiles::default(),
        pin_executable: false,
        folder: None,
        addresses: Vec::new(),
        registry: crate::boxes::Registry::default(),
    }
}

fn manifest() -> Arc<Manifest> {
    Arc::new(Manifest { protocol_version: "2025-11-25".into(), server_name: "s".into(), server_version: "1".into(), ..Manifest::default() })
}

pub(super) fn open(folder: &Path) -> ApprovalStore {
    open_with(folder, &Arc::default())
}

/// Opens the approvals of a folder, and collects the incidents that are reported.
pub(super) fn open_with(folder: &Path, incidents: &Arc<Mutex<Vec<String>>>) -> ApprovalStore {
    let incidents = Arc::clone(incidents);
    let on_incident: IncidentListener = Arc::new(move |message| incidents.lock().push(message));
    ApprovalStore::open(Arc::new(Store::open(folder, Arc::clone(&on_incident)).unwrap()), on_incident)
}

fn raw(folder: &Path) -> Connection {
    Connection::open(folder.join("store.sqlite3")).unwrap()
}

impl ApprovalStore {
    pub(super) fn yes_to_command(&self, subject: &Subject, valid_for: Option<Duration>) -> Result<ApprovalBasis> {
        self.approve_command(subject, valid_for, &self.basis(&subject.key)?)
    }

    /// Approves the command and the tools for a limited time.
    fn yes_to_tools_for(&self, valid_for: Option<Duration>) {
        let basis = self.yes_to_command(&subject("1"), valid_for).unwrap();
        self.approve_manifest(&subject("1"), manifest(), valid_for, &basis).unwrap();
    }

    /// Approves the tools. If the command is not approved, approves it first.
    pub(super) fn yes_to_tools(&self, subject: &Subject, valid_for: Option<Duration>) -> Result<()> {
        let basis = match self.approval_status(subject)? {
            ApprovalStatus::Unapproved(_) => self.yes_to_command(subject, valid_for)?,
            ApprovalStatus::Command | ApprovalStatus::Full(_) => self.basis(&subject.key)?,
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
        approval_status(store.read().unwrap().get("a").map(|approval| &**approval), &subject("1"), later),
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
fn a_yes_to_the_tools_does_not_prolong_that_to_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let hours = |hours| Some(Duration::from_hours(hours));
    for (command, tools, expected) in [(1, Some(2), 1), (2, Some(1), 1), (1, None, 1)] {
        store.revoke("a").unwrap();
        let basis = store.yes_to_command(&subject("1"), hours(command)).unwrap();
        store.approve_manifest(&subject("1"), manifest(), tools.and_then(hours), &basis).unwrap();
        let approval = store.approval("a").unwrap().unwrap();
        let seconds = approval.expires_at.unwrap() - approval.approved_at;
        assert!((expected * 3_600 - 5..=expected * 3_600).contains(&seconds), "{command} {tools:?}: {seconds}");
    }
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
    assert!(error.code() == "ERR_NOT_APPROVED" && error.in_full().contains("this approval has no effect"), "{error}");
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
    let lock = raw(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let basis = &store.basis("a").unwrap();
    std::thread::scope(|scope| {
        let yes = scope.spawn(move || store.approve_manifest(&subject("1"), manifest(), None, basis));
        // The result is the same, whichever of the two takes the lock first.
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
    assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("this approval has no effect"), "{error}");
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
fn many_writers_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for index in 0..16 {
            let path = folder.path();
            scope.spawn(move || {
                let subject = Subject { server: format!("s{index}"), key: format!("s{index}"), ..subject("1") };
                open(path).yes_to_command(&subject, None).unwrap();
            });
        }
    });
    assert_eq!(open(folder.path()).read().unwrap().servers.len(), 16);
}

#[test]
fn nothing_of_a_server_without_an_approval_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let approval_status = store.approval_status_of("a", |_| -> Subject { panic!("nothing is approved") }).unwrap();
    assert_eq!(approval_status, ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn a_row_that_another_program_changed_approves_nothing_is_kept_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).yes_to_command(&subject("1"), None).unwrap();
    raw(folder.path()).execute_batch(r#"UPDATE decisions SET body = CAST(replace(CAST(body AS TEXT), '"1"', '"2"') AS BLOB)"#).unwrap();
    let incidents = Arc::default();
    let store = open_with(folder.path(), &incidents);
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert!(incidents.lock().len() == 1 && incidents.lock()[0].contains("these rows have no effect"), "{incidents:?}");
    store.yes_to_command(&subject("2"), None).unwrap();
    assert_eq!(store.approval_status(&subject("2")).unwrap(), ApprovalStatus::Command);
    let kept: i64 = raw(folder.path()).query_row("SELECT count(*) FROM set_aside WHERE kind = 'approval'", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 1);
}

#[test]
fn a_server_of_another_source_does_not_inherit_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let of = |source: &ServerSource| Subject { key: source.key("a"), ..subject("1") };
    let sources = [ServerSource::default(), ServerSource::named(SourceKind::Agent, "x"), ServerSource::named(SourceKind::Provider, "x")];
    for approved in &sources {
        store.yes_to_tools(&of(approved), None).unwrap();
        for other in sources.iter().filter(|other| *other != approved) {
            assert_eq!(store.approval_status(&of(other)).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
            assert!(store.approval(&other.key("a")).unwrap().is_none() && store.direct_names(&other.key("a")).unwrap().is_empty());
            // The revocation of the other server does not affect this approval either.
            store.revoke(&other.key("a")).unwrap();
        }
        assert_eq!(store.approval_status(&of(approved)).unwrap(), ApprovalStatus::Full(manifest()));
        store.revoke(&approved.key("a")).unwrap();
    }
}

#[test]
fn a_revocation_that_cannot_be_recorded_says_so_and_holds_here_until_a_new_yes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_tools(&subject("1"), None).unwrap();
    // Another program changes the store and does not finish.
    let other = raw(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.revoke("a").unwrap_err();
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.in_full().contains("of server \"a\" could not be recorded"), "{error}");
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(store.cached_approval_status("a", Some(&subject("1"))).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(open(folder.path()).approval_status(&subject("1")).unwrap(), ApprovalStatus::Full(manifest()), "what the store says");
    other.execute_batch("ROLLBACK").unwrap();
    // The approval of the command does not restore the revoked tools.
    store.yes_to_command(&subject("1"), None).unwrap();
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Command);
}

#[test]
fn what_was_read_last_is_told_without_reading() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.yes_to_command(&subject("1"), None).unwrap();
    let known = || store.cached_approval_status("a", Some(&subject("1"))).unwrap();
    open(folder.path()).revoke("a").unwrap();
    assert_eq!(known(), ApprovalStatus::Command);
    assert_eq!(store.approval_status(&subject("1")).unwrap(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
    assert_eq!(known(), ApprovalStatus::Unapproved(NotApprovedReason::Never));
}

#[test]
fn one_yes_among_many_approvals_writes_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (open(folder.path()), open(folder.path()));
    for name in ["b", "c"] {
        store.yes_to_tools(&Subject { server: name.into(), key: name.into(), ..subject("1") }, None).unwrap();
    }
    let before = other.read().unwrap();
    store.yes_to_tools(&subject("1"), None).unwrap();
    let after = other.read().unwrap();
    assert!(["b", "c"].iter().all(|name| Arc::ptr_eq(&before.servers[*name], &after.servers[*name])), "they were read again");
    assert_eq!(after.servers.len(), 3);
}

#[test]
fn the_files_of_an_entry_stay_with_its_approval_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let programs = vec!["/p/a.mjs".to_owned()];
    let named = NamedFiles { missing: programs.clone(), programs, environment_file: Some("/p/.env".into()), ..NamedFiles::default() };
    let present = Present { makes: vec!["/p/b.mjs".into()], writes: vec!["/p".into()], ..Present::default() };
    let subject = Subject { named: named.clone(), present, ..subject("1") };
    let of = |now: SystemTime| {
        store.snapshot().unwrap().named_files(now).map(|(key, named)| (key.to_owned(), named.clone())).collect::<Vec<_>>()
    };
    let now = SystemTime::now();
    let basis = store.yes_to_command(&subject, Some(Duration::from_mins(5))).unwrap();
    assert_eq!(of(now), [("a".to_owned(), named.clone())]);
    // The approval of the tools has the files of the command's approval.
    let of_tools = Subject { named: NamedFiles::default(), present: Present::default(), ..subject };
    store.approve_manifest(&of_tools, manifest(), None, &basis).unwrap();
    let approval = store.approval("a").unwrap().unwrap();
    assert_eq!((approval.makes, approval.writes), (vec!["/p/b.mjs".to_owned()], vec!["/p".to_owned()]));
    assert_eq!(of(now), [("a".to_owned(), named)]);
    assert!(of(now + Duration::from_mins(6)).is_empty(), "an approval that has expired keeps nothing");
    store.revoke("a").unwrap();
    assert!(of(now).is_empty());
}

#[test]
fn the_next_end_is_that_of_the_first_approval_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let now = SystemTime::now();
    let minutes = |now: SystemTime| {
        let end = store.snapshot().unwrap().next_end(now)?;
        end.duration_since(now).ok().map(|left| left.as_secs().div_ceil(60))
    };
    let approve = |key: &str, valid_for| store.yes_to_command(&Subject { key: key.into(), ..subject("1") }, valid_for).unwrap();
    approve("forever", None);
    assert_eq!(minutes(now), None);
    approve("long", Some(Duration::from_mins(50)));
    approve("short", Some(Duration::from_mins(10)));
    assert!(matches!(minutes(now), Some(10 | 11)));
    assert!(matches!(minutes(now + Duration::from_mins(20)), Some(30 | 31)));
    assert_eq!(minutes(now + Duration::from_hours(2)), None);
}

/// The request of a server names other servers, so it is another one when one of them is approved, also by another process.
#[test]
fn an_approval_whose_request_depends_on_other_servers_is_refused_if_one_was_approved_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (open(folder.path()), open(folder.path()));
    let basis = store.basis("a").unwrap();
    let seen = store.basis_with_others("a", &basis).unwrap();
    let b = Subject { server: "b".into(), key: "b".into(), ..subject("1") };
    other.yes_to_command(&b, None).unwrap();
    let error = store.approve_command(&subject("1"), None, &seen).unwrap_err();
    assert!(error.code() == "ERR_DIGEST_CHANGED" && store.approval("a").unwrap().is_none());
    let seen = store.basis_with_others("a", &basis).unwrap();
    assert!(store.approve_command(&subject("1"), None, &seen).is_ok());
    // The server's own approval is no other.
    let seen = store.basis_with_others("a", &store.basis("a").unwrap()).unwrap();
    other.yes_to_command(&subject("1"), None).unwrap();
    assert!(store.approve_command(&subject("1"), None, &seen).is_ok());
}
