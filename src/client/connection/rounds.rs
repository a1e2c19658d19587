//! Rounds of input (MCP 2026-07-28). A server's result may ask for input instead of giving the answer. The client then sends the request
//! again with that input.

use std::collections::BTreeMap;
use std::future::Future;

use futures::future::join_all;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::Connection;
use super::era::Era;
use super::request_scope::RequestScope;
use crate::client::inbound::calls::{InFlight, QuestionKind, QuestionRecipient};
use crate::client::inbound::questions::{NOBODY_ASKED, declined};
use crate::client::wire::answer::{CallFailure, in_error};
use crate::error::Error;

/// Fields that show that a result is the final answer to a call, or to a request for a resource, a prompt or a completion.
const ANSWERS: [&str; 5] = ["content", "structuredContent", "contents", "messages", "completion"];
/// Maximum number of rounds for one request. rmcp has the same limit.
const MAX_ROUNDS: usize = 10;

/// Input that the result of the previous round requested. It is empty in the first round.
#[derive(Debug, Default)]
pub(in crate::client) struct GivenInput {
    /// Answers to the server's input requests, keyed by the names that the server gave to them.
    pub(in crate::client) responses: Option<BTreeMap<String, Json>>,
    /// The server's `requestState`, sent back unchanged, because only the server knows its format.
    pub(in crate::client) state: Option<String>,
}

/// A request that can be sent again with the input that its server requested.
pub(in crate::client) trait Round: Sync {
    /// Sends the request once.
    fn send(
        &self,
        connection: &Connection,
        scope: &RequestScope<'_>,
        input: &GivenInput,
    ) -> impl Future<Output = std::result::Result<Json, CallFailure>> + Send;
}

/// The result of a request after its rounds.
pub(in crate::client) enum RoundsResult {
    Complete(Json),
    /// A task. Its result must be polled.
    Task(Json),
}

/// The type of a result (MCP 2026-07-28).
#[derive(Debug, PartialEq)]
enum ResultKind {
    Complete,
    InputRequired,
    Task,
    /// A `resultType` that this client does not know, as JSON text. Such a result may be anything, so it is never treated as an answer.
    Unknown(String),
}

impl ResultKind {
    fn of(result: &Json, era: Era) -> Self {
        let kind = result.get("resultType").filter(|kind| !kind.is_null());
        match (kind.and_then(Json::as_str), kind) {
            (Some("input_required"), _) => Self::InputRequired,
            (Some("task"), _) => Self::Task,
            (Some("complete"), _) | (None, None) => Self::Complete,
            // Before MCP 2026-07-28, the field belongs to the server, which may use it beside the fields of a result.
            _ if era == Era::Initialize && ANSWERS.iter().any(|field| result.get(field).is_some()) => Self::Complete,
            (_, kind) => Self::Unknown(kind.map(Json::to_string).unwrap_or_default()),
        }
    }
}

impl Connection {
    /// Sends a request in rounds until its result asks for no more input. Returns the server's result unparsed, and whether it is a task.
    ///
    /// # Errors
    /// `ERR_PROTOCOL` for a result of an unknown type, and the errors of a call.
    pub(in crate::client) async fn in_rounds(
        &self,
        scope: &RequestScope<'_>,
        request: &impl Round,
    ) -> std::result::Result<RoundsResult, CallFailure> {
        let mut input = GivenInput::default();
        for _ in 0..MAX_ROUNDS {
            let result = request.send(self, scope, &input).await?;
            match ResultKind::of(&result, self.era) {
                ResultKind::InputRequired => {}
                ResultKind::Complete => return Ok(RoundsResult::Complete(result)),
                ResultKind::Task => return Ok(RoundsResult::Task(result)),
                ResultKind::Unknown(kind) => return Err(self.unusable(scope, &format!("its resultType {kind} is not known"))),
            }
            input.responses = self.answers(scope, &result).await?;
            input.state = result.get("requestState").and_then(Json::as_str).map(ToOwned::to_owned);
        }
        Err(self.unusable(scope, &format!("it still asks for input after {MAX_ROUNDS} rounds")))
    }

    /// Makes the failure of a request whose result cannot be used.
    pub(in crate::client) fn unusable(&self, scope: &RequestScope<'_>, problem: &str) -> CallFailure {
        Error::UnusableAnswer { server: self.server.clone(), tool: scope.what.into(), problem: in_error(problem).into() }.into()
    }

    /// Collects the answers to a result's `inputRequests`. A person and a model are asked at the same time, but a person gets only one
    /// question at a time. Returns `None` if the result has no `inputRequests`.
    pub(in crate::client) async fn answers(
        &self,
        scope: &RequestScope<'_>,
        result: &Json,
    ) -> std::result::Result<Option<BTreeMap<String, Json>>, CallFailure> {
        let Some(asked) = result.get("inputRequests").and_then(Json::as_object) else { return Ok(None) };
        let answering = async {
            let each = by_method(asked).into_iter().map(|alike| async move {
                let mut answers = Vec::new();
                for (name, request) in alike {
                    answers.push((name.clone(), self.answer(scope, request).await));
                }
                answers
            });
            join_all(each).await.into_iter().flatten().collect::<BTreeMap<_, _>>()
        };
        tokio::select! {
            biased;
            // The server's process has ended, so nobody needs the answers.
            status = self.link.ended() => Err(self.link.exited(&self.server, &self.during(scope.what), status).into()),
            answers = answering => Ok(Some(answers)),
        }
    }

    async fn answer(&self, scope: &RequestScope<'_>, request: &Json) -> Json {
        let params = request.get("params").cloned().unwrap_or_default();
        let questions = &self.questions;
        let never = CancellationToken::new();
        let method = request.get("method").and_then(Json::as_str);
        // The approval is checked before the question is counted against the limits.
        if method != Some("roots/list") && !questions.may_ask() {
            return if method == Some("sampling/createMessage") { refused(NOBODY_ASKED) } else { declined() };
        }
        let wants = if method == Some("sampling/createMessage") { QuestionKind::Model } else { QuestionKind::Person };
        let call = match self.calls.ask(scope.key().origin(), wants, None) {
            QuestionRecipient::Call(call) => call,
            QuestionRecipient::TooMany { tool, is_first } => return questions.too_many(tool.as_deref(), is_first),
            QuestionRecipient::Outside(_) | QuestionRecipient::Nobody | QuestionRecipient::Ambiguous => {
                return questions.too_many(None, false);
            }
        };
        match method {
            Some("elicitation/create") => questions.elicit(Some(call), &params, &never).await,
            Some("sampling/createMessage") => self.sampled(call, params, &never).await,
            Some("roots/list") => questions.roots_of(call).await,
            _ => questions.cancelled("it sent an input request with an unknown method"),
        }
    }

    /// Asks the caller's model. `inputResponses` cannot contain an error, so a refusal is sent as if it were a text of the model.
    async fn sampled(&self, call: InFlight, params: Json, stopped: &CancellationToken) -> Json {
        let answer = self.questions.sample(Some(call), params, stopped).await;
        answer.unwrap_or_else(|reason| refused(&reason))
    }
}

/// Returns the input requests of each method, in the order in which the server named the methods first.
fn by_method(asked: &Map<String, Json>) -> Vec<Vec<(&String, &Json)>> {
    let mut kinds: Vec<Vec<(&String, &Json)>> = Vec::new();
    for (name, request) in asked {
        match kinds.iter_mut().find(|alike| alike[0].1.get("method") == request.get("method")) {
            Some(alike) => alike.push((name, request)),
            None => kinds.push(vec![(name, request)]),
        }
    }
    kinds
}

/// Makes a model's answer whose only text is the reason of a refusal.
fn refused(reason: &str) -> Json {
    json!({ "role": "assistant", "content": { "type": "text", "text": reason }, "model": "none", "stopReason": "refused" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_one_kind_follow_each_other_and_those_of_another_do_not_wait_for_them() {
        let of = |method: &str| json!({ "method": method });
        let asked = json!({ "a": of("form"), "b": of("roots"), "c": of("form"), "d": of("sample"), "e": {} });
        let kinds: Vec<Vec<_>> = by_method(asked.as_object().unwrap())
            .into_iter()
            .map(|alike| alike.into_iter().map(|(name, _)| name.as_str()).collect())
            .collect();
        assert_eq!(kinds, [vec!["a", "c"], vec!["b"], vec!["d"], vec!["e"]]);
        assert!(by_method(&Map::new()).is_empty());
    }

    #[test]
    fn a_result_of_an_unknown_type_fails() {
        let of = |result: Json, era| ResultKind::of(&result, era);
        for era in [Era::Discover, Era::Initialize] {
            for (result, kind) in [
                (json!({}), ResultKind::Complete),
                (json!({ "resultType": "complete" }), ResultKind::Complete),
                (json!({ "resultType": "task", "taskId": "a" }), ResultKind::Task),
                (json!({ "resultType": "input_required", "content": [] }), ResultKind::InputRequired),
                (json!({ "resultType": "partial" }), ResultKind::Unknown("\"partial\"".into())),
                (json!({ "resultType": 5 }), ResultKind::Unknown("5".into())),
                (json!({ "resultType": null }), ResultKind::Complete),
            ] {
                assert_eq!(of(result, era), kind);
            }
        }
        let own = json!({ "resultType": "table", "content": [] });
        assert_eq!(of(own.clone(), Era::Initialize), ResultKind::Complete);
        assert_eq!(of(own, Era::Discover), ResultKind::Unknown("\"table\"".into()));
    }
}
