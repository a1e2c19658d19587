//! Limits that the kernel enforces by a cgroup. If the machine delegates no cgroup, a box that needs one is not made, and these tests show
//! that instead. The emulated machine has one, for root and, delegated, for a user without rights.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hyperlight_mcp::boxes::build::Step;
use hyperlight_mcp::boxes::{BoxPartName, BoxesReport, Report};
use hyperlight_mcp::config::{BoxBase, BoxSettings};

use super::scene::{self, ATTACKER, BOX, Scene, failed_step};

/// The usual mount point of cgroup v2.
const GROUPS: &str = "/sys/fs/cgroup";
/// Set in a process for which a group was made.
const DELEGATED: &str = "HYPERLIGHT_MCP_TEST_DELEGATED";
const USER: u32 = 61_234;

/// Returns what the machine has of boxes.
fn machine() -> BoxesReport {
    let output = Command::new(BOX.as_str()).arg("--probe").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns whether a box gets a cgroup with all limits.
fn has_group() -> bool {
    let parts = machine().parts;
    let group = parts.iter().find(|part| part.name == BoxPartName::Cgroup).unwrap();
    let has = group.detail.as_deref() == Some("memory, pids, cpu");
    let is_root_of_emulated = scene::is_emulated() && rustix::process::geteuid().is_root();
    let must_have = is_root_of_emulated || std::env::var_os(DELEGATED).is_some();
    assert!(has || !must_have, "{group:?}");
    has
}

/// Returns the folders of cgroups that belong to the box of this process. Their names end with the time at which the process started.
fn left_of(id: u32) -> Vec<PathBuf> {
    let name = format!("hyperlight-mcp-box-{id}-");
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(GROUPS)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
            if entry.file_name().to_string_lossy().starts_with(&name) {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found
}

#[test]
fn the_machine_has_all_that_a_box_needs() {
    let report = machine();
    assert!(report.available, "{report:?}");
    assert_eq!(report.parts.len(), 7);
    for part in report.parts.iter().filter(|part| !part.available) {
        assert!(part.problem.is_some() && part.remedy.is_some(), "{part:?}");
    }
}

#[test]
fn processor_time_is_limited_or_nothing_is_started() {
    let scene = Scene::new();
    let mut command = scene.command(&ATTACKER, &[]);
    command.settings = BoxSettings { cpu_percent: Some(20), ..BoxSettings::of(BoxBase::Standard) };
    let ran = command.run("use all processor time\n");
    if has_group() {
        assert!(ran.report == Some(Report::Ready) && ran.output.starts_with("refused\t"), "{ran:?}");
        assert_eq!(left_of(ran.id), Vec::<PathBuf>::new());
    } else {
        assert_eq!(failed_step(&ran), Some(Step::MakeGroup.name()), "{ran:?}");
        let Some(Report::Failed { problem, .. }) = ran.report else { panic!() };
        assert!(problem.contains("systemd-run") && problem.contains("leave cpuPercent out"), "{problem}");
    }
}

/// Only the kernel can count files without a name.
#[test]
fn memory_in_files_without_a_name_counts_where_there_is_a_group() {
    let scene = Scene::new();
    let mut command = scene.command(&ATTACKER, &[]);
    command.settings = BoxSettings { memory_mb: 64, ..BoxSettings::of(BoxBase::Standard) };
    let ran = command.run("use memory without a name\n");
    if has_group() {
        assert!(ran.status == Some(124) && ran.errors.contains("more than 64 MiB of memory, and its box allows 64"), "{ran:?}");
    } else {
        assert!(ran.output.starts_with("done\t"), "{ran:?}");
    }
}

#[test]
fn a_group_whose_box_was_killed_is_removed_by_the_next_box() {
    let scene = Scene::new();
    let mut running = scene.command(&ATTACKER, &[]).start("outlive\t/box/home/alive\n");
    scene::until("the server", || scene.home().join("alive").exists());
    let id = running.id();
    assert_eq!(!left_of(id).is_empty(), has_group());
    running.kill();
    scene::until("the removal of its group", || {
        scene.command("/bin/true", &[]).run("");
        left_of(id).is_empty()
    });
}

/// Runs the tests of this file again as a user without rights to whom a cgroup was delegated, as systemd does. A machine without one has nothing to delegate.
#[test]
fn all_of_it_holds_in_a_delegated_group() {
    if !rustix::process::geteuid().is_root() || !has_group() {
        return;
    }
    let whole = Path::new(GROUPS).join(format!("delegated-{}", std::process::id()));
    let agent = whole.join("agent");
    fs::create_dir_all(&agent).unwrap();
    for folder in [&whole, &agent] {
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            chown(folder.join(file), Some(USER), Some(USER)).unwrap();
        }
    }
    let (folder, programs) = super::installed();
    let mut tests = Command::new(programs);
    let entered = agent.join("cgroup.procs");
    tests.args(["groups::", "--test-threads", "1"]).env(scene::PROGRAMS, folder.path()).env(DELEGATED, "1").current_dir("/");
    // SAFETY: nothing else runs in this process between fork and exec; the call writes a file.
    unsafe { tests.pre_exec(move || fs::write(&entered, "0").and_then(|()| become_user())) };
    let output = tests.stdin(Stdio::null()).output().unwrap();
    // What a killed box has left may still be about to end.
    for folder in [&agent, &whole] {
        scene::until("an empty group", || fs::remove_dir(folder).is_ok());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && super::passed(&said) == 5, "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn become_user() -> std::io::Result<()> {
    // SAFETY: takes integers. Rust's own way would change the user before the group is entered, which needs root.
    let result = unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(USER) | libc::setuid(USER) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
