//! The sandbox that an agent's program uses. A sandbox has its own host modules and a queue of runs. Runs share no state except saved
//! values.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::agent::{Agent, Identity};
use super::agent_modules::{AgentModule, AgentModules, RunHost, check};
use super::approval_cache::ApprovalRead;
use super::availability::{AttachedServers, Viewer};
use super::callbacks::{CallScope, CallbackChain, Callbacks};
use super::core::Core;
use super::events::EventListener;
use super::fetch::RunFetch;
use super::granted::Granted;
use super::plugin_switch::ActivePeriod;
use super::request::RunRequests;
use super::results::check_budget;
use super::run_end::RunEnd;
use super::tasks::{Attachment, TakenTask, Task};
use crate::bridge::{ServerCalls, ToolErrors, ToolFinder};
use crate::catalog::Catalog;
use crate::config::{Parallel, ServerDefinition};
use crate::error::{Error, Result};
use crate::queue::queue_now;
use crate::redact::Redactor;
use crate::results::{Omission, SavedValues};
use crate::sandbox::{
    CodeOwner, GuestFeatures, LOG_CUT_MARK, LogEntry, LogListener, RunOutcome, RunRequest, RunStats, Stop, StopReason, Wire,
};
use crate::telemetry::{ReceivedRequest, TraceContext};

/// Options of one run.
#[derive(Default)]
pub struct RunOptions {
    /// The input for the handler. Default: `null`.
    pub input: Option<Wire>,
    /// The time limit. The default and the maximum are `limits.runTimeoutMs`.
    pub timeout_ms: Option<u64>,
    /// The way in which code sees failed calls. Default: the setting of the sandbox.
    pub tool_errors: Option<ToolErrors>,
    /// The maximum size of the run's value in tokens, at least 100. A larger value is shortened, and the whole value is saved. Default: the
    /// setting of the sandbox.
    pub max_result_tokens: Option<usize>,
    /// Ends the run from outside when it is triggered.
    pub stop: Stop,
    /// The listener for log entries. The listener gets each entry as soon as the guest has written it.
    pub on_log: Option<LogListener>,
    /// The listener for events of the run's calls, which is used instead of the agent's listener.
    pub on_event: Option<EventListener>,
    /// Callbacks that are tried before the callbacks of the sandbox and of the agent.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The number by which questions and events refer to the run.
    pub run_id: Option<u64>,
    /// The trace context of the run.
    pub trace: Option<TraceContext>,
    /// The host's request that runs the code. The span of the run refers to this request.
    pub request: Option<ReceivedRequest>,
    /// The permission of the code to fetch, with the allowed hosts. Default: the setting of the sandbox's agent in the config.
    pub fetch: RunFetch,
    /// The task of the run, in addition to the sandbox's task. The servers that the task defines exist until the sandbox is closed or
    /// starts another run with a task.
    pub task: Option<Task>,
}

/// The outcome of a run, with its warnings.
#[derive(Debug)]
pub struct RunReport {
    pub outcome: RunOutcome,
    pub warnings: Vec<String>,
    /// The parts of the value that were omitted to fit `max_result_tokens`.
    pub omitted: Vec<Omission>,
    /// The handle with which later runs of the sandbox can read the whole value, if the value was shortened and saved.
    pub saved_as: Option<String>,
}

/// Options of a sandbox.
#[derive(Default)]
pub struct SandboxOptions {
    pub tool_errors: ToolErrors,
    /// The maximum size of values in tokens, for runs that set none. Default: the setting of the gateway.
    pub max_result_tokens: Option<usize>,
    /// Callbacks that are tried before the agent's.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The task of all runs of the sandbox.
    pub task: Option<Task>,
}

/// The tasks of a sandbox. When a task ends, the servers that it defines are removed.
#[derive(Default)]
struct SandboxTasks {
    of_sandbox: Option<Arc<TakenTask>>,
    /// The task of the last run that had one.
    of_run: Option<Arc<TakenTask>>,
}

/// Runs agent code, each run in a separate VM.
pub struct Sandbox {
    pub(super) core: Arc<Core>,
    /// The agent to which the sandbox belongs.
    pub(super) identity: Arc<Identity>,
    pub(super) tool_errors: ToolErrors,
    pub(super) max_result_tokens: Option<usize>,
    /// The saved whole values of results that were shortened in earlier runs.
    pub(super) saved: Arc<Mutex<SavedValues>>,
    /// The owner of this sandbox's code. The code parser and the processors are shared fairly between owners.
    pub(super) code_owner: CodeOwner,
    callbacks: CallbackChain,
    modules: Mutex<AgentModules>,
    tasks: Mutex<SandboxTasks>,
    /// Locked by the current run. The lock is fair, so runs start in the order of the calls.
    turn: Arc<tokio::sync::Mutex<()>>,
    closed: CancellationToken,
}

impl Sandbox {
    pub(super) fn new(agent: &Agent, options: SandboxOptions) -> Result<Self> {
        let SandboxOptions { tool_errors, max_result_tokens, callbacks, task } = options;
        let Agent { core, identity } = agent.clone();
        let of_sandbox = task.map(|task| core.take_up(&identity, "Gateway.sandbox", &task)).transpose()?;
        let tasks = Mutex::new(SandboxTasks { of_sandbox, of_run: None });
        let closed = identity.closed.child_token();
        let callbacks = identity.callbacks.within(callbacks);
        let max_result_tokens = max_result_tokens.or(core.runs.max_result_tokens);
        let saved = SavedValues::new(core.limits.max_saved_bytes, Duration::from_millis(core.limits.max_saved_age_ms));
        let saved = Arc::new(Mutex::new(saved));
        identity.keep_saved(&saved);
        let (code_owner, modules, turn) = (identity.new_code_owner(), Mutex::default(), Arc::default());
        Ok(Self { core, identity, tool_errors, max_result_tokens, saved, code_owner, callbacks, modules, tasks, turn, closed })
    }

    /// Adds one of the agent's own modules as `host:<name>`, for runs that start later.
    ///
    /// # Errors
    /// `ERR_NAME_TAKEN`; `ERR_INVALID_OPTION` for names that cannot be imported.
    pub fn host_module(&self, name: &str, module: Arc<dyn AgentModule>) -> Result<()> {
        let mut modules = self.modules();
        check(name, module.as_ref(), &modules)?;
        modules.insert(name.to_owned(), module);
        Ok(())
    }

    /// Runs code. The run gets its place in the queue immediately, and a separate thread when it starts. A value above `max_result_tokens`
    /// is shortened, and the whole value is saved for later runs.
    pub fn run(self: &Arc<Self>, code: String, options: RunOptions) -> impl Future<Output = RunReport> + Send + use<> {
        let budget = options.max_result_tokens;
        let checked = check_budget("Sandbox.run", budget);
        let run = self.queued(code, options);
        let this = Arc::clone(self);
        async move {
            match checked {
                Ok(()) => this.within_budget(run.await, budget).await,
                Err(error) => failed(error),
            }
        }
    }

    /// Runs code without shortening its value.
    pub(super) fn queued(self: &Arc<Self>, code: String, options: RunOptions) -> impl Future<Output = RunReport> + Send + use<> {
        let this = Arc::clone(self);
        // The place in the queue is reserved here and not at the first poll, so that runs start in the order of the calls.
        let turn = queue_now(Arc::clone(&self.turn).lock_owned());
        // The run belongs to the present period in which the plugin is on. If the plugin is switched off and on again, the run does not
        // start.
        let period = self.core.check_plugin_on();
        let work = self.identity.work.token();
        async move {
            let _work = work;
            let Ok(period) = period else { return failed(Error::PluginOff) };
            let _running = period.runs.token();
            let stop = options.stop.clone();
            tokio::select! {
                biased;
                () = this.closed.cancelled() => failed(Error::Closed { what: "sandbox" }),
                () = period.ended.cancelled() => failed(Error::PluginOff),
                () = stop.stopped() => failed(stop.error("run", 0)),
                guard = turn => {
                    let report = this.run_now(code, options, &stop, &period).await;
                    drop(guard);
                    report
                }
            }
        }
    }

    async fn run_now(&self, code: String, options: RunOptions, stop: &Stop, period: &ActivePeriod) -> RunReport {
        let traced = self.core.trace_run(self.identity.audit_name().as_deref(), options.run_id, options.request, options.trace);
        let granted = match self.core.granted(&self.identity, ApprovalRead::Fresh) {
            Ok(granted) => granted,
            Err(error) => return failed(self.core.redacted(error)),
        };
        let scope = CallScope::new(&self.identity, granted, &self.callbacks, options.callbacks, options.run_id, options.on_event);
        let scope = Arc::new(scope.with_max_questions(self.core.limits.max_questions).with_trace(traced.context.clone()));
        let end = RunEnd { closed: self.closed.clone(), switched_off: period.ended.clone(), stop: stop.clone() };
        let prepared = self.take_up(options.task.as_ref()).and_then(|tasks| {
            let fetches = self.core.fetches_of_run(&self.identity, &options.fetch, options.run_id, |warning| scope.warn(warning))?;
            Ok(RunHost { fetches, ..self.prepare(options.tool_errors, &scope, end, &tasks)? })
        });
        let host = match prepared {
            Ok(host) => Arc::new(host),
            Err(error) => return failed(self.core.redacted(error)),
        };
        let limit_ms = self.core.limits.run_timeout_ms;
        let request = RunRequest {
            code,
            input: options.input.unwrap_or_else(Wire::null),
            modules: Arc::clone(&host) as Arc<_>,
            host: Arc::clone(&host) as Arc<_>,
            features: if host.fetches.is_some() { GuestFeatures::Fetch } else { GuestFeatures::Basic },
            timeout: Duration::from_millis(options.timeout_ms.unwrap_or(limit_ms).min(limit_ms)),
            stop: stop.clone(),
            on_log: options.on_log.map(|listener| self.redacting(listener)),
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (core, code_owner) = (Arc::clone(&self.core), self.code_owner.clone());
        let thread = std::thread::Builder::new().name("hyperlight-mcp-run".to_owned()).spawn(move || {
            // `send` fails only if the caller has stopped waiting.
            let _ = sender.send(core.sandboxes.run_for(&code_owner, request));
        });
        if let Err(error) = thread {
            return failed(self.core.redacted(Error::io("a thread for the run", &error)));
        }
        let mut outcome = self.outcome(receiver, stop, period).await;
        scope.end_holds();
        let redactor = &self.core.redactor;
        outcome.value = outcome.value.map_err(|error| host.servers.clean_outcome(error));
        traced.end(outcome.value.as_ref().err().map(Error::code));
        outcome.logs.iter_mut().for_each(|entry| *entry = readable(redactor, entry));
        let warnings = scope.take_warnings().into_iter().chain(host.servers.take_warnings());
        RunReport { outcome, warnings: warnings.map(|warning| redactor.readable(&warning)).collect(), omitted: Vec::new(), saved_as: None }
    }

    /// Returns a listener that gets redacted entries, because a guest may print secrets.
    fn redacting(&self, listener: LogListener) -> LogListener {
        let redactor = Arc::clone(&self.core.redactor);
        Arc::new(move |entry: &LogEntry| {
            listener(&readable(&redactor, entry));
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Closes the sandbox. Ends pending runs with `ERR_CLOSED`, and waits for their end. Also ends the servers that the sandbox's tasks
    /// define.
    pub async fn close(&self) {
        self.closed.cancel();
        drop(self.turn.lock().await);
        let SandboxTasks { of_sandbox, of_run } = std::mem::take(&mut *self.tasks.lock());
        [of_sandbox, of_run].into_iter().flatten().for_each(|task| task.release());
    }

    /// Registers the servers that a run's task defines, and returns the tasks that apply to the run, innermost first.
    fn take_up(&self, task: Option<&Task>) -> Result<Vec<Arc<TakenTask>>> {
        let taken = task.map(|task| self.core.take_up(&self.identity, "Sandbox.run", task)).transpose()?;
        let mut tasks = self.tasks.lock();
        let before = taken.as_ref().and_then(|taken| tasks.of_run.replace(Arc::clone(taken)));
        let counting = taken.into_iter().chain(tasks.of_sandbox.clone()).collect();
        drop(tasks);
        if let Some(before) = before {
            before.release();
        }
        Ok(counting)
    }

    /// Attaches the servers for the sandbox's own task. Does not attach the servers for the task of a run, because they are only for that
    /// run.
    pub(super) fn attached(&self, approval_read: ApprovalRead) -> Result<AttachedServers> {
        let task: Vec<_> = self.tasks.lock().of_sandbox.clone().into_iter().collect();
        Ok(self.core.attach(&self.identity, &task, approval_read)?.servers)
    }

    async fn outcome(&self, receiver: tokio::sync::oneshot::Receiver<RunOutcome>, stop: &Stop, period: &ActivePeriod) -> RunOutcome {
        let mut receiver = receiver;
        let outcome = tokio::select! {
            outcome = &mut receiver => outcome,
            () = self.closed.cancelled() => {
                stop.stop(StopReason::Closed);
                receiver.await
            }
            () = period.ended.cancelled() => {
                stop.stop(StopReason::SwitchedOff);
                receiver.await
            }
        };
        outcome.unwrap_or_else(|_| outcome_of(Error::Internal("a run's thread ended without an outcome".into())))
    }

    /// Prepares the modules that a starting run can import. `tasks` determine which servers the run gets.
    fn prepare(&self, tool_errors: Option<ToolErrors>, scope: &Arc<CallScope>, end: RunEnd, tasks: &[Arc<TakenTask>]) -> Result<RunHost> {
        let Attachment { servers: attached, warnings } = self.core.attach(&self.identity, tasks, ApprovalRead::Fresh)?;
        let viewer = Viewer { id: self.identity.id, granted: &scope.granted };
        let manifests: BTreeMap<_, _> = self.core.visible_servers(&viewer, &attached)?;
        let servers: BTreeMap<&str, _> =
            manifests.keys().filter_map(|name| Some((name.as_str(), self.definition(name, &attached, &scope.granted)?))).collect();
        let visible: Vec<_> = servers.iter().map(|(name, server)| (*name, &**server)).collect();
        warnings.into_iter().chain(self.core.readiness_warnings(visible.iter().copied())).for_each(|warning| scope.warn(warning));
        self.core.tell_unavailable(&self.identity, &scope.granted);
        let errors = tool_errors.unwrap_or(self.tool_errors);
        let limits = &self.core.limits;
        let seen = self.core.seen_results(&self.identity, &scope.granted, &attached, manifests.keys(), ApprovalRead::Fresh);
        let caller =
            RunRequests { core: Arc::downgrade(&self.core), scope: Arc::clone(scope), names: attached.0, refusals: AtomicUsize::new(0) };
        let redactor = Arc::clone(&self.core.redactor);
        let catalog = Catalog::new(manifests.clone(), self.module_infos(), self.core.declaration_style(errors)).with_seen(seen);
        let catalog = catalog.with_known(&self.core.runs.declarations);
        let one_at_a_time =
            visible.iter().filter(|(_, server)| server.parallel == Parallel::No).map(|(name, _)| (*name).to_owned()).collect();
        let tool_finder = ToolFinder { catalog, search: Arc::clone(&scope.granted.search), embedder: self.core.embedder.clone() };
        let checks = self.core.checks(&self.identity, &visible);
        drop(servers);
        let servers = ServerCalls::new(manifests, Arc::new(caller), Arc::clone(limits), errors, redactor, checks, tool_finder);
        Ok(RunHost {
            servers: Arc::new(
                servers
                    .with_saved(Arc::clone(&self.saved))
                    .with_one_at_a_time(one_at_a_time)
                    .with_redaction(self.core.redaction(&self.identity)),
            ),
            fetches: None,
            agent: self.modules().clone(),
            end,
            max_argument_bytes: limits.max_argument_bytes,
            max_response_bytes: limits.max_response_bytes,
        })
    }

    /// Returns the definition of a server, given the run's name for it.
    fn definition(&self, name: &str, attached: &AttachedServers, granted: &Granted) -> Option<Arc<ServerDefinition>> {
        self.core.registry.server(granted.registry_name(attached.0.get(name).map_or(name, String::as_str))).ok()
    }

    pub(super) fn modules(&self) -> MutexGuard<'_, AgentModules> {
        self.modules.lock()
    }
}

pub(super) fn failed(error: Error) -> RunReport {
    RunReport { outcome: outcome_of(error), warnings: Vec::new(), omitted: Vec::new(), saved_as: None }
}

fn outcome_of(error: Error) -> RunOutcome {
    RunOutcome { value: Err(error), logs: Vec::new(), stats: RunStats::default() }
}

/// Redacts a log entry. If the entry was cut, also removes the end of the text if it may be the beginning of a secret.
fn readable(redactor: &Redactor, entry: &LogEntry) -> LogEntry {
    let LogEntry { level, is_cut, text } = entry;
    let text = match text.strip_suffix(LOG_CUT_MARK).filter(|_| *is_cut) {
        Some(beginning) => redactor.readable_cut(beginning, usize::MAX) + LOG_CUT_MARK,
        None => redactor.readable(text),
    };
    LogEntry { level: *level, is_cut: *is_cut, text }
}
