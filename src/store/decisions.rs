//! The rows of approvals, grants and all other [`Kind`]s in the database: reads and writes these rows, and checks them against their seal
//! (module `seal`) and the anchor (module `anchor`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::OptionalExtension as _;

use super::anchor::{Anchor, Anchored, Counts};
use super::database::{Reader, Version, is_malformed};
use super::seal::{all_mac, row_mac, seal_mac};
use super::{Kind, MachineKey, Rows};
use crate::error::{Error, Result};

/// The text of the error if another store has replaced the store that this process has read.
pub(super) const REPLACED: &str =
    "another store has replaced the one that this process has read. If you did that, end this process and start it again";

/// The text of the error if the seals of different kinds are from different moments.
pub(super) const MIXED: &str = "its seals were not written at the same time";

/// The reason why rows have no effect if one of them has a value that this program never writes, such as a text that is not UTF-8.
const UNREADABLE: &str = "one of them cannot be read";

/// The number that is added to the number of changes when rows are set aside. It is so large that no earlier state can have the new number
/// of changes, not even a state with more changes than the anchor records.
const FRESH_START: u64 = 1 << 20;

/// The name of the seal that covers the seals of all kinds.
const ALL: &str = "all";

/// The MACs of rows, by name.
type Macs = BTreeMap<String, Vec<u8>>;

/// The rows of one kind at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) rows: Arc<Rows>,
    pub(super) macs: Arc<Macs>,
    pub(super) seal: Option<Seal>,
    /// The id of the anchor under which the rows were checked.
    pub(super) anchor: String,
    /// The reason why the rows are treated as absent, if another program has changed these rows.
    pub(super) problem: Option<String>,
    pub(super) version: Option<Version>,
}

/// The seal of all rows of one kind, as it is in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seal {
    /// Number of changes so far.
    pub(super) changes: u64,
    mac: Vec<u8>,
}

/// The result of the last read of the rows of a kind.
#[derive(Debug)]
pub(super) enum Reading {
    Read(Snapshot),
    Failed(Error),
}

impl Reading {
    pub(super) fn problem(&self) -> Option<&String> {
        match self {
            Self::Read(snapshot) => snapshot.problem.as_ref(),
            Self::Failed(_) => None,
        }
    }
}

/// Reads the rows of a kind. Returns `known` if its seal is still in the database: the known rows were checked against this seal, so they
/// are unchanged. So a change of another kind does not make this function read rows. If the seal has changed, reads only the rows whose
/// MACs differ from the known MACs.
pub(super) fn rows_now(
    reader: &Reader<'_>,
    kind: Kind,
    key: &MachineKey,
    (anchor, anchored): (&Anchor, &Anchored),
    known: Option<&Snapshot>,
) -> Result<Snapshot> {
    // If this process has seen rows, it never treats an empty store as a new store.
    let has_seen = anchor.has_seen(kind);
    let found = || -> rusqlite::Result<std::result::Result<Snapshot, String>> {
        let seal = seal(reader, kind)?;
        let counts = match anchored {
            Anchored::Sound(counts) => counts,
            Anchored::Missing | Anchored::Unsound if !has_seen && is_unused(reader)? => return Ok(Ok(Snapshot::default())),
            Anchored::Missing => return Ok(Err("its anchor is missing".to_owned())),
            Anchored::Unsound => return Ok(Err("another program changed its anchor".to_owned())),
            Anchored::Replaced => return Ok(Err(REPLACED.to_owned())),
        };
        let (changes, least) = (seal.as_ref().map_or(0, |seal| seal.changes), counts.changes_of(kind));
        if changes < least {
            return Ok(Err(format!("the store is an earlier copy: it has {changes} changes, and must have at least {least}")));
        }
        if has_seen && seal.is_none() {
            return Ok(Err("this process has read rows of this kind, and now there are none".to_owned()));
        }
        if !seals_fit(reader, key, counts)? {
            return Ok(Err(MIXED.to_owned()));
        }
        let known = known.filter(|known| known.problem.is_none() && known.anchor == counts.id);
        if let Some(known) = known.filter(|known| known.seal == seal) {
            return Ok(Ok(known.clone()));
        }
        checked(reader, kind, key, counts, seal, known)
    };
    let found = match found() {
        Err(error) if is_malformed(&error) => Err(UNREADABLE.to_owned()),
        found => found.map_err(|error| reader.failed(&error))?,
    };
    Ok(found.unwrap_or_else(|problem| {
        let problem = format!(
            "the store's rows of kind \"{}\" were changed by another program, or come from another machine ({problem}): these rows have no effect",
            kind.as_str()
        );
        Snapshot { problem: Some(problem), ..Snapshot::default() }
    }))
}

/// Returns the known rows if the seals of all these kinds are unchanged.
pub(super) fn current<const N: usize>(
    reader: &Reader<'_>,
    kinds: [Kind; N],
    known: &[Option<Snapshot>; N],
) -> Result<Option<[Snapshot; N]>> {
    for (kind, known) in kinds.into_iter().zip(known) {
        // If there is no seal, the rows were never written or were removed. Only the anchor shows which of the two is true.
        let Some(Snapshot { seal: Some(checked), .. }) = known else { return Ok(None) };
        match seal(reader, kind) {
            Ok(seal) if seal.as_ref() == Some(checked) => {}
            Err(error) if !is_malformed(&error) => return Err(reader.failed(&error)),
            _ => return Ok(None),
        }
    }
    Ok(Some(std::array::from_fn(|index| known[index].clone().unwrap_or_default())))
}

/// Reads rows and checks them against their seal. The inner error describes the mismatch.
fn checked(
    reader: &Reader<'_>,
    kind: Kind,
    key: &MachineKey,
    counts: &Counts,
    seal: Option<Seal>,
    known: Option<&Snapshot>,
) -> rusqlite::Result<std::result::Result<Snapshot, String>> {
    let macs = macs(reader, kind)?;
    let anchor = counts.id.clone();
    let Some(Seal { changes, mac: found }) = &seal else {
        let none = Snapshot { anchor, ..Snapshot::default() };
        return Ok(if macs.is_empty() { Ok(none) } else { Err("they have no seal".to_owned()) });
    };
    if sealed(key, &anchor, kind, *changes, &macs) != *found {
        return Ok(Err("the seal is wrong".to_owned()));
    }
    let (mut rows, unchecked) = match known {
        Some(known) => (Rows::clone(&known.rows), changed_rows(reader, kind, &macs, &known.macs)?),
        None => (Rows::new(), all_rows(reader, kind)?),
    };
    for (name, body) in unchecked {
        if macs.get(&name) != Some(&row_mac(key, kind, &name, &body)) {
            return Ok(Err(format!("the MAC of the row \"{name}\" is wrong")));
        }
        rows.insert(name, body);
    }
    if rows.len() > macs.len() {
        rows.retain(|name, _| macs.contains_key(name));
    }
    Ok(Ok(Snapshot { rows: Arc::new(rows), macs: Arc::new(macs), seal, anchor, problem: None, version: None }))
}

/// Writes the rows that differ from `before`, and a new seal. Returns the new rows of the kind, or `None` if nothing has changed.
pub(super) fn write_changed(
    reader: &Reader<'_>,
    kind: Kind,
    key: &MachineKey,
    counts: &Counts,
    before: &Snapshot,
    rows: Rows,
) -> Result<Option<Snapshot>> {
    let written = move || {
        if let Some(problem) = &before.problem {
            set_aside(reader, Some(kind), problem)?;
        } else if *before.rows == rows {
            return Ok(None);
        }
        let mut macs = Macs::clone(&before.macs);
        for name in before.rows.keys().filter(|name| !rows.contains_key(*name)) {
            reader.transaction.execute("DELETE FROM decisions WHERE kind = ?1 AND name = ?2", (kind.as_str(), name))?;
            macs.remove(name);
        }
        for (name, body) in rows.iter().filter(|(name, body)| before.rows.get(*name) != Some(body)) {
            let mac = row_mac(key, kind, name, body);
            let insert = "INSERT OR REPLACE INTO decisions (kind, name, mac, body) VALUES (?1, ?2, ?3, ?4)";
            reader.transaction.prepare_cached(insert)?.execute((kind.as_str(), name, &mac, &**body))?;
            macs.insert(name.clone(), mac);
        }
        let changes = match &before.problem {
            None => before.seal.as_ref().map_or(0, |seal| seal.changes) + 1,
            // Another program may have changed the number of changes in the database. The number in the anchor is authenticated, so it is
            // used.
            Some(_) => counts.changes_of(kind) + FRESH_START,
        };
        let mac = sealed(key, &counts.id, kind, changes, &macs);
        write_seal(reader, kind.as_str(), changes, &mac)?;
        let seal = Some(Seal { changes, mac });
        Ok(Some(Snapshot { rows: Arc::new(rows), macs: Arc::new(macs), seal, anchor: counts.id.clone(), problem: None, version: None }))
    };
    written().map_err(|error| reader.failed(&error))
}

/// Returns whether the seals of all kinds are from the same moment. Without this check, somebody could restore the rows of one kind
/// together with the anchor from an earlier time, and keep the current rows of other kinds.
pub(super) fn seals_fit(reader: &Reader<'_>, key: &MachineKey, counts: &Counts) -> rusqlite::Result<bool> {
    let (all, seals) = match seals(reader) {
        Err(error) if is_malformed(&error) => return Ok(false),
        seals => seals?,
    };
    Ok(match all {
        Some(Seal { changes, mac }) => all_mac(key, &counts.id, changes, seals_of(&seals)) == mac,
        None => seals.is_empty(),
    })
}

/// Writes the seal that covers the seals of all kinds.
pub(super) fn seal_all(reader: &Reader<'_>, key: &MachineKey, counts: &Counts) -> rusqlite::Result<()> {
    let (all, seals) = seals(reader)?;
    let changes = all.map_or(0, |all| all.changes) + 1;
    let mac = all_mac(key, &counts.id, changes, seals_of(&seals));
    write_seal(reader, ALL, changes, &mac)
}

/// Reads the seal that covers all other seals, and the seal of each kind of row ([`Kind`]).
fn seals(reader: &Reader<'_>) -> rusqlite::Result<(Option<Seal>, BTreeMap<String, Seal>)> {
    let mut statement = reader.transaction.prepare_cached("SELECT kind, changes, mac FROM seals ORDER BY kind LIMIT 100")?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, Seal { changes: row.get::<_, i64>(1)?.cast_unsigned(), mac: row.get(2)? }));
    let mut seals: BTreeMap<String, Seal> = statement.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    Ok((seals.remove(ALL), seals))
}

fn seals_of(seals: &BTreeMap<String, Seal>) -> impl Iterator<Item = (&str, u64, &[u8])> {
    seals.iter().map(|(kind, Seal { changes, mac })| (kind.as_str(), *changes, mac.as_slice()))
}

fn write_seal(reader: &Reader<'_>, kind: &str, changes: u64, mac: &[u8]) -> rusqlite::Result<()> {
    let mut statement = reader.transaction.prepare_cached("INSERT OR REPLACE INTO seals VALUES (?1, ?2, ?3)")?;
    statement.execute((kind, changes.cast_signed(), mac)).map(drop)
}

/// Returns whether the database was never changed.
pub(super) fn is_unused(reader: &Reader<'_>) -> rusqlite::Result<bool> {
    let any = "SELECT EXISTS (SELECT 1 FROM seals) OR EXISTS (SELECT 1 FROM decisions)";
    reader.transaction.prepare_cached(any)?.query_row([], |row| row.get::<_, bool>(0)).map(|any| !any)
}

/// Moves the rows of all kinds to the table `set_aside`, where they have no effect, and removes their seals.
pub(super) fn set_all_aside(reader: &Reader<'_>, problem: &str) -> rusqlite::Result<()> {
    set_aside(reader, None, problem)?;
    reader.transaction.execute("DELETE FROM seals", []).map(drop)
}

/// Moves the rows of one kind, or of all kinds if `kind` is `None`, to the table `set_aside`, where they have no effect. Reads no values,
/// and converts each value to the type of its column, because another program may have written values of any type.
fn set_aside(reader: &Reader<'_>, kind: Option<Kind>, problem: &str) -> rusqlite::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let kind = kind.map(Kind::as_str);
    let moved = "INSERT INTO set_aside SELECT ifnull(CAST(kind AS TEXT), ''), ifnull(CAST(name AS TEXT), ''), \
                 ifnull(CAST(body AS BLOB), x''), ?2, ?3 FROM decisions WHERE ?1 IS NULL OR kind = ?1";
    reader.transaction.execute(moved, (kind, problem, now))?;
    reader.transaction.execute("DELETE FROM decisions WHERE ?1 IS NULL OR kind = ?1", [kind]).map(drop)
}

fn sealed(key: &MachineKey, anchor: &str, kind: Kind, changes: u64, macs: &Macs) -> Vec<u8> {
    seal_mac(key, anchor, kind, changes, macs.iter().map(|(name, mac)| (name.as_str(), mac.as_slice())))
}

fn seal(reader: &Reader<'_>, kind: Kind) -> rusqlite::Result<Option<Seal>> {
    let mut statement = reader.transaction.prepare_cached("SELECT changes, mac FROM seals WHERE kind = ?1")?;
    let read = |row: &rusqlite::Row<'_>| Ok(Seal { changes: row.get::<_, i64>(0)?.cast_unsigned(), mac: row.get(1)? });
    statement.query_row([kind.as_str()], read).optional()
}

fn macs(reader: &Reader<'_>, kind: Kind) -> rusqlite::Result<Macs> {
    let mut statement =
        reader.transaction.prepare_cached("SELECT name, mac FROM decisions INDEXED BY macs WHERE kind = ?1 ORDER BY name")?;
    statement.query_map([kind.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn all_rows(reader: &Reader<'_>, kind: Kind) -> rusqlite::Result<Vec<(String, Arc<[u8]>)>> {
    let mut statement = reader.transaction.prepare_cached("SELECT name, body FROM decisions WHERE kind = ?1")?;
    statement.query_map([kind.as_str()], |row| Ok((row.get(0)?, Arc::from(row.get::<_, Vec<u8>>(1)?))))?.collect()
}

/// Reads the rows whose MACs (`macs`) differ from the known MACs (`known`).
fn changed_rows(reader: &Reader<'_>, kind: Kind, macs: &Macs, known: &Macs) -> rusqlite::Result<Vec<(String, Arc<[u8]>)>> {
    let mut statement = reader.transaction.prepare_cached("SELECT body FROM decisions WHERE kind = ?1 AND name = ?2")?;
    let mut body = |name: &String| statement.query_row((kind.as_str(), name), |row| row.get::<_, Vec<u8>>(0));
    let changed = macs.iter().filter(|(name, mac)| known.get(*name) != Some(mac));
    changed.map(|(name, _)| Ok((name.clone(), Arc::from(body(name)?)))).collect()
}
