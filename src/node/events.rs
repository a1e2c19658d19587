//! Sends events to JavaScript, and makes the outcomes of promises wait for earlier events. Node has separate queues for events and
//! outcomes, without a common order. So an outcome is sent only after JavaScript has received the earlier events.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::event_queue::{EventQueue, Source};
use super::turns::at_turn_end;
use hyperlight_mcp::gateway::EventListener;
use hyperlight_mcp::sandbox::{LogEntry, LogListener};

/// Calls a JavaScript listener with the events of a turn. It is weak, so that it does not keep Node from exiting.
type Listener = ThreadsafeFunction<Turn, (), Vec<String>, Status, false, true>;

/// One `onEvent` callback, wrapped by the glue code.
#[derive(Clone)]
pub(super) struct EventSink(Arc<Shared>);

struct Shared {
    listener: Listener,
    state: Arc<State>,
}

struct State {
    queue: Mutex<EventQueue>,
    /// The number of events that JavaScript has received.
    told: watch::Sender<u64>,
}

impl State {
    fn queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock()
    }
}

/// Dropped when the environment ends. From then on, no events are delivered, and no outcome waits for the delivery of events.
struct Ends(Arc<State>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.told.send_replace(u64::MAX);
    }
}

/// The events that JavaScript receives in one turn of its event loop.
struct Turn {
    events: Vec<String>,
    count: u64,
    shared: Arc<Shared>,
}

impl Drop for Turn {
    /// Counts the events as received. This code runs on JavaScript's thread, directly before the listener is called. An outcome waits for
    /// this count, so JavaScript receives the outcome after these events.
    fn drop(&mut self) {
        let count = self.count;
        self.shared.state.told.send_modify(|told| *told = told.saturating_add(count));
    }
}

impl Shared {
    /// Starts the next turn and sends its events.
    fn turn_ended(shared: &Arc<Self>) {
        shared.state.queue().turn_ended();
        Self::tell(shared);
    }

    /// Sends the events of the next turn, if no turn is in progress.
    fn tell(shared: &Arc<Self>) {
        let Some(events) = shared.state.queue().next_turn() else { return };
        let turn = Turn { count: events.len() as u64, events, shared: Arc::clone(shared) };
        if shared.listener.call(turn, ThreadsafeFunctionCallMode::NonBlocking) != Status::Ok {
            // Sending fails because the environment is being torn down.
            shared.state.told.send_replace(u64::MAX);
        }
    }
}

impl EventSink {
    /// Creates the sink for a listener from the glue code. Returns `None` if there is no listener.
    pub(super) fn new(listener: Option<Function<Vec<String>, ()>>) -> napi::Result<Option<Self>> {
        let Some(listener) = listener else { return Ok(None) };
        let state = Arc::new(State { queue: Mutex::default(), told: watch::Sender::new(0) });
        // `ends` is dropped together with the listener, at the latest when the environment ends. The turns that are queued at that
        // time are not dropped, so the destructor of a turn could not report the end.
        let ends = Ends(Arc::clone(&state));
        let listener = listener.build_threadsafe_function::<Turn>().weak::<true>().callee_handled::<false>();
        let listener = listener.build_callback(move |mut context| {
            let _held = &ends;
            let shared = Arc::clone(&context.value.shared);
            // Later events wait until the end of this turn, so that other work can run even if the listener is slow.
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

    /// Resolves when JavaScript has received all events that were sent before this call.
    pub(super) async fn told(&self) {
        let sent = self.0.state.queue().sent();
        // `self` holds the sender, so this wait cannot fail.
        let _ = self.0.state.told.subscribe().wait_for(|told| *told >= sent).await;
    }

    /// Returns a listener that sends the log of a run.
    pub(super) fn log_listener(self, run: u64) -> LogListener {
        Arc::new(move |entry: &LogEntry| self.send(&json!({ "type": "log", "runId": run, "level": entry.level, "text": entry.text })))
    }

    /// Returns a listener that sends events.
    pub(super) fn event_listener(self) -> EventListener {
        Arc::new(move |event| self.send(&event))
    }

    /// Sends a warning for an operator.
    pub(super) fn warn(&self, message: &str) {
        self.send(&json!({ "type": "warning", "message": message }));
    }
}

/// Runs `work`, and returns its outcome after JavaScript has received the events that were sent during the work.
pub(super) async fn after_events<T>(sink: Option<EventSink>, work: impl Future<Output = T>) -> T {
    let outcome = work.await;
    if let Some(sink) = sink {
        sink.told().await;
    }
    outcome
}
