//! What a run's guest can call: the host's side of `host:` modules, without knowing who answers.

use parking_lot::{Mutex, MutexGuard};
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

use super::alarm::{Alarm, Woken};
use super::deadline::{CallTime, Deadline, Outside, Pause};
use super::stop::Stop;
use super::value::{Value, Wire};
use crate::lead::{self, Source};

/// How long a runtime that ends may take from its timers' end to that of its tasks.
const END_OF_RUNTIME: Duration = Duration::from_secs(1);

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
    /// A value that is written already, as `{"value":…}`: what a run has handed over, or a part of it.
    Written(Wire),
    /// Becomes an `Error` in the guest.
    Throw {
        name: Option<String>,
        message: String,
        code: Option<String>,
    },
}

/// A call that was looked at.
pub enum HostAnswer {
    Ready(HostReply),
    /// The call is handed over when this is polled first, and given up when it is dropped.
    Later(Pin<Box<dyn Future<Output = HostReply> + Send>>),
}

/// Answers a run's calls.
pub trait HostFunctions: Send + Sync {
    /// Looks at a call. It must not block: calls that are outstanding together are started one after the other on the run's own thread, in
    /// the order of the guest's code, and what they wait for is in their futures. What has an effect on others is in there as well.
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
    /// The call that it was handed to; none for the run itself.
    call: Option<u64>,
    runtime: Handle,
    alive: Arc<OnceLock<RuntimeWatch>>,
    gave_up: Arc<AtomicBool>,
    /// Of the last wait: mostly the next one is on the same thread.
    alarm: Arc<Mutex<Option<Arc<Alarm>>>>,
}

impl RunControl {
    /// Of a run that ends by `stop` or at its deadline, and whose calls are the runtime's.
    #[must_use]
    pub fn new(stop: Stop, deadline: Deadline, runtime: Handle) -> Self {
        Self { stop, deadline, call: None, runtime, alive: Arc::default(), gave_up: Arc::default(), alarm: Arc::default() }
    }

    /// What is left of the run.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining()
    }

    /// Stops the run's clock until the pause is dropped: while a person is asked. It runs all the same while the guest works, or another of
    /// its calls does.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.deadline.pause_of(self.call)
    }

    /// The call waits for others of its run, until this is dropped: for what they wait, it does.
    #[must_use]
    pub fn wait_for_turn(&self) -> Pause {
        self.deadline.turn_of(self.call)
    }

    /// The control that a call is handed, and the call's time: to be kept until it has ended.
    pub(super) fn of_call(&self) -> (Self, CallTime) {
        let time = self.deadline.call();
        (Self { call: Some(time.key()), ..self.clone() }, time)
    }

    /// The guest waits for nothing but its calls, until this is dropped.
    pub(super) fn outside(&self) -> Outside<'_> {
        self.deadline.outside()
    }

    /// Waits on the run's thread for what happens on the runtime, until the run's end at most. The future is dropped
    /// when the run ends, which is how a pending call is cancelled.
    ///
    /// The future is driven by the run's own thread: what it can do at once costs no change of threads, and what it waits for is read by
    /// this thread, where that can be (`crate::lead`).
    ///
    /// # Errors
    /// [`Stopped`] when the run ended first.
    pub fn wait<F>(&self, future: F) -> Result<F::Output, Stopped>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Timers, sockets and tasks are the runtime's.
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
        let alarm = self.alarm();
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        loop {
            // First: timers panic once their runtime is gone.
            if ended.as_mut().poll(&mut context).is_ready() {
                return Err(Stopped);
            }
            // Before the time is read: no change in between goes unnoticed.
            let _ = changing.as_mut().poll(&mut context);
            let until = self.deadline.until();
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Stopped);
            }
            let polling = catch_unwind(AssertUnwindSafe(|| lead::accept(|| future.as_mut().poll(&mut context))));
            let (polled, source) = match polling {
                Ok(polled) => polled,
                // The runtime may have ended since it was looked at.
                Err(_) if ends_soon(&alarm, ended.as_mut(), &mut context) => return Err(Stopped),
                Err(panic) => resume_unwind(panic),
            };
            if let Poll::Ready(output) = polled {
                *self.kept_alarm() = Some(alarm);
                return Ok(output);
            }
            match source {
                Some(source) => read_until(&alarm, until, source, &mut context),
                None => alarm.wait(until),
            }
        }
    }

    /// This thread's.
    fn alarm(&self) -> Arc<Alarm> {
        let kept = self.kept_alarm().take();
        kept.filter(|kept| kept.is_of(std::thread::current().id())).unwrap_or_else(|| Arc::new(Alarm::new()))
    }

    fn kept_alarm(&self) -> MutexGuard<'_, Option<Arc<Alarm>>> {
        self.alarm.lock()
    }

    /// Polls a future on this thread, once, as a task of the runtime's would.
    pub(super) fn poll_once<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        self.within_runtime(|| Pin::new(future).poll(&mut Context::from_waker(Waker::noop())))
    }

    /// Does something on this thread that may need timers or tasks.
    pub(super) fn within_runtime<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
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

    /// Whether the run has ended from outside: it was stopped, its time is up, or something was given up because of that. Its guest may
    /// still say something: that no longer counts.
    pub(super) fn is_over(&self) -> bool {
        self.gave_up.load(Ordering::Acquire) || self.stop.reason().is_some() || self.deadline.remaining().is_zero()
    }
}

/// Waits until the alarm rings, or until then, and reads meanwhile what is mostly read elsewhere.
fn read_until(alarm: &Alarm, until: Option<Instant>, source: Arc<dyn Source>, context: &mut Context<'_>) {
    let lead = if alarm.has_bell() { source.lead() } else { None };
    let Some(mut lead) = lead else { return alarm.wait(until) };
    while !alarm.rings() && alarm.wait_beside(lead.descriptor(), until) == Woken::Readable && lead.read(context) {}
    drop(lead);
    alarm.hush();
}

/// Sees the end of a runtime: its tasks are dropped before its timers are.
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

/// Returns whether the run or its runtime ends within a moment.
fn ends_soon(alarm: &Alarm, mut ended: Pin<&mut impl Future<Output = ()>>, context: &mut Context<'_>) -> bool {
    let until = Instant::now() + END_OF_RUNTIME;
    loop {
        if ended.as_mut().poll(context).is_ready() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        alarm.wait(Some(until));
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

    /// Notes that it was dropped.
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
