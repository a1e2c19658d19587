//! The handler of one connection. It answers the requests of a host by using the gateway.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult, CustomRequest, CustomResult,
    DiscoverResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult, Implementation,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingLevel, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answers::{complete_of, data, no_such_resource, refused, typed, with_meta};
use super::asking::{ClientCallbacks, ClientChannel, QuestionSupport};
use super::direct::MAX_NAME_CHARS;
use super::http::{Owner, Principal};
use super::lacking::Lacking;
use super::large_answers::AnswerOrigin;
use super::links::Links;
use super::listeners::{SentEvents, listener};
use super::paused_calls::Step;
use super::prompts::{ServedPrompt, prompt_definition};
use super::resources_and_prompts::{self, ResourcesAndPrompts, Target};
use super::rounds::until_cancelled;
use super::session::{CallerName, ClientNotification, Session, SessionCell};
use super::subscriptions::FirstLook;
use super::traced::HostTrace;
use super::{Served, Shared, answers, misfits, stateless, subscriptions};
use crate::blocking::blocking;
use crate::gateway::{Agent, CallOptions, Completed};
use crate::sandbox::Stop;
use crate::text::sanitise_line;

/// The maximum number of questions for one call that wait concurrently, since protocol 2026-07-28.
pub(super) const MAX_QUESTIONS: usize = 16;
/// The method of a completion.
const COMPLETE: &str = "completion/complete";
/// The number of the next connection. For a client without a token, tasks belong to the connection with this number.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

pub(super) type Answer<T> = std::result::Result<T, ErrorData>;

/// Answers the requests of one connection. Over HTTP without sessions, each request has a handler of its own.
pub struct Handler {
    pub(super) served: Served,
    number: u64,
    pub(super) session_cell: SessionCell,
    pub(super) caller: Principal,
    /// What the client saw at its beginning. It is needed once, when the client begins to be notified of changes.
    first_look: FirstLook,
    ended: CancellationToken,
    _ends_with_this: DropGuard,
}

/// The values from the client's side that the work of a call needs.
pub(super) struct Client {
    pub(super) session: Arc<Session>,
    pub(super) callbacks: Arc<ClientCallbacks>,
    pub(super) on_event: crate::gateway::EventListener,
    pub(super) events: SentEvents,
    pub(super) stop: Stop,
    pub(super) trace: HostTrace,
}

impl Client {
    pub(super) fn call_options(&self) -> CallOptions {
        CallOptions {
            callbacks: Some(Arc::clone(&self.callbacks) as Arc<_>),
            on_event: Some(Arc::clone(&self.on_event)),
            trace: self.trace.context.clone(),
            ..CallOptions::default()
        }
    }
}

impl Handler {
    pub(super) fn new(served: Served, caller: Principal) -> Self {
        let ended = CancellationToken::new();
        let ends_with_this = ended.clone().drop_guard();
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let (session_cell, first_look) = (SessionCell::default(), FirstLook::default());
        Self { served, number, session_cell, caller, first_look, ended, _ends_with_this: ends_with_this }
    }

    /// Returns the cell of the session, for the code that ends the connection.
    pub(super) fn session_cell(&self) -> SessionCell {
        Arc::clone(&self.session_cell)
    }

    /// Returns the session. The first request opens it.
    pub(super) fn session(&self, context: &RequestContext<RoleServer>) -> Answer<Arc<Session>> {
        stateless::check_version(context)?;
        if let Some(session) = self.session_cell.get() {
            return Ok(Arc::clone(session));
        }
        // Without a session, each request is a connection of its own, which ends with the request.
        let is_stateless = stateless::owner(context).is_some();
        let told = (!is_stateless).then(|| ClientNotification::Client(context.peer.clone()));
        let opened = self.open_session(context, told)?;
        if is_stateless {
            self.served.0.hold_servers_of(&opened.agent).map_err(|error| refused(&error))?;
        }
        Ok(Arc::clone(self.session_cell.get_or_init(|| opened)))
    }

    fn open_session(&self, context: &RequestContext<RoleServer>, told: Option<ClientNotification>) -> Answer<Arc<Session>> {
        let client = context.client_info();
        let name = CallerName { of_token: self.caller.agent.as_deref(), of_client: client.as_ref().map(|client| client.name.as_str()) };
        Session::open(&self.served.0, &self.caller.key, name, told).map_err(|error| refused(&error))
    }

    fn agent(&self, context: &RequestContext<RoleServer>) -> Answer<Agent> {
        Ok(self.session(context)?.agent.clone())
    }

    pub(super) fn client(&self, context: &RequestContext<RoleServer>, channel: ClientChannel) -> Answer<Client> {
        let session = self.session(context)?;
        let callbacks = Arc::new(ClientCallbacks {
            channel,
            support: QuestionSupport::from(context.client_capabilities().as_ref()),
            allowed: self.served.0.options.allow_writes.clone(),
            roots: Arc::default(),
            lacking: Lacking::default(),
        });
        // Without sessions, each request contains its own log level (MCP 2026-07-28, server/utilities/logging).
        let least = if in_rounds(context) { context.meta.log_level() } else { Some(session.level.lock().unwrap_or(LoggingLevel::Debug)) };
        let (on_event, events) = listener(&self.served.0.runtime, context.peer.clone(), context.meta.get_progress_token(), least);
        Ok(Client { session, callbacks, on_event, events, stop: Stop::new(), trace: HostTrace::of(context) })
    }

    /// Returns the owner of a task: the caller, or this connection if there is no caller's token.
    pub(super) fn owner(&self, context: &RequestContext<RoleServer>) -> Owner {
        let of_connection = || Owner { key: format!("connection:{}", self.number), ended: Arc::new(self.ended.clone()) };
        stateless::owner(context).unwrap_or_else(of_connection)
    }

    /// Runs `work` with the lists of the resources and prompts of all servers.
    pub(super) async fn with_items<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(&Agent, &ResourcesAndPrompts) -> crate::Result<T> + Send + 'static,
    ) -> Answer<T> {
        let shared = &self.served.0;
        let done = shared.items.with(&self.caller.key, self.agent(context)?, shared.options.direct.clone(), work);
        done.await.map_err(|error| refused(&error))
    }

    /// Returns access to the lists of this caller, for the links in its results.
    pub(super) fn links(&self) -> Links {
        let Shared { items, options, .. } = &*self.served.0;
        Links { lists: items.clone(), caller: self.caller.key.clone(), direct: options.direct.clone() }
    }

    /// Returns the resource that a URI refers to.
    async fn target(&self, context: &RequestContext<RoleServer>, uri: &str) -> Answer<Target> {
        let asked = uri.to_owned();
        let found = self.with_items(context, move |_, items| Ok(items.target(&asked))).await?;
        found.ok_or_else(|| answers::about(no_such_resource(), uri))
    }

    async fn prompt(&self, context: &RequestContext<RoleServer>, name: &str) -> Answer<(String, String)> {
        let asked = name.to_owned();
        let of_server = |prompt: &ServedPrompt| (prompt.entry.server.clone(), prompt.entry.name.clone());
        let find =
            move |_: &Agent, items: &ResourcesAndPrompts| Ok(items.prompts().iter().find(|prompt| prompt.name == asked).map(of_server));
        let found = self.with_items(context, find).await?;
        let shown = || format!("there is no prompt \"{}\"", sanitise_line(name, MAX_NAME_CHARS));
        found.ok_or_else(|| ErrorData::invalid_params(shown(), Some(data("ERR_UNKNOWN_PROMPT"))))
    }
}

/// Returns whether questions to the client are sent in answers to its requests (since protocol 2026-07-28).
pub(super) fn in_rounds(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

impl ServerHandler for Handler {
    /// Returns the information that is the same for all callers. rmcp calls this method for each request without a session, so the method
    /// must be fast.
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("hyperlight-mcp", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn initialize(&self, request: InitializeRequestParams, context: RequestContext<RoleServer>) -> Answer<InitializeResult> {
        context.peer.set_peer_info(request.clone());
        let mut negotiated = self.negotiate_initialize(&request)?;
        // If no session can be opened, the host gets no instructions now. The reason is reported in the answer to its next request.
        let session = self.session(&context).ok();
        self.first_look.fill(&self.served.0, &self.caller.key, session.as_deref()).await;
        if let Some(session) = session {
            negotiated.instructions = self.instructions_of(session).await;
        }
        Ok(negotiated)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Answer<DiscoverResult> {
        // The instructions are different for each caller. The result of `from_server_info` does not allow a cache that several callers share.
        let mut discovered = DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info());
        // The peer of this request may not be able to reach a client, so a new session ends with this request.
        let session = self.session_cell.get().cloned().map_or_else(|| self.open_session(&context, None), Ok);
        if let Ok(session) = session {
            discovered.instructions = self.instructions_of(session).await;
        }
        Ok(discovered)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A client may send this notification any number of times, and is notified of each change once.
        let Some(first_look) = self.first_look.take() else { return };
        let (cell, ended) = (self.session_cell.clone(), self.ended.clone());
        let telling = subscriptions::tell_session(first_look, cell, self.served.0.options.direct.clone(), context.peer);
        self.served.0.runtime.spawn(async move { ended.run_until_cancelled(telling).await });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Answer<()> {
        subscriptions::listen(&self.served.0, &self.caller, &context).await
    }

    async fn get_task(&self, request: GetTaskParams, context: RequestContext<RoleServer>) -> Answer<GetTaskResult> {
        let (served, caller) = (&self.served.0, self.owner(&context).key);
        // A task can have a large result or question, and a host may ask for it very often.
        let view = served.tasks.get(&caller, &request.task_id)?;
        let (of, told) = ((view.bytes, AnswerOrigin::Kept), view.is_ended());
        let result = served.large_answers.convert(&self.answered_request(&context), of, || Ok(view.result())).await?;
        if told {
            served.tasks.told(&request.task_id);
        }
        Ok(result)
    }

    async fn update_task(&self, request: UpdateTaskParams, context: RequestContext<RoleServer>) -> Answer<()> {
        let held = self.hold_answers(&request.input_responses).map_err(|error| refused(&error))?;
        self.served.0.tasks.answer(&self.owner(&context).key, &request.task_id, request.input_responses, held)
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: RequestContext<RoleServer>) -> Answer<()> {
        self.served.0.tasks.cancel(&self.owner(&context).key, &request.task_id)
    }

    async fn set_level(&self, request: SetLevelRequestParams, context: RequestContext<RoleServer>) -> Answer<()> {
        *self.session(&context)?.level.lock() = Some(request.level);
        Ok(())
    }

    async fn on_custom_request(&self, request: CustomRequest, context: RequestContext<RoleServer>) -> Answer<CustomResult> {
        Err(misfits::refusal(&request, in_rounds(&context)))
    }

    async fn list_tools(&self, _request: Option<PaginatedRequestParams>, context: RequestContext<RoleServer>) -> Answer<ListToolsResult> {
        let session = self.session(&context)?;
        let has_own = self.served.0.options.direct.has_own_tools();
        // Making the definitions can take long, because a definition may describe all servers.
        let defined = move || if has_own { session.tools.definitions() } else { Ok(Vec::new()) };
        let definitions = blocking(defined).await.map_err(|error| refused(&error))?;
        let mut tools: Vec<_> = definitions.into_iter().map(answers::definition).collect();
        tools.extend(self.direct_definitions(&context).await?);
        if has_own && stateless::owner(&context).is_some() {
            stateless::offer(&mut tools);
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Answer<CallToolResponse> {
        match self.served.0.options.direct.own_tool(&request.name) {
            Some(tool) => self.call_own(tool, request, context).await,
            None => self.call_direct(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Answer<ListResourcesResult> {
        Ok(ListResourcesResult::with_all_items(self.with_items(&context, |_, items| Ok(items.resources().to_vec())).await?))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Answer<ListResourceTemplatesResult> {
        Ok(ListResourceTemplatesResult::with_all_items(self.with_items(&context, |_, items| Ok(items.templates())).await?))
    }

    async fn read_resource(&self, request: ReadResourceRequestParams, context: RequestContext<RoleServer>) -> Answer<ReadResourceResponse> {
        let served = request.uri;
        let asked = served.clone();
        let (server, uri) = match self.target(&context, &served).await? {
            Target::ServerResource { server, uri } => (server, uri),
            Target::Types { server } => {
                let (agent, errors) = (self.agent(&context)?, self.served.0.options.errors());
                let types = move || resources_and_prompts::types(&agent, &server, errors);
                let (text, mime) = self.served.0.items.in_turn(&self.caller.key, types).await.map_err(|error| refused(&error))?;
                let contents = json!({ "contents": [{ "uri": served, "mimeType": mime, "text": text }] });
                return Ok(ReadResourceResponse::from(answers::complete::<ReadResourceResult>(contents)?));
            }
        };
        let input = self.input(request.request_state, request.input_responses, &json!(["resources/read", served]));
        let input = input.map_err(|error| refused(&error))?;
        let (of, links) = (server.clone(), self.links());
        let work_of = move |client: Client| async move {
            let agent = &client.session.agent;
            let read = agent.read_resource(&server, &uri, client.call_options(), &client.stop).await.map(with_meta);
            let read = read.map_err(|error| refused(&error))?;
            agent.check_answer((&server, &uri), &read).map_err(|error| refused(&error))?;
            let contents = links.contents(agent, &server, read, (&uri, &served)).await.map_err(|error| refused(&error))?;
            agent.answer_for_model((&server, &uri), contents).await.map_err(|error| refused(&error))
        };
        let answer_of = |step| {
            Ok(match step {
                Step::Done(contents) => ReadResourceResponse::from(complete_of::<ReadResourceResult>(&of, "resources/read", contents)?),
                Step::Ask(questions) => ReadResourceResponse::from(questions),
            })
        };
        self.asking(context, input, work_of, answer_of).await.map_err(|error| answers::about(error, &asked))
    }

    async fn subscribe(&self, request: SubscribeRequestParams, context: RequestContext<RoleServer>) -> Answer<()> {
        let target = self.target(&context, &request.uri).await?;
        subscriptions::subscribe(&*self.session(&context)?, target, &request.uri).await
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, context: RequestContext<RoleServer>) -> Answer<()> {
        let session = self.session(&context)?;
        // A client can always end a subscription that it has begun, even if the resource is not listed any more.
        let subscribed = session.subscribed_as(&request.uri);
        let target = if subscribed.is_empty() { Some(self.target(&context, &request.uri).await?) } else { None };
        subscriptions::unsubscribe(&session, subscribed, target).await
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Answer<ListPromptsResult> {
        let defined = |_: &Agent, items: &ResourcesAndPrompts| Ok(items.prompts().iter().map(prompt_definition).collect());
        Ok(ListPromptsResult::with_all_items(self.with_items(&context, defined).await?))
    }

    async fn get_prompt(&self, request: GetPromptRequestParams, context: RequestContext<RoleServer>) -> Answer<GetPromptResponse> {
        let (server, prompt) = self.prompt(&context, &request.name).await?;
        let arguments: Map<String, Json> = typed(json!(request.arguments.unwrap_or_default()))?;
        let bound = json!(["prompts/get", server, prompt, arguments]);
        let input = self.input(request.request_state, request.input_responses, &bound).map_err(|error| refused(&error))?;
        let (of, links) = (server.clone(), self.links());
        let work_of = move |client: Client| async move {
            let options = client.call_options();
            let agent = &client.session.agent;
            let got = agent.get_prompt(&server, &prompt, arguments, options, &client.stop).await.map(with_meta);
            let got = got.map_err(|error| refused(&error))?;
            agent.check_answer((&server, &prompt), &got).map_err(|error| refused(&error))?;
            let served = links.served(agent, &server, got).await.map_err(|error| refused(&error))?;
            agent.answer_for_model((&server, &prompt), served).await.map_err(|error| refused(&error))
        };
        let answer_of = |step| {
            Ok(match step {
                Step::Done(prompt) => GetPromptResponse::from(complete_of::<GetPromptResult>(&of, "prompts/get", prompt)?),
                Step::Ask(questions) => GetPromptResponse::from(questions),
            })
        };
        self.asking(context, input, work_of, answer_of).await
    }

    async fn complete(&self, request: CompleteRequestParams, context: RequestContext<RoleServer>) -> Answer<CompleteResult> {
        let reference = json!(request.r#ref);
        let (server, of) = match request.r#ref {
            Reference::Prompt(_) => {
                let (server, prompt) = self.prompt(&context, reference["name"].as_str().unwrap_or_default()).await?;
                (server, Completed::Prompt(prompt))
            }
            Reference::Resource(_) => {
                let uri = reference["uri"].as_str().unwrap_or_default().to_owned();
                let found = self.with_items(&context, move |_, items| Ok(items.template_server(&uri))).await?;
                let problem = "there is no such resource template, or several servers have it";
                let (server, own) = found.ok_or_else(|| ErrorData::invalid_params(problem, Some(data("ERR_UNKNOWN_RESOURCE"))))?;
                (server, Completed::Template(own))
            }
            _ => {
                return Err(ErrorData::invalid_params("ref: must be a prompt or a resource template", Some(data("ERR_INVALID_ARGUMENTS"))));
            }
        };
        let client = self.client(&context, self.request_channel(&context))?;
        let argument = json!(request.argument);
        let text = |field: &str| argument[field].as_str().unwrap_or_default().to_owned();
        let known: Map<String, Json> = match request.context {
            Some(context) => json!(context)["arguments"].as_object().cloned().unwrap_or_default(),
            None => Map::new(),
        };
        let options = client.call_options();
        let agent = &client.session.agent;
        let completing = agent.complete(&server, of, (text("name"), text("value")), known, options, &client.stop);
        let completed = until_cancelled(&context, &client.stop, Box::pin(completing)).await;
        let (of, completed) = ((&*server, COMPLETE), completed.map_err(|error| refused(&error))?);
        agent.check_answer(of, &completed).map_err(|error| refused(&error))?;
        let completed = agent.answer_for_model(of, completed).await.map_err(|error| refused(&error))?;
        complete_of(&server, COMPLETE, json!({ "completion": completed }))
    }
}
