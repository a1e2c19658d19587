//! The sandbox that an agent holds. It has its own host modules and a queue of runs; runs share no state.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::agent::{Agent, Identity};
use super::agent_modules::{AgentModule, AgentModules, RunHost, check};
use super::approval_cache::ApprovalRead;
use super::availability::{AttachedServers, Viewer};
use super::callbacks::{CallScope, CallbackChain, Callbacks};
use super::core::Core;
use super::events::EventListener;
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
use crate::sandbox::{LOG_CUT_MARK, LogEntry, LogListener, ParseOwner, RunOutcome, RunRequest, RunStats, Stop, StopReason, Wire};
use crate::telemetry::TraceContext;

/// The niceness of threads that run agent code.
const RUN_NICENESS: i32 = 5;

/// Options of one run.
#[derive(Default)]
pub struct RunOptions {
    /// The input for the handler. Default: `null`.
    pub input: Option<Wire>,
    /// The time limit. The default and the maximum are `limits.runTimeoutMs`.
    pub timeout_ms: Option<u64>,
    /// The form of failed calls in code. Default: the sandbox's.
    pub tool_errors: Option<ToolErrors>,
    /// The budget of the value in tokens, at least 100. A larger value is cut and saved. Default: the sandbox's.
    pub max_result_tokens: Option<usize>,
    /// Ends the run from outside.
    pub stop: Stop,
    /// The listener of log entries, which gets each entry when it is written.
    pub on_log: Option<LogListener>,
    /// The listener of events of the run's calls, instead of the gateway's.
    pub on_event: Option<EventListener>,
    /// Callbacks that are called before the sandbox's and the gateway's.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The number of the run, which questions and events name.
    pub run_id: Option<u64>,
    /// The trace that the run belongs to.
    pub trace: Option<TraceContext>,
    /// The task of the run, besides that of the sandbox. The servers that it brings live until the sandbox is closed, or has another run with a
    /// task.
    pub task: Option<Task>,
}

/// The outcome of a run with its warnings.
#[derive(Debug)]
pub struct RunReport {
    pub outcome: RunOutcome,
    pub warnings: Vec<String>,
    /// The parts that were cut from the value to fit `max_result_tokens`.
    pub omitted: Vec<Omission>,
    /// The handle with which later runs of the sandbox read the whole value, if it was cut and saved.
    pub saved_as: Option<String>,
}

/// Options of a sandbox.
#[derive(Default)]
pub struct SandboxOptions {
    pub tool_errors: ToolErrors,
    /// The budget of runs that set none. Default: the gateway's.
    pub max_result_tokens: Option<usize>,
    /// Callbacks that are called before the gateway's.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// What all runs of the sandbox are about.
    pub task: Option<Task>,
}

/// The tasks of a sandbox. Their own servers end with them.
#[derive(Default)]
struct SandboxTasks {
    of_sandbox: Option<Arc<TakenTask>>,
    /// The task of the last run that had one.
    of_run: Option<Arc<TakenTask>>,
}

/// Runs agent code, each run in a VM of its own.
pub struct Sandbox {
    pub(super) core: Arc<Core>,
    /// The agent that the sandbox belongs to.
    pub(super) identity: Arc<Identity>,
    pub(super) tool_errors: ToolErrors,
    pub(super) max_result_tokens: Option<usize>,
    /// The whole values that were cut in results of earlier runs.
    pub(super) saved: Arc<Mutex<SavedValues>>,
    /// Identifies this sandbox to the code parser, which shares its capacity between owners.
    pub(super) parse_owner: ParseOwner,
    callbacks: CallbackChain,
    modules: Mutex<AgentModules>,
    tasks: Mutex<SandboxTasks>,
    /// Locked by the present run. The lock is fair, so runs start in the order of the calls.
    turn: Arc<tokio::sync::Mutex<()>>,
    closed: CancellationToken,
}

impl Sandbox {
    pub(super) fn new(agent: &Agent, options: SandboxOptions) -> Result<Self> {
        let SandboxOptions { tool_errors, max_result_tokens, callbacks, task } = options;
        let Agent { core, identity } = agent.clone();
        let of_sandbox = task.map(|task| core.take_up("Gateway.sandbox", &task)).transpose()?;
        let tasks = Mutex::new(SandboxTasks { of_sandbox, of_run: None });
        let closed = identity.closed.child_token();
        let callbacks = identity.callbacks.within(callbacks);
        let max_result_tokens = max_result_tokens.or(core.runs.max_result_tokens);
        let saved = SavedValues::new(core.limits.max_saved_bytes, Duration::from_millis(core.limits.max_saved_age_ms));
        let saved = Arc::new(Mutex::new(saved));
        identity.keep_saved(&saved);
        let (parse_owner, modules, turn) = (identity.new_parse_owner(), Mutex::default(), Arc::default());
        Ok(Self { core, identity, tool_errors, max_result_tokens, saved, parse_owner, callbacks, modules, tasks, turn, closed })
    }

    /// Adds an agent's own module as `host:<name>` for runs that start afterwards.
    ///
    /// # Errors
    /// `ERR_NAME_TAKEN`; `ERR_INVALID_OPTION` for names that cannot be imported.
    pub fn host_module(&self, name: &str, module: Arc<dyn AgentModule>) -> Result<()> {
        let mut modules = self.modules();
        check(name, module.as_ref(), &modules)?;
        modules.insert(name.to_owned(), module);
        Ok(())
    }

    /// Runs code. The run takes its place in the queue at once and, when it starts, a thread of its own. A value above `max_result_tokens` is cut,
    /// and saved for later runs.
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

    /// Runs code without cutting its value.
    pub(super) fn queued(self: &Arc<Self>, code: String, options: RunOptions) -> impl Future<Output = RunReport> + Send + use<> {
        let this = Arc::clone(self);
        // The place in the queue is taken here, so that runs start in the order of the calls.
        let turn = queue_now(Arc::clone(&self.turn).lock_owned());
        // The run belongs to the present period of the plugin's switch. It does not run after a later switch-on.
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
        let traced = self.core.trace_run(self.identity.name.as_deref(), options.run_id, options.trace);
        let granted = match self.core.granted(&self.identity, ApprovalRead::Fresh) {
            Ok(granted) => granted,
            Err(error) => return failed(self.core.redacted(error)),
        };
        let scope = CallScope::new(&self.identity, granted, &self.callbacks, options.callbacks, options.run_id, options.on_event);
        let scope = Arc::new(scope.with_max_questions(self.core.limits.max_questions).with_trace(traced.context));
        let end = RunEnd { closed: self.closed.clone(), switched_off: period.ended.clone(), stop: stop.clone() };
        let prepared = self.take_up(options.task.as_ref()).and_then(|tasks| self.prepare(options.tool_errors, &scope, end, &tasks));
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
            timeout: Duration::from_millis(options.timeout_ms.unwrap_or(limit_ms).min(limit_ms)),
            stop: stop.clone(),
            on_log: options.on_log.map(|listener| self.redacting(listener)),
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (core, parse_owner) = (Arc::clone(&self.core), self.parse_owner.clone());
        let thread = std::thread::Builder::new().name("hyperlight-mcp-run".to_owned()).spawn(move || {
            // On Linux this is of the calling thread alone. Code that only computes must not keep this program from its other work: deadlines, calls, hosts.
            let _ = rustix::process::nice(RUN_NICENESS);
            // `send` fails only if the caller no longer waits.
            let _ = sender.send(core.sandboxes.run_for(&parse_owner, request));
        });
        if let Err(error) = thread {
            return failed(self.core.redacted(Error::io("a thread for the run", &error)));
        }
        let mut outcome = self.outcome(receiver, stop, period).await;
        let redactor = &self.core.redactor;
        outcome.value = outcome.value.map_err(|error| self.core.redacted(error));
        traced.end(outcome.value.as_ref().err().map(Error::code));
        outcome.logs.iter_mut().for_each(|entry| *entry = readable(redactor, entry));
        let warnings = scope.take_warnings().into_iter().chain(host.servers.take_warnings());
        RunReport { outcome, warnings: warnings.map(|warning| redactor.readable(&warning)).collect(), omitted: Vec::new(), saved_as: None }
    }

    /// Redacts each entry before the listener gets it, because a guest may print secrets.
    fn redacting(&self, listener: LogListener) -> LogListener {
        let redactor = Arc::clone(&self.core.redactor);
        Arc::new(move |entry: &LogEntry| {
            listener(&readable(&redactor, entry));
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Ends pending runs with `ERR_CLOSED`, and waits for their end. The servers that its tasks have brought end.
    pub async fn close(&self) {
        self.closed.cancel();
        drop(self.turn.lock().await);
        let SandboxTasks { of_sandbox, of_run } = std::mem::take(&mut *self.tasks.lock());
        [of_sandbox, of_run].into_iter().flatten().for_each(|task| task.release());
    }

    /// Takes up the task of a run, and returns the tasks that count for it, the innermost first.
    fn take_up(&self, task: Option<&Task>) -> Result<Vec<Arc<TakenTask>>> {
        let taken = task.map(|task| self.core.take_up("Sandbox.run", task)).transpose()?;
        let mut tasks = self.tasks.lock();
        let before = taken.as_ref().and_then(|taken| tasks.of_run.replace(Arc::clone(taken)));
        let counting = taken.into_iter().chain(tasks.of_sandbox.clone()).collect();
        drop(tasks);
        if let Some(before) = before {
            before.release();
        }
        Ok(counting)
    }

    /// Attaches what the sandbox's own task wants. The servers of runs' tasks are for those runs alone.
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

    /// Prepares the modules that the run can import, when it starts. `tasks` decide which servers it has.
    fn prepare(&self, tool_errors: Option<ToolErrors>, scope: &Arc<CallScope>, end: RunEnd, tasks: &[Arc<TakenTask>]) -> Result<RunHost> {
        let Attachment { servers: attached, warnings } = self.core.attach(&self.identity, tasks, ApprovalRead::Fresh)?;
        let viewer = Viewer { id: self.identity.id, granted: &scope.granted };
        let manifests: BTreeMap<_, _> = self.core.visible_servers(&viewer, &attached)?;
        let servers: BTreeMap<&str, _> =
            manifests.keys().filter_map(|name| Some((name.as_str(), self.definition(name, &attached, &scope.granted)?))).collect();
        let visible: Vec<_> = servers.iter().map(|(name, server)| (*name, &**server)).collect();
        warnings.into_iter().chain(self.core.readiness_warnings(visible.iter().copied())).for_each(|warning| scope.warn(warning));
        let errors = tool_errors.unwrap_or(self.tool_errors);
        let limits = &self.core.limits;
        let caller = RunRequests { core: Arc::downgrade(&self.core), scope: Arc::clone(scope), names: attached.0 };
        let redactor = Arc::clone(&self.core.redactor);
        let catalog = Catalog::new(manifests.clone(), self.module_infos(), self.core.declaration_style(errors));
        let one_at_a_time =
            visible.iter().filter(|(_, server)| server.parallel == Parallel::No).map(|(name, _)| (*name).to_owned()).collect();
        let tool_finder = ToolFinder { catalog, search: Arc::clone(&scope.granted.search) };
        let checks = self.core.checks(&visible);
        drop(servers);
        let servers = ServerCalls::new(manifests, Arc::new(caller), Arc::clone(limits), errors, redactor, checks, tool_finder);
        Ok(RunHost {
            servers: Arc::new(servers.with_saved(Arc::clone(&self.saved)).with_one_at_a_time(one_at_a_time)),
            agent: self.modules().clone(),
            end,
            max_argument_bytes: limits.max_argument_bytes,
            max_response_bytes: limits.max_response_bytes,
        })
    }

    /// Returns the definition of a server by the name that a run has for it.
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

/// Redacts a log entry. If the entry was cut, an end that may be the beginning of a secret is removed.
fn readable(redactor: &Redactor, entry: &LogEntry) -> LogEntry {
    let LogEntry { level, is_cut, text } = entry;
    let text = match text.strip_suffix(LOG_CUT_MARK).filter(|_| *is_cut) {
        Some(beginning) => redactor.readable_cut(beginning, usize::MAX) + LOG_CUT_MARK,
        None => redactor.readable(text),
    };
    LogEntry { level: *level, is_cut: *is_cut, text }
}
