//! Rows that decide anything, as they are in the database: read, checked against their seal, and written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::OptionalExtension as _;

use super::database::{Reader, Version};
use super::seal::{row_mac, seal_mac};
use super::{Kind, MachineKey, Rows};
use crate::error::{Error, Result};

/// The rows of one kind at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) rows: Arc<Rows>,
    /// The MACs of the rows, by name.
    macs: Arc<BTreeMap<String, Vec<u8>>>,
    /// Number of changes of this kind so far, and the MAC of the seal.
    seal: Option<(u64, Vec<u8>)>,
    /// The reason why the rows count as absent, if another program has changed them.
    pub(super) problem: Option<String>,
    pub(super) version: Option<Version>,
}

/// The outcome of the last reading.
#[derive(Debug)]
pub(super) enum Reading {
    Read(Snapshot),
    Failed(Error),
}

/// Reads the rows of a kind. Returns `known` if its seal is still in place: the rows were checked against it, so they are what was written, and
/// changes of other kinds cost nothing here.
pub(super) fn rows_now(reader: &Reader<'_>, kind: Kind, key: &MachineKey, known: Option<&Snapshot>) -> Result<Snapshot> {
    let seal = seal(reader, kind).map_err(|error| reader.failed(&error))?;
    if let Some(known) = known.filter(|known| known.problem.is_none() && known.seal == seal) {
        return Ok(known.clone());
    }
    let rows = rows(reader, kind).map_err(|error| reader.failed(&error))?;
    Ok(checked(kind, key, seal, rows).unwrap_or_else(|problem| {
        let problem = format!(
            "the store's rows of kind \"{}\" were changed by another program, or come from another machine ({problem}): they decide nothing",
            kind.as_str()
        );
        Snapshot { problem: Some(problem), ..Snapshot::default() }
    }))
}

/// A row as it is in the database.
struct Row {
    name: String,
    body: Arc<[u8]>,
    mac: Vec<u8>,
}

/// Checks rows against their seal. The error says what does not fit.
fn checked(kind: Kind, key: &MachineKey, seal: Option<(u64, Vec<u8>)>, all: Vec<Row>) -> std::result::Result<Snapshot, String> {
    let Some((changes, seal_found)) = &seal else {
        return if all.is_empty() { Ok(Snapshot::default()) } else { Err("they have no seal".to_owned()) };
    };
    if seal_mac(key, kind, *changes, all.iter().map(|row| (row.name.as_str(), row.mac.as_slice()))) != *seal_found {
        return Err("the seal does not fit".to_owned());
    }
    let (mut rows, mut macs) = (Rows::new(), BTreeMap::new());
    for Row { name, body, mac } in all {
        if row_mac(key, kind, &name, &body) != mac {
            return Err(format!("the row \"{name}\" does not fit its MAC"));
        }
        rows.insert(name.clone(), body);
        macs.insert(name, mac);
    }
    Ok(Snapshot { rows: Arc::new(rows), macs: Arc::new(macs), seal, problem: None, version: None })
}

/// Writes the rows that differ from those before, and a new seal.
pub(super) fn write_changed(reader: &Reader<'_>, kind: Kind, key: &MachineKey, before: &Snapshot, rows: &Rows) -> Result<()> {
    let written = || {
        if let Some(problem) = &before.problem {
            set_aside(reader, kind, problem)?;
        } else if *before.rows == *rows {
            return Ok(());
        }
        let mut macs = BTreeMap::clone(&before.macs);
        for name in before.rows.keys().filter(|name| !rows.contains_key(*name)) {
            reader.transaction.execute("DELETE FROM decisions WHERE kind = ?1 AND name = ?2", (kind.as_str(), name))?;
            macs.remove(name);
        }
        for (name, body) in rows.iter().filter(|(name, body)| before.rows.get(*name) != Some(body)) {
            let mac = row_mac(key, kind, name, body);
            let mut statement = reader.transaction.prepare_cached("INSERT OR REPLACE INTO decisions VALUES (?1, ?2, ?3, ?4)")?;
            statement.execute((kind.as_str(), name, &**body, &mac))?;
            macs.insert(name.clone(), mac);
        }
        let changes = before.seal.as_ref().map_or(0, |(changes, _)| *changes) + 1;
        let seal = seal_mac(key, kind, changes, macs.iter().map(|(name, mac)| (name.as_str(), mac.as_slice())));
        let mut statement = reader.transaction.prepare_cached("INSERT OR REPLACE INTO seals VALUES (?1, ?2, ?3)")?;
        statement.execute((kind.as_str(), changes.cast_signed(), seal)).map(drop)
    };
    written().map_err(|error| reader.failed(&error))
}

/// Moves the rows of a kind to the table of rows that decide nothing.
fn set_aside(reader: &Reader<'_>, kind: Kind, problem: &str) -> rusqlite::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let moved = "INSERT INTO set_aside SELECT kind, name, body, ?2, ?3 FROM decisions WHERE kind = ?1";
    reader.transaction.execute(moved, (kind.as_str(), problem, now))?;
    reader.transaction.execute("DELETE FROM decisions WHERE kind = ?1", [kind.as_str()]).map(drop)
}

fn seal(reader: &Reader<'_>, kind: Kind) -> rusqlite::Result<Option<(u64, Vec<u8>)>> {
    let mut statement = reader.transaction.prepare_cached("SELECT changes, mac FROM seals WHERE kind = ?1")?;
    statement.query_row([kind.as_str()], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?))).optional()
}

/// Reads the rows in the order of their names.
fn rows(reader: &Reader<'_>, kind: Kind) -> rusqlite::Result<Vec<Row>> {
    let mut statement = reader.transaction.prepare_cached("SELECT name, body, mac FROM decisions WHERE kind = ?1 ORDER BY name")?;
    let rows = statement
        .query_map([kind.as_str()], |row| Ok(Row { name: row.get(0)?, body: Arc::from(row.get::<_, Vec<u8>>(1)?), mac: row.get(2)? }))?;
    rows.collect()
}
