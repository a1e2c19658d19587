//! The micro-VM: JavaScript in, a value out, with calls in between that somebody else answers.
//!
//! This room knows nothing of MCP. A [`Sandboxes`] boots a guest once and gives every run a new VM from its snapshot,
//! so nothing of one run can be found by another.

mod calls;
mod deadline;
mod frame;
mod guest;
mod host;
mod hypervisor;
mod image;
mod module;
mod outcome;
mod reader;
mod run;
mod script;
mod stop;
mod value;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Handle, RuntimeFlavor};

pub use deadline::{Deadline, Pause};
#[doc(hidden)]
pub use frame::{encode_reply, parse_arguments, value_frame};
pub use guest::{GuestChoice, GuestKind};
pub use host::{Arguments, HostCall, HostFunctions, HostReply, RunControl, Stopped};
pub use hypervisor::HypervisorReport;
pub(crate) use image::reply_capacity;
pub use module::{GuestModule, ModuleFunction};
pub use reader::{Wanted, serve_reader};
pub use run::{LogEntry, LogListener, RunOutcome, RunRequest, RunStats};
pub use script::{Export, Importable, Problem, ProblemKind, check, is_function_type, to_javascript};
pub use stop::{Stop, StopReason};
pub use value::{Value, Wire};

use crate::error::Result;
use crate::limits::Limits;
use image::GuestImage;
use reader::ScriptReader;

/// Boots the guest when it is first needed, and runs code in VMs of their own. Code is read by a process of its own before.
pub struct Sandboxes {
    choice: GuestChoice,
    limits: Arc<Limits>,
    runtime: Handle,
    reader: ScriptReader,
    image: OnceLock<Result<GuestImage>>,
}

impl Sandboxes {
    /// `reader` is the program `hyperlight-mcp-reader`.
    #[must_use]
    pub fn new(choice: GuestChoice, limits: Arc<Limits>, runtime: Handle, reader: impl Into<PathBuf>) -> Self {
        Self { choice, limits, runtime, reader: ScriptReader::new(reader.into()), image: OnceLock::new() }
    }

    /// Boots the guest unless that has been done. Blocks for 20 to 60 ms the first time.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR` where no guest of the choice boots here; `ERR_IO` where the program that reads code cannot be started.
    pub fn boot(&self) -> Result<GuestKind> {
        self.reader.warm_up()?;
        self.image().map(GuestImage::kind)
    }

    /// Whether a guest boots here, and if not, why. Boots it to find out.
    #[must_use]
    pub fn report(&self) -> HypervisorReport {
        hypervisor::report(self.image.get_or_init(|| hypervisor::boot(self.choice, &self.limits)))
    }

    /// Runs on the calling thread until the outcome.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> RunOutcome {
        match self.image() {
            Ok(image) => run::run(image, &self.reader, &self.limits, &self.runtime, request),
            Err(error) => RunOutcome { value: Err(error), logs: Vec::new(), stats: RunStats::default() },
        }
    }

    /// What is wrong with code, as [`check`] tells it. Blocks for as long as the look takes: a few milliseconds, and 5 s at most for
    /// code that has no end for a parser, of which nothing is told; less where the answer is not wanted any more.
    ///
    /// # Errors
    /// `ERR_IO` where the program that reads code cannot be started.
    pub fn check(&self, code: &str, modules: &[Importable], wanted: Wanted<'_>) -> Result<Vec<Problem>> {
        let look = || self.reader.check(code, modules, wanted);
        // What else waits for the thread of a runtime goes on at another one.
        match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(look),
            _ => look(),
        }
    }

    /// Ends what waits to read code, until there is some again.
    pub fn rest(&self) {
        self.reader.rest();
    }

    /// Ends what waits to read code, for good. What runs goes on.
    pub fn close(&self) {
        self.reader.close();
    }

    fn image(&self) -> Result<&GuestImage> {
        self.image.get_or_init(|| hypervisor::boot(self.choice, &self.limits)).as_ref().map_err(Clone::clone)
    }
}
