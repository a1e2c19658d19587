//! The two stages of approval: the request, and the yes.

use parking_lot::MutexGuard;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::ending::EndReason;
use super::{Agent, Gateway};
use crate::blocking::blocking;
use crate::catalog::Manifest;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::registry::Decider;
use crate::trust::{ApprovalBasis, ApprovalRequest, CommandRequest, ManifestRequest, Standing, Subject, filter_manifest, manifest_digest};

impl Gateway {
    /// Collects all that a person must see before yes. At stage `manifest` the server is started and its tools are read.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_CONFIG_INVALID`, `ERR_APPROVAL_STORE`, and at stage `manifest` what connecting gives.
    pub async fn approval_request(&self, name: &str) -> Result<ApprovalRequest> {
        self.approval_request_as(name, Decider::Person).await
    }

    /// Makes the request for a person or a model. A model gets none for a server that a person has disabled.
    ///
    /// # Errors
    /// As [`Self::approval_request`]; `ERR_DISABLED_BY_PERSON` where a model asks.
    pub async fn approval_request_as(&self, name: &str, decider: Decider) -> Result<ApprovalRequest> {
        self.unless_disabled(name, decider, self.request(name)).await.map_err(|error| self.core.redacted(error))
    }

    /// Does work for a person or a model. A model's is refused where a person has disabled the server, and ends where they do so meanwhile.
    pub(super) async fn unless_disabled<T>(&self, name: &str, decider: Decider, work: impl Future<Output = Result<T>>) -> Result<T> {
        if decider == Decider::Person {
            return work.await;
        }
        self.server(name)?;
        let registry = &self.core.registry;
        // Taken before the look: what is disabled right after it counts as well.
        let ended = registry.ended(name);
        let disabled = || Error::DisabledByPerson { server: name.to_owned() };
        if registry.is_disabled_by_person(name) {
            return Err(disabled());
        }
        tokio::select! {
            biased;
            () = ended.cancelled() => Err(if registry.is_disabled_by_person(name) { disabled() } else { self.core.refusal(name) }),
            outcome = work => outcome,
        }
    }

    async fn request(&self, name: &str) -> Result<ApprovalRequest> {
        let server = self.server(name)?;
        let subject = self.core.full_subject(&server).await?;
        if let Standing::Unapproved(lack) = self.core.trust.approvals.standing(&subject)? {
            return Ok(ApprovalRequest::Command(Box::new(CommandRequest::new(&server, &subject, Some(lack)))));
        }
        let (live, manifest) = self.discover(&server).await?;
        let before = self.core.trust.approvals.approval(name)?.and_then(|approval| approval.manifest);
        let max_chars = self.core.limits.max_description_chars;
        let request = ManifestRequest::new(&server, &manifest, &live, before.as_deref(), max_chars);
        self.shown().insert(name.to_owned(), (subject.digest, manifest));
        Ok(ApprovalRequest::Manifest(Box::new(request)))
    }

    /// Approves a server. With a digest, approves only the request that showed it, and starts nothing. Without one, approves both stages as they
    /// are now, and reads the tools for that.
    /// `valid_for`: how long the approval holds; `None`: until it is revoked.
    ///
    /// # Errors
    /// `ERR_DIGEST_CHANGED` if the digest belongs to no request that was shown, or the request has changed since; `ERR_NOT_APPROVED` where a revocation came while this
    /// yes was under way; without a digest, what connecting gives.
    pub async fn approve(&self, name: &str, digest: Option<&str>, valid_for: Option<Duration>) -> Result<()> {
        let outcome = self.say_yes(name, digest, valid_for).await;
        self.core.registry.approval_changed(name);
        self.core.connections.forget_failures(name);
        self.core.forget_grants(name);
        if let (Ok(()), Ok(server)) = (&outcome, self.core.registry.server(name)) {
            self.core.learnt.note(name, &self.core.subject(&server).digest, |learnt| learnt.changed.clear());
            if let Ok(Standing::Full(manifest)) = self.core.standing(&server) {
                // The names that the next run imports, which of very many tools take a moment: not on that run's way.
                manifest.identifiers();
            }
        }
        outcome.map_err(|error| self.core.redacted(error))
    }

    async fn say_yes(&self, name: &str, digest: Option<&str>, valid_for: Option<Duration>) -> Result<()> {
        let server = self.server(name)?;
        let approvals = &self.core.trust.approvals;
        // Before all else: this yes does not undo a revocation that comes during anything that follows.
        let basis = approvals.basis(name)?;
        let subject = self.core.full_subject(&server).await?;
        let Some(digest) = digest else {
            let basis = self.record_command(&subject, valid_for, basis).await?;
            let (_, manifest) = self.discover(&server).await?;
            return self.record_manifest(&subject, manifest, valid_for, basis).await;
        };
        if digest == subject.shown_digest {
            return self.record_command(&subject, valid_for, basis).await.map(drop);
        }
        let is_shown = |(command, manifest): &&(String, Arc<Manifest>)| *command == subject.digest && manifest_digest(manifest) == digest;
        let shown = self.shown().get(name).filter(is_shown).map(|(_, manifest)| Arc::clone(manifest));
        let command_holds = !matches!(approvals.standing(&subject)?, Standing::Unapproved(_));
        match shown {
            Some(manifest) if command_holds => self.record_manifest(&subject, manifest, valid_for, basis).await,
            _ => Err(Error::DigestChanged { server: name.to_owned() }),
        }
    }

    /// Writes a yes down, on a thread that may wait for a lock and a disk.
    async fn record_command(&self, subject: &Subject, valid_for: Option<Duration>, basis: ApprovalBasis) -> Result<ApprovalBasis> {
        let (core, subject) = (Arc::clone(&self.core), subject.clone());
        blocking(move || core.trust.approvals.approve_command(&subject, valid_for, &basis)).await
    }

    async fn record_manifest(
        &self,
        subject: &Subject,
        manifest: Arc<Manifest>,
        valid_for: Option<Duration>,
        basis: ApprovalBasis,
    ) -> Result<()> {
        let (core, subject) = (Arc::clone(&self.core), subject.clone());
        blocking(move || core.trust.approvals.approve_manifest(&subject, manifest, valid_for, &basis)).await
    }

    /// Takes the approval back, and ends what is live: pending calls fail with `ERR_NOT_APPROVED`. The server's process is ended before
    /// anything is written, as it may be what keeps the file from being written.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`; `ERR_APPROVAL_STORE` where it could not be recorded: it holds all the same until the gateway is closed.
    pub async fn revoke(&self, name: &str) -> Result<()> {
        self.core.check_open()?;
        // An entry that has become invalid can still have an approval, which a person may want to be rid of.
        match self.core.registry.server(name) {
            Err(error @ Error::UnknownServer { .. }) => return Err(error),
            Ok(_) | Err(_) => self.core.trust.approvals.withhold(name),
        }
        self.shown().remove(name);
        self.core.end(name, EndReason::Retired).await;
        let (core, server) = (Arc::clone(&self.core), name.to_owned());
        let recorded = blocking(move || {
            let recorded = core.trust.approvals.revoke(&server);
            // Whoever is no longer trusted keeps no access in this person's name here, recorded or not.
            let forgotten = core.tokens.forget(&server).map_err(|error| Error::io(format!("the tokens of server \"{server}\""), &error));
            recorded.and(forgotten)
        });
        recorded.await.map_err(|error| self.core.redacted(error))
    }

    /// Lets runs that start from now on see the server.
    ///
    /// # Errors
    /// `ERR_SERVER_DISABLED`, `ERR_NOT_APPROVED`.
    pub fn enable(&self, name: &str) -> Result<()> {
        self.enable_as(name, Decider::Person)
    }

    /// Hides the server, and ends what is live.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub async fn disable(&self, name: &str) -> Result<()> {
        self.disable_as(name, Decider::Person).await
    }

    /// Reads the live manifest: whole, and as the config's filters let it through.
    async fn discover(&self, server: &Arc<ServerDefinition>) -> Result<(Arc<Manifest>, Arc<Manifest>)> {
        let live = self.connect(server).await?.manifest().await?;
        let manifest = Arc::new(filter_manifest(server, &live));
        Ok((live, manifest))
    }

    /// Returns whether anything of a server may be started.
    pub(super) fn check_startable(&self, server: &ServerDefinition) -> Result<()> {
        self.core.standing(server)?.require_command(&server.name)
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<String, (String, Arc<Manifest>)>> {
        self.core.trust.shown.lock()
    }
}

impl Agent {
    /// Enables the server on behalf of a person or a model.
    ///
    /// # Errors
    /// As [`Gateway::enable`]; `ERR_DISABLED_BY_PERSON` where a model asks.
    pub fn enable_as(&self, name: &str, decider: Decider) -> Result<()> {
        let server = self.core.open_server(name)?;
        if server.disabled {
            return Err(Error::ServerDisabled { server: name.to_owned() });
        }
        self.core.standing(&server).map_err(|error| self.core.redacted(error))?.require_full(name)?;
        self.core.registry.enable(name, decider, self.identity.id)?;
        self.core.connections.forget_failures(name);
        Ok(())
    }

    /// Disables the server on behalf of a person or a model. A model cannot enable a server that a person has disabled.
    ///
    /// # Errors
    /// As [`Gateway::disable`].
    pub async fn disable_as(&self, name: &str, decider: Decider) -> Result<()> {
        self.core.open_server(name)?;
        match decider {
            Decider::Person => self.core.end(name, EndReason::Disabled).await,
            Decider::Model => self.core.end_for(name, &self.identity).await,
        }
        Ok(())
    }
}
