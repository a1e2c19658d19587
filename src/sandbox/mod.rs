//! The micro-VM: JavaScript in, a value out, with calls in between that somebody else answers.
//!
//! This room knows nothing of MCP. A [`Sandboxes`] boots a guest once, or loads the snapshot that another process kept, and gives
//! every run a VM of its own from it, so nothing of one run can be found by another. A few VMs wait, made ready, for the next run.

mod alarm;
mod calls;
mod deadline;
mod exchange;
mod frame;
mod guest;
mod handed;
mod host;
mod hypervisor;
mod image;
mod kept;
mod log;
mod module;
mod outcome;
mod pool;
mod reader;
mod run;
mod script;
mod seat;
mod sources;
mod stop;
mod underway;
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
pub use reader::{LookOwner, Wanted, serve_reader};
pub use run::{LogListener, RunOutcome, RunRequest, RunStats};
pub use script::{Export, Importable, Problem, ProblemKind, check, is_function_type, to_javascript};
pub use stop::{Stop, StopReason};
pub use value::{Value, Wire};

use crate::error::{Error, Result};
use crate::limits::Limits;
use image::GuestImage;
use kept::KeptSnapshots;
use pool::Pool;
use reader::{Asker, ScriptReader};
use run::Means;

/// Boots the guest when it is first needed, and runs code in VMs of their own. Code is read by a process of its own before.
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
    /// `reader` is the program `hyperlight-mcp-reader`. No snapshot is kept on disk unless [`Self::with_snapshots`] says where.
    #[must_use]
    pub fn new(choice: GuestChoice, limits: Arc<Limits>, runtime: Handle, reader: impl Into<PathBuf>) -> Self {
        let (reader, pool) = (ScriptReader::new(reader.into()), Pool::new(WarmVms::default()));
        Self { choice, limits, runtime: Mutex::new(Some(runtime)), reader, image: OnceLock::new(), pool, kept: None }
    }

    /// The same with so many VMs that wait.
    #[must_use]
    pub fn with_warm_vms(self, warm: WarmVms) -> Self {
        Self { pool: Pool::new(warm), ..self }
    }

    /// The same with a folder, of the user's alone, in which the guest's snapshot is kept for other processes.
    #[must_use]
    pub fn with_snapshots(self, folder: impl Into<PathBuf>) -> Self {
        Self { kept: Some(KeptSnapshots::new(folder.into())), ..self }
    }

    /// Boots the guest unless that has been done, and has VMs made for the next runs. Blocks for 100 to 400 ms the first time, most of
    /// it for the heap; for a few where the snapshot was kept.
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
    pub fn report(&self) -> HypervisorReport {
        hypervisor::report(self.booted())
    }

    /// Runs on the calling thread until the outcome.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> RunOutcome {
        self.run_for(&LookOwner::default(), request)
    }

    /// The same; its code is looked at within the owner's share.
    #[must_use]
    pub fn run_for(&self, owner: &LookOwner, request: RunRequest) -> RunOutcome {
        let runtime = self.runtime.lock().clone().ok_or(Error::Closed { what: "gateway" });
        match runtime.and_then(|runtime| Ok((self.image()?, runtime))) {
            Ok((image, runtime)) => self.means(image, owner, &runtime).run(request),
            Err(error) => RunOutcome { value: Err(error), logs: Vec::new(), stats: RunStats::default() },
        }
    }

    /// How many VMs wait for a run, made ready.
    #[must_use]
    pub fn waiting_vms(&self) -> usize {
        self.pool.waiting()
    }

    /// What is wrong with code, as [`check`] tells it. Blocks for as long as the look takes: a few milliseconds, and 5 s at most for
    /// code that has no end for a parser; less where the answer is not wanted any more. `None` for code that was not looked at: it
    /// nests too deeply, has no end for a parser, or gave way to another owner's.
    ///
    /// # Errors
    /// `ERR_IO` where the program that reads code cannot be started.
    pub fn check(&self, owner: &LookOwner, code: &str, modules: &[Importable], wanted: Wanted<'_>) -> Result<Option<Vec<Problem>>> {
        let look = || self.reader.check(code, modules, Asker { owner, wanted });
        // What else waits for the thread of a runtime goes on at another one.
        match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(look),
            _ => look(),
        }
    }

    /// Ends what waits to read code and to run it, until there is some again.
    pub fn rest(&self) {
        self.reader.rest();
        self.pool.rest();
    }

    /// Ends what waits to read code and to run it, for good. What runs goes on.
    pub fn close(&self) {
        self.reader.close();
        self.pool.close();
    }

    /// Lets go of the runtime: no run begins any more.
    pub fn end(&self) {
        self.runtime.lock().take();
    }

    fn means<'a>(&'a self, image: &'a GuestImage, owner: &'a LookOwner, runtime: &'a Handle) -> Means<'a> {
        Means { image, pool: &self.pool, reader: &self.reader, owner, limits: &self.limits, runtime }
    }

    fn booted(&self) -> &Result<GuestImage> {
        self.image.get_or_init(|| hypervisor::boot(self.choice, &self.limits, self.kept.as_ref()))
    }

    fn image(&self) -> Result<&GuestImage> {
        self.booted().as_ref().map_err(Clone::clone)
    }
}
