//! An approval, and the file format in which earlier versions kept all approvals: converts the file's bytes to approvals, or to a problem.
//! Does not access the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::executable::Executable;
use crate::catalog::{DirectNames, Manifest};
use crate::store::Canonical;
use crate::store::MachineKey;

/// The text that identifies a file of this program. Only such a file is ever moved or overwritten.
const FORMAT: &str = "hyperlight-mcp approvals";
const VERSION: u32 = 2;

/// The approval of one server by a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    pub command_digest: String,
    /// The program that the command named at the time of the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Executable>,
    /// The folders of the program, its interpreters and its packages that the box had at the time of the approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// The files that the entry named at the time of the approval.
    #[serde(default, skip_serializing_if = "NamedFiles::is_empty")]
    pub named: NamedFiles,
    /// The missing programs of other servers that the box could make at the time of the approval, as the request said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub makes: Vec<String>,
    /// The paths that the box could write at the time of the approval, in addition to its private home. Paths in arguments at which nothing
    /// existed are included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// The approved tools. `None` if only the command is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Arc<Manifest>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
    /// The names of the approved tools for hosts that call them directly, by raw name. They are kept while the server is approved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub direct_names: BTreeMap<String, DirectNames>,
    /// The names of the approved prompts for hosts, by raw name. They are kept while the server is approved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prompt_names: BTreeMap<String, String>,
    /// A random id of this approval, which distinguishes it from earlier and later ones. Empty in files of versions that had no ids.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The id of the first approval since the server last had no approval. Later approvals keep this id, and a revocation removes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first_id: String,
    /// Time of the approval in seconds since 1970.
    pub approved_at: u64,
    /// Time of expiry in seconds since 1970. `None` if the approval is valid until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// The files and folders that decide which code a server runs ([`Code`](crate::boxes::Code)), and its `envFile`. The boxes of other servers
/// respect them as long as the approval is valid, even if the entry is gone: the same entry can come back, for example with another branch
/// of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedFiles {
    /// Programs and packages, whether they exist or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Those programs in `programs` that did not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Folders that may contain code among other things.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// Folders in which a runtime looks for packages and settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub searched: Vec<String>,
    /// All other files that the entry names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// True if the entry names more files than are looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_too_long: bool,
    /// The file with variables, `envFile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_file: Option<String>,
}

impl NamedFiles {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Approval {
    /// Returns the id that later approvals keep and a revocation ends. For files of versions without `first_id`, returns the approval's own
    /// id.
    #[must_use]
    pub fn first_approval_id(&self) -> &str {
        if self.first_id.is_empty() { &self.id } else { &self.first_id }
    }

    /// Returns whether each folder of a program was shown at the approval, or lies in a folder that was shown.
    #[must_use]
    pub fn covers_places(&self, places: &[String]) -> bool {
        places.iter().all(|place| self.places.iter().any(|shown| Path::new(place).starts_with(shown)))
    }

    /// Returns whether each of these places was that of a program at the approval, or lies in such a place.
    #[must_use]
    pub fn covers_linked(&self, places: &[String]) -> bool {
        places.iter().all(|place| self.named.programs.iter().any(|program| Path::new(place).starts_with(program)))
    }

    /// Returns whether the approval has expired.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| now >= UNIX_EPOCH + Duration::from_secs(end))
    }
}

/// Returns a new id for an approval. If no randomness is available, uses the time in nanoseconds, which still distinguishes approvals.
pub(super) fn new_id() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_le_bytes();
    }
    hex::encode(bytes)
}

/// All approvals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Approvals {
    /// The approvals by the keys of their servers ([`ServerDefinition::key`](crate::config::ServerDefinition::key)).
    pub servers: BTreeMap<String, Arc<Approval>>,
    /// Number of revocations of each server, by its key, in all processes. If a person begins to approve a server that has no approval,
    /// this number shows whether another approval was given and revoked in the meantime.
    pub revocations: BTreeMap<String, u64>,
}

impl Approvals {
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Approval>> {
        self.servers.get(key)
    }

    /// Returns the ids of the approvals of all servers but one, by the keys of the servers.
    pub(super) fn ids_of_others(&self, key: &str) -> BTreeMap<String, String> {
        let others = self.servers.iter().filter(|(other, _)| *other != key);
        others.map(|(key, approval)| (key.clone(), approval.id.clone())).collect()
    }

    pub(super) fn revocations_of(&self, key: &str) -> u64 {
        self.revocations.get(key).copied().unwrap_or_default()
    }

    pub(super) fn revoke(&mut self, key: &str) {
        self.servers.remove(key);
        let count = self.revocations.entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u32,
    servers: BTreeMap<String, Arc<Approval>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    revocations: BTreeMap<String, u64>,
    /// HMAC-SHA-256 of all fields above with this machine's key.
    mac: String,
}

/// The result of reading the bytes of an earlier version's approval file.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// The file was written by this program and has not changed.
    Sound(Approvals),
    /// The file has this program's format, but is incomplete, was changed, or comes from another machine. It approves nothing, and is moved aside.
    Damaged(String),
    /// The file has another format or a later version. It is never changed.
    Foreign(String),
}

/// Parses the bytes of an earlier version's approval file.
///
/// ```
/// use hyperlight_mcp::trust::{Content, MachineKey, read_approvals};
/// let folder = tempfile::tempdir().unwrap();
/// let key = MachineKey::open(folder.path()).unwrap();
/// assert!(matches!(read_approvals(b"a shopping list", &key), Content::Foreign(_)));
/// ```
#[must_use]
pub fn read(bytes: &[u8], key: &MachineKey) -> Content {
    let marked = bytes.windows(FORMAT.len()).any(|part| part == FORMAT.as_bytes());
    let unreadable = |problem: String| {
        if marked {
            Content::Damaged(problem)
        } else {
            Content::Foreign(format!("it is not an approval file of hyperlight-mcp: {problem}"))
        }
    };
    let json: Json = match serde_json::from_slice(bytes) {
        Ok(json) => json,
        Err(error) => return unreadable(error.to_string()),
    };
    if json.get("format").and_then(Json::as_str) != Some(FORMAT) {
        return Content::Foreign(format!("it is not an approval file of hyperlight-mcp: its format is not \"{FORMAT}\""));
    }
    let version = json.get("version").and_then(Json::as_u64).unwrap_or_default();
    if version > u64::from(VERSION) {
        return Content::Foreign(format!("the file has version {version}; this program reads up to version {VERSION}"));
    }
    // The file is parsed from the bytes, not from `json`, because only this reports duplicate keys. A duplicate could hide another value.
    let file: File = match serde_json::from_slice(bytes) {
        Ok(file) => file,
        Err(error) => return Content::Damaged(error.to_string()),
    };
    let approvals = Approvals { servers: file.servers, revocations: file.revocations };
    if file.version != VERSION || !form(&approvals).is_some_and(|form| key.verify(&form, &file.mac)) {
        return Content::Damaged("another program changed it, or it comes from another machine".to_owned());
    }
    Content::Sound(approvals)
}

/// Returns the bytes that an earlier version wrote, for which [`read`] returns [`Content::Sound`].
#[cfg(test)]
pub(super) fn write(approvals: Approvals, key: &MachineKey) -> Result<Vec<u8>, String> {
    let form = form(&approvals).ok_or("the approvals cannot be written as JSON")?;
    let Approvals { servers, revocations } = approvals;
    let file = File { format: FORMAT.to_owned(), version: VERSION, servers, revocations, mac: key.authenticate(&form) };
    serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())
}

fn form(approvals: &Approvals) -> Option<Canonical> {
    let Approvals { servers, revocations } = approvals;
    let form = Canonical::new("hyperlight-mcp approvals 2").json(&serde_json::to_value(servers).ok()?);
    // Without revocations, the form is the same as before revocations were recorded.
    if revocations.is_empty() { Some(form) } else { Some(form.json(&serde_json::to_value(revocations).ok()?)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn approval() -> Approval {
        Approval {
            command_digest: "abc".into(),
            executable: None,
            places: Vec::new(),
            named: NamedFiles::default(),
            makes: Vec::new(),
            writes: Vec::new(),
            manifest: None,
            manifest_digest: None,
            direct_names: BTreeMap::new(),
            prompt_names: BTreeMap::new(),
            id: String::new(),
            first_id: String::new(),
            approved_at: 1_700_000_000,
            expires_at: None,
        }
    }

    fn key() -> (tempfile::TempDir, MachineKey) {
        let folder = tempfile::tempdir().unwrap();
        let key = MachineKey::open(folder.path()).unwrap();
        (folder, key)
    }

    fn approvals() -> Approvals {
        Approvals { servers: [("a".to_owned(), Arc::new(approval()))].into(), revocations: [("b".to_owned(), 7)].into() }
    }

    fn written(key: &MachineKey) -> Vec<u8> {
        write(approvals(), key).unwrap()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let (_folder, key) = key();
        assert_eq!(read(&written(&key), &key), Content::Sound(approvals()));
        let none_revoked = Approvals { revocations: BTreeMap::new(), ..approvals() };
        assert_eq!(read(&write(none_revoked.clone(), &key).unwrap(), &key), Content::Sound(none_revoked));
    }

    #[test]
    fn a_changed_value_an_added_server_and_another_machines_file_approve_nothing() {
        let (_folder, ours) = key();
        let (_other_folder, other) = key();
        let text = String::from_utf8(written(&ours)).unwrap();
        for changed in [
            text.replace("abc", "abd"),
            text.replace("\"a\": {", "\"b\": {"),
            text.replace("\"version\": 2", "\"version\": 1"),
            text.replace("\"b\": 7", "\"b\": 6"),
        ] {
            assert!(matches!(read(changed.as_bytes(), &ours), Content::Damaged(_)), "{changed}");
        }
        assert!(matches!(read(text.as_bytes(), &other), Content::Damaged(_)));
        assert!(matches!(read(&text.as_bytes()[..text.len() / 2], &ours), Content::Damaged(_)));
    }

    #[test]
    fn a_key_that_stands_twice_hides_nothing() {
        let (_folder, key) = key();
        let text = String::from_utf8(written(&key)).unwrap();
        let doubled = text.replacen("\"servers\": {", "\"servers\": {}, \"servers\": {", 1);
        assert!(matches!(read(doubled.as_bytes(), &key), Content::Damaged(_)));
    }

    #[test]
    fn a_file_of_another_program_or_a_later_version_is_foreign() {
        let (_folder, key) = key();
        for text in ["", "{", "[]", r#"{ "servers": {} }"#, r#"{ "version": 1, "approved": ["x"] }"#] {
            assert!(matches!(read(text.as_bytes(), &key), Content::Foreign(_)), "{text}");
        }
        let later = String::from_utf8(written(&key)).unwrap().replace("\"version\": 2", "\"version\": 3");
        assert!(matches!(read(later.as_bytes(), &key), Content::Foreign(problem) if problem.contains("version 3")));
    }

    #[test]
    fn an_approval_ends_at_its_time() {
        let approval = Approval { expires_at: Some(100), ..approval() };
        assert!(!approval.is_expired(UNIX_EPOCH + Duration::from_secs(99)));
        assert!(approval.is_expired(UNIX_EPOCH + Duration::from_secs(100)));
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_never_taken_for_sound(position in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let (_folder, key) = key();
            let good = written(&key);
            let mut bytes = good.clone();
            let position = position.index(bytes.len());
            bytes[position] = byte;
            if let Content::Sound(read) = read(&bytes, &key) {
                // A changed byte may keep the meaning, for example other whitespace.
                prop_assert_eq!(read, approvals());
            }
        }
    }
}
