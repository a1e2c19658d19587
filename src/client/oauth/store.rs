//! Tokens on disk. Each combination of server, URL and issuer has its own file, so that tokens are never mixed up. Only the user of this
//! process can read the files.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::failure::Problem;
use super::generation::{Generation, GenerationFile, Stored};
use crate::files;

/// Longest wait for a lock. A renewal takes seconds. A process that holds the lock for longer has probably been suspended.
const LOCK_TIME: Duration = Duration::from_secs(15);
/// Name of the file format, which each token file contains.
const FORMAT: &str = "hyperlight-mcp token 1";
const CONFIRMATION_FORMAT: &str = "hyperlight-mcp confirmed issuer 1";
const HEX_CHARS: usize = 32;
/// Maximum size of a token file that is read. Real files are much smaller.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Store of tokens in a folder.
///
/// ```
/// let folder = tempfile::tempdir().unwrap();
/// let store = hyperlight_mcp::client::TokenStore::new(folder.path().join("tokens"));
/// assert!(store.forget("weather").is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct TokenStore {
    folder: PathBuf,
    /// The right to ask a person, for each server and URL. All connections that use this store share these rights.
    turns: Arc<Mutex<BTreeMap<String, Arc<Turn>>>>,
    /// Digests of confirmations that could not be written to the disk.
    confirmed: Arc<Mutex<BTreeSet<String>>>,
}

/// Time after a login in which no other login is requested for the same server. Without this time, a server that refuses each token after its
/// first use could open a page for each call.
const LOGIN_PAUSE_SECONDS: u64 = 60;
/// Maximum number of logins at different issuers in this time.
const MAX_LOGINS: usize = 3;

/// Right to ask a person about one server and URL. Only one connection at a time has it.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) mutex: tokio::sync::Mutex<()>,
    /// The last refusal, and the time until which it is reused, in seconds since 1970.
    pub(super) refused: Mutex<Option<(u64, Problem)>>,
    /// The last logins of the last [`LOGIN_PAUSE_SECONDS`].
    pub(super) logins: Mutex<Vec<Login>>,
}

impl Turn {
    /// Returns whether so many logins are recent that no other one is requested: one at this issuer, or [`MAX_LOGINS`] at any issuers, because a
    /// server may name another issuer for each call.
    pub(super) fn has_recent_login(&self, now: u64, next: &Login) -> bool {
        let logins = self.logins.lock();
        let recent: Vec<_> = logins.iter().filter(|login| login.counts(now, next)).collect();
        recent.len() >= MAX_LOGINS || recent.iter().any(|login| login.issuer == next.issuer)
    }

    /// Records a login.
    pub(super) fn add_login(&self, login: Login) {
        let mut logins = self.logins.lock();
        logins.retain(|before| before.counts(login.at, &login));
        logins.push(login);
    }
}

/// A person's successful login.
#[derive(Debug, Clone)]
pub(super) struct Login {
    /// Time of the login, in seconds since 1970.
    pub(super) at: u64,
    /// Generation of the tokens at this time.
    pub(super) began: Generation,
    pub(super) issuer: String,
    /// Client id from the config. `None` if this program was registered.
    pub(super) client: Option<String>,
}

impl Login {
    /// Returns whether the login is recent. If the tokens were forgotten since then, or the config has another client, the person has reason to
    /// log in again, so the login does not count.
    fn counts(&self, now: u64, next: &Self) -> bool {
        now.saturating_sub(self.at) < LOGIN_PAUSE_SECONDS && !self.began.is_over(&next.began) && self.client == next.client
    }
}

/// A client that one authorization server knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Client {
    pub(super) id: String,
    /// Secret of the client. It is only stored if the authorization server issued it. If the config names the client, its secret stays in
    /// the config.
    #[serde(serialize_with = "expose_optional", deserialize_with = "conceal_optional", default)]
    pub(super) secret: Option<SecretString>,
    /// Redirect URI for which the client was registered. The registration is only valid for this URI.
    #[serde(default)]
    pub(super) registered_for: Option<String>,
}

/// A token, with the data that is needed to renew it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    #[serde(serialize_with = "expose", deserialize_with = "conceal")]
    pub(super) access: SecretString,
    #[serde(serialize_with = "expose_optional", deserialize_with = "conceal_optional", default)]
    pub(super) refresh: Option<SecretString>,
    /// Time at which the token was received, in seconds since 1970.
    pub(super) received_at: u64,
    /// Lifetime in seconds. `None` if the authorization server did not give it; the token is then used until it is refused.
    #[serde(default)]
    pub(super) lifetime: Option<u64>,
    /// Scopes that were granted.
    pub(super) scopes: Vec<String>,
    /// Scopes that were requested. Older files do not contain them.
    #[serde(default)]
    pub(super) requested: Option<Vec<String>>,
    /// Resource for which the token was requested (RFC 8707).
    pub(super) resource: String,
}

impl Token {
    /// Returns the scopes that were requested for the token. If they are not known, returns the granted scopes, which can differ.
    pub(super) fn requested(&self) -> &[String] {
        self.requested.as_ref().unwrap_or(&self.scopes)
    }
}

/// The stored token and client for one combination of server, URL and issuer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct StoredCredentials {
    pub(super) client: Option<Client>,
    pub(super) token: Option<Token>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    format: String,
    server: String,
    issuer: String,
    /// Digest of server, URL and issuer. It shows whether the file was renamed. A renamed file is not used for another server.
    binding: String,
    #[serde(flatten)]
    kept: StoredCredentials,
}

/// A person's confirmation that this issuer may receive the credential of this client.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Confirmation {
    format: String,
    server: String,
    issuer: String,
    client_id: String,
    /// Digest of server, URL, issuer and client. It shows whether the file was renamed. A renamed file is not used for another server.
    binding: String,
}

impl TokenStore {
    /// Makes a store. The folder is created when it is first needed.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, turns: Arc::default(), confirmed: Arc::default() }
    }

    pub(super) fn turn(&self, server: &str, url: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock();
        Arc::clone(turns.entry(prefix(server, url)).or_default())
    }

    /// Removes all tokens and confirmed issuers of a server, for all URLs of this server. Used when the server's approval is withdrawn. If
    /// a login or a renewal began earlier in any process, its result will not be stored. Blocks the thread.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn forget(&self, server: &str) -> io::Result<()> {
        self.confirmed().clear();
        let mark = format!("{}-", short_digest(&["server", server]));
        self.generations(server).renew(|| {
            for path in self.files()? {
                // If a process was killed while it wrote a file, a temporary file is left. Its name begins with a dot, and it may contain a
                // token.
                let name = name_of(&path);
                if name.strip_prefix('.').unwrap_or(name).starts_with(&mark) {
                    remove(&path)?;
                }
            }
            Ok(())
        })
    }

    /// Returns the current generation of a server's tokens. The result of work that begins now may only be stored while this generation
    /// lasts.
    pub(super) fn generation(&self, server: &str) -> Generation {
        self.generations(server).current()
    }

    /// Returns the current generation of a server's tokens, for a comparison with an earlier one. Blocks the thread.
    pub(super) fn last_generation(&self, server: &str) -> Generation {
        self.generations(server).last()
    }

    fn generations(&self, server: &str) -> GenerationFile {
        GenerationFile::new(&self.folder, short_digest(&["server", server]))
    }

    /// Returns whether the store has a token file for a server and URL, from any issuer.
    pub(super) fn has_any(&self, server: &str, url: &str) -> bool {
        let mark = prefix(server, url);
        self.files().is_ok_and(|files| {
            files.iter().any(|path| name_of(path).starts_with(&mark) && path.extension().is_some_and(|kind| kind == "json"))
        })
    }

    /// Returns whether a person has confirmed that this issuer may receive the credential of a client.
    pub(super) fn is_confirmed(&self, server: &str, url: &str, issuer: &str, client: &str) -> bool {
        let (path, binding) = self.confirmation(server, url, issuer, client);
        if self.confirmed().contains(&binding) {
            return true;
        }
        let read = files::read_own(&path, MAX_FILE_BYTES).ok().and_then(|bytes| serde_json::from_slice::<Confirmation>(&bytes).ok());
        read.is_some_and(|read| read.format == CONFIRMATION_FORMAT && read.binding == binding)
    }

    /// Stores a confirmation. If it cannot be written to the disk, it is kept in memory until the program ends. `began` is the generation
    /// in which the person was asked.
    pub(super) fn confirm(&self, server: &str, url: &str, issuer: &str, client: &str, began: &Generation) -> Stored {
        let (path, binding) = self.confirmation(server, url, issuer, client);
        let content = Confirmation {
            format: CONFIRMATION_FORMAT.to_owned(),
            server: server.to_owned(),
            issuer: issuer.to_owned(),
            client_id: client.to_owned(),
            binding: binding.clone(),
        };
        let bytes = serde_json::to_vec_pretty(&content).map_err(io::Error::other);
        let write = |bytes: Vec<u8>| self.generations(server).unless_over(began, || write(&self.folder, &path, &bytes));
        bytes.and_then(write).unwrap_or_else(|error| {
            tracing::warn!(server, %error, "the confirmation of an issuer cannot be stored; the person will be asked again after a restart");
            self.confirmed().insert(binding);
            Stored::Kept
        })
    }

    fn confirmation(&self, server: &str, url: &str, issuer: &str, client: &str) -> (PathBuf, String) {
        let name = format!("{}{}.issuer", prefix(server, url), short_digest(&["confirmed", issuer, client]));
        (self.folder.join(name), digest(&["confirmed issuer", server, url, issuer, client]))
    }

    fn confirmed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.confirmed.lock()
    }

    pub(super) fn file(&self, server: &str, url: &str, issuer: &str) -> TokenFile {
        let name = format!("{}{}", prefix(server, url), short_digest(&["issuer", issuer]));
        TokenFile {
            folder: self.folder.clone(),
            name,
            server: server.to_owned(),
            issuer: issuer.to_owned(),
            binding: digest(&["token", server, url, issuer]),
            generations: self.generations(server),
        }
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(&self.folder) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The token file of one combination of server, URL and issuer.
#[derive(Debug, Clone)]
pub(super) struct TokenFile {
    folder: PathBuf,
    name: String,
    server: String,
    issuer: String,
    binding: String,
    generations: GenerationFile,
}

impl TokenFile {
    /// Reads the file. Returns an empty value if there is no usable file. Renames a damaged file.
    pub(super) fn read(&self) -> StoredCredentials {
        let path = self.path("json");
        let bytes = match files::read_own(&path, MAX_FILE_BYTES) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(server = self.server, %error, "a token file could not be read and is ignored");
                }
                return StoredCredentials::default();
            }
        };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok(content) if content.format == FORMAT && content.binding == self.binding => content.kept,
            _ => {
                let problem = fs::rename(&path, self.path("damaged")).err();
                tracing::warn!(server = self.server, ?problem, "a token file is damaged, and was renamed to *.damaged");
                StoredCredentials::default()
            }
        }
    }

    /// Writes the file, unless the server's tokens were forgotten since `began`. Blocks the thread.
    pub(super) fn write(&self, kept: &StoredCredentials, began: &Generation) -> io::Result<Stored> {
        let content = Content {
            format: FORMAT.to_owned(),
            server: self.server.clone(),
            issuer: self.issuer.clone(),
            binding: self.binding.clone(),
            kept: StoredCredentials { client: kept.client.as_ref().map(Client::as_stored), token: kept.token.clone() },
        };
        let bytes = Zeroizing::new(serde_json::to_vec_pretty(&content)?);
        self.generations.unless_over(began, || write(&self.folder, &self.path("json"), &bytes))
    }

    /// Takes the lock that is held while a token is renewed. It is needed because a refresh token may only be valid once, and another
    /// process may have the same refresh token.
    pub(super) async fn lock(&self) -> io::Result<File> {
        let (folder, path) = (self.folder.clone(), self.path("lock"));
        let lock = move || {
            files::private_folder(&folder)?;
            files::lock_within(&path, LOCK_TIME)
        };
        tokio::task::spawn_blocking(lock).await.map_err(io::Error::other)?
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }
}

/// Writes a file that only the user of this process can read. Replaces an existing file.
fn write(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    files::private_folder(folder)?;
    files::replace(path, bytes, files::Writing::Durable)
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn prefix(server: &str, url: &str) -> String {
    format!("{}-{}-", short_digest(&["server", server]), short_digest(&["url", url]))
}

pub(super) fn short_digest(parts: &[&str]) -> String {
    digest(parts)[..HEX_CHARS].to_owned()
}

/// Returns the digest of several strings. The length of each string is hashed before the string, so that different lists have different
/// digests.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

fn expose<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn expose_optional<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(SecretString::expose_secret).serialize(serializer)
}

fn conceal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    Ok(SecretString::from(String::deserialize(deserializer)?))
}

fn conceal_optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
