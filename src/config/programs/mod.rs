//! The configs of other programs that have MCP servers: their files, and their servers as entries of `mcpServers`. This module reads no
//! file, starts no server and resolves no variable.

mod base;
mod entries;
mod inputs;
mod names;
mod paths;

pub use base::{BaseFile, BaseLayer, base_layer};
pub(crate) use entries::{ProgramServer, converted, inputs_in, servers_in, starts_gateway};
pub(crate) use inputs::{inputs_of_entry, renamed_inputs};
pub(crate) use names::{FreeNames, valid_name};
pub(crate) use paths::config_paths;

/// A program that has MCP servers in its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Vscode,
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Codex,
}

impl Program {
    /// All programs, in the order in which their configs are read.
    pub const ALL: [Self; 5] = [Self::Vscode, Self::ClaudeDesktop, Self::ClaudeCode, Self::Cursor, Self::Codex];

    /// Returns the product name of the program.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Vscode => "VS Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Codex => "Codex",
        }
    }

    /// Returns the word for the program on the command line and in `base`.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::config::Program::ClaudeCode.word(), "claude-code");
    /// ```
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Vscode => "vscode",
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::Codex => "codex",
        }
    }

    /// Returns the program with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.word() == word)
    }
}
