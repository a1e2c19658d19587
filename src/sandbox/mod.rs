//! The micro-VM runs JavaScript and returns a value. Host functions answer the calls of the code.
//!
//! This module does not depend on MCP. A [`Sandboxes`] boots a guest once, or loads the snapshot that another process has kept. Each run
//! gets its own VM from that snapshot, so a run finds no data of another run. A few VMs are kept ready for the next runs.

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
mod thread_waker;
mod value;
mod value_parts;
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
pub use reader::{ParseOwner, StillWanted, serve_reader};
pub use run::{LogListener, RunOutcome, RunRequest, RunStats};
pub use script::{Export, Importable, Problem, ProblemKind, check, is_function_type, to_javascript};
pub use stop::{Stop, StopReason};
pub use value::{Value, Wire};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::redact::Redactor;
use image::GuestImage;
use pool::Pool;
use reader::{Asker, ScriptReader};
use run::RunContext;
use snapshot_store::SnapshotStore;

/// Boots the guest at its first use, and runs each piece of code in its own VM. A separate process parses the code first.
pub struct Sandboxes {
    choice: GuestChoice,
    limits: Arc<Limits>,
    /// `None` once no further run may start. A handle keeps the runtime's file descriptors open.
    runtime: Mutex<Option<Handle>>,
    reader: ScriptReader,
    image: OnceLock<Result<GuestImage>>,
    pool: Pool,
    kept: Option<SnapshotStore>,
}

impl Sandboxes {
    /// Returns sandboxes that have not booted yet. `reader` is the path of `hyperlight-mcp-reader`. Snapshots are only kept on disk if
    /// [`Self::with_snapshots`] sets a folder.
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
        Self { kept: Some(SnapshotStore::new(folder.into())), ..self }
    }

    /// Boots the guest if necessary, and starts to make VMs for the next runs. The first boot blocks for 100 to 400 ms, most of it for the
    /// heap. Loading a kept snapshot takes a few milliseconds.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR` if no guest of the choice boots on this machine; `ERR_IO` if the reader program cannot be started.
    pub fn boot(&self) -> Result<GuestKind> {
        self.reader.warm_up()?;
        let image = self.image()?;
        self.pool.fill(image);
        Ok(image.kind())
    }

    /// Boots the guest if necessary, and returns whether a guest boots on this machine, or the reason why not.
    #[must_use]
    pub fn report(&self, redactor: &Redactor) -> HypervisorReport {
        hypervisor::report(self.booted(), redactor)
    }

    /// Runs code on the calling thread and returns its outcome.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> RunOutcome {
        self.run_for(&ParseOwner::default(), request)
    }

    /// Runs code like [`Self::run`]. The time to parse the code counts against the owner's share of the reader.
    #[must_use]
    pub fn run_for(&self, owner: &ParseOwner, request: RunRequest) -> RunOutcome {
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

    /// Returns the problems of code, like [`check`]. It blocks while the code is parsed: usually a few milliseconds, at most 5 s, or until
    /// `wanted` returns false. `None` means that the code was not parsed: it nests too deeply, took too long, or gave way to another
    /// owner's code.
    ///
    /// # Errors
    /// `ERR_IO` if the reader program cannot be started.
    pub fn check(&self, owner: &ParseOwner, code: &str, modules: &[Importable], wanted: StillWanted<'_>) -> Result<Option<Vec<Problem>>> {
        let look = || self.reader.check(code, modules, Asker { owner, wanted });
        // The runtime moves the other tasks of this worker thread to another thread.
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

    /// Releases the runtime, so that no further run can start.
    pub fn end(&self) {
        self.runtime.lock().take();
    }

    fn run_context<'a>(&'a self, image: &'a GuestImage, owner: &'a ParseOwner, runtime: &'a Handle) -> RunContext<'a> {
        RunContext { image, pool: &self.pool, reader: &self.reader, owner, limits: &self.limits, runtime }
    }

    fn booted(&self) -> &Result<GuestImage> {
        self.image.get_or_init(|| hypervisor::boot(self.choice, &self.limits, self.kept.as_ref()))
    }

    fn image(&self) -> Result<&GuestImage> {
        self.booted().as_ref().map_err(Clone::clone)
    }
}
