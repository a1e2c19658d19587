//! One run: a new VM from the snapshot, one thread, one deadline, one outcome.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyperlight_host::HyperlightError;
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Handle;

use super::deadline::Deadline;
use super::host::{Arguments, HostCall, HostFunctions, HostReply, RunControl};
use super::image::{GuestCalls, GuestImage, HANDLER, since_epoch};
use super::module::GuestModule;
use super::outcome::{AgentCode, GuestOutcome, finish};
use super::reader::ScriptReader;
use super::script::declares_require;
use super::stop::Stop;
use super::value::{Value, Wire};
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
const CUT_MARK: &str = "… [log cut: limits.maxLogBytes]";

/// Hyperlight's code for an allocation that failed: it aborts the guest.
const MALLOC_FAILED: u8 = 13;

/// What an exception in the guest may say.
const MAX_THROWN_BYTES: usize = 32 * 1024;
/// What the guest gets of entropy at once: the quota of `crypto.getRandomValues`.
const MAX_RANDOM_BYTES: usize = 65_536;
/// Entries without text cost as well: a log has as many entries as its limit has room for this.
const MIN_ENTRY_BYTES: usize = 8;

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
    /// Host calls, and the time spent in them.
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
    let started = Instant::now();
    let deadline = Deadline::after(request.timeout);
    let limit_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
    let state = Arc::new(RunState {
        started,
        started_at: since_epoch(),
        control: RunControl::new(request.stop.clone(), deadline.clone(), runtime.clone()),
        host: request.host,
        limits: Arc::clone(limits),
        input: request.input,
        on_log: request.on_log,
        reply_capacity: image.reply_capacity(),
        log: Mutex::default(),
        finished: Mutex::default(),
        counters: Counters::default(),
    });
    let code = AgentCode { reader, modules: &request.modules, stop: &request.stop, deadline };
    let value =
        execute(image, &state, &request.code, &code, runtime).map_err(|failure| failure.into_error(&state, &request.stop, limit_ms));
    let logs = std::mem::take(&mut lock(&state.log).entries);
    let mut stats = state.counters.stats();
    stats.duration_ms = milliseconds(started.elapsed());
    RunOutcome { value, logs, stats }
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
        state.counters.start_us.store(microseconds(started.elapsed()), Ordering::Relaxed);
        // The outcome comes by `HostFinish`; what the call itself returns is `undefined`.
        guest.call::<String>("RunHandler", (HANDLER.to_owned(), "null".to_owned(), false))
    })();
    drop(watch);
    if state.control.gave_up() {
        return Err(Failure::Stopped);
    }
    // A run that has finished has its outcome, even if its end came from outside at the same moment.
    match (lock(&state.finished).take(), outcome) {
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

// ---- the guest's calls -----------------------------------------------------------------------------------------------

struct RunState {
    started: Instant,
    /// Since 1970.
    started_at: Duration,
    control: RunControl,
    host: Arc<dyn HostFunctions>,
    limits: Arc<Limits>,
    input: Wire,
    on_log: Option<LogListener>,
    /// What an answer to the guest may have.
    reply_capacity: usize,
    log: Mutex<Log>,
    finished: Mutex<Option<Vec<u8>>>,
    counters: Counters,
}

#[derive(Default)]
struct Log {
    entries: Vec<LogEntry>,
    bytes: usize,
    full: bool,
}

#[derive(Default)]
struct Counters {
    start_us: AtomicU64,
    calls: AtomicU64,
    call_us: AtomicU64,
    bytes_out: AtomicUsize,
    bytes_in: AtomicUsize,
}

impl Counters {
    fn stats(&self) -> RunStats {
        #[allow(clippy::cast_precision_loss, reason = "microseconds of a run fit into 52 bits")]
        let milliseconds = |micros: &AtomicU64| micros.load(Ordering::Relaxed) as f64 / 1000.0;
        RunStats {
            duration_ms: 0.0,
            start_ms: milliseconds(&self.start_us),
            calls: self.calls.load(Ordering::Relaxed),
            call_ms: milliseconds(&self.call_us),
            bytes_out: self.bytes_out.load(Ordering::Relaxed) as u64,
            bytes_in: self.bytes_in.load(Ordering::Relaxed) as u64,
        }
    }
}

impl RunState {
    fn answer(&self, module: String, function: String, frame: &[u8]) -> HostReply {
        let arguments = parse_arguments(frame).unwrap_or_else(Arguments::Invalid);
        self.host.call(HostCall { module, function, arguments }, &self.control)
    }

    /// What goes back in, within what the guest's buffer can take: writing more would end the guest.
    fn encode_reply(&self, reply: HostReply) -> Vec<u8> {
        let encoded = encode_reply(reply);
        if encoded.len() <= self.reply_capacity {
            return encoded;
        }
        let error = Error::ResponseTooLarge {
            what: "an answer to the guest".to_owned(),
            size: encoded.len().to_string(),
            limit: self.reply_capacity,
            limit_name: "the guest's buffer",
        };
        encode_reply(HostReply::Throw { name: None, message: error.to_string(), code: Some(error.code().to_owned()) })
    }
}

fn parse_arguments(frame: &[u8]) -> std::result::Result<Arguments, String> {
    let wire = Wire::from_frame(frame).map_err(|error| error.to_string())?;
    if let Ok(GuestOutcome::Oversize(size)) = serde_json::from_str(&wire.json) {
        return Ok(Arguments::Oversize(size));
    }
    match Value::from_wire(wire) {
        Ok(Value::List(arguments)) => Ok(Arguments::Given(arguments)),
        Ok(_) => Err("no list of arguments".to_owned()),
        Err(Error::InvalidValue { problem }) => Err(problem),
        Err(error) => Err(error.to_string()),
    }
}

fn encode_reply(reply: HostReply) -> Vec<u8> {
    let value = match reply {
        HostReply::Value(value) => Value::Record(vec![("value".to_owned(), value)]),
        HostReply::Throw { name, message, code } => {
            let end = message.floor_char_boundary(MAX_THROWN_BYTES);
            let mut thrown = json!({ "message": if end < message.len() { format!("{}… [cut]", &message[..end]) } else { message } });
            if let Some(name) = name {
                thrown["name"] = name.into();
            }
            if let Some(code) = code {
                thrown["code"] = code.into();
            }
            Value::record([("thrown", Value::from(thrown))])
        }
    };
    // A frame fails only beyond 4 GiB; the bridge has capped the reply long before.
    value.to_wire().to_frame().unwrap_or_default()
}

impl GuestCalls for RunState {
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8> {
        let started = Instant::now();
        let reply = self.encode_reply(self.answer(module, function, frame));
        self.counters.calls.fetch_add(1, Ordering::Relaxed);
        self.counters.call_us.fetch_add(microseconds(started.elapsed()), Ordering::Relaxed);
        self.counters.bytes_out.fetch_add(frame.len(), Ordering::Relaxed);
        self.counters.bytes_in.fetch_add(reply.len(), Ordering::Relaxed);
        reply
    }

    fn log(&self, level: &str, text: String) {
        let mut log = lock(&self.log);
        if log.full {
            return;
        }
        let room = self.limits.max_log_bytes - log.bytes;
        log.full = text.len() > room || log.entries.len() >= self.limits.max_log_bytes / MIN_ENTRY_BYTES;
        let text = if log.full { format!("{}{CUT_MARK}", &text[..text.floor_char_boundary(room)]) } else { text };
        log.bytes += text.len();
        let entry = LogEntry { level: level.to_owned(), text };
        log.entries.push(entry.clone());
        drop(log);
        if let Some(listener) = &self.on_log {
            listener(&entry);
        }
    }

    fn input(&self) -> Vec<u8> {
        self.input.to_frame().unwrap_or_default()
    }

    fn finish(&self, frame: Vec<u8>) {
        // Agent code could call this as well; the first outcome counts, and it is the agent's own.
        lock(&self.finished).get_or_insert(frame);
    }

    fn random(&self, count: u64) -> Vec<u8> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_RANDOM_BYTES).unwrap_or(0);
        let mut bytes = vec![0; count];
        // Without entropy the guest gets none, and says so.
        if getrandom::fill(&mut bytes).is_ok() { bytes } else { Vec::new() }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn started(&self) -> Duration {
        self.started_at
    }

    fn sleep(&self, duration: Duration) {
        // A run that was stopped meanwhile has remembered it, and its guest is being ended.
        let _ = self.control.wait(async move { tokio::time::sleep(duration).await });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
