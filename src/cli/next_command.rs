//! Builds the command that a message suggests next. It is started as the current command was, by `npx` or by its name, and has the same `--config`
//! and `--state`.

use std::collections::BTreeMap;
use std::path::Path;

use super::args::Global;

/// The beginning and the end of each suggested command.
#[derive(Debug, Clone)]
pub(super) struct NextCommand {
    program: &'static str,
    options: String,
}

impl NextCommand {
    pub(super) fn new(global: &Global, environment: &BTreeMap<String, String>) -> Self {
        let given = [("--config", &global.config), ("--state", &global.state)];
        let options = given.iter().filter_map(|(name, path)| Some(format!(" {name} {}", quoted(path.as_deref()?)))).collect();
        Self { program: if is_by_npx(environment) { "npx hyperlight-mcp" } else { "hyperlight-mcp" }, options }
    }

    /// Returns the complete command, which a person can copy into a shell.
    pub(super) fn with(&self, words: &str) -> String {
        format!("{} {words}{}", self.program, self.options)
    }
}

/// Returns whether `npx` has started this process. npm says so in the environment of what it starts.
fn is_by_npx(environment: &BTreeMap<String, String>) -> bool {
    let is = |name: &str, value: &str| environment.get(name).is_some_and(|given| given == value);
    is("npm_command", "exec") && is("npm_lifecycle_event", "npx")
}

/// Quotes a path so that a shell reads it as one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "@%+=:,./_-".contains(character);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_is_about_the_same_config() {
        let global = |config: Option<&str>, state: Option<&str>| Global {
            config: config.map(Into::into),
            state: state.map(Into::into),
            json: false,
            color: super::super::args::ColorChoice::Never,
        };
        let next = |config, state| NextCommand::new(&global(config, state), &BTreeMap::new());
        assert_eq!(next(None, None).with("approve a"), "hyperlight-mcp approve a");
        assert_eq!(next(Some("b.json"), None).with("approve a"), "hyperlight-mcp approve a --config b.json");
        let quoted = next(Some("my b's.json"), Some("/s"));
        assert_eq!(quoted.with("doctor"), "hyperlight-mcp doctor --config 'my b'\\''s.json' --state /s");
        let npm = |command: &str, event: &str| {
            let environment =
                [("npm_command", command), ("npm_lifecycle_event", event)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            NextCommand::new(&global(None, None), &environment.into()).with("doctor")
        };
        assert_eq!(npm("exec", "npx"), "npx hyperlight-mcp doctor");
        assert_eq!(npm("run-script", "start"), "hyperlight-mcp doctor");
    }
}
