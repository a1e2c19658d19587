//! Arguments of the commands `approve` and `revoke`.

use clap::Args;

/// Arguments of `approve`.
#[derive(Debug, Clone, Args)]
pub struct Approve {
    /// Servers by name [default: all that need approval]
    #[arg(value_name = "SERVER")]
    pub servers: Vec<String>,
    /// Approve the code of this package, which brings servers
    #[arg(long, value_name = "NAME", conflicts_with = "servers")]
    pub provider: Option<String>,
    /// Hosts that the code of an agent may fetch from, separated by commas [default: those of the agent's entry in the config]
    #[arg(long, value_name = "HOST,…", num_args = 0..=1, value_delimiter = ',', conflicts_with_all = ["servers", "provider"])]
    pub fetch: Option<Vec<String>>,
    /// With --fetch: the agent's name [default: the operator's own agent]
    #[arg(long, value_name = "NAME", requires = "fetch")]
    pub agent: Option<String>,
    /// With --fetch: those of its hosts that may have private addresses. The agent's program must allow them too (fetch.allowPrivateHosts)
    #[arg(long, value_name = "HOST,…", requires = "fetch", value_delimiter = ',')]
    pub private_hosts: Vec<String>,
    /// Show long requests without a pause
    #[arg(long)]
    pub all: bool,
    /// Approve exactly the request that has this digest
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
}

/// Arguments of `revoke`.
#[derive(Debug, Clone, Args)]
pub struct Revoke {
    /// The server's name in the config
    #[arg(value_name = "SERVER", required_unless_present_any = ["provider", "fetch"])]
    pub server: Option<String>,
    /// Revoke the approval of this package's code
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub provider: Option<String>,
    /// Revoke the approval of the hosts that the code of an agent may fetch from
    #[arg(long, conflicts_with_all = ["server", "provider"])]
    pub fetch: bool,
    /// With --fetch: the agent's name [default: the operator's own agent]
    #[arg(long, value_name = "NAME", requires = "fetch")]
    pub agent: Option<String>,
}
