//! The thread that writes the audit of one open gateway. It converts events to rows and commits them in batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::presence::{Counted, Presence};
use super::queue::{Batch, Moment, Noted, Queue};
use super::row::{AuditAction, Entry, Recorder};
use super::table::{ALL_TOLD, Bounds, Table, WriterNote};
use super::{AuditEvent, AuditOptions, ConfigGrants, Seen, now};
use crate::error::Result;
use crate::store::Store;
use crate::store::anchor::{AnchoredAudit, AuditEnd};
use crate::store::database::{Database, Reader};

/// The maximum number of rows that wait while the store cannot be written. Further rows are lost, and a later row reports how many.
const MAX_UNWRITTEN: usize = 8192;

/// The interval at which the end of the audit is written into the anchor. This waits for the disk, so it is not done for each batch.
const ANCHORING: Duration = Duration::from_secs(5);

/// The maximum time for the conversion of events that are committed together. A single event may take longer.
const LONGEST_PART: Duration = Duration::from_millis(50);

/// The maximum time for the conversion of one batch with the arguments of calls. After this time, the rest of the batch is recorded without
/// arguments.
const LONGEST_WITH_CONTENT: Duration = Duration::from_millis(500);

pub(super) struct Writer {
    store: Arc<Store>,
    queue: Arc<Queue>,
    presence: Option<Arc<Presence>>,
    options: AuditOptions,
    /// The connection, which is opened with the first batch.
    database: Option<Database>,
    /// Rows that could not be written yet.
    unwritten: Vec<Entry>,
    lost: u64,
    /// The last row that this gateway has seen.
    seen: Arc<Seen>,
    /// The time when the first row was written that the anchor does not cover yet.
    unanchored_since: Option<Instant>,
    /// True if the last write to the store failed and the listener was called.
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(
        store: Arc<Store>,
        queue: Arc<Queue>,
        presence: Option<Arc<Presence>>,
        seen: Arc<Seen>,
        options: AuditOptions,
    ) -> Self {
        Self {
            store,
            queue,
            presence,
            options,
            database: None,
            unwritten: Vec::new(),
            lost: 0,
            seen,
            unanchored_since: None,
            is_failing: false,
        }
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        // If the audit ends before the row in the anchor, the audit was replaced by an older copy, and the first new row reports this.
        self.seen.note(anchored_end(&self.store));
        // Gaps of other processes are reported first, because they happened before.
        self.committed(Writer::tell_left_behind);
        self.committed(Writer::tell_config_grants);
        let mut written = Vec::new();
        loop {
            let patience = self.unanchored_since.map(|since| ANCHORING.saturating_sub(since.elapsed()));
            let Batch { events, dropped, told, flushed, is_last } = self.queue.next(written, patience);
            let is_written = self.write_in_parts(&events, dropped, told);
            for done in flushed {
                // The receiver may no longer be waiting.
                let _ = done.send(());
            }
            if is_last {
                // Updates the anchor even if nothing new was written. This update is also the last check whether another program has
                // changed the audit.
                self.unanchored_since.get_or_insert_with(Instant::now);
            }
            if is_last || self.unanchored_since.is_some_and(|since| since.elapsed() >= ANCHORING) {
                self.anchor();
            }
            if is_last {
                if is_written {
                    self.end();
                } else if let Some(presence) = &self.presence {
                    presence.leave_behind();
                }
                return;
            }
            written = events;
        }
    }

    /// Removes the presence of this gateway. Before that, notes in the list of writers that no event is missing. Otherwise a writer that is
    /// in the list but has no presence file would be reported as a gap.
    fn end(&mut self) {
        let Some(presence) = self.presence.clone() else { return };
        if self.committed(|writer| writer.append(&[], &[WriterNote::Written(&presence.id, ALL_TOLD)])) {
            presence.end();
            self.committed(|writer| writer.append(&[], &[WriterNote::Forgotten(&presence.id)]));
        }
    }

    /// Writes rows, and changes the list of gateways that write, in one transaction.
    fn append(&mut self, entries: &[Entry], notes: &[WriterNote<'_>]) -> Result<()> {
        let (seen, bounds, store) = (self.seen.last(), self.options.bounds(), Arc::clone(&self.store));
        let append = |reader: &Reader<'_>| Table { reader, key: store.key() }.append(entries, notes, seen.as_ref(), now(), bounds);
        let last = self.database()?.transaction(append)?;
        self.note_last(last);
        Ok(())
    }

    /// Records the grants of the config, unless the audit's last record of the config's grants is equal.
    fn tell_config_grants(&mut self) -> Result<()> {
        let grants = ConfigGrants { listing: std::mem::take(&mut self.options.config_grants), changes: None };
        let has_none = grants.listing.is_empty();
        let entries = self.recorder(false).entries(now(), &AuditEvent::ConfigGrants(grants));
        let digest = entries.first().and_then(Entry::digest_of_grants);
        let (seen, bounds, store) = (self.seen.last(), self.options.bounds(), Arc::clone(&self.store));
        let last = self.database()?.transaction(|reader| {
            let table = Table { reader, key: store.key() };
            let before = table.config_grants()?;
            // Without an earlier row, an empty list of grants is not a change.
            if before == digest || (before.is_none() && has_none) {
                return Ok(None);
            }
            table.append(&entries, &[], seen.as_ref(), now(), bounds)
        })?;
        self.note_last(last);
        Ok(())
    }

    /// Returns the converter of events to rows. `content` is true if arguments of calls are kept.
    fn recorder(&self, content: bool) -> Recorder<'_> {
        Recorder { key: self.store.key(), redactor: &self.options.redactor, content, pid: std::process::id() }
    }

    /// Writes the end of the audit into the anchor, so that an older copy of the store is detected. Before that, the rows are flushed to
    /// the disk. Otherwise a power failure would look like an older copy. If the end cannot be written, this is tried again later.
    fn anchor(&mut self) {
        if self.unanchored_since.take().is_none() {
            return;
        }
        let (store, seen, bounds) = (Arc::clone(&self.store), Arc::clone(&self.seen), self.options.bounds());
        let anchored = self.database().and_then(|database| {
            let known = seen.last();
            // Writes the head once more: a transaction waits for the disk only if it changes something.
            let rewrite = |reader: &Reader<'_>| Table { reader, key: store.key() }.append(&[], &[], known.as_ref(), now(), bounds);
            let Some(end) = database.durable_transaction(rewrite)? else { return Ok(()) };
            seen.note(Some(end.clone()));
            database.transaction(|reader| store.anchor_audit(end, reader))
        });
        if let Err(error) = anchored {
            tracing::debug!(%error, "the end of the audit was not written to the anchor");
            self.unanchored_since = Some(Instant::now());
        }
    }

    /// Writes events in several transactions if their conversion takes a long time. So if the process ends in the meantime, not all of them
    /// are lost. `told` is the number of all events so far. Returns whether all of them are written.
    fn write_in_parts(&mut self, mut events: &[Noted], dropped: u64, told: u64) -> bool {
        self.lost += dropped;
        let mut spent = Duration::ZERO;
        loop {
            let begun = Instant::now();
            // Arguments can be made in such a way that the search for secrets in them takes a long time. Such arguments must not keep later
            // events out of the audit.
            let taken = self.take(events, self.options.content && spent < LONGEST_WITH_CONTENT);
            spent += begun.elapsed();
            events = &events[taken..];
            let is_written = self.committed(|writer| writer.write(told - events.len() as u64));
            if events.is_empty() {
                return is_written;
            }
        }
    }

    /// Converts events to rows until `LONGEST_PART` has passed. Returns the number of converted events. If there is no room for a row,
    /// counts the event as lost. `content` is true if the arguments of calls are kept.
    fn take(&mut self, events: &[Noted], content: bool) -> usize {
        let (begun, now) = (Instant::now(), Moment::now());
        let mut taken = 0;
        for Noted { at, event } in events {
            if self.unwritten.len() < MAX_UNWRITTEN {
                let entries = self.recorder(content).entries(now.wall_time_of(*at), event);
                self.unwritten.extend(entries);
            } else {
                self.lost += 1;
            }
            taken += 1;
            if begun.elapsed() > LONGEST_PART {
                break;
            }
        }
        taken
    }

    /// Commits the waiting rows in one transaction.
    fn write(&mut self, told: u64) -> Result<()> {
        if self.unwritten.is_empty() && self.lost == 0 {
            return Ok(());
        }
        let now = now();
        let gap = (self.lost > 0).then(|| Entry::gap(now, AuditAction::QueueFull, std::process::id(), Some(self.lost)));
        let entries = [std::mem::take(&mut self.unwritten), gap.into_iter().collect()].concat();
        let presence = self.presence.clone();
        let notes: Vec<_> = presence.iter().map(|presence| WriterNote::Written(&presence.id, told)).collect();
        match self.append(&entries, &notes) {
            Ok(()) => {
                self.lost = 0;
                Ok(())
            }
            Err(error) => {
                let own = entries.len() - usize::from(self.lost > 0);
                self.unwritten = entries.into_iter().take(own).collect();
                Err(error)
            }
        }
    }

    fn tell_left_behind(&mut self) -> Result<()> {
        let (store, bounds, seen) = (Arc::clone(&self.store), self.options.bounds(), self.seen.last());
        let last = tell_left_behind(self.database()?, &store, seen, bounds)?;
        self.note_last(last);
        Ok(())
    }

    /// Records the last row as seen, if one was just written.
    fn note_last(&mut self, last: Option<AuditEnd>) {
        if last.is_some() {
            self.seen.note(last);
            self.unanchored_since.get_or_insert_with(Instant::now);
        }
    }

    fn database(&mut self) -> Result<&mut Database> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.store.audit_database()?,
        };
        Ok(self.database.insert(database))
    }

    /// Runs `work`, which writes to the store. Of several consecutive failures, reports only the first. Returns whether `work` succeeded.
    fn committed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> bool {
        match work(self) {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                tracing::debug!(%error, "the audit cannot be written");
                if !std::mem::replace(&mut self.is_failing, true) {
                    (self.options.on_problem)(error);
                }
            }
        }
        !self.is_failing
    }
}

/// Returns the last row of the audit according to the anchor.
pub(super) fn anchored_end(store: &Store) -> Option<AuditEnd> {
    match store.anchored_audit() {
        Ok(AnchoredAudit::At(end)) => Some(end),
        Ok(AnchoredAudit::Nothing | AnchoredAudit::Lost) | Err(_) => None,
    }
}

/// Writes a gap row for each gateway whose process has ended before all events of the gateway were written. `seen` is the last row that
/// this process has seen. Returns the last row, if one was written.
pub(super) fn tell_left_behind(
    database: &mut Database,
    store: &Store,
    mut seen: Option<AuditEnd>,
    bounds: Bounds,
) -> Result<Option<AuditEnd>> {
    let mut last = None;
    for left in Presence::left(store.folder()) {
        let told = database.transaction(|reader| {
            let table = Table { reader, key: store.key() };
            let gap = if table.is_sound(seen.as_ref())? {
                gap_of(left.counted, table.written_by(&left.id)?)
            } else {
                // The list of writers was changed by another program, so the number of written events is not reliable. The row contains no
                // number of lost events.
                Some(Entry::gap(now(), AuditAction::ProcessEnded, left.counted.map_or(0, |counted| counted.pid), None))
            };
            // Marks the gap as reported in the same transaction. So the gap is reported only once, even if this process ends before it has
            // removed the presence file.
            table.append(gap.as_slice(), &[WriterNote::Written(&left.id, ALL_TOLD)], seen.as_ref(), now(), bounds)
        })?;
        (seen, last) = (told.clone().or(seen), told.or(last));
        left.remove();
        let forget = [WriterNote::Forgotten(left.id.as_str())];
        database.transaction(|reader| Table { reader, key: store.key() }.append(&[], &forget, seen.as_ref(), now(), bounds))?;
    }
    Ok(tell_without_sign(database, store, seen.as_ref(), bounds)?.or(last))
}

/// Writes a gap row for each listed gateway whose presence file another program has removed. Without this file, nobody can detect when the
/// gateway's process ends.
fn tell_without_sign(database: &mut Database, store: &Store, seen: Option<&AuditEnd>, bounds: Bounds) -> Result<Option<AuditEnd>> {
    let gone = |reader: &Reader<'_>| Table { reader, key: store.key() }.gone_writers(|id| !Presence::is_there(store.folder(), id));
    // Checks in a read transaction first. Otherwise each reader would wait for the processes that write.
    if database.reading(gone)?.is_empty() {
        return Ok(None);
    }
    database.transaction(|reader| {
        let gone = gone(reader)?;
        // A gateway that has ended normally may already have removed its presence file.
        let untold = gone.iter().filter(|writer| writer.told.cast_unsigned() != ALL_TOLD);
        let gaps: Vec<_> = untold.map(|_| Entry::gap(now(), AuditAction::ProcessEnded, 0, None)).collect();
        let notes: Vec<_> = gone.iter().map(|writer| WriterNote::Forgotten(&writer.id)).collect();
        Table { reader, key: store.key() }.append(&gaps, &notes, seen, now(), bounds)
    })
}

/// Returns the row for the events that a process has not written. `written` is the number of events of this process that are written or
/// reported as lost.
fn gap_of(counted: Option<Counted>, written: Option<u64>) -> Option<Entry> {
    let (pid, lost) = match (counted, written) {
        (_, Some(ALL_TOLD)) | (None, None) => return None,
        (Some(Counted { told, pid }), written) => (pid, Some(told.saturating_sub(written.unwrap_or_default()))),
        // The number of recorded events is not known, because the machine was restarted or has no shared memory.
        (None, Some(_)) => (0, None),
    };
    (lost != Some(0)).then(|| Entry::gap(now(), AuditAction::ProcessEnded, pid, lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;
    use crate::store::audit::{Audit, AuditQuery};

    #[test]
    fn arguments_whose_secrets_take_long_to_find_keep_no_call_out_of_the_audit() {
        const CALLS: usize = 400;
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path(), Arc::new(|_| ())).unwrap());
        let options = AuditOptions {
            max_bytes: 1 << 30,
            max_age: Duration::from_hours(1),
            content: true,
            config_grants: Vec::new(),
            redactor: Arc::new(Redactor::new(None, None)),
            on_problem: Arc::new(|error| panic!("{error}")),
        };
        let mut writer = Writer::new(Arc::clone(&store), Arc::default(), None, Arc::default(), options.clone());
        let arguments = serde_json::Map::from_iter([("text".to_owned(), "a=b;c=d&".repeat(7_900).into())]);
        let events: Vec<_> =
            (0..CALLS).map(|_| Noted { at: Instant::now(), event: super::super::tests::call(arguments.clone().into()) }).collect();
        assert!(writer.write_in_parts(&events, 0, CALLS as u64));
        let rows = Audit::open(&store, options).rows(&AuditQuery::default()).unwrap();
        let kept = rows.iter().filter(|row| row.details.arguments.is_some()).count();
        assert!(rows.len() == CALLS && (1..CALLS).contains(&kept), "{} rows, {kept} with arguments", rows.len());
        assert!(rows.iter().all(|row| row.details.arguments_digest.is_some()));
    }

    #[test]
    fn a_gap_is_as_large_as_what_was_told_and_not_written() {
        let lost = |told: Option<u64>, written| {
            let gap = gap_of(told.map(|told| Counted { told, pid: 7 }), written)?;
            Some(serde_json::from_str::<serde_json::Value>(&gap.body).unwrap()["lost"].as_u64())
        };
        assert_eq!(lost(Some(5), Some(3)), Some(Some(2)));
        assert_eq!(lost(Some(5), None), Some(Some(5)));
        assert_eq!(lost(None, Some(3)), Some(None));
        for nothing in [(Some(5), Some(5)), (Some(0), None), (None, None), (Some(9), Some(ALL_TOLD)), (None, Some(ALL_TOLD))] {
            assert_eq!(lost(nothing.0, nothing.1), None, "{nothing:?}");
        }
    }
}
