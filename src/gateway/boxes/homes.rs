//! The private homes of boxes: creates, lists and removes them.
//!
//! Each home has a record in another folder, which no box contains. The record names the server. The modification time of the record is the
//! time of the last start. A gateway locks the record as long as the server runs. So a home in use is never removed, even if another
//! process uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Gateway;
use crate::config::{BoxDefinition, ServerDefinition, Transport, loads_code};
use crate::error::{Error, Result};
use crate::files::{lock_within, private_folder, read_own, remove_tree, share_within, tree_size};
use crate::gateway::core::Core;
use crate::trust::deciding_folder;

/// The folder within the state folder that contains the private homes.
pub(super) const HOMES: &str = "boxes";
/// The folder within the state folder that contains the records of the private homes.
const RECORDS: &str = "boxes-used";
/// Number of hexadecimal digits of the digest of a server's key. The names of the server's private homes begin with these digits.
const KEY_DIGITS: usize = 32;
/// Number of hexadecimal digits of the second digest in the name of a private home (`home_name`).
const HOME_DIGITS: usize = 64;
/// Number of hexadecimal digits of the second digest that a person sees and types as the id.
const ID_DIGITS: usize = 12;
/// The start of the names of private homes that are being removed. If a process is killed during a removal, the next removal deletes the
/// rest.
const REMOVED: &str = "removed-";
/// Maximum size in bytes of the record of a private home.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// Maximum time that a start waits for another process that is just removing the home.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of private homes in a list.
const MAX_HOMES: usize = 10_000;
/// Maximum number of files whose sizes are added up for one list of homes.
const MAX_FILES: u64 = 2_000_000;

/// The private homes in a state folder.
#[derive(Clone)]
pub(super) struct Homes {
    folder: PathBuf,
    records: PathBuf,
}

/// The content of the record of a private home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The key of the server ([`ServerDefinition::key`]).
    key: String,
    /// The id of the approval. The renewals of the approval have the same id.
    approval: String,
}

/// A private home that a server may use, and the lock that protects the home from removal.
pub(super) struct HeldHome {
    pub(super) path: PathBuf,
    pub(super) lock: Arc<File>,
}

/// The use of a private home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HomeUse {
    /// A server runs in a box with this home.
    Running,
    /// A server of this gateway gets this home at its next start.
    Configured,
    /// The server of the home is approved, but no server of this gateway gets the home: the entry is gone, was changed, or belongs to
    /// another config or workspace.
    Approved,
    /// No server can get this home any more.
    Unused,
}

/// A private home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrivateHome {
    pub id: String,
    /// The name of the server. If the server is not from the operator's config, the name begins with the source. `None` for a home of an
    /// earlier version whose server is not approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub used: HomeUse,
    /// The size on the disk, in bytes.
    pub bytes: u64,
    pub files: u64,
    /// False if the home contains more files than were counted, so that `bytes` and `files` are too small.
    pub is_complete: bool,
    /// The time of the last start, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<u64>,
}

/// The private homes to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomesToRemove {
    /// All homes that are [`HomeUse::Unused`].
    Unused,
    /// The homes of servers with these names, and the homes with these ids, unless they are [`HomeUse::Running`] or
    /// [`HomeUse::Configured`].
    Named(Vec<String>),
}

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedHomes {
    pub removed: Vec<PrivateHome>,
    /// Homes that were named, but were not removed because they are in use.
    pub kept: Vec<PrivateHome>,
}

impl Homes {
    pub(super) fn new(state_folder: &Path) -> Self {
        Self { folder: state_folder.join(HOMES), records: state_folder.join(RECORDS) }
    }

    /// Returns the private home of a server and its command. Creates it at the first start, and keeps it. Another command for the same
    /// server gets another home. Otherwise, code and settings that the first command left in the home would run with the rights of the
    /// second command. A command that is approved again after a revocation gets another home too, because a person may no longer trust the
    /// first home. `approval` is the id that an approval shares with its renewals. Blocks.
    pub(super) fn hold(&self, server: &ServerDefinition, workspace: Option<&Path>, approval: &str) -> Result<HeldHome> {
        let name = home_name(server, workspace, approval);
        let record = Record { key: server.key(), approval: approval.to_owned() };
        self.try_hold(&name, &record).map_err(|error| Error::io("the private home of a box", &error))
    }

    fn try_hold(&self, name: &str, record: &Record) -> io::Result<HeldHome> {
        let path = private_folder(&self.records)?.path.join(name);
        let mut lock = share_within(&path, PATIENCE)?;
        let bytes = serde_json::to_vec(record)?;
        // The lock is shared, but all processes that hold it write the same bytes.
        if read_own(&path, MAX_RECORD_BYTES).ok().as_ref() != Some(&bytes) {
            lock.set_len(0)?;
            lock.write_all(&bytes)?;
        }
        lock.set_modified(SystemTime::now())?;
        let folder = private_folder(&self.folder.join(name))?;
        Ok(HeldHome { path: folder.path, lock: Arc::new(lock) })
    }

    /// Removes the private homes of a server whose approval has ended. A later approval gets other homes, so a home that cannot be removed
    /// is never used again. Blocks.
    pub(super) fn remove_of(&self, key: &str) {
        let start = start_of_home(key);
        for name in self.names().into_iter().filter(|name| name.starts_with(&start)) {
            if let Err(error) = self.remove(&name) {
                tracing::warn!(%error, "a private home of a server without an approval was not removed");
            }
        }
    }

    /// Removes a home unless a server runs in it. Returns whether it was removed.
    fn remove_unless_running(&self, name: &str) -> io::Result<bool> {
        private_folder(&self.records)?;
        match lock_within(&self.records.join(name), Duration::ZERO) {
            Ok(_lock) => self.remove(name).map(|()| true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a home. Renames it first, so that no start finds a partly removed home.
    fn remove(&self, name: &str) -> io::Result<()> {
        let gone = tempfile::Builder::new().prefix(REMOVED).tempdir_in(&self.folder)?.keep();
        let moved = fs::rename(self.folder.join(name), &gone);
        if moved.is_ok() {
            // The record is removed first: a home without a record only has no server name in lists.
            let _ = fs::remove_file(self.records.join(name));
        }
        match remove_tree(&gone) {
            // Another process has taken the renamed home for the remains of a killed process, and has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => moved,
            removed => removed.and(moved),
        }
    }

    /// Removes the remains of homes that killed processes were removing.
    fn remove_remains(&self) {
        let remains = self.entries().filter(|name| name.starts_with(REMOVED));
        for name in remains.collect::<Vec<_>>() {
            if let Err(error) = remove_tree(&self.folder.join(name)) {
                tracing::warn!(%error, "the rest of a private home was not removed");
            }
        }
    }

    /// Returns the names of all homes, in order.
    fn names(&self) -> BTreeSet<String> {
        self.entries().filter(|name| is_home(name)).take(MAX_HOMES).collect()
    }

    /// Returns the names of all folders in the folder of the private homes. Leaves out links.
    fn entries(&self) -> impl Iterator<Item = String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.filter_map(|entry| entry.file_name().into_string().ok())
    }

    fn is_running(&self, name: &str) -> bool {
        // The record is opened only for reading, so it is not created. It can be locked nevertheless.
        let record = crate::files::open_own(&self.records.join(name));
        record.is_ok_and(|record| matches!(record.try_lock(), Err(fs::TryLockError::WouldBlock)))
    }

    fn record(&self, name: &str) -> Option<Record> {
        let bytes = read_own(&self.records.join(name), MAX_RECORD_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|Record { key, .. }| name.starts_with(&start_of_home(key)))
    }

    fn last_used(&self, name: &str) -> Option<u64> {
        let of = |path: PathBuf| fs::symlink_metadata(path).and_then(|file| file.modified()).ok();
        let time = of(self.records.join(name)).or_else(|| of(self.folder.join(name)))?;
        u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    }

    /// Returns a private home. Its size is not measured yet.
    fn look_at(&self, name: &str, configured: &BTreeSet<String>, approved: &BTreeMap<String, String>) -> PrivateHome {
        let record = self.record(name);
        // Earlier versions made homes without a record.
        let old = || approved.keys().find(|key| name.starts_with(&start_of_home(key))).cloned();
        let is_approved = match &record {
            Some(Record { key, approval }) => approved.get(key) == Some(approval),
            None => old().is_some(),
        };
        let used = match is_approved {
            _ if self.is_running(name) => HomeUse::Running,
            _ if configured.contains(name) => HomeUse::Configured,
            true => HomeUse::Approved,
            false => HomeUse::Unused,
        };
        let server = record.map(|record| record.key).or_else(old);
        let last_used_ms = self.last_used(name);
        PrivateHome { id: id_of(name).to_owned(), server, used, bytes: 0, files: 0, is_complete: false, last_used_ms }
    }

    fn measured(&self, name: &str, home: PrivateHome, rest: &mut u64) -> PrivateHome {
        let Ok(size) = tree_size(&self.folder.join(name), *rest) else { return home };
        *rest -= size.files;
        PrivateHome { bytes: size.bytes, files: size.files, is_complete: size.is_complete, ..home }
    }
}

impl Gateway {
    /// Lists the private homes of servers in boxes, including those of servers that no longer exist. Reads at most two million files.
    /// Blocks.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn private_homes(&self) -> Result<Vec<PrivateHome>> {
        let (homes, mut rest) = (&self.core.box_maker.homes, MAX_FILES);
        Ok(self.core.homes()?.into_iter().map(|(name, home)| homes.measured(&name, home, &mut rest)).collect())
    }

    /// Returns the number of private homes that no server can get, without measuring them. Blocks.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn unused_private_homes(&self) -> Result<usize> {
        Ok(self.core.homes()?.into_iter().filter(|(_, home)| home.used == HomeUse::Unused).count())
    }

    /// Removes private homes. Never removes one in which a server runs, or that a configured server gets at its next start. Follows no links.
    /// Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if one of the names belongs to no home; in this case nothing is removed. `ERR_APPROVAL_STORE`, `ERR_IO`.
    pub fn remove_private_homes(&self, which: &HomesToRemove) -> Result<RemovedHomes> {
        self.core.check_open()?;
        let (homes, mut rest) = (&self.core.box_maker.homes, MAX_FILES);
        homes.remove_remains();
        let mut found = self.core.homes()?;
        match which {
            HomesToRemove::Unused => found.retain(|(_, home)| home.used == HomeUse::Unused),
            HomesToRemove::Named(names) => {
                let is_named = |home: &PrivateHome, name: &String| home.id == *name || home.server.as_ref() == Some(name);
                if let Some(name) = names.iter().find(|name| !found.iter().any(|(_, home)| is_named(home, name))) {
                    let problem = format!("no server has a private home with the name or id {}", crate::text::sanitise_text(name, 200));
                    return Err(Error::InvalidOption { method: "Gateway.removePrivateHomes", problem: problem.into() });
                }
                found.retain(|(_, home)| names.iter().any(|name| is_named(home, name)));
            }
        }
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for (name, home) in found {
            let home = homes.measured(&name, home, &mut rest);
            let is_in_use = matches!(home.used, HomeUse::Running | HomeUse::Configured);
            let failed = |error: io::Error| Error::io("the private home of a box", &error);
            if is_in_use {
                kept.push(home);
            } else if homes.remove_unless_running(&name).map_err(failed)? {
                removed.push(home);
            } else {
                kept.push(PrivateHome { used: HomeUse::Running, ..home });
            }
        }
        Ok(RemovedHomes { removed, kept })
    }
}

impl Core {
    /// Returns all private homes with the names of their folders, without their sizes.
    fn homes(&self) -> Result<Vec<(String, PrivateHome)>> {
        let approved = self.trust.approvals.first_approval_ids()?;
        let mut configured = BTreeSet::new();
        for server in self.registry.servers().iter().filter(|server| matches!(server.in_box, Some(BoxDefinition::On(_)))) {
            if let Some(approval) = approved.get(&server.key()) {
                configured.insert(home_name(server, deciding_folder(server, &self.surroundings).as_deref(), approval));
            }
        }
        let homes = &self.box_maker.homes;
        Ok(homes.names().into_iter().map(|name| (name.clone(), homes.look_at(&name, &configured, &approved))).collect())
    }
}

/// Returns whether this is the name of a private home.
fn is_home(name: &str) -> bool {
    let is_hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.split_once('-').is_some_and(|(key, rest)| is_hex(key, KEY_DIGITS) && is_hex(rest, HOME_DIGITS))
}

/// Returns the part of a home's name that a person types.
fn id_of(name: &str) -> &str {
    name.get(KEY_DIGITS + 1..KEY_DIGITS + 1 + ID_DIGITS).unwrap_or(name)
}

/// Returns the start of the names of a server's private homes.
fn start_of_home(key: &str) -> String {
    format!("{}-", &hex::encode(Sha256::digest(key))[..KEY_DIGITS])
}

/// Returns the name of the private home: the server's part, and a digest of its approval and of all parts of the config that decide which
/// code runs.
fn home_name(server: &ServerDefinition, workspace: Option<&Path>, approval: &str) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &[u8]| {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    };
    add(approval.as_bytes());
    if let Transport::Stdio { command, arguments, environment, removed_environment: _, working_directory, environment_file } =
        &server.transport
    {
        for (key, text) in [("command", Some(command)), ("cwd", working_directory.as_ref()), ("envFile", environment_file.as_ref())] {
            add(key.as_bytes());
            add(text.map_or(&[][..], |text| text.as_bytes()));
        }
        add(arguments.len().to_string().as_bytes());
        for argument in arguments {
            add(argument.as_bytes());
        }
        for (name, value) in environment.iter().filter(|(name, _)| loads_code(name)) {
            add(name.as_bytes());
            add(value.expose_secret().as_bytes());
        }
    }
    if let Some(BoxDefinition::On(settings)) = &server.in_box {
        for (name, value) in settings.environment.iter().filter(|(name, _)| loads_code(name)) {
            add(name.as_bytes());
            add(value.as_bytes());
        }
    }
    // A relative path is another program in another folder.
    add(workspace.map_or(&[][..], |folder| folder.as_os_str().as_encoded_bytes()));
    start_of_home(&server.key()) + &hex::encode(digest.finalize())
}
