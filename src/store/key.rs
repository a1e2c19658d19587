//! The secret key of this machine. It authenticates the rows of the store, the anchor and the audit. It is also the key of the digests of
//! literal values in approvals, so that nobody can guess a value from its digest. The key is stored only in the state folder.

use std::io::ErrorKind;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretBox};
use sha2::Sha256;

use super::canonical::Canonical;
use crate::error::{Error, Result};
use crate::files;

const FILE_NAME: &str = "machine.key";
const KEY_BYTES: usize = 32;

/// A 256-bit key for HMAC-SHA-256 (RFC 2104).
#[derive(Debug)]
pub struct MachineKey(SecretBox<[u8; KEY_BYTES]>);

impl MachineKey {
    /// Reads the key of a state folder, or creates one with mode 0600 if there is none. If two processes create a key at the same time,
    /// both use the key that was created first. Fails if the key belongs to another user or other users may write to it.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        let problem = |problem: String| Error::ApprovalStore { path: path.clone().into(), problem: problem.into() };
        let failed = |error: std::io::Error| problem(error.to_string());
        for _ in 0..2 {
            // Reads one byte more than the length of a key, so that a longer file is detected.
            match files::read_own(&path, KEY_BYTES as u64 + 1) {
                Ok(bytes) => {
                    let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice());
                    let key = key.map_err(|_| problem(damaged()))?;
                    return Ok(Self(SecretBox::new(Box::new(key))));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Self::create(&path).map_err(failed)?,
                Err(error) if error.kind() == ErrorKind::FileTooLarge => return Err(problem(damaged())),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(problem("the key was removed while it was being created; try again".to_owned()))
    }

    fn create(path: &Path) -> std::io::Result<()> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(std::io::Error::other)?;
        // If another process has created the key first, that key is read next.
        files::create(path, &key).map(drop)
    }

    /// Returns the HMAC of a canonical form, in hexadecimal.
    #[must_use]
    pub fn authenticate(&self, form: &Canonical) -> String {
        hex::encode(self.mac(form).finalize().into_bytes())
    }

    /// Returns whether a digest in hexadecimal is the HMAC of a canonical form. Compares in constant time.
    #[must_use]
    pub fn verify(&self, form: &Canonical, digest: &str) -> bool {
        hex::decode(digest).is_ok_and(|digest| self.mac(form).verify_slice(&digest).is_ok())
    }

    /// Returns the HMAC of a canonical form, as bytes.
    pub(super) fn mac_of(&self, form: &Canonical) -> Vec<u8> {
        self.mac(form).finalize().into_bytes().to_vec()
    }

    fn mac(&self, form: &Canonical) -> Hmac<Sha256> {
        let mac: std::result::Result<Hmac<Sha256>, _> = Hmac::new_from_slice(self.0.expose_secret());
        // RFC 2104 permits keys of any length.
        #[expect(clippy::unreachable, reason = "HMAC takes keys of every length")]
        let Ok(mut mac) = mac else { unreachable!() };
        mac.update(form.as_bytes());
        mac
    }
}

fn damaged() -> String {
    format!(
        "the file does not have the {KEY_BYTES} bytes of a key. Move it away; then a new key is created, and all servers need approval again"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

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
        for damaged in ["short", "longer than a key of 256 bits may be"] {
            fs::write(folder.path().join(FILE_NAME), damaged).unwrap();
            assert!(MachineKey::open(folder.path()).unwrap_err().in_full().contains("approval again"));
        }
        fs::write(folder.path().join(FILE_NAME), [b'k'; 32]).unwrap();
        let shown = format!("{:?}", MachineKey::open(folder.path()).unwrap());
        assert!(!shown.contains("107") && !shown.contains('k'), "{shown}");
    }

    #[test]
    fn a_key_that_others_may_have_written_is_refused_and_one_that_they_could_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        MachineKey::open(folder.path()).unwrap();
        let path = folder.path().join(FILE_NAME);
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(0o660);
        let error = MachineKey::open(folder.path()).unwrap_err().in_full();
        assert!(error.contains("machine.key") && error.contains("chmod 600"), "{error}");
        set(0o644);
        MachineKey::open(folder.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
