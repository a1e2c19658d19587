//! Reads the config file and the files of its base layers again when one of them changes.
//!
//! The files are polled. inotify is not used: it does not watch the target of a link, reports nothing for network folders and shared
//! folders, and allows only a limited number of watches. One poll needs one system call for each file, and detects every change.

use std::sync::Weak;
use std::time::{Duration, Instant};

use super::Gateway;
use super::config_source::{Version, present};
use super::core::Core;
use crate::blocking::blocking;

/// The time between two polls of the files.
const INTERVAL: Duration = Duration::from_millis(250);
/// The time for which a changed file must stay unchanged before it is read, because a program may still be writing it.
const QUIET: Duration = Duration::from_millis(200);
/// The time for which a file must be missing before it is treated as removed. It is longer than [`QUIET`], because some programs remove a
/// file before they write it again.
const ABSENT: Duration = Duration::from_secs(1);
/// The maximum delay before a file that changes continuously is read.
const LONGEST: Duration = Duration::from_secs(5);

/// A change that was detected but not read yet.
#[derive(Debug)]
struct Change {
    found: Vec<Version>,
    first_seen: Instant,
    last_changed: Instant,
}

/// Decides when a changed file is read.
#[derive(Debug, Default)]
struct Pending(Option<Change>);

impl Pending {
    /// Processes the result of a poll, and returns whether the files have to be read now. `read` are the versions of the last read.
    fn is_due(&mut self, found: Vec<Version>, read: &[Version], now: Instant) -> bool {
        if found == read {
            self.0 = None;
            return false;
        }
        let is_gone = |(path, stamp): &Version| stamp.is_none() && read.iter().any(|(known, before)| known == path && before.is_some());
        let quiet = if found.iter().any(is_gone) { ABSENT } else { QUIET };
        let change = self.0.get_or_insert_with(|| Change { found: found.clone(), first_seen: now, last_changed: now });
        if change.found != found {
            (change.found, change.last_changed) = (found, now);
        }
        let is_due = now.duration_since(change.last_changed) >= quiet || now.duration_since(change.first_seen) >= LONGEST;
        if is_due {
            self.0 = None;
        }
        is_due
    }
}

impl Core {
    /// Reads the config again each time one of its files changes, until the gateway closes. A config that is not a file and has no base
    /// cannot change.
    pub(super) fn watch_config(&self) {
        if let Some(runtime) = self.trust.approval_cache.runtime().filter(|_| !self.source.last_read().is_empty()) {
            let (core, closed) = (Weak::clone(&self.weak), self.closed.clone());
            drop(runtime.spawn(async move {
                tokio::select! {
                    () = closed.cancelled() => {}
                    () = watch(core) => {}
                }
            }));
        }
    }
}

/// Polls the files while the gateway exists.
async fn watch(core: Weak<Core>) {
    let mut pending = Pending::default();
    while let Some(read) = core.upgrade().map(|core| core.source.last_read()) {
        let Ok(found) = blocking(move || Ok(present(&read))).await else { return };
        let Some(gateway) = core.upgrade().map(|core| Gateway::of(&core)) else { return };
        if pending.is_due(found, &gateway.core.source.last_read(), Instant::now()) {
            gateway.reload_changed().await;
        }
        drop(gateway);
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a version without a file, and two different versions of the file.
    fn versions() -> [Vec<Version>; 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let files = [(path.clone(), None)];
        let [one, two] = ["one", "longer"].map(|text| {
            fs::write(&path, text).unwrap();
            present(&files)
        });
        [files.to_vec(), one, two]
    }

    #[test]
    fn a_change_is_read_once_it_stays_as_it_is() {
        let ([_, one, two], start) = (versions(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut pending = Pending::default();
        assert!(!pending.is_due(one.clone(), &one, at(0)));
        assert!(!pending.is_due(two.clone(), &one, at(100)));
        assert!(!pending.is_due(two.clone(), &one, at(299)));
        assert!(pending.is_due(two.clone(), &one, at(300)));
        assert!(!pending.is_due(two.clone(), &two, at(900)));
    }

    #[test]
    fn a_burst_is_one_change_and_an_endless_one_is_read_after_a_time() {
        let ([none, one, two], start) = (versions(), Instant::now());
        let mut pending = Pending::default();
        let due = (0..60_u64).map(|approval_read| {
            let found = if approval_read % 2 == 0 { &one } else { &two };
            pending.is_due(found.clone(), &none, start + Duration::from_millis(100 * approval_read))
        });
        assert_eq!(due.collect::<Vec<_>>().iter().position(|due| *due), Some(50));
    }

    #[test]
    fn a_file_that_is_there_again_soon_was_never_gone() {
        let ([none, one, two], start) = (versions(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut pending = Pending::default();
        assert!(!pending.is_due(none.clone(), &one, at(0)) && !pending.is_due(none.clone(), &one, at(900)));
        assert!(!pending.is_due(two.clone(), &one, at(950)) && pending.is_due(two, &one, at(1150)));
        assert!(!pending.is_due(none.clone(), &one, at(2000)) && pending.is_due(none, &one, at(3000)));
    }

    #[test]
    fn a_second_file_that_never_was_there_delays_nothing() {
        let ([none, one, two], start) = (versions(), Instant::now());
        let with_missing = |files: &[Version]| [files, &[("other".into(), None)]].concat();
        let mut pending = Pending::default();
        assert!(none[0].1.is_none() && !pending.is_due(with_missing(&two), &with_missing(&one), start));
        assert!(pending.is_due(with_missing(&two), &with_missing(&one), start + QUIET));
    }
}
