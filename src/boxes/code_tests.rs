use super::*;
use crate::boxes::{Code, Command, Variable, code};

/// Returns the files and folders that decide which code a server with these variables runs. A variable whose name ends with `!` loads code.
fn code_of(entry: &Entry, variables: &[(&str, &str)], machine: &Machine) -> Code {
    let variables: Vec<Variable> =
        variables.iter().map(|(name, value)| Variable { value: (*value).to_owned(), loads_code: name.ends_with('!') }).collect();
    let value_of = |name: &str| (name == "PLACE").then(|| "ws/lib".to_owned());
    let name = Path::new(entry.program).file_name().and_then(OsStr::to_str).unwrap();
    entry.with(|request| {
        code(
            request,
            &Command { name, value_of: &value_of, variables: &variables, home: Path::new("/home/ada"), is_secret: &|_| false },
            machine,
        )
    })
}

fn has(paths: &BTreeSet<PathBuf>, path: &str) -> bool {
    paths.contains(Path::new(path))
}

#[test]
fn each_file_that_a_command_or_a_variable_names_is_code_or_another_file() {
    let machine = machine(&[
        "/usr/bin/node",
        "/ws/x.so.1",
        "/ws/bin/run",
        "/ws/script #! /bin/sh",
        "/ws/plain",
        "/ws/x.yml",
        "/ws/main.py",
        "/ws/hook.js",
        "/ws/lib/",
        "/ws/my file",
    ]);
    let server = Entry {
        working_directory: Some(Path::new("/ws")),
        ..entry(
            "/usr/bin/node",
            &["/ws/script", "plain", "-f", "x.yml", "--x=main.py", "--prefix", "/ws/lib", "later.yml", "./later.yml", "-F/ws/my file"],
        )
    };
    let variables = [
        ("LD_PRELOAD!", "/ws/x.so.1"),
        ("NODE_OPTIONS!", "--require /ws/hook --env-file=/ws/later.env"),
        ("DB", "file:///ws/other%20x.db?mode=ro"),
        ("RUN", "/ws/bin/run"),
        ("CONFIG", "~/settings.toml"),
        ("DIR", "/ws/new"),
    ];
    let code = code_of(&server, &variables, &machine);
    for program in ["/ws/x.so.1", "/ws/bin/run", "/ws/script", "/ws/main.py", "/ws/hook", "/ws/hook.js", "/ws/later.env"] {
        assert!(has(&code.programs, program), "{program}: {code:#?}");
    }
    for file in ["/ws/plain", "/ws/x.yml", "/ws/later.yml", "/ws/other x.db", "/home/ada/settings.toml", "/ws/new", "/ws/my file"] {
        assert!(has(&code.files, file), "{file}: {code:#?}");
    }
    assert!(has(&code.folders, "/ws/lib") && has(&code.folders, "/ws"), "{code:#?}");
}

#[test]
fn what_a_box_and_the_roots_name_is_code_or_another_file() {
    let machine = machine(&["/usr/bin/node", "/ws/lib/x.mjs", "/ws/conf.json", "/ws/data/", "/ws/roots/"]);
    let mut server = entry("/usr/bin/node", &[]);
    server.read = ["/ws/lib", "/ws/conf.json", "/ws/later.mjs", "/"].map(PathBuf::from).into();
    (server.write, server.roots) = (vec!["/ws/data".into()], vec!["/ws/roots".into()]);
    let code = code_of(&server, &[], &machine);
    for folder in ["/ws/lib", "/ws/data", "/ws/roots"] {
        assert!(has(&code.folders, folder), "{folder}: {code:#?}");
    }
    assert!(has(&code.files, "/ws/conf.json") && has(&code.files, "/ws/later.mjs") && !has(&code.folders, "/"), "{code:#?}");
}

#[test]
fn another_version_of_a_server_has_the_rest() {
    let code = |programs: &[&str], folders: &[&str]| {
        let [programs, folders] = [programs, folders].map(|paths| paths.iter().map(PathBuf::from).collect());
        Code { programs, folders, ..Code::default() }
    };
    let own = code(&["/ws/own/main.mjs", "/usr/bin/node"], &["/ws/own", "/ws"]);
    let earlier = code(&["/ws/own/main.mjs", "/ws/own", "/ws/old.mjs"], &["/ws", "/data"]);
    assert_eq!(earlier.without(&own), code(&["/ws/old.mjs"], &["/ws/own", "/data"]));
    assert_eq!(own.without(&own), Code::default());
}

#[test]
fn a_runtime_looks_for_packages_in_all_folders_above_a_program() {
    let machine = machine(&[
        "/usr/bin/node",
        "/ws/packages/a/index.js",
        "/ws/node_modules/x/",
        "/store/b.mjs",
        "/ws/b.mjs -> /store/b.mjs",
        "/store/node_modules/",
    ]);
    let code = code_of(&entry("/usr/bin/node", &["/ws/packages/a/index.js", "/ws/b.mjs"]), &[], &machine);
    for modules in ["/ws/node_modules", "/store/node_modules"] {
        assert!(has(&code.programs, modules), "{modules}: {code:#?}");
    }
    for folder in ["/ws/packages/a", "/ws/packages", "/ws", "/store"] {
        assert!(has(&code.searched, folder), "{folder}: {code:#?}");
    }
    assert!(!has(&code.searched, "/"));
    let shell = code_of(&entry("/usr/bin/node", &["/ws/x.sh"]), &[], &machine);
    assert!(!has(&shell.searched, "/ws"), "a shell looks for nothing there: {shell:#?}");
}

#[test]
fn an_interpreter_is_code_wherever_it_is_found() {
    let machine = machine(&[
        "/usr/bin/node",
        "/ws/venv/bin/python -> /opt/bin/python3",
        "/ws/venv/pyvenv.cfg",
        "/ws/venv/bin/",
        "/opt/bin/python3",
        "/ws/tool/bin/run #! /ws/venv/bin/python",
        "/ws/other/bin/run #! /usr/bin/env -S node --import /ws/hook.mjs",
        "/ws/broken/bin/run #! /ws/gone/python",
        "/home/ada/.nvm/v22/bin/node",
    ]);
    let code = code_of(&entry("/usr/bin/node", &["-c", "exec /ws/tool/bin/run; /ws/other/bin/run; /ws/broken/bin/run"]), &[], &machine);
    for program in [
        "/ws/tool/bin/run",
        "/ws/venv/bin/python",
        "/ws/venv",
        "/opt/bin/python3",
        "/home/ada/.nvm/v22/bin/node",
        "/ws/hook.mjs",
        "/ws/gone/python",
    ] {
        assert!(has(&code.programs, program), "{program}: {code:#?}");
    }
}

/// A runtime completes a name without an extension.
#[test]
fn a_file_that_a_runtime_finds_by_a_shorter_name_is_code() {
    let files = ["/ws/lib.rb", "/ws/a.mts", "/ws/lib/x.mjs"];
    let machine = machine(&["/usr/bin/node", files[0], files[1], files[2]]);
    let code = code_of(&entry("/usr/bin/node", &["-r/ws/lib", "/ws/a", "exec node /$PLACE/x.mjs"]), &[], &machine);
    assert!(files.iter().all(|file| has(&code.programs, file)), "{code:#?}");
}

/// Boxes cannot have the project, because the gateway's own folder lies in it. But the project is still the package of its servers.
#[test]
fn a_project_with_the_gateways_own_folder_is_a_package_too() {
    let machine =
        machine(&["/usr/bin/node", "/srv/ws/package.json", "/srv/ws/dist/server.mjs", "/srv/ws/src/x.mjs", "/srv/ws/.state/store"]);
    let own_folders = vec!["/srv/ws/.state".into()];
    let code = code_of(&Entry { own_folders, ..entry("/usr/bin/node", &["/srv/ws/dist/server.mjs"]) }, &[], &machine);
    assert!(has(&code.programs, "/srv/ws"), "{code:#?}");
}

#[test]
fn the_folders_above_the_place_of_a_working_folder_are_searched() {
    let machine = machine(&["/usr/bin/node", "/ws/b/sub/x", "/other/link -> /ws/b/sub"]);
    let code = code_of(&Entry { working_directory: Some(Path::new("/other/link")), ..entry("/usr/bin/node", &[]) }, &[], &machine);
    for folder in ["/ws/b", "/ws", "/other"] {
        assert!(has(&code.searched, folder), "{folder}: {code:#?}");
    }
    assert!(!has(&code.searched, "/ws/b/sub") && !has(&code.searched, "/"), "{code:#?}");
}

/// The author of an entry decides how many folders the `PATH` of the entry has.
#[test]
fn a_bounded_number_of_folders_of_the_search_path_is_looked_at() {
    let path: Vec<String> = (0..12_000).map(|number| format!("/ws/p{number}")).collect();
    let machine = machine(&["/usr/bin/node"]);
    let path = std::ffi::OsString::from(path.join(":"));
    let found = entry("/usr/bin/node", &[]).with(|request| {
        let command = Command { name: "gone", value_of: &|_| None, variables: &[], home: Path::new("/home/ada"), is_secret: &|_| false };
        code(&BoxInput { search_path: &path, program: Path::new("/gone"), ..request.clone() }, &command, &machine)
    });
    assert!(found.folders.len() <= 1_024 && found.programs.len() <= 1_030, "{} {}", found.folders.len(), found.programs.len());
    assert!(has(&found.folders, "/ws/p0") && has(&found.programs, "/ws/p1023/gone"));
}

/// A machine on which no file exists, and which counts how often it is looked at.
#[derive(Default)]
struct Counted(std::cell::Cell<usize>);

impl Counted {
    fn look<T>(&self, seen: Option<T>) -> Option<T> {
        self.0.set(self.0.get() + 1);
        seen
    }
}

impl Lookup for Counted {
    fn real(&self, _path: &Path) -> Option<PathBuf> {
        self.look(None)
    }
    fn link(&self, _path: &Path) -> Option<PathBuf> {
        self.look(None)
    }
    fn kind(&self, _path: &Path) -> Option<Kind> {
        self.look(None)
    }
    fn interpreter(&self, _path: &Path) -> Option<Vec<String>> {
        self.look(None)
    }
    fn is_program(&self, _path: &Path) -> bool {
        self.look(Some(false)).is_some_and(|is_program| is_program)
    }
    fn identity(&self, _path: &Path) -> Option<Identity> {
        self.look(None)
    }
    fn entries(&self, _folder: &Path, _most: usize) -> Option<Vec<crate::boxes::Entry>> {
        self.look(Some(Vec::new()))
    }
    fn is_unknown(&self, _path: &Path) -> bool {
        self.look(Some(false)).is_some_and(|is_unknown| is_unknown)
    }
    fn is_shared(&self, _path: &Path) -> bool {
        false
    }
    fn mounts(&self) -> Vec<Mount> {
        Vec::new()
    }
}

/// Finds the code of an entry in which each argument contains the same long variable. Returns the code, and the number of looks at the
/// machine.
fn repeated(arguments: usize, names: usize) -> (Code, usize) {
    let value = (0..names).map(|number| format!("/a{number}")).collect::<Vec<_>>().join(",");
    let arguments: Vec<String> = (0..arguments).map(|number| format!("$A,/b{number}")).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let machine = Counted::default();
    let value_of = |name: &str| (name == "A").then(|| value.clone());
    let variables = [Variable { value: "--import=/ws/hook.mjs".to_owned(), loads_code: true }];
    let command = Command { name: "node", value_of: &value_of, variables: &variables, home: Path::new("/home/ada"), is_secret: &|_| false };
    let code = entry("/usr/bin/node", &arguments).with(|request| code(request, &command, &machine));
    (code, machine.0.get())
}

/// The author of an entry decides how many words the entry has, and the boxes of all other servers wait for it.
#[test]
fn the_work_for_an_entry_grows_no_faster_than_its_length_and_is_bounded() {
    let (code, one) = repeated(10, 10);
    assert!(!code.is_too_long && has(&code.files, "/a9") && has(&code.files, "/b9"), "{code:#?}");
    let (_, two) = repeated(20, 10);
    let (_, four) = repeated(20, 20);
    assert!(two <= 2 * one && four <= 2 * two, "{one} {two} {four}");
    for (arguments, names) in [(20, 5_000), (1_000, 5_000), (100_000, 10)] {
        let (code, looks) = repeated(arguments, names);
        assert!(code.is_too_long && looks < 250_000, "{arguments} {looks}");
        assert!(has(&code.programs, "/ws/hook.mjs"), "what loads code comes first");
    }
}

#[test]
fn one_long_text_or_path_hides_no_other() {
    let machine = machine(&["/usr/bin/node", "/ws/main.mjs"]);
    let numbers = (0..200_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    for long in ["a,".repeat(1 << 20), "/a".repeat(1 << 20), numbers] {
        let code = code_of(&entry("/usr/bin/node", &["/ws/main.mjs"]), &[("X", &long), ("Y!", "--import=/ws/y.mjs")], &machine);
        assert!(code.is_too_long && has(&code.programs, "/ws/main.mjs") && has(&code.programs, "/ws/y.mjs"), "{}", &long[..10]);
    }
    let long: &'static str = "/a".repeat(1 << 20).leak();
    for working_directory in [Path::new("/ws"), Path::new(long)] {
        let mut server = Entry { working_directory: Some(working_directory), ..entry("/usr/bin/node", &["/ws/main.mjs"]) };
        assert_eq!(code_of(&server, &[], &machine).is_too_long, working_directory != Path::new("/ws"));
        server.read = vec![PathBuf::from(long)];
        assert!(code_of(&server, &[], &machine).is_too_long);
    }
    let command = code_of(&entry("/usr/bin/node", &["/ws/main.mjs"]), &[("PATH_LIKE", "/ws/lib"), ("Z", "x")], &machine);
    assert!(!command.is_too_long);
}

#[test]
fn a_package_in_a_folder_of_the_system_is_code() {
    let machine = machine(&["/usr/bin/node", "/usr/local/lib/x/package.json", "/usr/local/lib/x/bin/cli.js", "/usr/local/bin/tool"]);
    let script = code_of(&entry("/usr/bin/node", &["/usr/local/lib/x/bin/cli.js"]), &[], &machine);
    assert!(has(&script.programs, "/usr/local/lib/x"), "{script:#?}");
    let tool = code_of(&entry("/usr/local/bin/tool", &[]), &[], &machine);
    assert!(has(&tool.folders, "/usr/local/lib"), "{tool:#?}");
}

#[test]
fn a_missing_program_hides_nothing_of_its_command() {
    let machine = machine(&["/usr/bin/node", "/ws/main.mjs", "/ws/x.so"]);
    let code = code_of(&entry("/usr/bin/gone", &["/ws/main.mjs"]), &[("LD_PRELOAD!", "/ws/x.so")], &machine);
    for program in ["/ws/main.mjs", "/ws/x.so", "/home/ada/.nvm/v22/bin/gone", "/usr/bin/gone"] {
        assert!(has(&code.programs, program), "{program}: {code:#?}");
    }
}

/// A server can take away the right to search its own folder. Only boxes that have this folder cannot start then.
#[test]
fn a_closed_folder_stops_only_the_boxes_that_have_it() {
    let machine =
        machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/tools/b.mjs", "/home/ada/q/", "closed /home/ada/p/tools"]);
    let mut server = entry("/usr/bin/node", &["/home/ada/p"]);
    server.kept = vec![Kept { path: "/home/ada/p/tools/b.mjs".into(), owner: Owner::Server("b".into()) }];
    let error = server.contents(&machine).unwrap_err();
    assert!(error.contains("because /home/ada/p/tools cannot be searched: allow yourself to search it (chmod"), "{error}");
    let other = Entry { arguments: vec!["/home/ada/q".to_owned()], ..server };
    assert_eq!(other.own(&machine), ["w /home/ada/q"]);
    // A file that is only named, and is not a program, stops no box.
    let mut named = entry("/usr/bin/node", &["/home/ada/p"]);
    named.kept = vec![Kept { path: "/home/ada/p/tools/x.yml".into(), owner: Owner::Uses("b".into()) }];
    assert!(named.present(&machine).contains(&"can change /home/ada/p/tools/x.yml, which the server \"b\" uses".to_owned()));
}

/// A secret can have slashes, and a relative path is any text with a slash.
#[test]
fn of_a_text_with_a_secret_only_what_exists_counts() {
    let machine = machine(&["/usr/bin/node", "/ws/plain/here.yml"]);
    let entry = Entry {
        working_directory: Some(Path::new("/ws")),
        ..entry("/usr/bin/node", &["--key=s3cr3t/K7MDENG", "plain/here.yml", "plain/later.yml"])
    };
    let variables =
        ["s3cr3t/K7MDENG", "x:s3cr3t/K7MDENG:plain/here.yml"].map(|value| Variable { value: value.to_owned(), loads_code: true });
    let files = |is_secret: &dyn Fn(&str) -> bool| {
        let command = Command { name: "node", value_of: &|_| None, variables: &variables, home: Path::new("/home/ada"), is_secret };
        let Code { programs, files, .. } = entry.with(|request| code(request, &command, &machine));
        let all = programs.into_iter().chain(files).map(|path| path.display().to_string()).filter(|path| path.starts_with("/ws/"));
        all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
    };
    assert!(files(&|_| false).contains("/ws/s3cr3t/K7MDENG"));
    assert_eq!(files(&|text| text.contains("s3cr3t/K7MDENG")), "/ws/plain/here.yml /ws/plain/later.yml");
}

/// Whoever writes an entry decides how deep a path is, and a boxed server how many parts a link has.
#[test]
fn paths_that_are_very_deep_or_lead_through_very_long_links_are_not_examined_and_delay_nobody() {
    let long_link = format!("/ws/link -> /ws/{}", "a/../".repeat(800));
    let machine = machine(&["/usr/bin/node", "/ws/a/x.yml", "/ws/x.mjs", &long_link]);
    let examined = |arguments: &[&str]| code_of(&entry("/usr/bin/node", arguments), &[], &machine);
    let (deep, up) = (format!("/ws/{}x.mjs", "d/".repeat(200)), format!("/ws/{}x.mjs", "a/../".repeat(100)));
    for path in [deep.as_str(), up.as_str(), "/ws/link/x.mjs"] {
        let code = examined(&[path, "/ws/x.mjs"]);
        assert!(code.is_too_long && code.programs.contains(Path::new("/ws/x.mjs")), "{path}: {code:?}");
        assert!(code.searched.len() < 10, "{path}: {code:?}");
    }
    assert!(!examined(&["/ws/a/../x.mjs"]).is_too_long);
    // Very many paths of permitted depth use up the budget.
    let many: Vec<String> = (0..400).map(|number| format!("/n{number}/{}x.mjs", "d/".repeat(100))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let code = examined(&many);
    assert!(code.is_too_long && code.searched.len() < 5_000 && code.work <= 200_000, "{}, {}", code.searched.len(), code.work);
}
