//! Stores snapshots on disk, so that other processes do not have to boot the guest. The name of a snapshot's folder is the snapshot's key.
//! If a snapshot has a problem, the guest is booted and the snapshot is replaced. A run never fails for this reason.

mod content;
mod key;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyperlight_host::sandbox::snapshot::{OciTag, Snapshot};
use serde::{Deserialize, Serialize};

use content::{check_folder, digest_of, make_private, punch_zeroes};
pub(super) use key::Key;

const TAG: &str = "guest";
/// The file name of the record. The record is written after the snapshot's own files.
const RECORD: &str = "kept.json";
/// The prefix of folders in which a process is writing a snapshot. An old folder with this prefix is removed, because its process has
/// ended.
const UNFINISHED: &str = "snapshot-unfinished-";
const UNFINISHED_FOR: Duration = Duration::from_hours(1);
/// The maximum number of stored snapshots. This is sufficient for two guests, each with and without fetch, and for a few settings of the
/// limits. The snapshots that were not used for the longest time are removed first.
const MAX_KEPT: usize = 8;

/// A folder of snapshots, set by the option `snapshotDir` of `Gateway.open`. Only the current user may have access to it.
#[derive(Debug, Clone)]
pub(super) struct SnapshotStore {
    folder: PathBuf,
}

/// The record of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// The digest of the files' content.
    digest: String,
    /// True if the standard guest was tried first, but KVM could not run its ring-0 code.
    standard_fails: bool,
}

impl SnapshotStore {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Loads the snapshot with this key, if it exists and is valid.
    pub(super) fn load(&self, key: &Key) -> Option<Snapshot> {
        let folder = self.folder.join(key.as_str());
        match self.read(&folder) {
            Ok(snapshot) => {
                // The modification time of the folder is the time of the last use. `tidy` reads it.
                let _ = fs::File::open(&folder).and_then(|opened| opened.set_modified(SystemTime::now()));
                Some(snapshot)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => None,
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "cannot use the kept snapshot; booting the guest to replace it");
                None
            }
        }
    }

    /// Returns whether this snapshot was created because this machine cannot run the standard guest.
    pub(super) fn standard_fails(&self, key: &Key) -> bool {
        self.record(&self.folder.join(key.as_str())).is_ok_and(|record| record.standard_fails)
    }

    fn record(&self, folder: &Path) -> io::Result<Record> {
        check_folder(&self.folder)?;
        check_folder(folder)?;
        Ok(serde_json::from_slice(&content::read_small(&folder.join(RECORD))?)?)
    }

    fn read(&self, folder: &Path) -> io::Result<Snapshot> {
        let record = self.record(folder)?;
        let digest = digest_of(folder, RECORD)?;
        if digest != record.digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the digest of its content differs from the recorded one"));
        }
        // The digest was checked above, without reading the holes. `checked_load` would also read the holes.
        Snapshot::load(folder, tag()?).map_err(io::Error::other)
    }

    /// Writes a snapshot to disk. Replaces an invalid snapshot with the same key. Returns the snapshot as it was loaded from disk. This
    /// takes about 300 ms.
    ///
    /// # Errors
    /// The I/O error if the snapshot cannot be written.
    pub(super) fn save(&self, key: &Key, snapshot: &Snapshot, standard_fails: bool) -> io::Result<Arc<Snapshot>> {
        if !self.folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        }
        check_folder(&self.folder)?;
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        let layout = unfinished.path().join("layout");
        DirBuilder::new().mode(0o700).create(&layout)?;
        snapshot.save(&layout, &tag()?).map_err(io::Error::other)?;
        make_private(&layout)?;
        punch_zeroes(&layout)?;
        let record = Record { digest: digest_of(&layout, RECORD)?, standard_fails };
        content::write_private(&layout.join(RECORD), &serde_json::to_vec(&record)?)?;
        let place = self.folder.join(key.as_str());
        if fs::rename(&layout, &place).is_err() {
            // Another process may have just written a valid snapshot.
            if self.read(&place).is_err() {
                // The invalid snapshot is moved and not overwritten, because other processes may have mapped its files into memory.
                fs::rename(&place, unfinished.path().join("odd"))?;
                fs::rename(&layout, &place)?;
            }
        }
        self.tidy(&place);
        Ok(Arc::new(self.read(&place)?))
    }

    /// Removes the snapshots that were not used for the longest time, and old unfinished folders.
    fn tidy(&self, used: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let now = SystemTime::now();
        let mut kept = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                if now.duration_since(modified).is_ok_and(|age| age > UNFINISHED_FOR) {
                    let _ = fs::remove_dir_all(path);
                }
            } else if path != used && path.join(RECORD).is_file() {
                kept.push((modified, path));
            }
        }
        kept.sort();
        let surplus = (kept.len() + 1).saturating_sub(MAX_KEPT);
        for (_, path) in kept.into_iter().take(surplus) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn tag() -> io::Result<OciTag> {
    OciTag::new(TAG).map_err(io::Error::other)
}
