//! Calls of tools. A call either gets its result directly, perhaps after rounds of input, or runs as a task whose result is polled.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, ClientRequest, CustomRequest, Request};
use serde_json::{Map, Value as Json, json};

use super::era::Era;
use super::request_scope::RequestScope;
use super::rounds::{GivenInput, Round, RoundsResult};
use super::{Connection, tasks};
use crate::client::clock::CallLimits;
use crate::client::inbound::caller::Caller;
use crate::client::stdio::requests::Param;
use crate::client::wire::answer::{CallFailure, in_error};
use crate::error::Error;

/// The problem of an answer that is a task, although the request did not ask for a task.
pub(super) const TASK_UNASKED: &str = "it is a task, but the request did not ask for a task";

/// A call to send.
pub struct ToolRequest {
    /// The raw name of the tool, as the server lists it.
    pub tool: String,
    /// Arguments of the call. They are reference-counted, because the call may be sent a second time.
    pub arguments: Arc<Map<String, Json>>,
    /// True if the tool can only run as a task (`execution.taskSupport: "required"`, MCP 2025-11-25).
    pub as_task: bool,
    pub limits: CallLimits,
    pub caller: Arc<dyn Caller>,
}

/// Parameters of `tools/call` that are the same in all rounds of input.
struct ToolParams<'a> {
    name: &'a str,
    arguments: &'a Map<String, Json>,
}

impl Round for ToolParams<'_> {
    async fn send(&self, connection: &Connection, scope: &RequestScope<'_>, input: &GivenInput) -> Result<Json, CallFailure> {
        let Some(line) = &connection.direct else {
            let mut params = CallToolRequestParams::new(self.name.to_owned()).with_arguments(self.arguments.clone());
            (params.input_responses, params.request_state) = (input.responses.clone(), input.state.clone());
            return connection.exchange(scope, ClientRequest::CallToolRequest(Request::new(params))).await;
        };
        let responses: Option<Map<String, Json>> = input.responses.as_ref().map(|responses| responses.clone().into_iter().collect());
        let mut params = vec![("name", Param::Text(self.name)), ("arguments", Param::Fields(self.arguments))];
        params.extend(responses.as_ref().map(|responses| ("inputResponses", Param::Fields(responses))));
        params.extend(input.state.as_deref().map(|state| ("requestState", Param::Text(state))));
        connection.exchange_directly(scope, line, "tools/call", &params).await
    }
}

impl Connection {
    /// Calls a tool by its raw name, and returns the server's result unparsed. Dropping the future cancels the call.
    ///
    /// # Errors
    /// `ERR_CALL_TIMEOUT`, `ERR_SERVER_EXITED`, `ERR_PROTOCOL`, `ERR_RESPONSE_TOO_LARGE`, and the errors of the HTTP transport.
    /// Each failure also contains whether the server may have acted on the call.
    pub async fn call(&self, call: ToolRequest) -> std::result::Result<Json, CallFailure> {
        let ToolRequest { tool, arguments, as_task, limits, caller } = call;
        let scope = self.enter(&tool, limits, &caller).await?;
        if as_task && self.era == Era::Initialize {
            let params = json!({ "name": tool, "arguments": arguments, "task": {} });
            let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)));
            let created = self.exchange(&scope, request).await?;
            return self.follow(&scope, created).await;
        }
        match self.in_rounds(&scope, &ToolParams { name: &tool, arguments: &arguments }).await? {
            RoundsResult::Task(created) => self.follow(&scope, created).await,
            RoundsResult::Complete(result) if is_task_alone(&result) => Err(self.unusable(&scope, TASK_UNASKED)),
            RoundsResult::Complete(result) => Ok(result),
        }
    }

    /// Polls a task until it has ended, and returns its result.
    async fn follow(&self, scope: &RequestScope<'_>, created: Json) -> std::result::Result<Json, CallFailure> {
        let Some(mut task) = tasks::Task::read(&created) else {
            // The server ran the tool directly instead of creating a task.
            let is_task = is_task_alone(&created) || created.get("resultType").and_then(Json::as_str) == Some("task");
            return if is_task { Err(self.unusable(scope, "it is a task without a taskId or a status")) } else { Ok(created) };
        };
        let guard = tasks::CancelTask::new(self, &task.id);
        loop {
            match task.status {
                tasks::Status::Working => {}
                tasks::Status::InputRequired => {
                    let Some(answers) = self.answers(scope, &task.wire).await? else {
                        // Before MCP 2026-07-28, the server sends its questions as requests while the client waits for the answer to
                        // `tasks/result`.
                        let result = self.exchange(scope, custom("tasks/result", json!({ "taskId": task.id }))).await?;
                        guard.settle();
                        return Ok(result);
                    };
                    let params = json!({ "taskId": task.id, "inputResponses": answers });
                    self.exchange(scope, custom("tasks/update", params)).await?;
                }
                tasks::Status::Ended => {
                    guard.settle();
                    return self.task_result(scope, &task).await;
                }
            }
            tokio::select! {
                biased;
                expired = scope.clock.expired() => return Err(self.expired(scope.what, expired).into()),
                () = tokio::time::sleep(task.pause) => {}
            }
            let state = self.exchange(scope, custom("tasks/get", json!({ "taskId": task.id }))).await?;
            let problem = || Error::UnusableAnswer {
                server: self.server.clone(),
                tool: scope.what.into(),
                problem: "the answer to tasks/get has no taskId or no status".into(),
            };
            task = tasks::Task::read(&state).ok_or_else(problem)?;
        }
    }

    async fn task_result(&self, scope: &RequestScope<'_>, task: &tasks::Task) -> std::result::Result<Json, CallFailure> {
        match task.outcome() {
            tasks::Outcome::Result(result) => Ok(result),
            tasks::Outcome::Ask => self.exchange(scope, custom("tasks/result", json!({ "taskId": task.id }))).await,
            tasks::Outcome::Failed { code, message } => {
                Err(Error::Protocol { server: self.server.clone(), tool: scope.what.into(), code, message: in_error(&message).into() }
                    .into())
            }
        }
    }
}

/// Returns whether a result has a task (MCP 2025-11-25) and no part of a tool's own result.
fn is_task_alone(result: &Json) -> bool {
    let has = |field| result.get(field).is_some();
    has("task") && !has("content") && !has("structuredContent")
}

pub(in crate::client) fn custom(method: &str, params: Json) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
}
