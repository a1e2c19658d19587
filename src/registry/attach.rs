//! Decides which servers a task attaches, and gives the reason of each decision as a sentence. Pure functions: they read nothing and start
//! nothing.

use std::collections::HashSet;
use std::fmt;

use crate::text::WordText;

/// The parts of a task that decide which servers it gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskWishes {
    /// The task in words. A server is attached if this text contains one of the server's keywords or capabilities.
    pub text: String,
    /// The servers that the task names, in the order of the task.
    pub servers: Vec<String>,
    /// Capabilities that the task needs.
    pub capabilities: Vec<String>,
}

/// The availability of a server for runs without a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// A server of the config, a generated server, or a server that the agent has added itself. The server is always available.
    Always,
    /// A server of a provider, a server of the catalogue, or a task's own server. The server is available only if a task attaches it.
    OnRequest,
}

/// A server that a task may attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub name: &'a str,
    pub presence: Presence,
    pub keywords: &'a [String],
    pub capabilities: &'a [String],
}

/// The reason why a server is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachReason {
    /// The task names the server.
    Named,
    /// The server is available without a task.
    Always,
    /// The task requests this capability, and the server has it.
    Capability(String),
    /// The text of the task contains this capability of the server.
    CapabilityInText(String),
    /// The text of the task contains this keyword of the server.
    Keyword(String),
}

/// The reason why a server may not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    Unknown,
    /// The server's entry has an error.
    Invalid,
    /// The server's entry contains `disabled: true`.
    Disabled,
    DisabledByPerson,
    /// Nobody has enabled the server.
    NotEnabled,
    NotApproved,
    /// The server's command is approved, but its tools are not.
    ToolsNotApproved,
    /// The agent has no grant for the server.
    NotGranted,
    /// A rule of the operator denies the server. The text is a sentence without the full stop.
    Denied(String),
}

/// A server that is wanted, with the reason. If the server cannot be attached, also contains the obstacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachDecision {
    pub server: String,
    pub reason: AttachReason,
    pub obstacle: Option<Obstacle>,
}

impl AttachDecision {
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.obstacle.is_none()
    }
}

/// Decides which servers a task attaches. The result begins with the servers that the task names, in the order of the task. Then come all
/// other wanted servers, in the order of `candidates`. A name that no candidate has gets the obstacle [`Obstacle::Unknown`]. `obstacle` is
/// called only for servers that are wanted.
///
/// ```
/// use hyperlight_mcp::registry::{AttachReason, Candidate, Presence, TaskWishes, attach};
/// let keywords = ["forecast".to_owned()];
/// let weather = Candidate { name: "weather", presence: Presence::OnRequest, keywords: &keywords, capabilities: &[] };
/// let task = TaskWishes { text: "Tomorrow's FORECAST, please".to_owned(), ..TaskWishes::default() };
/// let decisions = attach(&[weather], &task, |_| None);
/// assert_eq!(decisions[0].reason, AttachReason::Keyword("forecast".to_owned()));
/// ```
pub fn attach(candidates: &[Candidate<'_>], task: &TaskWishes, obstacle: impl Fn(&str) -> Option<Obstacle>) -> Vec<AttachDecision> {
    let known: HashSet<&str> = candidates.iter().map(|candidate| candidate.name).collect();
    let mut named = HashSet::new();
    let mut decisions = Vec::new();
    for server in task.servers.iter().filter(|server| named.insert(server.as_str())) {
        let obstacle = if known.contains(server.as_str()) { obstacle(server) } else { Some(Obstacle::Unknown) };
        decisions.push(AttachDecision { server: server.clone(), reason: AttachReason::Named, obstacle });
    }
    let is_open = |candidate: &&Candidate<'_>| !named.contains(candidate.name);
    let by_text = candidates.iter().filter(is_open).filter(|candidate| candidate.presence == Presence::OnRequest);
    let words = by_text.flat_map(|candidate| candidate.capabilities.iter().chain(candidate.keywords)).map(String::as_str);
    let wishes = Wishes {
        in_text: WordText::new(&task.text).found(words),
        capabilities: task.capabilities.iter().map(|wish| WordText::fold(wish)).collect(),
    };
    for candidate in candidates.iter().filter(is_open) {
        if let Some(reason) = wishes.reason(candidate) {
            decisions.push(AttachDecision { server: candidate.name.to_owned(), reason, obstacle: obstacle(candidate.name) });
        }
    }
    decisions
}

/// The wishes of a task, converted to sets, so that many servers can be compared with them quickly.
struct Wishes<'a> {
    /// The keywords and capabilities of candidates that occur in the text of the task.
    in_text: HashSet<&'a str>,
    /// The capabilities that the task needs, converted by [`WordText::fold`].
    capabilities: HashSet<String>,
}

impl Wishes<'_> {
    fn reason(&self, candidate: &Candidate<'_>) -> Option<AttachReason> {
        if candidate.presence == Presence::Always {
            return Some(AttachReason::Always);
        }
        let wished = |capability: &&String| !self.capabilities.is_empty() && self.capabilities.contains(&WordText::fold(capability));
        let in_text = |word: &&String| self.in_text.contains(word.as_str());
        None.or_else(|| candidate.capabilities.iter().find(wished).cloned().map(AttachReason::Capability))
            .or_else(|| candidate.capabilities.iter().find(in_text).cloned().map(AttachReason::CapabilityInText))
            .or_else(|| candidate.keywords.iter().find(in_text).cloned().map(AttachReason::Keyword))
    }
}

/// Writes the reason as the second part of a sentence about the server: `the task names it`.
impl fmt::Display for AttachReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => formatter.write_str("the task names it"),
            Self::Always => formatter.write_str("it is available for every task"),
            Self::Capability(capability) => write!(formatter, "the task needs the server's capability \"{capability}\""),
            Self::CapabilityInText(capability) => write!(formatter, "the task's text mentions the server's capability \"{capability}\""),
            Self::Keyword(keyword) => write!(formatter, "the task's text contains the server's keyword \"{keyword}\""),
        }
    }
}

/// Writes the obstacle as the second part of a sentence about the server: `it is not approved`.
impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unknown => "there is no server of this name",
            Self::Invalid => "its entry has an error",
            Self::Disabled => "its entry says \"disabled\": true",
            Self::DisabledByPerson => "a person has disabled it",
            Self::NotEnabled => "it is approved, but not enabled",
            Self::NotApproved => "it is not approved",
            Self::ToolsNotApproved => "its command is approved, but its tools are not",
            Self::NotGranted => "the agent has no grant for it",
            Self::Denied(rule) => rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A server of the tests.
    #[derive(Debug, Clone)]
    struct Server {
        name: String,
        presence: Presence,
        keywords: Vec<String>,
        capabilities: Vec<String>,
    }

    impl Server {
        fn candidate(&self) -> Candidate<'_> {
            Candidate { name: &self.name, presence: self.presence, keywords: &self.keywords, capabilities: &self.capabilities }
        }
    }

    /// Makes the same decisions in the simplest way: for each server, tries one reason after the other, and compares word by word.
    fn plainly(servers: &[Server], task: &TaskWishes, may_not: &[String]) -> Vec<AttachDecision> {
        let mut all: Vec<(String, AttachReason, bool)> = Vec::new();
        for name in &task.servers {
            if !all.iter().any(|(known, ..)| known == name) {
                all.push((name.clone(), AttachReason::Named, servers.iter().any(|server| server.name == *name)));
            }
        }
        let words: Vec<String> = task.text.split(' ').map(str::to_lowercase).collect();
        let says = |phrase: &str| {
            let phrase: Vec<String> = phrase.split(' ').map(str::to_lowercase).collect();
            words.windows(phrase.len()).any(|window| window == phrase)
        };
        for server in servers {
            if task.servers.contains(&server.name) {
                continue;
            }
            let mut reason = if server.presence == Presence::Always { Some(AttachReason::Always) } else { None };
            for capability in &server.capabilities {
                let wished = task.capabilities.iter().any(|wish| wish.to_lowercase() == capability.to_lowercase());
                reason = reason.or_else(|| wished.then(|| AttachReason::Capability(capability.clone())));
            }
            for capability in &server.capabilities {
                reason = reason.or_else(|| says(capability).then(|| AttachReason::CapabilityInText(capability.clone())));
            }
            for keyword in &server.keywords {
                reason = reason.or_else(|| says(keyword).then(|| AttachReason::Keyword(keyword.clone())));
            }
            if let Some(reason) = reason {
                all.push((server.name.clone(), reason, true));
            }
        }
        let obstacle = |name: &String, is_known: bool| {
            if is_known { may_not.contains(name).then_some(Obstacle::NotApproved) } else { Some(Obstacle::Unknown) }
        };
        all.into_iter().map(|(server, reason, known)| AttachDecision { obstacle: obstacle(&server, known), server, reason }).collect()
    }

    fn words() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["ab", "Ab", "abc", "b", "é", "É", "天", "x9"]), 1..3)
            .prop_map(|words| words.join(" "))
    }

    fn names() -> impl Strategy<Value = String> {
        "[a-f]"
    }

    fn servers() -> impl Strategy<Value = Vec<Server>> {
        let presence = prop::sample::select(vec![Presence::Always, Presence::OnRequest, Presence::OnRequest]);
        let lists = || prop::collection::vec(words(), 0..3);
        prop::collection::btree_map(names(), (presence, lists(), lists()), 0..6).prop_map(|servers| {
            let server = |(name, (presence, keywords, capabilities))| Server { name, presence, keywords, capabilities };
            servers.into_iter().map(server).collect()
        })
    }

    proptest! {
        #[test]
        fn the_decisions_are_those_of_the_plainest_way(
            servers in servers(), text in prop::collection::vec(words(), 0..5), wanted in prop::collection::vec(names(), 0..4),
            capabilities in prop::collection::vec(words(), 0..3), may_not in prop::collection::vec(names(), 0..4),
        ) {
            let task = TaskWishes { text: text.join(" "), servers: wanted, capabilities };
            let candidates: Vec<_> = servers.iter().map(Server::candidate).collect();
            let obstacle = |name: &str| may_not.iter().any(|denied| denied == name).then_some(Obstacle::NotApproved);
            prop_assert_eq!(attach(&candidates, &task, obstacle), plainly(&servers, &task, &may_not));
        }
    }

    #[test]
    fn an_obstacle_is_looked_for_only_where_a_server_is_wanted() {
        let keywords = ["rain".to_owned()];
        let candidates = ["a", "b"].map(|name| Candidate { name, presence: Presence::OnRequest, keywords: &keywords, capabilities: &[] });
        let unasked = attach(&candidates, &TaskWishes { text: "trains".to_owned(), ..TaskWishes::default() }, |name| panic!("{name}"));
        assert!(unasked.is_empty());
    }
}
