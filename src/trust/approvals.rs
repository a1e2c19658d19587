//! The approvals on disk: `approved-mcp.json` in the state folder, read again whenever one counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::{command_digest, manifest_digest};
use crate::catalog::Manifest;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};

const FILE_NAME: &str = "approved-mcp.json";
const LOCK_NAME: &str = "approved-mcp.lock";
const VERSION: u32 = 1;

/// What a person approved of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    pub command_digest: String,
    /// The tools, once they were approved as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Manifest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
}

/// How far an approval holds for a server as it is configured now.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nothing may run.
    Unapproved,
    /// The server may be started, to read its tools.
    Command,
    /// Its tools may be called.
    Full(Box<Manifest>),
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    servers: BTreeMap<String, Approval>,
}

/// The one owner of the approval file.
#[derive(Debug)]
pub struct ApprovalStore {
    folder: PathBuf,
}

impl ApprovalStore {
    /// Opens the store, creating its folder with mode 0700.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the folder cannot be created.
    pub fn open(folder: &Path) -> Result<Self> {
        let store = Self { folder: folder.to_owned() };
        if !folder.is_dir() {
            let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.map_err(|error| store.problem(&format!("the folder cannot be created: {error}")))?;
        }
        Ok(store)
    }

    /// How far the approval on disk holds for this server, now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be read: nothing is approved then.
    pub fn standing(&self, server: &ServerDefinition) -> Result<Standing> {
        let Some(approval) = self.read()?.servers.remove(&server.name) else {
            return Ok(Standing::Unapproved);
        };
        if approval.command_digest != command_digest(server) {
            return Ok(Standing::Unapproved);
        }
        Ok(match (approval.manifest, approval.manifest_digest) {
            (Some(manifest), Some(digest)) if manifest_digest(&manifest) == digest => Standing::Full(Box::new(manifest)),
            _ => Standing::Command,
        })
    }

    /// The manifest that was approved, whether or not its command still is.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub fn approved_manifest(&self, server: &str) -> Result<Option<Manifest>> {
        Ok(self.read()?.servers.remove(server).and_then(|approval| approval.manifest))
    }

    /// Approves the command as it is configured. An approval of the tools under the same command is kept.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` where the file cannot be written.
    pub fn approve_command(&self, server: &ServerDefinition) -> Result<()> {
        let digest = command_digest(server);
        self.change(|servers| {
            let kept = servers.remove(&server.name).filter(|known| known.command_digest == digest);
            let approval = kept.unwrap_or(Approval { command_digest: digest.clone(), manifest: None, manifest_digest: None });
            servers.insert(server.name.clone(), approval);
        })
    }

    /// Approves the tools, and the command with them.
    ///
    /// # Errors
    /// As [`Self::approve_command`].
    pub fn approve_manifest(&self, server: &ServerDefinition, manifest: &Manifest) -> Result<()> {
        let approval = Approval {
            command_digest: command_digest(server),
            manifest: Some(manifest.clone()),
            manifest_digest: Some(manifest_digest(manifest)),
        };
        self.change(|servers| {
            servers.insert(server.name.clone(), approval);
        })
    }

    /// Takes an approval back, both stages.
    ///
    /// # Errors
    /// As [`Self::approve_command`].
    pub fn revoke(&self, server: &str) -> Result<()> {
        self.change(|servers| {
            servers.remove(server);
        })
    }

    fn read(&self) -> Result<Document> {
        let text = match fs::read_to_string(self.folder.join(FILE_NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Document { version: VERSION, servers: BTreeMap::new() }),
            Err(error) => return Err(self.problem(&error.to_string())),
        };
        let document: Document = serde_json::from_str(&text)
            .map_err(|error| self.problem(&format!("it is damaged ({error}); nothing is approved until it is moved away")))?;
        if document.version != VERSION {
            return Err(self.problem(&format!("it has version {}; this program reads version {VERSION}", document.version)));
        }
        Ok(document)
    }

    /// Reads, changes and writes under a lock, so that two processes at once lose nothing.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Approval>)) -> Result<()> {
        let failed = |error: std::io::Error| self.problem(&error.to_string());
        let lock = File::options().create(true).truncate(false).write(true).open(self.folder.join(LOCK_NAME)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut document = self.read()?;
        change(&mut document.servers);
        let text = serde_json::to_string_pretty(&document).map_err(|error| self.problem(&error.to_string()))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(failed)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(self.folder.join(FILE_NAME)).map_err(|error| failed(error.error))?;
        // The lock ends with its file.
        Ok(())
    }

    fn problem(&self, problem: &str) -> Error {
        Error::ApprovalStore { path: self.folder.join(FILE_NAME), problem: problem.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn server(argument: &str) -> ServerDefinition {
        let text = format!(r#"{{ "servers": {{ "a": {{ "command": "x", "args": ["{argument}"] }} }} }}"#);
        parse_text(&text, "c", 9).unwrap().servers.remove(0)
    }

    fn manifest() -> Manifest {
        Manifest {
            protocol_version: "2025-11-25".into(),
            server_name: "s".into(),
            server_version: "1".into(),
            instructions: None,
            tools: Vec::new(),
        }
    }

    #[test]
    fn an_approval_holds_for_what_was_approved_and_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = ApprovalStore::open(&folder.path().join("state")).unwrap();
        assert_eq!(store.standing(&server("1")).unwrap(), Standing::Unapproved);
        store.approve_command(&server("1")).unwrap();
        assert_eq!(store.standing(&server("1")).unwrap(), Standing::Command);
        store.approve_manifest(&server("1"), &manifest()).unwrap();
        assert_eq!(store.standing(&server("1")).unwrap(), Standing::Full(Box::new(manifest())));
        assert_eq!(store.standing(&server("2")).unwrap(), Standing::Unapproved);
    }

    #[test]
    fn a_revocation_in_another_process_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (ApprovalStore::open(folder.path()).unwrap(), ApprovalStore::open(folder.path()).unwrap());
        here.approve_manifest(&server("1"), &manifest()).unwrap();
        there.revoke("a").unwrap();
        assert_eq!(here.standing(&server("1")).unwrap(), Standing::Unapproved);
    }

    #[test]
    fn a_damaged_file_approves_nothing_and_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let store = ApprovalStore::open(folder.path()).unwrap();
        fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(store.standing(&server("1")).unwrap_err().code(), "ERR_APPROVAL_STORE");
        assert!(store.approve_command(&server("1")).is_err());
        assert_eq!(fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(), "{");
    }

    #[test]
    fn folder_and_file_are_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        ApprovalStore::open(&state).unwrap().approve_command(&server("1")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(FILE_NAME))), (0o700, 0o600));
    }

    #[test]
    fn many_writers_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for index in 0..16 {
                let path = folder.path();
                scope.spawn(move || {
                    let mut server = server("1");
                    server.name = format!("s{index}");
                    ApprovalStore::open(path).unwrap().approve_command(&server).unwrap();
                });
            }
        });
        assert_eq!(ApprovalStore::open(folder.path()).unwrap().read().unwrap().servers.len(), 16);
    }
}
