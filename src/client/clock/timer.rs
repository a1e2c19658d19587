//! A timer shared by many waits, most of which end early. A tokio timer that is earlier than all others wakes the runtime's thread, and the
//! time-out of a new call is usually the earliest. To avoid this, the shared timer stays set when a wait ends early. When it fires, it
//! computes the next time at which it is needed.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Timer shared by many waits. Clones share the same timer.
#[derive(Clone)]
pub(in crate::client) struct Timer {
    shared: Arc<Shared>,
    runtime: Handle,
}

#[derive(Default)]
struct Shared {
    waits: Mutex<Waits>,
    /// Notified when a new wait ends before the time for which the timer is set.
    sooner: Notify,
}

#[derive(Default)]
struct Waits {
    /// The time at which the timer's task wakes. `None` if no task runs.
    set_for: Option<Instant>,
    wakers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Shared {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock()
    }

    /// Wakes the waits whose time has come. Returns the time of the next wait, if there is one.
    fn ring(&self) -> Option<Instant> {
        let mut waits = self.waits();
        let later = waits.wakers.split_off(&(Instant::now(), u64::MAX));
        let due = std::mem::replace(&mut waits.wakers, later);
        waits.set_for = waits.wakers.first_key_value().map(|((until, _), _)| *until);
        let next = waits.set_for;
        drop(waits);
        due.into_values().for_each(Waker::wake);
        next
    }
}

impl Timer {
    pub(in crate::client) fn new(runtime: Handle) -> Self {
        Self { shared: Arc::default(), runtime }
    }

    /// Returns a future that resolves at the time `until`.
    pub(in crate::client) fn at(&self, until: Instant) -> Wait<'_> {
        Wait { timer: self, until, number: None }
    }

    fn set(&self, waits: &mut Waits, until: Instant) {
        match waits.set_for {
            Some(set_for) if set_for <= until => return,
            Some(_) => self.shared.sooner.notify_one(),
            None => drop(self.runtime.spawn(run(Arc::clone(&self.shared), until))),
        }
        waits.set_for = Some(until);
    }
}

/// Task of the timer. Ends when its time has come and no wait is left.
async fn run(shared: Arc<Shared>, mut until: Instant) {
    loop {
        tokio::select! {
            () = sleep_until(until) => {}
            () = shared.sooner.notified() => {}
        }
        match shared.ring() {
            Some(next) => until = next,
            None => return,
        }
    }
}

pub(in crate::client) struct Wait<'a> {
    timer: &'a Timer,
    until: Instant,
    /// Key of the wait's entry. `None` until the wait is first polled.
    number: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.until {
            return Poll::Ready(());
        }
        let mut waits = self.timer.shared.waits();
        let number = self.number.unwrap_or(waits.next);
        waits.next = waits.next.max(number + 1);
        waits.wakers.insert((self.until, number), context.waker().clone());
        self.timer.set(&mut waits, self.until);
        drop(waits);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timer.shared.waits().wakers.remove(&(self.until, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn each_wait_ends_in_its_time_whichever_began_first() {
        let (timer, start) = (Timer::new(Handle::current()), Instant::now());
        let (ended, mut order) = tokio::sync::mpsc::unbounded_channel();
        for times in [9, 1, 4, 0] {
            let (timer, ended) = (timer.clone(), ended.clone());
            tokio::spawn(async move {
                timer.at(start + SHORT * times).await;
                assert!(start.elapsed() >= SHORT * times);
                ended.send(times).unwrap();
            });
        }
        for times in [0, 1, 4, 9] {
            assert_eq!(order.recv().await, Some(times));
        }
    }

    #[tokio::test]
    async fn what_ended_early_is_forgotten_and_the_timer_serves_the_next() {
        let timer = Timer::new(Handle::current());
        let first = Instant::now() + SHORT;
        {
            let mut wait = std::pin::pin!(timer.at(first));
            assert!(futures::poll!(wait.as_mut()).is_pending());
        }
        assert!(timer.shared.waits().wakers.is_empty());
        assert_eq!(timer.shared.waits().set_for, Some(first), "the timer stays set after the wait has ended");
        timer.at(first + SHORT).await;
        assert!(Instant::now() >= first + SHORT);
        // The task ended with the last wait, so this wait starts a new task.
        timer.at(Instant::now() + SHORT).await;
    }
}
