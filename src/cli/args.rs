//! Command-line arguments of the program `hyperlight-mcp`.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use super::access::Access;
pub use super::approve_args::{Approve, Revoke};
use super::audit::Audit;
pub use super::boot::Boot;
use super::boxes::Boxes;
use super::completion::Complete;
use super::grants::{AsAgent, Grant, SearchAs, Toolboxes, Ungrant};
use super::own::args::{Add, Set, Unset};
use crate::bridge::ToolErrors;
use crate::command::{Logs, Server};
pub use crate::config::Program;
use crate::serve::NameStyle;

const AFTER_HELP: &str = "\
First steps:
  hyperlight-mcp import --write    copy servers from other programs
  hyperlight-mcp approve           read what would run, and say yes or no
  hyperlight-mcp run script.js     a script that imports \"host:mcp-<server>\"

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
Config: ~/.hyperagent/config.json, as VS Code and Claude Desktop write it.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "hyperlight-mcp",
    version,
    about = "Runs scripts in a micro-VM, with MCP servers as modules",
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

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Config file [default: ~/.hyperagent/config.json]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Approvals, logs [default: ~/.hyperagent/hyperlight-mcp]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// auto (colours on a terminal), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub color: ColorChoice,
}

/// Setting for coloured text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// Commands of the program.
#[derive(Debug, Clone, Subcommand)]
pub enum CliCommand {
    /// List all servers: state, approval, tools
    List(AsAgent),
    /// Show one server: state, tools, resources, prompts
    Info(Server),
    /// Add a server to the config: add NAME -- COMMAND ARGS…, or --url
    Add(Add),
    /// Set variables or settings of a server in the config
    Set(Set),
    /// Remove variables or settings of a server in the config
    Unset(Unset),
    /// Remove a server, and revoke its approval
    Remove(Server),
    /// Let a server be used: offers the approval that it needs
    Enable(Server),
    /// Read what a server would run and offer, and say yes or no
    Approve(Approve),
    /// Revoke a server's approval
    Revoke(Revoke),
    /// List the packages that bring servers
    Providers,
    /// Connect to a server and report the result
    Test(Server),
    /// Find tools by what they do
    Search(SearchAs),
    /// Show a server's standard error, connections and calls
    Logs(FollowedLogs),
    /// Show what was approved, changed, connected and called
    Audit(Box<Audit>),
    /// Run a script in a micro-VM
    Run(Run),
    /// Check a script without running it
    Check(Check),
    /// Show which servers would be in force, and why
    Resolve(Resolve),
    /// Serve the approved servers to an MCP host, on stdio or over HTTP
    Serve(Box<Serve>),
    /// Make tools from a prompt, and serve them
    Boot(Box<Boot>),
    /// Write TypeScript declarations of all tools, for an editor
    Types(Types),
    /// Copy servers from other programs' configs
    Import(Import),
    /// Let a program use all servers through hyperlight-mcp
    Install(Install),
    /// Give toolboxes to an agent, which can then use only these
    Grant(Grant),
    /// Take toolboxes from an agent
    Ungrant(Ungrant),
    /// List toolboxes and who has them; or make, change or remove one
    Toolboxes(Toolboxes),
    /// List the private homes of servers in boxes, and remove old ones
    Boxes(Boxes),
    /// Find problems, and say how to fix them
    Doctor,
    /// Print a script for completion in a shell
    Completion(Completion),
    /// Print the words that can complete a line
    #[command(hide = true)]
    Complete(Complete),
}

/// Arguments of `logs`.
#[derive(Debug, Clone, Args)]
pub struct FollowedLogs {
    #[command(flatten)]
    pub logs: Logs,
    /// Print new lines as they come, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
#[command(mut_group("Access", |access| access.requires("http")))]
pub struct Serve {
    /// Only these servers, separated by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// Allow calls that change something: SERVER or SERVER.TOOL, separated by commas [default: the host asks]
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub allow_writes: Vec<String>,
    /// Also list every tool under its own name, or only the tools of these servers, separated by commas
    #[arg(long, value_name = "SERVERS", value_delimiter = ',', num_args = 0..=1)]
    pub direct: Option<Vec<String>>,
    /// Form of the names of --direct: with underscores after a common start, or with hyphens
    #[arg(long, value_name = "STYLE", default_value = "underscore", requires = "direct")]
    pub names: Names,
    /// Throw a tool's error in the code of models, or return it as a value
    #[arg(long, value_name = "HOW", default_value = "throw")]
    pub tool_errors: Errors,
    /// Name of the agent, for logs and grants [default: the name of its token; the host's own name is for logs only]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Serve over HTTP instead; the host is 127.0.0.1 if it is not given
    #[arg(long, value_name = "[HOST:]PORT")]
    pub http: Option<String>,
    #[command(flatten)]
    pub access: Access,
    /// Read a changed config again automatically [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", overrides_with = "no_watch")]
    pub watch: Option<bool>,
    /// Do not read a changed config again
    #[arg(long, overrides_with = "watch")]
    pub no_watch: bool,
    /// Do not learn the shapes of results that no server declares [default: `learnResults` of the config]
    #[arg(long)]
    pub no_learn_results: bool,
}

impl Serve {
    /// Returns whether a changed config is read again automatically.
    #[must_use]
    pub fn watches(&self) -> bool {
        !self.no_watch && self.watch.unwrap_or(true)
    }
}

/// The form of the names of `--direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Names {
    Underscore,
    Hyphen,
}

impl From<Names> for NameStyle {
    fn from(names: Names) -> Self {
        match names {
            Names::Underscore => Self::Underscore,
            Names::Hyphen => Self::Hyphen,
        }
    }
}

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// JavaScript or TypeScript with `handler(input)`; `-`: standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only these servers, separated by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// The task in words: attaches servers by their keywords
    #[arg(long, short = 't', value_name = "TEXT")]
    pub task: Option<String>,
    /// Only print which servers the script would have, and why
    #[arg(long = "dry-run")]
    pub resolve_only: bool,
    /// Input of the handler: JSON, or @FILE
    #[arg(long, value_name = "JSON", default_value = "null")]
    pub input: String,
    /// Time limit, like 30s, 500ms or 2m; 30 is 30s [default: limits.runTimeoutMs, 60s]
    #[arg(long, value_name = "TIME", value_parser = super::values::milliseconds)]
    pub timeout: Option<u64>,
    /// Set a limit for this run, as in `limits` of the config; can be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = super::values::limit)]
    pub limits: Vec<(String, u64)>,
    /// Allow calls of these tools without a question
    #[arg(long, value_name = "SERVER[.TOOL]", value_delimiter = ',')]
    pub allow_writes: Vec<String>,
    /// Return a tool's error as a value, or throw it
    #[arg(long, value_name = "HOW", default_value = "return")]
    pub tool_errors: Errors,
    /// Cut the value to this many tokens, at least 100
    #[arg(long, value_name = "N")]
    pub max_result_tokens: Option<usize>,
    /// Host that the script may fetch from, if a person has approved it (approve --fetch)
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub fetch: Vec<String>,
    /// With --fetch: those of its hosts that may have private addresses, as they were approved
    #[arg(long, value_name = "HOST,…", requires = "fetch", value_delimiter = ',')]
    pub private_hosts: Vec<String>,
    /// Print a string as it is, without quotes
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub as_agent: AsAgent,
}

/// The form in which a script gets the error of a tool.
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

/// Arguments of `resolve`.
#[derive(Debug, Clone, Args)]
pub struct Resolve {
    /// The task in words: attaches servers by their keywords
    #[arg(long, short = 't', value_name = "TEXT")]
    pub task: Option<String>,
    /// Name of the agent [default: the operator's own]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Print only the reason for each server, and write no file
    #[arg(long)]
    pub dry_run: bool,
    /// Write the mcpServers to this file (mode 0600), for a program that is started next
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// The script; `-`: standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only these servers, separated by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
}

/// Arguments of `types`.
#[derive(Debug, Clone, Args)]
pub struct Types {
    /// Output file; `-`: standard output [default: hyperlight-mcp.d.ts]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only these servers, separated by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// As for `run`: return a tool's error as a value, or throw it
    #[arg(long, value_name = "HOW", default_value = "return")]
    pub tool_errors: Errors,
    #[command(flatten)]
    pub as_agent: AsAgent,
}

/// Arguments of `import`.
#[derive(Debug, Clone, Args)]
pub struct Import {
    /// Programs whose configs to read [default: all]
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<Program>,
    /// Read this file as the config of PROGRAM
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Write into the config without asking
    #[arg(long)]
    pub write: bool,
}

/// Arguments of `install`.
#[derive(Debug, Clone, Args)]
pub struct Install {
    /// Program whose config to change
    #[arg(value_name = "PROGRAM")]
    pub program: Program,
    /// Write the change; otherwise it is only shown
    #[arg(long)]
    pub write: bool,
    /// Take the change back
    #[arg(long, conflicts_with = "servers")]
    pub undo: bool,
    /// Config of the user, or of the project in this folder
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub scope: Scope,
    /// Serve only these servers, separated by commas [default: all approved]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub servers: Option<Vec<String>>,
    /// Serve only what this agent is granted
    #[arg(long, value_name = "NAME", conflicts_with = "undo")]
    pub agent: Option<String>,
}

/// The config of a program that applies to all folders, or to one project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    User,
    Project,
}

impl Scope {
    /// Returns the word for the scope as it is written on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// The words for the programs as they are written on the command line.
impl ValueEnum for Program {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()))
    }
}

/// Arguments of `completion`.
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
        assert!(problem("install").contains("<PROGRAM>"));
        assert!(problem("install cursr").contains("'cursor'"));
        assert!(problem("install cursor --undo --servers a").contains("--servers"));
        assert!(problem("resolve --tsak x").contains("'--task'"));
        assert!(problem("revoke").contains("SERVER"));
        assert!(problem("revoke a --provider b").contains("--provider"));
        assert!(problem("approve a --provider b").contains("--provider"));
        assert!(problem("approve --agent a").contains("--fetch"));
        assert!(problem("approve a --fetch b.example").contains("--fetch"));
        assert!(problem("revoke a --fetch").contains("--fetch"));
        assert!(problem("serve --names hyphen").contains("--direct"));
        assert!(problem("serve --direct --names dots").contains("hyphen"));
    }

    #[test]
    fn direct_takes_some_servers_or_means_all() {
        let direct =
            |words: &str| match Cli::try_parse_from(["hyperlight-mcp", "serve"].into_iter().chain(words.split(' '))).unwrap().command {
                CliCommand::Serve(arguments) => arguments.direct,
                other => panic!("{other:?}"),
            };
        assert_eq!(direct("--http 0"), None);
        assert_eq!(direct("--direct --http 0"), Some(Vec::new()));
        assert_eq!(direct("--direct a,b --names hyphen"), Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn a_changed_config_is_read_again_unless_the_last_word_is_against_it() {
        let watches = |words: &str| match Cli::parse_from(["hyperlight-mcp", "serve"].into_iter().chain(words.split_whitespace())).command {
            CliCommand::Serve(serve) => serve.watches(),
            _ => unreachable!("the command is serve"),
        };
        for words in ["", "--watch", "--watch true", "--watch=true", "--watch --servers a", "--no-watch --watch"] {
            assert!(watches(words), "{words}");
        }
        for words in ["--no-watch", "--watch false", "--watch=false", "--watch --no-watch"] {
            assert!(!watches(words), "{words}");
        }
        assert!(problem("serve --watch maybe").contains("maybe"));
    }

    #[test]
    fn an_option_of_serve_that_needs_another_names_it() {
        let oauth = "--oauth-issuer https://a.example";
        for (words, needed) in [
            ("--token-file f", "--http"),
            ("--tls-cert f --http 0", "--tls-key"),
            ("--tls-key f --http 0", "--tls-cert"),
            (&format!("--http 0 {oauth}"), "--oauth-resource"),
            (&format!("{oauth} --oauth-resource https://b.example"), "--http"),
            ("--http 0 --oauth-resource https://b.example", "--oauth-issuer"),
            ("--http 0 --oauth-scopes a", "--oauth-issuer"),
            ("--http 0 --oauth-jwks https://a.example/keys", "--oauth-issuer"),
            ("--allowed-hosts a.example", "--http"),
            ("--allowed-origins https://a.example", "--http"),
        ] {
            let problem = problem(&format!("serve {words}"));
            assert!(problem.contains(needed), "{words}: {problem}");
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        let help = Cli::command().render_help().to_string();
        insta::assert_snapshot!("help", help);
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
