//! Calls of this program's own tools: `run_javascript`, and the tools with which a model finds and manages servers.

use std::sync::Arc;
use std::time::Instant;

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};
use tokio::sync::OwnedSemaphorePermit;

use super::answers::{self, refused, typed};
use super::handler::{Answer, Client, Handler, in_rounds};
use super::items::ItemLists;
use super::large_answers::AnswerOrigin;
use super::paused_calls::{Step, work};
use super::rounds::{Input, worked};
use super::run_limits::RunPermit;
use super::stateless::{self, Keeper};
use super::tasks::{Begun, Run, TaskPlace};
use crate::agent::{ExecuteOptions, Tool};
use crate::gateway::{RunOptions, next_run_id};
use crate::turns::Turns;

/// A call of one of this program's tools, ready to start or to continue.
struct Prepared {
    name: String,
    arguments: Json,
    keeper: Option<Keeper>,
    input: Input,
    permit: Option<RunPermit>,
}

impl Handler {
    /// Calls one of this program's tools.
    pub(super) async fn call_own(
        &self,
        tool: Tool,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<CallToolResponse> {
        let prepared = match self.prepared(tool, request, &context) {
            Ok(prepared) => prepared,
            Err(error) => return Ok(CallToolResponse::from(answers::result(stateless::refusal(&error)))),
        };
        let Prepared { name, arguments, keeper, mut input, permit } = prepared;
        let (run, is_first) = (next_run_id(), input.state.is_none());
        let (shared, caller) = (Arc::downgrade(&self.served.0), self.caller.key.clone());
        let (items, calls) = (self.served.0.items.clone(), Arc::clone(&self.served.0.tool_calls));
        let work_of = move |client: Client| async move {
            let (_permit, _turn) = (permit, turn(tool, (&items, &calls), &caller, &client).await);
            let answer = client.session.tools.execute_with(&name, &arguments, execute_options(&client, run)).await;
            let answer = answer.map_err(|error| refused(&error))?;
            Ok(match (keeper, shared.upgrade()) {
                (Some(keeper), _) => keeper.kept(&client.session, answer),
                (None, Some(shared)) if tool == Tool::RunJavascript => {
                    shared.saved_shares.ran(&caller, &client.session, Instant::now());
                    answer
                }
                (None, _) => answer,
            })
        };
        if let Some(place) = self.task_place(&context).filter(|_| is_first && tool == Tool::RunJavascript) {
            let (channel, questions) = self.round_channel();
            let client = self.client(&context, channel)?;
            let run =
                Run { stop: client.stop.clone(), work: work(worked(client.events.clone(), input.held.take(), work_of(client))), questions };
            let request = self.answered_request(&context);
            return match self.served.0.tasks.begin(place, run, &context.ct).await? {
                Begun::Done { result, bytes } => {
                    let converted = move || Ok(CallToolResponse::from(typed::<CallToolResult>(result)?));
                    self.served.0.large_answers.convert(&request, (bytes, AnswerOrigin::OfRequest), converted).await
                }
                Begun::Task(task) => Ok(CallToolResponse::from(task)),
            };
        }
        let (before, peer) = match tool {
            Tool::Manage => (self.direct_names(&context).await?, context.peer.clone()),
            _ => (None, context.peer.clone()),
        };
        let answer_of = |step| {
            Ok(match step {
                Step::Done(answer) => CallToolResponse::from(answers::result(answer)),
                Step::Ask(questions) => CallToolResponse::from(questions),
            })
        };
        let response = self.asking(context, input, work_of, answer_of).await?;
        if let Some(before) = before {
            self.tell_of_direct_tools(&before, &peer).await?;
        }
        Ok(response)
    }

    /// Checks a call of one of this program's tools, and reserves its share of the limits.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGUMENTS`, `ERR_BUSY`, `ERR_UNKNOWN_SESSION`. In these cases nothing was started.
    fn prepared(&self, tool: Tool, request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> crate::Result<Prepared> {
        self.check_arguments(&request)?;
        let name = request.name.into_owned();
        let mut arguments = Json::Object(request.arguments.unwrap_or_default());
        let keeper = Keeper::of(&self.served, context, &name, &mut arguments);
        let bound = json!(["tools/call", name, arguments, keeper.as_ref().and_then(Keeper::handle)]);
        let input = self.input(request.request_state, request.input_responses, &bound)?;
        let is_first = input.state.is_none();
        if let Some(session) = keeper.as_ref().filter(|_| is_first).map(Keeper::session).transpose()?.flatten() {
            // A request without a session has an empty cell until now.
            let _ = self.session_cell.set(session);
        }
        let permit = (is_first && tool == Tool::RunJavascript).then(|| self.served.0.runs.admit(&self.caller.key)).transpose()?;
        Ok(Prepared { name, arguments, keeper, input, permit })
    }

    /// Reserves a place for a task. Returns `None` if the client does not support tasks or already has too many.
    fn task_place(&self, context: &RequestContext<RoleServer>) -> Option<TaskPlace> {
        let knows = in_rounds(context) && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
        knows.then(|| self.served.0.tasks.place(self.owner(context))).flatten()
    }
}

/// Waits for the caller's turn. A tool that describes servers can take long, so it shares its turns with lists. Runs have limits of their
/// own, and need no turn. Returns `None` for a run, and if the call is stopped.
async fn turn(tool: Tool, (lists, calls): (&ItemLists, &Turns), caller: &str, client: &Client) -> Option<OwnedSemaphorePermit> {
    let own = async {
        match tool {
            Tool::RunJavascript => None,
            Tool::Search | Tool::Describe | Tool::ListServers | Tool::ServerInfo => lists.turn(caller).await,
            _ => calls.wait(caller).await,
        }
    };
    tokio::select! {
        biased;
        () = client.stop.stopped() => None,
        turn = own => turn,
    }
}

fn execute_options(client: &Client, run: u64) -> ExecuteOptions {
    let (on_event, trace) = (Arc::clone(&client.on_event), client.trace.clone());
    ExecuteOptions {
        stop: client.stop.clone(),
        callbacks: Some(Arc::clone(&client.callbacks) as Arc<_>),
        run_setup: Some(Arc::new(move |options| RunOptions {
            on_event: Some(Arc::clone(&on_event)),
            run_id: Some(run),
            trace: trace.context.clone(),
            request: Some(trace.request.clone()),
            ..options
        })),
    }
}
