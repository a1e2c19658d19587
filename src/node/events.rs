//! Events on their way to JavaScript, and outcomes after them: the two come there by different queues, whose order nothing promises, so an
//! outcome is only sent once what happened before it has been told.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::event_queue::{EventQueue, Source};
use super::turns::at_turn_end;
use crate::gateway::EventListener;
use crate::sandbox::{LogEntry, LogListener};

/// Told turns of events; weak, so that it does not keep Node from exiting.
type Listener = ThreadsafeFunction<Turn, (), Vec<String>, Status, false, true>;

/// One `onEvent`, as the glue wrapped it.
#[derive(Clone)]
pub(super) struct EventSink(Arc<Shared>);

struct Shared {
    listener: Listener,
    state: Arc<State>,
}

struct State {
    queue: Mutex<EventQueue>,
    /// The number of events that JavaScript was told of.
    told: watch::Sender<u64>,
}

impl State {
    fn queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock()
    }
}

/// The end of JavaScript's environment: nobody is told anything any more, and nobody waits for that.
struct Ends(Arc<State>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.told.send_replace(u64::MAX);
    }
}

/// Events that JavaScript is told of in one turn of its loop.
struct Turn {
    events: Vec<String>,
    count: u64,
    shared: Arc<Shared>,
}

impl Drop for Turn {
    /// Happens on JavaScript's thread, right before the call: what follows from it comes there after the call.
    fn drop(&mut self) {
        let count = self.count;
        self.shared.state.told.send_modify(|told| *told = told.saturating_add(count));
    }
}

impl Shared {
    /// Allows the next turn, and sends it.
    fn turn_ended(shared: &Arc<Self>) {
        shared.state.queue().turn_ended();
        Self::tell(shared);
    }

    /// Sends the next turn, where none is on its way.
    fn tell(shared: &Arc<Self>) {
        let Some(events) = shared.state.queue().next_turn() else { return };
        let turn = Turn { count: events.len() as u64, events, shared: Arc::clone(shared) };
        if shared.listener.call(turn, ThreadsafeFunctionCallMode::NonBlocking) != Status::Ok {
            // The environment is being torn down.
            shared.state.told.send_replace(u64::MAX);
        }
    }
}

impl EventSink {
    /// The sink behind a listener of the glue's, where one was given.
    pub(super) fn new(listener: Option<Function<Vec<String>, ()>>) -> napi::Result<Option<Self>> {
        let Some(listener) = listener else { return Ok(None) };
        let state = Arc::new(State { queue: Mutex::default(), told: watch::Sender::new(0) });
        // Dropped with the function, at the environment's end at the latest. What waits to be called then is never dropped.
        let ends = Ends(Arc::clone(&state));
        let listener = listener.build_threadsafe_function::<Turn>().weak::<true>().callee_handled::<false>();
        let listener = listener.build_callback(move |mut context| {
            let _held = &ends;
            let shared = Arc::clone(&context.value.shared);
            // However long the listener takes, others have their turn before it is told more.
            at_turn_end(&context.env, move || Shared::turn_ended(&shared));
            Ok(std::mem::take(&mut context.value.events))
        })?;
        Ok(Some(Self(Arc::new(Shared { listener, state }))))
    }

    fn send(&self, event: &Json) {
        let is_servers = matches!(event["type"].as_str(), Some("progress" | "server-log" | "resource-updated"));
        let source = if is_servers { Source::Server } else { Source::Ourselves };
        self.0.state.queue().push(event.to_string(), source);
        Shared::tell(&self.0);
    }

    /// Resolves once JavaScript has been told of all that was sent before.
    pub(super) async fn told(&self) {
        let sent = self.0.state.queue().sent();
        // The sender lives as long as this.
        let _ = self.0.state.told.subscribe().wait_for(|told| *told >= sent).await;
    }

    /// Hands on the log of a run.
    pub(super) fn log_listener(self, run: u64) -> LogListener {
        Arc::new(move |entry: &LogEntry| self.send(&json!({ "type": "log", "runId": run, "level": entry.level, "text": entry.text })))
    }

    /// Hands on events.
    pub(super) fn event_listener(self) -> EventListener {
        Arc::new(move |event| self.send(&event))
    }

    /// Tells what an operator should know.
    pub(super) fn warn(&self, message: &str) {
        self.send(&json!({ "type": "warning", "message": message }));
    }
}

/// Does something whose outcome is to come after the events that a sink was sent meanwhile.
pub(super) async fn after_events<T>(sink: Option<EventSink>, work: impl Future<Output = T>) -> T {
    let outcome = work.await;
    if let Some(sink) = sink {
        sink.told().await;
    }
    outcome
}
