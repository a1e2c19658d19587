//! Tests of boxes, with the program `hyperlight-mcp-box` alone: what a process in a box can do, and what happens if a box cannot be made.

mod alone;
mod escapes;
mod faults;
mod groups;
mod network;
mod quic;
mod scene;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hyperlight_mcp::boxes::build::Step;
use hyperlight_mcp::boxes::{OwnFile, OwnFileUse, Report};
use hyperlight_mcp::config::{BoxBase, BoxSettings};

use scene::{Scene, failed_step};

const SHELL: &str = "/bin/sh";

#[test]
fn a_process_in_a_box_reads_and_writes_its_pipes_and_ends_with_its_status() {
    let scene = Scene::new();
    let ran = scene.command(SHELL, &["-c", "read line; echo got $line; echo told >&2; exit 7"]).run("a line\n");
    assert_eq!((ran.report, ran.output.as_str(), ran.status), (Some(Report::Ready), "got a line\n", Some(7)));
    assert_eq!(ran.errors, "told\n");
    assert_eq!(scene.command(SHELL, &["-c", "kill -9 $$"]).run("").status, Some(137));
}

#[test]
fn the_private_home_is_kept_and_the_private_tmp_is_not() {
    let scene = Scene::new();
    let script = "cat $HOME/kept /tmp/kept; echo here | tee /tmp/kept > $HOME/kept; pwd; id -un";
    let first = scene.command(SHELL, &["-c", script]).run("");
    let second = scene.command(SHELL, &["-c", script]).run("");
    assert_eq!([first.output, second.output], ["/box/home\nbox\n", "here\n/box/home\nbox\n"]);
}

/// No folder gets the set-group-ID bit in a box, but new folders inherit it from a folder that has it.
#[test]
fn a_shared_repository_is_made_where_its_folder_has_the_bit_already() {
    let scene = Scene::new();
    for (mode, is_made) in [(0o775, false), (0o2775, true)] {
        let folder = scene.folder(&format!("shared-{mode:o}"));
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let script = format!("cd {} && umask 002 && git init --quiet --shared it && git -C it rev-parse --git-dir", folder.display());
        let mut command = scene.command(SHELL, &["-c", &script]);
        command.write = vec![folder.clone()];
        let ran = command.run("");
        assert_eq!((ran.status == Some(0), ran.output == ".git\n"), (is_made, is_made), "{ran:?}");
        assert!(is_made || ran.errors.contains("permission") || ran.errors.contains("writable by group"), "{}", ran.errors);
    }
}

#[test]
fn named_folders_are_read_or_written_and_links_in_their_paths_are_refused() {
    let scene = Scene::new();
    let (read, write) = (scene.folder("read"), scene.folder("write"));
    fs::write(read.join("file"), "text").unwrap();
    let script = format!("cat {0}/file; echo x > {1}/new && cat {1}/new; echo x > {0}/new", read.display(), write.display());
    let mut command = scene.command(SHELL, &["-c", &script]);
    (command.read, command.write) = (vec![read.clone()], vec![write]);
    let ran = command.run("");
    assert_eq!(ran.output, "textx\n");
    assert!(ran.errors.contains("Read-only") && !read.join("new").exists(), "{}", ran.errors);

    std::os::unix::fs::symlink(&read, scene.path("link")).unwrap();
    let mut command = scene.command(SHELL, &["-c", "true"]);
    command.write = vec![scene.path("link")];
    let ran = command.run("");
    assert_eq!(failed_step(&ran), Some(Step::OpenPaths.name()));
    let Some(Report::Failed { problem, .. }) = ran.report else { panic!() };
    assert!(problem.contains(&format!("write {} instead", read.display())), "{problem}");
}

/// A config is usually in a folder that can be written. All other files of the folder can be used as before.
#[test]
fn a_config_in_a_written_folder_can_be_neither_read_nor_changed_nor_replaced() {
    let scene = Scene::new();
    let (ws, deep) = (scene.folder("ws"), scene.folder("ws/a/b"));
    let (config, inner, variables) = (ws.join("mcp.json"), deep.join("mcp.json"), ws.join(".env"));
    for path in [&config, &inner, &variables] {
        fs::write(path, "kept").unwrap();
    }
    fs::write(ws.join("other"), "other").unwrap();
    let own = |path: &PathBuf, use_of| OwnFile::new(path, use_of);
    let attempts = [
        "cat mcp.json",
        "cat a/b/mcp.json",
        "chmod 777 mcp.json && cat mcp.json",
        "echo evil > mcp.json",
        "echo evil >> .env",
        "rm -f mcp.json a/b/mcp.json",
        "echo evil > new; mv -f new mcp.json",
        "ln -f other mcp.json",
        "ln mcp.json copy && cat copy",
        "mv mcp.json moved && cat moved",
        "mv a z && mkdir -p a/b && echo evil > a/b/mcp.json",
        "mv a/b a/z && mkdir a/b && echo evil > a/b/mcp.json",
        "cp -r a taken && rm -rf a && mv taken a && echo evil > a/b/mcp.json",
    ];
    let mut script = format!("cd {}\n", ws.display());
    for attempt in attempts {
        script.extend(["(", attempt, ") > /dev/null 2>&1 && echo 'done: ", attempt, "'\n"]);
    }
    script += "cat .env other; echo ' new' > a/b/new; mkdir -p a/c; mv a/b/new a/c/new; rm other; cat a/c/new";
    let mut command = scene.command(SHELL, &["-c", &script]);
    command.write = vec![ws.clone()];
    command.own_files = vec![
        own(&config, OwnFileUse::Config),
        own(&inner, OwnFileUse::Variables { by_this: false }),
        own(&variables, OwnFileUse::Variables { by_this: true }),
    ];
    let ran = command.run("");
    assert_eq!((ran.output.as_str(), ran.report), ("keptother new\n", Some(Report::Ready)), "{}", ran.errors);
    for path in [&config, &inner, &variables] {
        assert_eq!(fs::read_to_string(path).unwrap(), "kept", "{}", path.display());
    }
    assert!(ws.join("a/c/new").exists() && !ws.join("other").exists());
}

/// Each box has the folders of the system.
#[test]
fn a_config_in_a_folder_of_the_system_can_not_be_read() {
    // Only root can put a file there.
    let Ok(folder) = tempfile::Builder::new().prefix("hyperlight-mcp-box-").tempdir_in("/usr/local/share") else { return };
    let (config, other) = (folder.path().join("mcp.json"), folder.path().join("other"));
    fs::write(&config, "kept").unwrap();
    fs::write(&other, "other").unwrap();
    let scene = Scene::new();
    let script = format!("cat {} {}", config.display(), other.display());
    let mut command = scene.command(SHELL, &["-c", &script]);
    command.own_files = vec![OwnFile::new(config, OwnFileUse::Config)];
    let ran = command.run("");
    assert_eq!((ran.output.as_str(), ran.report), ("other", Some(Report::Ready)), "{}", ran.errors);
}

/// A read-only folder within a writable one keeps its path, so that its content cannot be replaced.
#[test]
fn a_folder_above_one_that_can_only_be_read_is_not_moved() {
    let scene = Scene::new();
    let (write, read) = (scene.folder("ws"), scene.folder("ws/a/read"));
    fs::write(read.join("file"), "kept").unwrap();
    let script = format!("cd {}; mv a z && mkdir -p a/read && echo evil > a/read/file; touch a/new && ls a", write.display());
    let mut command = scene.command(SHELL, &["-c", &script]);
    (command.read, command.write) = (vec![read.clone()], vec![write]);
    assert_eq!(command.run("").output, "new\nread\n");
    assert_eq!(fs::read_to_string(read.join("file")).unwrap(), "kept");
}

/// A missing working folder is made in the box, and never on the disk of the machine.
#[test]
fn a_missing_working_folder_is_not_made_in_a_folder_that_was_given() {
    let scene = Scene::new();
    let write = scene.folder("write");
    let mut command = scene.command(SHELL, &["-c", "pwd"]);
    (command.write, command.working_directory) = (vec![write.clone()], write.join("a/b"));
    let ran = command.run("");
    assert_eq!((failed_step(&ran), ran.output.as_str()), (Some(Step::EnterFolder.name()), ""), "{ran:?}");
    assert!(fs::read_dir(&write).unwrap().next().is_none());
    command.working_directory = scene.path("elsewhere/a");
    assert_eq!(command.run("").output, format!("{}\n", scene.path("elsewhere/a").display()));
    assert!(!scene.path("elsewhere").exists());
}

/// A user without rights may lower the priority of a process, but not raise it again. So a box does not change it.
#[test]
fn a_server_keeps_the_little_urgency_with_which_it_was_started() {
    const POLICY: &str = "cut -d ' ' -f 41 /proc/self/stat";
    let idle = std::thread::spawn(|| {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the id 0 is this thread, and the parameters live during the call. A process that this thread starts has its policy.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }, 0);
        let scene = Scene::new();
        scene.command(SHELL, &["-c", POLICY]).run("")
    });
    let ran = idle.join().unwrap();
    assert_eq!(ran.output, format!("{}\n", libc::SCHED_IDLE), "{ran:?}");
    let scene = Scene::new();
    assert_eq!(scene.command(SHELL, &["-c", POLICY]).run("").output, format!("{}\n", libc::SCHED_OTHER));
}

/// The set-up is the same for all steps, so each is tried alone.
#[test]
fn each_step_that_fails_is_named_and_nothing_is_started() {
    let scene = Scene::new();
    for step in Step::ALL {
        let mut command = scene.command(SHELL, &["-c", "touch ran; echo ran"]);
        command.fails_at = Some(step.name());
        let ran = command.run("");
        assert_eq!((failed_step(&ran), ran.status, ran.output.as_str()), (Some(step.name()), Some(125), ""), "{step:?}");
    }
    assert!(fs::read_dir(scene.home()).unwrap().next().is_none());
}

/// Without namespaces, a box has fewer steps.
#[test]
fn each_step_without_namespaces_that_fails_is_named_too() {
    if !holds_alone() {
        return;
    }
    let scene = Scene::bare();
    let without = [
        Step::Namespaces,
        Step::UserMap,
        Step::PrivateMounts,
        Step::MakeNetwork,
        Step::OpenBorder,
        Step::MakeRoot,
        Step::MakeDevices,
        Step::WriteFiles,
        Step::HideFolders,
        Step::MountProcesses,
        Step::EnterRoot,
        Step::NameHost,
    ];
    for step in Step::ALL.into_iter().filter(|step| !without.contains(step)) {
        let mut command = scene.command(SHELL, &["-c", "touch ran; echo ran"]);
        command.fails_at = Some(step.name());
        let ran = command.run("");
        assert_eq!((failed_step(&ran), ran.status, ran.output.as_str()), (Some(step.name()), Some(125), ""), "{step:?}");
    }
}

#[test]
fn an_order_that_cannot_be_read_starts_nothing() {
    let scene = Scene::new();
    for bytes in [&b""[..], b"\0\0\0\x09{}", b"\0\0\0\x02{}", b"\xff\xff\xff\xff"] {
        let ran = scene.raw(bytes);
        assert_eq!((failed_step(&ran), ran.status), (Some(Step::ReadOrder.name()), Some(125)), "{bytes:?}");
    }
}

#[test]
fn what_a_server_leaves_behind_ends_with_its_box() {
    let scene = Scene::new();
    let ran = scene.attack(&BoxSettings::of(BoxBase::Standard), &[("outlive", "/box/home/alive".to_owned())]);
    assert_eq!(ran.len(), 1, "{ran:?}");
    assert_still(&scene);
}

#[test]
fn a_box_whose_outer_process_is_killed_ends_as_a_whole() {
    let scene = Scene::new();
    let mut running = scene.command(&scene::ATTACKER, &[]).start("outlive\t/box/home/alive\n");
    let alive = scene.home().join("alive");
    scene::until("the process that was left behind", || alive.exists());
    running.kill();
    scene::until("its end", || {
        let before = fs::read(&alive).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        before == fs::read(&alive).unwrap()
    });
}

/// Runs all tests of this file again as a user without rights. Does nothing if this process already belongs to such a user.
#[test]
fn all_of_it_holds_for_a_user_without_rights() {
    const SELF: &str = "all_of_it_holds_for_a_user_without_rights";
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (folder, programs) = installed();
    let mut tests = Command::new(programs);
    tests.args(["--skip", SELF, "--test-threads", "2"]);
    if scene::is_emulated() {
        // A debugger in a machine that is emulated takes minutes.
        tests.args(["--skip", "faults::"]);
    }
    tests.env(scene::PROGRAMS, folder.path()).current_dir("/");
    let output = tests.uid(61_234).gid(61_234).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && passed(&said) > 20, "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns how many tests have passed, as the program says at its end.
fn passed(said: &str) -> usize {
    let result = said.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    result.and_then(|result| result.split(' ').next()?.parse().ok()).unwrap_or_default()
}

/// Returns whether Landlock can hold a box alone on this machine. The kernel of Debian 12 has an older version, and then `alone` shows that nothing
/// is started.
fn holds_alone() -> bool {
    // SAFETY: with this flag, the kernel reads nothing and returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1_u32) };
    version >= 6
}

/// Copies this program, and those that it runs, into a folder that other users can read. Returns the folder and the program.
fn installed() -> (tempfile::TempDir, PathBuf) {
    let own = std::env::current_exe().unwrap();
    let folder = scene::install(&[own.as_os_str(), scene::BOX.as_str().as_ref(), scene::ATTACKER.as_str().as_ref()]);
    let program = folder.path().join(own.file_name().unwrap());
    (folder, program)
}

/// Asserts that no process changes the file `alive` any more.
fn assert_still(scene: &Scene) {
    let alive = scene.home().join("alive");
    let before = fs::read(&alive).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(before, fs::read(&alive).unwrap());
}

#[test]
fn what_uses_more_than_its_box_allows_is_ended() {
    let settings = BoxSettings { memory_mb: 200, processes: 20, ..BoxSettings::of(BoxBase::Strict) };
    for (attempt, told) in [
        ("use memory without end", "MiB of memory, and its box allows 200"),
        ("use memory without a main thread", "MiB of memory, and its box allows 200"),
        ("use memory that nobody counts", "MiB of memory, and its box allows 200"),
        ("fork without end", "more than 20 processes"),
        ("start threads without end", "threads, and its box allows 640"),
    ] {
        let scene = Scene::new();
        let started = Instant::now();
        let mark = format!("--mark={}", scene.path("").display());
        let mut command = scene.command(&scene::ATTACKER, &[&mark]);
        command.settings = settings.clone();
        let ran = command.run(&format!("{attempt}\n"));
        let held = ran.status == Some(124) && ran.errors.contains(told);
        // The kernel's own limit for a user who is not root holds before anything is counted.
        assert!(held || ran.output.starts_with("refused"), "{attempt}: {:?} {} {}", ran.status, ran.output, ran.errors);
        // Far above the usual time, as the emulated machine is slow beside other work.
        assert!(started.elapsed() < Duration::from_mins(2), "{attempt}");
        assert_eq!(scene::processes_with(&mark), 0, "{attempt}");
    }
}

/// Memory that the kernel keeps outside of processes is limited as well.
#[test]
fn what_a_box_keeps_outside_of_its_processes_is_limited() {
    let attempts = ["keep memory in segments", "keep memory in messages", "keep semaphores", "take all watches"];
    for (attempt, nested) in attempts.into_iter().flat_map(|attempt| [(attempt, false), (attempt, true)]) {
        let scene = Scene::new();
        let mut command = scene.command(&scene::ATTACKER, &[]);
        command.settings = BoxSettings { memory_mb: 16, is_nested: nested, ..BoxSettings::of(BoxBase::Standard) };
        let ran = command.run(&format!("{attempt}\n"));
        // Root can set limits of the kernel. For others, init counts.
        let held = ran.status == Some(124) && ran.errors.contains("MiB of memory, and its box allows 16");
        assert!(held || ran.output.starts_with("refused"), "{attempt}, nested: {nested}: {:?} {} {}", ran.status, ran.output, ran.errors);
    }
    let little = Scene::new().attack(&BoxSettings::of(BoxBase::Standard), &[("share memory", String::new())]);
    assert!(little.iter().all(|line| line.starts_with("done")), "{little:?}");
}

/// A folder that its owner may not read is counted too.
#[test]
fn a_private_home_beyond_its_size_ends_the_server() {
    for attempt in ["fill\t/box/home/all", "fill behind a closed folder\t/box/home/closed"] {
        let scene = Scene::new();
        let mut command = scene.command(&scene::ATTACKER, &[]);
        command.home_bytes = Some(4 << 20);
        let ran = command.run(&format!("{attempt}\n"));
        let told = "its private home has more than 4 MiB, which its box does not allow, so all of the server was ended";
        assert!(ran.status == Some(124) && ran.errors.contains(told), "{attempt}: {:?} {} {}", ran.status, ran.output, ran.errors);
    }
}
