//! What a run's guest can call: the host's side of `host:` modules, without knowing who answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::deadline::{Deadline, Outside, Pause};
use super::stop::Stop;
use super::value::Value;

/// A call that left the guest.
#[derive(Debug)]
pub struct HostCall {
    /// The module without its prefix: `mcp-weather` for `host:mcp-weather`.
    pub module: String,
    pub function: String,
    pub arguments: Arguments,
}

/// A call's arguments, or how large they were where they could not leave the guest.
#[derive(Debug)]
pub enum Arguments {
    Given(Vec<Value>),
    Oversize(usize),
    /// They cannot be read: more than 127 levels, for example.
    Invalid(String),
}

/// What goes back into the guest.
#[derive(Debug, Clone, PartialEq)]
pub enum HostReply {
    Value(Value),
    /// Becomes an `Error` in the guest.
    Throw {
        name: Option<String>,
        message: String,
        code: Option<String>,
    },
}

/// A call that was started.
pub enum HostAnswer {
    Ready(HostReply),
    /// Dropping the future gives the call up.
    Later(Pin<Box<dyn Future<Output = HostReply> + Send>>),
}

/// Answers a run's calls.
pub trait HostFunctions: Send + Sync {
    /// Starts a call. It must not block: calls that are outstanding together are started one after the other on the run's own thread, in
    /// the order of the guest's code, and what they wait for is in their futures.
    fn start(self: Arc<Self>, call: HostCall, control: &RunControl) -> HostAnswer;
}

/// The run was ended while something was waited for; the guest is ended as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// A run's deadline and its end from outside.
#[derive(Debug, Clone)]
pub struct RunControl {
    stop: Stop,
    deadline: Deadline,
    runtime: Handle,
    gave_up: Arc<AtomicBool>,
}

impl RunControl {
    pub(super) fn new(stop: Stop, deadline: Deadline, runtime: Handle) -> Self {
        Self { stop, deadline, runtime, gave_up: Arc::default() }
    }

    /// What is left of the run.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining()
    }

    /// Stops the run's clock until the pause is dropped: while a person is asked. It runs all the same while the guest works, as it may
    /// where a call is one of several.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.deadline.pause()
    }

    /// The guest waits outside of its VM, until this is dropped.
    pub(super) fn outside(&self) -> Outside<'_> {
        self.deadline.outside()
    }

    /// Waits on the run's thread for what happens on the runtime, until the run's end at most. The future is dropped
    /// when the run ends, which is how a pending call is cancelled.
    ///
    /// # Errors
    /// [`Stopped`] when the run ended first.
    pub fn wait<F>(&self, future: F) -> Result<F::Output, Stopped>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.spawn(async move {
            // The receiver is gone only if the run's thread is.
            let _ = sender.send(future.await);
        });
        // Not `Handle::block_on`: that panics when the runtime shuts down, this ends with an error.
        receiver.blocking_recv().map_err(|_| {
            self.gave_up.store(true, Ordering::Release);
            Stopped
        })
    }

    /// Does something on the runtime, until the run's end at most: then it is dropped.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let (stop, deadline) = (self.stop.clone(), self.deadline.clone());
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = stop.stopped() => {}
                () = deadline.passed() => {}
                () = future => {}
            }
        });
    }

    /// Whether something was given up because the run ended. Its guest may still say something: that no longer counts.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }
}
