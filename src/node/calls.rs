//! Calls on their way to JavaScript's thread. Node hands over up to a thousand calls that it is told of before anybody else has a turn, and
//! whoever waits for them tells it of more; so they wait here instead.

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
use crate::error::{Error, Result};
use crate::sandbox::Wire;

/// `[id, function, json, …blobs]`, or nothing.
pub(super) type DispatchParts = Vec<Either3<u32, String, Uint8Array>>;

/// Wakes JavaScript for a module. Weak: it does not keep Node from exiting.
type Wake = ThreadsafeFunction<(), (), DispatchParts, Status, false, true>;

/// A call that has not been begun.
struct Request {
    id: u32,
    function: String,
    wire: Wire,
    module: Arc<Module>,
}

/// One module's way to JavaScript.
struct Module {
    wake: Wake,
    pending: Arc<Pending>,
}

/// All calls of one environment, whoever's they are.
#[derive(Default)]
pub(super) struct Calls {
    modules: AtomicU64,
    queue: Mutex<CallQueue<Request>>,
}

impl Calls {
    fn queue(&self) -> MutexGuard<'_, CallQueue<Request>> {
        self.queue.lock()
    }

    /// Wakes JavaScript for the next call, where it may be begun in this turn.
    fn wake(&self) {
        loop {
            let Some(module) = self.queue().wake().map(|request| Arc::clone(&request.module)) else { return };
            if module.wake.call((), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok {
                return;
            }
            // The environment is being torn down.
            self.leave(&module.pending);
        }
    }

    fn leave(&self, pending: &Pending) {
        let left = self.queue().leave(pending.module);
        pending.end();
        // Not while the queue is locked: with them goes what they hold.
        drop(left);
    }

    /// Allows calls of a new turn.
    fn turn_ended(&self) {
        self.queue().turn_ended();
        self.wake();
    }

    /// Gives the next call whose run still goes on, or nothing, to JavaScript's thread, woken for a module. A call that waits after it is handed
    /// over once that is done, and what it left to be done at once.
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

/// Calls of one module that wait for their answer.
pub(super) struct Pending {
    module: u64,
    waiting: Mutex<Waiting>,
}

/// By id. Nothing any more once the environment has ended.
struct Waiting {
    next: u32,
    senders: Option<HashMap<u32, oneshot::Sender<Wire>>>,
}

impl Pending {
    pub(super) fn new(calls: &Calls) -> Self {
        let waiting = Mutex::new(Waiting { next: 0, senders: Some(HashMap::new()) });
        Self { module: calls.modules.fetch_add(1, Ordering::Relaxed), waiting }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
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
            // The receiver is gone where the run has ended meanwhile.
            let _ = sender.send(wire);
        }
    }

    /// Has nobody wait any more.
    fn end(&self) {
        let senders = self.waiting().senders.take();
        drop(senders);
    }
}

/// A call that is given up on is forgotten.
struct Forget {
    pending: Arc<Pending>,
    id: u32,
}

impl Drop for Forget {
    fn drop(&mut self) {
        drop(self.pending.remove(self.id));
    }
}

/// The end of a module's dispatcher, at that of the environment at the latest.
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

    /// Calls a function of the module, and gives what it answers.
    pub(super) async fn call(self, function: String, wire: Wire) -> Result<Wire> {
        let closed = || Error::Closed { what: "JavaScript environment" };
        let Self { calls, module } = self;
        let pending = Arc::clone(&module.pending);
        let (id, receiver) = pending.add().ok_or_else(closed)?;
        let _forget = Forget { pending: Arc::clone(&pending), id };
        calls.queue().push(pending.module, Request { id, function, wire, module });
        calls.wake();
        receiver.await.map_err(|_| closed())
    }
}
