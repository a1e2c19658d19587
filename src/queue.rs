//! Reserves a place in a queue before the caller awaits.

use std::future::Future;
use std::task::{Context, Poll, Waker};

/// Polls a future once immediately, and returns a future for its output. If the future waits for a fair lock, callers get the lock in the
/// order in which they call this function. Without this function, they would get it in the order in which the runtime starts their tasks.
pub(crate) fn queue_now<T: Send, F: Future<Output = T> + Send>(waiting: F) -> impl Future<Output = T> + Send + use<T, F> {
    let mut waiting = Box::pin(waiting);
    let first = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    async move {
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => waiting.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use tokio::sync::Mutex;

    use super::*;

    #[test]
    fn places_are_those_of_the_calls_and_not_of_the_awaiting() {
        let lock = Arc::new(Mutex::new(()));
        let held = queue_now(Arc::clone(&lock).lock_owned()).now_or_never().unwrap();
        let mut first = Box::pin(queue_now(Arc::clone(&lock).lock_owned()));
        let mut second = Box::pin(queue_now(Arc::clone(&lock).lock_owned()));
        drop(held);
        assert!(second.as_mut().now_or_never().is_none());
        let held = first.as_mut().now_or_never().unwrap();
        drop(held);
        assert!(second.as_mut().now_or_never().is_some());
    }
}
