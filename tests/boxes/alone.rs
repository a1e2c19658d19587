//! Boxes on a machine without namespaces: in the namespace of these tests, `user.max_user_namespaces` is 0.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hyperlight_mcp::boxes::Report;
use hyperlight_mcp::boxes::build::Step;
use hyperlight_mcp::config::{BoxBase, BoxSettings};

use super::scene::{self, ATTACKER, Scene, failed_step};
use super::{SHELL, holds_alone};

#[test]
fn a_server_runs_with_its_files_its_home_and_a_temporary_folder_of_its_own() {
    let scene = Scene::bare();
    let (read, write) = (scene.folder("read"), scene.folder("write"));
    fs::write(read.join("file"), "text").unwrap();
    let script = format!(
        "read line; cat {0}/file; echo $line > {1}/new; pwd; echo x > $TMPDIR/x && cat $TMPDIR/x; exit 7",
        read.display(),
        write.display()
    );
    let mut command = scene.command(SHELL, &["-c", &script]);
    (command.read, command.write) = (vec![read], vec![write.clone()]);
    let ran = command.run("a line\n");
    if !holds_alone() {
        assert_refused(&ran, "limit files, signals and sockets");
        return;
    }
    let output = format!("text{}\nx\n", scene.home().display());
    assert_eq!((ran.report, ran.output, ran.status), (Some(Report::Ready), output, Some(7)), "{}", ran.errors);
    assert_eq!(fs::read_to_string(write.join("new")).unwrap(), "a line\n");
    assert!(fs::read_dir(scene.home()).unwrap().next().is_none(), "the temporary folder ends with the server");
}

/// Asserts that nothing was started, and that the error names the remedy.
fn assert_refused(ran: &scene::Ran, told: &str) {
    assert_eq!((failed_step(ran), ran.status, ran.output.as_str()), (Some(Step::Namespaces.name()), Some(125), ""), "{ran:?}");
    let Some(Report::Failed { problem, .. }) = &ran.report else { panic!() };
    assert!(problem.contains(told) && problem.contains("user.max_user_namespaces"), "{problem}");
}

#[test]
fn what_would_not_hold_is_refused_with_the_remedy() {
    let scene = Scene::bare();
    let mut nested = scene.command(SHELL, &["-c", "touch ran"]);
    nested.settings.is_nested = true;
    let mut hiding = scene.command(SHELL, &["-c", "touch ran"]);
    // The gateway's own folder is within.
    hiding.read = vec![scene.path("")];
    let mut keeping = scene.command(SHELL, &["-c", "touch ran"]);
    (keeping.write, keeping.read) = (vec![scene.folder("all")], vec![scene.folder("all/kept")]);
    for (command, told) in [(nested, "let a browser make namespaces"), (hiding, "hide"), (keeping, "from being written")] {
        let told = if holds_alone() { told } else { "limit files, signals and sockets" };
        assert_refused(&command.run(""), told);
    }
    assert!(fs::read_dir(scene.home()).unwrap().next().is_none());
}

/// A process that lets nobody look into its memory is not in such a table, so it would not be counted and ended.
#[test]
fn a_table_that_hides_processes_is_refused() {
    // Others cannot mount the table.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::bare_and_hiding();
    let told = if holds_alone() { "because /proc hides some (mount it with hidepid=0)" } else { "limit files, signals and sockets" };
    assert_refused(&scene.command(SHELL, &["-c", "touch ran"]).run(""), told);
    assert!(fs::read_dir(scene.home()).unwrap().next().is_none());
}

/// While boxes with namespaces run, the next box must have namespaces too.
#[test]
fn a_machine_whose_namespaces_are_all_in_use_has_no_box_without_them() {
    let scene = Scene::full();
    let ran = scene.command(SHELL, &["-c", "touch ran"]).run("");
    assert_refused(&ran, "or all that it allows are in use");
    let Some(Report::Failed { problem, .. }) = &ran.report else { panic!() };
    assert!(!problem.contains("without namespaces"), "{problem}");
    assert!(fs::read_dir(scene.home()).unwrap().next().is_none());
}

#[test]
fn what_a_server_leaves_behind_ends_with_it_and_with_the_outer_process() {
    if !holds_alone() {
        return;
    }
    let scene = Scene::bare();
    let alive = scene.home().join("alive");
    let attempt = format!("outlive\t{}\n", alive.display());
    let ran = scene.command(&ATTACKER, &[]).run(&attempt);
    assert!(ran.status == Some(0) && ran.output.starts_with("done\t"), "{ran:?}");
    super::assert_still(&scene);

    fs::remove_file(&alive).unwrap();
    let mut running = scene.command(&ATTACKER, &[]).start(&attempt);
    scene::until("the process that was left behind", || alive.exists());
    // As the watchdog does it, which ends the whole process group.
    running.kill_group();
    scene::until("its end", || is_still(&alive));
}

fn is_still(file: &Path) -> bool {
    let before = fs::read(file).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    before == fs::read(file).unwrap()
}

#[test]
fn what_uses_more_than_it_may_is_ended() {
    if !holds_alone() {
        return;
    }
    let settings = BoxSettings { memory_mb: 200, processes: 20, ..BoxSettings::of(BoxBase::Strict) };
    for (attempt, told) in
        [("use memory without end", "MiB of memory, and its box allows 200"), ("fork without end", "more than 20 processes")]
    {
        let scene = Scene::bare();
        let mark = format!("--mark={}", scene.path("").display());
        let mut command = scene.command(&ATTACKER, &[&mark]);
        command.settings = settings.clone();
        let ran = command.run(&format!("{attempt}\n"));
        assert!(ran.status == Some(124) && ran.errors.contains(told), "{attempt}: {ran:?}");
        assert_eq!(scene::processes_with(&mark), 0, "{attempt}");
    }
    let scene = Scene::bare();
    let mut command = scene.command(&ATTACKER, &[]);
    command.home_bytes = Some(4 << 20);
    let ran = command.run(&format!("fill\t{}\n", scene.home().join("all").display()));
    assert!(ran.status == Some(124) && ran.errors.contains("more than 4 MiB"), "{ran:?}");
}
