//! Calls of tools that do not come from a guest. They run on the threads of the runtime, which all callers share, so checks and redactions
//! that may take long are done on other threads.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::agent::Identity;
use super::availability::Viewer;
use super::core::Core;
use super::request::Request;
use super::run_end::until_ended;
use super::{Agent, ApprovalRead, CallOptions, Gateway};
use crate::bridge::{CallerRedaction, check_sendable, tool_result};
use crate::caller_memory::CallerMemory;
use crate::error::{Error, Result};
use crate::off_runtime::off_the_runtime_if_long;
use crate::redact::{Redactor, WrittenPaths};
use crate::sandbox::Stop;
use crate::text::json::{approximate_bytes, json_bytes};
use crate::text::marked_name;

impl Agent {
    /// Calls a tool without a guest. Returns a `ToolResult` for every answer of the server, even if the tool reports an error.
    ///
    /// # Errors
    /// Every failure without an answer: refusals, time-outs, crashes, protocol errors.
    pub async fn call_tool(&self, name: &str, tool: &str, arguments: Map<String, Json>, options: CallOptions, stop: &Stop) -> Result<Json> {
        self.call_and_check(name, tool, arguments, options, stop, |_| Ok(())).await
    }

    /// Calls a tool as [`Agent::call_tool`] does. `check` may refuse the result before it waits for a long check or for its redaction.
    async fn call_and_check(
        &self,
        name: &str,
        tool: &str,
        arguments: Map<String, Json>,
        options: CallOptions,
        stop: &Stop,
        check: impl FnOnce(&Json) -> Result<()>,
    ) -> Result<Json> {
        self.identity.check_open()?;
        check_sendable(&format!("{name}.{tool}"), &arguments, self.core.limits.max_argument_bytes)
            .map_err(|error| self.core.redacted(error))?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        let name = granted.registry_name(name);
        let viewer = Viewer { id: self.identity.id, granted: &granted };
        let arguments =
            until_ended(&self.identity, stop, self.core.check_arguments((&viewer, &self.identity), name, tool, arguments)).await?;
        let written = WrittenPaths::of(&arguments);
        let request = Request::CallTool { tool: tool.into(), arguments: Arc::new(arguments) };
        let result = tool_result(self.request_without_run(name, &request, options, stop).await?);
        check(&result)?;
        let checking = self.core.check_result(&self.identity, name, tool, result);
        let result = until_ended(&self.identity, stop, checking).await.map_err(|error| self.core.redacted(error))?;
        let is_error = result.get("isError").and_then(Json::as_bool) == Some(true);
        if is_error { self.redaction().redact_for(result, written).await } else { Ok(result) }
    }

    /// Returns the redactor for large values of this agent's caller.
    pub(super) fn redaction(&self) -> CallerRedaction {
        self.core.redaction(&self.identity)
    }

    /// Checks the size of a server's answer to a request for `item`. An answer that is too large is refused before it waits for its
    /// redaction, because many such answers would use much memory.
    ///
    /// # Errors
    /// `ERR_RESPONSE_TOO_LARGE`.
    pub(crate) fn check_answer(&self, (server, item): (&str, &str), answer: &Json) -> Result<()> {
        self.check_size((server, item), off_the_runtime_if_long(approximate_bytes(answer), || json_bytes(answer)))
    }

    fn check_size(&self, (server, item): (&str, &str), size: usize) -> Result<()> {
        let limit = self.core.limits.max_response_bytes;
        if size <= limit {
            return Ok(());
        }
        let (what, size) = (format!("the result of {}.{item}", marked_name(server).0).into(), size.to_string().into());
        Err(self.core.redacted(Error::ResponseTooLarge { what, size, limit, limit_name: "limits.maxResponseBytes" }))
    }

    /// Prepares a server's answer for a model: removes secrets, but keeps whole paths, because the model's next call may need them. `of` is
    /// the server and the item that was asked for. The answer must have passed [`Agent::check_answer`] as soon as it came.
    ///
    /// # Errors
    /// `ERR_RESPONSE_TOO_LARGE` if the prepared answer is longer than `limits.maxResponseBytes`. `ERR_BUSY` if too many answers wait, and
    /// `ERR_INTERNAL` if the thread for a large answer has failed.
    pub(crate) async fn answer_for_model(&self, of: (&str, &str), answer: Json) -> Result<Json> {
        let measured = |answer: Json| (json_bytes(&answer), answer);
        let redact = move |redactor: &Redactor, answer| measured(redactor.json_without_secrets(&answer));
        let (size, answer) = self.redaction().in_turn(answer, redact).await.map_err(|error| self.core.redacted(error))?;
        self.check_size(of, size)?;
        Ok(answer)
    }

    /// Calls a tool for a model. The result contains no secrets, and is at most `limits.maxResponseBytes` long.
    ///
    /// # Errors
    /// The errors of [`Agent::call_tool`], [`Agent::check_answer`] and [`Agent::answer_for_model`].
    pub(crate) async fn call_for_model(
        &self,
        (server, tool): (&str, &str),
        arguments: Map<String, Json>,
        options: CallOptions,
        stop: &Stop,
    ) -> Result<Json> {
        let check = |result: &Json| self.check_answer((server, tool), result);
        let result = self.call_and_check(server, tool, arguments, options, stop, check).await?;
        self.answer_for_model((server, tool), result).await
    }
}

impl Gateway {
    /// Returns the memory of large answers that wait for their redaction, or until they are sent. The key of a caller is the one of its code
    /// owner.
    pub(crate) fn answer_memory(&self) -> CallerMemory {
        self.core.runs.large_turns.memory()
    }
}

impl Core {
    /// Returns the redactor for large values of an agent's caller. All agents with the same owner of code are the same caller.
    pub(super) fn redaction(&self, identity: &Identity) -> CallerRedaction {
        let caller = identity.code_owner.parse.key().to_string();
        CallerRedaction::new(Arc::clone(&self.redactor), Arc::clone(&self.runs.large_turns), &caller)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::gateway::{Gateway, GatewayOptions, IdentityOptions};
    use crate::sandbox::CodeOwner;

    const OF: (&str, &str) = ("s", "t");

    fn gateway(folder: &std::path::Path) -> Gateway {
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        (options.config, options.state_dir) = (Some(json!({ "mcpServers": {} })), Some(folder.join("state")));
        options.workspace_folder = Some(folder.to_owned());
        Gateway::open(options).unwrap()
    }

    fn answer(bytes: usize) -> Json {
        json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] })
    }

    /// Occupies the turn of an agent's caller until the returned sender is dropped.
    fn occupy(agent: &Agent) -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel::<()>();
        let redaction = agent.redaction();
        let mut redacting =
            Box::pin(async move { redaction.in_turn(answer(100_000), move |_, _| receiver.recv().is_err()).await.unwrap() });
        // The first poll takes the turn.
        assert!((&mut redacting).now_or_never().is_none());
        tokio::spawn(redacting);
        sender
    }

    #[tokio::test]
    async fn large_answers_wait_for_those_of_the_same_caller_in_all_its_sessions_and_not_for_those_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path());
        let session = |owner: &CodeOwner| {
            gateway.agent("a", IdentityOptions { code_owner: Some(owner.clone()), ..IdentityOptions::default() }).unwrap()
        };
        let (loud, quiet) = (CodeOwner::default(), CodeOwner::default());
        let turn = occupy(&session(&loud));
        let other = session(&loud);
        let mut waiting = Box::pin(other.answer_for_model(OF, answer(100_000)));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(other.answer_for_model(OF, answer(10)).now_or_never().unwrap().is_ok(), "a small answer needs no turn");
        session(&quiet).answer_for_model(OF, answer(100_000)).await.unwrap();
        gateway.agent("b", IdentityOptions::default()).unwrap().answer_for_model(OF, answer(100_000)).await.unwrap();
        assert!((&mut waiting).now_or_never().is_none());
        drop(turn);
        waiting.await.unwrap();
    }
}
