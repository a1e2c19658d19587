//! What happened with each server, kept in a file of its own in the state folder: its standard error, its connections, its calls. Another
//! process reads there why a server failed. Written on a thread of its own: no call waits for a disk, and what cannot be written is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::events::Event;
use crate::error::Error;
use crate::trust::{Redactor, sanitise_line};

const FOLDER: &str = "logs";
/// A file that is larger becomes the older one of two: a server has at most twice this.
const MAX_BYTES: u64 = 128 * 1024;
/// What waits to be written; more is lost rather than waited for.
const MAX_WAITING: usize = 1024;
const MAX_TEXT_CHARS: usize = 2_000;
/// How long the end of a gateway waits for its last words to be written.
const FLUSHING: Duration = Duration::from_secs(1);

/// Something that happened with a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Milliseconds since 1970, UTC.
    pub at: u64,
    /// Of the process that had the gateway.
    pub pid: u32,
    /// `stderr`, `connected`, `failed`, `call`, or the type of an event.
    pub kind: String,
    /// In words, redacted and on one line.
    pub text: String,
    /// The code of what went wrong, if something did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// What is noted; it becomes words on the writer's thread.
pub(super) enum Note {
    Stderr(String),
    Failed(Error),
    Event(Box<Event>),
}

enum Order {
    Write { server: String, at: u64, note: Note },
    Flush(Sender<()>),
}

/// The journal of one gateway. Cheap to clone.
#[derive(Clone)]
pub(super) struct Journal {
    folder: Arc<PathBuf>,
    redactor: Arc<Redactor>,
    /// The writer's thread begins with the first note, and ends with the gateway.
    writer: Arc<Mutex<Option<SyncSender<Order>>>>,
}

impl Journal {
    pub(super) fn new(state_folder: &Path, redactor: Arc<Redactor>) -> Self {
        Self { folder: Arc::new(state_folder.join(FOLDER)), redactor, writer: Arc::default() }
    }

    pub(super) fn note(&self, server: &str, note: Note) {
        let Some(sender) = self.sender() else { return };
        // Full: the disk is slower than what happens, and nobody waits for it.
        let _ = sender.try_send(Order::Write { server: server.to_owned(), at: now(), note });
    }

    /// What is worth a line of an event.
    pub(super) fn event(&self, event: &Event) {
        if let Some(server) = subject_of(event) {
            self.note(server, Note::Event(Box::new(event.clone())));
        }
    }

    /// Resolves once what was noted is written, or after a second.
    pub(super) async fn flush(&self) {
        let sender = self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(sender) = sender else { return };
        let wait = move || {
            let (done, written) = channel();
            if sender.send(Order::Flush(done)).is_ok() {
                let _ = written.recv_timeout(FLUSHING);
            }
        };
        let _ = tokio::time::timeout(FLUSHING, tokio::task::spawn_blocking(wait)).await;
    }

    /// The last lines about a server, the oldest first.
    pub(super) fn read(&self, server: &str, lines: usize) -> Vec<LogLine> {
        // An entry that is wrong may have any name; nothing was ever noted of it.
        if !server.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') {
            return Vec::new();
        }
        let (old, new) = (older(&path_of(&self.folder, server)), path_of(&self.folder, server));
        let mut all: Vec<LogLine> = [old, new].iter().flat_map(|path| lines_of(path)).collect();
        all.drain(..all.len().saturating_sub(lines));
        all
    }

    fn sender(&self) -> Option<SyncSender<Order>> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            let (sender, orders) = sync_channel(MAX_WAITING);
            let (folder, redactor) = (Arc::clone(&self.folder), Arc::clone(&self.redactor));
            let thread = std::thread::Builder::new().name("hyperlight-mcp-logs".to_owned());
            thread.spawn(move || write_all(&orders, &folder, &redactor)).ok()?;
            *writer = Some(sender);
        }
        writer.clone()
    }
}

/// The server that an event is about, where it belongs into its log.
fn subject_of(event: &Event) -> Option<&str> {
    match event {
        Event::ExecutableChanged { server, .. }
        | Event::ToolsChanged { server, .. }
        | Event::ServerLog { server, .. }
        | Event::ConnectionEvicted { server, .. }
        | Event::ConnectionIdle { server }
        | Event::ConnectionLost { server, .. }
        | Event::ElicitationCancelled { server, .. }
        | Event::Connected { server, .. }
        | Event::Call { server, .. } => Some(server),
        Event::Warning { .. }
        | Event::ApprovalsDamaged { .. }
        | Event::ApprovalProposed { .. }
        | Event::Progress { .. }
        | Event::ResourceUpdated { .. } => None,
    }
}

/// What an event says in words, its kind, and the code of an error.
fn words(event: &Event) -> (&'static str, String, Option<String>) {
    match event {
        Event::Connected { connect_ms, .. } => ("connected", format!("in {connect_ms:.0} ms"), None),
        Event::Call { tool, duration_ms, error, result_bytes, .. } => {
            let outcome = match (error, result_bytes) {
                (Some(code), _) => format!("failed with {code}"),
                (None, Some(bytes)) => format!("gave {bytes} bytes"),
                (None, None) => "was answered".to_owned(),
            };
            ("call", format!("{tool} {outcome} after {duration_ms:.0} ms"), error.map(str::to_owned))
        }
        Event::ConnectionLost { reason, .. } => ("connection-lost", reason.clone(), None),
        Event::ConnectionIdle { .. } => ("connection-idle", "it was not used for as long as idleTimeoutMs says".to_owned(), None),
        Event::ConnectionEvicted { made_room_for, .. } => ("connection-evicted", format!("it made room for {made_room_for}"), None),
        Event::ElicitationCancelled { reason, .. } => ("elicitation-cancelled", reason.clone(), None),
        Event::ExecutableChanged { path, .. } => ("executable-changed", format!("{path} is not the program that was approved"), None),
        Event::ToolsChanged { drift, .. } => {
            let list =
                |what: &str, names: &[String]| if names.is_empty() { String::new() } else { format!("{what}: {}. ", names.join(", ")) };
            let text = [list("added", &drift.added), list("removed", &drift.removed), list("changed", &drift.changed)].concat();
            ("tools-changed", if text.is_empty() { "resources or prompts".to_owned() } else { text.trim_end().to_owned() }, None)
        }
        Event::ServerLog { level, data, .. } => {
            let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
            ("server-log", format!("{level}: {text}"), None)
        }
        Event::Warning { .. }
        | Event::ApprovalsDamaged { .. }
        | Event::ApprovalProposed { .. }
        | Event::Progress { .. }
        | Event::ResourceUpdated { .. } => ("event", String::new(), None),
    }
}

fn line_of(at: u64, note: Note, redactor: &Redactor) -> Json {
    let (kind, text, error) = match note {
        Note::Stderr(text) => ("stderr", text, None),
        Note::Failed(error) => ("failed", error.to_string(), Some(error.code().to_owned())),
        Note::Event(event) => words(&event),
    };
    let text = sanitise_line(&redactor.redact(&text), MAX_TEXT_CHARS);
    json!(LogLine { at, pid: std::process::id(), kind: kind.to_owned(), text, error })
}

fn write_all(orders: &Receiver<Order>, folder: &Path, redactor: &Redactor) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Write { server, at, note } => {
                let line = line_of(at, note, redactor);
                if let Err(error) = append(folder, &server, &line) {
                    tracing::debug!(server, %error, "the server's log cannot be written");
                }
            }
            // Whoever asked may have gone.
            Order::Flush(done) => drop(done.send(())),
        }
    }
}

/// One write a line, to the end of the file: lines of several processes stand beside each other.
fn append(folder: &Path, server: &str, line: &Json) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = path_of(folder, server);
    rotate(&path)?;
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A file that is full becomes the older one. Of several processes that see it full, one does so: who comes second finds another file in its
/// place, and leaves that.
fn rotate(path: &Path) -> std::io::Result<()> {
    let full = |path: &Path| fs::metadata(path).ok().filter(|file| file.len() > MAX_BYTES);
    if full(path).is_none() {
        return Ok(());
    }
    // Another has just moved it: that is as good.
    let Ok(file) = File::open(path) else { return Ok(()) };
    file.lock()?;
    let ours = file.metadata()?;
    match full(path) {
        Some(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => fs::rename(path, older(path)),
        _ => Ok(()),
    }
}

/// The names of valid servers are names of files.
fn path_of(folder: &Path, server: &str) -> PathBuf {
    folder.join(format!("{server}.jsonl"))
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("old.jsonl")
}

/// Lines that are none of ours are skipped. A file that is larger than ours is read from its last part.
fn lines_of(path: &Path) -> Vec<LogLine> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
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
mod tests {
    use super::*;

    fn journal(folder: &Path) -> Journal {
        Journal::new(folder, Arc::new(Redactor::new(None, None)))
    }

    fn flush(journal: &Journal) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(journal.flush());
    }

    #[test]
    fn another_process_reads_what_was_noted_the_last_lines_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = journal(folder.path());
        for number in 0..5 {
            first.note("weather", Note::Stderr(format!("line {number}\x1b[31m")));
        }
        first.note("other", Note::Failed(Error::ServerDisabled { server: "other".into() }));
        flush(&first);
        let second = journal(folder.path());
        let texts: Vec<_> = second.read("weather", 2).into_iter().map(|line| (line.kind, line.text)).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[1].1.starts_with("line 4") && !texts[1].1.contains('\x1b'), "{texts:?}");
        assert_eq!(second.read("other", 9)[0].error.as_deref(), Some("ERR_SERVER_DISABLED"));
        assert!(second.read("nobody", 9).is_empty());
    }

    #[test]
    fn a_log_does_not_grow_without_end_and_only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let line = json!(LogLine { at: 1, pid: 1, kind: "stderr".into(), text: "x".repeat(1_000), error: None });
        for _ in 0..400 {
            append(folder.path(), "s", &line).unwrap();
        }
        let sizes: Vec<u64> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().all(|size| *size < MAX_BYTES + 2_000), "{sizes:?}");
        assert_eq!(fs::metadata(path_of(folder.path(), "s")).unwrap().permissions().mode() & 0o777, 0o600);
        let journal = Journal { folder: Arc::new(folder.path().to_owned()), ..journal(folder.path()) };
        assert_eq!(journal.read("s", 10).len(), 10);
    }

    #[test]
    fn writers_that_find_a_full_log_at_once_move_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_of(folder.path(), "s");
        fs::write(&path, "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 1)).unwrap();
        // One holds it: the others have all seen that it is full before it is moved.
        let first = File::open(&path).unwrap();
        first.lock().unwrap();
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..8).map(|_| scope.spawn(|| rotate(&path))).collect();
            fs::rename(&path, older(&path)).unwrap();
            fs::write(&path, "new\n").unwrap();
            first.unlock().unwrap();
            others.into_iter().for_each(|other| other.join().unwrap().unwrap());
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(older(&path)).unwrap().len(), MAX_BYTES + 1);
    }

    #[test]
    fn what_is_no_line_of_ours_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(path_of(folder.path(), "s"), "{}\nno json\n{\"at\":1,\"pid\":2,\"kind\":\"call\",\"text\":\"t\"}\n\u{0}").unwrap();
        assert_eq!(lines_of(&path_of(folder.path(), "s")).len(), 1);
    }
}
