//! Stores the tools that a model has made, so that a later start needs no model. Each entry is one file, which is written as a whole.
//!
//! An entry does not affect approvals: a person approves the digest of the tools, and changed code has another digest.

mod entry;
mod key;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use entry::{CacheEntry, EntryParts};
pub use key::{key_of, prompt_digest};

use crate::error::{Error, Result};
use crate::files::{self, Writing};
use crate::text::sanitise_line;

const MODE: u32 = 0o600;
const MAX_ENTRY_BYTES: u64 = 32 * 1024 * 1024;
/// The number of entries that are kept for one prompt. Each change of a page can make another entry.
const KEPT_ENTRIES: usize = 8;
/// Number of characters of a digest that a file's name contains.
const NAME_CHARS: usize = 32;
const SUFFIX: &str = ".json";

/// The folder of the entries, which only this user may access.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    /// Mode of a folder that other users may read.
    open_mode: Option<u32>,
}

/// The entry that was found, and the files that were removed during the search.
#[derive(Debug, Default)]
pub struct Found {
    pub entry: Option<CacheEntry>,
    /// The reasons why files were removed, as sentences.
    pub removed: Vec<String>,
}

impl Cache {
    /// Opens the folder, or creates it with mode 0700. The mode of an existing folder is not changed.
    ///
    /// # Errors
    /// `ERR_BOOT_CACHE` if the folder cannot be made, or if other users may write to it.
    pub fn open(folder: &Path) -> Result<Self> {
        let opened = files::named_folder(folder).map_err(|error| problem(folder, &error))?;
        Ok(Self { folder: opened.path, open_mode: opened.was_open })
    }

    /// Returns a sentence about a folder that other users may read, although they cannot read its entries.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let mode = self.open_mode?;
        let folder = sanitise_line(&self.folder.display().to_string(), 200);
        Some(format!(
            "other users may list the folder of made tools {folder} (mode {mode:o}): run chmod 700 on it, or name a folder of its own"
        ))
    }

    /// Returns the entry with this key. An entry that is damaged, or that another user or program may have written, is removed.
    #[must_use]
    pub fn load(&self, prompt_digest: &str, key: &str) -> Found {
        let mut found = Found::default();
        let name = name_of(prompt_digest, key);
        let entry = self.read(&name, &mut found.removed);
        found.entry = entry.filter(|entry| entry.key() == key && entry.prompt_digest == prompt_digest);
        found
    }

    /// Returns the newest entry of a prompt.
    #[must_use]
    pub fn newest(&self, prompt_digest: &str) -> Found {
        let mut found = Found::default();
        let entries = self.entries_of(prompt_digest, &mut found.removed);
        found.entry = entries.into_iter().max_by_key(|entry| (entry.created_at_ms, entry.key()));
        found
    }

    /// Writes an entry, and removes old entries of the same prompt.
    ///
    /// # Errors
    /// `ERR_BOOT_CACHE` if the entry cannot be written.
    pub fn store(&self, entry: &CacheEntry) -> Result<()> {
        let path = self.folder.join(name_of(&entry.prompt_digest, &entry.key()));
        files::replace(&path, &entry.to_bytes(), Writing::Durable).map_err(|error| problem(&self.folder, &error))?;
        let mut entries = self.entries_of(&entry.prompt_digest, &mut Vec::new());
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.created_at_ms));
        for old in entries.iter().skip(KEPT_ENTRIES) {
            // Another process may have removed the entry.
            let _ = fs::remove_file(self.folder.join(name_of(&old.prompt_digest, &old.key())));
        }
        Ok(())
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn entries_of(&self, prompt_digest: &str, removed: &mut Vec<String>) -> Vec<CacheEntry> {
        let prefix = format!("{}-", short(prompt_digest));
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        names.retain(|name| name.strip_prefix(&prefix).is_some_and(|rest| rest.strip_suffix(SUFFIX).is_some()));
        names.sort_unstable();
        let entries: Vec<_> = names.iter().filter_map(|name| self.read(name, removed)).collect();
        entries.into_iter().filter(|entry| entry.prompt_digest == prompt_digest).collect()
    }

    /// Reads a file. If the file cannot be used, removes it and adds the reason to `removed`.
    fn read(&self, name: &str, removed: &mut Vec<String>) -> Option<CacheEntry> {
        let path = self.folder.join(name);
        let read = || -> std::result::Result<CacheEntry, String> {
            let metadata = fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
            check(&metadata)?;
            let bytes = files::read_own(&path, MAX_ENTRY_BYTES).map_err(|error| error.to_string())?;
            let entry = CacheEntry::from_bytes(&bytes)?;
            if name_of(&entry.prompt_digest, &entry.key()) == name {
                Ok(entry)
            } else {
                Err("its content belongs to an entry with another name".to_owned())
            }
        };
        if matches!(fs::symlink_metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound) {
            return None;
        }
        let problem = match read() {
            Ok(entry) => return Some(entry),
            Err(problem) => problem,
        };
        let outcome = match fs::remove_file(&path) {
            Ok(()) => "it was removed".to_owned(),
            Err(error) => format!("it cannot be removed: {error}"),
        };
        removed.push(format!("the cache's entry {} is not used: {}; {outcome}", sanitise_line(name, 80), sanitise_line(&problem, 200)));
        None
    }
}

/// Fails for a file that was not written by this program for this user.
fn check(metadata: &fs::Metadata) -> std::result::Result<(), String> {
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to another user (uid {})", metadata.uid()));
    }
    let mode = metadata.mode() & 0o7777;
    if mode == MODE { Ok(()) } else { Err(format!("its mode is {mode:o} instead of {MODE:o}")) }
}

fn name_of(prompt_digest: &str, key: &str) -> String {
    format!("{}-{}{SUFFIX}", short(prompt_digest), short(key))
}

fn short(digest: &str) -> &str {
    &digest[..digest.floor_char_boundary(NAME_CHARS)]
}

fn problem(folder: &Path, error: &io::Error) -> Error {
    Error::BootCache { path: folder.into(), problem: error.to_string().into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::entry::tests::entry;
    use super::*;

    fn open() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("cache")).unwrap();
        (folder, cache)
    }

    fn only_file(cache: &Cache) -> PathBuf {
        fs::read_dir(cache.folder()).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn an_entry_is_found_by_its_key_and_the_newest_by_its_prompt() {
        let (_folder, cache) = open();
        let (old, new) = (entry("prompt", "1", 1), entry("prompt", "2", 2));
        for entry in [&new, &old, &entry("other", "3", 3)] {
            cache.store(entry).unwrap();
        }
        assert_eq!(cache.load(&old.prompt_digest, &old.key()).entry.as_ref(), Some(&old));
        assert_eq!(cache.newest(&old.prompt_digest).entry.as_ref(), Some(&new));
        let missing = cache.load(&old.prompt_digest, "0123");
        assert!(missing.entry.is_none() && missing.removed.is_empty());
    }

    #[test]
    fn files_and_folder_are_its_users_alone() {
        let (_folder, cache) = open();
        cache.store(&entry("prompt", "1", 1)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(cache.folder()), mode(&only_file(&cache))), (0o700, 0o600));
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Cache::open(folder.path()).unwrap_err().code(), "ERR_BOOT_CACHE");
    }

    #[test]
    fn what_is_not_as_it_was_written_is_removed() {
        type Change = (&'static str, fn(&Path));
        let changes: [Change; 6] = [
            ("digest", |path| {
                let text = fs::read_to_string(path).unwrap().replace("return 1", "return 2");
                fs::write(path, text).unwrap();
            }),
            ("cut", |path| {
                let bytes = fs::read(path).unwrap();
                fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            }),
            ("mode", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap()),
            ("kind", |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/etc/hostname", path).unwrap();
            }),
            ("format", |path| {
                let text = fs::read_to_string(path).unwrap().replacen("boot-2", "boot-1", 1);
                fs::write(path, text).unwrap();
            }),
            ("place", |path| {
                let other = entry("prompt", "other", 9).to_bytes();
                fs::write(path, other).unwrap();
            }),
        ];
        for (what, change) in changes {
            let (_folder, cache) = open();
            let entry = entry("prompt", "1", 1);
            cache.store(&entry).unwrap();
            change(&only_file(&cache));
            let found = cache.newest(&entry.prompt_digest);
            assert!(found.entry.is_none() && found.removed.len() == 1, "{what}: {found:?}");
            assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 0, "{what}");
            // A new entry is made.
            cache.store(&entry).unwrap();
            assert!(cache.newest(&entry.prompt_digest).entry.is_some(), "{what}");
        }
    }

    #[test]
    fn the_entry_of_another_user_is_not_used() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_folder, cache) = open();
        let entry = entry("prompt", "1", 1);
        cache.store(&entry).unwrap();
        std::os::unix::fs::chown(only_file(&cache), Some(12_345), None).unwrap();
        let found = cache.newest(&entry.prompt_digest);
        assert!(found.entry.is_none() && found.removed[0].contains("another user"), "{found:?}");
    }

    #[test]
    fn old_entries_of_a_prompt_go() {
        let (_folder, cache) = open();
        for number in 0..20 {
            cache.store(&entry("prompt", &number.to_string(), number)).unwrap();
        }
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), KEPT_ENTRIES);
        assert_eq!(cache.newest(&entry("prompt", "1", 1).prompt_digest).entry.unwrap().created_at_ms, 19);
    }
}
