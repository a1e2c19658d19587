//! Decides whether a server's command depends on the workspace folder. If it does, the same entry may start another program in another
//! folder.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::executable::is_program;
use super::processes::{leads_to_processes, names_processes, without_quotes};
use crate::config::{
    BoxDefinition, Part, Placeholder, ServerDefinition, Surroundings, Template, Transport, is_of_workspace, is_program_file, loads_code,
    mentions_workspace,
};

/// Extensions that a runtime appends to a name to find the program.
const ENDINGS: [&str; 5] = ["js", "cjs", "node", "ts", "py"];
/// Maximum number of words in one text that are checked. If there are more, the command is treated as dependent on the folder.
const MAX_WORDS: usize = 128;
/// Maximum number of words and placeholders in one entry that are checked. If there are more, the command is treated as dependent on the
/// folder. The limit bounds the time of the check. Every call repeats the check, because files may appear in the folder at any time.
const MAX_ENTRY_WORDS: usize = 1_024;
/// Maximum number of letters that a short flag may have before its value: `-mserver`, `-umserver`.
const MAX_FLAG_LETTERS: usize = 4;
const SEARCH_PATH: &str = "PATH";
/// The search path that execvp(3) uses without a `PATH`.
const DEFAULT_SEARCH_PATH: &str = "/bin:/usr/bin";

/// Returns the workspace folder, with symbolic links followed, if the server's command depends on it. Returns `None` if the entry starts the same
/// command in every folder.
///
/// The command depends on the folder if the entry contains `${workspaceFolder}`, or has a relative `cwd`, `envFile` or command. The same is
/// true if the entry names an existing file in the folder, or contains a path that begins with `.` or a relative name of a program. It is
/// also true if the search path finds the program in the folder, if a variable contains the folder's path, or if a path leads through the
/// table of processes. This table, `/proc`, contains the working directories of the processes. If this cannot be decided, or the entry is
/// very large, the command is treated as dependent. A command that depends on the folder is started in it. Any other command is started
/// outside of it ([`Locality`](crate::config::Locality)), so that a path that this check missed does not lead into the folder.
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
    let workspace = &surroundings.workspace_folder;
    let decides = command_depends_on_workspace(server, surroundings) || box_depends_on_workspace(server, surroundings);
    decides.then(|| fs::canonicalize(workspace).unwrap_or_else(|_| workspace.clone()))
}

/// Returns whether the server's command depends on the workspace folder. Only such a command is started in the folder. A box with a path of
/// the folder does not make the command depend on it.
#[must_use]
pub fn command_depends_on_workspace(server: &ServerDefinition, surroundings: &Surroundings) -> bool {
    let Transport::Stdio { command, arguments, environment, removed_environment, working_directory, environment_file } = &server.transport
    else {
        return false;
    };
    let fixed = |text: &String| is_fixed(text, surroundings);
    // A command with a `cwd` resolves its relative paths in that folder, whatever the workspace folder is.
    let entry = Entry { surroundings, starts_in_workspace: working_directory.is_none(), words_left: Cell::new(MAX_ENTRY_WORDS) };
    let texts = arguments.iter().map(String::as_str).chain(environment.iter().map(|(_, value)| value.expose_secret()));
    is_too_large(texts)
        || working_directory.as_ref().is_some_and(|folder| !fixed(folder))
        || environment_file.as_ref().is_some_and(|file| !fixed(file))
        || entry.program_decides(command, environment, removed_environment)
        || arguments.iter().any(|argument| entry.argument_decides(argument))
        || environment.iter().any(|(name, value)| entry.variable_decides(name, value.expose_secret()))
}

/// Returns whether the files of a server's box depend on the workspace folder. Its roots are files of its box too.
fn box_depends_on_workspace(server: &ServerDefinition, surroundings: &Surroundings) -> bool {
    let Some(BoxDefinition::On(settings)) = &server.in_box else { return false };
    settings.read.iter().chain(&settings.write).chain(&server.roots).any(|text| !is_fixed(text, surroundings))
}

fn is_fixed(text: &str, surroundings: &Surroundings) -> bool {
    Filled::of(text, surroundings, Variables::Values).is_the_same_from_everywhere()
}

/// The kind of text that replaces a variable's placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variables {
    Values,
    /// A fixed absolute path in place of the value. It is for a variable from which the parts in the workspace are removed when the command
    /// starts.
    Cleaned,
}

/// A text of the config with its placeholders replaced.
struct Filled {
    text: String,
    /// True if the text contains `${workspaceFolder}`, or a variable whose value has a path within the folder.
    names_workspace: bool,
}

impl Filled {
    fn of(text: &str, surroundings: &Surroundings, variables: Variables) -> Self {
        let mut filled = Self { text: String::new(), names_workspace: false };
        // The config reader has already refused invalid templates.
        let Ok(template) = Template::parse(text) else { return Self { text: text.to_owned(), names_workspace: true } };
        for part in template.parts() {
            match part {
                Part::Literal(text) => filled.text.push_str(text),
                Part::Placeholder { meaning: Placeholder::WorkspaceFolder, .. } => {
                    filled.names_workspace = true;
                    filled.text.push_str(&surroundings.workspace_folder.to_string_lossy());
                }
                Part::Placeholder { meaning: Placeholder::UserHome, .. } => filled.text.push_str(&surroundings.user_home.to_string_lossy()),
                // The answer is not known yet. The person who types it decides which path it names.
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
        !self.names_workspace && Path::new(&self.text).is_absolute() && !self.leads_to_processes()
    }

    /// Returns whether the text is a path that names the table of processes, or reaches it through symbolic links.
    fn leads_to_processes(&self) -> bool {
        names_processes(&self.text) || leads_to_processes(Path::new(&self.text))
    }
}

/// The parts of a command that this check needs.
struct Entry<'a> {
    surroundings: &'a Surroundings,
    /// True if the entry has no `cwd`. Then its relative paths are resolved in the workspace folder.
    starts_in_workspace: bool,
    /// The number of words that may still be checked in this entry.
    words_left: Cell<usize>,
}

impl Entry<'_> {
    fn program_decides(&self, command: &str, environment: &[(String, SecretString)], removed: &[String]) -> bool {
        let filled = Filled::of(command, self.surroundings, Variables::Values);
        if command.contains('/') || filled.names_workspace {
            let leads_there = self.starts_in_workspace && !Path::new(&filled.text).is_absolute();
            return filled.names_workspace || leads_there || filled.leads_to_processes();
        }
        let own = environment.iter().find(|(name, _)| name == SEARCH_PATH);
        let own = own.map(|(_, value)| Filled::of(value.expose_secret(), self.surroundings, Variables::Values).text);
        let inherited = || self.surroundings.environment.get(SEARCH_PATH).cloned();
        let path = if removed.iter().any(|name| name == SEARCH_PATH) { None } else { own.or_else(inherited) };
        let path = path.unwrap_or_else(|| DEFAULT_SEARCH_PATH.to_owned());
        let found = path.split(':').find(|part| is_program(&self.surroundings.workspace_folder.join(part).join(command)));
        found.is_some_and(|part| is_of_workspace(part, self.surroundings) || leads_to_processes(Path::new(part)))
    }

    /// Subtracts a number of words from the number that may still be checked. Returns whether enough were left.
    fn may_check(&self, words: usize) -> bool {
        let left = self.words_left.get().checked_sub(words);
        self.words_left.set(left.unwrap_or(0));
        left.is_some()
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

    /// Returns whether one of the words in a text, read as a path, leads into the workspace folder.
    fn any_word(&self, text: &str, leads_there: impl Fn(&str) -> bool) -> bool {
        let any = |words: Vec<String>| !self.may_check(words.len()) || words.iter().any(|word| leads_there(word));
        names_processes(text) || (self.starts_in_workspace && words(text).is_none_or(any))
    }

    /// Returns whether the workspace folder contains a file with this name, or a program that a runtime would start under this name.
    fn is_there(&self, word: &str) -> bool {
        // `python -m a.b` starts a/b.py.
        let module = (!word.contains('/') && word.contains('.')).then(|| word.replace('.', "/"));
        let named = [Some(word), module.as_deref()].into_iter().flatten().filter(|word| !Path::new(word).is_absolute());
        named.map(|word| self.surroundings.workspace_folder.join(word)).any(|path| exists(&path))
    }
}

/// Returns whether there are too many texts and placeholders to check them. Does not access the disk.
fn is_too_large<'t>(texts: impl Iterator<Item = &'t str>) -> bool {
    // Each text and each placeholder costs time, even if it has no words.
    let mut parts = texts.map(|text| 1 + text.matches("${").count());
    parts.try_fold(0, |sum, parts| Some(sum + parts).filter(|sum| *sum <= MAX_ENTRY_WORDS)).is_none()
}

/// Returns whether a word has the form of a relative path that begins with a dot. The path need not exist.
fn is_dotted(word: &str) -> bool {
    matches!(word, "." | "..") || word.starts_with("./") || word.starts_with("../")
}

/// Returns whether a word is a relative path by its form or by its extension. A relative name of a program refers to the workspace folder, even
/// if the file does not exist yet.
fn is_relative(word: &str) -> bool {
    let path = Path::new(word);
    is_dotted(word) || (!path.is_absolute() && is_program_file(path))
}

/// Returns the text, and each part of it that may be a path: the value of `--flag=path`, or a file in the command line of `sh -c`. Returns
/// `None` if there are too many.
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

/// Returns the values that may follow one-letter flags in the same word: `./lib` in `-I./lib`. Returns nothing for a long flag, whose value
/// follows a `=`.
fn behind_letters(flag: &str) -> Vec<String> {
    let Some(letters) = flag.strip_prefix('-').filter(|letters| !letters.starts_with('-')) else { return Vec::new() };
    let starts = letters.char_indices().map(|(start, _)| start).skip(1).take(MAX_FLAG_LETTERS);
    starts.map(|start| letters[start..].to_owned()).collect()
}

fn exists(path: &Path) -> bool {
    // A dangling link counts too, because its target may be created later.
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::parse_text;

    /// Two folders next to each other. The first one is the workspace folder.
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
            let (server, surroundings) = self.entry(fields);
            let folder = deciding_folder(&server, &surroundings);
            assert!(folder.as_ref().is_none_or(|folder| *folder == surroundings.workspace_folder.canonicalize().unwrap()));
            folder.is_some()
        }

        fn starts_there(&self, fields: &str) -> bool {
            let (server, surroundings) = self.entry(fields);
            command_depends_on_workspace(&server, &surroundings)
        }

        fn entry(&self, fields: &str) -> (ServerDefinition, Surroundings) {
            let fields = fields.replace("ROOT", &self.folder.path().to_string_lossy());
            let text = format!(r#"{{ "mcpServers": {{ "a": {{ {fields} }} }} }}"#);
            let server = parse_text(&text, "c", 9).unwrap().servers.remove(0);
            let root = self.folder.path();
            let (workspace_folder, user_home) = (root.join("here"), root.join("home"));
            let environment =
                self.environment.iter().map(|(name, value)| ((*name).to_owned(), value.replace("ROOT", &root.to_string_lossy())));
            (server, Surroundings { environment: environment.collect(), workspace_folder, user_home })
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
            r#""command": "sh", "args": ["-c", "exec /dev/fd/../../$PPID/cwd/server"]"#,
            r#""command": "sh", "args": ["-c", "exec /dev//fd/../cwd/server"]"#,
            r#""command": "sh", "args": ["-c", "exec proc/$PPID/cwd/server"]"#,
            r#""command": "sh", "args": ["-c", "exec /p*c/$PPID/cwd/server"]"#,
            r#""command": "./server", "cwd": "/dev/fd/../cwd""#,
            r#""command": "/dev/fd/../cwd/server""#,
            r#""command": "/dev/stdin""#,
            r#""command": "npx", "args": ["-y", "b"], "envFile": "/dev/fd/../cwd/.env""#,
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
            // A program with another name is started outside of the folder, with a `PATH` without these parts.
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
    fn a_link_into_the_table_of_processes_makes_the_folder_count() {
        let scene = Scene::new();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, scene.folder.path().join(name)).unwrap();
        link("/proc/self", "self");
        link("../home/link", "there/link");
        link("../self/cwd", "home/link");
        link("loop", "loop");
        for entry in [
            r#""command": "./server", "cwd": "ROOT/self/cwd""#,
            r#""command": "./server", "cwd": "ROOT/there/link""#,
            r#""command": "ROOT/there/link/server""#,
            r#""command": "npx", "args": ["-y", "b"], "envFile": "ROOT/there/../home/link/.env""#,
            r#""command": "./server", "cwd": "ROOT/loop""#,
        ] {
            assert!(scene.decides(entry), "{entry}");
        }
        assert!(!scene.decides(r#""command": "./server", "cwd": "ROOT/there""#));
    }

    #[test]
    fn what_a_box_gives_of_the_folder_makes_it_count_and_starts_nothing_there() {
        let scene = Scene::new();
        for (fields, counts) in [
            (r#""box": { "read": ["data"] }"#, true),
            (r#""box": { "write": ["${workspaceFolder}/data"] }"#, true),
            (r#""box": "standard", "roots": ["${workspaceFolder}"]"#, true),
            (r#""box": "strict", "roots": ["/data", "sub"]"#, true),
            (r#""box": "standard", "roots": ["/data"]"#, false),
            (r#""box": "off", "roots": ["${workspaceFolder}"]"#, false),
        ] {
            assert_eq!(scene.decides(&format!(r#""command": "/opt/x", {fields}"#)), counts, "{fields}");
            assert!(!scene.starts_there(&format!(r#""command": "/opt/x", {fields}"#)), "{fields}");
        }
        assert!(scene.starts_there(r#""command": "./x""#));
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
            r#""command": "/opt/project/bin/server", "args": ["/process/x", "/dev/null", "/dev/fdx", "--processor"]"#,
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

    #[test]
    fn an_entry_of_very_many_words_or_placeholders_is_not_looked_through() {
        let scene = Scene::new();
        let texts = |text: &str, count: usize| vec![format!("\"{text}\""); count].join(", ");
        let sixty: Vec<String> = (0..60).map(|number| format!("x{number}")).collect();
        for (text, count) in
            [("x", MAX_ENTRY_WORDS), (sixty.join(" ").as_str(), MAX_ENTRY_WORDS / 120), ("${userHome}", MAX_ENTRY_WORDS / 2)]
        {
            assert!(!scene.decides(&format!(r#""command": "echo", "args": [{}]"#, texts(text, count / 2))), "{text}");
            assert!(scene.decides(&format!(r#""command": "echo", "args": [{}]"#, texts(text, 2 * count + 2))), "{text}");
        }
    }
}
