//! Whether the workspace folder decides what an entry starts: the same words are another program in another folder.

use std::fs;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

use crate::config::{Part, Placeholder, ServerDefinition, Surroundings, Template, Transport};

/// What a runtime takes for the program where a folder is named.
const ENTRIES: [&str; 5] = ["package.json", "index.js", "index.ts", "__main__.py", "__init__.py"];
/// What a runtime adds to a name to find the program.
const ENDINGS: [&str; 5] = ["js", "cjs", "node", "ts", "py"];
/// Variables by which a process finds what it loads, or is told to load something.
const LOADERS: [&str; 14] = [
    "BASH_ENV",
    "CLASSPATH",
    "ENV",
    "JAVA_TOOL_OPTIONS",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "PERL5LIB",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
];
/// Words of one text that are looked at. With more of them, the folder counts.
const MAX_WORDS: usize = 64;

/// The workspace folder, with symbolic links followed, where it decides what the server's entry starts; `None` where the entry starts the
/// same from everywhere.
///
/// It decides where the command, an argument, the environment file or a variable such as `NODE_OPTIONS` names something that is there now,
/// by a relative path or by `${workspaceFolder}`. A folder counts where a runtime would start what is in it.
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
    let Transport::Stdio { command, arguments, environment, working_directory, environment_file, .. } = &server.transport else {
        return None;
    };
    let workspace = Place { path: surroundings.workspace_folder.clone(), moves: true };
    // A folder that cannot be told now is one that the server cannot start in.
    let start = working_directory.as_ref().map_or(Some(workspace.clone()), |folder| workspace.to(folder, surroundings))?;
    let named = |text: &str| words(text).is_none_or(|words| words.iter().any(|word| start.names_program(word, surroundings)));
    let program = if command.contains('/') {
        start.to(command, surroundings).is_some_and(|place| place.moves && place.path.exists())
    } else {
        // Put in front of PATH by npm, for whatever folder it is called in.
        surroundings.workspace_folder.join("node_modules/.bin").join(command).exists()
    };
    let file = || environment_file.as_ref().and_then(|file| workspace.to(file, surroundings));
    let loaders = || environment.iter().filter(|(name, _)| LOADERS.contains(&name.as_str())).map(|(_, value)| value.expose_secret());
    let decides = program
        || arguments.iter().any(|argument| named(argument))
        || file().is_some_and(|place| place.moves && place.path.exists())
        || loaders().any(|value| start.names_anything(value, surroundings));
    decides.then(|| fs::canonicalize(&workspace.path).unwrap_or(workspace.path))
}

/// A path, and whether it is another one in another workspace folder.
#[derive(Debug, Clone)]
struct Place {
    path: PathBuf,
    moves: bool,
}

impl Place {
    /// Where a text of the config leads from here. `None`: it has what is known only when the server starts.
    fn to(&self, text: &str, surroundings: &Surroundings) -> Option<Self> {
        let template = Template::parse(text).ok()?;
        let (mut filled, mut names_workspace) = (String::new(), false);
        for part in template.parts() {
            match part {
                Part::Literal(text) => filled.push_str(text),
                Part::Placeholder { meaning: Placeholder::WorkspaceFolder, .. } => {
                    names_workspace = true;
                    filled.push_str(&surroundings.workspace_folder.to_string_lossy());
                }
                Part::Placeholder { meaning: Placeholder::UserHome, .. } => filled.push_str(&surroundings.user_home.to_string_lossy()),
                Part::Placeholder { meaning: Placeholder::Variable { .. } | Placeholder::Input(_), .. } => return None,
            }
        }
        let moves = names_workspace || (self.moves && Path::new(&filled).is_relative());
        Some(Self { path: self.path.join(filled), moves })
    }

    /// Whether a word names what a runtime would start, in a place that moves.
    fn names_program(&self, word: &str, surroundings: &Surroundings) -> bool {
        // `python -m a.b` starts a/b.py.
        let module = (!word.contains('/') && word.contains('.')).then(|| word.replace('.', "/"));
        let here = [Some(word), module.as_deref()].into_iter().flatten().filter_map(|word| self.to(word, surroundings));
        here.filter(|place| place.moves).any(|place| is_program(&place.path))
    }

    /// Whether one of the paths in a variable leads to something, in a place that moves. An empty one in a list means where it starts.
    fn names_anything(&self, value: &str, surroundings: &Surroundings) -> bool {
        let listed = value.contains(':').then(|| value.split(':')).into_iter().flatten();
        let places = |word: &str| self.to(word, surroundings).is_some_and(|place| place.moves && place.path.exists());
        listed.into_iter().any(places) || words(value).is_none_or(|words| words.iter().any(|word| places(word)))
    }
}

/// The text, and each piece of it that may be a path: the value of `--flag=path`, a file in the line of `sh -c`. `None`: there are too many.
fn words(text: &str) -> Option<Vec<&str>> {
    let parts = text.split(|character: char| character.is_whitespace() || "=:,;|&()<>'\"`".contains(character));
    let mut found: Vec<&str> = [text].into_iter().chain(parts.filter(|part| *part != text)).collect();
    // The path in -I./lib stands behind its letter; a flag alone is no path.
    found = found.into_iter().filter_map(|word| if word.starts_with('-') { behind_letter(word) } else { Some(word) }).collect();
    found.retain(|word| !word.is_empty());
    (found.len() <= MAX_WORDS).then_some(found)
}

fn behind_letter(flag: &str) -> Option<&str> {
    let mut characters = flag.strip_prefix('-')?.chars();
    let letter = characters.next()?;
    (letter != '-' && flag.contains('/')).then_some(characters.as_str())
}

fn is_program(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => ENTRIES.iter().any(|entry| path.join(entry).exists()),
        Ok(_) => true,
        Err(_) => {
            let mut with_ending = path.as_os_str().to_owned();
            with_ending.push(".");
            ENDINGS.iter().any(|ending| {
                let mut named = with_ending.clone();
                named.push(ending);
                Path::new(&named).is_file()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    /// Two folders side by side, of which the first is worked in.
    struct Scene {
        folder: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { folder: tempfile::tempdir().unwrap() };
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
            let folder = deciding_folder(&server, &Surroundings { environment: [].into(), workspace_folder, user_home });
            assert!(folder.as_ref().is_none_or(|folder| *folder == root.join("here").canonicalize().unwrap()));
            folder.is_some()
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_in_another_folder_makes_the_folder_count() {
        let scene = Scene::new();
        let entries = [
            r#""command": "./server.js""#,
            r#""command": "node", "args": ["server.js"]"#,
            r#""command": "node", "args": ["server"]"#,
            r#""command": "node", "args": ["./sub/../server.js"]"#,
            r#""command": "node", "args": ["${workspaceFolder}/server.js"]"#,
            r#""command": "${workspaceFolder}/server.js", "cwd": "/""#,
            r#""command": "node", "args": ["--import=./server.js", "x"]"#,
            r#""command": "ruby", "args": ["-r./server.js"]"#,
            r#""command": "sh", "args": ["-c", "exec node 'server.js' --fast"]"#,
            r#""command": "npx", "args": ["-y", "b"], "envFile": "server.js""#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "NODE_OPTIONS": "--require ./server.js" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "PATH": "sub:${PATH}" }"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "PATH": ":/bin" }"#,
        ];
        for entry in entries {
            let empty = [r#""PATH""#, r#""env": { "NODE"#].iter().any(|part| entry.contains(part));
            assert!(empty || !scene.decides(entry), "before there is a file: {entry}");
        }
        scene.file("here/server.js");
        for entry in entries {
            assert!(scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn what_a_runtime_starts_by_the_name_of_a_folder_or_module_counts_too() {
        let scene = Scene::new();
        scene.file("here/package.json");
        scene.file("here/tools/__main__.py");
        scene.file("here/deep/er.py");
        scene.file("here/node_modules/.bin/tool");
        scene.file("there/server.js");
        std::os::unix::fs::symlink(scene.folder.path().join("there/server.js"), scene.folder.path().join("here/link")).unwrap();
        for entry in [
            r#""command": "node", "args": ["."]"#,
            r#""command": "node", "args": ["${workspaceFolder}"]"#,
            r#""command": "python3", "args": ["-m", "tools"]"#,
            r#""command": "python3", "args": ["-m", "deep.er"]"#,
            r#""command": "node", "args": ["link"]"#,
            r#""command": "node", "args": ["../there/server.js"]"#,
            r#""command": "node", "args": ["../../there/server.js"], "cwd": "sub""#,
            r#""command": "tool""#,
        ] {
            assert!(scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn what_starts_the_same_from_everywhere_needs_no_folder() {
        let scene = Scene::new();
        scene.file("here/server.js");
        scene.file("home/server.js");
        for entry in [
            r#""command": "npx", "args": ["-y", "@scope/package@1.2.3", "--port=80", "sub"]"#,
            r#""command": "node", "args": ["ROOT/here/server.js"]"#,
            r#""command": "node", "args": ["${userHome}/server.js"]"#,
            r#""command": "node", "args": ["server.js"], "cwd": "ROOT/here""#,
            r#""command": "node", "args": ["server.js"], "cwd": "${userHome}""#,
            r#""command": "node", "args": ["missing.js"]"#,
            r#""command": "npx", "args": ["-y", "b"], "env": { "DATA": "server.js", "PATH": "/bin:${PATH}" }"#,
            r#""url": "https://example.com/server.js""#,
        ] {
            assert!(!scene.decides(entry), "{entry}");
        }
    }

    #[test]
    fn an_argument_of_very_many_words_is_not_looked_through() {
        let scene = Scene::new();
        let many = "x ".repeat(MAX_WORDS + 1);
        assert!(scene.decides(&format!(r#""command": "sh", "args": ["-c", "{many}"]"#)));
    }
}
