//! The key of this machine: it keys the digests of literal values, so that none can be guessed from the approval file, and
//! authenticates that file. It never leaves the state folder.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretBox};
use sha2::Sha256;

use super::canonical::Canonical;
use crate::error::{Error, Result};

const FILE_NAME: &str = "machine.key";
const KEY_BYTES: usize = 32;

/// A 256-bit key for HMAC-SHA-256 (RFC 2104).
#[derive(Debug)]
pub struct MachineKey(SecretBox<[u8; KEY_BYTES]>);

impl MachineKey {
    /// Reads the key in a state folder; makes one, with mode 0600, where there is none. Of two processes that make one at the
    /// same time, both use the one that was first.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        let problem = |problem: String| Error::ApprovalStore { path: path.clone(), problem };
        let failed = |error: std::io::Error| problem(error.to_string());
        for _ in 0..2 {
            match fs::read(&path) {
                Ok(bytes) => {
                    let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice());
                    let key = key.map_err(|_| {
                        problem(format!(
                            "it is no key of {KEY_BYTES} bytes. Move it away: a new one is made, and all servers need approval again"
                        ))
                    })?;
                    return Ok(Self(SecretBox::new(Box::new(key))));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Self::create(folder, &path).map_err(failed)?,
                Err(error) => return Err(failed(error)),
            }
        }
        Err(problem("it was removed while it was being made".to_owned()))
    }

    fn create(folder: &Path, path: &Path) -> std::io::Result<()> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(std::io::Error::other)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(&key)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
            _ => File::open(folder)?.sync_all(),
        }
    }

    /// The keyed digest of a form, in hex.
    #[must_use]
    pub fn authenticate(&self, form: &Canonical) -> String {
        hex::encode(self.mac(form).finalize().into_bytes())
    }

    /// Whether a digest is that of a form, compared in constant time.
    #[must_use]
    pub fn verify(&self, form: &Canonical, digest: &str) -> bool {
        hex::decode(digest).is_ok_and(|digest| self.mac(form).verify_slice(&digest).is_ok())
    }

    fn mac(&self, form: &Canonical) -> Hmac<Sha256> {
        let mac: std::result::Result<Hmac<Sha256>, _> = Hmac::new_from_slice(self.0.expose_secret());
        // RFC 2104: a key may have any length.
        #[expect(clippy::unreachable, reason = "HMAC takes keys of every length")]
        let Ok(mut mac) = mac else { unreachable!() };
        mac.update(form.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let form = Canonical::new("test").text("x");
        let digest = MachineKey::open(folder.path()).unwrap().authenticate(&form);
        let again = MachineKey::open(folder.path()).unwrap();
        assert!(again.verify(&form, &digest));
        assert!(!again.verify(&Canonical::new("test").text("y"), &digest) && !again.verify(&form, "") && !again.verify(&form, "zz"));
        assert_eq!(fs::metadata(folder.path().join(FILE_NAME)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_of_another_machine_gives_other_digests() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let form = Canonical::new("test");
        let digest = MachineKey::open(one.path()).unwrap().authenticate(&form);
        assert!(!MachineKey::open(other.path()).unwrap().verify(&form, &digest));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_no_debug_output_shows_a_key() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), "short").unwrap();
        assert!(MachineKey::open(folder.path()).unwrap_err().to_string().contains("approval again"));
        fs::write(folder.path().join(FILE_NAME), [b'k'; 32]).unwrap();
        let shown = format!("{:?}", MachineKey::open(folder.path()).unwrap());
        assert!(!shown.contains("107") && !shown.contains('k'), "{shown}");
    }
}
