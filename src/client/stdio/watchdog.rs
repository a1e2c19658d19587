//! This process's side of the watchdog: a program of ours that holds a pipe from us, knows the servers' process groups, and ends them when
//! the pipe closes, however this process has ended.
//!
//! A thread of its own talks to it, so that orders and answers stay in step whoever gives up waiting, the program is waited
//! for even when the runtime is gone, and one that had to be started again is told of all the groups there are.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Longest wait for its answer, which takes microseconds on a healthy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Watchdog program of a gateway, started with its first server.
#[derive(Debug)]
pub struct Watchdog {
    program: PathBuf,
    orders: Mutex<Option<mpsc::Sender<Order>>>,
}

/// An order to the thread, and the sender for its answer.
#[derive(Debug)]
struct Order {
    what: What,
    answer: oneshot::Sender<Result<()>>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// See to it that the program runs.
    Ready,
    Guard(Pid),
    Release(Pid),
    /// Let the program end.
    Close,
}

impl Watchdog {
    /// `program` is `hyperlight-mcp-watchdog`, which is shipped beside the addon.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, orders: Mutex::new(None) }
    }

    /// Starts the program unless it runs.
    pub(in crate::client) async fn ready(&self) -> Result<()> {
        self.order(What::Ready).await
    }

    /// Puts a process group under guard; returns when the watchdog has recorded it.
    pub(in crate::client) async fn guard(&self, group: Pid) -> Result<()> {
        self.order(What::Guard(group)).await
    }

    /// A group that is gone. A failure changes nothing: there is nobody left to end.
    pub(super) async fn release(&self, group: Pid) {
        let _ = self.order(What::Release(group)).await;
    }

    /// Lets the program end, and waits for that.
    pub async fn close(&self) {
        let runs = self.orders.lock().is_some();
        if runs {
            let _ = self.order(What::Close).await;
            self.orders.lock().take();
        }
    }

    async fn order(&self, what: What) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.send(Order { what, answer })?;
        let failed = |problem: &str| Error::Internal(format!("the watchdog {problem}"));
        match tokio::time::timeout(ANSWER_LIMIT, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(failed("has ended")),
            Err(_) => Err(failed("does not answer")),
        }
    }

    fn send(&self, order: Order) -> Result<()> {
        let mut orders = self.orders.lock();
        if let Some(sender) = orders.as_ref() {
            return sender.send(order).map_err(|_| Error::Internal("the watchdog's thread has ended".to_owned()));
        }
        let (sender, receiver) = mpsc::channel();
        let keeper = Keeper { program: self.program.clone(), running: None, groups: BTreeSet::new() };
        let thread = std::thread::Builder::new().name("hyperlight-mcp-guard".to_owned()).spawn(move || keeper.run(&receiver));
        thread.map_err(|error| Error::io("a thread for the watchdog", &error))?;
        // The receiver is alive: its thread has just been started with it.
        let _ = sender.send(order);
        *orders = Some(sender);
        Ok(())
    }
}

/// The thread that owns the program.
struct Keeper {
    program: PathBuf,
    running: Option<Running>,
    /// Live process groups, by number.
    groups: BTreeSet<i32>,
}

struct Running {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    fn run(mut self, orders: &mpsc::Receiver<Order>) {
        // Ends with the last sender: the gateway is gone, and the program ends as its pipe closes.
        while let Ok(Order { what, answer }) = orders.recv() {
            let outcome = match what {
                What::Ready => self.ensure(),
                What::Guard(group) => self.guard(group.as_raw_nonzero().get()),
                What::Release(group) => {
                    self.groups.remove(&group.as_raw_nonzero().get());
                    self.running.as_mut().map_or(Ok(()), |running| running.tell('-', group.as_raw_nonzero().get()))
                }
                What::Close => {
                    self.end();
                    Ok(())
                }
            };
            // Whoever asked may have given up; what was done stands.
            let _ = answer.send(outcome);
        }
        self.end();
    }

    fn guard(&mut self, group: i32) -> Result<()> {
        if self.running.as_mut().is_none_or(|running| running.child.try_wait().is_ok_and(|status| status.is_some())) {
            self.restart()?;
        }
        let Some(running) = self.running.as_mut() else { return Err(Error::Internal("the watchdog does not run".to_owned())) };
        running.tell('+', group)?;
        self.groups.insert(group);
        Ok(())
    }

    fn ensure(&mut self) -> Result<()> {
        let lives = self.running.as_mut().is_some_and(|running| running.child.try_wait().is_ok_and(|status| status.is_none()));
        if lives { Ok(()) } else { self.restart() }
    }

    fn restart(&mut self) -> Result<()> {
        self.end();
        let mut running = Running::start(&self.program)?;
        for group in &self.groups {
            running.tell('+', *group)?;
        }
        self.running = Some(running);
        Ok(())
    }

    /// Closes the pipe and waits: no zombie is left.
    fn end(&mut self) {
        if let Some(Running { mut child, commands, answers }) = self.running.take() {
            drop((commands, answers));
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start(program: &Path) -> Result<Self> {
        let failed = |problem: String| Error::SpawnFailed {
            server: "(watchdog)".to_owned(),
            command: program.display().to_string(),
            problem: format!("{problem}; without its watchdog no server is started").into(),
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

    fn tell(&mut self, sign: char, group: i32) -> Result<()> {
        let mut answer = String::new();
        let exchange = writeln!(self.commands, "{sign}{group}").and_then(|()| self.answers.read_line(&mut answer));
        match exchange {
            Ok(_) if answer.trim_end() == "ok" => Ok(()),
            Ok(0) => Err(Error::Internal("the watchdog has ended".to_owned())),
            Ok(_) => Err(Error::Internal(format!("the watchdog refused a group: {}", answer.trim_end()))),
            Err(error) => Err(Error::io("the watchdog", &error)),
        }
    }
}
