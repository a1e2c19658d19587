//! Updates of resources. A changed resource is reported once, however often the server announces the change before the report. Other
//! notifications never cause an update to be dropped. No update of a subscribed resource is dropped.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::questions::Questions;
use super::rate_limit::{NOTICES, RateLimiter};

/// Maximum number of resources without a subscription that wait to be reported. Only a flood of updates exceeds this number. Updates of
/// more resources are counted, and their number is reported.
const MAX_WAITING: usize = 256;

/// A report to the listener.
#[derive(Debug, PartialEq, Eq)]
enum Update {
    Changed(String),
    /// Number of updates that were dropped.
    LeftOut(u64),
}

/// Changed resources that have not been reported yet. This type does no I/O.
#[derive(Debug)]
struct PendingUpdates {
    limiter: RateLimiter,
    uris: VecDeque<String>,
    /// The URIs in `uris` as a set, for fast searches.
    known: HashSet<String>,
    /// The resources with a subscription.
    subscribed: BTreeSet<String>,
    left_out: u64,
    /// True while a task waits to report the resources at the allowed rate.
    has_task: bool,
}

impl PendingUpdates {
    fn new(now: Instant) -> Self {
        Self {
            limiter: RateLimiter::new(NOTICES, now),
            uris: VecDeque::new(),
            known: HashSet::new(),
            subscribed: BTreeSet::new(),
            left_out: 0,
            has_task: false,
        }
    }

    fn note(&mut self, uri: &str) {
        if self.known.contains(uri) {
            return;
        }
        if self.uris.len() < MAX_WAITING || self.subscribed.contains(uri) {
            self.known.insert(uri.to_owned());
            self.uris.push_back(uri.to_owned());
        } else {
            self.left_out += 1;
        }
    }

    /// Returns and removes the next report, if the rate limit allows one.
    fn next(&mut self, now: Instant) -> Option<Update> {
        let is_empty = self.uris.is_empty() && self.left_out == 0;
        if is_empty || !self.limiter.admits(1, now) { None } else { self.take() }
    }

    /// Returns and removes the next report, regardless of the rate limit.
    fn take(&mut self) -> Option<Update> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            return Some(Update::LeftOut(left_out));
        }
        let uri = self.uris.pop_front()?;
        self.known.remove(&uri);
        Some(Update::Changed(uri))
    }

    /// Returns the time at which the next report is allowed. Returns `None` if there is nothing to report.
    fn due_at(&self) -> Option<Instant> {
        (!self.uris.is_empty() || self.left_out > 0).then(|| self.limiter.refills_at())
    }
}

/// Reports changed resources to the observer at the allowed rate.
pub(in crate::client) struct Updates {
    waiting: Mutex<PendingUpdates>,
    questions: Questions,
    runtime: Handle,
}

impl Updates {
    pub(in crate::client) fn new(questions: Questions) -> Arc<Self> {
        let waiting = Mutex::new(PendingUpdates::new(Instant::now()));
        Arc::new(Self { waiting, questions, runtime: Handle::current() })
    }

    /// Records that a resource has a subscription.
    pub(in crate::client) fn subscribe(&self, uri: &str) {
        self.waiting().subscribed.insert(uri.to_owned());
    }

    /// Records that a resource no longer has a subscription.
    pub(in crate::client) fn unsubscribe(&self, uri: &str) {
        self.waiting().subscribed.remove(uri);
    }

    /// Records that a resource changed, and reports it now or later.
    pub(in crate::client) fn note(self: &Arc<Self>, uri: &str) {
        self.waiting().note(uri);
        self.tell_due();
        let mut waiting = self.waiting();
        if let Some(due) = waiting.due_at()
            && !std::mem::replace(&mut waiting.has_task, true)
        {
            self.runtime.spawn(Arc::clone(self).tell_later(due));
        }
    }

    /// Reports at the allowed rate until there is nothing to report.
    async fn tell_later(self: Arc<Self>, mut due: Instant) {
        loop {
            sleep_until(due).await;
            self.tell_due();
            let mut waiting = self.waiting();
            let Some(next) = waiting.due_at() else {
                waiting.has_task = false;
                return;
            };
            due = next;
        }
    }

    /// Reports all remaining updates when the connection ends.
    pub(in crate::client) fn end(&self) {
        self.tell_each(PendingUpdates::take);
    }

    fn tell_due(&self) {
        self.tell_each(|waiting| waiting.next(Instant::now()));
    }

    fn tell_each(&self, next: impl Fn(&mut PendingUpdates) -> Option<Update>) {
        loop {
            let update = next(&mut self.waiting());
            let Some(update) = update else { return };
            if !self.questions.may_notify() {
                continue;
            }
            match update {
                Update::Changed(uri) => self.questions.observer.resource_updated(&self.questions.server, &uri),
                Update::LeftOut(count) => self.questions.tell_left_out(None, count),
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, PendingUpdates> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Removes and returns reports until the rate limit allows no more.
    fn told(waiting: &mut PendingUpdates, now: Instant) -> Vec<Update> {
        std::iter::from_fn(|| waiting.next(now)).collect()
    }

    fn flooded(now: Instant) -> PendingUpdates {
        let mut waiting = PendingUpdates::new(now);
        for _ in 0..NOTICES.burst {
            waiting.note("a");
            assert_eq!(told(&mut waiting, now), [Update::Changed("a".into())]);
        }
        waiting
    }

    #[test]
    fn the_last_update_of_a_flood_is_told_once_when_the_rate_allows() {
        let start = Instant::now();
        let mut waiting = flooded(start);
        for uri in ["a", "b", "a", "a"] {
            waiting.note(uri);
        }
        assert_eq!(told(&mut waiting, start), []);
        let due = waiting.due_at().unwrap();
        assert_eq!(due, start + Duration::from_secs(1));
        assert_eq!(told(&mut waiting, due), [Update::Changed("a".into()), Update::Changed("b".into())]);
        assert_eq!(waiting.due_at(), None);
    }

    #[test]
    fn so_many_resources_wait_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut waiting = flooded(start);
        for number in 0..10_000 {
            waiting.note(&number.to_string());
        }
        let all: Vec<_> = std::iter::from_fn(|| waiting.take()).collect();
        assert_eq!(all[0], Update::LeftOut(10_000 - 256));
        assert_eq!(all.len(), 257);
    }

    #[test]
    fn of_resources_that_are_subscribed_to_none_is_left_out() {
        let start = Instant::now();
        let mut waiting = flooded(start);
        waiting.subscribed = (0..1_000).map(|number| format!("mine-{number}")).collect();
        for number in 0..1_000 {
            waiting.note(&number.to_string());
            waiting.note(&format!("mine-{number}"));
        }
        let all: Vec<_> = std::iter::from_fn(|| waiting.take()).collect();
        let mine = (0..1_000).map(|number| Update::Changed(format!("mine-{number}")));
        assert!(mine.into_iter().all(|update| all.contains(&update)));
        assert_eq!(all.len(), 1 + 1_000 + 128, "and few of the others");
    }
}
