//! A call on its way to a server: approved, unchanged, allowed, sent.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::callbacks::{ApprovalQuestion, CallScope, pause};
use super::caller::ScopeCaller;
use super::core::Core;
use super::events::Event;
use super::grants::{Grant, Granted};
use crate::bridge::{ToolCall, ToolCaller};
use crate::catalog::{Manifest, Tool};
use crate::client::{CallFailure, CallLimits, Caller, Connection, Sent, ToolRequest};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::text::json::{json_bytes, object_bytes};
use crate::trust::{Decision, Drift, Gate, NotApprovedReason, Standing, ToolStanding, filter_warnings, gate, tool_digest, tool_standing};

impl Core {
    /// Calls a tool of an approved and enabled server. Fails at once where the server is revoked or disabled meanwhile.
    pub(super) async fn call_tool(&self, call: ToolCall, scope: &Arc<CallScope>, timeout_ms: Option<u64>) -> Result<Json> {
        let started = Instant::now();
        let (server, tool) = (call.server.clone(), call.tool.clone());
        // Large arguments are not written out again where nobody is told their size.
        let traced = self.events.traces();
        let argument_bytes = if traced { object_bytes(&call.arguments) } else { 0 };
        let ended = self.registry.ended(&server);
        let outcome = tokio::select! {
            biased;
            () = ended.cancelled() => Err(self.refusal(&server)),
            outcome = self.send(call, scope, timeout_ms) => outcome,
        };
        if matches!(outcome, Err(Error::NotApproved { .. })) {
            self.end_unapproved(&server).await;
        }
        let outcome = outcome.map_err(|error| self.redacted(error));
        let error = outcome.as_ref().err().map(Error::code);
        tracing::debug!(server, tool, error, "call");
        self.events.trace(Event::Call {
            server,
            tool,
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
            argument_bytes,
            result_bytes: outcome.as_ref().ok().filter(|_| traced).map(json_bytes),
            error,
        });
        outcome
    }

    async fn send(&self, call: ToolCall, scope: &Arc<CallScope>, timeout_ms: Option<u64>) -> Result<Json> {
        let ToolCall { server: name, tool: raw_name, arguments, control } = call;
        let arguments = Arc::new(arguments);
        let mut server = self.registry.server(&name)?;
        let approved = self.callable(&server, &raw_name)?;
        let limits = self.call_limits(&server, timeout_ms);
        let mut connection = self.connect(&server, scope, control.as_ref(), limits.timeout).await?;
        check_unchanged(&server, &approved, &connection).await?;
        if let Gate::Ask(reason) = gate(server.confirm, &approved) {
            let grant = self.tool_grant(&name, &raw_name)?;
            if !self.is_allowed(scope, &grant, &raw_name) {
                // While a person thinks, nobody else has to wait for the connection.
                drop(connection);
                let question = ApprovalQuestion {
                    server: name.clone(),
                    tool: raw_name.clone(),
                    args: (*arguments).clone(),
                    reason: reason.to_owned(),
                    run_id: scope.run_id,
                };
                let clock = pause(control.as_ref());
                self.ask(scope, grant, question, || self.tool_grant(&name, &raw_name)).await?;
                drop(clock);
                // Much can happen meanwhile: all of it is looked at again.
                server = self.still(&server, &approved)?;
                connection = self.connect(&server, scope, control.as_ref(), limits.timeout).await?;
                check_unchanged(&server, &approved, &connection).await?;
            }
        }
        let caller: Arc<dyn Caller> =
            Arc::new(ScopeCaller { scope: Arc::clone(scope), events: self.events.clone(), control: control.clone() });
        let request = || ToolRequest {
            tool: raw_name.clone(),
            arguments: Arc::clone(&arguments),
            as_task: runs_as_task(&approved),
            limits,
            caller: Arc::clone(&caller),
        };
        let place = self.place(&server, &raw_name, limits, timeout_ms).await?;
        if place.after_others {
            server = self.still(&server, &approved)?;
            check_unchanged(&server, &approved, &connection).await?;
        }
        let failure = match Box::pin(connection.call(request())).await {
            Ok(result) => return Ok(result),
            Err(failure) if may_repeat(&approved, &failure) => failure,
            Err(failure) => return Err(failure.error),
        };
        // Once more: it never left, or its server promises that twice is as good as once.
        tracing::info!(server = name, tool = raw_name, error = %failure.error, "the call is sent once more");
        drop(connection);
        let server = self.still(&server, &approved)?;
        let connection = self.connect(&server, scope, control.as_ref(), limits.timeout).await.map_err(|_| failure.error)?;
        check_unchanged(&server, &approved, &connection).await?;
        Box::pin(connection.call(request())).await.map_err(|failure| failure.error)
    }

    pub(super) fn call_limits(&self, server: &ServerDefinition, timeout_ms: Option<u64>) -> CallLimits {
        let limit_ms = server.call_timeout_ms.unwrap_or(self.limits.call_timeout_ms);
        let most_ms = server.max_call_timeout_ms.unwrap_or(self.limits.max_call_timeout_ms);
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(limit_ms).min(limit_ms));
        CallLimits { timeout, most: Duration::from_millis(most_ms).max(timeout) }
    }

    /// The tool, as it was approved, of a server that is enabled.
    fn callable(&self, server: &ServerDefinition, tool: &str) -> Result<ApprovedTool> {
        let manifest = self.usable(server)?;
        match manifest.position(tool).filter(|_| server.filter.admits(tool)) {
            Some(position) => Ok(ApprovedTool { manifest, position }),
            None => Err(manifest.unknown_tool(&server.name, tool)),
        }
    }

    /// Returns whether a person or a model may hear what the server asks and tells: both stages are approved, and it is enabled.
    pub(super) fn may_be_heard(&self, name: &str) -> bool {
        // What costs least is looked at first.
        self.registry.is_enabled(name) && self.registry.server(name).is_ok_and(|server| self.usable(&server).is_ok())
    }

    /// What was approved of a server that is enabled.
    pub(super) fn usable(&self, server: &ServerDefinition) -> Result<Arc<Manifest>> {
        self.check_on()?;
        match self.standing(server)? {
            Standing::Full(manifest) if self.registry.is_enabled(&server.name) => Ok(manifest),
            Standing::Full(_) => Err(self.not_enabled(&server.name)),
            Standing::Command => Err(Error::NotApproved { server: server.name.clone(), reason: "its tools are not".to_owned() }),
            Standing::Unapproved(lack) => Err(Error::NotApproved { server: server.name.clone(), reason: lack.to_string() }),
        }
    }

    fn not_enabled(&self, name: &str) -> Error {
        let server = name.to_owned();
        let disabled = self.registry.server(name).is_ok_and(|server| server.disabled);
        if disabled { Error::ServerDisabled { server } } else { Error::NotEnabled { server } }
    }

    /// The server as it is configured now, where it may still be used, and a person has approved the same command as when the call began.
    pub(super) fn still_same(&self, before: &ServerDefinition) -> Result<Arc<ServerDefinition>> {
        let now = self.registry.server(&before.name)?;
        self.usable(&now)?;
        if self.subject(&now).digest != self.subject(before).digest {
            return Err(Error::DigestChanged { server: before.name.clone() });
        }
        Ok(now)
    }

    /// The same, where the tool is still approved as it was.
    fn still(&self, before: &ServerDefinition, approved: &Tool) -> Result<Arc<ServerDefinition>> {
        let now = self.still_same(before)?;
        if *self.callable(&now, &approved.name)? != *approved {
            return Err(Error::ToolChanged { server: now.name.clone(), tool: approved.name.clone() });
        }
        Ok(now)
    }

    /// What a yes to calls of a tool would be for, as all stands now.
    fn tool_grant(&self, name: &str, tool: &str) -> Result<Grant> {
        let server = self.registry.server(name)?;
        let granted = Granted::Tool(tool_digest(&*self.callable(&server, tool)?));
        self.grant(&server, |_| granted)
    }

    /// What a yes would be for, of a server that may be used. `granted`: by the digest of the approved manifest.
    pub(super) fn grant(&self, server: &ServerDefinition, granted: impl FnOnce(&str) -> Granted) -> Result<Grant> {
        // First: what is decided from here on makes it another grant.
        let decisions = self.registry.decisions(&server.name);
        self.usable(server)?;
        let name = server.name.clone();
        let Some(approval) = self.approvals.full_approval_of(&server.name, |approval| self.judged(server, approval))? else {
            return Err(Error::NotApproved { server: name, reason: NotApprovedReason::Never.to_string() });
        };
        let granted = granted(approval.manifest_digest.as_deref().unwrap_or_default());
        Ok(Grant { server: name, command: approval.command_digest, approval: approval.id, decisions, granted })
    }

    /// Returns whether a person has allowed this before. A no in the same run outweighs a yes for the session.
    pub(super) fn is_allowed(&self, scope: &CallScope, grant: &Grant, tool: &str) -> bool {
        !scope.denies(&grant.server, tool) && (scope.grants.contain(grant) || self.session.grants.contain(grant))
    }

    /// Asks a person, and remembers what was said for more than this call, where by then it would still be said of the same. `now`: what
    /// it would be said of.
    pub(super) async fn ask(
        &self,
        scope: &CallScope,
        grant: Grant,
        question: ApprovalQuestion,
        now: impl Fn() -> Result<Grant> + Send,
    ) -> Result<()> {
        let _turn = scope.one_question().await;
        // Said meanwhile, of another of the run's calls.
        if self.is_allowed(scope, &grant, &question.tool) {
            return Ok(());
        }
        let decision = self.decide(scope, question).await?;
        if now()? != grant {
            return Ok(());
        }
        match decision {
            Decision::Run => scope.grants.add(grant),
            Decision::Session => self.session.grants.add(grant),
            Decision::Once | Decision::Deny => {}
        }
        Ok(())
    }

    /// Asks a person, unless they have said no to this tool in this run. An answer that is no yes is an error.
    async fn decide(&self, scope: &CallScope, question: ApprovalQuestion) -> Result<Decision> {
        let (server, tool) = (question.server.clone(), question.tool.clone());
        let denied = |reason: String| Err(Error::CallDenied { server: server.clone(), tool: tool.clone(), reason });
        if scope.denies(&server, &tool) {
            return denied("onApproval has denied this tool for the rest of the run".to_owned());
        }
        if let Err(reason) = scope.count_question() {
            return denied(format!("{}, and {reason}", question.reason));
        }
        let Some(answer) = scope.callbacks.approve_call(&question) else {
            return denied(format!(
                "{}, and there is nobody to ask: give an onApproval callback, or set \"confirm\": \"never\" for the server in the config",
                question.reason
            ));
        };
        match answer.await {
            Ok(Decision::Deny) => {
                scope.deny(&server, &tool);
                denied("it was denied by onApproval".to_owned())
            }
            Ok(decision) => Ok(decision),
            Err(error) => denied(format!("onApproval failed: {error}")),
        }
    }

    /// Where another process took an approval back, or its time is over, what is still live here ends.
    pub(super) async fn end_unapproved(&self, name: &str) {
        let standing = self.registry.server(name).and_then(|server| self.standing(&server));
        if matches!(standing, Ok(Standing::Unapproved(_))) {
            self.connections.close(name).await;
        }
    }

    /// Why a server that was live is so no longer.
    pub(super) fn refusal(&self, name: &str) -> Error {
        if let Err(error) = self.check_on() {
            return error;
        }
        let standing = self.registry.server(name).and_then(|server| self.standing(&server));
        match standing {
            Ok(Standing::Full(_)) => self.not_enabled(name),
            Ok(Standing::Unapproved(lack)) => Error::NotApproved { server: name.to_owned(), reason: lack.to_string() },
            Ok(Standing::Command) => Error::NotApproved { server: name.to_owned(), reason: "its tools are not".to_owned() },
            Err(error) => error,
        }
    }

    /// Says once for each manifest of a live server how it differs from what was approved.
    pub(super) fn report_drift(&self, server: &ServerDefinition, live: &Arc<Manifest>) -> Result<()> {
        if !self.registry.is_new_manifest(&server.name, live) {
            return Ok(());
        }
        for warning in filter_warnings(server, live) {
            self.events.warn(warning);
        }
        let Standing::Full(approved) = self.standing(server)? else { return Ok(()) };
        let drift = Drift::between(&approved, &crate::gateway::core::filtered(server, live));
        self.registry.set_quarantined(&server.name, drift.changed.iter().chain(&drift.removed).cloned().collect());
        if !drift.is_empty() {
            tracing::warn!(server = server.name, ?drift, "tools differ from those that were approved");
            self.events.send(&Event::ToolsChanged { server: server.name.clone(), drift: Box::new(drift) });
        }
        Ok(())
    }
}

/// A tool within the manifest that it was approved with.
struct ApprovedTool {
    manifest: Arc<Manifest>,
    position: usize,
}

impl Deref for ApprovedTool {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        &self.manifest.tools[self.position]
    }
}

/// Whether a call that failed may be sent a second time: never one that may have been carried out, unless a person approved it as one
/// that changes nothing, or nothing more.
fn may_repeat(approved: &Tool, failure: &CallFailure) -> bool {
    let hint = |name: &str| approved.annotations.as_ref().and_then(|hints| hints.get(name)).and_then(Json::as_bool) == Some(true);
    match (failure.sent, &failure.error) {
        (Sent::No, Error::ServerExited { .. }) => true,
        (Sent::Maybe, Error::ServerExited { .. }) => hint("readOnlyHint") || hint("idempotentHint"),
        _ => false,
    }
}

/// Returns whether a tool can be run as a task only (MCP 2025-11-25, tasks).
fn runs_as_task(approved: &Tool) -> bool {
    let support = approved.execution.as_ref().and_then(|execution| execution.get("taskSupport"));
    support.and_then(Json::as_str) == Some("required")
}

/// Compares the live tool with the one that was approved.
async fn check_unchanged(server: &ServerDefinition, approved: &Tool, connection: &Connection) -> Result<()> {
    let live = connection.manifest().await?;
    let (server, tool) = (server.name.clone(), approved.name.clone());
    match tool_standing(approved, &live) {
        ToolStanding::Unchanged => Ok(()),
        ToolStanding::Changed => Err(Error::ToolChanged { server, tool }),
        ToolStanding::Vanished => Err(Error::ToolVanished { server, tool }),
    }
}

/// Sends the calls of one run.
pub(super) struct RunCaller {
    pub(super) core: Weak<Core>,
    pub(super) scope: Arc<CallScope>,
}

impl ToolCaller for RunCaller {
    fn call(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let (core, scope) = (self.core.upgrade(), Arc::clone(&self.scope));
        Box::pin(async move {
            match core {
                Some(core) => core.call_tool(call, &scope, None).await,
                None => Err(Error::Closed { what: "gateway" }),
            }
        })
    }
}
