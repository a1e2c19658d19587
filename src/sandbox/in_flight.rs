//! The futures of calls in progress. Tasks of the runtime poll these futures. When a run ends, its futures are dropped before the end of
//! the run is reported.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::host::HostReply;

type Answer = Pin<Box<dyn Future<Output = HostReply> + Send>>;
/// The cell of a future. It is empty after the future was dropped.
type Cell = Arc<Mutex<Option<Answer>>>;

/// The calls in progress of one run. All clones share these calls.
#[derive(Clone, Default)]
pub(super) struct InFlightCalls(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    next: u64,
    cells: HashMap<u64, Cell>,
}

impl InFlightCalls {
    /// Adds a call.
    pub(super) fn add(&self, answer: Answer) -> InFlightCall {
        let cell = Arc::new(Mutex::new(Some(answer)));
        let mut calls = lock(&self.0);
        calls.next += 1;
        let key = calls.next;
        calls.cells.insert(key, Arc::clone(&cell));
        drop(calls);
        InFlightCall { all: self.clone(), key, cell }
    }

    /// Drops the futures of all calls. If a task is polling one of the futures, waits until that poll returns.
    pub(super) fn end(&self) {
        let cells = std::mem::take(&mut lock(&self.0).cells);
        for cell in cells.into_values() {
            drop(lock(&cell).take());
        }
    }
}

/// A call in progress. Dropping this value cancels the call.
pub(super) struct InFlightCall {
    all: InFlightCalls,
    key: u64,
    cell: Cell,
}

impl InFlightCall {
    /// Waits for the reply. Returns `None` if the call was ended.
    pub(super) async fn reply(self) -> Option<HostReply> {
        poll_fn(|context| match lock(&self.cell).as_mut() {
            Some(answer) => answer.as_mut().poll(context).map(Some),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        lock(&self.all.0).cells.remove(&self.key);
        drop(lock(&self.cell).take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Value;

    fn counted(count: &Arc<()>) -> Answer {
        let held = Arc::clone(count);
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(held);
            HostReply::Value(Value::Null)
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn when_all_calls_were_ended_none_of_their_futures_is_left() {
        let (underway, count) = (InFlightCalls::default(), Arc::new(()));
        let tasks: Vec<_> = (0..64).map(|_| tokio::spawn(underway.add(counted(&count)).reply())).collect();
        let given_up = underway.add(counted(&count));
        drop(given_up);
        assert_eq!((Arc::strong_count(&count), lock(&underway.0).cells.len()), (65, 64));
        underway.end();
        assert_eq!(Arc::strong_count(&count), 1, "before any task was polled again");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn a_reply_is_given_and_its_call_forgotten() {
        let underway = InFlightCalls::default();
        let reply = underway.add(Box::pin(async { HostReply::Value(Value::Bool(true)) })).reply().await;
        assert_eq!(reply, Some(HostReply::Value(Value::Bool(true))));
        assert!(lock(&underway.0).cells.is_empty());
    }
}
