//! Reads the rows of the audit's tables. Another program may have written values of any type into them. Such a value makes a row unreadable,
//! and is never an error of the database: an error would switch off the audit.

use rusqlite::Row;
use rusqlite::types::{FromSqlResult, ValueRef};

use super::chain::{Head, Linked, WriterRow};
use super::row::{AuditKind, Entry};

/// The columns that [`linked`] reads.
pub(super) const COLUMNS: &str = "number, at, kind, agent, server, tool, body, digest";
/// The columns that [`head`] reads.
pub(super) const HEAD_COLUMNS: &str = "first, anchor, last, digest, bytes, mac";

/// A row with a value that this program never writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) number: i64,
    /// The time and the digest, if these values are readable.
    pub(super) at: Option<u64>,
    pub(super) digest: Option<Vec<u8>>,
}

/// Reads a row of the chain.
pub(super) fn linked(row: &Row<'_>) -> rusqlite::Result<Result<Linked, Unreadable>> {
    let unreadable = Unreadable { number: row.get(0)?, at: number(row.get_ref(1)?), digest: bytes(row.get_ref(7)?) };
    let [kind, agent, server, tool, body] = [row.get_ref(2)?, row.get_ref(3)?, row.get_ref(4)?, row.get_ref(5)?, row.get_ref(6)?];
    let read = || {
        let entry = Entry {
            at: unreadable.at?,
            // A word that this version does not know was written by another program. In this case, the digest does not match either.
            kind: AuditKind::named(&text(kind)?).unwrap_or(AuditKind::Damage),
            agent: optional_text(agent).ok()?,
            server: optional_text(server).ok()?,
            tool: optional_text(tool).ok()?,
            body: text(body)?,
        };
        let number = u64::try_from(unreadable.number).ok().filter(|number| *number > 0)?;
        Some(Linked { number, entry, digest: unreadable.digest.clone()? })
    };
    Ok(read().ok_or(unreadable))
}

/// Reads the head and its MAC. Returns `None` if one of the values is unreadable.
pub(super) fn head(row: &Row<'_>) -> rusqlite::Result<Option<(Head, Vec<u8>)>> {
    let [first, anchor, last, digest, size, mac] =
        [row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?, row.get_ref(4)?, row.get_ref(5)?];
    let read = || {
        let (anchor, digest) = (bytes(anchor)?, bytes(digest)?);
        Some((Head { first: number(first)?, anchor, last: number(last)?, digest, bytes: number(size)? }, bytes(mac)?))
    };
    Ok(read())
}

/// Reads an id and a number from the list of gateways that write. Returns `None` if one of the values is unreadable.
pub(super) fn writer(row: &Row<'_>) -> rusqlite::Result<Option<WriterRow>> {
    let (id, told) = (text(row.get_ref(0)?), row.get_ref(1)?);
    Ok(id.zip(told.as_i64().ok()).map(|(id, told)| WriterRow { id, told }))
}

/// Reads a number that is not negative.
pub(super) fn number(value: ValueRef<'_>) -> Option<u64> {
    u64::try_from(value.as_i64().ok()?).ok()
}

/// Reads bytes.
pub(super) fn bytes(value: ValueRef<'_>) -> Option<Vec<u8>> {
    value.as_blob().ok().map(<[u8]>::to_vec)
}

fn text(value: ValueRef<'_>) -> Option<String> {
    value.as_str().ok().map(str::to_owned)
}

/// Reads a text that may be missing. The error means that the value is unreadable.
fn optional_text(value: ValueRef<'_>) -> FromSqlResult<Option<String>> {
    Ok(value.as_str_or_null()?.map(str::to_owned))
}
