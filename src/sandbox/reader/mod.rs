//! Parses agent code in a separate process, `hyperlight-mcp-reader`.
//!
//! The parser is made for code that people write, and it is recursive. If code is ambiguous, the parser tries several ways to parse the
//! code, and each needs memory. Hostile code can make the parser overflow its stack, run for minutes or use all memory. An agent's code may
//! be hostile, so a separate process parses the code, and that process may crash. The process has its own limits (`program.rs`), only two
//! pipes, and an empty environment.

mod program;
mod protocol;
mod read_code;
mod slots;

use parking_lot::{Mutex, MutexGuard};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use program::serve_reader;
use protocol::{Answer, Question, read_frame, write_frame};
use read_code::{ReadCode, ReadCodes};
pub use slots::ParseOwner;
use slots::ReaderSlots;

use super::script::{Importable, Problem};
use crate::error::{Error, Result};

/// The maximum time for parsing. Ordinary code takes a few milliseconds.
const PARSE_TIME_LIMIT: Duration = Duration::from_secs(5);
/// The interval at which the code checks whether the answer is still wanted.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The maximum number of idle processes that are kept for later questions.
const MAX_IDLE: usize = 2;

/// Sends questions about code to reader processes. If a process ends or does not answer, the code is treated as not parsed.
pub(super) struct ScriptReader {
    program: PathBuf,
    idle: Mutex<Idle>,
    slots: ReaderSlots,
    known: Mutex<ReadCodes>,
}

#[derive(Default)]
struct Idle {
    workers: Vec<Worker>,
    closed: bool,
}

/// The outcome of converting code to JavaScript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// The code is already JavaScript.
    AsItIs,
    /// The JavaScript of the code, without the types.
    Javascript(String),
    /// The code was not parsed, for one of these reasons: it is nested too deeply; too many questions were waiting; the process failed or
    /// took too long; the process was ended so that another owner's code could be parsed; or the answer was no longer wanted.
    Missed,
}

/// A callback that returns whether an answer is still wanted.
pub type StillWanted<'a> = &'a dyn Fn() -> bool;

/// The owner of the code in a question, and a callback that returns whether the answer is still wanted.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) owner: &'a ParseOwner,
    pub(super) wanted: StillWanted<'a>,
}

impl ScriptReader {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, idle: Mutex::default(), slots: ReaderSlots::default(), known: Mutex::default() }
    }

    /// Starts a process, unless there is an idle process.
    pub(super) fn warm_up(&self) -> Result<()> {
        if self.idle().workers.is_empty() {
            let worker = self.start()?;
            self.keep(worker);
        }
        Ok(())
    }

    /// Ends the idle processes. Processes that are parsing code continue.
    pub(super) fn rest(&self) {
        let workers = std::mem::take(&mut self.idle().workers);
        drop(workers);
    }

    /// Ends the idle processes. From now on, no idle processes are kept.
    pub(super) fn close(&self) {
        self.idle().closed = true;
        self.rest();
    }

    /// Converts code to JavaScript.
    ///
    /// # Errors
    /// `ERR_CODE_SYNTAX`; `ERR_IO` if the reader program cannot be started.
    pub(super) fn to_javascript(&self, code: &str, asker: Asker<'_>) -> Result<Reading> {
        let digest = ReadCodes::digest(code);
        let known = self.known.lock().get(&digest);
        let read = match known {
            Some(read) => read,
            None => match self.ask(&Question::ToJavascript { code: code.into() }, asker)? {
                Some(Answer::Javascript { code }) => ReadCode::Javascript(code),
                Some(Answer::AsItIs) => ReadCode::AsItIs,
                Some(Answer::Syntax { message, line, column }) => return Err(Error::CodeSyntax { message: message.into(), line, column }),
                // This result is not cached, because the next attempt may succeed.
                _ => return Ok(Reading::Missed),
            },
        };
        self.known.lock().insert(digest, read.clone());
        Ok(match read {
            ReadCode::AsItIs => Reading::AsItIs,
            ReadCode::Javascript(code) => Reading::Javascript(code),
        })
    }

    /// Returns all problems of code, or `None` if the code was not parsed.
    ///
    /// # Errors
    /// `ERR_IO` if the reader program cannot be started.
    pub(super) fn check(&self, code: &str, modules: &[Importable], asker: Asker<'_>) -> Result<Option<Vec<Problem>>> {
        match self.ask(&Question::Check { code: code.into(), modules: modules.into() }, asker)? {
            Some(Answer::Problems { problems }) => Ok(Some(problems)),
            _ => Ok(None),
        }
    }

    /// Returns the problems in the body of an async function with these parameters. Returns `None` if the body was not parsed.
    ///
    /// # Errors
    /// `ERR_IO` if the reader program cannot be started.
    pub(super) fn check_body(&self, body: &str, parameters: &[&str], globals: &[&str], asker: Asker<'_>) -> Result<Option<Vec<String>>> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned().into()).collect::<Vec<_>>().into();
        let question = Question::CheckBody { body: body.into(), parameters: names(parameters), globals: names(globals) };
        match self.ask(&question, asker)? {
            Some(Answer::Sentences { sentences }) => Ok(Some(sentences)),
            _ => Ok(None),
        }
    }

    /// Returns an error that explains why code did not load.
    pub(super) fn explain_load(&self, code: &str, modules: &[Importable], asker: Asker<'_>) -> Option<Error> {
        self.syntax(&Question::ExplainLoad { code: code.into(), modules: modules.into() }, asker)
    }

    /// Returns an error that explains why the engine cannot parse code. The position in this error is more exact than the engine's
    /// position.
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

    /// Finds the call in this line whose function does not exist in the function's module. Returns a description of the problem.
    pub(super) fn explain_not_a_function(&self, code: &str, modules: &[Importable], line: u32, asker: Asker<'_>) -> Option<String> {
        match self.ask(&Question::ExplainNotAFunction { code: code.into(), modules: modules.into(), line }, asker) {
            Ok(Some(Answer::Text { text })) => Some(text),
            _ => None,
        }
    }

    fn syntax(&self, question: &Question<'_>, asker: Asker<'_>) -> Option<Error> {
        match self.ask(question, asker) {
            Ok(Some(Answer::Syntax { message, line, column })) => Some(Error::CodeSyntax { message: message.into(), line, column }),
            _ => None,
        }
    }

    /// Sends a question to a process. Returns `None` if there is no answer: too many questions were waiting, the process ended, took too
    /// long or was ended so that another owner's code could be parsed, or the answer was no longer wanted.
    fn ask(&self, question: &Question<'_>, asker: Asker<'_>) -> Result<Option<Answer>> {
        let Some(slot) = self.slots.take(asker.owner, asker.wanted) else { return Ok(None) };
        let wanted = &|| (asker.wanted)() && !slot.must_end();
        let waiting = self.idle().workers.pop();
        if let Some(worker) = waiting {
            match self.ask_worker(worker, question, wanted) {
                // Something outside may have killed the idle process, so this failure says nothing about the code. A new process gets the
                // question.
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {}
                answer => return Ok(answer.ok()),
            }
        }
        let answer = self.ask_worker(self.start()?, question, wanted);
        Ok(answer.inspect_err(|error| tracing::debug!(%error, "code was not parsed")).ok())
    }

    fn ask_worker(&self, mut worker: Worker, question: &Question<'_>, wanted: StillWanted<'_>) -> io::Result<Answer> {
        worker.send(question)?;
        let answer = worker.receive(wanted)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.keep(worker);
        Ok(answer)
    }

    fn start(&self) -> Result<Worker> {
        Worker::start(&self.program).map_err(|error| Error::io(format!("the reader program {}", self.program.display()), &error))
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
            // The worker gets its own process group, so that signals from a terminal to Node's group do not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Panic messages of the parser are not needed.
            .stderr(Stdio::null())
            .spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { process, input, output }),
            _ => Err(io::Error::other("the reader process has no pipes")),
        }
    }

    fn send(&mut self, question: &Question<'_>) -> io::Result<()> {
        // The frame is written with one call. The process reads the complete question before it does anything else.
        let mut frame = Vec::new();
        write_frame(&mut frame, question)?;
        self.input.write_all(&frame)
    }

    fn receive(&mut self, wanted: StillWanted<'_>) -> io::Result<Option<Answer>> {
        let deadline = Instant::now() + PARSE_TIME_LIMIT;
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
        // Killing is safe and ends the process immediately, because the process has no state to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
