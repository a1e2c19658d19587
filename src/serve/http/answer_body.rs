//! The body of a response. The request keeps its slots in the limits until the body has been sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::sessions::InUse;
use super::slots::Slots;

/// The maximum size in bytes of an answer that keeps no slot after it was sent. The request rate limits the memory for such answers.
const LIGHT_BYTES: usize = 64 * 1024;

/// The body of a response. It occupies the slots of its request until the response ends.
///
/// The slots of a large answer in a session are released only after some seconds. Otherwise one client could fill the memory with large
/// answers that it does not read.
pub(super) struct AnswerBody {
    body: Body,
    /// Ends a stream when the server drains.
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    slots: Arc<Slots>,
    /// The time for which a large answer keeps its slots.
    kept_for: Option<Duration>,
    sent: usize,
    is_whole: bool,
    _session: Option<InUse>,
}

impl AnswerBody {
    pub(super) fn new(
        body: Body,
        ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
        slots: Arc<Slots>,
        session: Option<InUse>,
        kept_for: Option<Duration>,
    ) -> Self {
        Self { body, ended, slots, kept_for, sent: 0, is_whole: false, _session: session }
    }

    /// Returns how long the slots of a large answer are kept. If the client did not read the whole answer, the size of the answer is unknown,
    /// so it is treated as large.
    fn large_answer_kept_for(&self) -> Option<Duration> {
        let is_whole = self.is_whole || http_body::Body::is_end_stream(&self.body);
        self.kept_for.filter(|_| !is_whole || self.sent > LIGHT_BYTES)
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(kept_for) = self.large_answer_kept_for() {
            self.slots.keep_for(kept_for);
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().is_some_and(|ended| ended.as_mut().poll(context).is_ready()) {
            return Poll::Ready(None);
        }
        let slots = Arc::clone(&self.slots);
        // A stream writes its messages as JSON when it is polled.
        let polled = slots.writing(|| Pin::new(&mut self.body).poll_frame(context));
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                slots.answer_written();
                self.sent += frame.data_ref().map_or(0, Bytes::len);
            }
            Poll::Ready(None) => self.is_whole = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    /// Returns whether this body may be dropped, because nothing follows. The memory of a large answer is reserved until its last bytes are
    /// written to the socket, and only then the server asks for more.
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.slots.has_large_answer()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::serve::places::{PlaceLimits, Places, Share};

    const NEVER: Duration = Duration::from_hours(24);

    /// Makes a limit with one slot, and an answer of this size that occupies the slot. Returns the share of the slot, the handler's slots,
    /// and the answer.
    fn answer(bytes: usize, kept_for: Option<Duration>, draining: &CancellationToken) -> (Arc<Share>, Arc<Slots>, AnswerBody) {
        let share = Places::new(PlaceLimits { of_all: 1, of_caller: 1, least_of_caller: 1 }).share();
        let slots = Slots::new(Some(share.take(1).unwrap()), draining.clone());
        let body = AnswerBody::new(Body::from(vec![b'x'; bytes]), None, slots.clone(), None, kept_for);
        (share, slots, body)
    }

    async fn until_free(share: &Share) {
        while !share.is_free() {
            tokio::task::yield_now().await;
        }
    }

    /// Sends an answer of this size, and returns the share of its slot. The answer is either read completely, or dropped unread.
    async fn place_after(bytes: usize, kept_for: Option<Duration>, is_read: bool) -> Arc<Share> {
        let (share, of_handler, body) = answer(bytes, kept_for, &CancellationToken::new());
        drop(of_handler);
        if is_read {
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), bytes);
        } else {
            drop(body);
        }
        share
    }

    #[tokio::test]
    async fn a_large_answer_holds_its_place_as_long_as_its_copy_is_kept() {
        for is_read in [true, false] {
            assert!(!place_after(LIGHT_BYTES + 1, Some(NEVER), is_read).await.is_free());
            until_free(&*place_after(LIGHT_BYTES + 1, Some(Duration::from_millis(1)), is_read).await).await;
        }
    }

    #[tokio::test]
    async fn a_small_answer_or_one_without_a_copy_holds_no_place_after_its_end() {
        assert!(place_after(LIGHT_BYTES, Some(NEVER), true).await.is_free());
        assert!(place_after(LIGHT_BYTES + 1, None, true).await.is_free());
        assert!(place_after(LIGHT_BYTES + 1, None, false).await.is_free());
    }

    #[tokio::test]
    async fn a_handler_that_goes_on_after_its_connection_holds_the_place_and_the_time_of_the_copy_begins_with_its_end() {
        for (kept_for, is_free_then) in [(None, true), (Some(NEVER), false)] {
            let (share, of_handler, body) = answer(LIGHT_BYTES + 1, kept_for, &CancellationToken::new());
            drop(body);
            tokio::task::yield_now().await;
            assert!(!share.is_free());
            drop(of_handler);
            assert_eq!(share.is_free(), is_free_then);
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_does_not_wait_for_copies_of_answers() {
        let draining = CancellationToken::new();
        let (share, of_handler, body) = answer(LIGHT_BYTES + 1, Some(NEVER), &draining);
        drop((of_handler, body));
        assert!(!share.is_free());
        draining.cancel();
        until_free(&share).await;
        // When the server closes, it does not wait for copies of answers that are kept longer.
        let (share, of_handler, body) = answer(LIGHT_BYTES + 1, Some(NEVER), &draining);
        drop((of_handler, body));
        until_free(&share).await;
    }
}
