//! The audit's tables: rows in their places, the head, and the gateways that write.

use rusqlite::{OptionalExtension as _, Row, params};

use super::chain::{Head, HeadFound, Linked, START, Verification};
use super::row::{AuditDetails, AuditKind, AuditRow, Entry};
use super::{AuditQuery, AuditReport};
use crate::error::Result;
use crate::store::MachineKey;
use crate::store::anchor::{AnchoredAudit, AuditEnd};
use crate::store::database::Reader;

const COLUMNS: &str = "number, at, kind, agent, server, tool, body, digest";
/// The name under which the number of the row is noted that has the digest of the last config's grants. No gateway has this id.
const CONFIG_GRANTS: &str = "config grants";
/// Rows that one statement removes at the beginning of the chain.
const TRIMMED_AT_ONCE: u64 = 1000;

/// Bounds of the audit.
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
    /// Adds rows to the end of the chain, and removes the oldest ones. `known` is the last row that this process has seen. Returns the last row.
    pub(super) fn append(&self, entries: &[Entry], known: u64, now: u64, bounds: Bounds) -> Result<u64> {
        self.appended(entries, known, now, bounds).map_err(|error| self.reader.failed(&error))
    }

    fn appended(&self, entries: &[Entry], known: u64, now: u64, bounds: Bounds) -> rusqlite::Result<u64> {
        let transaction = &self.reader.transaction;
        let ends: (Option<u64>, Option<u64>) = transaction
            .prepare_cached("SELECT min(number), max(number) FROM audit")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let last = ends.1.unwrap_or_default();
        let usable = self.head()?.usable(ends.1.is_none(), known).filter(|head| head.last >= last);
        let mut damage = None;
        let mut head = if let Some(head) = usable {
            head
        } else {
            damage = Some(Entry::damage(now, std::process::id()));
            self.repaired_head(ends.0.unwrap_or(1), last.max(known))?
        };
        let mut insert = transaction.prepare_cached("INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
        for entry in damage.iter().chain(entries) {
            let Linked { number, entry, digest } = head.append(self.key, entry.clone());
            let Entry { at, kind, agent, server, tool, body } = entry;
            insert.execute(params![number, at, kind.as_str(), agent, server, tool, body, digest])?;
        }
        self.trim(&mut head, now, bounds)?;
        self.write_head(&head)?;
        if let Some(after) = entries.iter().rev().position(|entry| entry.digest_of_grants().is_some()) {
            self.note(CONFIG_GRANTS, head.last - after as u64)?;
        }
        Ok(head.last)
    }

    /// Returns a head for rows whose head was lost. The rows before are not verifiable as whole any more.
    fn repaired_head(&self, first: u64, last: u64) -> rusqlite::Result<Head> {
        let transaction = &self.reader.transaction;
        let digest = transaction.query_row("SELECT digest FROM audit ORDER BY number DESC LIMIT 1", [], |row| row.get(0)).optional()?;
        let bytes = transaction.query_row("SELECT coalesce(sum(length(body) + 120), 0) FROM audit", [], |row| row.get(0))?;
        // Where older rows were removed, nothing says what was before the first one.
        let anchor = if first == 1 { START.to_vec() } else { Vec::new() };
        Ok(Head { first, anchor, last, digest: digest.unwrap_or_else(|| START.to_vec()), bytes })
    }

    /// Removes the oldest rows until the rest is within the bounds. The last row always stays.
    fn trim(&self, head: &mut Head, now: u64, bounds: Bounds) -> rusqlite::Result<()> {
        let transaction = &self.reader.transaction;
        let oldest = now.saturating_sub(bounds.max_age_ms);
        let first_at: u64 = transaction.prepare_cached("SELECT at FROM audit ORDER BY number LIMIT 1")?.query_row([], |row| row.get(0))?;
        // A tenth more than necessary is removed, so that not every batch has to.
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
            let mac: Vec<u8> = row.get(5)?;
            Ok(if head.mac(self.key) == mac { HeadFound::Sound(head) } else { HeadFound::Changed })
        };
        Ok(statement.query_row([], read).optional()?.unwrap_or(HeadFound::Missing))
    }

    /// Writes the head once more, so that the transaction waits for the disk, and returns the end of the chain. `None` if there is no sound head.
    pub(super) fn rewritten_end(&self) -> Result<Option<AuditEnd>> {
        let rewritten = || {
            let HeadFound::Sound(head) = self.head()? else { return Ok(None) };
            self.write_head(&head)?;
            Ok((head.last > 0).then(|| AuditEnd { number: head.last, digest: hex::encode(&head.digest) }))
        };
        rewritten().map_err(|error| self.reader.failed(&error))
    }

    fn write_head(&self, head: &Head) -> rusqlite::Result<()> {
        let Head { first, anchor, last, digest, bytes } = head;
        let mut statement =
            self.reader.transaction.prepare_cached("INSERT OR REPLACE INTO audit_head VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)")?;
        statement.execute(params![first, anchor, last, digest, bytes, head.mac(self.key)]).map(drop)
    }

    /// Returns the last rows that fit a query, the oldest first.
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

    /// Verifies all rows. `anchored` was read before.
    pub(super) fn verify(&self, anchored: AnchoredAudit) -> Result<AuditReport> {
        let verified = || {
            let mut verification = Verification::new(self.key, self.head()?, anchored);
            let mut statement = self.reader.transaction.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                verification.row(&linked(row)?);
            }
            Ok(verification.end())
        };
        verified().map_err(|error| self.reader.failed(&error))
    }

    /// Returns the digest of the last config's grants that were recorded. `None` if none were, or the row is there no longer.
    pub(super) fn config_grants(&self) -> Result<Option<String>> {
        let Some(number) = self.written_by(CONFIG_GRANTS)? else { return Ok(None) };
        let select = format!("SELECT {COLUMNS} FROM audit WHERE number = ?1");
        let row = self.reader.transaction.query_row(&select, [number], linked).optional();
        let row = row.map_err(|error| self.reader.failed(&error))?;
        Ok(row.and_then(|row| row.entry.digest_of_grants()))
    }

    /// Notes the number of events of a gateway that are written, or told as lost.
    pub(super) fn note_writer(&self, id: &str, told: u64) -> Result<()> {
        self.note(id, told).map_err(|error| self.reader.failed(&error))
    }

    fn note(&self, id: &str, number: u64) -> rusqlite::Result<()> {
        let mut statement = self.reader.transaction.prepare_cached("INSERT OR REPLACE INTO audit_writers VALUES (?1, ?2)")?;
        statement.execute(params![id, number]).map(drop)
    }

    /// Returns the number of events of a gateway that are written, or told as lost.
    pub(super) fn written_by(&self, id: &str) -> Result<Option<u64>> {
        let found = self.reader.transaction.query_row("SELECT told FROM audit_writers WHERE id = ?1", [id], |row| row.get(0));
        found.optional().map_err(|error| self.reader.failed(&error))
    }

    /// Forgets a gateway that has ended.
    pub(super) fn forget_writer(&self, id: &str) -> Result<()> {
        let forgotten = self.reader.transaction.execute("DELETE FROM audit_writers WHERE id = ?1", [id]);
        forgotten.map(drop).map_err(|error| self.reader.failed(&error))
    }
}

fn linked(row: &Row<'_>) -> rusqlite::Result<Linked> {
    let kind: String = row.get(2)?;
    let entry = Entry {
        at: row.get(1)?,
        // A word that this version does not know can only be another program's, and its digest does not fit.
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
