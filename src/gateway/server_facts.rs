//! Facts about servers that were learnt from earlier connections: how a session is started, and whether the server asks questions. The
//! facts are valid for one digest of a server. If the facts are lost, the next connection needs an additional round trip. The facts do not
//! affect approvals.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client::Era;
use crate::files;

const FILE: &str = "learnt.json";
/// The maximum size in bytes of the file with the facts.
const MAX_BYTES: u64 = 1024 * 1024;

/// Facts about one server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServerFacts {
    /// The digest of the server's definition for which the facts are valid.
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) era: Option<Era>,
    pub(super) elicits: bool,
    /// The original names of the approved tools that the server described differently, or did not have, at the last connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changed: Vec<String>,
}

/// The facts about all servers, kept in a file.
pub(super) struct ServerFactsStore {
    path: PathBuf,
    /// Never locked while the file is read or written, because the JavaScript thread takes this lock.
    servers: Mutex<BTreeMap<String, ServerFacts>>,
    /// Locked while the file is written.
    writing: Mutex<()>,
}

impl ServerFactsStore {
    /// Reads the file with the facts. An unreadable file is treated as empty.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let servers = read(&path).unwrap_or_default();
        Self { path, servers: Mutex::new(servers), writing: Mutex::default() }
    }

    /// Returns the facts about a server, if they are valid for this digest. Otherwise returns default facts.
    pub(super) fn get(&self, server: &str, digest: &str) -> ServerFacts {
        self.servers().get(server).filter(|server_facts| server_facts.digest == digest).cloned().unwrap_or_default()
    }

    /// Returns the approved tools that differed at the last connection of a server. `digest` is called only if there are such tools.
    pub(super) fn changed(&self, server: &str, digest: impl FnOnce() -> String) -> Vec<String> {
        // The lock is not held while the digest is computed, because that may read files.
        let known = self.servers().get(server).filter(|known| !known.changed.is_empty()).cloned();
        known.filter(|known| known.digest == digest()).map(|known| known.changed).unwrap_or_default()
    }

    /// Returns the keys of the servers with approved tools that differed at their last connection.
    pub(super) fn with_changes(&self) -> Vec<String> {
        self.servers().iter().filter(|(_, known)| !known.changed.is_empty()).map(|(server, _)| server.clone()).collect()
    }

    /// Records a fact, and writes the file if the fact is new.
    pub(super) fn note(&self, server: &str, digest: &str, change: impl FnOnce(&mut ServerFacts)) {
        if self.update(server, digest, change)
            && let Err(error) = self.write()
        {
            tracing::debug!(%error, "the facts about servers could not be written");
        }
    }

    /// Changes the facts in memory. Returns whether the facts are different now.
    fn update(&self, server: &str, digest: &str, change: impl FnOnce(&mut ServerFacts)) -> bool {
        let mut servers = self.servers();
        let before = servers.get(server).filter(|server_facts| server_facts.digest == digest).cloned();
        let mut now = before.clone().unwrap_or_else(|| ServerFacts { digest: digest.to_owned(), ..ServerFacts::default() });
        change(&mut now);
        if before.as_ref() == Some(&now) {
            return false;
        }
        servers.insert(server.to_owned(), now);
        true
    }

    fn write(&self) -> std::io::Result<()> {
        let _writing = self.writing.lock();
        // Facts that other processes have written about other servers are kept.
        let mut all = read(&self.path).unwrap_or_default();
        all.extend(self.servers().iter().map(|(name, server_facts)| (name.clone(), server_facts.clone())));
        files::replace(&self.path, &serde_json::to_vec_pretty(&all)?, files::Writing::Quick)
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, ServerFacts>> {
        self.servers.lock()
    }
}

fn read(path: &Path) -> Option<BTreeMap<String, ServerFacts>> {
    serde_json::from_slice(&files::read_own(path, MAX_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::files::testing::{at_once, pipe};

    #[test]
    fn what_was_learnt_holds_for_the_same_server_only_and_in_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let server_facts = ServerFactsStore::open(folder.path());
        server_facts.note("a", "digest", |server| server.era = Some(Era::Discover));
        server_facts.note("a", "digest", |server| server.elicits = true);
        let again = ServerFactsStore::open(folder.path());
        assert_eq!((again.get("a", "digest").era, again.get("a", "digest").elicits), (Some(Era::Discover), true));
        assert_eq!(again.get("a", "other"), ServerFacts::default());
        again.note("a", "digest", |server| server.changed = vec!["echo".to_owned()]);
        assert_eq!(ServerFactsStore::open(folder.path()).get("a", "digest").changed, ["echo"]);
        again.note("a", "other", |server| server.era = Some(Era::Initialize));
        assert!(!again.get("a", "other").elicits);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{ \"a\": [").unwrap();
        let server_facts = ServerFactsStore::open(folder.path());
        assert_eq!(server_facts.get("a", "digest"), ServerFacts::default());
        server_facts.note("a", "digest", |server| server.elicits = true);
        assert!(ServerFactsStore::open(folder.path()).get("a", "digest").elicits);
    }

    #[test]
    fn a_pipe_in_the_place_of_the_file_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        pipe(folder.path(), FILE);
        let path = folder.path().to_owned();
        let server_facts = at_once(move || ServerFactsStore::open(&path));
        assert_eq!(server_facts.get("a", "digest"), ServerFacts::default());
    }

    #[test]
    fn who_asks_does_not_wait_for_who_writes() {
        let folder = tempfile::tempdir().unwrap();
        let server_facts = Arc::new(ServerFactsStore::open(folder.path()));
        let _writing = server_facts.writing.lock();
        let noting = Arc::clone(&server_facts);
        std::thread::spawn(move || noting.note("a", "digest", |server| server.elicits = true));
        let asking = Arc::clone(&server_facts);
        // The fact can be read before the file is written.
        at_once(move || while !asking.get("a", "digest").elicits {});
    }
}
