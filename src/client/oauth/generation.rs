//! Generations of a server's tokens: forgetting them begins a new one, for every process. A login, a renewal or a person's yes that began in
//! an earlier generation stores nothing.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;

/// Longest wait for the lock of a server's generation. It is held while one file is written.
const LOCK_TIME: Duration = Duration::from_secs(5);
const ID_BYTES: usize = 16;
/// Largest file of a generation: its id in hexadecimal digits.
const MAX_FILE_BYTES: u64 = 2 * ID_BYTES as u64;

/// The generation in which something began; `None` where it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Generation(Option<Vec<u8>>);

impl Generation {
    /// Returns whether the tokens of this generation were forgotten, as far as that is known.
    pub(super) fn is_over(&self, now: &Self) -> bool {
        matches!((&self.0, &now.0), (Some(began), Some(now)) if began != now)
    }
}

/// The outcome of storing something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Kept,
    /// The server's tokens were forgotten since it began: it is not stored.
    Forgotten,
}

/// The file of one server's generation. There is none before its tokens are forgotten for the first time.
#[derive(Debug, Clone)]
pub(super) struct GenerationFile {
    folder: PathBuf,
    name: String,
}

impl GenerationFile {
    pub(super) fn new(folder: &Path, name: String) -> Self {
        Self { folder: folder.to_owned(), name }
    }

    /// Reads the generation that counts now. Creates the folder, as [`Self::renew`] changes nothing where there is none.
    pub(super) fn current(&self) -> Generation {
        Generation(files::private_folder(&self.folder).and_then(|_| self.read()).ok())
    }

    /// Writes, unless the tokens were forgotten since `began`. Blocks.
    pub(super) fn unless_over(&self, began: &Generation, write: impl FnOnce() -> io::Result<()>) -> io::Result<Stored> {
        let Generation(Some(began)) = began else { return Err(io::Error::other("the folder of tokens could not be used when this began")) };
        files::private_folder(&self.folder)?;
        let _lock = files::lock_within(&self.path("lock"), LOCK_TIME)?;
        if self.read()? != *began {
            return Ok(Stored::Forgotten);
        }
        write().map(|()| Stored::Kept)
    }

    /// Begins a new generation, then removes what the earlier ones stored. Blocks.
    pub(super) fn renew(&self, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match fs::metadata(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            _ => {}
        }
        // Whatever fails of these, the others are done.
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
