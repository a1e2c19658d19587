//! Runs the code of a provider's package in a process of its own, with Node.
//!
//! The code can crash, hang, or take all threads of its process, and nothing of this reaches the gateway. Only one answer of limited size is
//! read. The process is ended after 2 s, also if it waits in a system call, and the watchdog ends it if this process ends before.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ProviderCode, ProviderLoader};
use crate::client::Watchdog;
use crate::error::{Error, Result};
use crate::gateway::Answer;
use crate::registry::providers::MAX_ANSWER_BYTES;

const SCRIPT: &str = include_str!("provider-process.js");
/// The time limit for the code of a package. It begins when the process has started.
const TIME: Duration = Duration::from_secs(2);
/// The time limit for the start of a process. On a busy machine, the start can take long.
const START_TIME: Duration = Duration::from_secs(10);
/// The limits of the memory for JavaScript objects, in MiB.
const HEAP: [&str; 2] = ["--max-old-space-size=64", "--max-semi-space-size=4"];
/// The limit of all private memory of a process, in bytes, including buffers (`RLIMIT_DATA`, `getrlimit(2)`). Node itself needs 50 MiB.
const DATA_BYTES: u64 = 768 << 20;
/// The longest wait for the end of a killed process.
const DYING: Duration = Duration::from_secs(1);
/// The bytes of an answer's line beside its JSON.
const LINE_BYTES: u64 = 16;

/// The error for something that is not the answer of a package.
const NO_ANSWER: &str = "its process sent something other than an answer";

/// Runs the code of packages with Node, each in a process of its own.
///
/// ```no_run
/// use hyperlight_mcp::gateway::{GatewayOptions, NodeLoader};
/// # fn open(watchdog: &str, runtime: tokio::runtime::Handle) {
/// let mut options = GatewayOptions::new(watchdog, runtime);
/// options.provider_loader = Some(std::sync::Arc::new(NodeLoader::new("/usr/bin/node", watchdog)));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NodeLoader {
    node: PathBuf,
    watchdog: PathBuf,
    environment: Vec<(String, String)>,
}

impl NodeLoader {
    /// Makes a loader. `node` is the program of Node, 20.16 or newer, and `watchdog` the path of `hyperlight-mcp-watchdog`.
    #[must_use]
    pub fn new(node: impl Into<PathBuf>, watchdog: impl Into<PathBuf>) -> Self {
        Self { node: node.into(), watchdog: watchdog.into(), environment: Vec::new() }
    }

    /// Adds variables that Node reads when it starts. They are removed before the code of a package runs.
    #[must_use]
    pub fn with_environment(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    async fn run(self, order: String) -> Result<Json> {
        let watchdog = Watchdog::new(self.watchdog.clone());
        // The watchdog must run first, so that no code ever runs without it.
        watchdog.ready().await?;
        let (mut process, socket) = self.start()?;
        let outcome = match watchdog.guard(process.group).await {
            Ok(()) => process.answer(socket, order).await,
            Err(error) => Err(error),
        };
        process.end().await;
        watchdog.close().await;
        outcome
    }

    /// Starts the process. Its code waits for the order, and does nothing before.
    fn start(&self) -> Result<(Process, UnixStream)> {
        let failed = |error: &std::io::Error| Error::io("a process for the code of a provider", error);
        let (ours, theirs) = StdStream::pair().map_err(|error| failed(&error))?;
        ours.set_nonblocking(true).map_err(|error| failed(&error))?;
        let mut command = Command::new(&self.node);
        command
            .arg0("node")
            .args(HEAP)
            .args(["-e", SCRIPT])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = command.spawn().map_err(|error| failed(&error))?;
        // `command` keeps the other end of the socket open, and must not do so while the answer is read.
        drop(command);
        let group = Pid::from_child(&child);
        let process = Process { group, child: Some(child) };
        for (resource, bytes) in [(Resource::Data, DATA_BYTES), (Resource::Core, 0)] {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            prlimit(Some(group), resource, limit).map_err(|error| failed(&error.into()))?;
        }
        let socket = UnixStream::from_std(ours).map_err(|error| failed(&error))?;
        Ok((process, socket))
    }
}

impl ProviderLoader for NodeLoader {
    fn load(&self, code: &ProviderCode) -> Answer<Json> {
        let paths = [&code.file, &code.folder].map(|path| path.to_str().map(str::to_owned));
        let [Some(file), Some(folder)] = paths else {
            return Box::pin(async { Err(Error::Internal("the path of a provider's file is not UTF-8".into())) });
        };
        let order = format!("{}\n", json!({ "file": file, "folder": folder, "limit": MAX_ANSWER_BYTES }));
        Box::pin(self.clone().run(order))
    }
}

/// A process that runs the code of one package.
struct Process {
    group: Pid,
    /// `None` after it was waited for. Until then, its id cannot belong to another process.
    child: Option<Child>,
}

impl Process {
    /// Sends the order, and reads the answer.
    async fn answer(&mut self, socket: UnixStream, order: String) -> Result<Json> {
        let (reading, mut writing) = socket.into_split();
        let mut reading = BufReader::new(reading);
        // A process that has ended reads nothing. Its end is noticed below.
        let _ = writing.write_all(order.as_bytes()).await;
        let started = timeout(START_TIME, line(&mut reading)).await.map_err(|_| problem("its process did not start"))?;
        match started.as_deref() {
            Some(b"starts") => {}
            Some(_) => return Err(problem(NO_ANSWER)),
            None => return Err(self.ended("its process did not start").await),
        }
        let answer = timeout(TIME, line(&mut reading)).await;
        match answer.map_err(|_| problem(&format!("it did not answer within {} s", TIME.as_secs())))? {
            Some(line) => parsed(&line),
            None => Err(self.ended("its process ended before it answered").await),
        }
    }

    /// Returns the error of a process that has closed its socket without an answer.
    async fn ended(&mut self, text: &str) -> Error {
        let status = self.end().await;
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!(": it exited with code {code}"),
            Some((_, Some(signal))) if signal == Signal::ABORT.as_raw() => {
                ": Node has aborted it, which it does if the memory is used up".to_owned()
            }
            Some((_, Some(signal))) => format!(": it was ended by signal {signal}"),
            _ => String::new(),
        };
        problem(&format!("{text}{how}"))
    }

    /// Kills the process and all others of its group, and waits for its end. The exit status of a process that has ended by itself does not
    /// change. Returns `None` if the kernel does not end it soon.
    async fn end(&mut self) -> Option<ExitStatus> {
        timeout(DYING, self.kill()?).await.ok()?.ok()
    }

    /// Kills the process and all others of its group, and starts a thread that waits for it. Runtimes can end before the process does.
    fn kill(&mut self) -> Option<oneshot::Receiver<ExitStatus>> {
        let mut child = self.child.take()?;
        let _ = kill_process_group(self.group, Signal::KILL);
        let (sender, status) = oneshot::channel();
        let wait = move || child.wait().map(|status| sender.send(status));
        std::thread::Builder::new().name("hyperlight-mcp-wait".to_owned()).spawn(wait).ok()?;
        Some(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// Reads a line, without its end. Returns `None` at the end of the input.
async fn line(reading: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    // A line that is too long is cut, and is not an answer then.
    let most = u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX).saturating_add(LINE_BYTES);
    reading.take(most).read_until(b'\n', &mut line).await.ok()?;
    let is_end = line.is_empty();
    line.pop_if(|byte| *byte == b'\n');
    (!is_end).then_some(line)
}

/// Parses the line with the answer of a package.
fn parsed(line: &[u8]) -> Result<Json> {
    if let Some(text) = line.strip_prefix(b"text ") {
        return serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Syntax if error.to_string().starts_with("recursion limit") => {
                problem("its answer is nested too deeply")
            }
            _ => problem(NO_ANSWER),
        });
    }
    let thrown = line.strip_prefix(b"problem ").and_then(|text| serde_json::from_slice::<String>(text).ok());
    Err(problem(thrown.as_deref().unwrap_or(NO_ANSWER)))
}

fn problem(problem: &str) -> Error {
    Error::HostFunction { function: "servers".into(), message: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: Result<Json>) -> String {
        match outcome.map_err(Error::opened) {
            Ok(answer) => answer.to_string(),
            Err(Error::HostFunction { message, .. }) => message.shown().to_owned(),
            Err(other) => other.to_string(),
        }
    }

    #[test]
    fn a_line_is_an_answer_or_a_problem_and_anything_else_is_refused() {
        assert_eq!(text(parsed(br#"text [{"name":"a"}]"#)), r#"[{"name":"a"}]"#);
        assert_eq!(text(parsed(br#"problem "no servers today""#)), "no servers today");
        for odd in [&b""[..], b"text", b"text [", b"problem x", b"problem 5", b"starts", b"\xff"] {
            assert_eq!(text(parsed(odd)), NO_ANSWER, "{odd:?}");
        }
        let deep = format!("text {}", "[".repeat(1000));
        assert_eq!(text(parsed(deep.as_bytes())), "its answer is nested too deeply");
    }

    #[tokio::test]
    async fn a_line_without_end_is_cut_and_nothing_is_a_line_after_the_end() {
        let mut endless = BufReader::new(tokio::io::repeat(b'x'));
        assert_eq!(line(&mut endless).await.unwrap().len(), MAX_ANSWER_BYTES + 16);
        let mut lines = &b"one\n\nlast"[..];
        let mut read = Vec::new();
        while let Some(line) = line(&mut lines).await {
            read.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(read, ["one", "", "last"]);
    }
}
