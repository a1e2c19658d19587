//! A thread that waits for an answer can as well read it itself: nobody has to wake it then (leader and followers, Schmidt and others,
//! "Pattern-Oriented Software Architecture", volume 2). Whoever waits offers what is to be read; whoever drives the thread takes it.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Context;

/// Something that is mostly read by a task of the runtime's.
pub(crate) trait Source: Send + Sync {
    /// Takes the reading over, until the lead is dropped. `None` where somebody is reading.
    fn lead(self: Arc<Self>) -> Option<Box<dyn Lead>>;
}

/// The reading of a source, as long as this lives.
pub(crate) trait Lead {
    /// Readable when there is something to read.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Reads what is there, and hands it on. Whether that is all that can be done until there is more.
    fn read(&mut self, context: &mut Context<'_>) -> bool;
}

enum Offer {
    /// This thread is not driven by anybody who would take it.
    Unwanted,
    Wanted,
    Made(Arc<dyn Source>),
}

thread_local! {
    static OFFER: RefCell<Offer> = const { RefCell::new(Offer::Unwanted) };
}

/// Says what this thread could read while it waits. To be said at each poll that is pending.
pub(crate) fn offer(source: &Arc<dyn Source>) {
    OFFER.with_borrow_mut(|offer| {
        if !matches!(offer, Offer::Unwanted) {
            *offer = Offer::Made(Arc::clone(source));
        }
    });
}

/// Does something, and takes what was offered meanwhile.
pub(crate) fn accept<T>(poll: impl FnOnce() -> T) -> (T, Option<Arc<dyn Source>>) {
    /// Whoever drove the thread before wants what it wanted, however this ends.
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
