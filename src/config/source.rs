//! The source of a server: the config, agent, package or task that brought it. Sources are ordered by precedence.

use std::fmt;

use serde::Serialize;

/// The kind of a source. A server of an earlier kind hides servers with the same name of later kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A task that requests the server.
    Task,
    /// The operator's config. If the source has a name, it is the config of another program, which is a layer under the operator's config.
    #[default]
    Config,
    /// A provider that the agent's own code registers. Its kind is shown as `provider`, and only the keys of its servers differ
    /// ([`ServerSource::key`]).
    #[serde(rename = "provider")]
    Registered,
    /// A provider in a package.
    Provider,
    /// Tools that were made from a prompt.
    Generated,
    /// The catalogue of definitions that is shipped with hyperlight-mcp.
    Catalogue,
    /// An agent, at run time. This kind is last, because other agents do not see such a server, so it must not hide a server of another
    /// source.
    Agent,
}

impl SourceKind {
    const ALL: [Self; 7] = [Self::Task, Self::Config, Self::Registered, Self::Provider, Self::Generated, Self::Catalogue, Self::Agent];

    /// Returns whether servers of this kind are available without a task that requests them.
    #[must_use]
    pub fn is_there_without_a_task(self) -> bool {
        match self {
            Self::Config | Self::Agent | Self::Generated => true,
            Self::Task | Self::Registered | Self::Provider | Self::Catalogue => false,
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
            Self::Registered | Self::Provider => "provider",
            Self::Generated => "generated",
            Self::Catalogue => "catalogue",
        }
    }

    /// Returns the word for this kind in keys. Each kind has its own word, so that an approval for a package does not apply to the agent's code under
    /// the same name.
    fn key_word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Task | Self::Config | Self::Agent | Self::Provider | Self::Generated | Self::Catalogue => self.as_str(),
        }
    }
}

/// The source of a server. The default is the operator's config.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct ServerSource {
    pub kind: SourceKind,
    /// The name of the agent, the provider, the program that owns the config, or the task.
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

    /// Returns the key under which approvals, tokens and other data of a server from this source are stored, so that a server from another
    /// source does not inherit them. For the operator's config, the key is the name itself. For any other source, the key begins with the
    /// source. A server's name contains no `:`.
    ///
    /// ```
    /// use hyperlight_mcp::config::{ServerSource, SourceKind};
    /// assert_eq!(ServerSource::default().key("files"), "files");
    /// assert_eq!(ServerSource::named(SourceKind::Provider, "acme").key("acme--files"), "provider:acme:acme--files");
    /// assert_eq!(ServerSource::named(SourceKind::Registered, "acme").key("acme--files"), "registered:acme:acme--files");
    /// ```
    #[must_use]
    pub fn key(&self, server: &str) -> String {
        if self.is_operators_config() {
            return server.to_owned();
        }
        // The name is any text, so a colon in it is escaped. Otherwise two sources could have the same key.
        let name = self.name.as_deref().unwrap_or_default();
        let escaped = name.contains(['%', ':']).then(|| name.replace('%', "%25").replace(':', "%3A"));
        [self.kind.key_word(), ":", escaped.as_deref().unwrap_or(name), ":", server].concat()
    }

    /// Returns the words that a sentence puts before the name of the source.
    pub(crate) fn words(&self) -> &'static str {
        match (self.kind, &self.name) {
            (SourceKind::Config, Some(_)) => "the config of",
            (SourceKind::Config, None) => "the config",
            (SourceKind::Task, _) => "the task",
            (SourceKind::Agent, _) => "the agent",
            (SourceKind::Registered, _) => "the registered provider",
            (SourceKind::Provider, _) => "the provider",
            (SourceKind::Generated, _) => "the generated tools",
            (SourceKind::Catalogue, _) => "the catalogue",
        }
    }
}

/// Returns the name of the server with this key ([`ServerSource::key`]).
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

/// Returns the source of the server with this key ([`ServerSource::key`]). `None` if the key begins with no kind of source.
///
/// ```
/// use hyperlight_mcp::config::{ServerSource, SourceKind, source_of_key};
/// let source = ServerSource::named(SourceKind::Agent, "a:b");
/// assert_eq!(source_of_key(&source.key("files")), Some(source));
/// assert_eq!(source_of_key("files"), Some(ServerSource::default()));
/// ```
#[must_use]
pub fn source_of_key(key: &str) -> Option<ServerSource> {
    let Some((word, rest)) = key.split_once(':') else { return Some(ServerSource::default()) };
    let kind = SourceKind::ALL.into_iter().find(|kind| kind.key_word() == word)?;
    let (name, _) = rest.rsplit_once(':')?;
    let name = name.replace("%3A", ":").replace("%25", "%");
    Some(ServerSource { kind, name: Some(name).filter(|name| !name.is_empty()) })
}

/// Writes the source for use in a sentence: `the config`, `the provider "acme"`.
impl fmt::Display for ServerSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words();
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
        (prop::sample::select(SourceKind::ALL.to_vec()), prop::option::of("[a:%/-]{0,4}"))
            .prop_map(|(kind, name)| ServerSource { kind, name })
    }

    proptest! {
        #[test]
        fn two_sources_or_two_names_never_share_a_key(one in any_source(), other in any_source(), a in "[a-z-]{1,3}", b in "[a-z-]{1,3}") {
            let same_name = one.name.as_deref().unwrap_or_default() == other.name.as_deref().unwrap_or_default();
            let is_same = one.kind == other.kind && same_name && one.is_operators_config() == other.is_operators_config() && a == b;
            prop_assert_eq!(one.key(&a) == other.key(&b), is_same);
            let without_name = one.name.as_deref().is_none_or(str::is_empty);
            let name = if without_name { None } else { one.name.clone() };
            prop_assert_eq!(source_of_key(&one.key(&a)), Some(ServerSource { kind: one.kind, name }));
        }
    }
}
