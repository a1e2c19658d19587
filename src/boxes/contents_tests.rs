use super::*;
use crate::boxes::{Identity, Mount, Owner, present, services, socket_folders};

#[path = "code_tests.rs"]
mod code;
#[path = "other_names_tests.rs"]
mod other_names;
#[path = "own_files_tests.rs"]
mod own_files;
#[path = "refused_tests.rs"]
mod refused;
#[path = "socket_folders_tests.rs"]
mod socket_folders_tests;

/// A machine with these files. A path that ends with `/` is a folder. A path with ` -> ` is a link, with ` #! ` a script, with `=` a
/// socket, with ` same as ` another name of a file or folder, and with ` mounts ` a further mount of a folder. A path that begins with
/// `closed ` is a folder that cannot be searched. A path that begins with `shared ` is a folder in which all users make files.
#[derive(Default)]
struct Machine {
    kinds: BTreeMap<PathBuf, Kind>,
    links: BTreeMap<PathBuf, PathBuf>,
    scripts: BTreeMap<PathBuf, Vec<String>>,
    /// Other names of files, each with the known name of the same file.
    same: BTreeMap<PathBuf, PathBuf>,
    mounts: Vec<Mount>,
    /// Folders that this user cannot search.
    closed: BTreeSet<PathBuf>,
    /// Folders in which all users make files.
    shared: BTreeSet<PathBuf>,
}

fn machine(lines: &[&str]) -> Machine {
    let mut machine = Machine { mounts: vec![mount_at("/", "/")], ..Machine::default() };
    for line in lines {
        if let Some((from, to)) = line.split_once(" -> ") {
            machine.links.insert(from.into(), to.into());
            continue;
        }
        if let Some(folder) = line.strip_prefix("closed ") {
            machine.closed.insert(folder.into());
            continue;
        }
        if let Some(folder) = line.strip_prefix("shared ") {
            machine.shared.insert(folder.into());
            machine.kinds.extend(Path::new(folder).ancestors().map(|above| (above.to_owned(), Kind::Folder)));
            continue;
        }
        if let Some((point, root)) = line.split_once(" mounts ") {
            machine.mounts.push(mount_at(root, point));
            continue;
        }
        let (line, same) = line.split_once(" same as ").map_or((*line, None), |(line, same)| (line, Some(same)));
        if let Some(same) = same {
            machine.same.insert(line.trim_end_matches(['/', '=']).into(), same.into());
        }
        let (path, script) = line.split_once(" #! ").map_or((line, None), |(path, script)| (path, Some(script)));
        let (path, kind) = match (path.strip_suffix('/'), path.strip_suffix('=')) {
            (Some(folder), _) => (folder, Kind::Folder),
            (None, Some(socket)) => (socket, Kind::Other),
            (None, None) => (path, Kind::File),
        };
        if let Some(script) = script {
            machine.scripts.insert(path.into(), script.split(' ').map(str::to_owned).collect());
        }
        machine.kinds.insert(path.into(), kind);
        for folder in Path::new(path).ancestors().skip(1) {
            machine.kinds.entry(folder.to_owned()).or_insert(Kind::Folder);
        }
    }
    machine
}

fn mount_at(root: &str, point: &str) -> Mount {
    Mount { device: "8:1".to_owned(), root: root.into(), point: point.into() }
}

impl Machine {
    /// Returns whether a folder, or one above it, cannot be searched.
    fn is_closed(&self, folder: &Path) -> bool {
        folder.ancestors().any(|above| self.closed.contains(above))
    }
}

impl Lookup for Machine {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let mut plain = PathBuf::new();
        for part in path.components() {
            let is_parent = part == Component::ParentDir && plain.pop();
            if !is_parent {
                plain.push(part);
            }
        }
        let mut path = plain;
        for _ in 0..8 {
            let link = self.links.iter().find_map(|(from, to)| Some(to.join(path.strip_prefix(from).ok()?)));
            match link {
                Some(real) => path = real.components().collect(),
                None => return self.kinds.contains_key(&path).then_some(path),
            }
        }
        None
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.links.get(path).cloned()
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        self.kinds.get(&self.real(path)?).copied().filter(|_| !self.is_unknown(path))
    }

    fn interpreter(&self, path: &Path) -> Option<Vec<String>> {
        self.scripts.get(&self.real(path)?).cloned()
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let kind = self.kinds.get(path).filter(|_| !self.is_unknown(path))?;
        let own = self.same.get(path).map_or(path, PathBuf::as_path);
        let inode = self.kinds.keys().position(|known| known == own)? as u64;
        let names = 1 + self.same.values().filter(|same| *same == own).count() as u64;
        Some(Identity { device: 1, inode, names: (*kind == Kind::File).then_some(names) })
    }

    fn entries(&self, folder: &Path, most: usize) -> Option<Vec<crate::boxes::Entry>> {
        let within = self.kinds.iter().filter(|(path, _)| path.parent() == Some(folder));
        // The entry of a folder for a mount point has the kind of the file below the mount. In these tests, a socket is mounted over a file.
        let hidden = |path: &PathBuf| self.mounts.iter().any(|mount| mount.point == *path).then_some(Kind::File);
        let entries = within.map(|(path, kind)| crate::boxes::Entry {
            path: path.clone(),
            kind: if *kind == Kind::Other { hidden(path).unwrap_or(Kind::Other) } else { *kind },
        });
        (!self.is_closed(folder)).then(|| entries.take(most).collect())
    }

    fn is_unknown(&self, path: &Path) -> bool {
        path.parent().is_some_and(|folder| self.is_closed(folder))
    }

    fn is_shared(&self, path: &Path) -> bool {
        self.shared.contains(path)
    }

    fn mounts(&self) -> Vec<Mount> {
        self.mounts.clone()
    }

    fn is_program(&self, path: &Path) -> bool {
        self.kind(path) == Some(Kind::File) && path.ancestors().any(|folder| folder.ends_with("bin"))
    }
}

struct Entry {
    program: &'static str,
    arguments: Vec<String>,
    settings: BoxSettings,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    working_directory: Option<&'static Path>,
    services: Vec<Service>,
    own_files: Vec<OwnFile>,
    own_folders: Vec<PathBuf>,
    kept: Vec<Kept>,
}

fn entry(program: &'static str, arguments: &[&str]) -> Entry {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Entry {
        program,
        arguments,
        settings: BoxSettings::of(BoxBase::Standard),
        read: vec![],
        write: vec![],
        roots: vec![],
        working_directory: None,
        services: services(&BTreeMap::new(), Path::new("/home/ada"), 1000),
        own_files: vec![],
        own_folders: ["/home/ada/.state", "/home/ada/.cache/own"].map(PathBuf::from).into(),
        kept: vec![],
    }
}

impl Entry {
    fn with<T>(&self, made: impl FnOnce(&BoxInput<'_>) -> T) -> T {
        made(&BoxInput {
            settings: &self.settings,
            program: Path::new(self.program),
            arguments: &self.arguments,
            working_directory: self.working_directory,
            workspace: None,
            search_path: OsStr::new("/home/ada/.nvm/v22/bin:/usr/bin"),
            read: self.read.clone(),
            write: self.write.clone(),
            roots: self.roots.clone(),
            start_hosts: &BTreeSet::new(),
            user_home: Path::new("/home/ada"),
            own_folders: &self.own_folders,
            private_home: Path::new("/home/ada/.state/boxes/a"),
            services: &self.services,
            socket_folders: &socket_folders(&[("TMUX_TMPDIR".to_owned(), "/srv/tmux".to_owned())].into(), 1000),
            own_files: &self.own_files,
            kept: &|| self.kept.clone(),
            is_always_named: &|_| false,
        })
    }

    fn contents(&self, machine: &Machine) -> Result<(Contents, PathBuf), String> {
        self.with(|request| contents(request, machine))
    }

    fn present(&self, machine: &Machine) -> Vec<String> {
        self.with(|request| present(request, machine)).sentences
    }

    /// Returns what the box has besides the system's files, as `r PATH` or `w PATH`.
    fn own(&self, machine: &Machine) -> Vec<String> {
        let (contents, _) = self.contents(machine).unwrap();
        let own = contents.given.iter().filter(|given| given.link == Link::Refused);
        own.map(|given| format!("{} {}", if given.access == Access::Write { 'w' } else { 'r' }, given.path.display())).collect()
    }
}

fn home() -> Machine {
    machine(&[
        "/usr/bin/node",
        "/home/ada/.ssh/key",
        "/home/ada/.state/store",
        "/home/ada/.nvm/v22/bin/node",
        "/home/ada/.nvm/v22/bin/npx -> /home/ada/.nvm/v22/lib/node_modules/npm/npx.js",
        "/home/ada/.nvm/v22/lib/node_modules/npm/npx.js #! /usr/bin/env node",
        "/home/ada/p/node_modules/@x/s/index.js",
        "/home/ada/p/data/",
        "/home/ada/p/table.db",
        "/home/ada/q/package.json",
        "/home/ada/q/build/main.js",
        "/home/ada/.venv/bin/python -> /home/ada/uv/3.12/bin/python3",
        "/home/ada/.venv/pyvenv.cfg",
        "/home/ada/.venv/bin/",
        "/home/ada/uv/3.12/bin/python3",
        "/home/ada/uv/3.12/lib/",
        "/home/ada/bin/tool",
        "/home/ada/alone",
        "/run/docker.sock=",
        "/data/",
        "/link -> /home/ada/.ssh",
        "/home/ada/p/node_modules/linked -> /home/ada/p/node_modules/@x/s",
    ])
}

#[test]
fn a_program_of_the_system_needs_nothing_of_the_home() {
    assert!(entry("/usr/bin/node", &["-y", "name", "/api/v1"]).own(&home()).is_empty());
}

#[test]
fn a_runtime_comes_with_its_libraries_and_no_more() {
    let npx = entry("/home/ada/.nvm/v22/bin/npx", &[]);
    assert_eq!(npx.own(&home()), ["r /home/ada/.nvm/v22/bin", "r /home/ada/.nvm/v22/lib", "r /home/ada/.nvm/v22/lib/node_modules"],);
    assert_eq!(npx.contents(&home()).unwrap().1, Path::new("/home/ada/.nvm/v22/bin/npx"));
    let python = entry("/home/ada/.venv/bin/python", &[]);
    assert_eq!(python.own(&home()), ["r /home/ada/.venv", "r /home/ada/uv/3.12/bin", "r /home/ada/uv/3.12/lib"]);
    assert_eq!(python.contents(&home()).unwrap().1, Path::new("/home/ada/.venv/bin/python"));
    assert_eq!(entry("/home/ada/bin/tool", &[]).own(&home()), ["r /home/ada/bin"]);
    assert_eq!(entry("/home/ada/alone", &[]).own(&home()), ["r /home/ada/alone"]);
}

#[test]
fn a_script_in_the_arguments_comes_with_its_package_and_is_never_written() {
    assert_eq!(entry("/usr/bin/node", &["/home/ada/p/node_modules/@x/s/index.js"]).own(&home()), ["r /home/ada/p/node_modules"]);
    assert_eq!(entry("/usr/bin/node", &["/home/ada/q/build/main.js"]).own(&home()), ["r /home/ada/q"]);
    assert_eq!(entry("/usr/bin/sh", &["/home/ada/bin/tool"]).own(&home()), ["r /home/ada/bin/tool"], "a program without an ending");
}

#[test]
fn paths_in_arguments_and_roots_are_written_in_standard_and_read_in_strict() {
    let mut server = entry("/usr/bin/node", &["/home/ada/p/data", "--file=/data", "/home/ada/p/table.db"]);
    server.roots = vec!["/data".into()];
    assert_eq!(server.own(&home()), ["w /data", "w /home/ada/p/data", "w /home/ada/p/table.db"]);
    server.settings = BoxSettings::of(BoxBase::Strict);
    assert_eq!(server.own(&home()), ["r /data", "r /home/ada/p/data", "r /home/ada/p/table.db"]);
    server.settings = BoxSettings::of(BoxBase::Standard);
    server.read = vec!["/home/ada/p".into()];
    assert_eq!(server.own(&home()), ["w /data", "r /home/ada/p"], "`read` says so");
}

#[test]
fn relative_paths_are_those_of_the_working_folder_and_none_of_the_private_home() {
    let script = "node_modules/@x/s/index.js";
    let mut server = entry("/usr/bin/node", &[script, "./data", "data/../table.db", "table.db", "-data/", "@x/s", "file:data/"]);
    assert!(server.own(&home()).is_empty());
    server.working_directory = Some(Path::new("/home/ada/p"));
    assert!(server.contents(&home()).unwrap_err().contains("write /home/ada/p/table.db instead"));
    server.arguments.remove(2);
    assert_eq!(server.own(&home()), ["w /home/ada/p/data", "r /home/ada/p/node_modules"]);
    server.arguments = vec![".".into()];
    assert_eq!(server.own(&home()), ["w /home/ada/p"]);
    server.arguments = vec!["..".into()];
    assert!(server.contents(&home()).is_err() || server.own(&home()).is_empty(), "the home is not given");
}

#[test]
fn a_link_within_a_package_stays_a_link() {
    assert_eq!(entry("/usr/bin/node", &["/home/ada/p/node_modules/linked/index.js"]).own(&home()), ["r /home/ada/p/node_modules"]);
}

#[test]
fn home_state_folder_system_and_sockets_are_not_given_by_an_argument() {
    for argument in
        ["/", "/home", "/home/ada", "/home/ada/.state", "/home/ada/.state/store", "/usr", "/usr/bin/node", "/proc", "/run/docker.sock"]
    {
        assert!(entry("/usr/bin/node", &[argument]).own(&home()).is_empty(), "{argument}");
    }
}

#[test]
fn a_path_through_a_link_is_an_error_that_names_the_real_one() {
    let problem = entry("/usr/bin/node", &["/link/key"]).contents(&home()).unwrap_err();
    assert!(problem.contains("write /home/ada/.ssh/key instead"), "{problem}");
}

#[test]
fn a_virtual_environment_at_the_home_does_not_give_the_home() {
    let at_home =
        machine(&["/home/ada/bin/tool", "/home/ada/lib/", "/home/ada/pyvenv.cfg", "/home/ada/.ssh/key", "/home/ada/.state/store"]);
    assert_eq!(entry("/home/ada/bin/tool", &[]).own(&at_home), ["r /home/ada/bin", "r /home/ada/lib"]);
}

#[test]
fn a_first_line_gives_the_interpreter_and_nothing_that_only_looks_like_one() {
    for (line, given) in [
        ("/usr/bin/env node", true),
        ("/usr/bin/env -S node --flag", true),
        ("/usr/bin/env -S A=1 node", true),
        ("/usr/bin/env -S -u /home/ada/q/bin/run node", false),
        ("/usr/bin/env -S --chdir /home/ada/q/bin/run node", false),
        ("/usr/bin/env -S A=/home/ada/q/bin/run", false),
        ("/usr/bin/env -S A='x /home/ada/q/bin/run y=' node", false),
        ("/usr/bin/env /home/ada/q/bin/run", false),
    ] {
        let line = format!("/home/ada/script #! {line}");
        let machine = machine(&["/home/ada/.nvm/v22/bin/node", "/home/ada/q/bin/run", &line]);
        let own = entry("/home/ada/script", &[]).own(&machine);
        let expected = if given { vec!["r /home/ada/script", "r /home/ada/.nvm/v22/bin"] } else { vec!["r /home/ada/script"] };
        assert_eq!(own, expected, "{line}");
    }
}

#[test]
fn what_is_named_is_given_and_the_state_folder_is_hidden_within() {
    let mut server = entry("/usr/bin/node", &[]);
    server.read = vec!["/home/ada".into()];
    server.write = vec!["/home/ada/p".into()];
    assert_eq!(server.own(&home()), ["r /home/ada", "w /home/ada/p"]);
    assert_eq!(server.contents(&home()).unwrap().0.hidden, [Path::new("/home/ada/.state"), Path::new("/home/ada/.cache/own")]);
    for path in [
        "/",
        "/proc",
        "/proc/1",
        "/sys/fs",
        "/dev/mem",
        "/home/ada/.state",
        "/home/ada/.state/boxes/b",
        "/home/ada/.cache",
        "/home/ada/.cache/own/guest",
        "/a/../etc",
        "relative",
        "/box",
        "/box/home/x",
        "/home/ada",
        "/home",
    ] {
        server.write = vec![path.into()];
        assert!(server.contents(&home()).is_err(), "{path}");
    }
}

#[test]
fn a_folder_with_the_socket_of_a_service_is_not_given_whole() {
    let machine = machine(&[
        "/usr/bin/node",
        "/run/docker.sock=",
        "/run/user/1000/bus=",
        "/run/app/",
        "/home/ada/.gnupg/S.gpg-agent=",
        "/var/run -> /run",
    ]);
    let named = |path: &str, more: &[&str]| {
        let mut server = entry("/usr/bin/node", &[]);
        server.read = std::iter::once(path).chain(more.iter().copied()).map(PathBuf::from).collect();
        server.contents(&machine).map(drop)
    };
    for (path, service) in
        [("/run", "Docker"), ("/run/user", "session bus"), ("/run/user/1000", "session bus"), ("/home/ada/.gnupg", "GnuPG")]
    {
        let problem = named(path, &[]).unwrap_err();
        assert!(problem.contains(&format!("socket of {service}")) || problem.contains(&format!("socket of the {service}")), "{problem}");
    }
    // A folder that an argument names is refused in the same way as a folder in `read`.
    assert!(entry("/usr/bin/node", &["/run/user/1000"]).contents(&machine).is_err());
    // A session that has no bus yet can get one later.
    assert!(named("/run/user/1000/systemd", &[]).is_err());
    for path in ["/run/app", "/run/docker.sock", "/run/user/1000/bus"] {
        assert_eq!(named(path, &[]), Ok(()), "{path}");
    }
}

#[test]
fn the_folders_of_the_program_and_its_packages_are_said_and_those_that_are_named_are_not() {
    let npx = entry("/home/ada/.nvm/v22/bin/npx", &[]);
    assert_eq!(npx.present(&home()), ["its program, runtime and package are in /home/ada/.nvm/v22/{bin, lib}"]);
    let script = entry("/usr/bin/node", &["/home/ada/p/node_modules/@x/s/index.js", "/home/ada/p/data"]);
    assert_eq!(script.present(&home()), ["its program, runtime and package are in /home/ada/p/node_modules"]);
    let mut strict = entry("/usr/bin/node", &["./data", "/data"]);
    strict.settings = BoxSettings::of(BoxBase::Strict);
    strict.working_directory = Some(Path::new("/home/ada/p"));
    (strict.read, strict.roots) = (vec!["/home/ada/q".into()], vec!["/home/ada/uv".into()]);
    assert_eq!(strict.present(&home()), [] as [String; 0]);
    let python = entry("/home/ada/.venv/bin/python", &[]);
    assert_eq!(python.present(&home()), ["its program, runtime and package are in /home/ada/.venv, /home/ada/uv/3.12/{bin, lib}"]);
}

#[test]
fn the_limits_of_a_box_are_those_of_its_settings() {
    let mut server = entry("/usr/bin/node", &[]);
    (server.settings.memory_mb, server.settings.disk_mb, server.settings.processes) = (64, 32, 3);
    let ceilings = server.contents(&home()).unwrap().0.ceilings;
    assert_eq!((ceilings.memory_bytes, ceilings.home_bytes, ceilings.processes, ceilings.threads), (64 << 20, 32 << 20, 3, 96));
}

#[test]
fn an_interpreter_is_given_only_if_it_is_a_program_that_may_be_given() {
    let of = |line: &str, more: &[&str]| {
        let script = format!("/home/ada/script #! {line}");
        let lines = [&["/home/ada/.ssh/key", "/home/ada/.gnupg/S.gpg-agent=", "/home/ada/.state/bin/run", script.as_str()], more].concat();
        entry("/home/ada/script", &[]).own(&machine(&lines))
    };
    let alone = ["r /home/ada/script"];
    // A link leads to the home, to a file that is not a program, to a socket, or to the gateway's own folder.
    for target in ["/home/ada", "/home/ada/.ssh", "/home/ada/.ssh/key", "/home/ada/.gnupg/S.gpg-agent", "/home/ada/.state/bin/run"] {
        assert_eq!(of("/home/ada/x", &[&format!("/home/ada/x -> {target}")]), alone, "{target}");
    }
    // The kernel would look for the relative path in another folder than this process.
    assert_eq!(of("q/bin/run", &["/home/ada/q/bin/run", "q/bin/run"]), alone);
    assert_eq!(of("/home/ada/q/bin/run", &["/home/ada/q/bin/run"]), ["r /home/ada/script", "r /home/ada/q/bin"]);
}

#[test]
fn a_program_is_kept_from_being_written_within_a_written_folder() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/package.json",
        "/home/ada/p/tools/bin/sh",
        "/home/ada/p/tools/server.sh #! /home/ada/p/tools/bin/sh",
        "/home/ada/p/server.mjs",
        "/home/ada/p/link -> /home/ada/p/tools",
        "/home/ada/p/other.sh #! /home/ada/p/link/bin/sh",
    ];
    let machine = machine(&lines);
    let folder = Some(Path::new("/home/ada/p"));
    let script = Entry { working_directory: folder, ..entry("/home/ada/p/tools/server.sh", &["./"]) };
    assert_eq!(script.own(&machine), ["w /home/ada/p", "r /home/ada/p/tools/bin", "r /home/ada/p/tools/server.sh"]);
    let named = Entry { write: vec!["/home/ada/p".into()], ..entry("/usr/bin/node", &["/home/ada/p/server.mjs"]) };
    assert_eq!(named.own(&machine), ["w /home/ada/p", "r /home/ada/p/server.mjs"]);
    let itself = Entry { write: vec!["/home/ada/p/tools/server.sh".into()], ..entry("/home/ada/p/tools/server.sh", &[]) };
    assert!(itself.contents(&machine).unwrap_err().contains("it is this server's own program"));
    let linked = Entry { write: vec!["/home/ada/p".into()], ..entry("/home/ada/p/other.sh", &[]) };
    assert!(linked.contents(&machine).unwrap_err().contains("through the link /home/ada/p/link"));
}

#[test]
fn a_service_is_not_given_although_a_first_line_leads_to_its_socket() {
    let (machine, docker) = (machine(&["/run/docker.sock="]), Path::new("/run/docker.sock"));
    let service = services(&BTreeMap::new(), Path::new("/home/ada"), 1000);
    let mounts = OtherMounts::of([].into_iter(), &machine);
    assert!(check_services(&[docker], &[], &service, &mounts, &machine).unwrap_err().contains("socket of Docker"));
    assert_eq!(check_services(&[docker], &[docker], &service, &mounts, &machine), Ok(()));
}

#[test]
fn what_runs_outside_is_only_read_and_the_rest_is_said() {
    let machine = machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/tools/b.mjs", "/home/ada/p/package.json"]);
    let mut server = entry("/usr/bin/node", &["/home/ada/p"]);
    let kept = |path: &str| Kept { path: path.into(), owner: Owner::Server("b".into()) };
    server.kept = vec![kept("/home/ada/p/tools/b.mjs"), kept("/home/ada/p")];
    assert_eq!(server.own(&machine), ["w /home/ada/p", "r /home/ada/p/tools/b.mjs"]);
    let said = server.present(&machine);
    for sentence in ["can change /home/ada/p, and so can change what the server \"b\" runs", "can change package.json in /home/ada/p"] {
        assert!(said.iter().any(|said| said.starts_with(sentence)), "{said:?}");
    }
}

#[test]
fn an_own_folder_that_is_still_missing_is_kept_from_boxes_behind_a_link_too() {
    let machine = machine(&["/usr/bin/node", "/srv/cache/", "/home/ada/", "/home/ada/.cache -> /srv/cache"]);
    let mut server = entry("/usr/bin/node", &[]);
    server.write = vec!["/srv/cache".into()];
    assert!(server.contents(&machine).unwrap_err().contains("/srv/cache"));
}
