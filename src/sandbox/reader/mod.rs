//! Agent code is read by a process of its own: `hyperlight-mcp-reader`.
//!
//! The parser was written for code that people wrote. It recurses, tries one reading after the other, and takes memory for each: there
//! is code that makes it overrun its stack, take minutes or all memory. An agent's code is an attacker's; the process in which it is
//! read is one that may end. It has bounds of its own (`program.rs`), nothing but two pipes, and gets no environment.

mod places;
mod program;
mod protocol;
mod read_code;

use parking_lot::{Mutex, MutexGuard};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use places::LookOwner;
use places::Places;
pub use program::serve_reader;
use protocol::{Answer, Question, read_frame, write_frame};
use read_code::{ReadCode, ReadCodes};

use super::script::{Importable, Problem};
use crate::error::{Error, Result};

/// What a look at code may take. Code as people write it takes a few milliseconds.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// How soon it is seen that the answer is not wanted any more.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Processes that are kept for the next question.
const MAX_IDLE: usize = 2;

/// Asks processes about code. Where one ends or does not answer, the code has not been looked at.
pub(super) struct ScriptReader {
    program: PathBuf,
    idle: Mutex<Idle>,
    places: Places,
    known: Mutex<ReadCodes>,
}

#[derive(Default)]
struct Idle {
    workers: Vec<Worker>,
    closed: bool,
}

/// What came of a look at code as JavaScript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// It is JavaScript.
    AsItIs,
    /// It is this without its types.
    Javascript(String),
    /// It was not looked at: it nests too deeply; a reader failed over it, took too long or gave way to others; or the answer was not wanted
    /// any more.
    Missed,
}

/// Whether an answer is still wanted.
pub type Wanted<'a> = &'a dyn Fn() -> bool;

/// Who asks about code.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) owner: &'a LookOwner,
    pub(super) wanted: Wanted<'a>,
}

impl ScriptReader {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, idle: Mutex::default(), places: Places::default(), known: Mutex::default() }
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

    /// The code as JavaScript.
    ///
    /// # Errors
    /// `ERR_CODE_SYNTAX`; `ERR_IO` where the program cannot be started.
    pub(super) fn to_javascript(&self, code: &str, asker: Asker<'_>) -> Result<Reading> {
        let digest = ReadCodes::digest(code);
        let known = self.known.lock().get(&digest);
        let read = match known {
            Some(read) => read,
            None => match self.ask(&Question::ToJavascript { code: code.into() }, asker)? {
                Some(Answer::Javascript { code }) => ReadCode::Javascript(code),
                Some(Answer::AsItIs) => ReadCode::AsItIs,
                Some(Answer::Syntax { message, line, column }) => return Err(Error::CodeSyntax { message, line, column }),
                // Another time it may be looked at.
                _ => return Ok(Reading::Missed),
            },
        };
        self.known.lock().insert(digest, read.clone());
        Ok(match read {
            ReadCode::AsItIs => Reading::AsItIs,
            ReadCode::Javascript(code) => Reading::Javascript(code),
        })
    }

    /// All that is wrong with code; `None` for code that was not looked at.
    ///
    /// # Errors
    /// `ERR_IO` where the program cannot be started.
    pub(super) fn check(&self, code: &str, modules: &[Importable], asker: Asker<'_>) -> Result<Option<Vec<Problem>>> {
        match self.ask(&Question::Check { code: code.into(), modules: modules.into() }, asker)? {
            Some(Answer::Problems { problems }) => Ok(Some(problems)),
            _ => Ok(None),
        }
    }

    /// Why code did not load.
    pub(super) fn explain_load(&self, code: &str, modules: &[Importable], asker: Asker<'_>) -> Option<Error> {
        self.syntax(&Question::ExplainLoad { code: code.into(), modules: modules.into() }, asker)
    }

    /// Why the engine does not parse code: a better place than the one that it says.
    pub(super) fn explain_syntax(
        &self,
        code: &str,
        modules: &[Importable],
        message: &str,
        line: Option<u32>,
        asker: Asker<'_>,
    ) -> Option<Error> {
        let question = Question::ExplainSyntax { code: code.into(), modules: modules.into(), message: message.to_owned(), line };
        self.syntax(&question, asker)
    }

    /// What was called at this line that its module does not have.
    pub(super) fn explain_not_a_function(&self, code: &str, modules: &[Importable], line: u32, asker: Asker<'_>) -> Option<String> {
        match self.ask(&Question::ExplainNotAFunction { code: code.into(), modules: modules.into(), line }, asker) {
            Ok(Some(Answer::Text { text })) => Some(text),
            _ => None,
        }
    }

    fn syntax(&self, question: &Question<'_>, asker: Asker<'_>) -> Option<Error> {
        match self.ask(question, asker) {
            Ok(Some(Answer::Syntax { message, line, column })) => Some(Error::CodeSyntax { message, line, column }),
            _ => None,
        }
    }

    /// `None` where there is no answer: the process ended over it, took too long or gave way to others, or the answer was not wanted any
    /// more.
    fn ask(&self, question: &Question<'_>, asker: Asker<'_>) -> Result<Option<Answer>> {
        let Some(place) = self.places.take(asker.owner, asker.wanted) else { return Ok(None) };
        let wanted = &|| (asker.wanted)() && !place.must_end();
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
        self.idle.lock()
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
