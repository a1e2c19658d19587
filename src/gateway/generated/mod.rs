//! Servers whose tools were made from a prompt: how they are added to the other servers, and how their tools are called.

mod network;
mod result;
mod runner;
mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::network::Network;
use self::runner::Runner;
use super::Gateway;
use super::core::Core;
use super::events::Event;
use super::server_logs::Note;
use crate::catalog::MAX_SHOWN_NAME_CHARS;
use crate::client::{Caller, ConnectClock, Launch, Target};
use crate::config::{GeneratedTools, ServerDefinition, ServerSource, SourceKind};
use crate::error::{Error, Result};
use crate::registry::Entry;
use crate::store::audit::AuditParty;
use crate::text::{check_server_name, sanitise_line};

impl Gateway {
    /// Adds a generated server, or replaces it. Like any server, it is used only after a person has approved it. The approval covers its
    /// code, its hosts and its tools.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an invalid server name, for a name that a server of a source with higher precedence has, for a server
    /// without tools, and for invalid hosts or secrets; `ERR_CLOSED`.
    ///
    /// ```no_run
    /// # async fn example(gateway: hyperlight_mcp::Gateway, tools: hyperlight_mcp::config::GeneratedTools) -> hyperlight_mcp::Result<()> {
    /// gateway.set_generated("booted", tools).await?;
    /// println!("{:?}", gateway.approval_request("booted").await?);
    /// # Ok(()) }
    /// ```
    pub async fn set_generated(&self, name: &str, tools: GeneratedTools) -> Result<()> {
        let invalid =
            |problem: String| self.core.redacted(Error::InvalidOption { method: "Gateway.setGenerated", problem: problem.into() });
        check_server_name(name).map_err(|problem| invalid(format!("name: {problem}")))?;
        if tools.tools.is_empty() {
            return Err(invalid(format!("\"{name}\" has no tools")));
        }
        if let Some(problem) = code_problem(&tools) {
            return Err(invalid(problem));
        }
        if let Some(problem) = network::problem_of(&tools) {
            return Err(invalid(problem));
        }
        let server = ServerDefinition::generated(name, tools);
        if let Ok(entry) = self.core.registry.entry(name)
            && entry.source().kind < SourceKind::Generated
        {
            return Err(invalid(format!("{} has a server of the name \"{name}\": choose another name", entry.source())));
        }
        self.replace_generated(name, vec![Entry::Valid(Arc::new(server))]).await
    }

    /// Removes a generated server, and ends its calls. The approval is kept, and is valid again if a server with the same code is added. If
    /// there is no such server, nothing happens.
    ///
    /// # Errors
    /// `ERR_CLOSED`.
    pub async fn remove_generated(&self, name: &str) -> Result<()> {
        self.replace_generated(name, Vec::new()).await
    }

    async fn replace_generated(&self, name: &str, entries: Vec<Entry>) -> Result<()> {
        self.core.check_open()?;
        let _one_at_a_time = self.core.reloading.lock().await;
        let source = ServerSource::named(SourceKind::Generated, name);
        let changes = self.core.apply_layers(move |registry| registry.set_layer(source, entries)).await?;
        self.core.record_changes(&changes, Some(SourceKind::Generated), AuditParty::Person);
        Ok(())
    }
}

impl Core {
    /// Prepares the connection to a generated server whose code is approved.
    pub(super) fn launch_generated(
        &self,
        server: &ServerDefinition,
        tools: &Arc<GeneratedTools>,
        caller: Arc<dyn Caller>,
    ) -> Result<Launch> {
        let (server_logs, key, redactor) = (self.events.server_logs.clone(), server.key(), Arc::clone(&self.redactor));
        let (events, name) = (self.events.clone(), server.name.clone());
        let on_log = Arc::new(move |line: &str| {
            server_logs.note(&key, Note::Stderr(redactor.readable(line)));
            let (level, logger, data) = ("info".to_owned(), Some("console".to_owned()), line.into());
            events.send(&Event::ServerLog { server: name.clone(), run_id: None, level, logger, data });
        });
        let runner = Runner::new(self, tools, Network::new(self, &server.name, tools)?, on_log);
        let clock = ConnectClock::start(None, server.connect_timeout_ms, self.limits.connect_timeout_ms);
        self.launch_of(server, Target::Local(Arc::new(runner)), clock, caller)
    }
}

/// Returns the reason why a person could misread the code: the code contains a character that ends a line for the JavaScript engine but not
/// for a person, or two tools have the same name.
fn code_problem(tools: &GeneratedTools) -> Option<String> {
    let mut names = BTreeSet::new();
    tools.tools.iter().find_map(|tool| {
        if !names.insert(&tool.name) {
            let name = sanitise_line(&tool.name, MAX_SHOWN_NAME_CHARS);
            return Some(format!("there are two tools with the name \"{name}\""));
        }
        tool.hidden_line_end()
    })
}
