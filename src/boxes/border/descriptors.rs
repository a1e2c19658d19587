//! The descriptors that the borders of all boxes use together. Without a limit, boxes could leave no descriptors for the gateway's own
//! work.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

/// The files that this process may open are divided by this number. All borders together get one part, and the rest stays for other work.
const LEFT: u64 = 2;

/// Descriptors that the borders of all boxes share.
///
/// A border gets more descriptors only if it then uses at most as many as remain free. Therefore a single border gets at most half of the
/// descriptors, two borders get a third each, and a new border always gets some.
#[derive(Debug)]
pub struct Descriptors {
    limit: usize,
    used: Mutex<usize>,
}

impl Descriptors {
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::default() })
    }

    /// Returns the descriptors that the borders of this process share: half of the files that the process may open (`RLIMIT_NOFILE`).
    #[must_use]
    pub fn of_process() -> Arc<Self> {
        static OF_PROCESS: LazyLock<Arc<Descriptors>> = LazyLock::new(|| {
            let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files / LEFT).unwrap_or(usize::MAX));
            Descriptors::new(files)
        });
        Arc::clone(&OF_PROCESS)
    }
}

/// Returns whether a border may take `more` descriptors. The border uses `own` descriptors, and all borders together use `used` of `limit`.
fn may_take(more: usize, own: usize, used: usize, limit: usize) -> bool {
    own.saturating_add(more) <= limit.saturating_sub(used.saturating_add(more))
}

/// The descriptors of one border.
#[derive(Debug)]
pub(super) struct Part {
    all: Arc<Descriptors>,
    /// The number of descriptors that this border uses. Changed only while `all` is locked.
    own: Mutex<usize>,
}

/// Descriptors that a border uses. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Held {
    part: Arc<Part>,
    count: usize,
}

impl Part {
    pub(super) fn new(all: &Arc<Descriptors>) -> Arc<Self> {
        Arc::new(Self { all: Arc::clone(all), own: Mutex::default() })
    }

    /// Takes descriptors. `None` if this border may not use more.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Option<Held> {
        self.take_if(count, |own, used| may_take(count, own, used, self.all.limit))
    }

    /// Counts descriptors that are open already, even if this border may not use more.
    pub(super) fn note(self: &Arc<Self>, count: usize) -> Option<Held> {
        self.take_if(count, |_, _| true)
    }

    fn take_if(self: &Arc<Self>, count: usize, is_free: impl FnOnce(usize, usize) -> bool) -> Option<Held> {
        let (mut used, mut own) = (self.all.used.lock(), self.own.lock());
        if !is_free(*own, *used) {
            return None;
        }
        (*used, *own) = (*used + count, *own + count);
        Some(Held { part: Arc::clone(self), count })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (mut used, mut own) = (self.part.all.used.lock(), self.part.own.lock());
        (*used, *own) = (*used - self.count, *own - self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes pairs of descriptors until this border gets no more.
    fn all_of(part: &Arc<Part>) -> Vec<Held> {
        std::iter::from_fn(|| part.take(2)).collect()
    }

    #[test]
    fn one_border_leaves_as_many_as_it_has_and_a_new_one_gets_some() {
        let all = Descriptors::new(90);
        let [first, second, third] = [(); 3].map(|()| Part::new(&all));
        let greedy = all_of(&first);
        assert_eq!(greedy.len(), 22, "half of them");
        let other = all_of(&second);
        assert_eq!(other.len(), 11, "half of what was left");
        assert_eq!((all_of(&third).len(), all_of(&first).len()), (6, 0));
        drop(greedy);
        assert_eq!(all_of(&first).len(), 17, "a third of what two have together");
        drop(other);
        assert_eq!(*all.used.lock(), 0);
    }

    #[test]
    fn what_is_open_already_counts() {
        let all = Descriptors::new(10);
        let part = Part::new(&all);
        let open = part.note(8);
        assert!(part.take(1).is_none());
        drop(open);
        assert!(part.take(1).is_some());
    }
}
