//! Records events of the gateway in the audit, and reads the audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::Gateway;
use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::events::Events;
use super::grant_records;
use super::options::GatewayOptions;
use super::reload::ServerChanges;
use super::request::{Request, Requester};
use crate::blocking::blocking;
use crate::config::{GrantSettings, SourceKind};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::registry::Decider;
use crate::store::Store;
use crate::store::audit::{
    Audit, AuditEvent, AuditOptions, AuditParty, AuditQuery, AuditReport, AuditRow, CallInProgress, CallOutcome, CallRecord, ConfigGrants,
    ConnectionChange, GrantChange, GrantRecord, ProviderDecision, ServerChange,
};
use crate::text::json::approximate_bytes;

/// Opens the audit of a gateway.
pub(super) fn open(store: &Arc<Store>, options: &GatewayOptions, limits: &Limits, grants: &GrantSettings, events: &Events) -> Audit {
    let told = events.clone();
    let on_problem = move |error: Error| {
        let error = error.redacted(&told.redactor);
        told.warn(format!("the audit cannot be written now, so a limited number of entries is kept in memory: {error}"));
    };
    let options = AuditOptions {
        max_bytes: limits.max_audit_bytes,
        max_age: Duration::from_millis(limits.max_audit_age_ms),
        content: options.audit_content,
        config_grants: grant_records::listing(grants),
        redactor: Arc::clone(&events.redactor),
        on_problem: Arc::new(on_problem),
    };
    Audit::open(store, options)
}

/// Records a request in the audit when this value is dropped. Therefore a request whose caller has stopped waiting is recorded too. The
/// audit is informed when the request begins, because this value is not dropped if the process ends.
pub(super) struct RecordedRequest<'a> {
    core: &'a Core,
    /// `None` if the audit is closed, or once the end of the request is recorded.
    call: Option<CallInProgress>,
    outcome: CallOutcome,
    result_bytes: Option<usize>,
}

impl<'a> RecordedRequest<'a> {
    pub(super) fn begin(core: &'a Core, server: &Arc<str>, request: &Request, requester: Requester<'_>, started: Instant) -> Self {
        let scope = requester.scope;
        let call = core.audit.begin_call(CallRecord {
            agent: scope.identity.audit_name(),
            run_id: scope.run_id,
            server: Arc::clone(server),
            tool: request.shared_label(),
            arguments: request.arguments(),
            outcome: CallOutcome::Cancelled,
            started,
            ended: started,
            result_bytes: None,
        });
        Self { core, call, outcome: CallOutcome::Cancelled, result_bytes: None }
    }

    /// Sets the outcome, and records the request.
    pub(super) fn end(mut self, outcome: &Result<Json>) {
        match outcome {
            Ok(result) => {
                let is_error = result.get("isError").and_then(Json::as_bool) == Some(true);
                self.outcome = if is_error { CallOutcome::ToolError } else { CallOutcome::Ok };
                self.result_bytes = (!result.is_null()).then(|| approximate_bytes(result));
            }
            Err(error) => self.outcome = CallOutcome::Failed(error.code()),
        }
    }
}

impl Drop for RecordedRequest<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.core.audit.end_call(call, self.outcome, self.result_bytes);
        }
    }
}

/// Maximum length in characters of a name that the caller's code has chosen.
const MAX_NAME_CHARS: usize = 200;

impl Core {
    /// Records a call that was refused before it became a request, because the agent has no such server or tool. Its arguments are not
    /// recorded.
    pub(super) fn record_refused_call(&self, identity: &Identity, run_id: Option<u64>, (server, tool): (&str, &str), code: &'static str) {
        let now = Instant::now();
        let name = |text: &str| Arc::from(self.redactor.readable_line(text, MAX_NAME_CHARS));
        let call = self.audit.begin_call(CallRecord {
            agent: identity.audit_name(),
            run_id,
            server: name(server),
            tool: name(tool),
            arguments: Arc::default(),
            outcome: CallOutcome::Failed(code),
            started: now,
            ended: now,
            result_bytes: None,
        });
        if let Some(call) = call {
            self.audit.end_call(call, CallOutcome::Failed(code), None);
        }
    }
}

impl From<Decider> for AuditParty {
    fn from(decider: Decider) -> Self {
        match decider {
            Decider::Person => Self::Person,
            Decider::Model => Self::Model,
        }
    }
}

impl Core {
    pub(super) fn record_connection(&self, server: &str, change: ConnectionChange, agent: Option<Arc<str>>, duration: Option<Duration>) {
        self.audit.record(AuditEvent::Connection { server: server.to_owned(), change, agent, duration });
    }

    /// Records a change of a server by a person or a model.
    pub(super) fn record_decision(&self, server: &str, change: ServerChange, agent: Option<Arc<str>>, decider: Decider) {
        self.audit.record(AuditEvent::Server { server: server.to_owned(), change, agent, source: None, by: decider.into() });
    }

    /// Records that a person has approved or revoked the code of a package that provides servers.
    pub(super) fn record_provider(&self, package: String, decision: ProviderDecision) {
        self.audit.record(AuditEvent::Provider { package, decision, by: AuditParty::Person });
    }

    /// Records that toolboxes, with their present patterns, were granted to an agent or taken from it.
    pub(super) fn record_grants(&self, agent: &str, toolboxes: &[String], change: GrantChange) {
        let grants = self.grants_now(ApprovalRead::Cached).ok();
        let patterns = |toolbox: &String| {
            let patterns = grants.as_ref()?.toolbox(toolbox)?;
            Some(patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect())
        };
        for toolbox in toolboxes {
            let patterns = if change == GrantChange::Granted { patterns(toolbox) } else { None };
            let (agent, subject) = (Some(agent.to_owned()), Some(toolbox.clone()));
            self.audit.record(AuditEvent::Grant(GrantRecord { agent, subject, patterns, change, by: AuditParty::Person }));
        }
    }

    /// Records that a toolbox was added, changed or removed.
    pub(super) fn record_toolbox(&self, toolbox: &str, patterns: Option<&[String]>, change: GrantChange) {
        let (subject, patterns) = (Some(toolbox.to_owned()), patterns.map(<[String]>::to_vec));
        self.audit.record(AuditEvent::Grant(GrantRecord { agent: None, subject, patterns, change, by: AuditParty::Person }));
    }

    /// Records the grants of a changed config, if they differ from the grants of the earlier config.
    pub(super) fn record_config_grants(&self, before: &GrantSettings, now: &GrantSettings) {
        let changes = grant_records::changes(before, now);
        if !changes.is_empty() {
            let listing = grant_records::listing(now);
            self.audit.record(AuditEvent::ConfigGrants(ConfigGrants { listing, changes: Some(changes) }));
        }
    }

    /// Records the servers that were added, changed or removed. `source` is the source of the removed servers, if it is known.
    pub(super) fn record_changes(&self, changes: &ServerChanges, source: Option<SourceKind>, by: AuditParty) {
        let ServerChanges { added, removed, changed } = changes;
        for (change, names) in [(ServerChange::Added, added), (ServerChange::Changed, changed), (ServerChange::Removed, removed)] {
            for name in names {
                let present = self.registry.entry(name).ok().map(|entry| entry.source().kind);
                let source = present.or(source).map(|kind| kind.as_str().to_owned());
                self.audit.record(AuditEvent::Server { server: name.clone(), change, agent: None, source, by });
            }
        }
    }
}

impl Gateway {
    /// Returns the last rows of the audit that match the query, oldest first. The audit contains the rows of all gateways with the same
    /// state folder.
    ///
    /// ```no_run
    /// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
    /// use hyperlight_mcp::store::audit::{AuditKind, AuditQuery};
    ///
    /// let calls = AuditQuery { kind: Some(AuditKind::Call), limit: Some(10), ..AuditQuery::default() };
    /// for row in gateway.audit(calls).await? {
    ///     println!("{} {:?} {:?}", row.at, row.server, row.details.outcome);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ERR_STORE`, `ERR_CLOSED`.
    pub async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRow>> {
        self.of_audit(move |audit| audit.rows(&query)).await
    }

    /// Verifies the audit: that no row was changed, removed, added or moved.
    ///
    /// # Errors
    /// `ERR_STORE`, `ERR_CLOSED`.
    pub async fn verify_audit(&self) -> Result<AuditReport> {
        self.of_audit(Audit::verify).await
    }

    async fn of_audit<T: Send + 'static>(&self, read: impl FnOnce(&Audit) -> Result<T> + Send + 'static) -> Result<T> {
        self.core.check_open()?;
        let core = Arc::clone(&self.core);
        blocking(move || read(&core.audit)).await.map_err(|error| self.core.redacted(error))
    }
}
