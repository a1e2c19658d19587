//! Methods that the operator uses to manage toolboxes and grants, and the messages about missing grants.

use std::sync::Arc;

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::callbacks::CallScope;
use super::core::Core;
use super::events::Event;
use super::grant_rows;
use super::{Agent, Gateway};
use crate::catalog::TemplateMatcher;
use crate::config::{Item, Pattern, ServerDefinition, check_label, parse_patterns};
use crate::error::{Error, ErrorText, Result};
use crate::registry::{Entry, GrantInfo, GrantList, GrantSource, Grants, Verdict};
use crate::store::audit::{AuditEvent, AuditParty, GrantChange, GrantRecord};
use crate::store::{Kind, Rows};

/// The maximum number of toolboxes for one agent.
const MAX_TOOLBOXES: usize = 64;
/// The text for the item in an event about a whole server, as in a pattern.
const ALL: &str = "*";
/// The maximum number of refused items of one agent about which the operator gets an event.
const MAX_TOLD: usize = 256;

impl Gateway {
    /// Grants toolboxes to an agent. From its next run on, the agent may use exactly what its toolboxes allow. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a name that is not well-formed, `ERR_UNKNOWN_TOOLBOX`, `ERR_GRANT_IN_CONFIG` if the config sets the
    /// toolboxes of this agent, `ERR_STORE`, `ERR_CLOSED`.
    pub fn grant(&self, agent: &str, toolboxes: &[String]) -> Result<GrantInfo> {
        const METHOD: &str = "Gateway.grant";
        self.changing(METHOD, agent, |grants| {
            check_agent_is_ours(grants, agent)?;
            match toolboxes.iter().find(|toolbox| grants.toolbox(toolbox).is_none()) {
                Some(unknown) => Err(unknown_toolbox(grants, unknown)),
                None => Ok(()),
            }
        })?;
        self.change_agent(agent, |given| {
            given.extend(toolboxes.iter().filter(|toolbox| !given.contains(toolbox)).cloned().collect::<Vec<_>>());
            let problem = || format!("toolboxes: an agent has at most {MAX_TOOLBOXES}");
            if given.len() > MAX_TOOLBOXES { Err(invalid(METHOD, problem())) } else { Ok(()) }
        })
        .inspect(|_| self.core.record_grants(agent, toolboxes, GrantChange::Granted))
    }

    /// Takes toolboxes from an agent. An empty list takes all of them. Afterwards, the agent may use only what its other toolboxes allow.
    /// If it has no other toolbox, it may use nothing: an agent never gets more rights because a toolbox is taken away. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the agent does not have one of the toolboxes, and the errors of [`Gateway::grant`].
    pub fn ungrant(&self, agent: &str, toolboxes: &[String]) -> Result<GrantInfo> {
        const METHOD: &str = "Gateway.ungrant";
        let mut taken = toolboxes.to_vec();
        self.changing(METHOD, agent, |grants| {
            check_agent_is_ours(grants, agent)?;
            let given = grants.toolboxes_of(agent).ok_or_else(|| invalid(METHOD, format!("agent \"{agent}\" has no grant")))?;
            if toolboxes.is_empty() {
                taken = given.to_vec();
            }
            match toolboxes.iter().find(|toolbox| !given.contains(toolbox)) {
                Some(other) => Err(invalid(METHOD, format!("agent \"{agent}\" does not have the toolbox \"{other}\""))),
                None => Ok(()),
            }
        })?;
        self.change_agent(agent, |given| {
            given.retain(|toolbox| !toolboxes.is_empty() && !toolboxes.contains(toolbox));
            Ok(())
        })
        .inspect(|_| self.core.record_grants(agent, &taken, GrantChange::Ungranted))
    }

    /// Lists all toolboxes, the agents to which they are granted, and the grants of all other agents. Blocks.
    ///
    /// # Errors
    /// `ERR_STORE`, `ERR_CLOSED`.
    pub fn toolboxes(&self) -> Result<GrantList> {
        self.core.check_open()?;
        self.core.grants_now(ApprovalRead::Fresh).map(|grants| grants.list()).map_err(|error| self.core.redacted(error))
    }

    /// Adds, changes or removes a toolbox. If `patterns` is `None`, removes the toolbox, unless it is granted to an agent. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an invalid name or pattern, or if the toolbox to remove is granted to an agent; `ERR_GRANT_IN_CONFIG` if
    /// the config defines the toolbox; `ERR_UNKNOWN_TOOLBOX` if the toolbox to remove does not exist; `ERR_STORE`, `ERR_CLOSED`.
    pub fn set_toolbox(&self, name: &str, patterns: Option<&[String]>) -> Result<GrantList> {
        const METHOD: &str = "Gateway.setToolbox";
        self.changing(METHOD, name, |grants| {
            if let Some(place) = grants.place_of_toolbox(name) {
                return Err(Error::GrantInConfig { what: format!("the toolbox \"{name}\"").into(), place: place.into() });
            }
            match patterns {
                Some(patterns) => {
                    parse_patterns(patterns).map(drop).map_err(|(index, problem)| invalid(METHOD, format!("patterns[{index}]: {problem}")))
                }
                None if grants.toolbox(name).is_none() => Err(unknown_toolbox(grants, name)),
                None => match grants.holders(name) {
                    holders if holders.is_empty() => Ok(()),
                    holders => {
                        let problem = format!("the toolbox \"{name}\" is given to {}: take it from them first", holders.join(", "));
                        Err(invalid(METHOD, problem))
                    }
                },
            }
        })?;
        let change = |rows: &mut Rows| {
            let before = match patterns {
                Some(patterns) => rows.insert(name.to_owned(), grant_rows::body(patterns)),
                None => rows.remove(name),
            };
            Ok(before)
        };
        let before = self.core.store.change(Kind::Toolbox, change).map_err(|error| self.core.redacted(error))?;
        match (before, patterns) {
            (Some(before), Some(patterns)) if before == grant_rows::body(patterns) => {}
            (None, _) => self.core.record_toolbox(name, patterns, GrantChange::Added),
            (Some(_), Some(_)) => self.core.record_toolbox(name, patterns, GrantChange::Changed),
            (Some(_), None) => self.core.record_toolbox(name, None, GrantChange::Removed),
        }
        self.toolboxes()
    }

    /// Returns the decision whether an agent may use an item of a server, with the reason. `agent` is an agent's name. The reason is for
    /// the operator. Blocks.
    ///
    /// # Errors
    /// `ERR_STORE`, `ERR_CLOSED`.
    pub fn explain_grant(&self, agent: &str, server: &str, item: Item<'_>) -> Result<Verdict> {
        self.core.check_open()?;
        let grants = self.core.grants_now(ApprovalRead::Fresh).map_err(|error| self.core.redacted(error))?;
        let entry = self.core.registry.entry(server).ok();
        Ok(grants.explain(&self.core.runs.next_command, Some(agent), entry.as_ref().map_or(server.into(), Entry::as_granted), item))
    }

    /// Checks a change against the present grants. Rows that another program has modified do not prevent the change, because the change
    /// replaces them.
    fn changing(&self, method: &'static str, name: &str, check: impl FnOnce(&Grants) -> Result<()>) -> Result<()> {
        self.core.check_open()?;
        check_label(name).map_err(|problem| invalid(method, problem))?;
        let grants = self.core.grants_to_change().map_err(|error| self.core.redacted(error))?;
        check(&grants).map_err(|error| self.core.redacted(error))
    }

    fn change_agent(&self, agent: &str, change: impl FnOnce(&mut Vec<String>) -> Result<()>) -> Result<GrantInfo> {
        let changed = self.core.store.change(Kind::Grant, |rows| {
            let mut toolboxes = rows.get(agent).map(|body| grant_rows::texts(agent, body)).transpose()?.unwrap_or_default();
            change(&mut toolboxes)?;
            rows.insert(agent.to_owned(), grant_rows::body(&toolboxes));
            Ok(toolboxes)
        });
        let toolboxes = changed.map_err(|error| self.core.redacted(error))?;
        Ok(GrantInfo { agent: agent.to_owned(), toolboxes, source: GrantSource::Store })
    }
}

impl Agent {
    /// Returns the name under which grants apply to the agent. Returns `None` if no grants apply by name: for the operator's own agent, and
    /// if the operator has not chosen the name.
    #[must_use]
    pub fn granted_name(&self) -> Option<&str> {
        self.identity.granted_name.as_deref()
    }
}

impl Core {
    /// If an item exists but is not granted, replaces the error about the unknown item with an error that explains this. The new error is
    /// for the agent's author.
    pub(super) fn explained(&self, identity: &Identity, server: &str, item: Item<'_>, error: Error) -> Error {
        let Some(reason) = Some(&error).filter(|error| is_unknown(error)).and_then(|_| self.why_not_granted(identity, server, item)) else {
            return error;
        };
        let (agent, instead) = (identity.audit_name().unwrap_or_default(), Box::new(error));
        let error = Error::NotGranted {
            agent: (&*agent).into(),
            server: server.to_owned(),
            item: item.to_string().into(),
            reason: reason.into(),
            instead,
        };
        self.redacted(error)
    }

    /// Sends the operator an event, in the background, if an agent requested an item that exists but is not granted. If `item` is `None`,
    /// the agent requested the server as a whole. The check also runs for items that do not exist. So the agent cannot tell from the time
    /// of its request whether an item exists.
    pub(super) fn tell_if_not_granted(&self, scope: &CallScope, server: &str, item: Option<Item<'_>>) {
        if scope.granted.is_everything() {
            return;
        }
        let Some(runtime) = self.trust.approval_cache.runtime() else { return };
        let (core, identity, server) = (self.weak.clone(), Arc::clone(&scope.identity), server.to_owned());
        let asked: Option<(OwnedKind, String)> = item.map(owned);
        drop(runtime.spawn_blocking(move || {
            let Some(core) = core.upgrade() else { return };
            let item = asked.as_ref().map(|(kind, name)| kind.item(name));
            let reason = match item {
                Some(item) => core.why_not_granted(&identity, &server, item),
                None => core.why_no_server(&identity, &server),
            };
            let Some(reason) = reason else { return };
            let item = item.map_or_else(|| ALL.to_owned(), |item| item.to_string());
            let is_new = {
                let mut refused = identity.refused.lock();
                refused.len() < MAX_TOLD && refused.insert(format!("{server}/{item}"))
            };
            if is_new {
                let agent = identity.audit_name().unwrap_or_default().to_string();
                core.events.send(&Event::NotGranted { agent, server, item, reason });
            }
        }));
    }

    /// Returns the reason why an agent may use nothing of an approved server. Returns `None` if the server does not exist, or if missing
    /// grants are not the reason.
    fn why_no_server(&self, identity: &Identity, server: &str) -> Option<String> {
        let definition = self.registry.server(server).ok()?;
        self.last_approved(&definition)?;
        let grants = self.grants_now(ApprovalRead::Fresh).ok()?;
        let verdict = grants.explain(&self.runs.next_command, identity.granted_name.as_deref(), definition.as_granted(), Item::Tool(ALL));
        // Replaces the text about a tool named `*` by text about the whole server.
        (!verdict.granted).then(|| verdict.reason.replace(&format!("{server}/tool:{ALL}"), &format!("{server}/{ALL}")))
    }

    /// Returns the reason why an agent may not use an item that exists. Returns `None` if the item does not exist or is granted to the
    /// agent.
    fn why_not_granted(&self, identity: &Identity, server: &str, item: Item<'_>) -> Option<String> {
        let definition = self.registry.server(server).ok()?;
        let exists = self.last_approved(&definition).is_none_or(|approved| match item {
            Item::Tool(name) => approved.tool(name).is_some(),
            Item::Prompt(name) => approved.prompt(name).is_some(),
            Item::Resource(uri) => {
                approved.readable(uri, &mut TemplateMatcher::new(uri)).next().is_some()
                    || approved.resource_templates.iter().any(|known| known.uri_template == uri)
            }
        });
        let grants = self.grants_now(ApprovalRead::Fresh).ok()?;
        let verdict = grants.explain(&self.runs.next_command, identity.granted_name.as_deref(), definition.as_granted(), item);
        (exists && !verdict.granted).then_some(verdict.reason)
    }
}

impl Core {
    /// Removes the patterns that grant a removed server from the toolboxes that were made at run time. So a server that is added later
    /// under the same name is not granted to other agents. Patterns that deny are kept, because they grant nothing. Patterns in the config
    /// are kept too, because only a person changes the config: the operator gets a warning about each of these toolboxes. Blocks.
    pub(super) fn drop_grants_of(&self, removed: &ServerDefinition, by: AuditParty) -> Result<()> {
        let server = removed.as_granted();
        let grants = |text: &String| Pattern::parse(text).is_ok_and(|pattern| !pattern.denies() && pattern.matches_server(server));
        for (name, toolbox) in &self.grants.settings().toolboxes {
            if toolbox.patterns.iter().any(|pattern| grants(&pattern.as_str().to_owned())) {
                let place = &toolbox.place;
                self.events
                    .warn(format!("{place}: the toolbox \"{name}\" still grants the server \"{}\", which was removed", removed.name));
            }
        }
        let kept = |name: &String, body: &Arc<[u8]>| {
            let patterns = grant_rows::texts(name, body).ok().filter(|patterns| patterns.iter().any(grants))?;
            Some(patterns.into_iter().filter(|pattern| !grants(pattern)).collect::<Vec<_>>())
        };
        // A change would discard rows that another program has modified, so a change is made only if there is a pattern to remove.
        if !self.store.rows(Kind::Toolbox)?.iter().any(|(name, body)| kept(name, body).is_some()) {
            return Ok(());
        }
        let changed = self.store.change(Kind::Toolbox, |rows| {
            let changed: Vec<_> = rows.iter().filter_map(|(name, body)| Some((name.clone(), kept(name, body)?))).collect();
            rows.extend(changed.iter().map(|(name, patterns)| (name.clone(), grant_rows::body(patterns))));
            Ok(changed)
        })?;
        for (name, patterns) in changed {
            let (subject, patterns) = (Some(name), Some(patterns));
            self.audit.record(AuditEvent::Grant(GrantRecord { agent: None, subject, patterns, change: GrantChange::Changed, by }));
        }
        Ok(())
    }
}

/// The kind of an item, without the item's name.
#[derive(Clone, Copy)]
enum OwnedKind {
    Tool,
    Resource,
    Prompt,
}

impl OwnedKind {
    fn item(self, name: &str) -> Item<'_> {
        match self {
            Self::Tool => Item::Tool(name),
            Self::Resource => Item::Resource(name),
            Self::Prompt => Item::Prompt(name),
        }
    }
}

fn owned(item: Item<'_>) -> (OwnedKind, String) {
    match item {
        Item::Tool(name) => (OwnedKind::Tool, name.to_owned()),
        Item::Resource(uri) => (OwnedKind::Resource, uri.to_owned()),
        Item::Prompt(name) => (OwnedKind::Prompt, name.to_owned()),
    }
}

/// Returns whether the error means that something does not exist.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::UnknownServer { .. } | Error::UnknownTool { .. } | Error::UnknownResource { .. } | Error::UnknownPrompt { .. })
}

fn check_agent_is_ours(grants: &Grants, agent: &str) -> Result<()> {
    match grants.place_of_agent(agent) {
        Some(place) => Err(Error::GrantInConfig { what: format!("what agent \"{agent}\" is granted").into(), place: place.into() }),
        None => Ok(()),
    }
}

fn unknown_toolbox(grants: &Grants, name: &str) -> Error {
    Error::UnknownToolbox { toolbox: name.into(), known: grants.toolbox_names().into_iter().map(ErrorText::from).collect() }
}

fn invalid(method: &'static str, problem: String) -> Error {
    Error::InvalidOption { method, problem: problem.into() }
}
