//! Makes sure that only one copy of this library in a process uses a database.
//!
//! A process can load this library twice, for example as dependencies of two versions. Each copy has a `SQLite` of its own, which knows nothing of
//! the locks of the other one and releases them when it closes the file. Then another process changes the database at the same time
//! (<https://www.sqlite.org/howtocorrupt.html>, "Multiple copies of `SQLite` linked into the same application").

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

use super::database::problem;
use crate::error::Result;

const PREFIX: &str = "hyperlight-mcp-store";
/// The address of this value is different in each copy of the library in a process.
static COPY: u8 = 0;

/// A sign of this copy that the other copies in this process can see: a file in memory, whose name contains the database and the copy. It exists
/// until it is dropped. No other process can make one here.
pub(super) struct Sign(#[expect(dead_code, reason = "it is only kept open")] OwnedFd);

impl Sign {
    /// Puts up the sign for a database.
    ///
    /// # Errors
    /// `ERR_STORE` if another copy uses this database.
    pub(super) fn new(path: &Path, file: (u64, u64)) -> Result<Self> {
        Self::of_copy(path, file, (&raw const COPY).addr())
    }

    fn of_copy(path: &Path, (device, inode): (u64, u64), copy: usize) -> Result<Self> {
        let failed = |error: std::io::Error| problem(path, &error.to_string());
        let database = format!("{PREFIX}:{device:x}:{inode:x}:");
        let name = format!("{database}{copy:x}");
        // The sign is put up first. So of two copies that open the database at the same time, at least one sees the other.
        let sign = memfd_create(&name, MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let is_of_another = |file: &str| {
            file.strip_prefix("/memfd:").is_some_and(|file| file.starts_with(&database) && !file.starts_with(&format!("{name} ")))
        };
        for descriptor in fs::read_dir("/proc/self/fd").map_err(failed)? {
            // A descriptor that another thread has closed meanwhile has no link any more.
            let Ok(file) = descriptor.and_then(|descriptor| fs::read_link(descriptor.path())) else { continue };
            if file.to_str().is_some_and(is_of_another) {
                let told = "another copy of hyperlight-mcp in this process uses it, and two copies in one process would damage it. Install one \
                            version for all packages (npm ls hyperlight-mcp lists them), or give one of them another stateDir";
                return Err(problem(path, told));
            }
        }
        Ok(Self(sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_uses_a_database_often_and_a_second_copy_never_at_the_same_time() {
        let (path, file) = (Path::new("/state/store.sqlite3"), (0xABCD_EF01, 77));
        let ours = [Sign::new(path, file).unwrap(), Sign::new(path, file).unwrap()];
        let error = Sign::of_copy(path, file, 1).map(drop).unwrap_err();
        assert!(error.code() == "ERR_STORE" && error.in_full().contains("npm ls hyperlight-mcp"), "{error}");
        let other = Sign::of_copy(path, (0xABCD_EF01, 78), 1).unwrap();
        assert!(Sign::new(path, (0xABCD_EF01, 78)).is_err());
        drop((ours, other));
        drop(Sign::of_copy(path, file, 1).unwrap());
    }
}
