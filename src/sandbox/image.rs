//! The image of a guest that was booted once, or loaded from disk. Each run gets its own VM, which starts from the image's snapshot.

use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyperlight_host::func::Registerable;
use hyperlight_host::sandbox::SandboxConfiguration;
use hyperlight_host::sandbox::snapshot::Snapshot;
use hyperlight_host::{GuestBinary, HostFunctions, HyperlightError, MultiUseSandbox, UninitializedSandbox};
use serde::Serialize;

use super::features::GuestFeatures;
use super::guest::GuestKind;
use super::log::LogLevel;
use super::run_binding::{GuestCalls, RunBinding};
use crate::limits::Limits;

/// The name of the handler that each run calls.
const HANDLER: &str = "hyperlight-mcp";
/// The source of the handler. The handler's argument is the name of the module to run. The handler removes `run` from the global object, so
/// that agent code cannot end a run.
pub(super) const HANDLER_SOURCE: &str = r#"
const key = Symbol.for("hyperlight-mcp");
const { run, ...others } = globalThis[key];
Object.defineProperty(globalThis, key, { value: Object.freeze(others), configurable: false });
export const handler = (code) => run(code).then(() => 0);"#;
/// The name of the module that runs before the snapshot is taken. It has the same source as the module [`READY`]. The name must differ,
/// because a module is evaluated only once.
const READY_ONCE: &str = "agent:ready-once";
/// The name of the module that runs in each VM that is made ready in advance.
const READY: &str = "agent:ready";

/// The number of bytes that the buffers have for names and framing, in addition to the limits.
const BUFFER_MARGIN: usize = 256 * 1024;
/// The maximum number of bytes that the framing adds to an answer.
const FRAME_OVERHEAD: usize = 16 * 1024;
/// The maximum factor by which a text grows when it is quoted as JSON: a control character becomes six bytes.
const JSON_GROWTH: usize = 6;
/// The size in bytes of writable memory in addition to heap and buffers: stacks, page tables and the guest's own data.
const SCRATCH_MARGIN: usize = 16 * 1024 * 1024;

/// A booted guest from which any number of VMs can be started. Clones are cheap and share one snapshot.
#[derive(Clone)]
pub(super) struct GuestImage {
    snapshot: Arc<RwLock<(Arc<Snapshot>, Origin)>>,
    kind: GuestKind,
    features: GuestFeatures,
    configuration: SandboxConfiguration,
    reply_capacity: usize,
    took: Duration,
    /// The VM that was started to check a snapshot from disk. The next run uses this VM.
    tried: Arc<Mutex<Option<Vm>>>,
}

/// The origin of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This process booted the guest. The snapshot is only in memory.
    Booted,
    /// This process booted the guest and saved the snapshot on disk.
    Kept,
    /// The snapshot was already on disk.
    Found,
}

/// A VM in the state of the snapshot. It may have been made ready after its start. It contains the binding for its host calls.
pub(super) struct Vm {
    sandbox: MultiUseSandbox,
    binding: Arc<RunBinding>,
}

impl GuestImage {
    /// Boots the guest and takes the snapshot. On hardware this takes 20 to 300 ms, mostly for the pages of the heap.
    pub(super) fn boot(kind: GuestKind, features: GuestFeatures, limits: &Limits) -> Result<Self, HyperlightError> {
        let started = Instant::now();
        let configuration = configuration(limits);
        let mut guest = UninitializedSandbox::new(GuestBinary::Buffer(kind.binary().to_vec()), Some(configuration))?;
        let binding = Arc::<RunBinding>::default();
        register(&mut guest, &binding)?;
        let mut guest: MultiUseSandbox = guest.evolve()?;
        binding.set_vm(guest.interrupt_handle());
        guest.call::<()>("register_handler", (HANDLER.to_owned(), HANDLER_SOURCE.to_owned(), String::new()))?;
        let mut vm = Vm { sandbox: guest, binding };
        if let Some((module, _)) = features.globals() {
            vm.run_module(module)?;
        }
        vm.run_module(READY_ONCE)?;
        let snapshot = vm.sandbox.snapshot()?;
        Ok(Self::of(snapshot, kind, features, limits, Origin::Booted, started.elapsed()))
    }

    /// Returns the image of a snapshot from disk, for this guest and these limits. Fails if guest code does not run in a VM that is started
    /// from this snapshot.
    pub(super) fn tried(
        snapshot: Arc<Snapshot>,
        kind: GuestKind,
        features: GuestFeatures,
        limits: &Limits,
        started: Instant,
    ) -> Result<Self, HyperlightError> {
        let image = Self::of(snapshot, kind, features, limits, Origin::Found, started.elapsed());
        let mut vm = image.start()?;
        vm.run_module(super::run_binding::PROBE)?;
        *image.tried.lock() = Some(vm);
        Ok(Self { took: started.elapsed(), ..image })
    }

    fn of(snapshot: Arc<Snapshot>, kind: GuestKind, features: GuestFeatures, limits: &Limits, origin: Origin, took: Duration) -> Self {
        Self {
            snapshot: Arc::new(RwLock::new((snapshot, origin))),
            kind,
            features,
            configuration: configuration(limits),
            reply_capacity: reply_capacity(limits),
            took,
            tried: Arc::default(),
        }
    }

    /// Returns whether booting this guest with these features and limits would give the same image.
    pub(super) fn is_for(&self, kind: GuestKind, features: GuestFeatures, limits: &Limits) -> bool {
        self.kind == kind && self.features == features && self.configuration == configuration(limits)
    }

    /// Returns the maximum size in bytes of an answer to the guest: the size of the buffer without the framing.
    pub(super) fn reply_capacity(&self) -> usize {
        self.reply_capacity
    }

    pub(super) fn kind(&self) -> GuestKind {
        self.kind
    }

    pub(super) fn origin(&self) -> Origin {
        self.snapshot.read().1
    }

    /// Returns the time that booting or loading the guest has taken.
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().0)
    }

    /// Replaces the snapshot in memory by the copy of this snapshot on disk. Other processes share the memory of that copy.
    pub(super) fn is_kept(&self, snapshot: Arc<Snapshot>) {
        *self.snapshot.write() = (snapshot, Origin::Kept);
    }

    /// Starts a VM in the state of the snapshot. This takes 1 to 3 ms on hardware. The VM contains no data of other runs.
    pub(super) fn start(&self) -> Result<Vm, HyperlightError> {
        if let Some(tried) = self.tried.lock().take() {
            return Ok(tried);
        }
        let binding = Arc::<RunBinding>::default();
        let mut functions = HostFunctions::empty();
        register(&mut functions, &binding)?;
        let sandbox = MultiUseSandbox::from_snapshot(self.snapshot(), functions, None)?;
        binding.set_vm(sandbox.interrupt_handle());
        Ok(Vm { sandbox, binding })
    }
}

impl Vm {
    /// Makes the VM write to the pages to which every run writes. So when a run starts, these pages have already been copied.
    pub(super) fn make_ready(&mut self) -> Result<(), HyperlightError> {
        self.run_module(READY)
    }

    /// Binds the VM to a run, and executes the module `agent:code` to its end. The VM reports the outcome through [`GuestCalls::finish`].
    pub(super) fn run(&mut self, run: Arc<dyn GuestCalls>) -> Result<(), HyperlightError> {
        self.binding.bind(run);
        let outcome = self.run_module(super::sources::CODE_MODULE);
        self.binding.unbind();
        outcome
    }

    /// Returns whether the VM can still run code.
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
    // The memory of the snapshot is read-only. Each page to which a run writes, including pages of the heap, is copied to scratch memory.
    let scratch = page_align(input) + page_align(output) + usize::try_from(heap).unwrap_or(usize::MAX / 2) + SCRATCH_MARGIN;
    configuration.set_scratch_size(page_align(scratch));
    configuration
}

/// Returns the maximum size of an answer to the guest, in bytes.
pub(crate) fn reply_capacity(limits: &Limits) -> usize {
    input_size(limits) - FRAME_OVERHEAD
}

/// Returns the size in bytes of the buffer for data to the guest.
fn input_size(limits: &Limits) -> usize {
    limits.max_input_bytes.max(limits.max_code_bytes).max(limits.max_response_bytes * JSON_GROWTH) + BUFFER_MARGIN
}

/// Returns the size in bytes of the buffer for data to the host.
pub(super) fn output_size(limits: &Limits) -> usize {
    limits.max_value_bytes.max(limits.max_argument_bytes).max(limits.max_log_bytes) + BUFFER_MARGIN
}

fn page_align(size: usize) -> usize {
    size.next_multiple_of(4096)
}

fn register(target: &mut impl Registerable, binding: &Arc<RunBinding>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(binding);
    target.register_host_function("HostCall", move |module: String, function: String, frame: Vec<u8>| {
        owner.dispatch(|run| run.call(module, function, &frame))
    })?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostExchange", move |frame: Vec<u8>| owner.dispatch(|run| run.exchange(&frame)))?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostLog", move |level: String, text: String| {
        owner.dispatch(|run| run.log(LogLevel::named(&level), text))
    })?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostInput", move || owner.dispatch(GuestCalls::input))?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostFinish", move |frame: Vec<u8>| owner.dispatch(|run| run.finish(frame)))?;
    register_clock(target, binding)?;
    // The output of the guest's C library goes to the log. By default, Hyperlight would write it to this process's standard output.
    let owner = Arc::clone(binding);
    target.register_host_function("HostPrint", move |text: String| {
        let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        owner.dispatch(|run| run.log(LogLevel::Log, text)).map(|()| length)
    })?;
    // The guest's runtime requires a function with this name. It is never called, because no host module is registered with that runtime.
    target.register_host_function(
        "CallHostJsFunction",
        |_: String, _: String, _: String, _: Vec<u8>| -> Result<Vec<u8>, HyperlightError> {
            Err(HyperlightError::Error("there is no such host function".to_owned()))
        },
    )?;
    register_sources(target, binding)
}

/// Registers the functions that return the source of a module when it is imported.
fn register_sources(target: &mut impl Registerable, binding: &Arc<RunBinding>) -> Result<(), HyperlightError> {
    let missing = || HyperlightError::Error("there is no such module".to_owned());
    let owner = Arc::clone(binding);
    target.register_host_function("ResolveModule", move |_: String, name: String| -> Result<String, HyperlightError> {
        if owner.dispatch(|run| run.knows(&name))? { Ok(name) } else { Err(missing()) }
    })?;
    let owner = Arc::clone(binding);
    target.register_host_function("LoadModule", move |name: String| owner.dispatch(|run| run.load(&name))?.ok_or_else(missing))
}

/// Registers the functions for random bytes and time. Every run requests both from the host, because the snapshot must contain neither
/// random bytes nor a time.
fn register_clock(target: &mut impl Registerable, binding: &Arc<RunBinding>) -> Result<(), HyperlightError> {
    let owner = Arc::clone(binding);
    target.register_host_function("HostRandom", move |count: u64| owner.dispatch(|run| run.random(count)))?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostElapsed", move || owner.dispatch(|run| micros(run.elapsed())))?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostStarted", move || owner.dispatch(|run| micros(run.started())))?;
    let owner = Arc::clone(binding);
    target.register_host_function("HostSleep", move |micros: u64| owner.dispatch(|run| run.sleep(Duration::from_micros(micros))))?;
    target.register_host_function("CurrentTimeMicros", || Ok(micros(since_epoch())))
}

/// Returns the current time since 1970.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
