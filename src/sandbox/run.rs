//! One run: a new VM from the snapshot, one thread, one deadline, one outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_host::HyperlightError;
use serde::Serialize;
use tokio::runtime::Handle;

use super::calls::RunState;
use super::deadline::Deadline;
use super::host::{HostFunctions, RunControl};
use super::image::{GuestImage, HANDLER};
use super::module::GuestModule;
use super::outcome::{AgentCode, finish};
use super::reader::ScriptReader;
use super::script::declares_require;
use super::stop::Stop;
use super::value::Wire;
use super::watch::Watch;
use crate::error::{Error, Result};
use crate::limits::Limits;

/// The name under which the guest imports the agent's code.
const CODE_MODULE: &str = "agent:code";
/// Hands the handler over, exported or not. Behind the code, so that its lines keep their numbers.
const CODE_EPILOGUE: &str =
    "\n;globalThis[Symbol.for(\"hyperlight-mcp\")].register(typeof handler === \"undefined\" ? undefined : handler);";
/// Makes `require` throw for what is not there. On the code's first line, so that its lines keep their numbers.
pub(super) const REQUIRE_PROLOGUE: &str = "import{require}from\"hyperlight-mcp:host\";";

/// Hyperlight's code for an allocation that failed: it aborts the guest.
const MALLOC_FAILED: u8 = 13;

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// `log`, `info`, `warn`, `error` or `debug`.
    pub level: String,
    pub text: String,
}

/// Called with each entry as it comes, on the run's thread.
pub type LogListener = Arc<dyn Fn(&LogEntry) + Send + Sync>;

/// What to run.
pub struct RunRequest {
    /// An ES module or plain script with a `handler(input)`, in JavaScript or TypeScript.
    pub code: String,
    pub input: Wire,
    /// The modules that exist in this run.
    pub modules: Vec<GuestModule>,
    /// Who answers their calls.
    pub host: Arc<dyn HostFunctions>,
    pub timeout: Duration,
    pub stop: Stop,
    pub on_log: Option<LogListener>,
}

/// What a run took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStats {
    /// From the run's start to its outcome.
    pub duration_ms: f64,
    /// Making the VM and loading the modules.
    pub start_ms: f64,
    /// Host calls, and the time spent outside of the guest for them: calls that are outstanding together take it together.
    pub calls: u64,
    pub call_ms: f64,
    /// Bytes that crossed: arguments out of the guest, replies into it.
    pub bytes_out: u64,
    pub bytes_in: u64,
}

/// A run's outcome. The log and the figures are there whether it succeeded or not.
#[derive(Debug)]
pub struct RunOutcome {
    /// `{"value": …}`, as it left the guest.
    pub value: Result<Wire>,
    pub logs: Vec<LogEntry>,
    pub stats: RunStats,
}

/// Runs on the calling thread until the outcome.
pub(super) fn run(image: &GuestImage, reader: &ScriptReader, limits: &Arc<Limits>, runtime: &Handle, request: RunRequest) -> RunOutcome {
    let deadline = Deadline::after(request.timeout);
    let limit_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
    let control = RunControl::new(request.stop.clone(), deadline.clone(), runtime.clone());
    let capacity = image.reply_capacity();
    let state = Arc::new(RunState::new(control, Arc::clone(limits), capacity, request.host, request.input, request.on_log));
    let code = AgentCode { reader, modules: &request.modules, stop: &request.stop, deadline };
    let value =
        execute(image, &state, &request.code, &code, runtime).map_err(|failure| failure.into_error(&state, &request.stop, limit_ms));
    RunOutcome { value, logs: state.take_log(), stats: state.stats() }
}

/// A run that gave no value: for a reason that is known, or because the VM's call failed.
enum Failure {
    Known(Error),
    Guest(HyperlightError),
    /// It was ended while it waited for a call.
    Stopped,
}

fn execute(
    image: &GuestImage,
    state: &Arc<RunState>,
    text: &str,
    code: &AgentCode<'_>,
    runtime: &Handle,
) -> std::result::Result<Wire, Failure> {
    check_sizes(&state.limits, text, &state.input).map_err(Failure::Known)?;
    // Every line and column stays where it is: what the guest says of a place holds for the code as it was given.
    let javascript = code.to_javascript(text).map_err(Failure::Known)?;
    let text = javascript.as_deref().unwrap_or(text);
    let started = Instant::now();
    let mut guest = image.start(state).map_err(Failure::Guest)?;
    let watch = Watch::start(&guest, runtime, code.stop.clone(), code.deadline.clone());
    let outcome = (|| {
        for (specifier, source) in code.modules.iter().flat_map(GuestModule::sources) {
            guest.call::<()>("register_module", (specifier, source))?;
        }
        let prologue = if declares_require(text) { "" } else { REQUIRE_PROLOGUE };
        guest.call::<()>("register_module", (CODE_MODULE.to_owned(), format!("{prologue}{text}{CODE_EPILOGUE}")))?;
        state.has_started(started.elapsed());
        // The outcome comes by `HostFinish`; what the call itself returns is `undefined`.
        guest.call::<String>("RunHandler", (HANDLER.to_owned(), "null".to_owned(), false))
    })();
    drop(watch);
    state.end_calls();
    if state.control.gave_up() {
        return Err(Failure::Stopped);
    }
    // A run that has finished has its outcome, even if its end came from outside at the same moment.
    match (state.take_finished(), outcome) {
        (Some(frame), _) => finish(&state.limits, &frame, text, code).map_err(Failure::Known),
        (None, Err(error)) => Err(Failure::Guest(error)),
        (None, Ok(_)) => Err(Failure::Known(Error::NeverSettles)),
    }
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
        if stop.reason().is_some() {
            return stop.error("run", limit_ms);
        }
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
        Error::GuestCrashed { problem: text.chars().take(500).collect() }
    }
}
