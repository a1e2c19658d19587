//! The log files of servers in the state folder. A log contains the server's standard error, its connections and its calls. The file's name
//! is derived from the server's source and name. Other processes read the log file to find out why a server failed. A separate thread
//! writes the file, so that no call waits for the disk. Entries that cannot be written are lost. Lines about calls are collected for a
//! short time and written together. All other lines are written immediately.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::events::Event;
use crate::boxes::border::Refusal;
use crate::config::server_of_key;
use crate::error::Error;
use crate::files;
use crate::redact::Redactor;

const FOLDER: &str = "logs";
/// The maximum size of a log file in bytes. A file of this size is renamed and replaces the older log file. So the logs of a server use at
/// most about twice this size.
const MAX_BYTES: u64 = 128 * 1024;
/// The maximum number of entries in the queue. Further entries are dropped.
const MAX_WAITING: usize = 1024;
/// The time for which lines about calls are collected.
const GATHERING: Duration = Duration::from_millis(100);
/// The approximate maximum size of the lines of a server that are written together.
const MAX_PIECE_BYTES: usize = 16 * 1024;
const MAX_TEXT_CHARS: usize = 2_000;
/// The maximum time that a writer waits while another writer renames a full file. Only a malicious server can hold the lock for longer.
const MOVING: Duration = Duration::from_secs(1);
/// The maximum time that closing a gateway waits until its last entries are written.
const FLUSHING: Duration = Duration::from_secs(1);

/// An entry of a server's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Milliseconds since 1970, UTC.
    pub at: u64,
    /// The id of the process of the gateway.
    pub pid: u32,
    /// The kind of the entry: `stderr`, `connected`, `failed`, `call`, or the type of an event.
    pub kind: String,
    /// The text of the entry: redacted, in one line.
    pub text: String,
    /// The error code, if something failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// The content of an entry before the writer thread converts it to text.
pub(super) enum Note {
    Stderr(String),
    Failed(Error),
    Event(Box<Event>),
}

impl Note {
    /// Returns whether writing this entry may wait, so that it is written together with later lines.
    fn can_wait(&self) -> bool {
        matches!(self, Self::Event(event) if matches!(**event, Event::Call { .. }))
    }
}

/// The server that an entry is about.
enum Subject {
    Key(String),
    /// The server that has this name when the entry is written. This avoids looking up the server during a call.
    Named(String),
}

enum Order {
    Write { server: Subject, at: u64, note: Note },
    Flush(Sender<()>),
}

/// Entries in the queue of the writer thread.
#[derive(Default)]
struct PendingEntries {
    orders: Vec<Order>,
    /// True if there is an entry that must be written immediately.
    is_urgent: bool,
    /// True while the writer thread waits for entries.
    is_idle: bool,
    /// True once the gateway is closed or dropped.
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<PendingEntries>,
    changed: Condvar,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, PendingEntries> {
        self.waiting.lock()
    }

    fn add(&self, order: Order) {
        let mut waiting = self.waiting();
        // The thread no longer writes. The order is dropped, so a caller that waits for a flush sees a closed channel.
        if waiting.is_closed {
            return;
        }
        let is_write = matches!(order, Order::Write { .. });
        // The queue is full because the disk is slow. The entry is dropped, because no caller may wait for the disk.
        if is_write && waiting.orders.len() >= MAX_WAITING {
            return;
        }
        let can_wait = matches!(&order, Order::Write { note, .. } if note.can_wait());
        waiting.orders.push(order);
        waiting.is_urgent |= !can_wait || waiting.orders.len() >= MAX_WAITING / 2;
        // A writer thread that is already collecting lines about calls is not woken for another such line.
        if waiting.is_urgent || waiting.is_idle {
            self.changed.notify_one();
        }
    }

    /// Returns the entries to write next. Returns `None` once the queue is closed and empty.
    fn next(&self) -> Option<Vec<Order>> {
        let mut waiting = self.waiting();
        waiting.is_idle = true;
        self.changed.wait_while(&mut waiting, |now| now.orders.is_empty() && !now.is_closed);
        waiting.is_idle = false;
        if waiting.orders.is_empty() {
            return None;
        }
        self.changed.wait_while_for(&mut waiting, |now| !now.is_urgent && !now.is_closed, GATHERING);
        waiting.is_urgent = false;
        Some(std::mem::take(&mut waiting.orders))
    }
}

/// The queue of the writer thread. The thread starts with the first entry, and ends when the gateway is closed or dropped.
struct Writer {
    queue: Arc<Queue>,
    begins: Once,
}

impl Writer {
    /// Tells the thread to write the remaining entries and end. The returned receiver gets a message when the entries are written.
    fn close(&self) -> Receiver<()> {
        let (done, written) = channel();
        let mut waiting = self.queue.waiting();
        if !waiting.is_closed && self.begins.is_completed() {
            waiting.orders.push(Order::Flush(done));
        }
        waiting.is_closed = true;
        self.queue.changed.notify_one();
        written
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A function that returns the key (`ServerDefinition::key`) of the server that has a name now. Returns `None` if there is no such server.
type KeyOf = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The log files of one gateway's servers. Clones are cheap.
#[derive(Clone)]
pub(super) struct ServerLogs {
    folder: Arc<PathBuf>,
    /// Finds the server of an event, which contains only the server's name. Not set while the gateway is being opened.
    key_of: Arc<OnceLock<KeyOf>>,
    redactor: Arc<Redactor>,
    writer: Arc<Writer>,
}

impl ServerLogs {
    pub(super) fn new(state_folder: &Path, redactor: Arc<Redactor>) -> Self {
        let writer = Writer { queue: Arc::default(), begins: Once::new() };
        Self { folder: Arc::new(state_folder.join(FOLDER)), key_of: Arc::default(), redactor, writer: Arc::new(writer) }
    }

    /// Sets the function that finds the key of a server by its name.
    pub(super) fn find_keys_by(&self, key_of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        let _ = self.key_of.set(Box::new(key_of));
    }

    /// Adds an entry to the log of the server with this key.
    pub(super) fn note(&self, key: &str, note: Note) {
        self.add(Subject::Key(key.to_owned()), note);
    }

    fn add(&self, server: Subject, note: Note) {
        self.begin();
        self.writer.queue.add(Order::Write { server, at: now(), note });
    }

    /// Adds an entry for an event, if the event is about a server.
    pub(super) fn event(&self, event: Event) {
        if let Some(server) = subject_of(&event).map(str::to_owned) {
            self.add(Subject::Named(server), Note::Event(Box::new(event)));
        }
    }

    /// Writes the remaining entries, for at most one second, and ends the thread. Later entries are dropped, so that nothing is written
    /// after the gateway is closed. The logs can still be read.
    pub(super) async fn close(&self) {
        let written = self.writer.close();
        let _ = tokio::task::spawn_blocking(move || written.recv_timeout(FLUSHING)).await;
    }

    fn flush_now(&self) {
        let (done, written) = channel();
        if self.writer.begins.is_completed() {
            self.writer.queue.add(Order::Flush(done));
            let _ = written.recv_timeout(FLUSHING);
        }
    }

    /// Returns the last lines of a server's log, oldest first. `key` is the server's key.
    pub(super) fn read(&self, key: &str, lines: usize) -> Vec<LogLine> {
        self.flush_now();
        let new = path_of(&self.folder, &file_of(key));
        let old = older(&new);
        let mut all: Vec<LogLine> = [old, new].iter().flat_map(|path| lines_of(path)).collect();
        all.drain(..all.len().saturating_sub(lines));
        all
    }

    fn begin(&self) {
        if self.writer.queue.waiting().is_closed {
            return;
        }
        self.writer.begins.call_once(|| {
            let (queue, folder, redactor) = (Arc::clone(&self.writer.queue), Arc::clone(&self.folder), Arc::clone(&self.redactor));
            let key_of = Arc::clone(&self.key_of);
            let thread = std::thread::Builder::new().name("hyperlight-mcp-logs".to_owned());
            if let Err(error) = thread.spawn(move || write_all(&queue, &folder, &redactor, &key_of)) {
                tracing::warn!(%error, "cannot start the thread that writes the logs of servers");
            }
        });
    }
}

/// Returns the server that an event is about, if the event has to be in the server's log.
fn subject_of(event: &Event) -> Option<&str> {
    match event {
        Event::ExecutableChanged { server, .. }
        | Event::ToolsChanged { server, .. }
        | Event::ServerProposed { server, .. }
        | Event::ServerLog { server, .. }
        | Event::ConnectionEvicted { server, .. }
        | Event::ConnectionIdle { server }
        | Event::ConnectionLost { server, .. }
        | Event::BoxRefused { server, .. }
        | Event::ElicitationCancelled { server, .. }
        | Event::Connected { server, .. }
        | Event::Call { server, .. } => Some(server),
        Event::Warning { .. }
        | Event::ConfigReloaded { .. }
        | Event::ApprovalsDamaged { .. }
        | Event::ApprovalProposed { .. }
        | Event::Progress { .. }
        | Event::NotGranted { .. }
        | Event::ServerUnavailable { .. }
        | Event::ResourceUpdated { .. } => None,
    }
}

/// Returns an event's kind, its text, and its error code.
fn words(event: &Event) -> (&'static str, String, Option<String>) {
    match event {
        Event::Connected { connect_ms, .. } => ("connected", format!("in {connect_ms:.0} ms"), None),
        Event::Call { tool, duration_ms, error, result_bytes, .. } => {
            let outcome = match (error, result_bytes) {
                (Some(code), _) => format!("failed with {code}"),
                (None, Some(bytes)) => format!("returned {bytes} bytes"),
                (None, None) => "was answered".to_owned(),
            };
            ("call", format!("{tool} {outcome} after {duration_ms:.0} ms"), error.map(str::to_owned))
        }
        Event::ConnectionLost { reason, .. } => ("connection-lost", reason.clone(), None),
        Event::BoxRefused { server: _, host, port, reason } => {
            let refusal = Refusal { host: host.clone(), port: *port, reason: *reason };
            ("box-refused", refusal.to_string(), None)
        }
        Event::ConnectionIdle { .. } => ("connection-idle", "it was not used for idleTimeoutMs".to_owned(), None),
        Event::ConnectionEvicted { made_room_for, .. } => ("connection-evicted", format!("it made room for {made_room_for}"), None),
        Event::ElicitationCancelled { reason, .. } => ("elicitation-cancelled", reason.clone(), None),
        Event::ExecutableChanged { path, .. } => ("executable-changed", format!("{path} is not the program that was approved"), None),
        Event::ServerProposed { agent, approved, .. } => {
            let agent = agent.as_deref().map_or_else(|| "the operator's own agent".to_owned(), |agent| format!("agent \"{agent}\""));
            let decided =
                if *approved { "approved without a person, as requireApproval is false" } else { "it waits for a person's approval" };
            ("server-proposed", format!("{agent} has added or changed it: {decided}"), None)
        }
        Event::ToolsChanged { drift, .. } => {
            let list =
                |what: &str, names: &[String]| if names.is_empty() { String::new() } else { format!("{what}: {}. ", names.join(", ")) };
            let text = [list("added", &drift.added), list("removed", &drift.removed), list("changed", &drift.changed)].concat();
            ("tools-changed", if text.is_empty() { "resources or prompts differ".to_owned() } else { text.trim_end().to_owned() }, None)
        }
        Event::ServerLog { level, data, .. } => {
            let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
            ("server-log", format!("{level}: {text}"), None)
        }
        Event::Warning { .. }
        | Event::ConfigReloaded { .. }
        | Event::ApprovalsDamaged { .. }
        | Event::ApprovalProposed { .. }
        | Event::Progress { .. }
        | Event::NotGranted { .. }
        | Event::ServerUnavailable { .. }
        | Event::ResourceUpdated { .. } => ("event", String::new(), None),
    }
}

fn line_of(at: u64, note: Note, redactor: &Redactor) -> Json {
    let (kind, text, error) = match note {
        Note::Stderr(text) => ("stderr", text, None),
        Note::Failed(error) => {
            let code = error.code().to_owned();
            ("failed", error.redacted(redactor).to_string(), Some(code))
        }
        Note::Event(event) => words(&event),
    };
    let text = redactor.readable_line(&text, MAX_TEXT_CHARS);
    json!(LogLine { at, pid: std::process::id(), kind: kind.to_owned(), text, error })
}

/// Writes all entries until the queue is closed. Creates the state folder only at the start; if it is deleted later, it is not created
/// again.
fn write_all(queue: &Queue, folder: &Path, redactor: &Redactor, key_of: &OnceLock<KeyOf>) {
    let _ = files::private_folder(folder);
    let mut lines: HashMap<String, String> = HashMap::new();
    while let Some(orders) = queue.next() {
        let mut flushed = Vec::new();
        for order in orders {
            match order {
                Order::Write { server, at, note } => {
                    let file = match server {
                        Subject::Key(key) => file_of(&key),
                        Subject::Named(name) => file_of(&key_of.get().and_then(|key_of| key_of(&name)).unwrap_or(name)),
                    };
                    let text = lines.entry(file.clone()).or_default();
                    let _ = writeln!(text, "{}", line_of(at, note, redactor));
                    if text.len() > MAX_PIECE_BYTES {
                        write_out(folder, &file, text);
                    }
                }
                Order::Flush(done) => flushed.push(done),
            }
        }
        for (file, mut text) in lines.drain() {
            write_out(folder, &file, &mut text);
        }
        for done in flushed {
            // The receiver may have stopped waiting.
            let _ = done.send(());
        }
    }
}

fn write_out(folder: &Path, file: &str, text: &mut String) {
    if text.is_empty() {
        return;
    }
    if let Err(error) = append(folder, file, text) {
        tracing::debug!(file, %error, "the server's log cannot be written");
    }
    text.clear();
}

/// Appends complete lines with a single write, so that lines of several processes do not mix.
fn append(folder: &Path, file: &str, lines: &str) -> std::io::Result<()> {
    folder.parent().filter(|parent| parent.is_dir()).ok_or(ErrorKind::NotFound)?;
    let path = path_of(&files::private_folder(folder)?.path, file);
    rotate(&path)?;
    files::append_own(&path)?.write_all(lines.as_bytes())
}

/// Renames a full log file to the older file. If several processes see that the file is full, only one of them renames it. The others
/// notice that the path refers to a new file.
fn rotate(path: &Path) -> std::io::Result<()> {
    let full = |path: &Path| fs::metadata(path).ok().filter(|file| file.len() > MAX_BYTES);
    if full(path).is_none() {
        return Ok(());
    }
    // Another process has just renamed the file, so there is nothing to do.
    let Ok(file) = files::open_own(path) else { return Ok(()) };
    match files::wait_for(&file, MOVING) {
        // The file is renamed even without the lock. In the worst case, two processes rename it and some older lines are lost. Waiting
        // longer would lose all new lines.
        Err(error) if error.kind() != ErrorKind::TimedOut => return Err(error),
        _ => {}
    }
    let ours = file.metadata()?;
    match full(path) {
        Some(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => fs::rename(path, older(path)),
        _ => Ok(()),
    }
}

/// Returns the name of a server's log file, without its extension. For a server of the operator's config, this is the server's name. For
/// all other servers, it is the name and a digest of the key, because servers of two sources may have the same name, and a key contains
/// characters that are not allowed in a file name.
fn file_of(key: &str) -> String {
    const MOST_CHARS: usize = 64;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '-';
    if key.chars().all(is_plain) && key.len() <= MOST_CHARS {
        return key.to_owned();
    }
    let name: String = server_of_key(key).chars().filter(|character| is_plain(*character)).take(MOST_CHARS).collect();
    let digest = hex::encode(Sha256::digest(key.as_bytes()));
    format!("{name}.{}", &digest[..16])
}

fn path_of(folder: &Path, file: &str) -> PathBuf {
    folder.join(format!("{file}.jsonl"))
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("old.jsonl")
}

/// Reads a log file. Skips lines in other formats. Reads only the end of an oversized file.
fn lines_of(path: &Path) -> Vec<LogLine> {
    let Ok(mut file) = files::open_own(path) else { return Vec::new() };
    let length = file.metadata().map_or(0, |file| file.len());
    let mut bytes = Vec::new();
    let from = SeekFrom::Start(length.saturating_sub(2 * MAX_BYTES));
    if file.seek(from).is_err() || file.take(2 * MAX_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    String::from_utf8_lossy(&bytes).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "server_logs_tests.rs"]
mod tests;
