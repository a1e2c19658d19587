//! The hash chain, as pure functions: the digest of a row, the first and last rows of the chain, and the problems of rows that were read.

use serde::Serialize;

use super::row::{AuditKind, Entry};
use super::stored::Unreadable;
use crate::store::anchor::{AnchoredAudit, AuditEnd};
use crate::store::{Canonical, MachineKey};

/// The digest that takes the place of the previous row's digest for the first row of a new audit.
pub(super) const START: [u8; 32] = [0; 32];
/// The maximum number of problems in a report.
const MAX_PROBLEMS: usize = 100;

/// A row with its position in the chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Linked {
    pub(super) number: u64,
    pub(super) entry: Entry,
    pub(super) digest: Vec<u8>,
}

/// A gateway that writes the audit, and the number of its events that are accounted for: they are written, or reported as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriterRow {
    pub(super) id: String,
    pub(super) told: i64,
}

/// The first and last kept rows, their digests, and the total size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of the first kept row, and the digest of the row before it.
    pub(super) first: u64,
    pub(super) anchor: Vec<u8>,
    /// The number of the last row, and the digest of the last row. The chain is empty if `last` is less than `first`.
    pub(super) last: u64,
    pub(super) digest: Vec<u8>,
    /// The total size of all rows in bytes.
    pub(super) bytes: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { first: 1, anchor: START.to_vec(), last: 0, digest: START.to_vec(), bytes: 0 }
    }
}

impl Head {
    /// Returns the MAC of the head. The MAC also covers the list of gateways that write, so that nobody can hide lost events of a gateway
    /// by a change of this list.
    pub(super) fn mac(&self, key: &MachineKey, writers: &[WriterRow]) -> Vec<u8> {
        let Self { first, anchor, last, digest, bytes } = self;
        let numbers = [first, last, bytes].map(u64::to_string);
        let form = Canonical::new("hyperlight-mcp audit head 2").list(numbers.iter().map(String::as_str)).bytes(anchor).bytes(digest);
        key.mac_of(&writers.iter().fold(form, |form, WriterRow { id, told }| form.text(id).text(&told.to_string())))
    }

    /// Returns the last row of the chain, or `None` if there never was a row.
    pub(super) fn end(&self) -> Option<AuditEnd> {
        (self.last > 0).then(|| AuditEnd { number: self.last, digest: hex::encode(&self.digest) })
    }

    /// Returns whether the chain continues from the row `known`. `there` is the digest of the row that now has the same number as `known`.
    fn continues(&self, known: &AuditEnd, there: Option<&str>) -> bool {
        match known.number {
            number if number > self.last => false,
            number if number >= self.first => there == Some(&known.digest),
            number if number + 1 == self.first => known.digest == hex::encode(&self.anchor),
            // The limits of the audit have removed this row and at least one row after it, so nothing can be compared.
            _ => true,
        }
    }

    /// Appends a row to the end of the chain.
    pub(super) fn append(&mut self, key: &MachineKey, entry: Entry) -> Linked {
        let number = self.last + 1;
        let digest = digest_of(key, &self.digest, number, &entry);
        self.last = number;
        self.bytes += entry.size();
        self.digest.clone_from(&digest);
        Linked { number, entry, digest }
    }

    /// Returns whether a row is the first row, as it was written. After damage, the digest before the first row may not be known, and only
    /// the number is compared.
    pub(super) fn begins_with(&self, key: &MachineKey, Linked { number, entry, digest }: &Linked) -> bool {
        *number == self.first && (self.anchor.is_empty() || digest_of(key, &self.anchor, *number, entry) == *digest)
    }

    /// Removes an unreadable first row from the head. The caller corrects the total size.
    pub(super) fn drop_unreadable(&mut self, number: u64, digest: Option<Vec<u8>>) {
        self.first = number + 1;
        self.anchor = digest.unwrap_or_default();
    }

    /// Removes the first row from the head. Keeps the digest of this row, so that the rows after it can still be verified.
    pub(super) fn drop_first(&mut self, row: Linked) {
        self.bytes = self.bytes.saturating_sub(row.entry.size());
        self.first = row.number + 1;
        self.anchor = row.digest;
    }
}

fn digest_of(key: &MachineKey, before: &[u8], number: u64, entry: &Entry) -> Vec<u8> {
    let Entry { at, kind, agent, server, tool, body } = entry;
    let form = Canonical::new("hyperlight-mcp audit row 1")
        .bytes(before)
        .text(&number.to_string())
        .text(&at.to_string())
        .text(kind.as_str())
        .optional(agent.as_deref())
        .optional(server.as_deref())
        .optional(tool.as_deref())
        .text(body);
    key.mac_of(&form)
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// True if no row was changed, removed, inserted or moved.
    pub whole: bool,
    /// The number of rows.
    pub rows: u64,
    /// The number of the first row. Older rows may have been removed because of `limits.maxAuditBytes` or `limits.maxAuditAgeMs`. Missing
    /// for an empty audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The number of the last row. Missing for an empty audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The digest of the last row. A person who keeps it elsewhere can check later whether this row is still there. Missing for an empty
    /// audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The number of rows that report a gap. A gap is not damage: events were lost, and the audit reports this itself.
    pub gaps: u64,
    /// The problems, one sentence each, at most 100.
    pub problems: Vec<String>,
}

/// The result of reading the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeadFound {
    /// There is no head.
    Missing,
    /// The MAC does not match the head.
    Changed,
    Sound(Head),
}

impl HeadFound {
    /// Returns the head to which the next row is appended. Returns `None` if another program has changed the head, or if the chain does not
    /// continue from `known`, the last row that this process has seen. `there` is the digest of the row that now has the same number as
    /// `known`.
    pub(super) fn usable(self, table_is_empty: bool, known: Option<&AuditEnd>, there: Option<&str>) -> Option<Head> {
        match self {
            Self::Sound(head) => known.is_none_or(|known| head.continues(known, there)).then_some(head),
            Self::Missing => (table_is_empty && known.is_none()).then(Head::default),
            Self::Changed => None,
        }
    }
}

/// Verifies rows one by one, in the order of their numbers.
pub(super) struct Verification<'a> {
    key: &'a MachineKey,
    head: HeadFound,
    anchored: AnchoredAudit,
    /// The last row that this process has seen.
    seen: Option<AuditEnd>,
    /// The expected number of the next row, and the digest of the row before it. If there is no head, `None` until the first row was read.
    next: Option<(u64, Vec<u8>)>,
    report: AuditReport,
}

impl<'a> Verification<'a> {
    /// Begins a verification. `anchored` and `seen` must be read before `head`. Otherwise they could include rows that were written after
    /// the head was read, and the audit would look like an older copy.
    pub(super) fn new(key: &'a MachineKey, head: HeadFound, anchored: AnchoredAudit, seen: Option<AuditEnd>) -> Self {
        let next = match &head {
            HeadFound::Sound(head) => Some((head.first, head.anchor.clone())),
            HeadFound::Missing | HeadFound::Changed => None,
        };
        Self { key, head, anchored, seen, next, report: AuditReport::default() }
    }

    pub(super) fn row(&mut self, row: &Linked) {
        let Linked { number, entry, digest } = row;
        self.report.rows += 1;
        self.report.first.get_or_insert(*number);
        self.report.last = Some(*number);
        self.report.head = Some(hex::encode(digest));
        match entry.kind {
            AuditKind::Gap => self.report.gaps += 1,
            AuditKind::Damage => {
                self.problem(format!("row {number} reports that another program has changed the audit before this row"));
            }
            _ => {}
        }
        for (end, noted) in self.known_ends() {
            if end.number == *number && end.digest != hex::encode(digest) {
                self.problem(format!("row {number} is not the row that was {noted}: the audit was continued from an older copy"));
            }
        }
        match self.next.take() {
            Some((next, before)) if next == *number && digest_of(self.key, &before, *number, entry) != *digest => {
                self.problem(format!("row {number} is not as it was written, or is not in its place"));
            }
            Some((next, _)) if next == *number => {}
            Some((next, _)) if next < *number => self.problem(missing(next, number - 1)),
            Some(_) => self.problem(format!("row {number} is before the first row")),
            // Without a head, the digest before the first row is not known.
            None => {}
        }
        self.next = Some((number + 1, digest.clone()));
    }

    /// Notes a row with a value that this program never writes.
    pub(super) fn unreadable(&mut self, Unreadable { number, at: _, digest }: Unreadable) {
        self.report.rows += 1;
        self.problem(format!("row {number} cannot be read, because another program has changed or added it"));
        // A row without a valid number has no place in the chain.
        let Some(number) = u64::try_from(number).ok().filter(|number| *number > 0) else { return };
        self.report.first.get_or_insert(number);
        self.report.last = Some(number);
        self.report.head = digest.as_ref().map(hex::encode);
        if let Some((next, _)) = self.next.take().filter(|(next, _)| *next < number) {
            self.problem(missing(next, number - 1));
        }
        self.next = Some((number + 1, digest.unwrap_or_default()));
    }

    /// Returns the ends of the audit that are known from elsewhere, each with a word that names its source.
    fn known_ends(&self) -> Vec<(AuditEnd, &'static str)> {
        let anchored = match &self.anchored {
            AnchoredAudit::At(end) => Some(end.clone()),
            AnchoredAudit::Nothing | AnchoredAudit::Lost => None,
        };
        let seen = self.seen.clone().filter(|seen| Some(seen) != anchored.as_ref());
        anchored.map(|end| (end, "anchored")).into_iter().chain(seen.map(|end| (end, "seen by this process"))).collect()
    }

    /// Compares the end of the audit with the ends that are known from elsewhere.
    fn compare_with_known_ends(&mut self) {
        let last = match &self.head {
            HeadFound::Sound(head) => head.last.max(self.report.last.unwrap_or_default()),
            HeadFound::Missing | HeadFound::Changed => self.report.last.unwrap_or_default(),
        };
        if self.anchored == AnchoredAudit::Lost && last > 0 {
            self.problem("store.anchor is missing or was changed, so an older copy of the audit could not be detected".to_owned());
        }
        for (AuditEnd { number, digest }, noted) in self.known_ends() {
            if last < number {
                let ends = if last == 0 { "is empty".to_owned() } else { format!("ends with row {last}") };
                self.problem(format!("the audit {ends}, but row {number} was written once: the file is an older copy, or its end was cut"));
            }
            // The limits of the audit have removed the row itself. Its digest must be equal to the digest that the head has for the row
            // before the first one.
            let first = match &self.head {
                HeadFound::Sound(head) if number + 1 == head.first && digest != hex::encode(&head.anchor) => head.first,
                _ => continue,
            };
            self.problem(format!("the row before row {first} is not the row that was {noted}: the audit was continued from an older copy"));
        }
    }

    pub(super) fn end(mut self) -> AuditReport {
        self.compare_with_known_ends();
        match std::mem::replace(&mut self.head, HeadFound::Missing) {
            HeadFound::Missing if self.report.rows == 0 => {}
            HeadFound::Missing => self.problem("the head of the chain is missing, so that rows may be missing at both ends".to_owned()),
            HeadFound::Changed => {
                self.problem("the head of the chain or the list of gateways that write the audit was changed, or comes from another machine, so that rows may be missing".to_owned());
            }
            HeadFound::Sound(head) => {
                let (next, digest) = self.next.take().unwrap_or((head.first, head.anchor.clone()));
                if next <= head.last {
                    self.problem(missing(next, head.last));
                } else if next > head.last + 1 {
                    self.problem(format!(
                        "the rows after row {} were added by another program, or the head of the chain is from an older copy",
                        head.last
                    ));
                } else if digest != head.digest {
                    self.problem(format!("the last row, {}, is not the one that was written", head.last));
                }
            }
        }
        self.report.whole = self.report.problems.is_empty();
        self.report
    }

    fn problem(&mut self, problem: String) {
        if self.report.problems.len() < MAX_PROBLEMS {
            self.report.problems.push(problem);
        }
    }
}

fn missing(from: u64, to: u64) -> String {
    if from == to { format!("row {from} is missing") } else { format!("rows {from} to {to} are missing") }
}

#[cfg(test)]
mod tests;
