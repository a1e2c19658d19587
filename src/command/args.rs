//! Commands that a person can type in an agent, with their arguments.

use clap::{Args, Parser, Subcommand};

/// Command line that [`super::execute`] parses.
#[derive(Debug, Parser)]
#[command(
    name = "/mcp",
    about = "Lists, approves and manages MCP servers",
    no_binary_name = true,
    disable_version_flag = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Line {
    #[command(subcommand)]
    pub command: Command,
}

/// Commands that act on servers.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// List all servers: state, approval, tools
    List,
    /// Show one server: state, tools, resources, prompts
    Info(Server),
    /// Let new runs see a server; shows what is not approved yet
    Enable(Approve),
    /// Hide a server from new runs, and close its connection
    Disable(Server),
    /// Show a server's approval request; with its digest, approve it
    Approve(Approve),
    /// Revoke a server's approval
    Revoke(Server),
    /// Connect again and report the result
    Test(Server),
    /// Find tools by what they do
    Search(Search),
    /// Read the config again
    Reload,
    /// Show a server's standard error, connections and calls
    Logs(Logs),
    /// List the providers; with a name, show what its code is, and with its digest approve it
    Providers(Providers),
}

/// Name of a server as an argument.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Server {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
}

/// Arguments of `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Approve {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Digest of the request that was read: approves exactly that request
    #[arg(value_name = "DIGEST")]
    pub digest: Option<String>,
}

/// Arguments of `providers`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Providers {
    /// The name of a provider, or of its package
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Digest of the request that was read: approves exactly that request
    #[arg(value_name = "DIGEST")]
    pub digest: Option<String>,
}

/// Arguments of `search`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Search {
    /// What the tool should do
    #[arg(value_name = "WORDS", required = true)]
    pub words: Vec<String>,
    /// Only this server's tools; can be repeated
    #[arg(long = "server", value_name = "SERVER")]
    pub servers: Vec<String>,
    /// Number of tools at most, 1 to 100
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub limit: u8,
}

/// Arguments of `logs`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Logs {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Number of lines, counted from the end
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub lines: u16,
}
