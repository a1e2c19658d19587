//! The anchor: a small file next to the database. It contains the number of changes of each kind, and the end of the audit, authenticated
//! with the machine's key. With the anchor, the store detects a database that was restored from an earlier time. The anchor is created
//! before the first change. Each change is committed to the database before the numbers in the anchor are raised. So even if a process is
//! killed, the anchor never has a higher number than the database.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::database::{Reader, problem};
use super::{Canonical, Kind, MachineKey};
use crate::error::{Error, Result};
use crate::files;

const FILE_NAME: &str = "store.anchor";
const FORMAT: &str = "hyperlight-mcp anchor 1";
const MAX_BYTES: u64 = 64 * 1024;
const ID_BYTES: usize = 16;

/// The content of the anchor: the minimum number of changes that the database must have for each kind of rows, and the end of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// A random id of the anchor. Every seal of the database contains this id, so that a seal made under another anchor is not valid.
    pub(super) id: String,
    changes: BTreeMap<String, u64>,
    /// The end of the audit, as it was last written to the anchor.
    audit: Option<AuditEnd>,
}

/// The last row of the audit at the time when the anchor was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditEnd {
    pub(super) number: u64,
    /// The digest of the row, in hexadecimal.
    pub(super) digest: String,
}

/// The end of the audit according to the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnchoredAudit {
    At(AuditEnd),
    /// The anchor is sound, but does not contain an end of the audit yet.
    Nothing,
    /// There is no sound anchor, so the end is unknown.
    Lost,
}

impl Counts {
    pub(super) fn changes_of(&self, kind: Kind) -> u64 {
        self.changes.get(kind.as_str()).copied().unwrap_or_default()
    }

    fn raise(&mut self, kind: Kind, changes: u64) -> bool {
        let known = self.changes.entry(kind.as_str().to_owned()).or_default();
        let is_higher = *known < changes;
        *known = changes.max(*known);
        is_higher
    }
}

/// The result of reading the anchor file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Anchored {
    Sound(Counts),
    Missing,
    /// The file was changed by another program, or comes from another machine.
    Unsound,
    /// This machine's key authenticates the anchor, but the anchor belongs to another store than the one that this process has read: a copy
    /// of another store, or a new store that another process began after the first store was removed.
    Replaced,
}

impl Anchored {
    /// Returns the content of the anchor, if the anchor is sound.
    pub(super) fn counts(&self) -> Option<&Counts> {
        match self {
            Self::Sound(counts) => Some(counts),
            Self::Missing | Self::Unsound | Self::Replaced => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    id: String,
    changes: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    audit: Option<AuditEnd>,
    mac: String,
}

/// The anchor of one database.
pub(super) struct Anchor {
    path: PathBuf,
    seen: Mutex<Seen>,
}

/// The state that this process has seen: the anchor id of its store, and the highest number of changes for each anchor id and kind. This
/// state stays valid as long as the process lives, even if the files are replaced or removed.
#[derive(Default)]
struct Seen {
    /// The anchor id of the store that this process reads. `None` before the first change.
    store: Option<String>,
    /// The highest number of changes seen for each anchor id and kind. Under the same id, the number of changes of a database never falls.
    changes: BTreeMap<(String, Kind), u64>,
}

impl Anchor {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(FILE_NAME), seen: Mutex::default() }
    }

    /// Reads the anchor. A caller that compares the anchor with the database must read the database afterwards. In this order, a change
    /// between the two reads cannot make the database look older than the anchor.
    pub(super) fn read(&self, key: &MachineKey) -> Result<Anchored> {
        let bytes = match files::read_own(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Anchored::Missing),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => return Ok(Anchored::Unsound),
            Err(error) => return Err(self.failed(&error)),
        };
        let Some(mut counts) = parsed(&bytes, key) else { return Ok(Anchored::Unsound) };
        let seen = self.seen.lock();
        if seen.store.as_ref().is_some_and(|store| *store != counts.id) {
            return Ok(Anchored::Replaced);
        }
        for ((id, kind), changes) in &seen.changes {
            if *id == counts.id {
                counts.raise(*kind, *changes);
            }
        }
        Ok(Anchored::Sound(counts))
    }

    /// Records that this process has seen a database with this number of changes of a kind. `id` is the id of the anchor.
    pub(super) fn note(&self, id: &str, kind: Kind, changes: u64) {
        let mut seen = self.seen.lock();
        seen.store.get_or_insert_with(|| id.to_owned());
        let known = seen.changes.entry((id.to_owned(), kind)).or_default();
        *known = changes.max(*known);
    }

    /// Returns whether this process has seen rows of a kind, under this anchor id or an earlier one.
    pub(super) fn has_seen(&self, kind: Kind) -> bool {
        self.seen.lock().changes.keys().any(|(_, seen)| *seen == kind)
    }

    /// Creates an anchor for a database that was never changed. The caller is in a transaction that excludes other writers.
    pub(super) fn renew(&self, key: &MachineKey, _alone: &Reader<'_>) -> Result<Counts> {
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id).map_err(|error| self.failed(&std::io::Error::other(error)))?;
        let counts = Counts { id: hex::encode(id), ..Counts::default() };
        self.write(&counts, key)?;
        if let Some(store) = &mut self.seen.lock().store {
            // This process itself has begun the new store, so it records the new id as the id of its store.
            store.clone_from(&counts.id);
        }
        Ok(counts)
    }

    /// Raises the numbers in the anchor after changes were committed. The caller is in a transaction that excludes other writers, so that
    /// no lower number is written afterwards.
    pub(super) fn raise(&self, key: &MachineKey, id: &str, changes: &[(Kind, u64)], _alone: &Reader<'_>) -> Result<()> {
        let bytes = files::read_own(&self.path, MAX_BYTES).map_err(|error| self.failed(&error))?;
        // If the anchor was replaced in the meantime, these changes do not belong to the new anchor.
        let Some(mut counts) = parsed(&bytes, key).filter(|counts| counts.id == id) else { return Ok(()) };
        let mut is_higher = false;
        for (kind, changes) in changes {
            is_higher |= counts.raise(*kind, *changes);
        }
        if is_higher { self.write(&counts, key) } else { Ok(()) }
    }

    /// Returns the end of the audit that the anchor contains. A caller that compares this end with the database must read the database
    /// afterwards.
    pub(super) fn audit(&self, key: &MachineKey) -> Result<AnchoredAudit> {
        Ok(match self.read(key)? {
            Anchored::Sound(counts) => counts.audit.map_or(AnchoredAudit::Nothing, AnchoredAudit::At),
            Anchored::Missing | Anchored::Unsound | Anchored::Replaced => AnchoredAudit::Lost,
        })
    }

    /// Writes a later end of the audit into the anchor. The rows up to this end are already on the disk. The caller is in a transaction
    /// that excludes other writers. Does not replace a missing or changed anchor: before that, the rows of decisions must be checked.
    pub(super) fn raise_audit(&self, key: &MachineKey, end: AuditEnd, _alone: &Reader<'_>) -> Result<()> {
        let Anchored::Sound(mut counts) = self.read(key)? else { return Ok(()) };
        if counts.audit.as_ref().is_some_and(|known| known.number >= end.number) {
            return Ok(());
        }
        counts.audit = Some(end);
        self.write(&counts, key)
    }

    fn write(&self, counts: &Counts, key: &MachineKey) -> Result<()> {
        let Counts { id, changes, audit } = counts;
        let (id, changes, audit) = (id.clone(), changes.clone(), audit.clone());
        let file = File { format: FORMAT.to_owned(), id, changes, audit, mac: key.authenticate(&form(counts)) };
        let bytes = serde_json::to_vec(&file).map_err(|error| self.failed(&error.into()))?;
        files::replace(&self.path, &bytes, files::Writing::Durable).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        let advice = if error.kind() == ErrorKind::StorageFull { ". Make space on the disk, then try again" } else { "" };
        problem(&self.path, &format!("{error}{advice}"))
    }
}

fn parsed(bytes: &[u8], key: &MachineKey) -> Option<Counts> {
    let File { format, id, changes, audit, mac } = serde_json::from_slice(bytes).ok()?;
    let counts = Counts { id, changes, audit };
    (format == FORMAT && key.verify(&form(&counts), &mac)).then_some(counts)
}

fn form(counts: &Counts) -> Canonical {
    let Counts { id, changes, audit } = counts;
    let form = Canonical::new(FORMAT).text(id);
    let form = changes.iter().fold(form, |form, (kind, changes)| form.text(kind).text(&changes.to_string()));
    match audit {
        // This form has more parts than a form without the end of the audit, so two such forms are never equal.
        Some(AuditEnd { number, digest }) => form.text("audit").text(&number.to_string()).text(digest),
        None => form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_that_was_changed_in_any_part_is_unsound() {
        let folder = tempfile::tempdir().unwrap();
        let key = MachineKey::open(folder.path()).unwrap();
        let anchor = Anchor::new(folder.path());
        assert_eq!(anchor.read(&key).unwrap(), Anchored::Missing);
        let audit = Some(AuditEnd { number: 5, digest: "cd".to_owned() });
        let mut counts = Counts { id: "ab".to_owned(), audit, ..Counts::default() };
        counts.raise(Kind::Grant, 7);
        anchor.write(&counts, &key).unwrap();
        assert_eq!(anchor.read(&key).unwrap(), Anchored::Sound(counts));
        let text = std::fs::read_to_string(&anchor.path).unwrap();
        let without_audit = text.replace(r#""audit":{"number":5,"digest":"cd"},"#, "");
        assert_ne!(without_audit, text);
        for changed in [
            without_audit,
            text.replace('5', "4"),
            text.replace("\"cd\"", "\"ce\""),
            text.replace('7', "6"),
            text.replace("\"ab\"", "\"ac\""),
            text.replace("grant", "server"),
            text[1..].to_owned(),
        ] {
            std::fs::write(&anchor.path, changed).unwrap();
            assert_eq!(anchor.read(&key).unwrap(), Anchored::Unsound);
        }
    }

    #[test]
    fn a_number_that_was_seen_counts_for_its_own_anchor_only_and_never_falls() {
        let folder = tempfile::tempdir().unwrap();
        let key = MachineKey::open(folder.path()).unwrap();
        let anchor = Anchor::new(folder.path());
        let counts = Counts { id: "ab".to_owned(), ..Counts::default() };
        anchor.write(&counts, &key).unwrap();
        anchor.note("ab", Kind::Grant, 3);
        anchor.note("ab", Kind::Grant, 2);
        anchor.note("other", Kind::Grant, 9);
        let Anchored::Sound(read) = anchor.read(&key).unwrap() else { panic!("unsound") };
        assert_eq!((read.changes_of(Kind::Grant), read.changes_of(Kind::Server)), (3, 0));
        assert!(anchor.has_seen(Kind::Grant) && !anchor.has_seen(Kind::Server));
    }

    #[test]
    fn the_anchor_of_another_store_is_told_once_a_change_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let key = MachineKey::open(folder.path()).unwrap();
        let anchor = Anchor::new(folder.path());
        let write = |id: &str| anchor.write(&Counts { id: id.to_owned(), ..Counts::default() }, &key).unwrap();
        for id in ["ab", "cd"] {
            write(id);
            assert!(anchor.read(&key).unwrap().counts().is_some(), "nothing was seen of the one before");
        }
        anchor.note("cd", Kind::Grant, 1);
        write("ab");
        assert_eq!(anchor.read(&key).unwrap(), Anchored::Replaced);
        write("cd");
        assert!(anchor.read(&key).unwrap().counts().is_some());
    }
}
