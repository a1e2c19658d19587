//! Builds the command that a message suggests next. The command begins with `npx hyperlight-mcp` or `hyperlight-mcp`, and ends with the
//! `--config` and `--state` that are in use.

use std::collections::BTreeMap;
use std::path::Path;

/// The beginning and the end of each suggested command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCommand {
    program: &'static str,
    options: String,
}

const PROGRAM: &str = "hyperlight-mcp";
const BY_NPX: &str = "npx hyperlight-mcp";

impl NextCommand {
    /// Returns the commands for messages of the program itself. `environment` is the environment in which the program was started.
    #[must_use]
    pub fn of_program(environment: &BTreeMap<String, String>, config: Option<&Path>, state: Option<&Path>) -> Self {
        Self::new(if is_by_npx(environment) { BY_NPX } else { PROGRAM }, config, state)
    }

    /// Returns the commands for messages of a gateway in another program, in whose project `npx` finds this package.
    #[must_use]
    pub fn of_library(config: Option<&Path>, state: Option<&Path>) -> Self {
        Self::new(BY_NPX, config, state)
    }

    fn new(program: &'static str, config: Option<&Path>, state: Option<&Path>) -> Self {
        let given = [("--config", config), ("--state", state)];
        let options = given.iter().filter_map(|(name, path)| Some(format!(" {name} {}", quoted((*path)?)))).collect();
        Self { program, options }
    }

    /// Returns the complete command, which a person can copy into a shell.
    #[must_use]
    pub fn with(&self, words: &str) -> String {
        format!("{} {words}{}", self.program, self.options)
    }
}

/// Returns whether `npx` has started this process. npm sets these variables for the programs that it starts.
fn is_by_npx(environment: &BTreeMap<String, String>) -> bool {
    let is = |name: &str, value: &str| environment.get(name).is_some_and(|given| given == value);
    is("npm_command", "exec") && is("npm_lifecycle_event", "npx")
}

fn quoted(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// Quotes a text so that a shell reads it as one word.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "@%+=:,./_-".contains(character);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_is_about_the_same_config() {
        let nothing = BTreeMap::new();
        let next = |config: Option<&'static str>, state: Option<&'static str>| {
            NextCommand::of_program(&nothing, config.map(Path::new), state.map(Path::new))
        };
        assert_eq!(next(None, None).with("approve a"), "hyperlight-mcp approve a");
        assert_eq!(next(Some("b.json"), None).with("approve a"), "hyperlight-mcp approve a --config b.json");
        let quoted = next(Some("my b's.json"), Some("/s"));
        assert_eq!(quoted.with("doctor"), "hyperlight-mcp doctor --config 'my b'\\''s.json' --state /s");
        assert_eq!(NextCommand::of_library(None, Some(Path::new("/s"))).with("doctor"), "npx hyperlight-mcp doctor --state /s");
        let npm = |command: &str, event: &str| {
            let environment =
                [("npm_command", command), ("npm_lifecycle_event", event)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            NextCommand::of_program(&environment.into(), None, None).with("doctor")
        };
        assert_eq!(npm("exec", "npx"), "npx hyperlight-mcp doctor");
        assert_eq!(npm("run-script", "start"), "hyperlight-mcp doctor");
    }
}
