//! The commands that an agent's person can type, and what each takes.

use clap::{Args, Parser, Subcommand};

/// A line of [`super::execute`].
#[derive(Debug, Parser)]
#[command(
    name = "/mcp",
    about = "MCP servers: what there is, what may run, what it does",
    no_binary_name = true,
    disable_version_flag = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Line {
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done with servers.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// All servers: state, approval, tools
    List,
    /// One server: state, tools, what it offers
    Info(Server),
    /// Let new runs see a server that is approved
    Enable(Server),
    /// Hide a server, and end what is live of it
    Disable(Server),
    /// Show what a server needs approval for; with the digest shown, approve it
    Approve(Approve),
    /// Take a server's approval back
    Revoke(Server),
    /// Connect anew, and report
    Test(Server),
    /// Find tools by what they do
    Search(Search),
    /// Read the config again
    Reload,
    /// A server's standard error, connections and calls
    Logs(Logs),
}

/// A server by its name.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Server {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
}

/// What `approve` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Approve {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The digest of the request that was read: approves exactly that
    #[arg(value_name = "DIGEST")]
    pub digest: Option<String>,
}

/// What `search` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Search {
    /// What the tool should do
    #[arg(value_name = "WORDS", required = true)]
    pub words: Vec<String>,
    /// Only this server's tools; can be given again
    #[arg(long = "server", value_name = "SERVER")]
    pub servers: Vec<String>,
    /// How many at most, 1 to 100
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub limit: u8,
}

/// What `logs` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Logs {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// How many lines, the last ones
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub lines: u16,
}
