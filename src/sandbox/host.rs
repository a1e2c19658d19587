//! The host's side of a guest's calls to functions of `host:` modules.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deadline::{CallTime, Deadline, GuestWaiting, Pause};
use super::stop::Stop;
use super::thread_waker::ThreadWaker;
use super::value::{Value, Wire};

/// Longest wait for a sign that the run or the runtime has ended, after the polling of a future has panicked. After this time, the panic is
/// passed on.
const END_OF_RUNTIME: Duration = Duration::from_secs(1);

/// A call from the guest.
#[derive(Debug)]
pub struct HostCall {
    /// The module without its prefix: `mcp-weather` for `host:mcp-weather`.
    pub module: String,
    pub function: String,
    pub arguments: Arguments,
}

/// The arguments of a call, or the reason why there are no arguments.
#[derive(Debug)]
pub enum Arguments {
    Given(Vec<Value>),
    /// The arguments were too large to be sent by the guest. Contains their size in bytes.
    Oversize(usize),
    /// The arguments cannot be parsed, for example because they have more than 127 nesting levels.
    Invalid(String),
}

/// The reply that the guest gets.
#[derive(Debug, Clone, PartialEq)]
pub enum HostReply {
    Value(Value),
    /// A value that is already serialised as `{"value":…}`: the value of an earlier run, or a part of such a value.
    Written(Wire),
    /// An exception. It becomes an `Error` in the guest.
    Throw {
        name: Option<String>,
        message: String,
        code: Option<String>,
    },
}

/// The answer to a call. It is either known already or must be awaited.
pub enum HostAnswer {
    Ready(HostReply),
    /// A future of the reply. The first poll of the future sends the call, and dropping the future cancels the call.
    Later(Pin<Box<dyn Future<Output = HostReply> + Send>>),
}

/// Answers the calls of a run.
pub trait HostFunctions: Send + Sync {
    /// Starts a call. This function must not block, because the run's thread starts concurrent calls one after another, in the order of the
    /// guest's code. Only the returned future may wait or have effects outside of this process.
    fn start(self: Arc<Self>, call: HostCall, control: &RunControl) -> HostAnswer;
}

/// The error of a wait that ended because its run was ended. The guest of that run is being stopped too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Controls a run: its deadline, and its stop signal.
#[derive(Debug, Clone)]
pub struct RunControl {
    stop: Stop,
    deadline: Deadline,
    /// The call to which this control belongs. `None` for the run itself.
    call: Option<u64>,
    runtime: Handle,
    alive: Arc<OnceLock<RuntimeWatch>>,
    gave_up: Arc<AtomicBool>,
}

impl RunControl {
    /// Returns the control of a run that ends when `stop` is triggered or the deadline is reached. The run's calls use `runtime`.
    #[must_use]
    pub fn new(stop: Stop, deadline: Deadline, runtime: Handle) -> Self {
        Self { stop, deadline, call: None, runtime, alive: Arc::default(), gave_up: Arc::default() }
    }

    /// Returns the remaining time of the run.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining()
    }

    /// Stops the run's clock while a person is asked, until the returned value is dropped. The clock continues while the guest or another
    /// call of the run works.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.deadline.pause_of(self.call)
    }

    /// Returns a function that returns whether the run's clock is running. The clock stops while the run only waits for a person.
    pub fn going_on(&self) -> impl Fn() -> bool + Send + Sync + 'static + use<> {
        let deadline = self.deadline.clone();
        move || deadline.until().is_some()
    }

    /// Marks the call as waiting for other calls of its run, until the returned value is dropped. During this time, the clock can stop if
    /// those calls wait for a person.
    #[must_use]
    pub fn wait_for_turn(&self) -> Pause {
        self.deadline.turn_of(self.call)
    }

    /// Returns a control for one call, and a guard that must be kept until the call ends.
    pub(super) fn of_call(&self) -> (Self, CallTime) {
        let time = self.deadline.call();
        (Self { call: Some(time.key()), ..self.clone() }, time)
    }

    /// Marks the guest as waiting only for its calls, until the returned guard is dropped.
    pub(super) fn outside(&self) -> GuestWaiting<'_> {
        self.deadline.outside()
    }

    /// Waits for a future, at most until the run ends. When the run ends, the future is dropped, which cancels a pending call.
    ///
    /// The run's own thread polls the future, which avoids a thread switch.
    ///
    /// # Errors
    /// [`Stopped`] if the run ends first.
    pub fn wait<F>(&self, future: F) -> Result<F::Output, Stopped>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Timers, sockets and tasks need the runtime's context.
        let _entered = self.runtime.enter();
        self.drive(future).inspect_err(|_| self.gave_up.store(true, Ordering::Release))
    }

    fn drive<F: Future>(&self, future: F) -> Result<F::Output, Stopped> {
        let alive = self.alive.get_or_init(|| RuntimeWatch::start(&self.runtime));
        let ended = async {
            tokio::select! {
                biased;
                () = self.stop.stopped() => {}
                () = alive.ended() => {}
            }
        };
        let mut ended = pin!(ended);
        let mut changing = pin!(self.deadline.changing());
        let mut future = pin!(future);
        let thread_waker = Arc::new(ThreadWaker::new());
        let waker = Waker::from(Arc::clone(&thread_waker));
        let mut context = Context::from_waker(&waker);
        loop {
            // This is checked first, because tokio's timers panic after their runtime has ended.
            if ended.as_mut().poll(&mut context).is_ready() {
                return Err(Stopped);
            }
            // `changing` is polled before the time is read, so that a change between these two steps is noticed.
            let _ = changing.as_mut().poll(&mut context);
            let until = self.deadline.until();
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Stopped);
            }
            let polling = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
            match polling {
                Ok(Poll::Ready(output)) => return Ok(output),
                Ok(Poll::Pending) => thread_waker.wait(until),
                // The runtime may have ended since it was checked above.
                Err(_) if ends_soon(&thread_waker, ended.as_mut(), &mut context) => return Err(Stopped),
                Err(panic) => resume_unwind(panic),
            }
        }
    }

    /// Polls a future once on this thread, within the runtime's context.
    pub(super) fn poll_once<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        self.within_runtime(|| Pin::new(future).poll(&mut Context::from_waker(Waker::noop())))
    }

    /// Does work on this thread within the runtime's context. The work may need timers or tasks of the runtime.
    pub(super) fn within_runtime<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
    }

    /// Spawns a future on the runtime, and drops it when the run ends.
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

    /// Returns whether the run was ended from outside: it was stopped, its time is over, or a wait was cancelled for one of these reasons.
    /// From then on, messages of its guest are ignored.
    pub(super) fn is_over(&self) -> bool {
        self.gave_up.load(Ordering::Acquire) || self.stop.reason().is_some() || self.deadline.remaining().is_zero()
    }
}

/// Detects the end of a runtime. The runtime drops its tasks before its timers end, so the drop of a task shows the end of the runtime
/// early enough.
#[derive(Debug)]
struct RuntimeWatch {
    gone: CancellationToken,
    task: AbortHandle,
}

impl RuntimeWatch {
    fn start(runtime: &Handle) -> Self {
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let task = runtime.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        Self { gone, task: task.abort_handle() }
    }

    async fn ended(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns whether the run or its runtime ends within [`END_OF_RUNTIME`].
fn ends_soon(thread_waker: &ThreadWaker, mut ended: Pin<&mut impl Future<Output = ()>>, context: &mut Context<'_>) -> bool {
    let until = Instant::now() + END_OF_RUNTIME;
    loop {
        if ended.as_mut().poll(context).is_ready() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread_waker.wait(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::stop::StopReason;
    use tokio::runtime::{Builder, Runtime};

    const LONG: Duration = Duration::from_hours(1);

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    fn control(runtime: &Runtime, stop: &Stop, timeout: Duration) -> RunControl {
        RunControl::new(stop.clone(), Deadline::after(timeout), runtime.handle().clone())
    }

    /// Sets a flag when it is dropped.
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn what_is_ready_and_what_the_runtime_does_is_waited_for_on_this_thread() {
        let runtime = runtime();
        let control = control(&runtime, &Stop::new(), LONG);
        let here = std::thread::current().id();
        let output = control.wait(async move {
            let elsewhere = tokio::spawn(async { std::thread::current().id() }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            (std::thread::current().id() == here, elsewhere == here)
        });
        assert_eq!(output, Ok((true, false)));
        assert!(!control.is_over());
    }

    #[test]
    fn a_stop_from_another_thread_and_the_deadline_end_a_wait_and_drop_what_was_waited_for() {
        let runtime = runtime();
        let (stop, dropped) = (Stop::new(), Arc::new(AtomicBool::new(false)));
        let waiting = Dropped(Arc::clone(&dropped));
        let stopping = stop.clone();
        runtime.spawn(async move { stopping.stop(StopReason::Aborted) });
        let never = async move {
            let _waiting = waiting;
            std::future::pending::<()>().await;
        };
        let control_of_stop = control(&runtime, &stop, LONG);
        assert_eq!(control_of_stop.wait(never), Err(Stopped));
        assert!(dropped.load(Ordering::Acquire) && control_of_stop.is_over());
        let short = control(&runtime, &Stop::new(), Duration::from_millis(5));
        assert_eq!(short.wait(std::future::pending::<()>()), Err(Stopped));
    }

    #[test]
    fn a_deadline_that_stands_does_not_end_a_wait() {
        let runtime = runtime();
        let control = control(&runtime, &Stop::new(), Duration::from_millis(5));
        let (_outside, pause) = (control.outside(), control.pause());
        let waited = control.wait(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(pause);
            std::future::pending::<()>().await;
        });
        assert_eq!(waited, Err(Stopped), "only after the pause");
    }

    #[test]
    fn the_end_of_the_runtime_ends_a_wait() {
        let runtime = runtime();
        let control = control(&runtime, &Stop::new(), LONG);
        let (begun, began) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            control.wait(async move {
                begun.send(()).unwrap();
                tokio::time::sleep(LONG).await;
            })
        });
        began.recv().unwrap();
        runtime.shutdown_background();
        assert_eq!(waiting.join().unwrap(), Err(Stopped));
    }
}
