//! The audit's tables: the rows with their positions, the head, and the list of gateways that write.

use rusqlite::{Error, OptionalExtension as _, Row, params};

use super::chain::{Head, HeadFound, Linked, START, Verification, WriterRow};
use super::row::{AuditDetails, AuditKind, AuditRow, Entry};
use super::{AuditQuery, AuditReport};
use crate::error::Result;
use crate::store::MachineKey;
use crate::store::anchor::{AnchoredAudit, AuditEnd};
use crate::store::database::Reader;

const COLUMNS: &str = "number, at, kind, agent, server, tool, body, digest";
/// The id of a special entry in the list of writers. No gateway has this id. The entry contains the number of the newest row with a digest
/// of the config's grants.
const CONFIG_GRANTS: &str = "config grants";
/// The number of rows that one pass reads in order to remove rows from the beginning of the chain.
const TRIMMED_AT_ONCE: u64 = 1000;

/// The number that is stored for a gateway if its gap was reported, or if it has ended normally.
pub(super) const ALL_TOLD: u64 = i64::MAX as u64;

/// A change of the list of gateways that write the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterNote<'a> {
    /// The id of a gateway, and the number of its events that are written or reported as lost.
    Written(&'a str, u64),
    /// The gateway has ended, and its presence file is removed.
    Forgotten(&'a str),
}

/// The limits of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) max_bytes: u64,
    pub(super) max_age_ms: u64,
}

pub(super) struct Table<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) key: &'a MachineKey,
}

impl Table<'_> {
    /// Appends rows to the chain, changes the list of gateways that write, and removes the oldest rows. `known` is the last row that this
    /// process has seen. If the chain does not continue from that row, first writes a row that reports the damage, even if `entries` is
    /// empty. Returns the last row.
    pub(super) fn append(
        &self,
        entries: &[Entry],
        notes: &[WriterNote<'_>],
        known: Option<&AuditEnd>,
        now: u64,
        bounds: Bounds,
    ) -> Result<Option<AuditEnd>> {
        self.appended(entries, notes, known, now, bounds).map_err(|error| self.reader.failed(&error))
    }

    fn appended(
        &self,
        entries: &[Entry],
        notes: &[WriterNote<'_>],
        known: Option<&AuditEnd>,
        now: u64,
        bounds: Bounds,
    ) -> rusqlite::Result<Option<AuditEnd>> {
        let transaction = &self.reader.transaction;
        let (first, last) = self.numbers()?;
        let mut damage = None;
        let mut head = if let Some(head) = self.usable_head(known, last)? {
            head
        } else {
            damage = Some(Entry::damage(now, std::process::id()));
            // The list of writers is deleted, because only a sound head can prove that it is unchanged.
            transaction.execute("DELETE FROM audit_writers", [])?;
            self.repaired_head(first.unwrap_or(1), last.max(known.map(|known| known.number)).unwrap_or_default())?
        };
        let mut insert = transaction.prepare_cached("INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
        for entry in damage.iter().chain(entries) {
            let Linked { number, entry, digest } = head.append(self.key, entry.clone());
            let Entry { at, kind, agent, server, tool, body } = entry;
            insert.execute(params![number, at, kind.as_str(), agent, server, tool, body, digest])?;
        }
        self.trim(&mut head, now, bounds)?;
        if let Some(after) = entries.iter().rev().position(|entry| entry.digest_of_grants().is_some()) {
            self.note(WriterNote::Written(CONFIG_GRANTS, head.last - after as u64))?;
        }
        notes.iter().try_for_each(|note| self.note(*note))?;
        self.write_head(&head)?;
        Ok(head.end())
    }

    /// Returns whether the chain and the list of gateways that write are unchanged, as far as this can be checked without reading all rows.
    pub(super) fn is_sound(&self, known: Option<&AuditEnd>) -> Result<bool> {
        let usable = || self.usable_head(known, self.numbers()?.1);
        usable().map(|head| head.is_some()).map_err(|error| self.reader.failed(&error))
    }

    /// Returns the numbers of the first and the last row.
    fn numbers(&self) -> rusqlite::Result<(Option<u64>, Option<u64>)> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT min(number), max(number) FROM audit")?;
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Returns the head for the next row, or `None` if another program has changed the chain.
    fn usable_head(&self, known: Option<&AuditEnd>, last: Option<u64>) -> rusqlite::Result<Option<Head>> {
        let there = match known {
            Some(known) => self.digest_at(known.number)?,
            None => None,
        };
        let usable = self.head()?.usable(last.is_none(), known, there.as_deref());
        Ok(usable.filter(|head| head.last >= last.unwrap_or_default()))
    }

    fn digest_at(&self, number: u64) -> rusqlite::Result<Option<String>> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT digest FROM audit WHERE number = ?1")?;
        statement.query_row([number], |row| row.get::<_, Vec<u8>>(0)).optional().map(|digest| digest.map(hex::encode))
    }

    /// Returns a new head for rows whose head is not usable. The existing rows can no longer be verified as a whole.
    fn repaired_head(&self, first: u64, last: u64) -> rusqlite::Result<Head> {
        let transaction = &self.reader.transaction;
        let digest = transaction.query_row("SELECT digest FROM audit ORDER BY number DESC LIMIT 1", [], |row| row.get(0)).optional()?;
        let bytes = transaction.query_row("SELECT coalesce(sum(length(body) + 120), 0) FROM audit", [], |row| row.get(0))?;
        // If older rows were removed, the digest before the first row is not known.
        let anchor = if first == 1 { START.to_vec() } else { Vec::new() };
        Ok(Head { first, anchor, last, digest: digest.unwrap_or_else(|| START.to_vec()), bytes })
    }

    /// Removes the oldest rows until the remaining rows are within the limits. The last row is never removed.
    fn trim(&self, head: &mut Head, now: u64, bounds: Bounds) -> rusqlite::Result<()> {
        let transaction = &self.reader.transaction;
        let oldest = now.saturating_sub(bounds.max_age_ms);
        let mut first = transaction.prepare_cached("SELECT at FROM audit ORDER BY number LIMIT 1")?;
        let Some(first_at) = first.query_row([], |row| row.get::<_, u64>(0)).optional()? else { return Ok(()) };
        // Removes a tenth more than necessary, so that not every batch has to remove rows.
        let most = match head.bytes > bounds.max_bytes {
            true => bounds.max_bytes / 10 * 9,
            false if first_at < oldest => bounds.max_bytes,
            false => return Ok(()),
        };
        let mut select = transaction.prepare_cached(&format!("SELECT {COLUMNS} FROM audit ORDER BY number LIMIT {TRIMMED_AT_ONCE}"))?;
        loop {
            let before = head.first;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let row = linked(row)?;
                if row.number >= head.last || (head.bytes <= most && row.entry.at >= oldest) {
                    break;
                }
                head.drop_first(row);
            }
            drop(rows);
            if head.first == before {
                return Ok(());
            }
            transaction.execute("DELETE FROM audit WHERE number < ?1", [head.first])?;
        }
    }

    fn head(&self) -> rusqlite::Result<HeadFound> {
        let mut statement =
            self.reader.transaction.prepare_cached("SELECT first, anchor, last, digest, bytes, mac FROM audit_head WHERE id = 1")?;
        let read = |row: &Row<'_>| {
            let head = Head { first: row.get(0)?, anchor: row.get(1)?, last: row.get(2)?, digest: row.get(3)?, bytes: row.get(4)? };
            Ok((head, row.get::<_, Vec<u8>>(5)?))
        };
        match statement.query_row([], read) {
            Ok((head, mac)) if head.mac(self.key, &self.writers()?) == mac => Ok(HeadFound::Sound(head)),
            // The row of the head contains a number or a type that this program never writes.
            Ok(_) | Err(Error::IntegralValueOutOfRange(..) | Error::FromSqlConversionFailure(..) | Error::InvalidColumnType(..)) => {
                Ok(HeadFound::Changed)
            }
            Err(Error::QueryReturnedNoRows) => Ok(HeadFound::Missing),
            Err(error) => Err(error),
        }
    }

    /// Returns the list of gateways that write.
    pub(super) fn writers(&self) -> rusqlite::Result<Vec<WriterRow>> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT id, told FROM audit_writers ORDER BY id")?;
        statement.query_map([], |row| Ok(WriterRow { id: row.get(0)?, told: row.get(1)? }))?.collect()
    }

    /// Returns the writers in the table for which `is_gone` is true, except the entry for the config's grants. Includes writers that were
    /// closed normally and are still in the table.
    pub(super) fn gone_writers(&self, is_gone: impl Fn(&str) -> bool) -> Result<Vec<WriterRow>> {
        let mut writers = self.writers().map_err(|error| self.reader.failed(&error))?;
        writers.retain(|writer| writer.id != CONFIG_GRANTS && is_gone(&writer.id));
        Ok(writers)
    }

    fn write_head(&self, head: &Head) -> rusqlite::Result<()> {
        let Head { first, anchor, last, digest, bytes } = head;
        let mut statement =
            self.reader.transaction.prepare_cached("INSERT OR REPLACE INTO audit_head VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)")?;
        statement.execute(params![first, anchor, last, digest, bytes, head.mac(self.key, &self.writers()?)]).map(drop)
    }

    /// Returns the last rows that match a query, oldest first.
    pub(super) fn rows(&self, query: &AuditQuery) -> Result<Vec<AuditRow>> {
        self.found(query).map_err(|error| self.reader.failed(&error))
    }

    fn found(&self, query: &AuditQuery) -> rusqlite::Result<Vec<AuditRow>> {
        let AuditQuery { after, since, agent, server, tool, kind, limit } = query;
        let sql = format!(
            "SELECT {COLUMNS} FROM audit WHERE number > ?1 AND at >= ?2 AND (?3 IS NULL OR agent = ?3) AND (?4 IS NULL OR server = ?4) \
             AND (?5 IS NULL OR tool = ?5) AND (?6 IS NULL OR kind = ?6) ORDER BY number DESC LIMIT ?7"
        );
        let mut statement = self.reader.transaction.prepare_cached(&sql)?;
        let limit = i64::try_from(limit.unwrap_or(usize::MAX)).unwrap_or(i64::MAX);
        let values = params![after.unwrap_or_default(), since.unwrap_or_default(), agent, server, tool, kind.map(AuditKind::as_str), limit];
        let mut rows = statement.query_map(values, |row| linked(row).map(shown))?.collect::<rusqlite::Result<Vec<_>>>()?;
        rows.reverse();
        Ok(rows)
    }

    /// Verifies all rows. `seen` is the last row that this process has seen. `anchored` and `seen` must be read before this call.
    pub(super) fn verify(&self, anchored: AnchoredAudit, seen: Option<AuditEnd>) -> Result<AuditReport> {
        let verified = || {
            let mut verification = Verification::new(self.key, self.head()?, anchored, seen);
            let mut statement = self.reader.transaction.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                verification.row(&linked(row)?);
            }
            Ok(verification.end())
        };
        verified().map_err(|error| self.reader.failed(&error))
    }

    /// Returns the digest of the config's grants that were recorded last. Returns `None` if none were recorded, or if the row no longer
    /// exists.
    pub(super) fn config_grants(&self) -> Result<Option<String>> {
        let Some(number) = self.written_by(CONFIG_GRANTS)? else { return Ok(None) };
        let select = format!("SELECT {COLUMNS} FROM audit WHERE number = ?1");
        let row = self.reader.transaction.query_row(&select, [number], linked).optional();
        let row = row.map_err(|error| self.reader.failed(&error))?;
        Ok(row.and_then(|row| row.entry.digest_of_grants()))
    }

    fn note(&self, note: WriterNote<'_>) -> rusqlite::Result<()> {
        let transaction = &self.reader.transaction;
        let changed = match note {
            WriterNote::Written(id, told) => {
                transaction.prepare_cached("INSERT OR REPLACE INTO audit_writers VALUES (?1, ?2)")?.execute(params![id, told])
            }
            WriterNote::Forgotten(id) => transaction.execute("DELETE FROM audit_writers WHERE id = ?1", [id]),
        };
        changed.map(drop)
    }

    /// Returns the number of a gateway's events that are written or reported as lost.
    pub(super) fn written_by(&self, id: &str) -> Result<Option<u64>> {
        let found = self.reader.transaction.query_row("SELECT told FROM audit_writers WHERE id = ?1", [id], |row| row.get::<_, i64>(0));
        // This program never writes a negative number.
        let found = found.optional().map(|told| told.and_then(|told| u64::try_from(told).ok()));
        found.map_err(|error| self.reader.failed(&error))
    }
}

fn linked(row: &Row<'_>) -> rusqlite::Result<Linked> {
    let kind: String = row.get(2)?;
    let entry = Entry {
        at: row.get(1)?,
        // A word that this version does not know was written by another program. In this case, the digest does not match either.
        kind: AuditKind::named(&kind).unwrap_or(AuditKind::Damage),
        agent: row.get(3)?,
        server: row.get(4)?,
        tool: row.get(5)?,
        body: row.get(6)?,
    };
    Ok(Linked { number: row.get(0)?, entry, digest: row.get(7)? })
}

fn shown(row: Linked) -> AuditRow {
    let Linked { number, entry, digest } = row;
    let Entry { at, kind, agent, server, tool, body } = entry;
    let details: AuditDetails = serde_json::from_str(&body).unwrap_or_default();
    AuditRow { number, at, kind, agent, server, tool, details, digest: hex::encode(digest) }
}
