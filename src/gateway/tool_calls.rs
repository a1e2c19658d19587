//! Calls of tools that do not come from a guest. They run on the threads of the runtime, which all callers share, so checks and redactions
//! that may take long are done on other threads.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::availability::Viewer;
use super::request::Request;
use super::run_end::until_ended;
use super::{Agent, ApprovalRead, CallOptions};
use crate::bridge::{check_sendable, in_turn, redact_for, tool_result};
use crate::error::{Error, Result};
use crate::redact::WrittenPaths;
use crate::sandbox::Stop;
use crate::text::json::{approximate_bytes, json_bytes};
use crate::text::marked_name;

impl Agent {
    /// Calls a tool without a guest. Returns a `ToolResult` for every answer of the server, even if the tool reports an error.
    ///
    /// # Errors
    /// Every failure without an answer: refusals, time-outs, crashes, protocol errors.
    pub async fn call_tool(&self, name: &str, tool: &str, arguments: Map<String, Json>, options: CallOptions, stop: &Stop) -> Result<Json> {
        self.identity.check_open()?;
        check_sendable(&format!("{name}.{tool}"), &arguments, self.core.limits.max_argument_bytes)
            .map_err(|error| self.core.redacted(error))?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        let name = granted.registry_name(name);
        let viewer = Viewer { id: self.identity.id, granted: &granted };
        let arguments = until_ended(&self.identity, stop, self.core.check_arguments(&viewer, name, tool, arguments)).await?;
        let written = WrittenPaths::of(&arguments);
        let request = Request::CallTool { tool: tool.into(), arguments: Arc::new(arguments) };
        let result = self.request_without_run(name, &request, options, stop).await?;
        let checking = self.core.check_result(self.identity.id, name, tool, result);
        let result = until_ended(&self.identity, stop, checking).await.map_err(|error| self.core.redacted(error))?;
        let result = tool_result(result);
        let is_error = result.get("isError").and_then(Json::as_bool) == Some(true);
        if is_error { redact_for(&self.core.redactor, result, written).await } else { Ok(result) }
    }

    /// Prepares a server's answer for a model: removes secrets, but keeps whole paths, because the model's next call may need them.
    ///
    /// # Errors
    /// `ERR_INTERNAL`, if the thread for a large answer has failed.
    pub(crate) async fn answer_for_model(&self, answer: Json) -> Result<Json> {
        in_turn(&self.core.redactor, approximate_bytes(&answer), move |redactor| redactor.json_without_secrets(&answer)).await
    }

    /// Calls a tool for a model. The result contains no secrets, and is at most `limits.maxResponseBytes` long.
    ///
    /// # Errors
    /// `ERR_RESPONSE_TOO_LARGE`, and the errors of [`Agent::call_tool`].
    pub(crate) async fn call_for_model(
        &self,
        (server, tool): (&str, &str),
        arguments: Map<String, Json>,
        options: CallOptions,
        stop: &Stop,
    ) -> Result<Json> {
        let result = self.call_tool(server, tool, arguments, options, stop).await?;
        let measured = |result: Json| (json_bytes(&result), result);
        let (size, result) =
            in_turn(&self.core.redactor, approximate_bytes(&result), move |redactor| measured(redactor.json_without_secrets(&result)))
                .await?;
        let limit = self.core.limits.max_response_bytes;
        if size <= limit {
            return Ok(result);
        }
        let (what, size) = (format!("the result of {}.{tool}", marked_name(server).0).into(), size.to_string().into());
        Err(self.core.redacted(Error::ResponseTooLarge { what, size, limit, limit_name: "limits.maxResponseBytes" }))
    }
}
