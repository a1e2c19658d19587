//! The state of a run. It answers the calls of the run's guest, and counts these calls.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::compute_slots::ComputeSlot;
use super::exchange::{Exchange, ExchangeLimits, OutstandingCall, Request};
use super::frame::{arguments_of_wire, fitting_frame, parse_arguments, thrown_by};
use super::host::{Arguments, HostAnswer, HostCall, HostFunctions, HostReply, RunControl, Stopped};
use super::image::{output_size, since_epoch};
use super::log::{Log, LogEntry, LogLevel};
use super::run::{LogListener, RunStats};
use super::run_binding::GuestCalls;
use super::sources::Sources;
use super::value::Wire;
use crate::error::{Error, ErrorText};
use crate::limits::Limits;

/// The maximum number of random bytes that one call returns. It is the quota of `crypto.getRandomValues`.
const MAX_RANDOM_BYTES: usize = 65_536;
/// The maximum size in bytes of a module's or function's name. No host module has a longer name.
const MAX_NAME_BYTES: usize = 16 * 1024;
/// The factor by which the text of the arguments may exceed the limit when the guest sends it. The limit itself applies to the text that is
/// sent to the server. Numbers may be shorter in that text.
const ARGUMENTS_AS_WRITTEN: usize = 2;

pub(super) struct RunState {
    started: Instant,
    /// The time of the start, as the duration since 1970.
    started_at: Duration,
    pub(super) control: RunControl,
    pub(super) slot: ComputeSlot,
    host: Arc<dyn HostFunctions>,
    pub(super) limits: Arc<Limits>,
    input: Wire,
    pub(super) sources: Sources,
    on_log: Option<LogListener>,
    /// The maximum size in bytes of an answer to the guest.
    reply_capacity: usize,
    exchange: Exchange,
    log: Mutex<Log>,
    /// The outcome that the guest reported. Later calls of the guest get no answer.
    finished: Mutex<Option<Vec<u8>>>,
    counters: Counters,
}

/// The counters for [`RunStats`].
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
    /// Returns the state of a new run. `input`, `host` and `on_log` come from the [`super::RunRequest`].
    #[allow(clippy::too_many_arguments, reason = "the parts of one struct, made in one place")]
    pub(super) fn new(
        started: Instant,
        control: RunControl,
        slot: ComputeSlot,
        limits: Arc<Limits>,
        reply_capacity: usize,
        host: Arc<dyn HostFunctions>,
        input: Wire,
        sources: Sources,
        on_log: Option<LogListener>,
    ) -> Self {
        let heap = usize::try_from(limits.guest_heap_bytes).unwrap_or(usize::MAX);
        let exchange =
            Exchange::new(ExchangeLimits { arguments: output_size(&limits), answer: reply_capacity, replies: heap.max(reply_capacity) });
        let log = Mutex::new(Log::new(limits.max_log_bytes));
        Self {
            started,
            started_at: since_epoch().saturating_sub(started.elapsed()),
            control,
            slot,
            host,
            limits,
            input,
            sources,
            on_log,
            reply_capacity,
            exchange,
            log,
            finished: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Records the time from the start of the run until the run had a VM.
    pub(super) fn has_started(&self, took: Duration) {
        self.counters.start_us.store(microseconds(took), Ordering::Relaxed);
    }

    /// Removes and returns the outcome that the guest reported. Must be called after the guest has ended.
    pub(super) fn take_finished(&self) -> Option<Vec<u8>> {
        lock(&self.finished).take()
    }

    /// Cancels the outstanding calls, because no code waits for them any more.
    pub(super) fn end_calls(&self) {
        self.control.within_runtime(|| self.exchange.end());
    }

    /// Removes and returns the log entries that exist now.
    pub(super) fn take_log(&self) -> Vec<LogEntry> {
        lock(&self.log).take()
    }

    /// Returns the statistics up to now.
    pub(super) fn stats(&self) -> RunStats {
        RunStats { duration_ms: milliseconds(self.started.elapsed()), ..self.counters.stats() }
    }

    fn start(&self, module: String, function: String, arguments: Arguments) -> HostAnswer {
        self.counters.calls.fetch_add(1, Ordering::Relaxed);
        let longest = module.len().max(function.len());
        if longest > MAX_NAME_BYTES {
            let problem = format!("the name of its module or function has {longest} bytes; the limit is {MAX_NAME_BYTES}");
            return HostAnswer::Ready(thrown_by(&Error::InvalidArguments {
                what: ErrorText::own("a call"),
                problem: ErrorText::own(problem),
            }));
        }
        let (control, time) = self.control.of_call();
        match Arc::clone(&self.host).start(HostCall { module, function, arguments }, &control) {
            ready @ HostAnswer::Ready(_) => ready,
            HostAnswer::Later(answer) => HostAnswer::Later(Box::pin(async move {
                let _time = time;
                answer.await
            })),
        }
    }

    /// Parses the arguments, unless they are too large to parse.
    fn arguments(&self, size: usize, read: impl FnOnce() -> Arguments) -> Arguments {
        if size > self.limits.max_argument_bytes.saturating_mul(ARGUMENTS_AS_WRITTEN) { Arguments::Oversize(size) } else { read() }
    }

    fn answer(&self, module: String, function: String, frame: &[u8]) -> HostReply {
        match self.start(module, function, self.arguments(frame.len(), || parse_arguments(frame))) {
            HostAnswer::Ready(reply) => reply,
            // If the run has ended, its guest is stopped too, so it never reads this error.
            HostAnswer::Later(answer) => {
                let answered = self.slot.without(&self.control, || {
                    let _outside = self.control.outside();
                    self.control.wait(answer)
                });
                answered.unwrap_or_else(|Stopped| thrown_by(&Error::Aborted { what: "run" }))
            }
        }
    }

    /// Starts an outstanding call. Returns false if there is no room for the call. Usually the guest's own code has already checked this
    /// before it submits the call.
    fn hand_over(&self, call: OutstandingCall) -> bool {
        let OutstandingCall { number, module, function, arguments } = call;
        // The names are counted too, because they are stored with the call.
        let load = arguments.size() + module.len() + function.len();
        if !self.exchange.admits(load) {
            return false;
        }
        let arguments = self.arguments(arguments.size(), || arguments_of_wire(&arguments));
        let answer = self.start(module, function, arguments);
        self.exchange.add(&self.control, number, load, answer);
        true
    }

    /// Records the time that a call spent outside of the guest, and the bytes that were sent and received.
    fn count(&self, started: Instant, sent: &[u8], reply: &[u8]) {
        self.counters.call_us.fetch_add(microseconds(started.elapsed()), Ordering::Relaxed);
        self.counters.bytes_out.fetch_add(sent.len(), Ordering::Relaxed);
        self.counters.bytes_in.fetch_add(reply.len(), Ordering::Relaxed);
    }
}

impl GuestCalls for RunState {
    /// Returns true if the guest has not finished and the run was not ended from outside.
    fn goes_on(&self) -> bool {
        lock(&self.finished).is_none() && !self.control.is_over()
    }

    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8> {
        let started = Instant::now();
        let reply = fitting_frame(self.answer(module, function, frame), self.reply_capacity);
        self.count(started, frame, &reply);
        reply
    }

    fn exchange(&self, frame: &[u8]) -> Vec<u8> {
        let started = Instant::now();
        // An answer without parts is an error for the guest.
        let Some(Request { calls, wait }) = Request::from_frame(frame) else { return Vec::new() };
        let count = calls.len();
        // Each call takes time on this thread, so the code checks before each call whether the run has ended.
        let taken = calls.into_iter().take_while(|_| self.goes_on()).map_while(|call| self.hand_over(call).then_some(())).count();
        if !self.goes_on() {
            return Vec::new();
        }
        let reply = self.exchange.collect(&self.control, &self.slot, wait, count - taken);
        self.count(started, frame, &reply);
        reply
    }

    fn log(&self, level: LogLevel, text: String) {
        let entry = lock(&self.log).add(level, text);
        if let (Some(entry), Some(listener)) = (entry, &self.on_log) {
            listener(&entry);
        }
    }

    fn input(&self) -> Vec<u8> {
        self.input.to_frame().unwrap_or_default()
    }

    fn finish(&self, frame: Vec<u8>) {
        self.end_calls();
        // Only the first reported outcome is kept.
        lock(&self.finished).get_or_insert(frame);
    }

    fn random(&self, count: u64) -> Vec<u8> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_RANDOM_BYTES).unwrap_or(0);
        let mut bytes = vec![0; count];
        // If the system provides no random bytes, the guest gets none and throws an error.
        if getrandom::fill(&mut bytes).is_ok() { bytes } else { Vec::new() }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn started(&self) -> Duration {
        self.started_at
    }

    fn sleep(&self, duration: Duration) {
        // An error means that the run was stopped during the wait. The run records the reason, and its guest is being stopped.
        let _ = self.slot.without(&self.control, || self.control.wait(async move { tokio::time::sleep(duration).await }));
    }

    fn knows(&self, module: &str) -> bool {
        self.sources.knows(module)
    }

    fn load(&self, module: &str) -> Option<String> {
        self.sources.load(module)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
