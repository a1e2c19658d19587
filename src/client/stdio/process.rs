//! A server's process: it is started in its own process group, guarded by the watchdog, and ended with all its children.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pipe::Pipe;
use super::stderr::{self, Tail};
use super::watchdog::Watchdog;
use crate::client::connection::open::{Redact, StderrListener};
use crate::client::inbound::rate_limit::UNSOLICITED;
use crate::config::ResolvedCommand;
use crate::error::{Error, Result};

/// Capacity of a server's output pipe: the maximum that an unprivileged user may request by default (`pipe(7)`).
const PIPE_BYTES: usize = 1 << 20;
/// Time that a server has to end after its input was closed, and then again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Time within which a killed process should be gone.
const DYING: Duration = Duration::from_millis(100);
/// Longest wait for the last lines of a process that has ended.
const DRAINING: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(5);

/// A running server process.
pub(in crate::client) struct ServerProcess {
    group: Pid,
    /// The exit status as text. `None` while the process runs.
    exit: watch::Receiver<Option<String>>,
    stderr: Tail,
    /// Receiver whose sender is dropped once standard error has been read to its end.
    drained: watch::Receiver<()>,
    /// The pipe of standard output, kept to check whether it holds unread output.
    output: OwnedFd,
    /// Token that is cancelled once standard output has been read to its end.
    output_read: CancellationToken,
    watchdog: Arc<Watchdog>,
}

/// The process's pipes, for the transport.
pub(in crate::client) struct Pipes {
    pub(in crate::client) stdin: ChildStdin,
    pub(in crate::client) stdout: Output,
}

/// Standard output. The reader drops it after it has handed on the last message.
pub(in crate::client) struct Output {
    pipe: Pipe,
    _read: DropGuard,
}

impl AsyncRead for Output {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, buffer)
    }
}

/// State of the output of a process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum OutputRead {
    ToItsEnd,
    /// All available output was read, but another process still holds the pipe open.
    AsFarAsItGoes,
}

impl ServerProcess {
    pub(in crate::client) async fn start(
        server: &str,
        command: &ResolvedCommand,
        (redact, on_stderr): (&Redact, &StderrListener),
        watchdog: &Arc<Watchdog>,
    ) -> Result<(Self, Pipes)> {
        // The watchdog must run before the server starts, so that no server is ever alive without its guard.
        watchdog.ready().await?;
        let mut child = spawn(server, command)?;
        let missing = || Error::Internal("a child without pipes".into());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
        let failed = |error: std::io::Error| Error::io(format!("the pipes of server \"{server}\""), &error);
        let stdin = ChildStdin::from_std(child.stdin.take().ok_or_else(missing)?).map_err(failed)?;
        let stdout = Pipe::new(OwnedFd::from(child.stdout.take().ok_or_else(missing)?)).map_err(failed)?;
        // A larger pipe needs fewer reads for a large message. If the system refuses it, the pipe keeps its size.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        let stderr = ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?).map_err(failed)?;
        let output = stdout.as_fd().try_clone_to_owned().map_err(failed)?;
        let output_read = CancellationToken::new();
        let pipes = Pipes { stdin, stdout: Output { pipe: stdout, _read: output_read.clone().drop_guard() } };
        let tail = Tail::new(Arc::clone(redact));
        let (reading, drained) = watch::channel(());
        let (sender, exit) = watch::channel(None);
        tokio::spawn(stderr::read(stderr, UNSOLICITED, (server.to_owned(), tail.clone(), Arc::clone(on_stderr)), exit.clone(), reading));
        reap(child, pid, sender)?;
        let process = Self { group: pid, exit, stderr: tail, drained, output, output_read, watchdog: Arc::clone(watchdog) };
        if let Err(error) = process.watchdog.guard(pid).await {
            process.kill();
            return Err(error);
        }
        Ok((process, pipes))
    }

    /// Resolves with the exit status, as text, once the process has ended.
    pub(in crate::client) async fn exited(&self) -> String {
        let mut exit = self.exit.clone();
        // The sender is dropped without a status only at the end of the runtime.
        let status = exit.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        // The last lines of standard error may still be in the pipe.
        let _ = tokio::time::timeout(DRAINING, self.drained.clone().changed()).await;
        status.unwrap_or_else(|| "it was ended".to_owned())
    }

    /// Resolves once all output that the process wrote before its end has been read. A descendant that left the process group may hold the
    /// pipe open for ever, so an empty pipe is enough.
    pub(in crate::client) async fn output_read(&self) -> OutputRead {
        while !self.output_read.is_cancelled() {
            if self.is_held_by_others() {
                return OutputRead::AsFarAsItGoes;
            }
            let _ = tokio::time::timeout(POLL, self.output_read.cancelled()).await;
        }
        OutputRead::ToItsEnd
    }

    /// Returns whether the pipe is empty but not closed.
    fn is_held_by_others(&self) -> bool {
        let mut pipe = [PollFd::new(&self.output, PollFlags::IN)];
        poll(&mut pipe, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|_| pipe[0].revents().is_empty())
    }

    pub(in crate::client) fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Returns the last lines of standard error in the form of a message part, or an empty text if there are none.
    pub(in crate::client) fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    /// Ends the process group after its input was closed. Waits 2 s, sends SIGTERM, waits 2 s, and sends SIGKILL.
    pub(in crate::client) async fn end(&self) {
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            if let Some(signal) = signal {
                let _ = kill_process_group(self.group, signal);
            }
            if tokio::time::timeout(GRACE, self.gone()).await.is_ok() {
                break;
            }
        }
        self.watchdog.release(self.group).await;
    }

    /// Sends SIGKILL to the process group immediately.
    pub(in crate::client) fn kill(&self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }

    async fn gone(&self) {
        self.exited().await;
        // The group leader is reaped, and its children have got SIGKILL. They may still be dying, or be zombies that another process has to
        // reap, so the wait is short.
        let _ = tokio::time::timeout(DYING, async {
            while test_kill_process_group(self.group).is_ok() {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(server: &str, command: &ResolvedCommand) -> Result<Child> {
    let mut process = Command::new(&command.command);
    process
        .args(&command.arguments)
        .current_dir(&command.working_directory)
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name.as_str(), value.expose_secret())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    process.spawn().map_err(|error| Error::SpawnFailed {
        server: server.to_owned(),
        command: command.command.clone().into(),
        problem: error.to_string().into(),
    })
}

/// Waits for the process on a separate thread, so that not even the end of the runtime leaves a zombie.
fn reap(mut child: Child, group: Pid, exit: watch::Sender<Option<String>>) -> Result<()> {
    let wait = move || {
        let status = child.wait();
        // The children of a server that has ended are killed. The group id cannot belong to another group by now: it stays reserved while a
        // member lives, and without members the signal reaches nobody.
        let _ = kill_process_group(group, Signal::KILL);
        exit.send_replace(Some(status.map_or_else(|error| error.to_string(), describe)));
    };
    let thread = std::thread::Builder::new().name("hyperlight-mcp-wait".to_owned()).spawn(wait);
    thread.map(drop).map_err(|error| {
        let _ = kill_process_group(group, Signal::KILL);
        Error::io("a thread that waits for a server", &error)
    })
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}
