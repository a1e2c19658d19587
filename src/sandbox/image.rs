//! A guest that was booted once, and the snapshot from which every run gets a VM of its own.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyperlight_host::func::Registerable;
use hyperlight_host::sandbox::SandboxConfiguration;
use hyperlight_host::sandbox::snapshot::Snapshot;
use hyperlight_host::{GuestBinary, HostFunctions, HyperlightError, MultiUseSandbox, UninitializedSandbox};

use super::guest::GuestKind;
use crate::limits::Limits;

/// The name of the one handler that every run calls; what it runs is registered for each run.
pub(super) const HANDLER: &str = "hyperlight-mcp";
const HANDLER_SOURCE: &str = r#"export const handler = () => globalThis[Symbol.for("hyperlight-mcp")].run();"#;

/// Room for names and framing in the buffers, besides what the limits promise.
const BUFFER_MARGIN: usize = 256 * 1024;
/// What is around an answer in its buffer, generously.
const FRAME_OVERHEAD: usize = 16 * 1024;
/// The most that text grows when it is quoted as JSON: a control character takes six bytes.
const JSON_GROWTH: usize = 6;
/// Writable memory besides heap and buffers: stacks, page tables, the guest's own data.
const SCRATCH_MARGIN: usize = 16 * 1024 * 1024;

/// What a run does about the calls of its guest.
pub(super) trait GuestCalls: Send + Sync + 'static {
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8>;
    /// Takes calls that are made at the same time, and gives those that have ended.
    fn exchange(&self, frame: &[u8]) -> Vec<u8>;
    fn log(&self, level: &str, text: String);
    fn input(&self) -> Vec<u8>;
    fn finish(&self, frame: Vec<u8>);
    /// So many bytes of entropy, or none where so many are not given.
    fn random(&self, count: u64) -> Vec<u8>;
    /// Since the run's start, on a clock that only goes forward.
    fn elapsed(&self) -> Duration;
    /// The run's start, since 1970.
    fn started(&self) -> Duration;
    /// Returns when so much time has passed, or the run has ended.
    fn sleep(&self, duration: Duration);
}

/// A booted guest, ready to be started from as often as wanted.
#[derive(Clone)]
pub(super) struct GuestImage {
    snapshot: Arc<Snapshot>,
    kind: GuestKind,
    configuration: SandboxConfiguration,
    reply_capacity: usize,
    boot_time: Duration,
}

impl GuestImage {
    /// Boots the guest and takes the snapshot: 20 to 60 ms natively.
    pub(super) fn boot(kind: GuestKind, limits: &Limits) -> Result<Self, HyperlightError> {
        let started = Instant::now();
        let configuration = configuration(limits);
        let mut guest = UninitializedSandbox::new(GuestBinary::Buffer(kind.binary().to_vec()), Some(configuration))?;
        register(&mut guest, &Arc::new(Silent))?;
        let mut guest: MultiUseSandbox = guest.evolve()?;
        guest.call::<()>("register_handler", (HANDLER.to_owned(), HANDLER_SOURCE.to_owned(), String::new()))?;
        let snapshot = guest.snapshot()?;
        Ok(Self { snapshot, kind, configuration, reply_capacity: reply_capacity(limits), boot_time: started.elapsed() })
    }

    /// Whether it is what booting with these limits would give.
    pub(super) fn is_for(&self, kind: GuestKind, limits: &Limits) -> bool {
        self.kind == kind && self.configuration == configuration(limits)
    }

    /// What an answer to the guest may have: the buffer less the framing around it.
    pub(super) fn reply_capacity(&self) -> usize {
        self.reply_capacity
    }

    pub(super) fn kind(&self) -> GuestKind {
        self.kind
    }

    pub(super) fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// A new VM in the snapshot's state: under 1 ms natively. Nothing of another run is in it.
    pub(super) fn start(&self, calls: &Arc<impl GuestCalls>) -> Result<MultiUseSandbox, HyperlightError> {
        let mut functions = HostFunctions::empty();
        register(&mut functions, calls)?;
        MultiUseSandbox::from_snapshot(Arc::clone(&self.snapshot), functions, None)
    }
}

fn configuration(limits: &Limits) -> SandboxConfiguration {
    let input = input_size(limits);
    let output = output_size(limits);
    let heap = limits.guest_heap_bytes;
    let mut configuration = SandboxConfiguration::default();
    configuration.set_input_data_size(page_align(input));
    configuration.set_output_data_size(page_align(output));
    configuration.set_heap_size(heap);
    // The snapshot's memory is read-only: every page that a run writes is copied into scratch memory, the heap's included.
    let scratch = page_align(input) + page_align(output) + usize::try_from(heap).unwrap_or(usize::MAX / 2) + SCRATCH_MARGIN;
    configuration.set_scratch_size(page_align(scratch));
    configuration
}

/// What an answer to the guest may have.
pub(crate) fn reply_capacity(limits: &Limits) -> usize {
    input_size(limits) - FRAME_OVERHEAD
}

/// The buffer towards the guest.
fn input_size(limits: &Limits) -> usize {
    limits.max_input_bytes.max(limits.max_code_bytes).max(limits.max_response_bytes * JSON_GROWTH) + BUFFER_MARGIN
}

/// The buffer towards the host.
pub(super) fn output_size(limits: &Limits) -> usize {
    limits.max_value_bytes.max(limits.max_argument_bytes).max(limits.max_log_bytes) + BUFFER_MARGIN
}

fn page_align(size: usize) -> usize {
    size.next_multiple_of(4096)
}

fn register(target: &mut impl Registerable, calls: &Arc<impl GuestCalls>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(calls);
    target.register_host_function("HostCall", move |module: String, function: String, frame: Vec<u8>| {
        Ok(owner.call(module, function, &frame))
    })?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostExchange", move |frame: Vec<u8>| Ok(owner.exchange(&frame)))?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostLog", move |level: String, text: String| {
        owner.log(&level, text);
        Ok(())
    })?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostInput", move || Ok(owner.input()))?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostFinish", move |frame: Vec<u8>| {
        owner.finish(frame);
        Ok(())
    })?;
    register_clock(target, calls)?;
    // What the guest's C library prints; Hyperlight's own default would write it to our standard output.
    let owner = Arc::clone(calls);
    target.register_host_function("HostPrint", move |text: String| {
        let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        owner.log("log", text);
        Ok(length)
    })?;
    // No host module is registered with the runtime itself and no file can be loaded; the names must be known.
    target.register_host_function(
        "CallHostJsFunction",
        |_: String, _: String, _: String, _: Vec<u8>| -> Result<Vec<u8>, HyperlightError> {
            Err(HyperlightError::Error("there is no such host function".to_owned()))
        },
    )?;
    target.register_host_function("ResolveModule", |_: String, name: String| -> Result<String, HyperlightError> {
        Err(HyperlightError::Error(format!("there is no module {name}")))
    })?;
    target.register_host_function("LoadModule", |name: String| -> Result<String, HyperlightError> {
        Err(HyperlightError::Error(format!("there is no module {name}")))
    })
}

/// Entropy and time. The snapshot holds neither: every run asks for its own.
fn register_clock(target: &mut impl Registerable, calls: &Arc<impl GuestCalls>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(calls);
    target.register_host_function("HostRandom", move |count: u64| Ok(owner.random(count)))?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostElapsed", move || Ok(micros(owner.elapsed())))?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostStarted", move || Ok(micros(owner.started())))?;
    let owner = Arc::clone(calls);
    target.register_host_function("HostSleep", move |micros: u64| {
        owner.sleep(Duration::from_micros(micros));
        Ok(())
    })?;
    target.register_host_function("CurrentTimeMicros", || Ok(micros(since_epoch())))
}

/// The time of day.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// While the guest boots there is no run to answer for.
struct Silent;

impl GuestCalls for Silent {
    fn call(&self, _module: String, _function: String, _frame: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn exchange(&self, _frame: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn log(&self, level: &str, text: String) {
        tracing::debug!(level, text, "the guest wrote while booting");
    }

    fn input(&self) -> Vec<u8> {
        Vec::new()
    }

    fn finish(&self, _frame: Vec<u8>) {}

    /// None: what every run had from the snapshot would be no entropy.
    fn random(&self, _count: u64) -> Vec<u8> {
        Vec::new()
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn started(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _duration: Duration) {}
}
