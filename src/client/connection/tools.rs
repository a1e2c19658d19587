//! Tool calls with all their rounds: answers that are questions (since 2026-07-28), and tasks that are polled.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, ClientRequest, CustomRequest, Request};
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::era::Era;
use super::request_scope::RequestScope;
use super::{Connection, tasks};
use crate::client::clock::CallLimits;
use crate::client::inbound::caller::Caller;
use crate::client::inbound::calls::{InFlight, QuestionKind, QuestionRecipient};
use crate::client::inbound::questions::{NOT_HEARD, declined};
use crate::client::stdio::requests::{DirectLine, Param};
use crate::client::wire::answer::{CallFailure, in_error};
use crate::error::Error;

/// Rounds of questions that one call may have; rmcp's own limit is the same.
const MAX_ROUNDS: usize = 10;

/// A call that is to be sent.
pub struct ToolRequest {
    /// The raw name.
    pub tool: String,
    /// Arguments, shared, as a call may be sent once more.
    pub arguments: Arc<Map<String, Json>>,
    /// The tool can only be run as a task (`execution.taskSupport: "required"`, MCP 2025-11-25).
    pub as_task: bool,
    pub limits: CallLimits,
    pub caller: Arc<dyn Caller>,
}

/// Parameters of a `tools/call` request.
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a Map<String, Json>,
    input_responses: Option<BTreeMap<String, Json>>,
    request_state: Option<String>,
}

impl CallParams<'_> {
    fn to_request(&self) -> ClientRequest {
        let mut params = CallToolRequestParams::new(self.name.to_owned()).with_arguments(self.arguments.clone());
        (params.input_responses, params.request_state) = (self.input_responses.clone(), self.request_state.clone());
        ClientRequest::CallToolRequest(Request::new(params))
    }

    async fn send_directly(&self, connection: &Connection, scope: &RequestScope<'_>, line: &Arc<DirectLine>) -> Result<Json, CallFailure> {
        let responses: Option<Map<String, Json>> = self.input_responses.as_ref().map(|responses| responses.clone().into_iter().collect());
        let mut params = vec![("name", Param::Text(self.name)), ("arguments", Param::Fields(self.arguments))];
        params.extend(responses.as_ref().map(|responses| ("inputResponses", Param::Fields(responses))));
        params.extend(self.request_state.as_deref().map(|state| ("requestState", Param::Text(state))));
        connection.exchange_directly(scope, line, "tools/call", &params).await
    }
}

impl Connection {
    /// Calls a tool by its raw name. The result is the server's, unparsed. Dropping the future cancels the call.
    ///
    /// # Errors
    /// `ERR_CALL_TIMEOUT`, `ERR_SERVER_EXITED`, `ERR_PROTOCOL`, `ERR_RESPONSE_TOO_LARGE`, and what HTTP gives; each with whether the
    /// call may have been carried out.
    pub async fn call(&self, call: ToolRequest) -> std::result::Result<Json, CallFailure> {
        let ToolRequest { tool, arguments, as_task, limits, caller } = call;
        let scope = self.enter(&tool, limits, &caller).await?;
        if as_task && self.era == Era::Initialize {
            let params = json!({ "name": tool, "arguments": arguments, "task": {} });
            let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)));
            let created = self.exchange(&scope, request).await?;
            return self.follow(&scope, created).await;
        }
        let mut params = CallParams { name: &tool, arguments: &arguments, input_responses: None, request_state: None };
        for _ in 0..MAX_ROUNDS {
            let result = match &self.direct {
                Some(line) => params.send_directly(self, &scope, line).await?,
                None => self.exchange(&scope, params.to_request()).await?,
            };
            match result.get("resultType").and_then(Json::as_str) {
                Some("input_required") => {
                    params.input_responses = self.answers(&scope, &result).await?;
                    // Echoed byte for byte: it is the server's own, and may be sealed.
                    params.request_state = result.get("requestState").and_then(Json::as_str).map(ToOwned::to_owned);
                }
                Some("task") => return self.follow(&scope, result).await,
                _ => return Ok(result),
            }
        }
        let message = format!("it still asks for input after {MAX_ROUNDS} rounds");
        Err(Error::Protocol { server: self.server.clone(), tool: tool.clone(), code: 0, message: message.into() }.into())
    }

    /// The answers to what a result asks for, by the server's own names.
    pub(in crate::client) async fn answers(
        &self,
        scope: &RequestScope<'_>,
        result: &Json,
    ) -> std::result::Result<Option<BTreeMap<String, Json>>, CallFailure> {
        let Some(asked) = result.get("inputRequests").and_then(Json::as_object) else { return Ok(None) };
        let answering = async {
            let mut answers = BTreeMap::new();
            for (name, request) in asked {
                let answer = self.answer(scope, request).await;
                answers.insert(name.clone(), answer);
            }
            answers
        };
        tokio::select! {
            biased;
            // Nobody is left to whom an answer could be given.
            status = self.link.ended() => Err(self.link.exited(&self.server, &self.during(scope.what), status).into()),
            answers = answering => Ok(Some(answers)),
        }
    }

    async fn answer(&self, scope: &RequestScope<'_>, request: &Json) -> Json {
        let params = request.get("params").cloned().unwrap_or_default();
        let questions = &self.questions;
        let never = CancellationToken::new();
        let method = request.get("method").and_then(Json::as_str);
        // Before it counts, or marks anything.
        if method != Some("roots/list") && !questions.may_ask() {
            return if method == Some("sampling/createMessage") { refused(NOT_HEARD) } else { declined() };
        }
        let kind = if method == Some("sampling/createMessage") { QuestionKind::Model } else { QuestionKind::Person };
        let call = match self.calls.ask(scope.key().origin(), kind, None) {
            QuestionRecipient::Call(call) => call,
            QuestionRecipient::TooMany { tool, is_first } => return questions.too_many(tool.as_deref(), is_first),
            QuestionRecipient::Outside(_) | QuestionRecipient::Nobody | QuestionRecipient::Ambiguous => {
                return questions.too_many(None, false);
            }
        };
        match method {
            Some("elicitation/create") => questions.elicit(Some(call), &params, &never).await,
            Some("sampling/createMessage") => self.sampled(call, params, &never).await,
            Some("roots/list") => questions.roots(),
            _ => questions.cancelled("it asked for something that is not known"),
        }
    }

    /// Asks the model. The answers have no place for an error: a model that cannot be asked gives an empty answer.
    async fn sampled(&self, call: InFlight, params: Json, stopped: &CancellationToken) -> Json {
        let answer = self.questions.sample(Some(call), params, stopped).await;
        answer.unwrap_or_else(|reason| refused(&reason))
    }

    /// Waits for a task's result.
    async fn follow(&self, scope: &RequestScope<'_>, created: Json) -> std::result::Result<Json, CallFailure> {
        let Some(mut task) = tasks::Task::read(&created) else {
            // It ran at once, after all.
            return Ok(created);
        };
        let guard = tasks::CancelTask::new(self, &task.id);
        loop {
            match task.status {
                tasks::Status::Working => {}
                tasks::Status::InputRequired => {
                    let Some(answers) = self.answers(scope, &task.wire).await? else {
                        // Before 2026-07-28 the task asks while its result is waited for.
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
            let problem = || Error::Protocol {
                server: self.server.clone(),
                tool: scope.what.to_owned(),
                code: 0,
                message: "its answer to tasks/get is not a task".into(),
            };
            task = tasks::Task::read(&state).ok_or_else(problem)?;
        }
    }

    async fn task_result(&self, scope: &RequestScope<'_>, task: &tasks::Task) -> std::result::Result<Json, CallFailure> {
        match task.outcome() {
            tasks::Outcome::Result(result) => Ok(result),
            tasks::Outcome::Ask => self.exchange(scope, custom("tasks/result", json!({ "taskId": task.id }))).await,
            tasks::Outcome::Failed { code, message } => {
                Err(Error::Protocol { server: self.server.clone(), tool: scope.what.to_owned(), code, message: in_error(&message) }.into())
            }
        }
    }
}

/// Makes the empty answer of a model that cannot be asked.
fn refused(reason: &str) -> Json {
    json!({ "role": "assistant", "content": { "type": "text", "text": reason }, "model": "none", "stopReason": "refused" })
}

pub(in crate::client) fn custom(method: &str, params: Json) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
}
