//! What a person sees of providers: their status, and the request to approve a package.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value as Json;

use crate::gateway::Answer;
use crate::registry::providers::RefusedServer;

/// Brings servers: code of the agent's author, which needs no approval. The servers need theirs.
pub trait Provider: Send + Sync {
    /// Returns a list of definitions. It is called when the provider is registered and whenever the config is read again, and has 2 s.
    fn servers(&self) -> Answer<Json>;
}

impl<F: Fn() -> Answer<Json> + Send + Sync> Provider for F {
    fn servers(&self) -> Answer<Json> {
        self()
    }
}

/// Runs the code of approved packages.
pub trait ProviderLoader: Send + Sync {
    /// Runs the code apart from everything else, ends it after 2 s, and returns its list of definitions.
    fn load(&self, code: &ProviderCode) -> Answer<Json>;
}

/// The code of a package whose digest a person has approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderCode {
    /// The folder of the package, without links. Nothing outside of it is covered by the approval.
    pub folder: PathBuf,
    /// The file that has a function `servers()`.
    pub file: PathBuf,
}

/// The state of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderState {
    /// No person has approved the package as it is now, so that its code does not run.
    Unapproved,
    /// Its servers exist.
    Ready,
    /// It cannot be found, or its code did not give a list of definitions.
    Failed,
    /// The policy of the config denies it. Nothing of it is used.
    Denied,
}

impl ProviderState {
    /// Returns the word for this state.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::gateway::ProviderState::Unapproved.as_str(), "unapproved");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unapproved => "unapproved",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Denied => "denied",
        }
    }
}

/// How the gateway knows a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderOrigin {
    /// The config names its package.
    Config,
    /// Its package is installed, and the config allows to look for such packages.
    Discovered,
    /// The agent's author has registered it.
    Registered,
}

impl ProviderOrigin {
    /// Returns the word for this origin.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Discovered => "discovered",
            Self::Registered => "registered",
        }
    }
}

/// The present status of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The beginning of its servers' names, before `--`.
    pub name: String,
    /// The package that it is. Missing for a registered provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The words of the package about itself, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub origin: ProviderOrigin,
    pub state: ProviderState,
    /// The reason for a state other than `ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Names of its servers, valid or not.
    pub servers: Vec<String>,
    /// Servers that the policy denies.
    pub refused: Vec<RefusedServer>,
}

/// Everything that a person must see before the code of a package may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRequest {
    pub name: String,
    pub package: String,
    pub version: String,
    /// The folder in which the package is installed, without links.
    pub folder: String,
    /// The file that runs, relative to the folder.
    pub file: String,
    /// Number of files that the digest covers: all files of the folder.
    pub files: usize,
    pub bytes: u64,
    /// Identifies name, version and all files. `approveProvider` takes it.
    pub digest: String,
    /// True if a person has approved exactly this.
    pub approved: bool,
    /// The version that a person has approved before, if it is another one or its files have changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_before: Option<String>,
}
