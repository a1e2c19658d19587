//! Runs one piece of code, with its own VM, thread, deadline and outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_host::HyperlightError;
use serde::Serialize;
use tokio::runtime::Handle;

use super::calls::RunState;
use super::compute_slots::{CodeOwner, ComputeSlot};
use super::compute_time::ComputeTime;
use super::deadline::Deadline;
use super::features::GuestFeatures;
use super::host::{HostFunctions, RunControl};
use super::image::GuestImage;
use super::log::LogEntry;
use super::module::GuestModules;
use super::outcome::{AgentCode, finish};
use super::pool::Pool;
use super::reader::{Reading, ScriptReader};
use super::script::declares_require;
use super::sources::Sources;
use super::stop::Stop;
use super::value::Wire;
use super::watch::Watch;
use crate::error::{Error, ForeignText, Result};
use crate::limits::Limits;

/// Registers the handler, even if the code does not export the handler. This text is appended to the code, so that the line numbers of the
/// code do not change.
const CODE_EPILOGUE: &str =
    "\n;globalThis[Symbol.for(\"hyperlight-mcp\")].register(typeof handler === \"undefined\" ? undefined : handler);";
/// Defines a `require` that throws an error for modules that do not exist. This text is put before the first line of the code, so that the
/// line numbers of the code do not change.
pub(super) const REQUIRE_PROLOGUE: &str = "const{require}=globalThis[Symbol.for(\"hyperlight-mcp\")];";

/// Hyperlight's abort code for a failed allocation.
const MALLOC_FAILED: u8 = 13;

/// A callback that receives each log entry immediately, on the run's thread.
pub type LogListener = Arc<dyn Fn(&LogEntry) + Send + Sync>;

/// The code to run, and everything that is needed to run it.
pub struct RunRequest {
    /// An ES module or plain script with a function `handler(input)`, in JavaScript or TypeScript.
    pub code: String,
    pub input: Wire,
    /// The modules that exist in this run.
    pub modules: Arc<dyn GuestModules>,
    /// The functions that answer the calls of the modules and of the features.
    pub host: Arc<dyn HostFunctions>,
    pub features: GuestFeatures,
    pub timeout: Duration,
    pub stop: Stop,
    pub on_log: Option<LogListener>,
}

/// The statistics of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStats {
    /// The time from the run's start to its outcome.
    pub duration_ms: f64,
    /// The time from the run's start until the run had a VM. It is short if a VM was ready.
    pub start_ms: f64,
    /// The number of host calls.
    pub calls: u64,
    /// The time that host calls spent outside of the guest. If calls overlap, the time that they have in common is counted once.
    pub call_ms: f64,
    /// The number of bytes of arguments that the guest sent.
    pub bytes_out: u64,
    /// The number of bytes of replies that the guest received.
    pub bytes_in: u64,
}

/// The outcome of a run. Failed runs have a log and statistics too.
#[derive(Debug)]
pub struct RunOutcome {
    /// The value as `{"value": …}`, in the form in which the guest sent it.
    pub value: Result<Wire>,
    pub logs: Vec<LogEntry>,
    pub stats: RunStats,
}

/// The parts of [`super::Sandboxes`] that a run needs.
pub(super) struct RunContext<'a> {
    pub(super) image: &'a GuestImage,
    pub(super) pool: &'a Pool,
    pub(super) reader: &'a ScriptReader,
    pub(super) owner: &'a CodeOwner,
    pub(super) limits: &'a Arc<Limits>,
    pub(super) runtime: &'a Handle,
}

impl RunContext<'_> {
    /// Runs code on the calling thread and returns its outcome.
    pub(super) fn run(&self, request: RunRequest) -> RunOutcome {
        let started = Instant::now();
        let deadline = Deadline::after(request.timeout);
        let limit_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let (stop, modules) = (request.stop.clone(), request.modules);
        let (reader, owner) = (self.reader, &self.owner.parse);
        let mut code = AgentCode { reader, owner, modules: modules.as_ref(), stop: &stop, deadline: deadline.clone(), was_looked_at: true };
        // Removing types changes no line and no column, so positions in errors also refer to the caller's code.
        let read = check_sizes(self.limits, &request.code, &request.input).and_then(|()| code.to_javascript(&request.code));
        let text = match read {
            Ok(Reading::AsItIs) => request.code,
            Ok(Reading::Javascript(javascript)) => javascript,
            // The run has ended, and this must be reported. The engine would only report a syntax error for code that still contains types.
            Ok(Reading::Missed) if !code.is_wanted() => {
                return RunOutcome { value: Err(stop.error("run", limit_ms)), logs: Vec::new(), stats: stats_of(started) };
            }
            Ok(Reading::Missed) => {
                code.was_looked_at = false;
                request.code
            }
            Err(error) => return RunOutcome { value: Err(error), logs: Vec::new(), stats: stats_of(started) },
        };
        let prologue = if declares_require(&text) { "" } else { REQUIRE_PROLOGUE };
        let sources = Sources::new(format!("{prologue}{text}{CODE_EPILOGUE}"), Arc::clone(&modules));
        let control = RunControl::new(stop.clone(), deadline, self.runtime.clone());
        let (limits, capacity) = (Arc::clone(self.limits), self.image.reply_capacity());
        let time = Arc::new(ComputeTime::new(Duration::from_millis(self.limits.compute_timeout_ms)));
        let slot = ComputeSlot::new(self.owner.compute.clone(), time);
        let state = RunState::new(started, control, slot, limits, capacity, request.host, request.input, sources, request.on_log);
        let state = Arc::new(state);
        let value = self.execute(&state, &text, &code).map_err(|failure| failure.into_error(&state, &stop, limit_ms));
        RunOutcome { value, logs: state.take_log(), stats: state.stats() }
    }

    fn execute(&self, state: &Arc<RunState>, text: &str, code: &AgentCode<'_>) -> std::result::Result<Wire, Failure> {
        let mut outcome = self.in_a_vm(state, code);
        // The VM failed before agent code started, so the run is tried once more, in another VM.
        if let Ok(Err(error)) | Err(error) = &outcome
            && !state.sources.has_begun()
            && code.is_wanted()
        {
            tracing::debug!(%error, "a VM failed before its run had begun");
            outcome = self.in_a_vm(state, code);
        }
        state.end_calls();
        let outcome = outcome.map_err(Failure::Guest)?;
        match (state.take_finished(), outcome) {
            // The guest finished before the run was ended from outside. If a run was ended from outside, no outcome is accepted from it.
            (Some(frame), _) => finish(&state.limits, &frame, text, code).map_err(Failure::Known),
            (None, _) if state.control.is_over() => Err(Failure::Stopped),
            (None, Err(error)) => Err(Failure::Guest(error)),
            (None, Ok(())) => Err(Failure::Known(Error::NeverSettles)),
        }
    }

    /// Runs the code in a VM. The outer error means that no VM could be started. The inner error means that the guest failed.
    fn in_a_vm(&self, state: &Arc<RunState>, code: &AgentCode<'_>) -> Attempt {
        let started = Instant::now();
        // The slot is taken before the VM, so that a run that waits for a slot does not use the memory of a VM. If the run has ended during
        // this wait, it gets no VM.
        let Ok(executing) = state.slot.enter(&state.control) else { return Ok(Ok(())) };
        let mut vm = self.pool.take(self.image)?;
        let (stop, deadline, time) = (code.stop.clone(), code.deadline.clone(), Arc::clone(state.slot.time()));
        let watch = Watch::start(vm.sandbox(), self.runtime, stop, deadline, time);
        state.has_started(started.elapsed());
        let working = state.slot.working();
        let outcome = vm.run(Arc::clone(state) as Arc<_>);
        drop((working, watch, executing));
        self.pool.give_back(self.image, vm);
        Ok(outcome)
    }
}

type Attempt = std::result::Result<std::result::Result<(), HyperlightError>, HyperlightError>;

fn stats_of(started: Instant) -> RunStats {
    RunStats { duration_ms: started.elapsed().as_secs_f64() * 1000.0, ..RunStats::default() }
}

/// The reason why a run returned no value.
enum Failure {
    Known(Error),
    Guest(HyperlightError),
    /// The run was ended from outside before it finished.
    Stopped,
}

fn check_sizes(limits: &Limits, code: &str, input: &Wire) -> Result<()> {
    if code.len() > limits.max_code_bytes {
        return Err(Error::CodeTooLarge { size: code.len(), limit: limits.max_code_bytes });
    }
    if input.size() > limits.max_input_bytes {
        return Err(Error::InputTooLarge { size: input.size(), limit: limits.max_input_bytes });
    }
    Ok(())
}

impl Failure {
    fn into_error(self, state: &RunState, stop: &Stop, limit_ms: u64) -> Error {
        let error = match self {
            Self::Known(error) => return error,
            Self::Stopped => return stop.error("run", limit_ms),
            Self::Guest(error) => error,
        };
        let text = format!("{error:?}");
        tracing::debug!(error = text, "the guest ended without an outcome");
        if let HyperlightError::GuestAborted(code, message) = &error
            && (*code == MALLOC_FAILED || message.contains("memory"))
        {
            return Error::GuestMemory { limit: state.limits.guest_heap_bytes };
        }
        if text.contains("WouldBlock") {
            return Error::NeverSettles;
        }
        Error::GuestCrashed { problem: ForeignText::cut(&text, 500).into() }
    }
}
