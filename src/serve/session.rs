//! A session: one client of the served gateway, with its own agent and tools.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rmcp::model::LoggingLevel;
use rmcp::service::{Peer, SubscriptionSink};
use rmcp::{RoleServer, model::ResourceUpdatedNotificationParam};
use serde_json::Value as Json;
use tokio::sync::mpsc;

use super::Shared;
use crate::agent::{AgentOptions, AgentTools};
use crate::config::check_label;
use crate::error::Result;
use crate::gateway::{Agent, IdentityOptions, NameOrigin};

/// The name of an agent whose client reports no name that can safely be written to a log.
const UNNAMED: &str = "client";
const MAX_NAME_CHARS: usize = 64;
/// The maximum number of unsent updates of resources. If a client does not read, further updates for it are dropped, so that the memory
/// stays limited.
const MAX_UPDATES: usize = 256;

/// The cell for a connection's session. The first request fills it.
pub(super) type SessionCell = Arc<OnceLock<Arc<Session>>>;

/// The listed URI under which a client has subscribed to a resource, keyed by the server and the server's own URI.
type Subscribed = Arc<Mutex<BTreeMap<(String, String), String>>>;

/// The channel over which updates are sent to a client.
pub(super) enum ClientNotification {
    Client(Peer<RoleServer>),
    /// The stream of `subscriptions/listen` (MCP 2026-07-28).
    Stream(SubscriptionSink),
}

pub(super) struct Session {
    pub(super) agent: Agent,
    pub(super) tools: AgentTools,
    /// The lowest level of logs that the client wants (`logging/setLevel`, up to protocol 2025-11-25). `None` means that the client wants
    /// all logs.
    pub(super) level: Mutex<Option<LoggingLevel>>,
    subscribed: Subscribed,
    runtime: tokio::runtime::Handle,
}

impl Session {
    /// Opens a session for the caller with the key `caller`. `told` is the channel for updates to the client.
    pub(super) fn open(shared: &Shared, caller: &str, name: CallerName<'_>, told: Option<ClientNotification>) -> Result<Arc<Self>> {
        let (name, name_origin) = match &shared.options.agent {
            Some(name) => (name.clone(), NameOrigin::Operator),
            None => name.of_agent(),
        };
        let subscribed = Subscribed::default();
        let on_event = told.map(|told| updates(&shared.runtime, told, Arc::clone(&subscribed)));
        // Each request without a protocol session opens a new `Session` here. All of them share the caller's code owner, so that the limits
        // apply to the caller and not to the single request.
        let code_owner = Some(shared.code_owners.of(caller));
        let only = shared.options.servers.clone();
        let options = IdentityOptions { on_event, name_origin, only, code_owner, ..IdentityOptions::default() };
        let agent = shared.gateway.agent(&name, options)?;
        let (tool_errors, sign_in) = (Some(shared.options.errors()), shared.options.sign_in.clone());
        let tools = AgentTools::new(agent.clone(), None, AgentOptions { tool_errors, sign_in, ..AgentOptions::default() })?;
        Ok(Arc::new(Self { agent, tools, level: Mutex::default(), subscribed, runtime: shared.runtime.clone() }))
    }

    /// Subscribes to a resource. Updates contain the URI under which the resource is listed.
    pub(super) async fn subscribe(&self, server: &str, own: &str, served: &str) -> Result<()> {
        let known = (server.to_owned(), own.to_owned());
        let before = self.subscribed.lock().insert(known.clone(), served.to_owned());
        let outcome = self.agent.subscribe(server, own).await;
        if outcome.is_err() && before.is_none() {
            self.subscribed.lock().remove(&known);
        }
        outcome
    }

    /// Returns the resources to which the client has subscribed under this URI: the server and the server's own URI of each.
    pub(super) fn subscribed_as(&self, served: &str) -> Vec<(String, String)> {
        let subscribed = self.subscribed.lock();
        subscribed.iter().filter(|(_, listed)| *listed == served).map(|(known, _)| known.clone()).collect()
    }

    pub(super) async fn unsubscribe(&self, server: &str, own: &str) -> Result<()> {
        self.subscribed.lock().remove(&(server.to_owned(), own.to_owned()));
        self.agent.unsubscribe(server, own).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let agent = self.agent.clone();
        self.runtime.spawn(async move { agent.close().await });
    }
}

/// The names that a caller has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallerName<'a> {
    /// The name that belongs to the caller's token.
    pub(super) of_token: Option<&'a str>,
    /// The name that the client reports.
    pub(super) of_client: Option<&'a str>,
}

impl CallerName<'_> {
    /// Returns the name of the caller's agent, and its origin, which decides whether the grants for this name apply to the agent. A name of a
    /// token that is not well-formed stays unchanged, so that the callers of two tokens never have the same name.
    fn of_agent(self) -> (String, NameOrigin) {
        match self.of_token {
            Some(name) if check_label(name).is_ok() => (name.to_owned(), NameOrigin::Operator),
            Some(subject) => (subject.to_owned(), NameOrigin::Subject),
            None => (agent_name(self.of_client), NameOrigin::Client),
        }
    }
}

/// Converts the name that a client reports to an agent's name: `Claude Code` becomes `Claude-Code`.
fn agent_name(client: Option<&str>) -> String {
    let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let name: String = client.unwrap_or_default().chars().map(|character| if fits(character) { character } else { '-' }).collect();
    let name = name.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}

/// Returns a listener that notifies the client, in order, of changes of the resources to which its agent is subscribed.
fn updates(runtime: &tokio::runtime::Handle, told: ClientNotification, subscribed: Subscribed) -> crate::gateway::EventListener {
    let (sender, mut receiver) = mpsc::channel::<String>(MAX_UPDATES);
    runtime.spawn(async move {
        while let Some(uri) = receiver.recv().await {
            let is_sent = match &told {
                ClientNotification::Client(peer) => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok(),
                ClientNotification::Stream(sink) => sink.notify_resource_updated(uri).await.is_ok(),
            };
            if !is_sent {
                return;
            }
        }
    });
    Arc::new(move |event: Json| {
        if event["type"] == "resource-updated"
            && let (Some(server), Some(own)) = (event["server"].as_str(), event["uri"].as_str())
            && let Some(served) = subscribed.lock().get(&(server.to_owned(), own.to_owned()))
        {
            let _ = sender.try_send(served.clone());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_as_its_client_as_far_as_that_fits_into_a_log() {
        for (client, name) in [
            (Some("claude-code"), "claude-code"),
            (Some("Visual Studio Code"), "Visual-Studio-Code"),
            (Some(" \u{1b}[31mred "), "31mred"),
            (Some("é"), UNNAMED),
            (None, UNNAMED),
        ] {
            assert_eq!(agent_name(client), name);
        }
        assert_eq!(agent_name(Some(&"n".repeat(100))).len(), MAX_NAME_CHARS);
    }

    #[test]
    fn only_a_token_names_an_agent_for_the_grants() {
        let origin = |of_token, of_client| CallerName { of_token, of_client }.of_agent().1;
        assert_eq!(origin(Some("admin"), Some("x")), NameOrigin::Operator);
        for of_client in [Some("admin"), Some("subject:admin"), None] {
            assert_eq!(origin(None, of_client), NameOrigin::Client, "{of_client:?}");
        }
        for of_token in ["admin!", " admin", "client:admin", ""] {
            let name = CallerName { of_token: Some(of_token), of_client: Some("admin") }.of_agent();
            assert_eq!(name, (of_token.to_owned(), NameOrigin::Subject), "a name of a token is never changed to that of another");
        }
    }
}
