//! A server's process. It is started in its own process group, guarded by the watchdog, and ended together with all its children.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::boxed::{Boxed, KeptAlive};
use super::pipe::Pipe;
use super::stderr::{self, Redact, StderrListener, Tail};
use super::watchdog::Watchdog;
use crate::boxes::border::Border;
use crate::client::inbound::rate_limit::UNSOLICITED;
use crate::config::ResolvedCommand;
use crate::error::{Error, Result};

/// Capacity in bytes of a server's output pipe. This is the maximum that an unprivileged user may request by default (`pipe(7)`).
const PIPE_BYTES: usize = 1 << 20;
/// Longest wait for a server's end after its input was closed. After SIGTERM, the wait can last once more as long.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait until a killed process has disappeared.
const DYING: Duration = Duration::from_millis(100);
/// Longest wait for the last lines of standard error of a process that has ended.
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
    /// Duplicate of the read end of the standard output pipe. It is only used to check whether the pipe contains unread output.
    output: OwnedFd,
    /// Token that is cancelled once standard output has been read to its end.
    output_read: CancellationToken,
    /// The border of the process's box: its connection to the allowed hosts. Dropping this value ends all network connections of the box.
    border: Option<Border>,
    /// The lock of the private home folder of the process's box.
    _home: Option<Arc<File>>,
    watchdog: Arc<Watchdog>,
}

/// Pipes of a process, for the transport.
pub(in crate::client) struct Pipes {
    pub(in crate::client) stdin: ChildStdin,
    pub(in crate::client) stdout: Output,
}

/// Standard output of a process. The reader drops this value after it has forwarded the last message.
pub(in crate::client) struct Output {
    pipe: Pipe,
    _read: DropGuard,
}

impl AsyncRead for Output {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, buffer)
    }
}

/// Result of reading the output of a process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum OutputRead {
    ToItsEnd,
    /// All available output was read, but another process still keeps the pipe open.
    AsFarAsItGoes,
}

impl ServerProcess {
    pub(in crate::client) async fn start(
        server: &str,
        (command, program, in_box): (&ResolvedCommand, &Path, Option<&Boxed>),
        (redact, on_stderr): (&Redact, &StderrListener),
        watchdog: &Arc<Watchdog>,
    ) -> Result<(Self, Pipes)> {
        // The watchdog must run before the server starts, so that no server ever runs without the watchdog's protection.
        watchdog.ready().await?;
        let (mut child, waiting) = match in_box {
            Some(in_box) => {
                // A command that does not exist must fail in the same way as without a box.
                let path = command.working_directory.join(program);
                let access = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK);
                access.map_err(|error| spawn_failed(server, command, &path, &error.into()))?;
                in_box.spawn(server).map(|(child, waiting)| (child, Some((in_box, waiting))))?
            }
            None => (spawn(server, command, program)?, None),
        };
        let missing = || Error::Internal("a child without pipes".into());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
        let failed = |error: std::io::Error| Error::io(format!("the pipes of server \"{server}\""), &error);
        let stdin = ChildStdin::from_std(child.stdin.take().ok_or_else(missing)?).map_err(failed)?;
        let mut stdout = Pipe::new(OwnedFd::from(child.stdout.take().ok_or_else(missing)?)).map_err(failed)?;
        // With a larger pipe, a large message needs fewer reads. If the system refuses the larger size, the pipe keeps its size.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        let stderr = ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?).map_err(failed)?;
        let output = stdout.as_fd().try_clone_to_owned().map_err(failed)?;
        let output_read = CancellationToken::new();
        let tail = Tail::new(Arc::clone(redact));
        let (reading, drained) = watch::channel(());
        let (sender, exit) = watch::channel(None);
        tokio::spawn(stderr::read(stderr, UNSOLICITED, (server.to_owned(), tail.clone(), Arc::clone(on_stderr)), exit.clone(), reading));
        reap(child, pid, sender, in_box.map(|in_box| in_box.alive.clone()))?;
        let watchdog = Arc::clone(watchdog);
        let home = in_box.and_then(|in_box| in_box.home.clone());
        let mut process = Self { group: pid, exit, stderr: tail, drained, output, output_read, border: None, _home: home, watchdog };
        if let Err(error) = process.watchdog.guard(pid).await {
            process.kill();
            return Err(error);
        }
        if let Some((in_box, waiting)) = waiting {
            match in_box.fill((command, program), waiting, &mut stdout).await {
                Ok(border) => process.border = Some(border),
                Err(problem) => {
                    process.kill();
                    return Err(Error::BoxFailed { server: server.to_owned(), problem: problem.into() });
                }
            }
        }
        let pipes = Pipes { stdin, stdout: Output { pipe: stdout, _read: process.output_read.clone().drop_guard() } };
        Ok((process, pipes))
    }

    /// Resolves with the exit status, as text, once the process has ended.
    pub(in crate::client) async fn exited(&self) -> String {
        let mut exit = self.exit.clone();
        // The sender is only dropped without a status when the runtime ends.
        let status = exit.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        // The pipe may still contain the last lines of standard error.
        let _ = tokio::time::timeout(DRAINING, self.drained.clone().changed()).await;
        status.unwrap_or_else(|| "it was ended".to_owned())
    }

    /// Resolves once all output that the process wrote before its end has been read. An empty pipe is sufficient, because a descendant
    /// that left the process group may keep the pipe open for ever.
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

    /// Returns what the process's box has refused, and the last lines of standard error, as a part of a message. The text is empty if the
    /// box has refused nothing and there are no lines.
    pub(in crate::client) fn stderr_text(&self) -> String {
        let refused = self.border.as_ref().map(Border::refused).unwrap_or_default();
        let lines: Vec<String> = refused.iter().map(|refusal| format!("; {refusal}")).collect();
        lines.concat() + &self.stderr.text()
    }

    /// Returns whether the process's box has refused anything.
    pub(in crate::client) fn has_refused(&self) -> bool {
        self.border.as_ref().is_some_and(|border| !border.refused().is_empty())
    }

    /// Ends the access of the process's box to the hosts that are allowed only while the server starts.
    pub(in crate::client) fn started(&self) {
        if let Some(border) = &self.border {
            border.started();
        }
    }

    /// Ends the process group after its input was closed. Waits 2 s, sends SIGTERM, waits 2 s, and sends SIGKILL. Stops as soon as the
    /// group has ended.
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

    /// Returns whether the process is in a box.
    pub(in crate::client) fn is_in_box(&self) -> bool {
        self.border.is_some()
    }

    /// Sends SIGKILL to the process group immediately.
    pub(in crate::client) fn kill(&self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }

    async fn gone(&self) {
        self.exited().await;
        // The group leader has been reaped, and its children have received SIGKILL. The children may still exist for a moment, or may be
        // zombies that another process has to reap. So this wait is short.
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

/// Starts the file `program`. Its path is absolute, so `PATH` is not searched for another file. The process gets the command as its own
/// name, as with `execvp`. Programs with several functions, and Python in a virtual environment, use this name.
fn spawn(server: &str, command: &ResolvedCommand, program: &Path) -> Result<Child> {
    let program = command.working_directory.join(program);
    let mut process = Command::new(&program);
    process
        .arg0(&command.command)
        .args(&command.arguments)
        .current_dir(&command.working_directory)
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name.as_str(), value.expose_secret())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    process.spawn().map_err(|error| spawn_failed(server, command, &program, &error))
}

fn spawn_failed(server: &str, command: &ResolvedCommand, program: &Path, error: &std::io::Error) -> Error {
    Error::SpawnFailed {
        server: server.to_owned(),
        command: command.command.clone().into(),
        problem: (error.to_string() + reason(error, program)).into(),
    }
}

/// Explains two system errors that occur for a script although the script's file exists.
fn reason(error: &std::io::Error, program: &Path) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOEXEC) => ". A script must name its interpreter in its first line, as in #!/bin/sh",
        Some(Errno::NOENT) if program.is_file() => {
            ". The file exists, but cwd, or the interpreter that a script names in its first line, does not"
        }
        _ => "",
    }
}

/// Starts a thread that waits for the process. A separate thread is used so that no zombie is left even when the runtime ends. For a server
/// in a box, the process is the program that made the box. It ends after all other processes of the box, so `alive` is dropped when the box
/// has no processes any more.
fn reap(mut child: Child, group: Pid, exit: watch::Sender<Option<String>>, alive: Option<KeptAlive>) -> Result<()> {
    let wait = move || {
        let status = child.wait();
        // The children of a server that has ended are killed. The group id cannot belong to another group now. While the group has a
        // member, the system does not reuse the id. Without members, the signal reaches no process.
        let _ = kill_process_group(group, Signal::KILL);
        drop(alive);
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
