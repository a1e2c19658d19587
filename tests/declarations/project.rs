//! A TypeScript project with all declarations of a test, and the errors that the compiler reports.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// A folder with sources that are compiled together.
pub struct Project {
    folder: tempfile::TempDir,
    files: Vec<String>,
}

impl Project {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), files: Vec::new() }
    }

    pub fn add(&mut self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
        self.files.push(name.to_owned());
    }

    /// Returns the errors of the compiler, one on each line, with their source lines.
    pub fn problems(&self) -> Vec<String> {
        let config = serde_json::json!({
            "compilerOptions": {
                "strict": true, "noEmit": true, "target": "es2022", "lib": ["es2022"], "types": [], "module": "esnext",
                "moduleResolution": "bundler", "skipLibCheck": false,
            },
            "files": self.files,
        });
        fs::write(self.folder.path().join("tsconfig.json"), config.to_string()).unwrap();
        let output =
            Command::new(compiler()).args(["--project", "tsconfig.json", "--pretty", "false"]).current_dir(self.folder.path()).output();
        let output = output.expect("node_modules/.bin/tsc cannot be started; install it: scripts/setup");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let problems: Vec<String> = said.lines().filter(|line| line.contains("error")).map(|line| self.explained(line)).collect();
        assert_eq!(output.status.success(), problems.is_empty(), "{}: {said}", output.status);
        problems
    }

    fn explained(&self, problem: &str) -> String {
        let mut explained = problem.to_owned();
        if let Some((file, rest)) = problem.split_once('(')
            && let Some(line) = rest.split(',').next().and_then(|line| line.parse::<usize>().ok())
            && let Ok(text) = fs::read_to_string(self.folder.path().join(file))
        {
            for line in text.lines().skip(line - 1).take(2) {
                let _ = write!(explained, "\n    {}", line.chars().take(400).collect::<String>());
            }
        }
        explained
    }
}

fn compiler() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("node_modules/.bin/tsc")
}

/// Returns a value as a TypeScript expression.
pub fn expression(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(expression).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            // The key is in brackets, because `__proto__: x` would set the prototype instead of a property.
            let field = |(key, value): (&String, &Json)| format!("[{}]: {}", Json::from(key.as_str()), expression(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        scalar => in_one_line(scalar),
    }
}

/// Escapes U+2028, because it ends a line in TypeScript, even in a string.
fn in_one_line(scalar: &Json) -> String {
    scalar.to_string().replace('\u{2028}', "\\u2028")
}

/// Returns the type that contains exactly this value.
pub fn exact_type(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(exact_type).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            let field = |(key, value): (&String, &Json)| format!("{}: {}", Json::from(key.as_str()), exact_type(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join("; "))
        }
        scalar => in_one_line(scalar),
    }
}
