//! Runs JavaScript in a micro-VM and returns its value. Host functions answer the calls of the code.
//!
//! This module does not depend on MCP. A [`Sandboxes`] boots a guest once, or loads the snapshot that another process has stored. Each run
//! gets its own VM, which starts from that snapshot, so a run finds no data of other runs. A few VMs are prepared in advance for the next
//! runs.

mod calls;
mod check_value;
mod compute_slots;
mod compute_time;
mod deadline;
mod exchange;
mod features;
mod frame;
mod guest;
mod host;
mod hypervisor;
mod image;
mod in_flight;
mod log;
mod module;
mod outcome;
mod pool;
mod reader;
mod run;
mod run_binding;
mod script;
mod snapshot_store;
mod sources;
mod stop;
mod thread_clock;
mod thread_waker;
mod value;
mod value_parts;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::Handle;

pub use compute_slots::{CodeOwner, ComputeSlots};
pub use deadline::{Deadline, Pause};
pub use features::GuestFeatures;
#[doc(hidden)]
pub use frame::{encode_reply, parse_arguments, value_frame};
pub use guest::{GuestChoice, GuestKind};
pub use host::{Arguments, HostAnswer, HostCall, HostFunctions, HostReply, RunControl, Stopped};
pub use hypervisor::HypervisorReport;
pub use image::Origin;
pub(crate) use image::reply_capacity;
pub use log::{LOG_CUT_MARK, LogEntry, LogLevel};
pub use module::{GuestModule, GuestModules, ModuleFunction};
pub use pool::WarmVms;
pub use reader::{ParseOwner, StillWanted, serve_reader};
pub use run::{LogListener, RunOutcome, RunRequest, RunStats};
pub use script::{Export, Importable, Problem, ProblemKind, check, is_function_type, to_javascript};
pub use stop::{Stop, StopReason};
pub use value::{Value, Wire};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::off_runtime::off_the_runtime;
use crate::redact::Redactor;
use image::GuestImage;
use pool::Pool;
use reader::{Asker, ScriptReader};
use run::RunContext;
use snapshot_store::SnapshotStore;

/// Boots the guest when it is first needed, and runs each piece of code in its own VM. A separate process parses the code first.
pub struct Sandboxes {
    choice: GuestChoice,
    limits: Arc<Limits>,
    /// The runtime's handle. It is `None` when no further run may start, because a handle keeps the runtime's file descriptors open.
    runtime: Mutex<Option<Handle>>,
    reader: ScriptReader,
    basic: Variant,
    fetch: Variant,
    kept: Option<SnapshotStore>,
}

/// The image for one set of features, and the VMs that start from it. The image is booted when the first run needs it.
struct Variant {
    features: GuestFeatures,
    image: OnceLock<Result<GuestImage>>,
    pool: Pool,
}

impl Variant {
    fn new(features: GuestFeatures, warm: WarmVms) -> Self {
        Self { features, image: OnceLock::new(), pool: Pool::new(warm) }
    }
}

impl Sandboxes {
    /// Returns sandboxes that have not booted a guest yet. `reader` is the path of `hyperlight-mcp-reader`. Snapshots are stored on disk
    /// only if [`Self::with_snapshots`] sets a folder.
    #[must_use]
    pub fn new(choice: GuestChoice, limits: Arc<Limits>, runtime: Handle, reader: impl Into<PathBuf>) -> Self {
        let warm = WarmVms::default();
        let (basic, fetch) = (Variant::new(GuestFeatures::Basic, warm), Variant::new(GuestFeatures::Fetch, warm));
        Self { choice, limits, runtime: Mutex::new(Some(runtime)), reader: ScriptReader::new(reader.into()), basic, fetch, kept: None }
    }

    /// Sets how many VMs are prepared in advance for each set of features that runs use.
    #[must_use]
    pub fn with_warm_vms(self, warm: WarmVms) -> Self {
        Self { basic: Variant::new(GuestFeatures::Basic, warm), fetch: Variant::new(GuestFeatures::Fetch, warm), ..self }
    }

    /// Sets the folder in which the guest's snapshot is stored for other processes. Only the current user may have access to the folder.
    #[must_use]
    pub fn with_snapshots(self, folder: impl Into<PathBuf>) -> Self {
        Self { kept: Some(SnapshotStore::new(folder.into())), ..self }
    }

    /// Boots the guest if necessary, and starts to prepare VMs for the next runs that need no features. The first boot blocks for 100 to
    /// 400 ms, mostly for the guest's heap. Loading a stored snapshot takes a few milliseconds.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR` if none of the chosen guests boots on this machine; `ERR_IO` if the reader program cannot be started.
    pub fn boot(&self) -> Result<GuestKind> {
        self.reader.warm_up()?;
        let image = self.image(&self.basic)?;
        self.basic.pool.fill(image);
        Ok(image.kind())
    }

    /// Boots the guest if necessary. Reports whether a guest boots on this machine. If none does, reports the reason.
    #[must_use]
    pub fn report(&self, redactor: &Redactor) -> HypervisorReport {
        hypervisor::report(self.booted(&self.basic), redactor)
    }

    /// Runs code on the calling thread and returns its outcome.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> RunOutcome {
        self.run_for(&CodeOwner::default(), request)
    }

    /// Runs code like [`Self::run`]. The time for parsing counts against the owner's share of the reader. The guest executes in one of the
    /// owner's compute slots.
    #[must_use]
    pub fn run_for(&self, owner: &CodeOwner, request: RunRequest) -> RunOutcome {
        let runtime = self.runtime.lock().clone().ok_or(Error::Closed { what: "gateway" });
        let variant = self.variant(request.features);
        match runtime.and_then(|runtime| Ok((self.image(variant)?, runtime))) {
            Ok((image, runtime)) => self.run_context(image, &variant.pool, owner, &runtime).run(request),
            Err(error) => RunOutcome { value: Err(error), logs: Vec::new(), stats: RunStats::default() },
        }
    }

    /// Returns the number of VMs that are ready for a run.
    #[must_use]
    pub fn waiting_vms(&self) -> usize {
        self.basic.pool.waiting() + self.fetch.pool.waiting()
    }

    /// Returns the problems of code, like [`check`]. Blocks while the code is parsed: usually a few milliseconds, and at most 5 s or until
    /// `wanted` returns false. Returns `None` if the code was not parsed: it is nested too deeply, took too long, or was interrupted for
    /// another owner's code.
    ///
    /// # Errors
    /// `ERR_IO` if the reader program cannot be started.
    pub fn check(&self, owner: &ParseOwner, code: &str, modules: &[Importable], wanted: StillWanted<'_>) -> Result<Option<Vec<Problem>>> {
        let look = || self.reader.check(code, modules, Asker { owner, wanted });
        // The call moves other tasks of this worker thread to another thread.
        off_the_runtime(look)
    }

    /// Returns the problems of the body of an async function, as sentences with line numbers. The problems are: syntax errors, a brace that
    /// ends the function, `import`, and names that are neither parameters nor declared nor among `globals`. Blocks like [`Self::check`],
    /// and returns `None` for the same reasons.
    ///
    /// # Errors
    /// `ERR_IO` if the reader program cannot be started.
    pub fn check_body(
        &self,
        owner: &ParseOwner,
        body: &str,
        parameters: &[&str],
        globals: &[&str],
        wanted: StillWanted<'_>,
    ) -> Result<Option<Vec<String>>> {
        self.reader.check_body(body, parameters, globals, Asker { owner, wanted })
    }

    /// Ends the idle reader processes and the VMs that were prepared in advance. New ones are started for the next run.
    pub fn rest(&self) {
        self.reader.rest();
        self.basic.pool.rest();
        self.fetch.pool.rest();
    }

    /// Ends the idle reader processes and the VMs that were prepared in advance, permanently. Runs in progress continue.
    pub fn close(&self) {
        self.reader.close();
        self.basic.pool.close();
        self.fetch.pool.close();
    }

    /// Releases the runtime, so that no further run can start.
    pub fn end(&self) {
        self.runtime.lock().take();
    }

    fn run_context<'a>(&'a self, image: &'a GuestImage, pool: &'a Pool, owner: &'a CodeOwner, runtime: &'a Handle) -> RunContext<'a> {
        RunContext { image, pool, reader: &self.reader, owner, limits: &self.limits, runtime }
    }

    fn variant(&self, features: GuestFeatures) -> &Variant {
        match features {
            GuestFeatures::Basic => &self.basic,
            GuestFeatures::Fetch => &self.fetch,
        }
    }

    fn booted<'a>(&self, variant: &'a Variant) -> &'a Result<GuestImage> {
        variant.image.get_or_init(|| hypervisor::boot(self.choice, variant.features, &self.limits, self.kept.as_ref()))
    }

    fn image<'a>(&self, variant: &'a Variant) -> Result<&'a GuestImage> {
        self.booted(variant).as_ref().map_err(Clone::clone)
    }
}
