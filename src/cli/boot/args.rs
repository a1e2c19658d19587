//! Arguments of the command `boot`.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use secrecy::SecretString;

use crate::cli::access::Access;

/// Arguments of `boot`.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Clone, Args)]
pub struct Boot {
    /// Describes the tools, with the URLs of their documentation
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file", conflicts_with = "prompt_file")]
    pub prompt: Option<String>,
    /// File with the prompt; - is standard input
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Provider of the model: anthropic, or openai (also for other services that use its protocol)
    #[arg(long, value_name = "NAME", default_value = "anthropic")]
    pub provider: Provider,
    /// The model [default: one of the provider's newer ones]
    #[arg(long, value_name = "ID")]
    pub model: Option<String>,
    #[arg(long, value_name = "KEY", value_parser = key, help = "Key of the provider [default: ANTHROPIC_API_KEY or OPENAI_API_KEY]")]
    pub api_key: Option<SecretString>,
    #[arg(
        long,
        value_name = "URL",
        help = "Address of the provider, for example of a local server [default: ANTHROPIC_BASE_URL or OPENAI_BASE_URL]"
    )]
    pub base_url: Option<String>,
    /// Port of the tool server; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub port: u16,
    /// Address of this machine on which the tool server listens
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Serve on standard input and output instead
    #[arg(long, conflicts_with_all = ["port", "host", "Access"])]
    pub stdio: bool,
    /// Name of the tool server [default: boot- and the beginning of the prompt's digest]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Folder of made tools
    #[arg(long, value_name = "FOLDER", default_value = ".mcpboot-cache")]
    pub cache_dir: PathBuf,
    /// Make the tools again, and do not store them
    #[arg(long, conflicts_with_all = ["cache_dir", "locked"])]
    pub no_cache: bool,
    /// Take the tools from the cache, without a model and without looking at the pages
    #[arg(long)]
    pub locked: bool,
    /// Print the plan and what could be reached, and end
    #[arg(long)]
    pub dry_run: bool,
    /// Print sizes and times of all requests to the model
    #[arg(long)]
    pub verbose: bool,
    /// API key of a documented service: a variable, and the only host that gets its value, in headers and in the URL (with :body, in bodies too)
    #[arg(long = "secret", value_name = "NAME[@HOST][:body]")]
    pub secrets: Vec<String>,
    /// Host that may have a private address, such as 127.0.0.1:8080
    #[arg(long = "allow-host", value_name = "HOST")]
    pub allow_hosts: Vec<String>,
    /// Approve exactly the tools with this digest
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
    #[command(flatten)]
    pub access: Access,
}

/// The provider of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    Anthropic,
    Openai,
}

impl Provider {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
        }
    }

    /// Returns the variable that has the key.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
        }
    }

    /// Returns the variable with the address, which is used without `--base-url`.
    pub(super) fn address_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Openai => "OPENAI_BASE_URL",
        }
    }
}

/// Wraps a key, so that no text that is made from the arguments contains it.
#[allow(clippy::unnecessary_wraps, reason = "clap wants a result")]
fn key(text: &str) -> Result<SecretString, Infallible> {
    Ok(SecretString::from(text))
}
