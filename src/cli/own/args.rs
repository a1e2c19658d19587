//! Arguments of the commands that change the operator's own config.

use clap::Args;

/// Arguments of `add`.
#[derive(Debug, Clone, Args)]
pub struct Add {
    /// Name of the new server: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Command and arguments that start the server
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "url", conflicts_with = "url")]
    pub command: Vec<String>,
    /// Address of a server behind HTTP, instead of a command
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Variable of the server's environment; can be repeated
    #[arg(long, short, value_name = "KEY=VALUE", conflicts_with = "url")]
    pub env: Vec<String>,
    /// Header that is sent to the address; can be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    pub header: Vec<String>,
}

/// Arguments of `set`.
#[derive(Debug, Clone, Args)]
pub struct Set {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub name: String,
    /// Variables (headers of a server with a URL), or settings such as timeoutMs
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub values: Vec<String>,
}

/// Arguments of `unset`.
#[derive(Debug, Clone, Args)]
pub struct Unset {
    /// The server's name in the config
    #[arg(value_name = "SERVER")]
    pub name: String,
    /// Variables (headers of a server with a URL), or settings such as timeoutMs
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
}
