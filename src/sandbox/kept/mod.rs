//! Snapshots that are kept on disk, so that another process need not boot: each in a folder of its own, named by all that it depends
//! on. Whatever is odd about one is a reason to boot anew and to put another in its place, never an error of anybody's run.

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
/// Beside the snapshot's own files, and written last.
const RECORD: &str = "kept.json";
/// Folders that are being written. Those of processes that ended meanwhile are taken away.
const UNFINISHED: &str = "snapshot-unfinished-";
const UNFINISHED_FOR: Duration = Duration::from_hours(1);
/// Snapshots that are kept, of the last that were used: of two guests and a few settings of the limits.
const MAX_KEPT: usize = 6;

/// A folder of snapshots: `snapshotDir` of `Gateway.open`. Readable and writable by the user alone.
#[derive(Debug, Clone)]
pub(super) struct KeptSnapshots {
    folder: PathBuf,
}

/// What is known of a snapshot besides its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// Of the files' content.
    digest: String,
    /// Whether the standard guest was tried before and failed in the known way.
    standard_fails: bool,
}

impl KeptSnapshots {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The snapshot of this key, if there is one and nothing is odd about it.
    pub(super) fn load(&self, key: &Key) -> Option<Snapshot> {
        let folder = self.folder.join(key.as_str());
        match self.read(&folder) {
            Ok(snapshot) => {
                // For whoever tidies up: it is in use.
                let _ = fs::File::open(&folder).and_then(|opened| opened.set_modified(SystemTime::now()));
                Some(snapshot)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => None,
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "the kept snapshot is not used: another is made");
                None
            }
        }
    }

    /// Whether this snapshot was made as the standard guest did not run.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its content has another digest than was written down"));
        }
        // Checked above, without reading the holes: `checked_load` would read them.
        Snapshot::load(folder, tag()?).map_err(io::Error::other)
    }

    /// Keeps a snapshot, in the place of one that is odd. Takes some 300 ms; returns the snapshot as it now lies on disk.
    ///
    /// # Errors
    /// What keeps it from being written.
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
            // What is there may be another process's, just finished, and good.
            if self.read(&place).is_err() {
                // Moved away first: files that somebody has mapped stay as they are until nobody has.
                fs::rename(&place, unfinished.path().join("odd"))?;
                fs::rename(&layout, &place)?;
            }
        }
        self.tidy(&place);
        Ok(Arc::new(self.read(&place)?))
    }

    /// Takes away what has not been used for the longest time, and what processes that ended have left unfinished.
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
