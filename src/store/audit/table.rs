//! The audit's tables: the rows with their positions, the head, and the list of gateways that write.

use rusqlite::{OptionalExtension as _, params};

use super::chain::{Head, HeadFound, Linked, START, Verification, WriterRow};
use super::row::{AuditDetails, AuditKind, AuditRow, Entry};
use super::stored::{self, COLUMNS, HEAD_COLUMNS, linked};
use super::{AuditQuery, AuditReport};
use crate::error::Result;
use crate::store::MachineKey;
use crate::store::anchor::{AnchoredAudit, AuditEnd};
use crate::store::database::Reader;

/// The id of a special entry in the list of writers. No gateway has this id. The entry contains the number of the newest row with a digest
/// of the config's grants.
const CONFIG_GRANTS: &str = "config grants";
/// The number of rows that one pass reads in order to remove rows from the beginning of the chain.
const TRIMMED_AT_ONCE: u64 = 1000;

/// The highest number of a row that is kept when another program has changed the chain. A row with a higher number would leave no numbers
/// for the rows after it, and JavaScript could not read their numbers.
const MAX_UNPROVEN: u64 = 1 << 52;

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
        let damage = Entry::damage(now, std::process::id());
        let mut head = if let Some(head) = self.usable_head(known)? {
            head
        } else {
            let mut head = self.repaired_head(known)?;
            self.insert(&mut head, &damage)?;
            head
        };
        entries.iter().try_for_each(|entry| self.insert(&mut head, entry))?;
        if let Some(after) = entries.iter().rev().position(|entry| entry.digest_of_grants().is_some()) {
            self.note(WriterNote::Written(CONFIG_GRANTS, head.last - after as u64))?;
        }
        if !self.trim(&mut head, now, bounds)? {
            self.insert(&mut head, &damage)?;
        }
        notes.iter().try_for_each(|note| self.note(*note))?;
        self.write_head(&head)?;
        Ok(head.end())
    }

    /// Appends one row to the chain.
    fn insert(&self, head: &mut Head, entry: &Entry) -> rusqlite::Result<()> {
        let Linked { number, entry, digest } = head.append(self.key, entry.clone());
        let Entry { at, kind, agent, server, tool, body } = entry;
        let mut insert = self.reader.transaction.prepare_cached("INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
        insert.execute(params![number, at, kind.as_str(), agent, server, tool, body, digest]).map(drop)
    }

    /// Returns whether the chain and the list of gateways that write are unchanged, as far as this can be checked without reading all rows.
    pub(super) fn is_sound(&self, known: Option<&AuditEnd>) -> Result<bool> {
        self.usable_head(known).map(|head| head.is_some()).map_err(|error| self.reader.failed(&error))
    }

    /// Returns the numbers of the first and the last row. Another program may have written any numbers.
    fn numbers(&self) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT min(number), max(number) FROM audit")?;
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Returns the head for the next row, or `None` if another program has changed the chain.
    fn usable_head(&self, known: Option<&AuditEnd>) -> rusqlite::Result<Option<Head>> {
        let (first, last) = self.numbers()?;
        let there = match known {
            Some(known) => self.digest_at(known.number)?,
            None => None,
        };
        let usable = self.head()?.usable(last.is_none(), known, there.as_deref());
        Ok(usable.filter(|head| {
            let is_within = |number: i64| u64::try_from(number).is_ok_and(|number| (head.first..=head.last).contains(&number));
            first.into_iter().chain(last).all(is_within)
        }))
    }

    fn digest_at(&self, number: u64) -> rusqlite::Result<Option<String>> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT digest FROM audit WHERE number = ?1")?;
        let digest = statement.query_row([number], |row| row.get_ref(0).map(stored::bytes)).optional()?;
        Ok(digest.flatten().map(hex::encode))
    }

    /// Returns a new head for rows whose head is not usable. The existing rows can no longer be verified as a whole. Removes rows whose
    /// numbers this program never writes, and the list of gateways that write, because only a sound head can prove that it is unchanged.
    fn repaired_head(&self, known: Option<&AuditEnd>) -> rusqlite::Result<Head> {
        let transaction = &self.reader.transaction;
        transaction.execute("DELETE FROM audit_writers", [])?;
        let known = known.map_or(0, |known| known.number);
        transaction.execute("DELETE FROM audit WHERE number < 1 OR number > ?1", [known.max(MAX_UNPROVEN)])?;
        let (first, last) = self.numbers()?;
        let first = first.map_or(1, i64::cast_unsigned);
        let last = last.map_or(0, i64::cast_unsigned).max(known);
        let mut end = transaction.prepare_cached("SELECT digest FROM audit ORDER BY number DESC LIMIT 1")?;
        let digest = end.query_row([], |row| row.get_ref(0).map(|digest| stored::bytes(digest).unwrap_or_default())).optional()?;
        // If older rows were removed, the digest before the first row is not known.
        let anchor = if first == 1 { START.to_vec() } else { Vec::new() };
        Ok(Head { first, anchor, last, digest: digest.unwrap_or_else(|| START.to_vec()), bytes: self.size()? })
    }

    /// Returns the approximate size of all rows, in bytes.
    fn size(&self) -> rusqlite::Result<u64> {
        let size = "SELECT coalesce(sum(length(body) + 120), 0) FROM audit";
        self.reader.transaction.query_row(size, [], |row| row.get_ref(0).map(|size| stored::number(size).unwrap_or_default()))
    }

    /// Removes the oldest rows until the remaining rows are within the limits. The last row is never removed. Returns false if one of the
    /// removed rows was changed: by a wrong time in a row, another program could remove the rows before it.
    fn trim(&self, head: &mut Head, now: u64, bounds: Bounds) -> rusqlite::Result<bool> {
        let transaction = &self.reader.transaction;
        let oldest = now.saturating_sub(bounds.max_age_ms);
        let mut first = transaction.prepare_cached("SELECT at FROM audit ORDER BY number LIMIT 1")?;
        let Some(first_at) = first.query_row([], |row| row.get_ref(0).map(stored::number)).optional()? else { return Ok(true) };
        // A row without a readable time goes like an old one.
        let is_old = |at: Option<u64>| at.is_none_or(|at| at < oldest);
        // Removes a tenth more than necessary, so that not every batch has to remove rows.
        let most = match head.bytes > bounds.max_bytes {
            true => bounds.max_bytes / 10 * 9,
            false if is_old(first_at) => bounds.max_bytes,
            false => return Ok(true),
        };
        let mut select = transaction.prepare_cached(&format!("SELECT {COLUMNS} FROM audit ORDER BY number LIMIT {TRIMMED_AT_ONCE}"))?;
        let mut is_unchanged = true;
        loop {
            let before = head.first;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let row = linked(row)?;
                let number = row.as_ref().map_or_else(|row| row.number.cast_unsigned(), |row| row.number);
                let at = row.as_ref().map_or_else(|row| row.at, |row| Some(row.entry.at));
                if number >= head.last || (head.bytes <= most && !is_old(at)) {
                    break;
                }
                is_unchanged &= row.as_ref().is_ok_and(|row| head.begins_with(self.key, row));
                match row {
                    Ok(row) => head.drop_first(row),
                    Err(row) => head.drop_unreadable(number, row.digest),
                }
            }
            drop(rows);
            if head.first == before {
                break;
            }
            transaction.execute("DELETE FROM audit WHERE number < ?1", [head.first])?;
        }
        if !is_unchanged {
            // The size of a changed row is not the size that was added for it.
            head.bytes = self.size()?;
        }
        Ok(is_unchanged)
    }

    fn head(&self) -> rusqlite::Result<HeadFound> {
        let mut statement = self.reader.transaction.prepare_cached(&format!("SELECT {HEAD_COLUMNS} FROM audit_head WHERE id = 1"))?;
        Ok(match statement.query_row([], stored::head).optional()? {
            None => HeadFound::Missing,
            Some(Some((head, mac))) if self.writers()?.is_some_and(|writers| head.mac(self.key, &writers) == mac) => HeadFound::Sound(head),
            Some(_) => HeadFound::Changed,
        })
    }

    /// Returns the list of gateways that write, or `None` if a part of it is unreadable.
    pub(super) fn writers(&self) -> rusqlite::Result<Option<Vec<WriterRow>>> {
        Ok(self.written_list()?.into_iter().collect())
    }

    /// Reads the list of gateways that write. An unreadable entry is `None`.
    fn written_list(&self) -> rusqlite::Result<Vec<Option<WriterRow>>> {
        let mut statement = self.reader.transaction.prepare_cached("SELECT id, told FROM audit_writers ORDER BY id")?;
        statement.query_map([], stored::writer)?.collect()
    }

    /// Returns the writers in the table for which `is_gone` is true, except the entry for the config's grants. Includes writers that were
    /// closed normally and are still in the table. Leaves out unreadable entries: the next append reports them.
    pub(super) fn gone_writers(&self, is_gone: impl Fn(&str) -> bool) -> Result<Vec<WriterRow>> {
        let writers = self.written_list().map_err(|error| self.reader.failed(&error))?;
        Ok(writers.into_iter().flatten().filter(|writer| writer.id != CONFIG_GRANTS && is_gone(&writer.id)).collect())
    }

    fn write_head(&self, head: &Head) -> rusqlite::Result<()> {
        let Head { first, anchor, last, digest, bytes } = head;
        let mut statement =
            self.reader.transaction.prepare_cached("INSERT OR REPLACE INTO audit_head VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)")?;
        // An unreadable list was removed when the head was repaired.
        let writers = self.writers()?.unwrap_or_default();
        statement.execute(params![first, anchor, last, digest, bytes, head.mac(self.key, &writers)]).map(drop)
    }

    /// Returns the last rows that match a query, oldest first. Leaves out unreadable rows, which [`Self::verify`] reports.
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
        let rows = statement.query_map(values, linked)?.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(rows.into_iter().rev().flatten().map(shown).collect())
    }

    /// Verifies all rows. `seen` is the last row that this process has seen. `anchored` and `seen` must be read before this call.
    pub(super) fn verify(&self, anchored: AnchoredAudit, seen: Option<AuditEnd>) -> Result<AuditReport> {
        let verified = || {
            let mut verification = Verification::new(self.key, self.head()?, anchored, seen);
            let mut statement = self.reader.transaction.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                match linked(row)? {
                    Ok(row) => verification.row(&row),
                    Err(row) => verification.unreadable(row),
                }
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
        Ok(row.and_then(|row| row.ok()?.entry.digest_of_grants()))
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
        let failed = |error| self.reader.failed(&error);
        let mut statement = self.reader.transaction.prepare_cached("SELECT told FROM audit_writers WHERE id = ?1").map_err(failed)?;
        // This program never writes a negative number.
        let told = statement.query_row([id], |row| row.get_ref(0).map(stored::number)).optional().map_err(failed)?;
        Ok(told.flatten())
    }
}

fn shown(row: Linked) -> AuditRow {
    let Linked { number, entry, digest } = row;
    let Entry { at, kind, agent, server, tool, body } = entry;
    let details: AuditDetails = serde_json::from_str(&body).unwrap_or_default();
    AuditRow { number, at, kind, agent, server, tool, details, digest: hex::encode(digest) }
}
