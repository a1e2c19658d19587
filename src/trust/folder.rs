//! Whether the workspace folder decides what an entry starts: the same words are another program in another folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{
    Part, Placeholder, ServerDefinition, Surroundings, Template, Transport, is_of_workspace, loads_code, mentions_workspace,
};

/// What a runtime adds to a name to find the program.
const ENDINGS: [&str; 5] = ["js", "cjs", "node", "ts", "py"];
/// How names of programs end that a runtime is given: one that is relative is meant to be in the folder, whether it is there yet or not.
const PROGRAMS: [&str; 19] =
    ["bash", "bat", "cjs", "dll", "exe", "go", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "py", "rb", "sh", "ts", "tsx"];
/// Words of one text that are looked at. With more of them, the folder counts.
const MAX_WORDS: usize = 128;
/// Letters of a flag behind which its value may begin: `-mserver`, `-umserver`.
const MAX_FLAG_LETTERS: usize = 4;
/// Where the system shows other processes, with the folders that they work in: an absolute path that leads elsewhere in another folder.
const PROCESSES: &str = "/proc";
const SEARCH_PATH: &str = "PATH";
/// Where execvp(3) looks without a PATH.
const DEFAULT_SEARCH_PATH: &str = "/bin:/usr/bin";

/// The workspace folder, with symbolic links followed, where it decides what the server's entry starts; `None` where the entry starts the
/// same from everywhere.
///
/// It decides where the entry says `${workspaceFolder}`, has a relative `cwd`, `envFile` or command, names something that is in the folder
/// now, or has a path that begins with `.` or a program's name that is relative; where the program is found in the folder by the search path; and where a variable brings the folder
/// along. In doubt it decides. What decides starts in the folder, all else outside of it
/// ([`Locality`](crate::config::Locality)), so that what was overlooked here leads nowhere.
///
/// ```
/// use hyperlight_mcp::config::{Surroundings, parse_text};
/// use hyperlight_mcp::trust::deciding_folder;
/// let text = r#"{ "servers": { "a": { "command": "node", "args": ["server.js"] }, "b": { "command": "npx", "args": ["-y", "b"] } } }"#;
/// let servers = parse_text(text, "config.json", 20).unwrap().servers;
/// let folder = tempfile::tempdir().unwrap();
/// std::fs::write(folder.path().join("server.js"), "").unwrap();
/// let surroundings =
///     Surroundings { environment: [].into(), workspace_folder: folder.path().into(), user_home: "/home/ada".into() };
/// assert_eq!(deciding_folder(&servers[0], &surroundings), Some(folder.path().canonicalize().unwrap()));
/// assert_eq!(deciding_folder(&servers[1], &surroundings), None);
/// ```
#[must_use]
pub fn deciding_folder(server: &ServerDefinition, surroundings: &Surroundings) -> Option<PathBuf> {
    let Transport::Stdio { command, arguments, environment, removed_environment, working_directory, environment_file } = &server.transport
    else {
        return None;
    };
    let workspace = &surroundings.workspace_folder;
    let fixed = |text: &String| Filled::of(text, surroundings, Variables::Values).is_the_same_from_everywhere();
    // A command with a fixed folder finds its relative paths there, whatever the workspace is.
    let entry = Entry { surroundings, starts_in_workspace: working_directory.is_none() };
    let decides = working_directory.as_ref().is_some_and(|folder| !fixed(folder))
        || environment_file.as_ref().is_some_and(|file| !fixed(file))
        || entry.program_decides(command, environment, removed_environment)
        || arguments.iter().any(|argument| entry.argument_decides(argument))
        || environment.iter().any(|(name, value)| entry.variable_decides(name, value.expose_secret()));
    decides.then(|| fs::canonicalize(workspace).unwrap_or_else(|_| workspace.clone()))
}

/// What stands in the place of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variables {
    Values,
    /// A path that is the same from everywhere: the value is cleaned when the command starts.
    Cleaned,
}

/// A text of the config with its placeholders replaced.
struct Filled {
    text: String,
    /// It says `${workspaceFolder}`, or a variable in it has a path within the folder.
    names_workspace: bool,
}

impl Filled {
    fn of(text: &str, surroundings: &Surroundings, variables: Variables) -> Self {
        let mut filled = Self { text: String::new(), names_workspace: false };
        // What is no template was refused when the config was read.
        let Ok(template) = Template::parse(text) else { return Self { text: text.to_owned(), names_workspace: true } };
        for part in template.parts() {
            match part {
                Part::Literal(text) => filled.text.push_str(text),
                Part::Placeholder { meaning: Placeholder::WorkspaceFolder, .. } => {
                    filled.names_workspace = true;
                    filled.text.push_str(&surroundings.workspace_folder.to_string_lossy());
                }
                Part::Placeholder { meaning: Placeholder::UserHome, .. } => filled.text.push_str(&surroundings.user_home.to_string_lossy()),
                // What a person types is not known yet, and is theirs.
                Part::Placeholder { meaning: Placeholder::Input(_), .. } => filled.text.push('/'),
                Part::Placeholder { meaning: Placeholder::Variable { name, default }, .. } => {
                    let value = surroundings.environment.get(*name).filter(|value| default.is_none() || !value.is_empty());
                    match (value, default) {
                        (Some(_), _) if variables == Variables::Cleaned => filled.text.push('/'),
                        (Some(value), _) => {
                            filled.names_workspace |= mentions_workspace(value, surroundings);
                            filled.text.push_str(value);
                        }
                        (None, Some(default)) => filled.text.push_str(default),
                        (None, None) => filled.text.push('/'),
                    }
                }
            }
        }
        filled
    }

    fn is_the_same_from_everywhere(&self) -> bool {
        !self.names_workspace && Path::new(&self.text).is_absolute() && !names_processes(&self.text)
    }
}

/// A command, as far as its texts are judged.
struct Entry<'a> {
    surroundings: &'a Surroundings,
    /// It says no `cwd`: its relative paths are meant to be in the workspace.
    starts_in_workspace: bool,
}

impl Entry<'_> {
    fn program_decides(&self, command: &str, environment: &[(String, SecretString)], removed: &[String]) -> bool {
        let filled = Filled::of(command, self.surroundings, Variables::Values);
        if command.contains('/') || filled.names_workspace {
            let leads_there = self.starts_in_workspace && !Path::new(&filled.text).is_absolute();
            return filled.names_workspace || leads_there || names_processes(&filled.text);
        }
        let own = environment.iter().find(|(name, _)| name == SEARCH_PATH);
        let own = own.map(|(_, value)| Filled::of(value.expose_secret(), self.surroundings, Variables::Values).text);
        let inherited = || self.surroundings.environment.get(SEARCH_PATH).cloned();
        let path = if removed.iter().any(|name| name == SEARCH_PATH) { None } else { own.or_else(inherited) };
        let path = path.unwrap_or_else(|| DEFAULT_SEARCH_PATH.to_owned());
        let found = path.split(':').find(|part| is_executable(&self.surroundings.workspace_folder.join(part).join(command)));
        found.is_some_and(|part| is_of_workspace(part, self.surroundings))
    }

    fn argument_decides(&self, argument: &str) -> bool {
        let filled = Filled::of(argument, self.surroundings, Variables::Values);
        filled.names_workspace || self.any_word(&filled.text, |word| is_relative(word) || self.is_there(word))
    }

    fn variable_decides(&self, name: &str, value: &str) -> bool {
        if name == SEARCH_PATH {
            let filled = Filled::of(value, self.surroundings, Variables::Cleaned);
            let moves = |part: &str| self.starts_in_workspace && !Path::new(part).is_absolute();
            return filled.names_workspace || names_processes(&filled.text) || filled.text.split(':').any(moves);
        }
        let filled = Filled::of(value, self.surroundings, Variables::Values);
        let is_loader = loads_code(name);
        filled.names_workspace
            || self.any_word(&filled.text, |word| is_dotted(word) || (is_loader && (is_relative(word) || self.is_there(word))))
    }

    /// Returns whether one of the words of a text, which may be paths, leads into the workspace.
    fn any_word(&self, text: &str, leads_there: impl Fn(&str) -> bool) -> bool {
        names_processes(text) || (self.starts_in_workspace && words(text).is_none_or(|words| words.iter().any(|word| leads_there(word))))
    }

    /// Returns whether the workspace has something of this name, or a program that a runtime would start by it.
    fn is_there(&self, word: &str) -> bool {
        // `python -m a.b` starts a/b.py.
        let module = (!word.contains('/') && word.contains('.')).then(|| word.replace('.', "/"));
        let named = [Some(word), module.as_deref()].into_iter().flatten().filter(|word| !Path::new(word).is_absolute());
        named.map(|word| self.surroundings.workspace_folder.join(word)).any(|path| exists(&path))
    }
}

fn names_processes(text: &str) -> bool {
    let joined = without_quotes(text);
    [text, &joined].into_iter().any(|text| {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric());
        text.match_indices(PROCESSES).any(|(start, found)| ends(&text[start + found.len()..]))
    })
}

/// A shell takes quotes and backslashes away, and joins what they divide.
fn without_quotes(text: &str) -> String {
    text.replace(['\\', '\'', '"'], "")
}

/// Returns whether a word is a path that is relative by its own form, whether there is anything or not.
fn is_dotted(word: &str) -> bool {
    matches!(word, "." | "..") || word.starts_with("./") || word.starts_with("../")
}

/// Returns whether a word is a relative path by its form or by its ending.
fn is_relative(word: &str) -> bool {
    let path = Path::new(word);
    let names_program = || path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| PROGRAMS.contains(&ending));
    is_dotted(word) || (!path.is_absolute() && names_program())
}

/// The text, and each piece of it that may be a path: the value of `--flag=path`, a file in the line of `sh -c`. `None`: there are too many.
fn words(text: &str) -> Option<Vec<String>> {
    let joined = without_quotes(text);
    let split = |text: &str| -> Vec<String> {
        let separates = |character: char| character.is_whitespace() || "=:,;|&()<>'\"`{}".contains(character);
        text.split(separates).map(ToOwned::to_owned).collect()
    };
    let mut found = [vec![text.to_owned()], split(text), split(&joined)].concat();
    found = found.iter().flat_map(|word| if word.starts_with('-') { behind_letters(word) } else { vec![word.clone()] }).collect();
    found.retain(|word| !word.is_empty());
    found.sort_unstable();
    found.dedup();
    (found.len() <= MAX_WORDS).then_some(found)
}

/// The values that may stand in one word with flags of one letter: `./lib` in `-I./lib`. A long flag has its value behind a `=`.
fn behind_letters(flag: &str) -> Vec<String> {
    let Some(letters) = flag.strip_prefix('-').filter(|letters| !letters.starts_with('-')) else { return Vec::new() };
    let starts = letters.char_indices().map(|(start, _)| start).skip(1).take(MAX_FLAG_LETTERS);
    starts.map(|start| letters[start..].to_owned()).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn exists(path: &Path) -> bool {
    // A link that leads nowhere now may lead somewhere later.
    fs::symlink_metadata(path).is_ok()
        || ENDINGS.iter().any(|ending| {
            let mut named = path.as_os_str().to_owned();
            named.push(".");
            named.push(ending);
            Path::new(&named).is_file()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    /// Two folders side by side, of which the first is worked in.
    struct Scene {
        folder: tempfile::TempDir,
        environment: Vec<(&'static str, &'static str)>,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { folder: tempfile::tempdir().unwrap(), environment: Vec::new() };
            for folder in ["home", "here/sub", "there"] {
                fs::create_dir_all(scene.folder.path().join(folder)).unwrap();
            }
            scene
        }

        fn file(&self, name: &str) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }

        fn decides(&self, fields: &str) -> bool {
            let fields = fields.replace("ROOT", &self.folder.path().to_string_lossy());
            let text = format!(r#"{{ "mcpServers": {{ "a": {{ {fields} }} }} }}"#);
            let server = parse_text(&text, "c", 9).unwrap().servers.remove(0);
            let root = self.folder.path();
            let (workspace_folder, user_home) = (root.join("here"), root.join("home"));
            let environment =
                self.environment.iter().map(|(name, value)| ((*name).to_owned(), value.replace("ROOT", &root.to_string_lossy())));
            let folder = deciding_folder(&server, &Surroundings { environment: environment.collect(), workspace_folder, user_home });
            assert!(folder.as_ref().is_none_or(|folder| *folder == root.join("here").canonicalize().unwrap()));
            folder.is_some()
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_in_another_folder_makes_the_folder_count() {
        let scene = Scene::new();
        scene.file("here/server.js");
        for entry in [
            r#""command": "./server.js""#,
            r#""command": "bin/missing""#,
            r#""command": "${workspaceFolder}/missing""#,
            r#""command": "node", "args": ["server.js"]"#,
            r#""command": "node", "args": ["./missing.txt"]"#,
            r#""command": "node", "args": ["missing.js"]"#,
            r#""command": "java", "args": ["-jar", "build/missing.jar"]"#,
            r#""command": "node", "args": ["${workspaceFolder}/missing.js"]"#,
            r#""command": "npx", "args": ["-y", "files", "${workspaceFolder}"]"#,
            r#""command": "node", "args": ["--import=server.js", "x"]"#,
            r#""command": "node", "args": ["-r./server.js", "x"]"#,
            r#""command": "sh", "args": ["-c", "exec node 'server.js' --fast"]"#,
            r#""command": "sh", "args": ["-c", "./a.s\\h"]"#,
            r#""command": "sh", "args": ["-c", "node se\\rver\"\".js"]"#,
            r#""command": "npx", "args": ["-y", "b"], "cwd": "missing""#,
            r#""command": "npx", "args": ["-y", "b"], "cwd": "${workspaceFolder}""#,
            r#""command": "npx", "args": ["-y", "b"], "envFile": "missing.env""#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "NODE_OPTIONS": "--require ./server.js" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "NODE_OPTIONS": "--require server.js" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "PERL5OPT": "-I. -Mserver" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "npm_config_script_shell": "./sh" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "npm_config_node_options": "--import=./a.mjs" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "HOME": "${workspaceFolder}" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "HOME": "." }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "DATA": "${workspaceFolder}/data" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "DATA": "./data" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "PATH": "sub:${PATH}" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "PATH": ":/bin" }"#,
            r#""command": "sh", "args": ["-c", ". /proc/$PPID/cwd/evil.sh"]"#,
            r#""command": "sh", "args": ["-c", "cd /pr''oc; . ./1/cwd/evil.sh"]"#,
        ] {
            assert!(scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn what_a_runtime_starts_by_the_name_of_a_folder_or_module_counts_too() {
        let scene = Scene::new();
        for file in ["here/package.json", "here/tools/__main__.py", "here/deep/er.py", "here/server.py", "there/server.js"] {
            scene.file(file);
        }
        std::os::unix::fs::symlink(scene.folder.path().join("there/server.js"), scene.folder.path().join("here/link")).unwrap();
        for entry in [
            r#""command": "node", "args": ["."]"#,
            r#""command": "python3", "args": ["-m", "tools"]"#,
            r#""command": "python3", "args": ["-m", "deep.er"]"#,
            r#""command": "python3", "args": ["-mserver"]"#,
            r#""command": "python3", "args": ["-umserver"]"#,
            r#""command": "python3", "args": ["-mdeep.er"]"#,
            r#""command": "node", "args": ["link"]"#,
            r#""command": "npx", "args": ["-y", "files", "sub"]"#,
            r#""command": "node", "args": ["../there/server.js"]"#,
            r#""command": "node", "args": ["../../there/server.js"], "cwd": "sub""#,
        ] {
            assert!(scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn a_program_that_is_found_in_the_folder_makes_it_count() {
        for (path, is_found) in [
            ("ROOT/here/node_modules/.bin:ROOT/bin", true),
            ("ROOT/bin:ROOT/here/node_modules/.bin", false),
            (".:ROOT/bin", true),
            (":ROOT/bin", true),
            ("sub/../:ROOT/bin", true),
            ("ROOT/bin:.", false),
        ] {
            let scene = Scene { environment: vec![("PATH", path)], ..Scene::new() };
            for name in ["here/node_modules/.bin/tool", "here/tool", "bin/tool"] {
                scene.file(name);
                fs::set_permissions(scene.folder.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
            }
            assert_eq!(scene.decides(r#""command": "tool""#), is_found, "{path}");
            // What has no name there is started outside of the folder, without these parts.
            assert!(!scene.decides(r#""command": "other""#), "{path}");
        }
    }

    #[test]
    fn a_variable_that_brings_the_folder_along_makes_it_count() {
        let scene =
            Scene { environment: vec![("PWD", "ROOT/here"), ("OTHER", "ROOT/there"), ("PATH", "ROOT/here/bin:/bin")], ..Scene::new() };
        assert!(scene.decides(r#""command": "npx", "env": { "NODE_OPTIONS": "--import ${PWD}/a.mjs" }"#));
        assert!(scene.decides(r#""command": "npx", "env": { "X": "${MISSING:-./x}" }"#));
        assert!(!scene.decides(r#""command": "npx", "env": { "X": "${OTHER}", "Y": "${MISSING}", "PATH": "/opt:${PATH}" }"#));
    }

    #[test]
    fn what_starts_the_same_from_everywhere_needs_no_folder() {
        let scene = Scene::new();
        scene.file("here/server.js");
        scene.file("here/.npmrc");
        scene.file("home/server.js");
        for entry in [
            r#""command": "npx", "args": ["-y", "@scope/package@1.2.3", "--port=80", "--my-server.js"]"#,
            r#""command": "node", "args": ["ROOT/here/server.js"]"#,
            r#""command": "node", "args": ["${userHome}/server.js"]"#,
            r#""command": "node", "args": ["server.js"], "cwd": "ROOT/here""#,
            r#""command": "node", "args": ["./server.js"], "cwd": "${userHome}""#,
            r#""command": "npx", "args": ["-y", "b"], "envFile": "${userHome}/.env""#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "DATA": "server.js", "PATH": "/bin:${PATH}" }"#,
            r#""command": "/opt/project/bin/server", "args": ["/process/x"]"#,
            r#""url": "https://example.com/server.js""#,
        ] {
            assert!(!scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn an_argument_of_very_many_words_is_not_looked_through() {
        let scene = Scene::new();
        let many: Vec<String> = (0..=MAX_WORDS).map(|number| format!("x{number}")).collect();
        assert!(scene.decides(&format!(r#""command": "sh", "args": ["-c", "{}"]"#, many.join(" "))));
    }
}
