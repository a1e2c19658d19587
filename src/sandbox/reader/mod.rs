//! Agent code is read by a process of its own: `hyperlight-mcp-reader`.
//!
//! The parser was written for code that people wrote. It recurses, tries one reading after the other, and takes memory for each: there
//! is code that makes it overrun its stack, take minutes or all memory. An agent's code is an attacker's; the process in which it is
//! read is one that may end. It has bounds of its own (`program.rs`), nothing but two pipes, and gets no environment.

mod program;
mod protocol;
mod read_code;

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use program::serve_reader;
use protocol::{Answer, Question, read_frame, write_frame};
use read_code::{ReadCode, ReadCodes};

use super::script::{Importable, Problem};
use crate::error::{Error, Result};

/// What a look at code may take. Code as people write it takes a few milliseconds.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// How soon it is seen that the answer is not wanted any more.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const WAIT: Duration = Duration::from_millis(20);
/// Looks at the same time: each may take all the memory that a process may have, and a core.
const MAX_LOOKS: usize = 4;
/// Processes that are kept for the next question.
const MAX_IDLE: usize = 2;

/// Asks processes about code. Where one ends or does not answer, the code has not been looked at.
pub(super) struct ScriptReader {
    program: PathBuf,
    idle: Mutex<Idle>,
    looks: Mutex<usize>,
    ended: Condvar,
    known: Mutex<ReadCodes>,
}

#[derive(Default)]
struct Idle {
    workers: Vec<Worker>,
    closed: bool,
}

/// A place among the looks that may be under way.
struct Place<'a>(&'a ScriptReader);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.looks() -= 1;
        self.0.ended.notify_one();
    }
}

/// Whether an answer is still wanted.
pub type Wanted<'a> = &'a dyn Fn() -> bool;

impl ScriptReader {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, idle: Mutex::default(), looks: Mutex::default(), ended: Condvar::new(), known: Mutex::default() }
    }

    /// Starts a process, unless one waits for a question.
    pub(super) fn warm_up(&self) -> Result<()> {
        if self.idle().workers.is_empty() {
            let worker = self.start()?;
            self.keep(worker);
        }
        Ok(())
    }

    /// Ends the processes that wait. Those that look at code go on.
    pub(super) fn rest(&self) {
        let workers = std::mem::take(&mut self.idle().workers);
        drop(workers);
    }

    /// Ends the processes that wait, and keeps none from now on.
    pub(super) fn close(&self) {
        self.idle().closed = true;
        self.rest();
    }

    /// The code as JavaScript; `None` where it is that already, or was not looked at.
    ///
    /// # Errors
    /// `ERR_CODE_SYNTAX`; `ERR_IO` where the program cannot be started.
    pub(super) fn to_javascript(&self, code: &str, wanted: Wanted<'_>) -> Result<Option<String>> {
        let digest = ReadCodes::digest(code);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&digest);
        let read = match known {
            Some(read) => read,
            None => match self.ask(&Question::ToJavascript { code: code.into() }, wanted)? {
                Some(Answer::Javascript { code }) => ReadCode::Javascript(code),
                Some(Answer::AsItIs) => ReadCode::AsItIs,
                Some(Answer::Syntax { message, line, column }) => return Err(Error::CodeSyntax { message, line, column }),
                // It was not looked at: another time it may be.
                _ => return Ok(None),
            },
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, read.clone());
        Ok(match read {
            ReadCode::AsItIs => None,
            ReadCode::Javascript(code) => Some(code),
        })
    }

    /// All that is wrong with code; nothing for code that was not looked at.
    ///
    /// # Errors
    /// `ERR_IO` where the program cannot be started.
    pub(super) fn check(&self, code: &str, modules: &[Importable], wanted: Wanted<'_>) -> Result<Vec<Problem>> {
        match self.ask(&Question::Check { code: code.into(), modules: modules.into() }, wanted)? {
            Some(Answer::Problems { problems }) => Ok(problems),
            _ => Ok(Vec::new()),
        }
    }

    /// Why code did not load.
    pub(super) fn explain_load(&self, code: &str, modules: &[Importable], wanted: Wanted<'_>) -> Option<Error> {
        self.syntax(&Question::ExplainLoad { code: code.into(), modules: modules.into() }, wanted)
    }

    /// Why the engine does not parse code: the place that it says, or a better one.
    pub(super) fn explain_syntax(
        &self,
        code: &str,
        modules: &[Importable],
        message: String,
        line: Option<u32>,
        wanted: Wanted<'_>,
    ) -> Error {
        let question = Question::ExplainSyntax { code: code.into(), modules: modules.into(), message: message.clone(), line };
        self.syntax(&question, wanted).unwrap_or(Error::CodeSyntax { message, line, column: None })
    }

    /// What was called at this line that its module does not have.
    pub(super) fn explain_not_a_function(&self, code: &str, modules: &[Importable], line: u32, wanted: Wanted<'_>) -> Option<String> {
        match self.ask(&Question::ExplainNotAFunction { code: code.into(), modules: modules.into(), line }, wanted) {
            Ok(Some(Answer::Text { text })) => Some(text),
            _ => None,
        }
    }

    fn syntax(&self, question: &Question<'_>, wanted: Wanted<'_>) -> Option<Error> {
        match self.ask(question, wanted) {
            Ok(Some(Answer::Syntax { message, line, column })) => Some(Error::CodeSyntax { message, line, column }),
            _ => None,
        }
    }

    /// `None` where there is no answer: the process ended over it, took too long, or the answer was not wanted any more.
    fn ask(&self, question: &Question<'_>, wanted: Wanted<'_>) -> Result<Option<Answer>> {
        let Some(_place) = self.place(wanted) else { return Ok(None) };
        let waiting = self.idle().workers.pop();
        if let Some(worker) = waiting {
            match self.look(worker, question, wanted) {
                // It may have been ended from outside while it waited: that says nothing of the code.
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {}
                answer => return Ok(answer.ok()),
            }
        }
        let answer = self.look(self.start()?, question, wanted);
        Ok(answer.inspect_err(|error| tracing::debug!(%error, "code was not looked at")).ok())
    }

    fn look(&self, mut worker: Worker, question: &Question<'_>, wanted: Wanted<'_>) -> io::Result<Answer> {
        worker.send(question)?;
        let answer = worker.receive(wanted)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.keep(worker);
        Ok(answer)
    }

    /// Waits for a place, for as long as the answer is wanted.
    fn place(&self, wanted: Wanted<'_>) -> Option<Place<'_>> {
        let mut looks = self.looks();
        while *looks >= MAX_LOOKS {
            if !wanted() {
                return None;
            }
            (looks, _) = self.ended.wait_timeout(looks, WAIT).unwrap_or_else(PoisonError::into_inner);
        }
        *looks += 1;
        Some(Place(self))
    }

    fn looks(&self) -> MutexGuard<'_, usize> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Result<Worker> {
        Worker::start(&self.program).map_err(|error| Error::io(format!("the program that reads code ({})", self.program.display()), &error))
    }

    fn keep(&self, worker: Worker) {
        let mut idle = self.idle();
        if !idle.closed && idle.workers.len() < MAX_IDLE {
            idle.workers.push(worker);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Worker {
    fn start(program: &PathBuf) -> io::Result<Self> {
        let mut process = Command::new(program)
            .env_clear()
            .current_dir("/")
            // What a terminal sends to Node's group is not meant for it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What a parser says as it panics is of use to nobody.
            .stderr(Stdio::null())
            .spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { process, input, output }),
            _ => Err(io::Error::other("a child without pipes")),
        }
    }

    fn send(&mut self, question: &Question<'_>) -> io::Result<()> {
        // In one piece: the process reads it whole before it does anything else.
        let mut frame = Vec::new();
        write_frame(&mut frame, question)?;
        self.input.write_all(&frame)
    }

    fn receive(&mut self, wanted: Wanted<'_>) -> io::Result<Option<Answer>> {
        let deadline = Instant::now() + LOOK_LIMIT;
        loop {
            let mut pipe = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut pipe, Some(&POLL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return read_frame(&mut self.output),
                Err(error) => return Err(error.into()),
            }
            if !wanted() || Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has nothing to lose, and what was killed is gone at once.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
