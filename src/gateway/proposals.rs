//! Sends the operator events about servers that agents have added or changed and that await a decision. Approves the servers that need no
//! decision of a person.

use std::sync::Arc;

use super::agent::Identity;
use super::availability::exists_for;
use super::core::Core;
use super::events::Event;
use super::{Agent, ApprovalRead, Gateway};
use crate::blocking::blocking;
use crate::config::{ServerDefinition, SourceKind};
use crate::error::{Error, Result};
use crate::registry::{AddedServer, Decider};
use crate::store::audit::{ApprovalStage, AuditParty};
use crate::trust::{ApprovalRequest, ApprovalStatus, Subject};

/// The maximum number of proposals that are sent as events when a gateway opens.
const MAX_AT_OPEN: usize = 100;

impl Gateway {
    /// Sends the operator an event about a server that was just added. Approves the server without a person, if `requireApproval` is false
    /// and nothing about the server needs a person.
    pub(super) async fn decide_about_added(&self, name: &str, identity: &Identity) -> Result<()> {
        let needs_person = |server: &AddedServer| server.needs_person().is_some() || self.core.is_granted_by_name(server);
        let may_run =
            |server: &Arc<AddedServer>| !self.core.added.require_approval && self.core.is_in_force(server) && !needs_person(server);
        let added = self.core.added.get(name).filter(may_run);
        let Some(added) = added else { return self.propose_added(name).await };
        match self.approve_added(name, &added).await {
            Ok(()) => {
                self.core.registry.enable(name, Decider::Model, identity.id)?;
                self.tell_of_added(name, Decided::ByOption).await
            }
            Err(error) => {
                // The server did not start, or its tools could not be read. The approval is revoked. Otherwise the command alone would stay
                // approved, without the tools.
                self.revoke_by(AuditParty::Setting, name).await?;
                self.core.registry.record::<()>(name, &Err(error));
                self.propose_added(name).await
            }
        }
    }

    /// Approves the command and the manifest of exactly this server. If the server is changed at the same time, the changed server still
    /// needs a person's approval.
    async fn approve_added(&self, name: &str, added: &AddedServer) -> Result<()> {
        let subject = self.core.full_subject(&Arc::new(added.definition.clone())).await?;
        self.approve_by(AuditParty::Setting, name, Some(&subject.shown_digest), None).await?;
        match self.approval_request(name).await? {
            ApprovalRequest::Manifest(request) => self.approve_by(AuditParty::Setting, name, Some(&request.digest), None).await,
            ApprovalRequest::Command(_) => Err(Error::DigestChanged { server: name.to_owned() }),
        }
    }

    /// Sends the operator an event about a server that was added or changed, if the server needs an approval.
    pub(super) async fn propose_added(&self, name: &str) -> Result<()> {
        self.tell_of_added(name, Decided::No).await
    }

    async fn tell_of_added(&self, name: &str, decided: Decided) -> Result<()> {
        let told = self.proposal(name, decided).await.map_err(|error| self.core.redacted(error))?;
        if let Some(event) = told {
            self.core.events.send(&event);
        }
        Ok(())
    }

    async fn proposal(&self, name: &str, decided: Decided) -> Result<Option<Event>> {
        // If a server of another source has the name, the name refers to that server, which no agent has proposed.
        let Some(added) = self.core.added.get(name).filter(|added| self.core.is_in_force(added)) else { return Ok(None) };
        let server = self.server(name)?;
        let subject = self.core.full_subject(&server).await?;
        let core = Arc::clone(&self.core);
        blocking(move || core.proposal(&added, &server, &subject, decided)).await
    }

    /// Sends the operator events, when the gateway opens, about servers that still await a decision. Ignores errors, because each later use
    /// of the unreadable data reports the error. Blocks.
    pub(super) fn propose_at_open(&self) {
        let core = &self.core;
        let mut told = 0;
        for added in core.added.all() {
            let Ok(server) = core.registry.server(&added.definition.name) else { continue };
            if server.source != added.definition.source || !matches!(core.is_pending(&server), Ok(true)) {
                continue;
            }
            told += 1;
            if told > MAX_AT_OPEN {
                let list = core.runs.next_command.with("list");
                core.events.warn(format!("more than {MAX_AT_OPEN} servers of agents wait for a decision. To see all of them: {list}"));
                break;
            }
            let subject = core.whole_subject(&server);
            let event = core.proposal(&added, &server, &subject, Decided::StillNo);
            event.ok().flatten().into_iter().for_each(|event| core.events.send(&event));
        }
    }
}

/// The decision about a proposal so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    No,
    /// Not decided at the time when a gateway opens. A server whose command is approved but whose tools are not also awaits a decision.
    StillNo,
    /// Approved without a person, because `requireApproval` is false.
    ByOption,
}

impl Core {
    /// Returns whether an agent has added the server, and its present definition still needs an approval (of the command or of the
    /// manifest).
    fn is_pending(&self, server: &ServerDefinition) -> Result<bool> {
        Ok(server.source.kind == SourceKind::Agent && !matches!(self.approval_status(server)?, ApprovalStatus::Full(_)))
    }

    /// Returns the event about a server that an agent has added. Returns `None` if there is nothing to report.
    fn proposal(&self, added: &AddedServer, server: &Arc<ServerDefinition>, subject: &Subject, decided: Decided) -> Result<Option<Event>> {
        let (lack, stage) = match (self.trust.approvals.approval_status(subject)?, decided) {
            (ApprovalStatus::Unapproved(lack), _) => (Some(lack), ApprovalStage::Command),
            (ApprovalStatus::Command, Decided::StillNo) | (_, Decided::ByOption) => (None, ApprovalStage::Manifest),
            (_, Decided::No | Decided::StillNo) => return Ok(None),
        };
        // When a gateway opens, the request is made from the entry alone, without reading folders. Otherwise an agent could delay the
        // opening by many proposals or by large folders.
        let request = match decided {
            Decided::StillNo => self.request_of_entry(server, subject, lack),
            Decided::No | Decided::ByOption => self.command_request(server, subject, lack),
        };
        let request = serde_json::to_value(request);
        Ok(Some(Event::ServerProposed {
            server: server.name.clone(),
            display_name: added.display_name.clone(),
            agent: added.owner.clone(),
            approved: decided == Decided::ByOption,
            stage,
            request: request.map_err(|error| Error::Internal(error.to_string().into()))?,
        }))
    }
}

impl Agent {
    /// Returns an error if a server does not exist for this agent.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub(crate) fn check_exists(&self, name: &str) -> Result<()> {
        match self.core.registry.server(name) {
            Err(error @ Error::UnknownServer { .. }) if self.is_operator() => Err(self.core.redacted(error)),
            Ok(_) | Err(Error::UnknownServer { .. }) if !self.exists(name)? => Err(self.unknown(name)?),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns whether a valid server of this name exists for this agent.
    pub(super) fn exists(&self, name: &str) -> Result<bool> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        let Ok(server) = self.core.registry.server(granted.registry_name(name)) else { return Ok(false) };
        Ok(self.core.sees(&server, &granted) && exists_for(server.as_granted(), &self.identity, &granted))
    }

    /// Returns the error for a server that does not exist for this agent.
    pub(super) fn unknown(&self, name: &str) -> Result<Error> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        Ok(self.core.redacted(self.core.unknown_server(name, &granted)))
    }
}
