//! Tests of files that have other names: by hard links, and by further mounts.

use super::*;
use crate::boxes::OwnFileUse;

#[test]
fn a_program_with_another_name_in_a_written_folder_prevents_the_box() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/opt/b.mjs",
        "/home/ada/opt/own.mjs",
        "/home/ada/p/x/y",
        "/home/ada/p/kept/z",
    ];
    let kept = |path: &str| Kept { path: path.into(), owner: Owner::Server("b".into()) };
    let linked = |line: &'static str| machine(&lines.into_iter().chain([line]).collect::<Vec<_>>());
    let mut server = entry("/usr/bin/node", &["/home/ada/opt/own.mjs", "/home/ada/p"]);
    server.kept = vec![kept("/home/ada/opt/b.mjs"), kept("/home/ada/p/kept")];
    assert!(server.contents(&machine(&lines)).is_ok());
    for (line, known) in [
        ("/home/ada/p/x/.h same as /home/ada/opt/b.mjs", "/home/ada/opt/b.mjs"),
        ("/home/ada/p/x/.h same as /home/ada/opt/own.mjs", "/home/ada/opt/own.mjs"),
    ] {
        let problem = server.contents(&linked(line)).unwrap_err();
        assert!(problem.contains("/home/ada/p/x/.h") && problem.contains(known) && problem.contains("hard link"), "{problem}");
    }
    // Within a folder that is kept read-only, no name can be written.
    assert!(server.contents(&linked("/home/ada/p/kept/h same as /home/ada/opt/b.mjs")).is_ok());
    let other = linked("/home/ada/p/x/.h same as /home/ada/p/x/y");
    assert!(server.contents(&other).is_ok());
    assert!(server.present(&other).iter().any(|said| said.contains("hard links, as pnpm") && said.contains("/home/ada/p/x/")));
    assert!(!server.present(&machine(&lines)).iter().any(|said| said.contains("hard links")));
}

/// A machine on which `/mnt` has a second mount of the folder `q`, whose files are those of `/home/ada/q`.
fn mounted_twice(point: &str) -> Machine {
    let files = ["q/b.mjs", "q/data/x", "q/mcp.json", "q/.state/store"];
    let plain = ["/usr/bin/node", "/home/ada/.state/store"].map(str::to_owned).into_iter();
    let plain = plain.chain(files.iter().map(|file| format!("/home/ada/{file}")));
    let folders = ["q", "q/data", "q/.state"];
    let same = files.iter().chain(&folders).map(|name| format!("{point}{} same as /home/ada/{name}", name.strip_prefix('q').unwrap()));
    let lines: Vec<String> = plain.chain(same).chain([format!("{point} mounts /home/ada/q")]).collect();
    machine(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_runs_outside_is_only_read_by_a_second_mount_too() {
    let within = mounted_twice("/home/ada/p/again");
    let kept = |path: &str, owner: Owner| Kept { path: path.into(), owner };
    let other = || Owner::Server("b".into());
    let server = |given: &str, kept: Vec<Kept>| Entry { write: vec![given.into()], kept, ..entry("/usr/bin/node", &[]) };
    for owner in [other(), Owner::Gateway] {
        let of = |given: &str| server(given, vec![kept("/home/ada/q/b.mjs", owner.clone())]).own(&within);
        assert_eq!(of("/home/ada/p"), ["w /home/ada/p", "r /home/ada/p/again/b.mjs"]);
        assert_eq!(of("/home/ada/p/again"), ["w /home/ada/p/again", "r /home/ada/p/again/b.mjs"]);
        assert_eq!(of("/home/ada/p/again/data"), ["w /home/ada/p/again/data"]);
    }
    // The other way round: the entry names the program by the path of the second mount.
    let by_second = server("/home/ada/q", vec![kept("/home/ada/p/again/b.mjs", other())]);
    assert_eq!(by_second.own(&within), ["w /home/ada/q", "r /home/ada/q/b.mjs"]);
    let own = Entry { write: vec!["/home/ada/p".into()], ..entry("/usr/bin/node", &["/home/ada/q/b.mjs"]) };
    assert!(own.own(&within).contains(&"r /home/ada/p/again/b.mjs".to_owned()), "{:?}", own.own(&within));
}

#[test]
fn a_second_mount_within_what_runs_outside_is_not_written_unseen() {
    let machine = mounted_twice("/mnt");
    let with = |owner: Owner| Entry {
        write: vec!["/mnt/data".into()],
        kept: vec![Kept { path: "/home/ada/q".into(), owner }],
        ..entry("/usr/bin/node", &[])
    };
    assert!(with(Owner::Gateway).contents(&machine).unwrap_err().contains("a box must not write /mnt/data"));
    let has = |owner: Owner, sentence: &str| with(owner).present(&machine).iter().any(|said| said == sentence);
    assert!(has(Owner::Server("b".into()), "can change /mnt/data, and so can change what the server \"b\" runs"));
    assert!(has(Owner::MayRun("b".into()), "can change files in /mnt/data, from which the server \"b\" may run code"));
}

#[test]
fn an_own_file_within_a_second_mount_is_recognised() {
    let machine = mounted_twice("/home/ada/p/again");
    for (use_of, path) in [(OwnFileUse::Config, "mcp.json"), (OwnFileUse::Secret, "mcp.json"), (OwnFileUse::Config, "missing.json")] {
        let own_files = vec![OwnFile::new(Path::new("/home/ada/q").join(path), use_of)];
        let reading = Entry { read: vec!["/home/ada/p".into()], own_files, ..entry("/usr/bin/node", &[]) };
        let problem = reading.contents(&machine).unwrap_err();
        assert!(problem.contains(&format!("another name in this box, /home/ada/p/again/{path}: give")), "{problem}");
    }
}

#[test]
fn the_gateways_own_folder_is_not_given_by_a_second_mount() {
    let machine = mounted_twice("/home/ada/p/again");
    for given in ["/home/ada/p", "/home/ada/p/again", "/home/ada/p/again/.state"] {
        let own_folders = vec!["/home/ada/q/.state".into()];
        let server = Entry { read: vec![given.into()], own_folders, ..entry("/usr/bin/node", &[]) };
        let problem = server.contents(&machine).unwrap_err();
        assert!(problem.contains("/home/ada/q/.state, this gateway's own folder, has another name in this box"), "{problem}");
    }
}

#[test]
fn a_hard_link_is_not_hidden_from_the_search() {
    let lines = ["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/x/h same as /home/ada/opt/b.mjs", "/home/ada/opt/b.mjs"];
    let with = |more: Vec<String>| machine(&lines.into_iter().chain(more.iter().map(String::as_str)).collect::<Vec<_>>());
    let mut server = entry("/usr/bin/node", &["/home/ada/p"]);
    let of = |server: &Entry, machine: &Machine| server.contents(machine).map(drop);
    let closed = with(vec!["closed /home/ada/p/x".to_owned()]);
    let many = with((0..600).map(|number| format!("/home/ada/p/y/{number}")).collect());
    for (machine, sentence) in [(&closed, "in /home/ada/p/x, so"), (&many, "more than 100 files")] {
        assert!(server.present(machine).iter().any(|said| said.contains(sentence)), "{:?}", server.present(machine));
        assert_eq!(of(&server, machine), Ok(()), "no program of another server is at stake");
    }
    server.kept = vec![Kept { path: "/home/ada/opt/b.mjs".into(), owner: Owner::Server("b".into()) }];
    for (machine, reason) in [(&closed, "/home/ada/p/x cannot be looked at"), (&many, "more than 500 files")] {
        let problem = of(&server, machine).unwrap_err();
        assert!(problem.contains("/home/ada/opt/b.mjs, a program") && problem.contains(reason), "{problem}");
    }
}

#[test]
fn what_cannot_be_looked_at_is_not_taken_for_missing() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/x/b.mjs",
        "/home/ada/p/x/base.json",
        "/home/ada/p/x/docker.sock=",
        "closed /home/ada/p/x",
    ];
    let machine = machine(&lines);
    let reason = "because /home/ada/p/x cannot be searched";
    let at = |owner: Owner, access: Access| {
        let mut server = entry("/usr/bin/node", &[]);
        server.kept = vec![Kept { path: "/home/ada/p/x/b.mjs".into(), owner }];
        *if access == Access::Write { &mut server.write } else { &mut server.read } = vec!["/home/ada/p".into()];
        server
    };
    for owner in [Owner::Gateway, Owner::Server("b".into())] {
        let problem = at(owner.clone(), Access::Write).contents(&machine).unwrap_err();
        assert!(problem.contains("must not change /home/ada/p/x/b.mjs, ") && problem.contains(reason), "{problem}");
        assert!(at(owner, Access::Read).contents(&machine).is_ok());
    }
    assert!(at(Owner::MayRun("b".into()), Access::Write).contents(&machine).is_ok());
    let mut server = entry("/usr/bin/node", &["/home/ada/p"]);
    server.own_files = vec![OwnFile::new("/home/ada/p/x/base.json", OwnFileUse::Base)];
    assert!(server.contents(&machine).unwrap_err().contains(reason));
    server.own_files = vec![];
    server.services = vec![Service { name: "Docker", socket: "/home/ada/p/x/docker.sock".into() }];
    assert!(server.contents(&machine).unwrap_err().contains("the socket of Docker is within"));
}

/// Containers get sockets in this way: the socket is mounted over a file that was made for it. The folder lists it as this file.
#[test]
fn a_socket_that_is_mounted_over_a_file_is_recognised() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/in/docker.sock=",
        "/home/ada/p/in/docker.sock mounts /real.sock",
        "/home/ada/p/in/other mounts /other",
        "/home/ada/p-other/docker.sock",
    ];
    let machine = machine(&lines);
    let listed = machine.entries(Path::new("/home/ada/p/in"), 10).unwrap();
    assert_eq!(listed[0].kind, Kind::File);
    let of = |path: &str| Entry { read: vec![path.into()], ..entry("/usr/bin/node", &[]) }.contents(&machine).map(drop);
    for folder in ["/home/ada/p", "/home/ada/p/in"] {
        assert!(of(folder).unwrap_err().contains("the socket of Docker is within, /home/ada/p/in/docker.sock"), "{folder}");
    }
    assert_eq!(of("/home/ada/p-other"), Ok(()));
    assert_eq!(of("/home/ada/p/in/docker.sock"), Ok(()), "a person has named it");
}

#[test]
fn a_socket_of_a_program_that_takes_commands_is_recognised_in_any_place() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/t/tmux-1000/default=",
        "/home/ada/p/app.sock=",
        "/home/ada/q/app.sock=",
        "/home/ada/r/tmux-1000/default",
        "/mnt/docker.sock= same as /run/docker.sock",
        "/run/docker.sock=",
        "/mnt/ same as /run",
        "/mnt mounts /run",
    ];
    let machine = machine(&lines);
    let of = |read: &[&str]| {
        let mut server = entry("/usr/bin/node", &[]);
        server.read = read.iter().map(PathBuf::from).collect();
        server.contents(&machine).map(drop)
    };
    let socket = "/home/ada/p/t/tmux-1000/default";
    for folder in ["/home/ada/p", "/home/ada/p/t", "/home/ada/p/t/tmux-1000"] {
        let problem = of(&[folder]).unwrap_err();
        assert!(problem.contains("the socket of tmux is within") && problem.contains(socket), "{problem}");
    }
    for read in [&["/home/ada/q"][..], &["/home/ada/r"], &[socket], &["/home/ada/p", socket]] {
        assert_eq!(of(read), Ok(()), "{read:?}");
    }
    let mut server = entry("/usr/bin/node", &[]);
    server.read = vec!["/mnt".into()];
    assert!(server.contents(&machine).unwrap_err().contains("the socket of Docker is within, /mnt/docker.sock"));
}

/// The config, an `envFile`, tokens and keys can lie outside of all given folders, but have another name within a given folder.
#[test]
fn an_own_file_with_another_name_in_a_given_folder_prevents_the_box() {
    let lines = ["/usr/bin/node", "/home/ada/.state/store", "/home/ada/conf/own", "/home/ada/p/x/y", "/home/ada/q/"];
    let linked = |line: &'static str| machine(&lines.into_iter().chain([line]).collect::<Vec<_>>());
    let other_name = linked("/home/ada/p/x/h same as /home/ada/conf/own");
    let with = |access: Access, use_of: OwnFileUse| {
        let (read, write) =
            if access == Access::Read { (vec!["/home/ada/p".into()], vec![]) } else { (vec![], vec!["/home/ada/p".into()]) };
        let own_files = vec![OwnFile::new("/home/ada/conf/own", use_of)];
        Entry { read, write, own_files, ..entry("/usr/bin/node", &[]) }
    };
    for access in [Access::Read, Access::Write] {
        for use_of in [OwnFileUse::Config, OwnFileUse::Secret, OwnFileUse::Variables { by_this: false }] {
            let problem = with(access, use_of).contents(&other_name).unwrap_err();
            let said = "/home/ada/p/x/h, which this box would have, is another name (a hard link) of /home/ada/conf/own, ";
            assert!(problem.starts_with(said), "{problem}");
            for elsewhere in [machine(&lines), linked("/home/ada/q/h same as /home/ada/conf/own")] {
                assert!(with(access, use_of).contents(&elsewhere).is_ok());
            }
        }
        // A base brings only entries that need an approval.
        assert!(with(access, OwnFileUse::Base).contents(&other_name).is_ok());
    }
    let many: Vec<String> = (0..600).map(|number| format!("/home/ada/p/y/{number}")).collect();
    let outside = "/home/ada/q/h same as /home/ada/conf/own";
    let many = machine(&lines.into_iter().chain([outside]).chain(many.iter().map(String::as_str)).collect::<Vec<_>>());
    let problem = with(Access::Read, OwnFileUse::Config).contents(&many).unwrap_err();
    assert!(
        problem.contains("/home/ada/conf/own, this gateway's config, has another name") && problem.contains("more than 500 files"),
        "{problem}"
    );
}
