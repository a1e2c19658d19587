//! Patterns of toolboxes: `weather/*`, `github/list_*`, `!github/delete_*`. This module parses and matches a single pattern. If several
//! patterns match, `registry::grants` decides.

use super::filters::{UriFilter, check_pattern};
use super::grants::check_label;
use super::source::{ServerSource, SourceKind};
use crate::text::{has_invisible, is_server_name, marked_name};

/// Maximum length of a pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1_000;
const FORM: &str = "must be server/tool, like \"weather/*\", \"github/list_*\" or \"!github/delete_*\"";
const RESOURCE: &str = "resource:";
const PROMPT: &str = "prompt:";
const TOOL: &str = "tool:";
/// The prefix of a pattern for a server that an agent has added: `agent:researcher:my-files/*`.
const AGENT: &str = "agent:";

/// Checks a pattern for names of tools, in which `*` means any text.
pub(super) fn check_name_pattern(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("is empty".to_owned());
    }
    if pattern.len() > MAX_PATTERN_BYTES || has_invisible(pattern) || pattern.chars().any(char::is_control) {
        return Err(format!("must have at most {MAX_PATTERN_BYTES} bytes, and no control or invisible characters"));
    }
    Ok(())
}

/// The properties of a server that patterns are matched with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRef<'a> {
    /// The name that patterns are matched with: the name in the registry without its mark. The mark is the part from `@` on, in the names
    /// of variants and of servers of tasks.
    pub name: &'a str,
    /// The name in the registry. Profiles use it to distinguish a server from its variants.
    pub registry_name: &'a str,
    /// The agent that has added the server. An empty text means the operator's own agent. `None` if no agent has added the server.
    pub added_by: Option<&'a str>,
}

impl<'a> ServerRef<'a> {
    /// Creates the reference to a server of this source.
    #[must_use]
    pub fn of(registry_name: &'a str, source: &'a ServerSource) -> Self {
        let added_by = (source.kind == SourceKind::Agent).then(|| source.name.as_deref().unwrap_or_default());
        Self { added_by, ..Self::from(registry_name) }
    }
}

/// Creates the reference to a server that no agent has added.
impl<'a> From<&'a str> for ServerRef<'a> {
    fn from(registry_name: &'a str) -> Self {
        Self { name: marked_name(registry_name).0, registry_name, added_by: None }
    }
}

impl<'a> From<&'a String> for ServerRef<'a> {
    fn from(name: &'a String) -> Self {
        Self::from(name.as_str())
    }
}

/// An item of a server that a pattern can match, by its raw name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Tool(&'a str),
    /// The URI of a resource, or the text of a resource template.
    Resource(&'a str),
    Prompt(&'a str),
}

impl<'a> Item<'a> {
    /// Parses an item in the notation of patterns: a tool's name, or a name after `tool:`, `resource:` or `prompt:`.
    ///
    /// ```
    /// use hyperlight_mcp::config::Item;
    /// assert_eq!([Item::parse("echo"), Item::parse("tool:prompt:x"), Item::parse("prompt:x")], [Item::Tool("echo"), Item::Tool("prompt:x"), Item::Prompt("x")]);
    /// ```
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        if let Some(uri) = text.strip_prefix(RESOURCE) {
            return Self::Resource(uri);
        }
        match text.strip_prefix(PROMPT) {
            Some(name) => Self::Prompt(name),
            None => Self::Tool(text.strip_prefix(TOOL).unwrap_or(text)),
        }
    }
}

/// The servers that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Servers {
    /// Servers whose name matches a text with wildcards. Such a pattern never allows anything of a server that an agent has added. The
    /// agent chooses the server's name, and could choose a name that was granted for another server.
    Named(String),
    /// The one server with this name that this agent has added.
    Added { agent: String, server: String },
}

impl Servers {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(added) = text.strip_prefix(AGENT) else {
            // A `*` may replace any part of a name, so the name is not checked as a whole: each character is checked as a character within
            // a name.
            let is_well_formed = !text.is_empty() && text.chars().all(|next| next == '*' || is_server_name(&format!("a{next}")));
            let problem = || format!("{FORM}; a server's name may have lowercase letters, digits and \"-\"; a pattern may also have \"*\"");
            return is_well_formed.then(|| Self::Named(text.to_owned())).ok_or_else(problem);
        };
        let (agent, server) = added.split_once(':').unwrap_or_default();
        if is_server_name(server) && (agent.is_empty() || check_label(agent).is_ok()) {
            return Ok(Self::Added { agent: agent.to_owned(), server: server.to_owned() });
        }
        Err("must be agent:NAME:SERVER/tool for a server that an agent has added, with both names in full and without \"*\"".to_owned())
    }

    fn matches(&self, server: ServerRef<'_>, denies: bool) -> bool {
        match self {
            Self::Named(name) => (denies || server.added_by.is_none()) && matches_name(name, server.name),
            Self::Added { agent, server: name } => server.added_by == Some(agent) && name == server.name,
        }
    }
}

/// The items of a server that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Items {
    /// `*`: all items of the server.
    All,
    /// Tools whose names match a text with wildcards.
    Tools(String),
    /// Resources that match a filter with one entry: in `allow`, or in `deny` if the pattern denies.
    Resources(UriFilter),
    /// Prompts whose names match a text with wildcards.
    Prompts(String),
}

/// A pattern of a toolbox. It allows the items that it matches, or denies them if it begins with `!`.
///
/// ```
/// use hyperlight_mcp::config::{Item, Pattern};
/// let pattern = Pattern::parse("github/list_*").unwrap();
/// assert!(pattern.matches("github".into(), Item::Tool("list_issues")) && !pattern.matches("github".into(), Item::Tool("delete_repo")));
/// assert!(!pattern.matches("gitlab".into(), Item::Tool("list_issues")) && !pattern.denies());
/// assert!(Pattern::parse("!github/delete_*").unwrap().denies());
/// assert!(Pattern::parse("github").unwrap_err().contains("server/tool"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    denies: bool,
    servers: Servers,
    items: Items,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns the rule that the pattern breaks.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_BYTES || has_invisible(text) || text.chars().any(char::is_control) {
            return Err(format!("must have at most {MAX_PATTERN_BYTES} bytes, and no control or invisible characters"));
        }
        let (denies, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (server, item) = rest.split_once('/').filter(|(server, item)| !server.is_empty() && !item.is_empty()).ok_or(FORM)?;
        let servers = Servers::parse(server)?;
        let items = if item == "*" {
            Items::All
        } else if let Some(uri) = item.strip_prefix(RESOURCE) {
            check_pattern(uri)?;
            let entry = vec![uri.to_owned()];
            Items::Resources(if denies {
                UriFilter { allow: None, deny: entry }
            } else {
                UriFilter { allow: Some(entry), deny: Vec::new() }
            })
        } else if let Some(prompt) = item.strip_prefix(PROMPT) {
            Items::Prompts(prompt.to_owned())
        } else {
            Items::Tools(item.strip_prefix(TOOL).unwrap_or(item).to_owned())
        };
        Ok(Self { text: text.to_owned(), denies, servers, items })
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern denies the items that it matches.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.denies
    }

    /// Returns the length of the pattern in characters, without the `!`.
    #[must_use]
    pub fn length(&self) -> usize {
        self.text.chars().count() - usize::from(self.denies)
    }

    /// Returns whether the pattern matches this server.
    #[must_use]
    pub fn matches_server(&self, server: ServerRef<'_>) -> bool {
        self.servers.matches(server, self.denies)
    }

    /// Returns whether the pattern matches every item of this server.
    #[must_use]
    pub fn matches_all_of(&self, server: ServerRef<'_>) -> bool {
        self.items == Items::All && self.matches_server(server)
    }

    /// Returns whether the pattern matches this item. A denying pattern for resources matches every spelling of its URI. An allowing
    /// pattern matches only URIs that are written in the same way. `denyResources` and `allowResources` of a server follow the same rules.
    #[must_use]
    pub fn matches(&self, server: ServerRef<'_>, item: Item<'_>) -> bool {
        self.matches_server(server)
            && match (&self.items, item) {
                (Items::All, _) => true,
                (Items::Tools(pattern), Item::Tool(name)) | (Items::Prompts(pattern), Item::Prompt(name)) => matches_name(pattern, name),
                (Items::Resources(filter), Item::Resource(uri)) => filter.admits(uri) != self.denies,
                _ => false,
            }
    }
}

impl std::fmt::Display for Item<'_> {
    /// Writes the item in the notation of patterns.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tool(name) if [TOOL, RESOURCE, PROMPT].iter().any(|prefix| name.starts_with(prefix)) || *name == "*" => {
                write!(formatter, "{TOOL}{name}")
            }
            Self::Tool(name) => formatter.write_str(name),
            Self::Resource(uri) => write!(formatter, "{RESOURCE}{uri}"),
            Self::Prompt(name) => write!(formatter, "{PROMPT}{name}"),
        }
    }
}

/// Returns whether a text matches a pattern in which `*` means any text. The time is at most proportional to the product of both lengths.
pub(crate) fn matches_name(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    // The place to continue at if the text after the last `*` does not match: the position of the `*`, and the first byte of the text that
    // the `*` does not cover yet.
    let mut retry: Option<(usize, usize)> = None;
    while next < text.len() {
        if pattern.get(at) == Some(&b'*') {
            retry = Some((at, next));
            at += 1;
        } else if pattern.get(at) == Some(&text[next]) {
            (at, next) = (at + 1, next + 1);
        } else if let Some((star, from)) = retry {
            (at, next) = (star + 1, from + 1);
            retry = Some((star, from + 1));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, server: &str, item: Item<'_>) -> bool {
        Pattern::parse(pattern).unwrap().matches(server.into(), item)
    }

    #[test]
    fn a_pattern_names_tools_and_only_a_star_names_everything() {
        assert!(matches("weather/*", "weather", Item::Tool("x")) && matches("weather/*", "weather", Item::Prompt("x")));
        assert!(matches("!weather/*", "weather", Item::Resource("a:b")) && !matches("weather/*", "weathers", Item::Tool("x")));
        assert!(matches("*/read_*", "a", Item::Tool("read_x")) && !matches("*/read_*", "a", Item::Prompt("read_x")));
        assert!(matches("a/*_x_*", "a", Item::Tool("1_x_2_x_")) && !matches("a/*_x_*", "a", Item::Tool("1_x")));
        assert!(matches("a/b/c", "a", Item::Tool("b/c")), "a tool's name may have a slash");
    }

    #[test]
    fn what_is_no_tool_is_named_by_its_kind_and_no_tools_name_is_taken_for_it() {
        assert!(matches("a/prompt:p*", "a", Item::Prompt("pq")) && !matches("a/prompt:p", "a", Item::Tool("prompt:p")));
        assert!(matches("a/tool:prompt:p", "a", Item::Tool("prompt:p")) && !matches("a/tool:prompt:p", "a", Item::Prompt("p")));
        assert!(matches("a/resource:memo://*", "a", Item::Resource("memo://x")));
        assert!(matches("a/tool:*", "a", Item::Tool("x")) && !matches("a/tool:*", "a", Item::Prompt("x")));
        for item in [Item::Tool("prompt:p"), Item::Tool("*"), Item::Tool("t"), Item::Prompt("p"), Item::Resource("a:b")] {
            assert!(matches(&format!("a/{item}"), "a", item), "{item}");
        }
    }

    #[test]
    fn a_resource_is_denied_in_every_spelling_and_allowed_as_it_is_written() {
        assert!(matches("!a/resource:deep:///pub/secret", "a", Item::Resource("deep:///pub//%73ecret")));
        assert!(!matches("a/resource:deep:///pub/*", "a", Item::Resource("deep:///pub/../x")));
        assert!(!matches("!a/resource:deep:///pub/secret", "a", Item::Resource("deep:///pub/open")));
    }

    #[test]
    fn a_server_that_an_agent_has_added_is_allowed_by_its_agent_and_name_alone() {
        let added = |by| ServerRef { added_by: Some(by), ..ServerRef::from("files") };
        let matches = |pattern: &str, server: ServerRef<'_>| Pattern::parse(pattern).unwrap().matches(server, Item::Tool("read"));
        for pattern in ["*/*", "files/*", "*/read", "f*/read", "agent:b:files/*", "agent:a:file/*", "agent::files/*"] {
            assert!(!matches(pattern, added("a")), "{pattern}");
        }
        assert!(matches("agent:a:files/*", added("a")) && matches("agent:a:files/read", added("a")));
        assert!(matches("agent::files/*", added("")), "the operator's own agent has no name");
        assert!(!matches("agent:a:files/*", "files".into()), "a server of another source may take the name");
        for pattern in ["!*/*", "!files/read", "!agent:a:files/*"] {
            assert!(matches(pattern, added("a")), "{pattern}");
        }
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused() {
        for text in [
            "",
            "a",
            "/b",
            "a/",
            "!a",
            "!/b",
            "A/b",
            "a_b/c",
            "a/b\n",
            "a/\u{200b}b",
            "a/resource:x*y",
            "agent:a/*",
            "agent:a:b",
            "agent:a:*/x",
            "agent:*:b/x",
            "agent:a:b:c/x",
            "agent:a:B/x",
            "provider:a:b/x",
            &format!("a/{}", "b".repeat(1_000)),
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
        assert_eq!([Pattern::parse("!a/é").unwrap().length(), Pattern::parse("a/é").unwrap().length()], [3, 3]);
    }

    /// Does the same as [`matches_text`], in the form of the definition.
    fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skipped| matches_by_definition(rest, &text[skipped..])),
            Some((first, rest)) => text.split_first().is_some_and(|(next, text)| next == first && matches_by_definition(rest, text)),
        }
    }

    proptest! {
        #[test]
        fn a_wildcard_stands_for_any_text(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches_name(&pattern, &text), matches_by_definition(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
