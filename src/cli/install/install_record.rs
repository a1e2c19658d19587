//! The facts that `install` stores in the state folder, so that `install --undo` can restore a host's config.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cli::edit::{Change, RemovedServer, UndoFacts};
use crate::files::{Writing, private_folder, read_own, replace};

const FOLDER: &str = "hosts";
const VERSION: u32 = 1;
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Number of characters of a path's digest that a file name contains.
const DIGEST_CHARS: usize = 24;

/// The facts about one changed file. They may contain secrets of the host's config, so only this user may read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InstallRecord {
    version: u32,
    pub(super) path: PathBuf,
    /// True if the file existed before the installation.
    pub(super) existed: bool,
    /// True if the installation created the file's folder.
    pub(super) made_folder: bool,
    /// The text of the file before the installation. It is stored as base64, so that all of its bytes are kept.
    before: String,
    /// The digest of the text that the installation wrote.
    pub(super) after: String,
    pub(super) change: Change,
    /// The name of our entry.
    pub(super) name: String,
    pub(super) taken: Vec<RemovedServer>,
}

impl InstallRecord {
    pub(super) fn new(path: &Path, before: Option<&str>, after: &str, name: &str, taken: Vec<RemovedServer>, made_folder: bool) -> Self {
        let text = before.unwrap_or_default();
        Self {
            version: VERSION,
            path: path.to_owned(),
            existed: before.is_some(),
            made_folder,
            before: STANDARD.encode(text),
            after: crate::cli::edit::digest(after),
            change: crate::cli::edit::change_of(text, after),
            name: name.to_owned(),
            taken,
        }
    }

    /// Returns the text of the file before the installation.
    pub(super) fn before(&self) -> io::Result<String> {
        let bytes = STANDARD.decode(&self.before).map_err(io::Error::other)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    pub(super) fn done<'d>(&'d self, before: &'d str) -> UndoFacts<'d> {
        UndoFacts { before, after: &self.after, change: &self.change, name: &self.name, taken: &self.taken }
    }
}

/// Returns the folder for the facts. Creates it if necessary.
fn folder(state: &Path) -> io::Result<PathBuf> {
    Ok(private_folder(&private_folder(state)?.path.join(FOLDER))?.path)
}

fn file(state: &Path, path: &Path) -> PathBuf {
    let digest = hex::encode(Sha256::digest(path.as_os_str().as_encoded_bytes()));
    state.join(FOLDER).join(format!("{}.json", &digest[..DIGEST_CHARS]))
}

/// Reads the facts about a file. Returns `None` if this program has not changed the file.
pub(super) fn read(state: &Path, path: &Path) -> io::Result<Option<InstallRecord>> {
    let file = file(state, path);
    let explained = |problem: String| io::Error::other(format!("{} cannot be read: {problem}", file.display()));
    let bytes = match read_own(&file, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(explained(error.to_string())),
    };
    // The message of serde is not used, because it could quote a value, which may be a secret.
    let record: InstallRecord = serde_json::from_slice(&bytes).map_err(|error| explained(format!("line {} is not valid", error.line())))?;
    if record.version != VERSION || record.path != path {
        return Err(explained("another version of hyperlight-mcp has written it, or it belongs to another file".to_owned()));
    }
    Ok(Some(record))
}

pub(super) fn write(state: &Path, record: &InstallRecord) -> io::Result<()> {
    folder(state)?;
    replace(&file(state, &record.path), &serde_json::to_vec_pretty(record)?, Writing::Durable)
}

pub(super) fn remove(state: &Path, path: &Path) -> io::Result<()> {
    match fs::remove_file(file(state, path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn facts_are_read_back_and_only_their_user_may_read_them() {
        let state = tempfile::tempdir().unwrap();
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let path = Path::new("/h/.cursor/mcp.json");
        assert_eq!(read(state.path(), path).unwrap(), None);
        let record = InstallRecord::new(path, Some("\u{feff}{ \"token\": \"sk-1\" }\r\n"), "{}", "hyperlight-mcp", Vec::new(), false);
        write(state.path(), &record).unwrap();
        assert_eq!(read(state.path(), path).unwrap().as_ref(), Some(&record));
        assert_eq!(record.before().unwrap(), "\u{feff}{ \"token\": \"sk-1\" }\r\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file(state.path(), path)), mode(&state.path().join(FOLDER))), (0o600, 0o700));
        remove(state.path(), path).unwrap();
        remove(state.path(), path).unwrap();
        assert_eq!(read(state.path(), path).unwrap(), None);
    }

    #[test]
    fn damaged_facts_are_an_error_without_their_content() {
        let state = tempfile::tempdir().unwrap();
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let path = Path::new("/h/x");
        folder(state.path()).unwrap();
        replace(&file(state.path(), path), b"{ \"version\": \"sk-0123456789\" }", Writing::Quick).unwrap();
        let error = read(state.path(), path).unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("sk-0"), "{error}");
    }
}
