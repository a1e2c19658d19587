//! Builds the command that a message suggests next. It has the same `--config` and `--state` as the current command.

use std::path::Path;

use super::args::Global;

/// The options at the end of each suggested command.
#[derive(Debug, Clone, Default)]
pub(super) struct NextCommand(String);

impl NextCommand {
    pub(super) fn new(global: &Global) -> Self {
        let given = [("--config", &global.config), ("--state", &global.state)];
        Self(given.iter().filter_map(|(name, path)| Some(format!(" {name} {}", quoted(path.as_deref()?)))).collect())
    }

    /// Returns the complete command, which a person can copy into a shell.
    pub(super) fn with(&self, words: &str) -> String {
        format!("hyperlight-mcp {words}{}", self.0)
    }
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
        assert_eq!(NextCommand::new(&global(None, None)).with("approve a"), "hyperlight-mcp approve a");
        assert_eq!(NextCommand::new(&global(Some("b.json"), None)).with("approve a"), "hyperlight-mcp approve a --config b.json");
        let quoted = NextCommand::new(&global(Some("my b's.json"), Some("/s")));
        assert_eq!(quoted.with("doctor"), "hyperlight-mcp doctor --config 'my b'\\''s.json' --state /s");
    }
}
