//! Lets the thread that waits for an answer read the answer from its source, so that no other thread has to wake it (the pattern
//! "Leader/Followers" by Schmidt and others, "Pattern-Oriented Software Architecture", volume 2). A pending future offers its source. The
//! code that polls the future on this thread accepts the offer.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Context;

/// A source of data that a task of the runtime usually reads.
pub(crate) trait Source: Send + Sync {
    /// Takes over the reading until the returned lead is dropped. Returns `None` if another thread is reading.
    fn lead(self: Arc<Self>) -> Option<Box<dyn Lead>>;
}

/// The right to read a source. It ends when the value is dropped.
pub(crate) trait Lead {
    /// Returns a descriptor that is readable when the source has data.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Reads the available data and passes it on. Returns `true` if the caller should wait for more data.
    fn read(&mut self, context: &mut Context<'_>) -> bool;
}

enum Offer {
    /// No code on this thread would accept a source.
    Unwanted,
    Wanted,
    Made(Arc<dyn Source>),
}

thread_local! {
    static OFFER: RefCell<Offer> = const { RefCell::new(Offer::Unwanted) };
}

/// Offers a source that this thread could read while it waits. A future calls this at each poll that returns `Pending`.
pub(crate) fn offer(source: &Arc<dyn Source>) {
    OFFER.with_borrow_mut(|offer| {
        if !matches!(offer, Offer::Unwanted) {
            *offer = Offer::Made(Arc::clone(source));
        }
    });
}

/// Runs a poll, and returns its outcome and the source that was offered during the poll.
pub(crate) fn accept<T>(poll: impl FnOnce() -> T) -> (T, Option<Arc<dyn Source>>) {
    /// Restores the outer state of `OFFER`, even after a panic.
    struct Before(Option<Offer>);
    impl Drop for Before {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                OFFER.set(before);
            }
        }
    }
    let mut before = Before(Some(OFFER.replace(Offer::Wanted)));
    let outcome = poll();
    let made = OFFER.replace(before.0.take().unwrap_or(Offer::Unwanted));
    (outcome, if let Offer::Made(source) = made { Some(source) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Source for Nothing {
        fn lead(self: Arc<Self>) -> Option<Box<dyn Lead>> {
            None
        }
    }

    #[test]
    fn what_is_offered_is_taken_by_whoever_drives_the_thread_and_by_nobody_else() {
        let source: Arc<dyn Source> = Arc::new(Nothing);
        offer(&source);
        let ((), none) = accept(|| ());
        assert!(none.is_none(), "it was offered to nobody");
        let (inner, outer) = accept(|| {
            let ((), inner) = accept(|| ());
            offer(&source);
            inner
        });
        assert!(inner.is_none() && outer.is_some_and(|outer| Arc::ptr_eq(&outer, &source)));
        let ((), inner) = accept(|| offer(&source));
        assert!(inner.is_some());
        drop(inner);
        let panicked = std::panic::catch_unwind(|| accept(|| panic!("on purpose")));
        assert!(panicked.is_err());
        offer(&source);
        assert_eq!(Arc::strong_count(&source), 1, "nothing is kept");
    }
}
