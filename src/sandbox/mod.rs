//! The micro-VM: it runs JavaScript and returns a value. Host functions answer the calls in between.
//!
//! This room knows nothing of MCP. A [`Sandboxes`] boots a guest once, or loads the snapshot that another process kept. Each run gets a VM
//! of its own from that snapshot, so no run finds anything of another. A few VMs are kept ready for the next runs.

mod alarm;
mod calls;
mod check_value;
mod deadline;
mod exchange;
mod frame;
mod guest;
mod host;
mod hypervisor;
mod image;
mod in_flight;
mod kept;
mod log;
mod module;
mod outcome;
mod pool;
mod reader;
mod run;
mod run_binding;
mod script;
mod sources;
mod stop;
mod value;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

pub use deadline::{Deadline, Pause};
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
pub use reader::{LookOwner, StillWanted, serve_reader};
pub use run::{LogListener, RunOutcome, RunRequest, RunStats};
pub use script::{Export, Importable, Problem, ProblemKind, check, is_function_type, to_javascript};
pub use stop::{Stop, StopReason};
pub use value::{Value, Wire};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::redact::Redactor;
use image::GuestImage;
use kept::KeptSnapshots;
use pool::Pool;
use reader::{Asker, ScriptReader};
use run::RunContext;

/// Boots the guest at its first use, and runs each piece of code in a VM of its own. A separate process parses the code first.
pub struct Sandboxes {
    choice: GuestChoice,
    limits: Arc<Limits>,
    /// `None` once nothing runs any more: a handle keeps the runtime's descriptors open.
    runtime: Mutex<Option<Handle>>,
    reader: ScriptReader,
    image: OnceLock<Result<GuestImage>>,
    pool: Pool,
    kept: Option<KeptSnapshots>,
}

impl Sandboxes {
    /// Returns sandboxes that have not booted yet. `reader` is the path of `hyperlight-mcp-reader`. No snapshot is kept on disk unless
    /// [`Self::with_snapshots`] names a folder.
    #[must_use]
    pub fn new(choice: GuestChoice, limits: Arc<Limits>, runtime: Handle, reader: impl Into<PathBuf>) -> Self {
        let (reader, pool) = (ScriptReader::new(reader.into()), Pool::new(WarmVms::default()));
        Self { choice, limits, runtime: Mutex::new(Some(runtime)), reader, image: OnceLock::new(), pool, kept: None }
    }

    /// Sets how many VMs are kept ready.
    #[must_use]
    pub fn with_warm_vms(self, warm: WarmVms) -> Self {
        Self { pool: Pool::new(warm), ..self }
    }

    /// Sets the folder in which the guest's snapshot is kept for other processes. Only the user may access it.
    #[must_use]
    pub fn with_snapshots(self, folder: impl Into<PathBuf>) -> Self {
        Self { kept: Some(KeptSnapshots::new(folder.into())), ..self }
    }

    /// Boots the guest if necessary, and starts to make VMs for the next runs. The first boot blocks for 100 to 400 ms, most of it for the
    /// heap; loading a kept snapshot takes a few milliseconds.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR` where no guest of the choice boots here; `ERR_IO` where the program that reads code cannot be started.
    pub fn boot(&self) -> Result<GuestKind> {
        self.reader.warm_up()?;
        let image = self.image()?;
        self.pool.fill(image);
        Ok(image.kind())
    }

    /// Returns whether a guest boots here, and if not, why. Boots it to find out.
    #[must_use]
    pub fn report(&self, redactor: &Redactor) -> HypervisorReport {
        hypervisor::report(self.booted(), redactor)
    }

    /// Runs code on the calling thread and returns its outcome.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> RunOutcome {
        self.run_for(&LookOwner::default(), request)
    }

    /// Like [`Self::run`], and parses the code within the owner's share of the reader.
    #[must_use]
    pub fn run_for(&self, owner: &LookOwner, request: RunRequest) -> RunOutcome {
        let runtime = self.runtime.lock().clone().ok_or(Error::Closed { what: "gateway" });
        match runtime.and_then(|runtime| Ok((self.image()?, runtime))) {
            Ok((image, runtime)) => self.run_context(image, owner, &runtime).run(request),
            Err(error) => RunOutcome { value: Err(error), logs: Vec::new(), stats: RunStats::default() },
        }
    }

    /// Returns how many VMs are ready for a run.
    #[must_use]
    pub fn waiting_vms(&self) -> usize {
        self.pool.waiting()
    }

    /// Returns the problems of code, like [`check`]. It blocks while the code is parsed: usually a few milliseconds, 5 s at most, and less
    /// once `wanted` returns false. `None` means that the code was not parsed: it nests too deeply, took too long, or gave way to another
    /// owner's code.
    ///
    /// # Errors
    /// `ERR_IO` where the program that reads code cannot be started.
    pub fn check(&self, owner: &LookOwner, code: &str, modules: &[Importable], wanted: StillWanted<'_>) -> Result<Option<Vec<Problem>>> {
        let look = || self.reader.check(code, modules, Asker { owner, wanted });
        // Other tasks of this worker thread move to another one.
        match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(look),
            _ => look(),
        }
    }

    /// Ends the idle reader processes and the VMs that are kept ready, until the next run.
    pub fn rest(&self) {
        self.reader.rest();
        self.pool.rest();
    }

    /// Ends the idle reader processes and the VMs that are kept ready, for good. Runs in progress continue.
    pub fn close(&self) {
        self.reader.close();
        self.pool.close();
    }

    /// Releases the runtime: no further run begins.
    pub fn end(&self) {
        self.runtime.lock().take();
    }

    fn run_context<'a>(&'a self, image: &'a GuestImage, owner: &'a LookOwner, runtime: &'a Handle) -> RunContext<'a> {
        RunContext { image, pool: &self.pool, reader: &self.reader, owner, limits: &self.limits, runtime }
    }

    fn booted(&self) -> &Result<GuestImage> {
        self.image.get_or_init(|| hypervisor::boot(self.choice, &self.limits, self.kept.as_ref()))
    }

    fn image(&self) -> Result<&GuestImage> {
        self.booted().as_ref().map_err(Clone::clone)
    }
}
