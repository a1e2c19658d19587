//! The part of the watchdog that runs in this process. The watchdog itself is a separate program that knows the servers' process groups. It
//! reads from a pipe of this process. The pipe closes when this process ends, for whatever reason. The watchdog then ends the groups.
//!
//! A dedicated thread communicates with the program. It reads the answer to each order before it sends the next one, even if a caller stops
//! waiting. The thread also waits for the program's end when the runtime no longer exists. If the program must be restarted, the thread
//! sends all groups to the new program.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Longest time that a caller waits for the watchdog's answer. The answer normally takes microseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that the thread waits for the program's answer. It is short enough that another program can be started within
/// [`ANSWER_LIMIT`].
const PROGRAM_LIMIT: Duration = Duration::from_millis(1500);
/// Longest time that the thread waits for the program's end. It is longer than the program needs to end the remaining groups.
const END_LIMIT: Duration = Duration::from_secs(3);

/// The watchdog program of a gateway. It is started together with the gateway's first server.
#[derive(Debug)]
pub struct Watchdog {
    program: PathBuf,
    orders: Mutex<Option<mpsc::Sender<Order>>>,
}

/// An order to the watchdog's thread, with the sender for the answer.
#[derive(Debug)]
struct Order {
    what: OrderKind,
    answer: oneshot::Sender<Result<()>>,
}

#[derive(Debug, Clone, Copy)]
enum OrderKind {
    /// Starts the program if it is not running.
    Ready,
    Guard(Pid),
    Release(Pid),
    /// Ends the program.
    Close,
}

impl Watchdog {
    /// Makes a watchdog. `program` is the path of `hyperlight-mcp-watchdog`, which is shipped beside the addon.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, orders: Mutex::new(None) }
    }

    /// Starts the program if it is not running.
    pub(crate) async fn ready(&self) -> Result<()> {
        self.order(OrderKind::Ready).await
    }

    /// Puts a process group under the watchdog's guard. Returns when the watchdog has recorded the group.
    pub(crate) async fn guard(&self, group: Pid) -> Result<()> {
        self.order(OrderKind::Guard(group)).await
    }

    /// Removes a process group that has ended from the watchdog's guard. A failure is ignored, because no process is left to end.
    pub(super) async fn release(&self, group: Pid) {
        let _ = self.order(OrderKind::Release(group)).await;
    }

    /// Ends the program, and waits for its end.
    pub async fn close(&self) {
        let runs = self.orders.lock().is_some();
        if runs {
            let _ = self.order(OrderKind::Close).await;
            self.orders.lock().take();
        }
    }

    async fn order(&self, what: OrderKind) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.send(Order { what, answer })?;
        let failed = |problem: &str| Error::Internal(format!("the watchdog {problem}").into());
        match tokio::time::timeout(ANSWER_LIMIT, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(failed("has ended")),
            Err(_) => Err(failed("does not answer")),
        }
    }

    fn send(&self, order: Order) -> Result<()> {
        let mut orders = self.orders.lock();
        if let Some(sender) = orders.as_ref() {
            return sender.send(order).map_err(|_| Error::Internal("the watchdog's thread has ended".into()));
        }
        let (sender, receiver) = mpsc::channel();
        let keeper = Keeper { program: self.program.clone(), running: None, groups: BTreeSet::new() };
        let thread = std::thread::Builder::new().name("hyperlight-mcp-guard".to_owned()).spawn(move || keeper.run(&receiver));
        thread.map_err(|error| Error::io("a thread for the watchdog", &error))?;
        // Sending cannot fail, because the receiver's thread has just been started.
        let _ = sender.send(order);
        *orders = Some(sender);
        Ok(())
    }
}

/// State of the thread that owns the watchdog program.
struct Keeper {
    program: PathBuf,
    running: Option<Running>,
    /// Ids of the live process groups.
    groups: BTreeSet<i32>,
}

struct Running {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    fn run(mut self, orders: &mpsc::Receiver<Order>) {
        // The loop ends when the gateway has dropped all senders.
        while let Ok(Order { what, answer }) = orders.recv() {
            let outcome = match what {
                OrderKind::Ready => self.ensure(),
                OrderKind::Guard(group) => self.guard(group.as_raw_nonzero().get()),
                OrderKind::Release(group) => {
                    self.groups.remove(&group.as_raw_nonzero().get());
                    let told = self.running.as_mut().map_or(Ok(()), |running| running.tell('-', group.as_raw_nonzero().get()));
                    // If the program does not answer, a new program is started, and gets the remaining groups.
                    if told.is_err() { self.restart() } else { told }
                }
                OrderKind::Close => {
                    self.end();
                    Ok(())
                }
            };
            // The caller may have stopped waiting for the answer. The order was still carried out.
            let _ = answer.send(outcome);
        }
        self.end();
    }

    fn guard(&mut self, group: i32) -> Result<()> {
        if self.running.as_mut().is_none_or(|running| running.child.try_wait().is_ok_and(|status| status.is_some())) {
            self.restart()?;
        }
        let told = self.running.as_mut().map(|running| running.tell('+', group));
        if !matches!(told, Some(Ok(()))) {
            // The program was stopped, or has just ended. So a new program is started.
            self.restart()?;
            let Some(running) = self.running.as_mut() else { return Err(Error::Internal("the watchdog does not run".into())) };
            running.tell('+', group)?;
        }
        self.groups.insert(group);
        Ok(())
    }

    fn ensure(&mut self) -> Result<()> {
        let lives = self.running.as_mut().is_some_and(|running| running.child.try_wait().is_ok_and(|status| status.is_none()));
        if lives { Ok(()) } else { self.restart() }
    }

    fn restart(&mut self) -> Result<()> {
        self.end();
        let running = self.running.insert(Running::start(&self.program)?);
        self.groups.iter().try_for_each(|group| running.tell('+', *group))
    }

    /// Closes the pipe and waits for the program's end, so that no zombie is left. If the program does not end, for example because it is
    /// stopped, it is killed.
    fn end(&mut self) {
        if let Some(Running { mut child, commands, answers }) = self.running.take() {
            drop(commands);
            // The program closes its output pipe when it ends, and writes nothing before. So a readable pipe means that the program has
            // ended.
            if !is_readable(answers.get_ref(), END_LIMIT) {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start(program: &Path) -> Result<Self> {
        let failed = |problem: String| Error::SpawnFailed {
            server: "(watchdog)".to_owned(),
            command: program.display().to_string().into(),
            problem: format!("{problem}. No server is started without the watchdog").into(),
        };
        let mut child = Command::new(program)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(commands), Some(answers)) => Ok(Self { child, commands, answers: BufReader::new(answers) }),
            _ => Err(failed("it has no pipes".to_owned())),
        }
    }

    /// Sends one order, and reads the answer. Kills a program that does not answer in time, because its late answer would be read as the
    /// answer to the next order.
    fn tell(&mut self, sign: char, group: i32) -> Result<()> {
        let mut answer = String::new();
        // Writing does not block, because the pipe contains at most one line.
        let exchange = writeln!(self.commands, "{sign}{group}").and_then(|()| {
            if self.answers.buffer().is_empty() && !is_readable(self.answers.get_ref(), PROGRAM_LIMIT) {
                self.child.kill()?;
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            self.answers.read_line(&mut answer)
        });
        match exchange {
            Ok(_) if answer.trim_end() == "ok" => Ok(()),
            Ok(0) => Err(Error::Internal("the watchdog has ended".into())),
            Ok(_) => Err(Error::Internal(format!("the watchdog refused a group: {}", answer.trim_end()).into())),
            Err(error) => Err(Error::io("the watchdog", &error)),
        }
    }
}

/// Waits until the pipe has data or is closed. Returns `false` if this takes longer than `limit`.
fn is_readable(pipe: &ChildStdout, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            // If `poll` fails, the program is treated as if it did not answer.
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a keeper whose program is a shell script. The script answers like the watchdog, and records each start.
    fn keeper(folder: &Path) -> Keeper {
        use std::os::unix::fs::PermissionsExt as _;
        let program = folder.join("program");
        let script = format!("#!/bin/sh\necho $$ >> {}/starts\nwhile read line; do echo ok; done\n", folder.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        Keeper { program, running: None, groups: BTreeSet::new() }
    }

    fn starts(folder: &Path) -> usize {
        std::fs::read_to_string(folder.join("starts")).unwrap().lines().count()
    }

    fn stop(keeper: &Keeper) {
        let child = &keeper.running.as_ref().unwrap().child;
        rustix::process::kill_process(Pid::from_child(child), rustix::process::Signal::STOP).unwrap();
    }

    #[test]
    fn a_program_that_was_stopped_is_replaced_by_one_that_is_told_of_all_groups() {
        let folder = tempfile::tempdir().unwrap();
        let mut keeper = keeper(folder.path());
        keeper.guard(1001).unwrap();
        stop(&keeper);
        keeper.guard(1002).unwrap();
        assert_eq!(starts(folder.path()), 2);
        assert_eq!(keeper.groups, BTreeSet::from([1001, 1002]));
        keeper.guard(1003).unwrap();
        assert_eq!(starts(folder.path()), 2, "the second one answers");
        keeper.end();
    }

    #[test]
    fn a_program_that_was_stopped_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut keeper = keeper(folder.path());
        keeper.guard(1001).unwrap();
        stop(&keeper);
        let start = Instant::now();
        keeper.end();
        assert!(keeper.running.is_none() && start.elapsed() < 2 * END_LIMIT);
    }
}
