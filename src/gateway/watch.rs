//! Reads the config file again when it has changed.
//!
//! It looks at the file regularly and does not use inotify: inotify watches a folder but not the target of a link, reports nothing on network and
//! shared folders, and the number of its watches is limited. One look is one system call and sees every change.

use std::sync::Weak;
use std::time::{Duration, Instant};

use super::Gateway;
use super::core::Core;
use crate::blocking::blocking;
use crate::files::Stamp;

/// Time between two looks at the file.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a changed file must stay as it is before it is read, because it may still be written.
const QUIET: Duration = Duration::from_millis(200);
/// The same time for a file that is missing: some programs remove a file before they write it anew.
const ABSENT: Duration = Duration::from_secs(1);
/// A file that changes all the time is read after this time.
const LONGEST: Duration = Duration::from_secs(5);

/// A change that was seen and is not read yet.
#[derive(Debug)]
struct Change {
    stamp: Option<Stamp>,
    first_seen: Instant,
    last_changed: Instant,
}

/// Decides when a changed file is read.
#[derive(Debug, Default)]
struct Pending(Option<Change>);

impl Pending {
    /// Takes what a look has found, and returns whether the file is to be read now. `read`: the version that was read last.
    fn is_due(&mut self, found: Option<Stamp>, read: Option<&Stamp>, now: Instant) -> bool {
        if found.as_ref() == read {
            self.0 = None;
            return false;
        }
        let change = self.0.get_or_insert_with(|| Change { stamp: found.clone(), first_seen: now, last_changed: now });
        if change.stamp != found {
            (change.stamp, change.last_changed) = (found, now);
        }
        let quiet = if change.stamp.is_some() { QUIET } else { ABSENT };
        let is_due = now.duration_since(change.last_changed) >= quiet || now.duration_since(change.first_seen) >= LONGEST;
        if is_due {
            self.0 = None;
        }
        is_due
    }
}

impl Core {
    /// Reads the config again whenever its file has changed, until the gateway closes. A config that is no file does not change.
    pub(super) fn watch_config(&self) {
        if let (Some(runtime), Some(_)) = (self.trust.approval_cache.runtime(), self.source.path()) {
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

/// Looks at the file as long as the gateway is there.
async fn watch(core: Weak<Core>) {
    let mut pending = Pending::default();
    while let Some(path) = core.upgrade().and_then(|core| core.source.path().map(ToOwned::to_owned)) {
        let Ok(found) = blocking(move || Ok(Stamp::of(&path))).await else { return };
        let Some(gateway) = core.upgrade().map(|core| Gateway::of(&core)) else { return };
        if pending.is_due(found, gateway.core.source.last_read().as_ref(), Instant::now()) {
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

    /// Two versions of a file.
    fn versions() -> [Stamp; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        ["one", "longer"].map(|text| {
            fs::write(&path, text).unwrap();
            Stamp::of(&path).unwrap()
        })
    }

    #[test]
    fn a_change_is_read_once_it_stays_as_it_is() {
        let ([one, two], start) = (versions(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut pending = Pending::default();
        assert!(!pending.is_due(Some(one.clone()), Some(&one), at(0)));
        assert!(!pending.is_due(Some(two.clone()), Some(&one), at(100)));
        assert!(!pending.is_due(Some(two.clone()), Some(&one), at(299)));
        assert!(pending.is_due(Some(two.clone()), Some(&one), at(300)));
        assert!(!pending.is_due(Some(two.clone()), Some(&two), at(900)));
    }

    #[test]
    fn a_burst_is_one_change_and_an_endless_one_is_read_after_a_time() {
        let ([one, two], start) = (versions(), Instant::now());
        let mut pending = Pending::default();
        let due = (0..60_u64).map(|approval_read| {
            let found = if approval_read % 2 == 0 { &one } else { &two };
            pending.is_due(Some(found.clone()), None, start + Duration::from_millis(100 * approval_read))
        });
        assert_eq!(due.collect::<Vec<_>>().iter().position(|due| *due), Some(50));
    }

    #[test]
    fn a_file_that_is_there_again_soon_was_never_gone() {
        let ([one, two], start) = (versions(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut pending = Pending::default();
        assert!(!pending.is_due(None, Some(&one), at(0)) && !pending.is_due(None, Some(&one), at(900)));
        assert!(!pending.is_due(Some(two.clone()), Some(&one), at(950)) && pending.is_due(Some(two), Some(&one), at(1150)));
        assert!(!pending.is_due(None, Some(&one), at(2000)) && pending.is_due(None, Some(&one), at(3000)));
    }
}
