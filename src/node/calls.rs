//! Calls that wait for JavaScript's thread. Node itself would handle up to a thousand queued calls before other work can run, and each of
//! them may cause further calls. So the calls wait in this queue instead of Node's.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use napi::bindgen_prelude::{Either3, Function, Uint8Array};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use tokio::sync::oneshot;

use super::call_queue::{Arrival, CallQueue};
use super::turns::at_turn_end;
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::sandbox::Wire;

/// The parts `[id, function, json, …blobs]` of a call. An empty list means that there is no call.
pub(super) type DispatchParts = Vec<Either3<u32, String, Uint8Array>>;

/// A function that wakes JavaScript for a module. It is weak, so that it does not keep Node from exiting.
type Wake = ThreadsafeFunction<(), (), DispatchParts, Status, false, true>;

/// A call that has not been started yet.
struct Request {
    id: u32,
    function: String,
    wire: Wire,
    module: Arc<Module>,
}

/// The connection of one module to its JavaScript dispatcher.
struct Module {
    wake: Wake,
    pending: Arc<Pending>,
}

/// All calls of one environment, from all gateways.
#[derive(Default)]
pub(super) struct Calls {
    modules: AtomicU64,
    queue: Mutex<CallQueue<Request>>,
}

impl Calls {
    fn queue(&self) -> MutexGuard<'_, CallQueue<Request>> {
        self.queue.lock()
    }

    /// Wakes JavaScript for the next call, if a call may start in this turn.
    fn wake(&self) {
        loop {
            let Some(module) = self.queue().wake().map(|request| Arc::clone(&request.module)) else { return };
            if module.wake.call((), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok {
                return;
            }
            // Waking fails because the environment is being torn down.
            self.leave(&module.pending);
        }
    }

    fn leave(&self, pending: &Pending) {
        let left = self.queue().leave(pending.module);
        pending.end();
        // The calls are dropped after the queue is unlocked, because dropping them may run other code.
        drop(left);
    }

    /// Starts a new turn, in which calls may start again.
    fn turn_ended(&self) {
        self.queue().turn_ended();
        self.wake();
    }

    /// Returns the next call whose run has not ended, or an empty list. This method runs on JavaScript's thread, which was woken for a
    /// module. When this call and its immediate follow-up work are done, JavaScript is woken again for the next call.
    fn begin(self: &Arc<Self>, env: &Env, pending: &Pending) -> DispatchParts {
        let arrival = self.queue().arrived(Instant::now());
        if arrival == Arrival::First {
            let calls = Arc::clone(self);
            at_turn_end(env, move || calls.turn_ended());
        }
        let mut parts = Vec::new();
        while arrival != Arrival::Late && parts.is_empty() {
            let Some(request) = self.queue().take(pending.module) else { break };
            if pending.is_waiting(request.id) {
                parts = spread(request);
            }
        }
        self.wake();
        parts
    }
}

fn spread(Request { id, function, wire, .. }: Request) -> DispatchParts {
    use Either3::{A, B, C};
    let blobs = wire.blobs.into_iter().map(|blob| C(Uint8Array::from(blob)));
    [A(id), B(function), B(wire.json)].into_iter().chain(blobs).collect()
}

/// The calls of one module that wait for their answers.
pub(super) struct Pending {
    module: u64,
    waiting: Mutex<PendingAnswers>,
}

/// The senders for answers, by the id of the call. `None` when the environment has ended.
struct PendingAnswers {
    next: u32,
    senders: Option<HashMap<u32, oneshot::Sender<Wire>>>,
}

impl Pending {
    pub(super) fn new(calls: &Calls) -> Self {
        let waiting = Mutex::new(PendingAnswers { next: 0, senders: Some(HashMap::new()) });
        Self { module: calls.modules.fetch_add(1, Ordering::Relaxed), waiting }
    }

    fn waiting(&self) -> MutexGuard<'_, PendingAnswers> {
        self.waiting.lock()
    }

    fn add(&self) -> Option<(u32, oneshot::Receiver<Wire>)> {
        let (sender, receiver) = oneshot::channel();
        let waiting = &mut *self.waiting();
        let id = waiting.next;
        waiting.senders.as_mut()?.insert(id, sender);
        waiting.next = id.wrapping_add(1);
        Some((id, receiver))
    }

    fn is_waiting(&self, id: u32) -> bool {
        self.waiting().senders.as_ref().is_some_and(|senders| senders.contains_key(&id))
    }

    fn remove(&self, id: u32) -> Option<oneshot::Sender<Wire>> {
        self.waiting().senders.as_mut()?.remove(&id)
    }

    pub(super) fn answer(&self, id: u32, wire: Wire) {
        if let Some(sender) = self.remove(id) {
            // Sending fails if the run has ended in the meantime.
            let _ = sender.send(wire);
        }
    }

    /// Ends all waiting calls.
    fn end(&self) {
        let senders = self.waiting().senders.take();
        drop(senders);
    }
}

/// Removes a call from the waiting calls when the caller drops its future.
struct RemoveOnDrop {
    pending: Arc<Pending>,
    id: u32,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        drop(self.pending.remove(self.id));
    }
}

/// Ends a module's calls when the module's dispatcher is dropped. At the latest, this happens when the environment ends.
struct Ends {
    calls: Arc<Calls>,
    pending: Arc<Pending>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.calls.leave(&self.pending);
        self.calls.wake();
    }
}

/// The dispatcher of one module's calls.
#[derive(Clone)]
pub(super) struct Dispatch {
    calls: Arc<Calls>,
    module: Arc<Module>,
}

impl Dispatch {
    pub(super) fn new(calls: Arc<Calls>, pending: Arc<Pending>, dispatch: &Function<DispatchParts, ()>) -> napi::Result<Self> {
        let ends = Ends { calls: Arc::clone(&calls), pending: Arc::clone(&pending) };
        let wake = dispatch.build_threadsafe_function::<()>().weak::<true>().callee_handled::<false>();
        let wake = wake.build_callback(move |context| Ok(ends.calls.begin(&context.env, &ends.pending)))?;
        Ok(Self { calls, module: Arc::new(Module { wake, pending }) })
    }

    /// Calls a function of the module and returns its answer.
    pub(super) async fn call(self, function: String, wire: Wire) -> Result<Wire> {
        let closed = || Error::Closed { what: "JavaScript environment" };
        let Self { calls, module } = self;
        let pending = Arc::clone(&module.pending);
        let (id, receiver) = pending.add().ok_or_else(closed)?;
        let _forget = RemoveOnDrop { pending: Arc::clone(&pending), id };
        calls.queue().push(pending.module, Request { id, function, wire, module });
        calls.wake();
        receiver.await.map_err(|_| closed())
    }
}
