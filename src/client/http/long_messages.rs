//! Handles the long messages of one server. They are parsed, classified and wrapped outside of the threads that drive the connections of all
//! servers, and one after another, so that one server takes at most one processor, as over stdio.

use tokio::sync::Semaphore;

use crate::off_runtime::{MAX_BYTES_AT_ONCE, off_the_runtime};

/// The turn to handle a long message of one server.
pub(super) struct LongMessages(Semaphore);

impl Default for LongMessages {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl LongMessages {
    /// Handles messages that have this many bytes together. Short ones are handled at once. Otherwise, waits for the turn, and leaves the
    /// other tasks of this thread to another thread.
    pub(super) async fn handle<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes <= MAX_BYTES_AT_ONCE {
            return work();
        }
        // The semaphore is never closed, so a turn always comes.
        let _turn = self.0.acquire().await;
        off_the_runtime(work)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn long_messages_of_a_server_are_handled_one_after_another_and_short_ones_at_once() {
        let messages = LongMessages::default();
        let turn = messages.0.try_acquire().unwrap();
        assert!(messages.handle(MAX_BYTES_AT_ONCE, || ()).now_or_never().is_some());
        let mut long = Box::pin(messages.handle(MAX_BYTES_AT_ONCE + 1, || ()));
        assert!(long.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(long.now_or_never().is_some());
    }
}
