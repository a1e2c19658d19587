//! What the program `hyperlight-mcp` can be told.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::bridge::ToolErrors;
use crate::command::{Logs, Search, Server};

const AFTER_HELP: &str = "\
First steps:
  hyperlight-mcp import --write    take over servers that other programs know
  hyperlight-mcp approve           read what would run, and say yes or no
  hyperlight-mcp run script.js     a script that imports \"host:mcp-<server>\"

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
Config: ~/.hyperagent/config.json, as VS Code and Claude Desktop write it.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "hyperlight-mcp",
    version,
    about = "MCP servers as modules of scripts that run in a micro-VM",
    after_help = AFTER_HELP,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The config [default: ~/.hyperagent/config.json]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Approvals, logs [default: ~/.hyperagent/hyperlight-mcp]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// One JSON document on standard output instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// auto (a terminal, no `NO_COLOR`), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub color: ColorChoice,
}

/// When text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// What the program does.
#[derive(Debug, Clone, Subcommand)]
pub enum CliCommand {
    /// All servers: state, approval, tools
    List,
    /// One server: state, tools, what it offers
    Info(Server),
    /// Read what a server would run and offer, and say yes or no
    Approve(Approve),
    /// Take a server's approval back
    Revoke(Server),
    /// Connect to a server, and report
    Test(Server),
    /// Find tools by what they do
    Search(Search),
    /// A server's standard error, connections and calls
    Logs(FollowedLogs),
    /// Run a script in a micro-VM
    Run(Run),
    /// Look at a script without running it
    Check(Check),
    /// Write TypeScript declarations of all tools, for an editor
    Types(Types),
    /// Take over servers from other programs' configs
    Import(Import),
    /// What is wrong here, and how to mend it
    Doctor,
    /// A script that completes this program's words in a shell
    Completion(Completion),
}

/// What `approve` takes.
#[derive(Debug, Clone, Args)]
pub struct Approve {
    /// Servers by name [default: all that need a yes]
    #[arg(value_name = "SERVER")]
    pub servers: Vec<String>,
    /// Approve exactly what this digest was shown for
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
}

/// What `logs` takes.
#[derive(Debug, Clone, Args)]
pub struct FollowedLogs {
    #[command(flatten)]
    pub logs: Logs,
    /// Go on with what comes, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
}

/// What `run` takes.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// JavaScript or TypeScript with `handler(input)`; `-`: standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only these, by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// For the handler: JSON, or @FILE
    #[arg(long, value_name = "JSON", default_value = "null")]
    pub input: String,
    /// Like 30s or 500ms, 60s at most
    #[arg(long, value_name = "TIME", value_parser = super::values::milliseconds)]
    pub timeout: Option<u64>,
    /// Calls that nobody is asked about
    #[arg(long, value_name = "SERVER[.TOOL]", value_delimiter = ',')]
    pub allow_writes: Vec<String>,
    /// A tool error is a value, or thrown
    #[arg(long, value_name = "HOW", default_value = "return")]
    pub tool_errors: Errors,
    /// Cut the value as a model would be given it, 100 at least
    #[arg(long, value_name = "N")]
    pub max_result_tokens: Option<usize>,
    /// Print a string as it is, without quotes
    #[arg(long)]
    pub raw: bool,
}

/// How a tool's error reaches the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Errors {
    Return,
    Throw,
}

impl From<Errors> for ToolErrors {
    fn from(errors: Errors) -> Self {
        match errors {
            Errors::Return => Self::Return,
            Errors::Throw => Self::Throw,
        }
    }
}

/// What `check` takes.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// The script; `-`: standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only these, by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
}

/// What `types` takes.
#[derive(Debug, Clone, Args)]
pub struct Types {
    /// Where they are written; `-`: standard output [default: hyperlight-mcp.d.ts]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only these, by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// As `run` will be told: a tool error is a value, or thrown
    #[arg(long, value_name = "HOW", default_value = "return")]
    pub tool_errors: Errors,
}

/// What `import` takes.
#[derive(Debug, Clone, Args)]
pub struct Import {
    /// Programs whose configs are read [default: all]
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<Program>,
    /// Read this file, as the one PROGRAM's config
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Write into the config without a question
    #[arg(long)]
    pub write: bool,
}

/// A program that knows MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    Vscode,
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Codex,
}

impl Program {
    /// Its own name.
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
}

/// What `completion` takes.
#[derive(Debug, Clone, Args)]
pub struct Completion {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn problem(arguments: &str) -> String {
        let arguments = ["hyperlight-mcp"].into_iter().chain(arguments.split(' '));
        Cli::try_parse_from(arguments).unwrap_err().render().to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_was_meant_is_said() {
        assert!(problem("aprove").contains("'approve'"));
        assert!(problem("run a.js --inptu 1").contains("'--input'"));
        assert!(problem("run").contains("<FILE>"));
        assert!(problem("run a.js --timeout soon").contains("30s"));
        assert!(problem("import vscod").contains("'vscode'"));
    }

    #[test]
    fn help_fits_a_terminal() {
        let help = Cli::command().render_help().to_string();
        insta::assert_snapshot!("help", help);
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
