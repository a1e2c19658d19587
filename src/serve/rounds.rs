//! Requests that may ask their client questions before they are answered. Each round of such a request repeats some of the parameters.

use std::future::Future;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, InputResponses};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::asking::{ClientChannel, Question, RequestChannel, RoundChannel};
use super::handler::{Answer, Client, Handler, MAX_QUESTIONS, in_rounds};
use super::held_arguments::{HeldArguments, check_parts};
use super::http::SessionEnd;
use super::large_answers::AnswerOrigin;
use super::listeners::SentEvents;
use super::paused_calls::{Answers, Outcome, Round, Step, work};
use super::waiting_calls::AskingCall;
use crate::sandbox::{Stop, StopReason};

/// The data of one round of a request.
pub(super) struct Input {
    pub(super) state: Option<String>,
    responses: Option<InputResponses>,
    /// The bytes that must be the same in each round.
    bound: Vec<u8>,
    /// The memory that is reserved for the arguments in the first round, or for the answers in a later round.
    pub(super) held: Option<HeldArguments>,
}

impl Handler {
    /// Does the work of a request that may ask questions, and converts its outcome to the answer of this request. Since protocol 2026-07-28,
    /// questions are sent in rounds. Before this version, each question is a request to the client.
    pub(super) async fn asking<W, T>(
        &self,
        context: RequestContext<RoleServer>,
        input: Input,
        work_of: impl FnOnce(Client) -> W,
        answer_of: impl FnOnce(Step) -> Answer<T>,
    ) -> Answer<T>
    where
        W: Future<Output = Answer<Json>> + Send + 'static,
    {
        let request = self.answered_request(&context);
        let outcome = self.outcome(context, input, work_of).await?;
        // The outcome of a repeated round is kept for further requests. So this request needs a copy.
        let origin = if Arc::strong_count(&outcome) == 1 { AnswerOrigin::OfRequest } else { AnswerOrigin::Kept };
        let of = (outcome.bytes, origin);
        self.served.0.large_answers.convert(&request, of, || answer_of(Arc::unwrap_or_clone(outcome).step)).await
    }

    async fn outcome<W>(&self, context: RequestContext<RoleServer>, input: Input, work_of: impl FnOnce(Client) -> W) -> Round
    where
        W: Future<Output = Answer<Json>> + Send + 'static,
    {
        let Input { state, responses, bound, held } = input;
        if !in_rounds(&context) {
            let client = self.client(&context, self.request_channel(&context))?;
            let stop = client.stop.clone();
            return until_cancelled(&context, &stop, Box::pin(worked(client.events.clone(), held, work_of(client))))
                .await
                .map(Outcome::done);
        }
        let paused_calls = &self.served.0.paused_calls;
        if let Some(state) = state {
            let to_this_request = |events: &SentEvents| events.send_to(context.peer.clone(), context.meta.get_progress_token());
            let answers = Answers { responses: responses.unwrap_or_default(), held };
            let (round, stop) = paused_calls.resume(&state, answers, bound, to_this_request)?;
            return until_cancelled(&context, &stop, round).await;
        }
        let (channel, questions) = self.round_channel();
        let client = self.client(&context, channel)?;
        let stop = client.stop.clone();
        let events = client.events.clone();
        let working = work(worked(events.clone(), held, work_of(client)));
        let round = paused_calls.begin(self.owner(&context), working, (stop.clone(), Some(events)), questions, bound);
        until_cancelled(&context, &stop, Box::pin(round)).await
    }

    /// Returns the channel in which each question is a request to the client that sent this request.
    pub(super) fn request_channel(&self, context: &RequestContext<RoleServer>) -> ClientChannel {
        let (shared, caller) = (&self.served.0, &self.caller.key);
        let has_stream = context.extensions.get::<http::request::Parts>().is_some();
        let call = Arc::new(AskingCall::new(&shared.waiting_calls, caller, shared.questions.of(caller), has_stream));
        let (peer, origin, runtime) = (context.peer.clone(), context.id.clone(), self.served.0.runtime.clone());
        ClientChannel::Request(RequestChannel { peer, origin, call, runtime })
    }

    /// Returns a channel in which questions are sent in rounds, and its receiver.
    pub(super) fn round_channel(&self) -> (ClientChannel, mpsc::Receiver<Question>) {
        let (sender, questions) = mpsc::channel(MAX_QUESTIONS);
        (ClientChannel::Round(RoundChannel { questions: sender, memory: self.served.0.questions.of(&self.caller.key) }), questions)
    }

    /// Returns the input of a round. The input is bound to the caller, the method and the parameters. The first round reserves the memory
    /// for the arguments, and each later round reserves the memory for its answers.
    ///
    /// # Errors
    /// `ERR_BUSY`, and `ERR_INVALID_ARGUMENTS` for answers with too many values.
    pub(super) fn input(&self, state: Option<String>, responses: Option<InputResponses>, request: &Json) -> crate::Result<Input> {
        let held = match (&state, &responses) {
            (None, _) => Some(self.served.0.arguments.hold(&self.caller.key, request)?),
            (Some(_), Some(responses)) => Some(self.hold_answers(responses)?),
            (Some(_), None) => None,
        };
        Ok(Input { state, responses, bound: json!([self.caller.key, request]).to_string().into_bytes(), held })
    }

    /// Reserves the memory for answers to questions.
    ///
    /// # Errors
    /// `ERR_BUSY`, and `ERR_INVALID_ARGUMENTS` for too many values.
    pub(super) fn hold_answers(&self, responses: &InputResponses) -> crate::Result<HeldArguments> {
        let answers = Json::Object(responses.iter().map(|(name, answer)| (name.clone(), answer.clone())).collect());
        let gateway = &self.served.0.gateway;
        check_parts("inputResponses", answers.as_object(), gateway.max_value_parts()).map_err(|error| gateway.redacted(error))?;
        self.served.0.arguments.hold(&self.caller.key, &answers)
    }

    /// Checks the arguments of a call of a tool.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGUMENTS` for too many values.
    pub(super) fn check_arguments(&self, request: &CallToolRequestParams) -> crate::Result<()> {
        let gateway = &self.served.0.gateway;
        check_parts(&request.name, request.arguments.as_ref(), gateway.max_value_parts()).map_err(|error| gateway.redacted(error))
    }
}

/// Does the work of a request, while the memory for its arguments is reserved. Sends all events to the client before the result is
/// returned.
pub(super) async fn worked(events: SentEvents, held: Option<HeldArguments>, work: impl Future<Output = Answer<Json>>) -> Answer<Json> {
    let outcome = work.await;
    drop(held);
    events.all().await;
    outcome
}

/// Waits for the result of a request. If the client cancels the request or ends its session, the call is stopped, and its result reports
/// this. A call that waits for its next round continues after the request that started it.
pub(super) async fn until_cancelled<T>(context: &RequestContext<RoleServer>, stop: &Stop, outcome: impl Future<Output = T>) -> T {
    tokio::pin!(outcome);
    let session_end = context.extensions.get::<http::request::Parts>().and_then(|parts| parts.extensions.get::<SessionEnd>());
    let session_ended = async {
        match session_end {
            Some(SessionEnd(ended)) => ended.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        outcome = &mut outcome => return outcome,
        () = context.ct.cancelled() => stop.stop(StopReason::Aborted),
        () = session_ended => stop.stop(StopReason::Closed),
    }
    outcome.await
}
