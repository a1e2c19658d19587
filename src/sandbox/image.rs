//! A guest that was booted once, or loaded as it was kept, and the snapshot from which every run gets a VM of its own.

use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyperlight_host::func::Registerable;
use hyperlight_host::sandbox::SandboxConfiguration;
use hyperlight_host::sandbox::snapshot::Snapshot;
use hyperlight_host::{GuestBinary, HostFunctions, HyperlightError, MultiUseSandbox, UninitializedSandbox};
use serde::Serialize;

use super::guest::GuestKind;
use super::log::LogLevel;
use super::seat::{GuestCalls, Seat};
use crate::limits::Limits;

/// The name of the one handler that every run calls.
const HANDLER: &str = "hyperlight-mcp";
/// It is told which module to run. It takes `run` with it, as agent code is not to end a run by hand.
pub(super) const HANDLER_SOURCE: &str = r#"
const key = Symbol.for("hyperlight-mcp");
const { run, ...others } = globalThis[key];
Object.defineProperty(globalThis, key, { value: Object.freeze(others), configurable: false });
export const handler = (code) => run(code).then(() => 0);"#;
/// What is run once before the snapshot is taken, and once in every VM that is made ready. Two names, as a module is evaluated once.
const READY_ONCE: &str = "agent:ready-once";
const READY: &str = "agent:ready";

/// Room for names and framing in the buffers, besides what the limits promise.
const BUFFER_MARGIN: usize = 256 * 1024;
/// What is around an answer in its buffer, generously.
const FRAME_OVERHEAD: usize = 16 * 1024;
/// The most that text grows when it is quoted as JSON: a control character takes six bytes.
const JSON_GROWTH: usize = 6;
/// Writable memory besides heap and buffers: stacks, page tables, the guest's own data.
const SCRATCH_MARGIN: usize = 16 * 1024 * 1024;

/// A booted guest, ready to be started from as often as wanted. Cheap to clone: all clones are one.
#[derive(Clone)]
pub(super) struct GuestImage {
    snapshot: Arc<RwLock<(Arc<Snapshot>, Origin)>>,
    kind: GuestKind,
    configuration: SandboxConfiguration,
    reply_capacity: usize,
    took: Duration,
    /// The VM by which a kept snapshot was tried: the first to be taken.
    tried: Arc<Mutex<Option<Vm>>>,
}

/// Where a snapshot is from, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This process booted the guest. Nobody else has it.
    Booted,
    /// This process booted the guest, and has kept the snapshot on disk.
    Kept,
    /// It was on disk already.
    Found,
}

/// A VM in the snapshot's state or made ready, and whom it calls.
pub(super) struct Vm {
    sandbox: MultiUseSandbox,
    seat: Arc<Seat>,
}

impl GuestImage {
    /// Boots the guest and takes the snapshot: 20 to 300 ms natively, most of it for the heap's pages.
    pub(super) fn boot(kind: GuestKind, limits: &Limits) -> Result<Self, HyperlightError> {
        let started = Instant::now();
        let configuration = configuration(limits);
        let mut guest = UninitializedSandbox::new(GuestBinary::Buffer(kind.binary().to_vec()), Some(configuration))?;
        let seat = Arc::<Seat>::default();
        register(&mut guest, &seat)?;
        let mut guest: MultiUseSandbox = guest.evolve()?;
        seat.is_in(guest.interrupt_handle());
        guest.call::<()>("register_handler", (HANDLER.to_owned(), HANDLER_SOURCE.to_owned(), String::new()))?;
        let mut vm = Vm { sandbox: guest, seat };
        vm.run_module(READY_ONCE)?;
        let snapshot = vm.sandbox.snapshot()?;
        Ok(Self::of(snapshot, kind, limits, Origin::Booted, started.elapsed()))
    }

    /// The image of a snapshot that these limits and this guest gave before, and in which guest code does run.
    pub(super) fn tried(snapshot: Arc<Snapshot>, kind: GuestKind, limits: &Limits, started: Instant) -> Result<Self, HyperlightError> {
        let image = Self::of(snapshot, kind, limits, Origin::Found, started.elapsed());
        let mut vm = image.start()?;
        vm.run_module(super::seat::TRIED)?;
        *image.tried.lock() = Some(vm);
        Ok(Self { took: started.elapsed(), ..image })
    }

    fn of(snapshot: Arc<Snapshot>, kind: GuestKind, limits: &Limits, origin: Origin, took: Duration) -> Self {
        Self {
            snapshot: Arc::new(RwLock::new((snapshot, origin))),
            kind,
            configuration: configuration(limits),
            reply_capacity: reply_capacity(limits),
            took,
            tried: Arc::default(),
        }
    }

    /// Returns whether it is what booting with these limits would give.
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

    pub(super) fn origin(&self) -> Origin {
        self.snapshot.read().1
    }

    /// How long it took to boot, or to load.
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().0)
    }

    /// The same snapshot, as it now lies on disk: shared with other processes, and no memory of this one's.
    pub(super) fn is_kept(&self, snapshot: Arc<Snapshot>) {
        *self.snapshot.write() = (snapshot, Origin::Kept);
    }

    /// A new VM in the snapshot's state: 1 to 3 ms natively. Nothing of another run is in it.
    pub(super) fn start(&self) -> Result<Vm, HyperlightError> {
        if let Some(tried) = self.tried.lock().take() {
            return Ok(tried);
        }
        let seat = Arc::<Seat>::default();
        let mut functions = HostFunctions::empty();
        register(&mut functions, &seat)?;
        let sandbox = MultiUseSandbox::from_snapshot(self.snapshot(), functions, None)?;
        seat.is_in(sandbox.interrupt_handle());
        Ok(Vm { sandbox, seat })
    }
}

impl Vm {
    /// Lets it write the pages that a run writes, so that the run finds them copied.
    pub(super) fn make_ready(&mut self) -> Result<(), HyperlightError> {
        self.run_module(READY)
    }

    /// Runs the module `agent:code` for whoever has the seat, to its end. What comes of it reaches [`GuestCalls::finish`].
    pub(super) fn run(&mut self, run: Arc<dyn GuestCalls>) -> Result<(), HyperlightError> {
        self.seat.take(run);
        let outcome = self.run_module(super::sources::CODE_MODULE);
        self.seat.leave();
        outcome
    }

    /// Returns whether it can still run anything.
    pub(super) fn is_sound(&self) -> bool {
        self.sandbox.status().is_ready()
    }

    pub(super) fn sandbox(&self) -> &MultiUseSandbox {
        &self.sandbox
    }

    fn run_module(&mut self, name: &str) -> Result<(), HyperlightError> {
        let name = serde_json::Value::from(name).to_string();
        self.sandbox.call::<String>("RunHandler", (HANDLER.to_owned(), name, false)).map(|_| ())
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

fn register(target: &mut impl Registerable, seat: &Arc<Seat>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(seat);
    target.register_host_function("HostCall", move |module: String, function: String, frame: Vec<u8>| {
        owner.ask(|run| run.call(module, function, &frame))
    })?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostExchange", move |frame: Vec<u8>| owner.ask(|run| run.exchange(&frame)))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostLog", move |level: String, text: String| owner.ask(|run| run.log(LogLevel::named(&level), text)))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostInput", move || owner.ask(GuestCalls::input))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostFinish", move |frame: Vec<u8>| owner.ask(|run| run.finish(frame)))?;
    register_clock(target, seat)?;
    // What the guest's C library prints; Hyperlight's own default would write it to our standard output.
    let owner = Arc::clone(seat);
    target.register_host_function("HostPrint", move |text: String| {
        let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        owner.ask(|run| run.log(LogLevel::Log, text)).map(|()| length)
    })?;
    // No host module is registered with the runtime itself; the name must be known.
    target.register_host_function(
        "CallHostJsFunction",
        |_: String, _: String, _: String, _: Vec<u8>| -> Result<Vec<u8>, HyperlightError> {
            Err(HyperlightError::Error("there is no such host function".to_owned()))
        },
    )?;
    register_sources(target, seat)
}

/// Modules are loaded when they are imported.
fn register_sources(target: &mut impl Registerable, seat: &Arc<Seat>) -> Result<(), HyperlightError> {
    let missing = || HyperlightError::Error("there is no such module".to_owned());
    let owner = Arc::clone(seat);
    target.register_host_function("ResolveModule", move |_: String, name: String| -> Result<String, HyperlightError> {
        if owner.ask(|run| run.knows(&name))? { Ok(name) } else { Err(missing()) }
    })?;
    let owner = Arc::clone(seat);
    target.register_host_function("LoadModule", move |name: String| owner.ask(|run| run.load(&name))?.ok_or_else(missing))
}

/// Entropy and time. The snapshot holds neither: every run asks for its own.
fn register_clock(target: &mut impl Registerable, seat: &Arc<Seat>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(seat);
    target.register_host_function("HostRandom", move |count: u64| owner.ask(|run| run.random(count)))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostElapsed", move || owner.ask(|run| micros(run.elapsed())))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostStarted", move || owner.ask(|run| micros(run.started())))?;
    let owner = Arc::clone(seat);
    target.register_host_function("HostSleep", move |micros: u64| owner.ask(|run| run.sleep(Duration::from_micros(micros))))?;
    target.register_host_function("CurrentTimeMicros", || Ok(micros(since_epoch())))
}

/// The time of day.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
