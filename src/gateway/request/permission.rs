//! Decides whether a request needs a person's permission, and asks for it.

use super::Request;
use super::item::ApprovedItem;
use super::pipeline::{FoundItem, Pipeline};
use crate::error::{Error, Result};
use crate::gateway::allowed_calls::{AllowedCall, AllowedSubject};
use crate::gateway::callbacks::{ApprovalQuestion, pause};
use crate::trust::{Decision, Gate, NotApprovedReason, tool_digest};

const ADVICE: &str = "pass an onApproval callback, or set \"confirm\": \"never\" for the server in the config";

/// The result of [`Pipeline::permission`].
pub(super) enum Permission {
    /// The request needs no permission, or a person has already allowed it.
    Given,
    /// A person must be asked, for this reason. `allows` is the permission that the answer may give for further calls.
    Ask { allows: AllowedCall, reason: &'static str },
}

impl Pipeline<'_> {
    /// Returns whether a person must be asked before the request is sent.
    pub(super) fn permission(&self, found: &FoundItem) -> Result<Permission> {
        let confirm = self.viewer().granted.confirm(&found.server);
        let Gate::Ask(reason) = found.item.gate(confirm, &found.server.reads) else { return Ok(Permission::Given) };
        let allows = self.allowed_call(found)?;
        Ok(if self.is_allowed(&allows) { Permission::Given } else { Permission::Ask { allows, reason } })
    }

    /// Asks a person. If the answer allows further calls, the permission is stored, unless the approval or the tool has changed while the
    /// person was asked.
    pub(super) async fn ask(&self, found: &FoundItem, allows: AllowedCall, reason: &str) -> Result<()> {
        let scope = self.requester.scope;
        let _clock = pause(self.requester.control);
        let _turn = scope.one_question().await;
        // Another request of the run may have got the permission while this request waited.
        if self.is_allowed(&allows) {
            return Ok(());
        }
        let decision = self.decide(reason).await?;
        if self.allowed_call(found)? != allows {
            return Ok(());
        }
        match decision {
            Decision::Run => scope.allowed_calls.add(allows),
            Decision::Session => scope.identity.allowed_calls.add(allows),
            Decision::Once | Decision::Deny => {}
        }
        Ok(())
    }

    /// Returns the permission that an answer of yes would give now. For a tool, it applies to calls of this tool with its present
    /// description. For other requests, it applies to requests of this method for the items in the approved manifest. Returns an error if
    /// the present approval is for another command, or for another description of the item.
    fn allowed_call(&self, found: &FoundItem) -> Result<AllowedCall> {
        // The number of decisions is read first, so that a decision made after this point invalidates the permission.
        let decisions = self.core.registry.decisions(self.name, self.agent());
        let server = self.find_again(found)?.server;
        let approval =
            self.core.trust.approvals.full_approval_of(&server.key(), |approval| self.core.current_subject(&server, approval))?;
        let name = self.name.to_owned();
        let Some((approval, manifest)) = approval.and_then(|approval| approval.manifest.clone().map(|manifest| (approval, manifest)))
        else {
            return Err(Error::NotApproved { server: name, reason: NotApprovedReason::Never.to_string().into() });
        };
        // The permission contains the id of this approval. A person may have renewed the approval since the item was found, so the item is
        // looked up again in the present approval.
        let granted = self.viewer().granted;
        let seen = granted.manifest(&server, &manifest).unwrap_or_default();
        if ApprovedItem::find(&server, &seen, granted, self.request.target())? != found.item {
            return Err(found.item.changed(self.name));
        }
        let subject = match &found.item {
            ApprovedItem::Tool(tool) => AllowedSubject::Tool(tool_digest(tool)),
            ApprovedItem::Resource { .. } | ApprovedItem::Template(_) | ApprovedItem::Prompt(_) => {
                AllowedSubject::Requests { method: self.request.method(), manifest: approval.manifest_digest.unwrap_or_default() }
            }
        };
        Ok(AllowedCall { server: name, command: approval.command_digest, approval: approval.id, decisions, subject })
    }

    /// Returns whether a person has already allowed these calls. A denial in the same run takes precedence over a permission for the
    /// session.
    fn is_allowed(&self, call: &AllowedCall) -> bool {
        let scope = self.requester.scope;
        !scope.denies(&call.server, self.request.label())
            && (scope.allowed_calls.contain(call) || scope.identity.allowed_calls.contain(call))
    }

    /// Asks a person, unless they have denied the tool in this run. Returns an error for each answer that does not allow the call.
    async fn decide(&self, reason: &str) -> Result<Decision> {
        let (scope, label) = (self.requester.scope, self.request.label());
        let denied = |reason: String| Err(Error::CallDenied { server: self.name.to_owned(), tool: label.into(), reason: reason.into() });
        if scope.denies(self.name, label) {
            let what = if matches!(self.request, Request::CallTool { .. }) { "this tool" } else { "such requests" };
            return denied(format!("onApproval has denied {what} for the rest of the run"));
        }
        if let Err(limit) = scope.count_question() {
            return denied(format!("{reason}, and {limit}"));
        }
        let question = ApprovalQuestion {
            server: self.name.to_owned(),
            tool: label.to_owned(),
            method: self.request.method(),
            args: self.request.shown(),
            reason: reason.to_owned(),
            run_id: scope.run_id,
        };
        let Some(answer) = scope.callbacks.approve_call(&question) else {
            let advice = scope.callbacks.advice().unwrap_or(ADVICE);
            return denied(format!("{reason}, and there is nobody to ask: {advice}"));
        };
        match answer.await {
            Ok(Decision::Deny) => {
                scope.deny(self.name, label);
                denied("it was denied by onApproval".to_owned())
            }
            Ok(decision) => Ok(decision),
            // Nobody was asked, so this is not recorded as a denial. The call can be made again later.
            Err(busy @ Error::Busy { .. }) => Err(busy),
            Err(error @ Error::Unanswered { .. }) => denied(self.core.redacted(error).for_model()),
            // Only the part of the error that models may read is used, because nobody has approved the other text in it.
            Err(error) => denied(format!("onApproval failed: {}", self.core.redacted(error).for_model())),
        }
    }
}
