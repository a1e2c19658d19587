//! The information about providers that a person sees: their status, and the request to approve a package.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value as Json;

use crate::config::{ServerSource, SourceKind};
use crate::gateway::Answer;
use crate::registry::providers::RefusedServer;

/// Code of the agent's author that provides servers. The code needs no approval, but each server does.
pub trait Provider: Send + Sync {
    /// Returns a list of server definitions. Called when the provider is registered and at each reload of the config. Must answer within 2
    /// s.
    fn servers(&self) -> Answer<Json>;
}

impl<F: Fn() -> Answer<Json> + Send + Sync> Provider for F {
    fn servers(&self) -> Answer<Json> {
        self()
    }
}

/// Runs the code of approved packages.
pub trait ProviderLoader: Send + Sync {
    /// Runs the code in isolation, ends it after 2 s, and returns its list of server definitions.
    fn load(&self, code: &ProviderCode) -> Answer<Json>;
}

/// The code of a package whose digest a person has approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderCode {
    /// The folder of the package, with links resolved. The approval covers no files outside of it.
    pub folder: PathBuf,
    /// The file that exports the function `servers()`.
    pub file: PathBuf,
}

/// The state of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderState {
    /// No person has approved the present version and files of the package, so its code does not run.
    Unapproved,
    /// The code has answered, and its servers exist.
    Ready,
    /// The package was not found, or its code did not return a list of server definitions.
    Failed,
    /// The policy of the config denies the provider. Its code does not run.
    Denied,
}

impl ProviderState {
    /// Returns the name of this state.
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

/// The way in which the gateway found a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderOrigin {
    /// The config names the package.
    Config,
    /// The package is installed, and the config allows searching for installed packages.
    Discovered,
    /// The agent's author has registered the provider.
    Registered,
}

impl ProviderOrigin {
    /// Returns the name of this origin.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Discovered => "discovered",
            Self::Registered => "registered",
        }
    }

    /// Returns the source of the servers of a provider. The key of an approval contains the source, so that an approval for a package does
    /// not apply to the agent's code. The source of a package contains the name of the package, because two packages can have the same
    /// provider name (`@acme/mcp` and `acme-mcp`).
    pub(super) fn source_of(self, provider: &str, package: Option<&str>) -> ServerSource {
        let kind = match self {
            Self::Config | Self::Discovered => SourceKind::Provider,
            Self::Registered => SourceKind::Registered,
        };
        ServerSource::named(kind, package.unwrap_or(provider))
    }
}

/// The present status of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The provider's name. The names of the provider's servers begin with this name, followed by `--`.
    pub name: String,
    /// The name of the provider's package. Absent for a registered provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The package's own description, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub origin: ProviderOrigin,
    pub state: ProviderState,
    /// The reason for a state other than `ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The names of the provider's servers, including servers whose definition has an error.
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
    /// The folder in which the package is installed, with links resolved.
    pub folder: String,
    /// The file that is run, relative to the folder.
    pub file: String,
    /// The number of files that the digest covers: all files in the folder.
    pub files: usize,
    pub bytes: u64,
    /// The digest of the name, the version and all files. It is an argument of `approveProvider`.
    pub digest: String,
    /// True if a person has approved exactly this digest.
    pub approved: bool,
    /// The version that a person approved earlier. Present only if the version or the files have changed since that approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_before: Option<String>,
}
