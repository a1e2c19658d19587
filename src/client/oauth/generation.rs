//! Generations of a server's tokens. When the tokens are forgotten, a new generation begins, for all processes that use the token store.
//! The result of a login, of a renewal or of a person's confirmation is not stored if the work began in an earlier generation.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;

/// Longest wait for the lock of a server's generation. A process holds the lock while it writes one file.
const LOCK_TIME: Duration = Duration::from_secs(5);
const ID_BYTES: usize = 16;
/// Maximum size of a generation's file. The file contains an id in hexadecimal digits.
const MAX_FILE_BYTES: u64 = 2 * ID_BYTES as u64;

/// The generation in which some work began. `None` if the generation could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Generation(Option<Vec<u8>>);

impl Generation {
    /// Returns whether the tokens of this generation were forgotten. Returns `false` if this is not known.
    pub(super) fn is_over(&self, now: &Self) -> bool {
        matches!((&self.0, &now.0), (Some(began), Some(now)) if began != now)
    }
}

/// The outcome of storing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Kept,
    /// The value was not stored, because the server's tokens were forgotten after the work had begun.
    Forgotten,
}

/// The file that contains the current generation of one server. It does not exist before the server's tokens are forgotten for the first
/// time.
#[derive(Debug, Clone)]
pub(super) struct GenerationFile {
    folder: PathBuf,
    name: String,
}

impl GenerationFile {
    pub(super) fn new(folder: &Path, name: String) -> Self {
        Self { folder: folder.to_owned(), name }
    }

    /// Reads the current generation. Creates the folder, because [`Self::renew`] changes nothing if there is no folder.
    pub(super) fn current(&self) -> Generation {
        Generation(files::private_folder(&self.folder).and_then(|_| self.read()).ok())
    }

    /// Reads the current generation, but does not create the folder. Blocks the thread.
    pub(super) fn last(&self) -> Generation {
        Generation(self.read().ok())
    }

    /// Calls `write` unless the tokens were forgotten since `began`. Blocks the thread.
    pub(super) fn unless_over(&self, began: &Generation, write: impl FnOnce() -> io::Result<()>) -> io::Result<Stored> {
        let Generation(Some(began)) = began else {
            return Err(io::Error::other("the folder of tokens could not be read when this sign-in or renewal began"));
        };
        files::private_folder(&self.folder)?;
        let _lock = files::lock_within(&self.path("lock"), LOCK_TIME)?;
        if self.read()? != *began {
            return Ok(Stored::Forgotten);
        }
        write().map(|()| Stored::Kept)
    }

    /// Begins a new generation, and then removes the data of earlier generations. Blocks the thread.
    pub(super) fn renew(&self, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match fs::metadata(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            _ => {}
        }
        // All steps are done, even if one of them fails.
        let lock = files::lock_within(&self.path("lock"), LOCK_TIME);
        let begun = new_id().and_then(|id| files::replace(&self.path("forgotten"), id.as_bytes(), files::Writing::Durable));
        let removed = remove();
        removed.and(begun).and(lock.map(drop))
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        match files::read_own(&self.path("forgotten"), MAX_FILE_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read,
        }
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }
}

fn new_id() -> io::Result<String> {
    let mut id = [0; ID_BYTES];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    Ok(hex::encode(id))
}
