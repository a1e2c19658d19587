//! The source of a server: who brought it. Sources are ordered by their precedence.

use std::fmt;

use serde::Serialize;

/// The kind of a source. A kind that comes earlier here hides servers of the same name from later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A task's own request.
    Task,
    /// The operator's config. With a name: the config of another program, which is a layer under the operator's.
    #[default]
    Config,
    /// A package, or the agent's author, by a provider.
    Provider,
    /// Tools that were made from a prompt.
    Generated,
    /// The definitions that are shipped with hyperlight-mcp.
    Catalogue,
    /// An agent, at run time. It comes last, as its servers do not exist for others and must take no name from them.
    Agent,
}

impl SourceKind {
    /// Returns whether servers of this kind are there without a task that attaches them.
    #[must_use]
    pub fn is_there_without_a_task(self) -> bool {
        match self {
            Self::Config | Self::Agent => true,
            Self::Task | Self::Provider | Self::Generated | Self::Catalogue => false,
        }
    }

    /// Returns the word for this kind.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::config::SourceKind::Provider.as_str(), "provider");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Config => "config",
            Self::Agent => "agent",
            Self::Provider => "provider",
            Self::Generated => "generated",
            Self::Catalogue => "catalogue",
        }
    }
}

/// Who brought a server. The default is the operator's config.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct ServerSource {
    pub kind: SourceKind,
    /// The name of the agent, the provider, the program whose config it is, or the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ServerSource {
    /// Creates a source with a name.
    #[must_use]
    pub fn named(kind: SourceKind, name: impl Into<String>) -> Self {
        Self { kind, name: Some(name.into()) }
    }

    /// Returns whether this is the operator's own config.
    #[must_use]
    pub fn is_operators_config(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the key under which approvals, tokens and facts of a server of this source are kept, so that no other source inherits them. It is
    /// the bare name for the operator's config, and begins with the source for all others. A server's name contains no `:`.
    ///
    /// ```
    /// use hyperlight_mcp::config::{ServerSource, SourceKind};
    /// assert_eq!(ServerSource::default().key("files"), "files");
    /// assert_eq!(ServerSource::named(SourceKind::Provider, "acme").key("acme--files"), "provider:acme:acme--files");
    /// ```
    #[must_use]
    pub fn key(&self, server: &str) -> String {
        if self.is_operators_config() {
            return server.to_owned();
        }
        // The name is free text, so a colon in it is escaped: no two sources have the same key.
        let name = self.name.as_deref().unwrap_or_default().replace('%', "%25").replace(':', "%3A");
        format!("{}:{name}:{server}", self.kind.as_str())
    }
}

/// Returns the name of the server whose key this is ([`ServerSource::key`]).
///
/// ```
/// use hyperlight_mcp::config::{ServerSource, SourceKind, server_of_key};
/// let source = ServerSource::named(SourceKind::Agent, "a:b");
/// assert_eq!((server_of_key(&source.key("files")), server_of_key("files")), ("files", "files"));
/// ```
#[must_use]
pub fn server_of_key(key: &str) -> &str {
    key.rsplit(':').next().unwrap_or(key)
}

/// Names the source in a sentence: `the config`, `the provider "acme"`.
impl fmt::Display for ServerSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match (self.kind, &self.name) {
            (SourceKind::Config, Some(_)) => "the config of",
            (SourceKind::Config, None) => "the config",
            (SourceKind::Task, _) => "the task",
            (SourceKind::Agent, _) => "the agent",
            (SourceKind::Provider, _) => "the provider",
            (SourceKind::Generated, _) => "the generated tools",
            (SourceKind::Catalogue, _) => "the catalogue",
        };
        match &self.name {
            Some(name) => write!(formatter, "{words} \"{name}\""),
            None => formatter.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_source() -> impl Strategy<Value = ServerSource> {
        let kinds =
            [SourceKind::Task, SourceKind::Config, SourceKind::Agent, SourceKind::Provider, SourceKind::Generated, SourceKind::Catalogue];
        (prop::sample::select(kinds.to_vec()), prop::option::of("[a:%/-]{0,4}")).prop_map(|(kind, name)| ServerSource { kind, name })
    }

    proptest! {
        #[test]
        fn two_sources_or_two_names_never_share_a_key(one in any_source(), other in any_source(), a in "[a-z-]{1,3}", b in "[a-z-]{1,3}") {
            let same_name = one.name.as_deref().unwrap_or_default() == other.name.as_deref().unwrap_or_default();
            let is_same = one.kind == other.kind && same_name && one.is_operators_config() == other.is_operators_config() && a == b;
            prop_assert_eq!(one.key(&a) == other.key(&b), is_same);
        }
    }
}
