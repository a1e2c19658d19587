//! Answers a guest's calls to `host:mcp-…` and `host:mcp`.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::arguments::tool_arguments;
use super::discovery::ToolFinder;
use super::large_redaction::{CallerRedaction, LargeTurns};
use super::modules::{MCP_FUNCTIONS, MCP_MODULE, ServerModules, catalog_entries, server_of};
use super::parallel::{Concurrency, Lanes, turn_of_call};
use super::resources_and_prompts::ResourceOrPromptCaller;
use super::schemas::{ArgumentChecks, OutputChecks};
use super::shape::{ToolErrors, shape, tool_result};
use super::warnings::Warnings;
use crate::catalog::Manifest;
use crate::error::{Error, ErrorText, Result};
use crate::limits::Limits;
use crate::redact::{Redactor, WrittenPaths};
use crate::results::SavedValues;
use crate::sandbox::{Arguments, HostAnswer, HostCall, HostReply, RunControl, Value};
use crate::text::json::json_bytes;

/// A tool call that will be sent.
#[derive(Debug)]
pub struct ToolCall {
    pub server: Arc<str>,
    /// Raw name of the tool.
    pub tool: Arc<str>,
    pub arguments: Map<String, Json>,
    /// Control of the run to which the call belongs. The run's clock stops while a person is asked.
    pub control: Option<RunControl>,
}

/// Sender of tool calls. An implementation handles approval, connections and time-outs.
pub trait ToolCaller: Send + Sync {
    /// Returns the server's result as JSON, without conversion. Dropping the future cancels the call.
    fn call(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>>;

    /// Records that code asked for a tool or a server that its run does not have. `tool` is `None` if the code asked for the whole server.
    /// `code` is the code of the error that the code gets. Must not block.
    fn note_missing(&self, server: &str, tool: Option<&str>, code: &'static str);
}

/// Checks of arguments and results against the approved schemas.
#[derive(Clone, Default)]
pub struct Checks {
    pub arguments: ArgumentChecks,
    pub results: OutputChecks,
}

/// The servers that one run can use, each with the manifest that was approved when the run started.
pub struct ServerCalls {
    pub(super) manifests: BTreeMap<String, Arc<Manifest>>,
    caller: Arc<dyn ToolCaller>,
    pub(super) resources_and_prompts: Arc<dyn ResourceOrPromptCaller>,
    pub(super) limits: Arc<Limits>,
    errors: ToolErrors,
    redactor: Arc<Redactor>,
    redaction: CallerRedaction,
    checks: Checks,
    pub(super) tool_finder: ToolFinder,
    pub(super) saved: Arc<Mutex<SavedValues>>,
    /// Names of the servers that only accept one call at a time.
    one_at_a_time: BTreeSet<String>,
    pub(super) lanes: Lanes,
    warnings: Mutex<Warnings>,
    /// The paths in the arguments of failed calls. `None` before the first call fails.
    written: Mutex<Option<WrittenPaths>>,
}

impl ServerCalls {
    #[must_use]
    pub fn new(
        manifests: BTreeMap<String, Arc<Manifest>>,
        caller: Arc<impl ToolCaller + ResourceOrPromptCaller + 'static>,
        limits: Arc<Limits>,
        errors: ToolErrors,
        redactor: Arc<Redactor>,
        checks: Checks,
        tool_finder: ToolFinder,
    ) -> Self {
        let resources_and_prompts = Arc::clone(&caller) as Arc<dyn ResourceOrPromptCaller>;
        // Until `with_saved` sets a store, there are no saved values.
        let saved = Arc::new(Mutex::new(SavedValues::new(0, Duration::from_millis(limits.max_saved_age_ms))));
        let redaction = CallerRedaction::new(Arc::clone(&redactor), Arc::new(LargeTurns::default()), "");
        Self {
            manifests,
            caller,
            resources_and_prompts,
            limits,
            errors,
            redactor,
            redaction,
            checks,
            tool_finder,
            saved,
            one_at_a_time: BTreeSet::new(),
            lanes: Lanes::default(),
            warnings: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Sets the store from which `saved` reads values.
    #[must_use]
    pub fn with_saved(self, saved: Arc<Mutex<SavedValues>>) -> Self {
        Self { saved, ..self }
    }

    /// Sets the names of the servers that only accept one call at a time.
    #[must_use]
    pub fn with_one_at_a_time(self, servers: BTreeSet<String>) -> Self {
        Self { one_at_a_time: servers, ..self }
    }

    /// Sets the turns in which large failures are redacted. By default, the run does not share its turns.
    #[must_use]
    pub(crate) fn with_redaction(self, redaction: CallerRedaction) -> Self {
        Self { redaction, ..self }
    }

    /// Returns the modules that the run can import.
    #[must_use]
    pub fn modules(&self) -> ServerModules<'_> {
        ServerModules(&self.manifests)
    }

    /// Returns the warnings that are reported together with the run's value, and removes them.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.lock().take()
    }

    /// Returns whether a module belongs to a server, or is `mcp`.
    #[must_use]
    pub fn owns(&self, module: &str) -> bool {
        module == MCP_MODULE || server_of(module).is_some()
    }

    /// Starts a call. The guest is not trusted, so the module and the tool are looked up again.
    #[must_use]
    pub fn start(self: &Arc<Self>, call: HostCall, control: &RunControl) -> HostAnswer {
        let HostCall { module, function, arguments } = call;
        if module == MCP_MODULE {
            return match function.as_str() {
                "call" => self.call_raw(arguments, control),
                "read" | "prompt" => self.start_resource_or_prompt_request(&function, arguments, control),
                other => HostAnswer::Ready(self.answer(other, arguments)),
            };
        }
        let server = server_of(&module).unwrap_or(&module).to_owned();
        let sent = match self.call_tool(&server, &function, arguments, control, Ok) {
            Ok(sent) => sent,
            Err(error) => return HostAnswer::Ready(self.errors.reply(&self.clean(error))),
        };
        let this = Arc::clone(self);
        HostAnswer::Later(Box::pin(async move {
            match sent.await {
                Ok(result) => this.shaped(&format!("{server}.{function}"), result),
                Err(error) => this.errors.reply(&this.clean(error)),
            }
        }))
    }

    /// Calls those functions of `host:mcp` that need no request to a server.
    fn answer(&self, function: &str, arguments: Arguments) -> HostReply {
        match function {
            "tools" => self.tools(arguments),
            "search" => self.search(arguments),
            "describe" => self.describe(arguments),
            "saved" => self.saved(arguments),
            "resources" | "prompts" => self.list_resources_or_prompts(function, arguments),
            other => self.throw(Error::unknown_tool(MCP_MODULE, other, MCP_FUNCTIONS.map(|name| (name, name)))),
        }
    }

    fn shaped(&self, what: &str, result: Json) -> HostReply {
        let shaped = shape(what, result, self.limits.max_response_bytes, self.errors);
        self.warn(shaped.warning);
        shaped.reply
    }

    /// Validates a call, and queues the call behind earlier calls to the same server. The call is sent when it may run. `received` converts
    /// the result before it is checked and redacted, and may refuse it.
    fn call_tool<R>(
        self: &Arc<Self>,
        server: &str,
        tool: &str,
        arguments: Arguments,
        control: &RunControl,
        received: R,
    ) -> Result<impl Future<Output = Result<Json>> + Send + use<R>>
    where
        R: FnOnce(Json) -> Result<Json> + Send + 'static,
    {
        let manifest = Arc::clone(self.manifest_for(server, Some(tool))?);
        let Some(approved) = manifest.tool(tool) else {
            let unknown = manifest.unknown_tool(server, tool);
            self.caller.note_missing(server, Some(tool), unknown.code());
            return Err(unknown);
        };
        let arguments = tool_arguments(&format!("{server}.{tool}"), arguments, self.limits.max_argument_bytes)?;
        // The check may be long, but this is the run's own thread.
        let checked = self.checks.arguments.check(server, &manifest, tool, arguments);
        let (arguments, warning) = checked.map_err(|error| self.clean(error))?;
        self.warn(warning);
        let turn = self.lanes.enter(server, turn_of_call(self.concurrency(server), approved));
        let (server, tool): (Arc<str>, Arc<str>) = (server.into(), tool.into());
        let written = WrittenPaths::of(&arguments);
        let sent =
            self.caller.call(ToolCall { server: Arc::clone(&server), tool: Arc::clone(&tool), arguments, control: Some(control.clone()) });
        let waiting = control.wait_for_turn();
        let this = Arc::clone(self);
        Ok(async move {
            let held = turn.await;
            drop(waiting);
            let result = received(sent.await?)?;
            // The guard is dropped before the result is checked, so that the next call does not wait for the check.
            drop(held);
            let (result, warning) = this.checks.results.check_in_turn(&server, &manifest, &tool, result).await?;
            this.warn(warning);
            this.redacted(result, written).await
        })
    }

    pub(super) fn concurrency(&self, server: &str) -> Concurrency {
        if self.one_at_a_time.contains(server) { Concurrency::OneAtATime } else { Concurrency::Parallel }
    }

    pub(super) fn warn(&self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.warnings.lock().add(warning);
        }
    }

    /// Implements `call(server, tool, arguments?)`. `call` returns a `ToolResult`, or throws an error with a code.
    fn call_raw(self: &Arc<Self>, arguments: Arguments, control: &RunControl) -> HostAnswer {
        let sent = raw_call(arguments, self.limits.max_argument_bytes).and_then(|(server, tool, rest)| {
            let what = format!("the result of {server}.{tool}");
            let (this, received) = (Arc::clone(self), what.clone());
            // A result that is too large is refused before it waits for its redaction.
            let received = move |result| this.capped(received, tool_result(result));
            Ok((what, self.call_tool(&server, &tool, rest, control, received)?))
        });
        let (what, sent) = match sent {
            Ok(sent) => sent,
            Err(error) => return HostAnswer::Ready(self.throw(error)),
        };
        let this = Arc::clone(self);
        HostAnswer::Later(Box::pin(async move {
            let result = sent.await.and_then(|result| this.capped(what, result));
            result.map_or_else(|error| this.throw(error), |result| HostReply::Value(Value::from(result)))
        }))
    }

    /// Implements `tools(server?)`. `tools` returns the tools that can be called.
    fn tools(&self, arguments: Arguments) -> HostReply {
        let max_chars = self.limits.max_description_chars;
        let listed = self.listed("tools", arguments, |server, manifest| catalog_entries(server, manifest, max_chars));
        listed.map_or_else(|error| self.throw(error), HostReply::Value)
    }

    /// Redacts the result of a failed tool, because the text of a failure may contain the host's data. Paths that are part of the call's
    /// own arguments stay, because the caller knows them already.
    async fn redacted(&self, result: Json, written: WrittenPaths) -> Result<Json> {
        if result.get("isError").and_then(Json::as_bool) != Some(true) {
            return Ok(result);
        }
        self.written.lock().get_or_insert_default().extend(&written);
        self.redaction.redact_for(result, written).await
    }

    /// Redacts the error of a run, because it may repeat the error of a tool.
    #[must_use]
    pub fn clean_outcome(&self, error: Error) -> Error {
        match self.written.lock().take() {
            Some(written) => error.redacted(&self.redactor.for_reader(written.texts())),
            None => self.clean(error),
        }
    }

    /// Redacts an error, because it may quote text of a guest or of a schema.
    pub(crate) fn clean(&self, error: Error) -> Error {
        error.redacted(&self.redactor)
    }

    /// Returns the reply with which the guest throws an error.
    pub(super) fn throw(&self, error: Error) -> HostReply {
        ToolErrors::Throw.reply(&self.clean(error))
    }

    /// Returns the reply with which the guest throws an error about paths that its code has written. The paths stay whole.
    pub(super) fn throw_to_writer(&self, error: Error, written: &WrittenPaths) -> HostReply {
        self.written.lock().get_or_insert_default().extend(written);
        ToolErrors::Throw.reply(&error.redacted(&self.redactor.for_reader(written.texts())))
    }

    pub(super) fn capped(&self, what: String, json: Json) -> Result<Json> {
        let (size, limit) = (json_bytes(&json), self.limits.max_response_bytes);
        if size > limit {
            return Err(Error::ResponseTooLarge {
                what: what.into(),
                size: size.to_string().into(),
                limit,
                limit_name: "limits.maxResponseBytes",
            });
        }
        Ok(json)
    }

    pub(super) fn manifest(&self, server: &str) -> Result<&Arc<Manifest>> {
        self.manifest_for(server, None)
    }

    fn manifest_for(&self, server: &str, tool: Option<&str>) -> Result<&Arc<Manifest>> {
        self.manifests.get(server).ok_or_else(|| {
            let unknown = self.unknown_server(server);
            self.caller.note_missing(server, tool, unknown.code());
            unknown
        })
    }

    fn unknown_server(&self, server: &str) -> Error {
        Error::UnknownServer {
            server: server.to_owned(),
            place: "in this run, which can use the servers that were approved and enabled when it started",
            known: self.manifests.keys().map(ErrorText::from).collect(),
        }
    }

    /// Returns whether a run can import a module: the module of one of its servers, or `mcp`. If the server is missing, records this.
    #[must_use]
    pub fn has_module(&self, module: &str) -> bool {
        match server_of(module) {
            Some(server) if self.manifests.contains_key(server) => true,
            Some(server) => {
                self.caller.note_missing(server, None, self.unknown_server(server).code());
                false
            }
            None => module == MCP_MODULE,
        }
    }
}

fn raw_call(arguments: Arguments, limit: usize) -> Result<(String, String, Arguments)> {
    let mut given = match arguments {
        Arguments::Given(given) => given.into_iter(),
        Arguments::Oversize(size) => return Err(Error::ArgumentsTooLarge { what: "call".into(), size, limit }),
        Arguments::Invalid(problem) => {
            return Err(Error::InvalidArguments {
                what: "call".into(),
                problem: format!("expected values that JSON can represent: {problem}").into(),
            });
        }
    };
    match (given.next(), given.next()) {
        (Some(Value::Text(server)), Some(Value::Text(tool))) => Ok((server, tool, Arguments::Given(given.collect()))),
        _ => Err(Error::InvalidArguments { what: "call".into(), problem: "expected call(server, tool, { … })".into() }),
    }
}
