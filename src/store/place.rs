//! The folder and the files of the database: they are checked before `SQLite` opens them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::database::problem;
use crate::error::Result;
use crate::files;

pub(super) const FILE_NAME: &str = "store.sqlite3";
const JOURNAL: &str = "-journal";
/// The endings of the files that `SQLite` keeps beside the database: the rollback journal, the write-ahead log, and its index.
const BESIDE: [&str; 3] = [JOURNAL, "-wal", "-shm"];
/// The last bytes of a rollback journal that contains the path of another file (`aJournalMagic` in `SQLite`'s source).
const END_OF_PATH: [u8; 8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7];
/// The types of file systems that several machines may have open, from statfs(2) and linux/magic.h: NFS, SMB (three), AFS (two), Coda, 9p,
/// Ceph, Lustre, OCFS2, GFS2. File locks do not always work on these file systems. Even where they work, `SQLite`'s write-ahead log needs
/// shared memory, so all processes must be on one machine (<https://sqlite.org/wal.html>).
const NETWORK_FILE_SYSTEMS: [u64; 12] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x5346_414F,
    0x6B41_4653,
    0x7375_7245,
    0x0102_1997,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x7461_636F,
    0x0116_1970,
];
/// The type of file systems that a program on this machine serves (FUSE).
const FUSE: u64 = 0x6573_5546;
/// Names of FUSE programs that show files from another machine or from a network service. Other FUSE programs, for example for encrypted
/// folders, show files of this machine, so they are allowed.
const NETWORK_PROGRAMS: [&str; 14] = [
    "sshfs",
    "glusterfs",
    "ceph",
    "ceph-fuse",
    "s3fs",
    "rclone",
    "davfs",
    "curlftpfs",
    "gcsfuse",
    "goofys",
    "juicefs",
    "seaweedfs",
    "mount-s3",
    "moosefs",
];

/// Locked while a thread creates the file. When a process closes a file, the kernel releases all locks that the process has on this file,
/// including the locks of other connections. So no thread may connect until the thread that created the file has closed it.
static CREATING: Mutex<()> = Mutex::new(());

/// Creates the state folder with mode 0700. If the folder exists, checks it, and removes read permissions of other users.
pub(super) fn private_folder(folder: &Path) -> Result<files::PrivateFolder> {
    let failed = |error: std::io::Error| {
        problem(&folder.join(FILE_NAME), &format!("the folder cannot be used: {error}. Or choose another stateDir"))
    };
    files::private_folder(folder).map_err(failed)
}

/// The database file, ready to be opened by `SQLite`.
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Device and inode of the file.
    pub(super) identity: (u64, u64),
}

/// Checks the folder and all files of the database, and creates the database file if there is none.
pub(super) fn ready(folder: &Path) -> Result<Place> {
    let path = folder.join(FILE_NAME);
    check_file_system(folder, &path)?;
    create(&path)?;
    check_beside(&path)?;
    let identity = identity(&path)?;
    Ok(Place { path, identity })
}

/// Refuses files beside the database that are not this user's regular files. `SQLite` opens a journal for reading and waits for it, so a
/// pipe in its place would stop this thread for ever. A connection needs this check only once: it uses a write-ahead log, so it never looks
/// for a rollback journal again, and the files of the log are already open.
fn check_beside(path: &Path) -> Result<()> {
    for ending in BESIDE {
        let beside = beside(path, ending);
        match files::close_own(&beside) {
            Ok(()) if ending == JOURNAL && names_another_file(&beside).unwrap_or_default() => {
                let told = "it names another file, so hyperlight-mcp has not written it. Move it away, then try again";
                return Err(problem(&beside, told));
            }
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(problem(&beside, &format!("{error}, so hyperlight-mcp has not created it. Move it away, then try again")));
            }
            Err(error) => return Err(problem(&beside, &error.to_string())),
        }
    }
    Ok(())
}

/// Returns the files beside the database on which `SQLite` has locks, and the write-ahead log.
pub(super) fn locked_beside(path: &Path) -> Vec<PathBuf> {
    BESIDE.into_iter().filter(|ending| *ending != JOURNAL).map(|ending| beside(path, ending)).collect()
}

/// Returns the path of a file that `SQLite` keeps beside the database.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}

/// Returns whether a rollback journal contains the path of another file, which `SQLite` would open too. This program changes one database at a
/// time, so it writes no such journal.
fn names_another_file(journal: &Path) -> io::Result<bool> {
    let file = files::open_own(journal)?;
    let mut end = [0; END_OF_PATH.len()];
    let Some(at) = file.metadata()?.len().checked_sub(end.len() as u64) else { return Ok(false) };
    file.read_exact_at(&mut end, at)?;
    Ok(end == END_OF_PATH)
}

/// Creates the file with mode 0600 before `SQLite` opens it. `SQLite` gives its other files the same mode.
fn create(path: &Path) -> Result<()> {
    let _creating = CREATING.lock();
    let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop);
    match created {
        Ok(()) => Ok(()),
        // Refuses a file that belongs to another user, or that other users may write.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => files::close_own(path).map_err(|error| problem(path, &error.to_string())),
        Err(error) => Err(problem(path, &format!("{error}. Make the folder writable, or choose another stateDir"))),
    }
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    let file = fs::symlink_metadata(path).map_err(|error| problem(path, &error.to_string()))?;
    Ok((file.dev(), file.ino()))
}

fn check_file_system(folder: &Path, path: &Path) -> Result<()> {
    let there = rustix::fs::statfs(folder).map_err(|error| problem(path, &std::io::Error::from(error).to_string()))?;
    // Only the lower 32 bits are the type. The number is negative on some systems.
    let number = there.f_type.cast_unsigned() & 0xFFFF_FFFF;
    let device = fs::metadata(folder).ok().filter(|_| number == FUSE).map(|folder| folder.dev());
    let mounts = device.and_then(|_| fs::read_to_string("/proc/self/mountinfo").ok()).unwrap_or_default();
    let program = device.and_then(|device| program_of(&mounts, (libc::major(device), libc::minor(device))));
    check_file_system_type(number, program, path)
}

/// Returns the name of the program that serves a FUSE file system, from the text of `/proc/self/mountinfo`. In the type of the file system,
/// the program's name follows `fuse.`.
fn program_of(mounts: &str, (major, minor): (u32, u32)) -> Option<&str> {
    let device = format!("{major}:{minor}");
    let line = mounts.lines().rev().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split_once(" - ")?.1.split(' ').next()?.strip_prefix("fuse.")
}

fn check_file_system_type(number: u64, program: Option<&str>, path: &Path) -> Result<()> {
    let is_of_network_program = number == FUSE && program.is_some_and(|program| NETWORK_PROGRAMS.contains(&program));
    if !NETWORK_FILE_SYSTEMS.contains(&number) && !is_of_network_program {
        return Ok(());
    }
    let told = "its folder is on a network file system, on which two machines could overwrite each other's approvals. Choose a stateDir on a \
                local disk";
    Err(problem(path, told))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::files::testing::{at_once, pipe};
    use crate::store::database::{Database, Durability};

    #[test]
    fn a_file_beside_the_database_that_is_not_ours_is_refused_at_once_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let database = ready(folder.path()).unwrap().path;
        let error = || {
            let folder = folder.path().to_owned();
            at_once(move || ready(&folder).map(drop)).unwrap_err().in_full()
        };
        for name in BESIDE.map(|ending| format!("{FILE_NAME}{ending}")) {
            let path = pipe(folder.path(), &name);
            assert!(error().contains(&format!("{name} cannot be used: it is not a regular file")) && error().contains("Move it away"));
            fs::remove_file(&path).unwrap();
            symlink(&database, &path).unwrap();
            assert!(error().contains("a symbolic link"), "{}", error());
            fs::remove_file(&path).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
            assert!(error().contains("chmod 600"), "{}", error());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            assert!(ready(folder.path()).is_ok());
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_journal_that_names_another_file_is_refused_because_that_file_may_be_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        ready(folder.path()).unwrap();
        let named = pipe(folder.path(), "pipe").into_os_string().into_string().unwrap();
        let number = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
        // The header has the number of records, a nonce, and the numbers of pages and of bytes of a sector and a page.
        let header = [&END_OF_PATH[..], &[0; 8], &number(0), &number(512), &number(4096)].concat();
        let sum = number(named.bytes().map(usize::from).sum());
        let path = [&number(1)[..], named.as_bytes(), &number(named.len()), &sum, &END_OF_PATH].concat();
        let journal = folder.path().join("store.sqlite3-journal");
        fs::write(&journal, [header, vec![0; 512 - 28], path].concat()).unwrap();
        let state = folder.path().to_owned();
        let error = at_once(move || Database::open(&state, Durability::Full).map(drop)).unwrap_err().in_full();
        assert!(error.contains("names another file") && error.contains("Move it away"), "{error}");
        fs::write(&journal, "").unwrap();
        Database::open(folder.path(), Durability::Full).unwrap();
    }

    #[test]
    fn a_network_file_system_is_refused_with_the_way_out() {
        let path = Path::new("/home/ada/store.sqlite3");
        // ext4, tmpfs, overlayfs, and FUSE file systems of programs that show files of this machine.
        for (number, program) in [(0xEF53, None), (0x0102_1994, None), (0x794C_7630, None), (FUSE, None), (FUSE, Some("gocryptfs"))] {
            assert!(check_file_system_type(number, program, path).is_ok(), "{number:x} {program:?}");
        }
        let named = [FUSE, FUSE].into_iter().zip([Some("sshfs"), Some("rclone")]);
        for (number, program) in NETWORK_FILE_SYSTEMS.into_iter().zip(std::iter::repeat(None)).chain(named) {
            let error = check_file_system_type(number, program, path).unwrap_err().in_full();
            assert!(error.contains("network file system") && error.contains("stateDir"), "{number:x}: {error}");
        }
        let mounts = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
                      90 22 0:51 / /home/ada/far rw,nosuid shared:3 - fuse.sshfs far:/ rw,user_id=0\n\
                      91 22 0:52 / /home/ada/near rw - fuse portal rw\n";
        assert_eq!([(0, 51), (0, 52), (8, 1), (0, 9)].map(|device| program_of(mounts, device)), [Some("sshfs"), None, None, None]);
    }
}
