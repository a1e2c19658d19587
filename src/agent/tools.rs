//! Executes a model's tool calls: checks the arguments, does the work with the gateway, and limits the size of the answer.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::advice::{advise, failure, wrong_code};
use super::arguments::{ToolArguments, read};
use super::definitions::{Tool, ToolDefinition};
use super::options::{AgentOptions, ExecuteOptions, METHOD};
use super::proposed::Proposed;
use super::views::View;
use crate::blocking::blocking;
use crate::bridge::ToolErrors;
use crate::error::{Error, ErrorText, Result};
use crate::gateway::{Agent, ApprovalRead, CONTENT, CodeReport, RunOptions, Sandbox};
use crate::results::{MIN_RESULT_TOKENS, fit_json};
use crate::sandbox::{CodeOwner, Stop, Value};

/// The maximum number of simultaneous calls of tools that do not run code.
pub(crate) const MAX_CALLS: usize = 16;
/// The number of tokens of an answer that are reserved for a hint.
const MARGIN_TOKENS: usize = 40;

/// The tools of one model, for one agent and one sandbox. Runs wait in a queue whose maximum length is an option.
///
/// ```no_run
/// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
/// use hyperlight_mcp::agent::{AgentOptions, AgentTools};
/// use hyperlight_mcp::sandbox::Stop;
///
/// let tools = AgentTools::new(gateway, None, AgentOptions::default())?;
/// let arguments = serde_json::json!({ "query": "weather forecast" });
/// println!("{}", tools.execute("search_mcp_tools", &arguments, &Stop::new()).await?);
/// # Ok(()) }
/// ```
pub struct AgentTools {
    pub(super) agent: Agent,
    sandbox: OnceCell<Arc<Sandbox>>,
    /// The owner of code that is checked before the sandbox exists.
    code_owner: CodeOwner,
    options: AgentOptions,
    tools: Vec<Tool>,
    max_result_tokens: usize,
    max_pending_runs: usize,
    runs: Semaphore,
    calls: Semaphore,
    pub(super) proposed: Mutex<Proposed>,
}

impl AgentTools {
    /// Creates the tools. Code runs in `sandbox`. If `sandbox` is `None`, a sandbox is created at the first run.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION`.
    pub fn new(agent: impl Into<Agent>, sandbox: Option<Arc<Sandbox>>, options: AgentOptions) -> Result<Self> {
        let agent = agent.into();
        let max_pending_runs = options.pending_runs()?;
        if sandbox.as_ref().is_some_and(|sandbox| !agent.owns(sandbox)) {
            let problem = "sandbox: it belongs to another gateway or agent; pass a sandbox of this one".to_owned();
            return Err(Error::InvalidOption { method: METHOD, problem: problem.into() });
        }
        Ok(Self {
            code_owner: agent.new_code_owner(),
            agent,
            sandbox: OnceCell::new_with(sandbox),
            tools: options.tools()?,
            max_result_tokens: options.result_tokens()?,
            max_pending_runs,
            options,
            runs: Semaphore::new(max_pending_runs),
            calls: Semaphore::new(MAX_CALLS),
            proposed: Mutex::default(),
        })
    }

    /// Returns the definitions of the tools for a model. Uses the cached approvals and reads no file.
    ///
    /// # Errors
    /// With `describe_servers`: `ERR_INVALID_OPTION` for a budget that is too small, `ERR_APPROVAL_STORE`, `ERR_PLUGIN_OFF`.
    pub fn definitions(&self) -> Result<Vec<ToolDefinition>> {
        let servers = match self.options.describe_servers {
            Some(budget) => Some(match self.sandbox.get() {
                Some(sandbox) => sandbox.system_message_by(Some(budget), Some(self.errors()), ApprovalRead::Cached)?,
                None => self.agent.system_message_by(Some(budget), self.errors(), ApprovalRead::Cached)?,
            }),
            None => None,
        };
        let hosts = self.agent.hosts_of_runs();
        let definition = |tool: &Tool| tool.definition_with(self.max_result_tokens, self.errors(), servers.as_deref(), &hosts);
        Ok(self.tools.iter().map(definition).collect())
    }

    /// Returns the definition of a tool, without a text about the servers.
    pub(super) fn definition(&self, tool: Tool) -> ToolDefinition {
        tool.definition_with(self.max_result_tokens, self.errors(), None, &self.agent.hosts_of_runs())
    }

    /// Returns the tools that the options select.
    pub(super) fn chosen(&self) -> &[Tool] {
        &self.tools
    }

    /// Executes a tool call. A failure is returned as an answer: `{ "error": { "code", "message", "hint"?, … } }`. If the value of a run
    /// has images or sounds, the answer contains them in the field [`CONTENT`].
    ///
    /// # Errors
    /// Only `ERR_ABORTED`.
    pub async fn execute(&self, name: &str, arguments: &Json, stop: &Stop) -> Result<Json> {
        self.execute_with(name, arguments, ExecuteOptions { stop: stop.clone(), ..ExecuteOptions::default() }).await
    }

    /// Executes a tool call like [`AgentTools::execute`], with callbacks only for this call. The tools of one agent may serve several
    /// conversations. With these callbacks, a question of one conversation never reaches the person in another conversation.
    ///
    /// # Errors
    /// Only `ERR_ABORTED`.
    pub async fn execute_with(&self, name: &str, arguments: &Json, options: ExecuteOptions) -> Result<Json> {
        let mut answer = match self.answer(name, arguments, options).await {
            Ok(answer) => answer,
            Err(error @ Error::Aborted { .. }) => return Err(error),
            Err(error) => self.agent.shown_to_model(&failure(&error, self.options.sign_in.as_deref())),
        };
        // The run has already counted the tokens of images and sounds, so they are removed before the JSON is measured here.
        let content = answer.as_object_mut().filter(|_| name == Tool::RunJavascript.name()).and_then(|fields| fields.shift_remove(CONTENT));
        let mut answer = fit_json(answer, self.max_result_tokens);
        if let Some(content) = content {
            answer[CONTENT] = content;
        }
        Ok(answer)
    }

    async fn answer(&self, name: &str, arguments: &Json, options: ExecuteOptions) -> Result<Json> {
        let tool = Tool::named(name).filter(|tool| self.tools.contains(tool)).ok_or_else(|| self.unknown(name))?;
        self.agent.check_plugin_on()?;
        let given = read(tool.name(), tool.fields(), arguments)?;
        if tool == Tool::RunJavascript {
            return self.run(given, options).await;
        }
        let stop = options.stop;
        let _place = place(&self.calls, "calls of these tools", MAX_CALLS)?;
        let answer = tokio::select! {
            biased;
            () = stop.stopped() => Err(stop.error("tool call", 0)),
            answer = self.agent.unless_closed(self.query_or_manage(tool, given)) => answer,
        }?;
        // Declarations are sanitised when they are created. They may also be longer than the limit for other texts.
        Ok(if tool == Tool::Describe { answer } else { self.agent.shown_to_model(&answer) })
    }

    async fn query_or_manage(&self, tool: Tool, given: ToolArguments) -> Result<Json> {
        match tool {
            Tool::Search => self.look(tool, move |view| view.search(&given)).await,
            Tool::Describe => self.look(tool, move |view| view.describe(&given)).await,
            Tool::ServerInfo => self.look(tool, move |view| view.server_info(given.text("server").unwrap_or_default())).await,
            Tool::Manage => self.manage(&given).await,
            Tool::AddServer => self.add_server(given).await,
            Tool::UpdateServer => self.update_server(given).await,
            Tool::RemoveServer => self.remove_server(&given).await,
            Tool::ListServers | Tool::RunJavascript => self.look(tool, View::list).await,
        }
    }

    async fn run(&self, mut given: ToolArguments, call: ExecuteOptions) -> Result<Json> {
        let ExecuteOptions { stop, callbacks, run_setup } = call;
        let _place = place(&self.runs, "runs in progress or waiting (maxPendingRuns)", self.max_pending_runs)?;
        let code = given.text("code").unwrap_or_default().to_owned();
        let looked_at = self.check(code.clone(), given.whole("timeoutMs"), &stop).await?;
        if !looked_at.ok {
            return Ok(wrong_code(&looked_at.problems));
        }
        let options = RunOptions {
            input: given.take("input").map(|input| Value::from(input).to_wire()),
            timeout_ms: given.whole("timeoutMs"),
            tool_errors: Some(self.errors()),
            stop,
            callbacks,
            ..RunOptions::default()
        };
        let options = match run_setup.as_ref().or(self.options.run_setup.as_ref()) {
            Some(setup) => setup(options),
            None => options,
        };
        let sandbox = self.sandbox().await?;
        let budget = self.max_result_tokens.saturating_sub(MARGIN_TOKENS).max(MIN_RESULT_TOKENS);
        let mut run = sandbox.run_for_model(code, options, budget).await;
        if let Some(error @ Error::Aborted { .. }) = run.error {
            return Err(error);
        }
        advise(&mut run.report, &looked_at.hints, self.options.sign_in.as_deref());
        Ok(run.report)
    }

    /// Checks code on a blocking thread, because checking long code takes time. Returns an error if the caller has stopped the run or the
    /// run's time is over, because an unfinished check says nothing about the code.
    async fn check(&self, code: String, timeout_ms: Option<u64>, stop: &Stop) -> Result<CodeReport> {
        let (agent, sandbox, stop) = (self.agent.clone(), self.sandbox.get().cloned(), stop.clone());
        let owner = self.code_owner.parse.clone();
        let deadline = timeout_ms.map(|timeout_ms| Instant::now() + Duration::from_millis(timeout_ms));
        blocking(move || {
            let wanted = || stop.reason().is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline);
            let report = match sandbox {
                Some(sandbox) => sandbox.check_while(&code, &wanted),
                None => agent.check_while(&owner, &code, &wanted),
            }?;
            let is_ended = stop.reason().is_some() || (!report.looked && !wanted());
            if is_ended { Err(stop.error("run", timeout_ms.unwrap_or_default())) } else { Ok(report) }
        })
        .await
    }

    /// Returns the sandbox, and creates it if it does not exist yet. If the creation fails, the next call tries again.
    async fn sandbox(&self) -> Result<Arc<Sandbox>> {
        let (agent, errors) = (self.agent.clone(), self.errors());
        let make = || blocking(move || agent.sandbox(errors, None));
        self.sandbox.get_or_try_init(make).await.cloned()
    }

    /// Answers a question about the servers on a blocking thread, within the time of one tool call. An answer can take a long time, because
    /// the model can ask for many names, and the servers may have very many tools. On a thread of the runtime, the work would delay other
    /// calls and deadlines.
    pub(super) async fn look(&self, tool: Tool, look: impl FnOnce(&View) -> Result<Json> + Send + 'static) -> Result<Json> {
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        let view = View { agent: self.agent.clone(), sandbox: self.sandbox.get().cloned(), errors: self.errors(), ended };
        let limit_ms = self.agent.limits().call_timeout_ms;
        let answer = tokio::time::timeout(Duration::from_millis(limit_ms), blocking(move || look(&view))).await;
        answer.unwrap_or_else(|_| {
            let (server, tool) = ("these tools".to_owned(), ErrorText::own(tool.name()));
            Err(Error::CallTimeout { server, tool, limit_ms, limit_name: "limits.callTimeoutMs" })
        })
    }

    fn errors(&self) -> ToolErrors {
        self.options.tool_errors.unwrap_or(ToolErrors::FOR_MODELS)
    }

    fn unknown(&self, name: &str) -> Error {
        Error::unknown_tool("these tools", name, self.tools.iter().map(|tool| (tool.name(), tool.name())))
    }
}

/// Takes a permit. If no permit is free, returns `ERR_BUSY` immediately.
fn place<'a>(places: &'a Semaphore, what: &'static str, limit: usize) -> Result<SemaphorePermit<'a>> {
    places.try_acquire().map_err(|_| Error::Busy { what, limit })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;

    use super::*;
    use crate::gateway::{Gateway, GatewayOptions};

    /// Opens a gateway with one server, `mine`, whose command nobody has approved.
    fn opened(folder: &std::path::Path) -> Gateway {
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({ "mcpServers": { "mine": { "command": "mine" } } }));
        options.state_dir = Some(folder.join("state"));
        options.workspace_folder = Some(folder.to_owned());
        Gateway::open(options).unwrap()
    }

    /// Calls a tool while the only thread for blocking work is occupied. If a thread of the runtime computed the answer, the answer would
    /// come at once.
    async fn asked(tools: &AgentTools, name: &str, arguments: Json) {
        let (free, taken) = std::sync::mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || taken.recv()));
        let stop = Stop::new();
        let mut call = pin!(tools.execute(name, &arguments, &stop));
        let first = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(first, Poll::Pending), "{name} {arguments} {first:?}");
        drop(free);
        let answer = call.await.unwrap();
        assert!(answer.get("error").is_none(), "{name}: {answer}");
    }

    #[test]
    fn questions_about_servers_are_not_answered_on_a_thread_of_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let tools = AgentTools::new(opened(folder.path()), None, AgentOptions::default()).unwrap();
            for (name, arguments) in [
                ("search_mcp_tools", json!({ "query": "weather" })),
                ("describe_mcp_tools", json!({ "names": ["mcp"] })),
                ("list_mcp_servers", json!({})),
                ("mcp_server_info", json!({ "server": "mine" })),
                ("manage_mcp", json!({ "action": "list" })),
                ("manage_mcp", json!({ "action": "info", "server": "mine" })),
            ] {
                asked(&tools, name, arguments).await;
            }
        });
    }
}
