//! Bearer tokens from a file. The file is read again when it changes. Only digests of the tokens are kept in memory. Digests are compared
//! in constant time.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use secrecy::{ExposeSecret as _, SecretSlice};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::options::invalid;
use crate::error::{Error, Result};
use crate::files::{Links, open_regular, read_open};

const MIN_CHARS: usize = 32;
const MAX_CHARS: usize = 4096;
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const MAX_TOKENS: usize = 1000;
const MAX_NAME_CHARS: usize = 64;

type Digest = [u8; 32];

/// The tokens in a file. They are updated when the file changes.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stamp: Option<Stamp>,
    tokens: Vec<Token>,
}

/// Identifies one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    digest: Digest,
    agent: Option<String>,
}

/// The owner of a token. The key is the token's name, or the token's digest if it has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) key: String,
    pub(super) agent: Option<String>,
}

/// The result of checking a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) owner: Option<Owner>,
    /// The keys of all owners, if the file was read again for this check. Empty while the file is not usable.
    pub(super) owners: Option<HashSet<String>>,
}

impl TokenFile {
    /// Opens a token file and reads it.
    ///
    /// # Errors
    /// `ERR_IO` or `ERR_INVALID_OPTION` if the file cannot be read, if others may read it, or if a line is not a token.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (stamp, tokens) = read(path)?;
        Ok(Self { path: path.to_owned(), state: Mutex::new(State { stamp: Some(stamp), tokens }) })
    }

    /// Returns the owner of a token. If the file has changed, reads it first. While the file is not usable, no token is accepted.
    pub(super) fn check(&self, token: &str) -> Checked {
        let mut state = self.state.lock();
        let owners = self.refresh(&mut state).then(|| state.owners());
        Checked { owner: find(&state.tokens, token).map(Token::owner), owners }
    }

    /// Returns the keys of all owners. If the file has changed, reads it first.
    pub(super) fn owners(&self) -> HashSet<String> {
        let mut state = self.state.lock();
        self.refresh(&mut state);
        state.owners()
    }

    /// Reads the file if it has changed, and returns whether it has changed. While the file is not usable, there are no tokens.
    fn refresh(&self, state: &mut State) -> bool {
        let there = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if there.is_some() && there == state.stamp {
            return false;
        }
        match read(&self.path) {
            Ok((stamp, tokens)) => *state = State { stamp: Some(stamp), tokens },
            Err(error) => {
                // The file is checked every second, so only the first failure causes a warning.
                if state.stamp.is_some() {
                    // The error never quotes a line of the file, because the line may contain a secret.
                    tracing::warn!(%error, "the token file changed and cannot be used, so no token is accepted");
                }
                *state = State { stamp: None, tokens: Vec::new() };
            }
        }
        true
    }
}

impl State {
    fn owners(&self) -> HashSet<String> {
        self.tokens.iter().map(|token| token.owner().key).collect()
    }
}

impl Token {
    fn owner(&self) -> Owner {
        let key = self.agent.as_ref().map_or_else(|| format!("token:{}", hex::encode(self.digest)), |name| format!("name:{name}"));
        Owner { key, agent: self.agent.clone() }
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
        }
    }
}

/// Compares a candidate with every token, so that the time of the comparison does not reveal which token is similar. The length of a token
/// is not revealed either, because all digests have the same length.
fn find<'a>(tokens: &'a [Token], candidate: &str) -> Option<&'a Token> {
    let candidate = digest_of(candidate.as_bytes());
    let mut found = u64::MAX;
    for (index, token) in (0_u64..).zip(tokens) {
        let same: Choice = token.digest.ct_eq(&candidate);
        found.conditional_assign(&index, same);
    }
    usize::try_from(found).ok().and_then(|index| tokens.get(index))
}

fn digest_of(bytes: &[u8]) -> Digest {
    let mut kept = [0; 32];
    kept.copy_from_slice(digest(&SHA256, bytes).as_ref());
    kept
}

fn read(path: &Path) -> Result<(Stamp, Vec<Token>)> {
    let failed = |error: &std::io::Error| {
        Error::io(
            format!(
                "the token file {} cannot be read (check --token-file, or tokenFile, and the file's mode, which must be 600)",
                path.display()
            ),
            error,
        )
    };
    let file = open_regular(path, Links::Follow).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    check_private(path, &metadata)?;
    let bytes = bytes(&file).map_err(|error| failed(&error))?;
    Ok((Stamp::of(&metadata), parse(&bytes).map_err(|problem| invalid(format!("the token file {}: {problem}", path.display())))?))
}

fn bytes(file: &File) -> std::io::Result<SecretSlice<u8>> {
    read_open(file, MAX_FILE_BYTES).map(SecretSlice::from)
}

fn check_private(path: &Path, metadata: &Metadata) -> Result<()> {
    let (owner, us, mode) = (metadata.uid(), rustix::process::geteuid().as_raw(), metadata.mode() & 0o7777);
    if owner != us {
        return Err(invalid(format!(
            "the token file {} belongs to another user (uid {owner}; this process has uid {us}): give it to this user by chown",
            path.display()
        )));
    }
    if mode & 0o077 != 0 {
        return Err(invalid(format!(
            "the token file {} can be read or written by others (mode {mode:o}): run chmod 600 on it, and replace its tokens if others have read it",
            path.display()
        )));
    }
    Ok(())
}

/// Parses the lines of a token file. An error contains the line number, never the text of the line.
fn parse(bytes: &SecretSlice<u8>) -> std::result::Result<Vec<Token>, String> {
    let text = std::str::from_utf8(bytes.expose_secret()).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let mut tokens: Vec<Token> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, token) = line.split_once(':').map_or((None, line), |(name, token)| (Some(name.trim()), token.trim()));
        check_token(token).map_err(|problem| format!("line {number}: {problem}"))?;
        if !name.is_none_or(is_name) {
            return Err(format!(
                "line {number}: the name before \":\" must have 1 to {MAX_NAME_CHARS} letters, digits, \"-\", \"_\" or \".\""
            ));
        }
        let token = Token { digest: digest_of(token.as_bytes()), agent: name.map(str::to_owned) };
        if tokens.iter().any(|other| other.digest == token.digest) {
            return Err(format!("line {number}: this token is already on an earlier line"));
        }
        tokens.push(token);
    }
    match tokens.len() {
        0 => Err("it has no token: write lines NAME:TOKEN or TOKEN".to_owned()),
        1..=MAX_TOKENS => Ok(tokens),
        _ => Err(format!("it has more than {MAX_TOKENS} tokens")),
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Checks that a token contains only the characters that RFC 6750 allows, and has a suitable length.
fn check_token(token: &str) -> std::result::Result<(), String> {
    if !(MIN_CHARS..=MAX_CHARS).contains(&token.len()) {
        return Err(format!("a token must have {MIN_CHARS} to {MAX_CHARS} characters; \"openssl rand -hex 32\" makes one"));
    }
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.bytes().all(permitted) { Ok(()) } else { Err("a token can only have letters, digits and -._~+/=".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "fedcba9876543210fedcba9876543210";

    fn parsed(text: &str) -> std::result::Result<Vec<Token>, String> {
        parse(&SecretSlice::from(text.as_bytes().to_vec()))
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_line_is_a_token_with_or_without_a_name() {
        let tokens = parsed(&format!("# agents\n\nci : {ONE} \r\n{TWO}")).unwrap();
        let names: Vec<_> = tokens.iter().map(|token| token.agent.as_deref()).collect();
        assert_eq!(names, [Some("ci"), None]);
        assert_eq!(find(&tokens, ONE).unwrap().owner(), Owner { key: "name:ci".into(), agent: Some("ci".into()) });
        assert!(find(&tokens, TWO).unwrap().owner().key.starts_with("token:"));
        for other in ["", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef0", "ci"] {
            assert_eq!(find(&tokens, other), None);
        }
    }

    #[test]
    fn a_problem_names_the_line_and_never_its_text() {
        for (text, line) in [
            ("short".to_owned(), "line 1"),
            (format!("{ONE}\nci:hunter2"), "line 2"),
            (format!("a b:{ONE}"), "line 1"),
            (format!(":{ONE}"), "line 1"),
            (format!("{ONE}\"secret"), "line 1"),
            (format!("a:{ONE}\nb:{ONE}"), "line 2"),
            (String::new(), "no token"),
            ("# none".to_owned(), "no token"),
        ] {
            let problem = parsed(&text).unwrap_err();
            assert!(
                problem.contains(line) && !["short", "hunter", "secret", "0123"].iter().any(|part| problem.contains(part)),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        write(&path, ONE);
        TokenFile::open(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = TokenFile::open(&path).unwrap_err();
            assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains("chmod 600"), "{error}");
        }
        assert_eq!(TokenFile::open(folder.path()).unwrap_err().code(), "ERR_IO");
        assert_eq!(TokenFile::open(&folder.path().join("none")).unwrap_err().code(), "ERR_IO");
    }

    #[test]
    fn a_file_that_changed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        write(&path, &format!("one:{ONE}"));
        let file = TokenFile::open(&path).unwrap();
        assert!(file.check(ONE).owner.is_some() && file.check(TWO).owner.is_none());
        write(&path, &format!("the-second:{TWO}"));
        let checked = file.check(ONE);
        assert_eq!(checked, Checked { owner: None, owners: Some(HashSet::from(["name:the-second".to_owned()])) });
        assert_eq!(file.check(TWO).owner.unwrap().agent.as_deref(), Some("the-second"));
    }

    #[test]
    fn while_the_file_cannot_be_used_no_token_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        write(&path, ONE);
        let file = TokenFile::open(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(file.check(ONE), Checked { owner: None, owners: Some(HashSet::new()) });
        assert!(file.owners().is_empty());
        fs::remove_file(&path).unwrap();
        assert_eq!(file.check(ONE).owner, None);
        write(&path, ONE);
        assert!(file.check(ONE).owner.is_some() && file.owners().len() == 1);
    }
}
