//! The program that computes vectors, as a process. Its answers are not trusted: each answer must come before a deadline, must not be
//! longer than a maximum, and must contain the number of its question and exactly one vector.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::vector::{DIMENSIONS, Vector};

/// The name of the model for which the constants of the ranking were measured.
const MODEL: &str = "all-MiniLM-L6-v2-int8";
/// The maximum time until the model is loaded. Loading takes about 0.3 s on a machine without other work.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The maximum time for one vector. Computing a vector takes about 25 ms.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The maximum length of a line in bytes. A vector needs at most 2 KB.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// The maximum number of bytes of a text that are sent. The model reads only the first 256 tokens, which are about 1 KB of English text.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// The interval between two checks whether the answer is still wanted.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

#[derive(Deserialize)]
struct Hello {
    model: String,
    dimensions: usize,
}

#[derive(Serialize)]
struct Question<'a> {
    id: u64,
    text: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    id: u64,
    vector: Vec<i8>,
}

/// A running program. It is killed when the value is dropped.
pub(super) struct Program {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Bytes that were already read after the end of the last line.
    unread: Vec<u8>,
    questions: u64,
}

impl Program {
    /// Starts the program, and waits until it has loaded the model, or until `wanted` returns false.
    pub(super) fn start(path: &Path, wanted: &dyn Fn() -> bool) -> io::Result<Self> {
        let mut process = Command::new(path)
            .env_clear()
            .current_dir("/")
            // The process gets its own process group, so that signals from a terminal to Node's group do not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("its process has no pipes"));
        };
        // A program that does not read its input must not block this thread.
        rustix::io::ioctl_fionbio(&input, true)?;
        let mut program = Self { process, input, output, unread: Vec::new(), questions: 0 };
        let wait = Wait { deadline: Instant::now() + START_LIMIT, limit: START_LIMIT, wanted };
        let hello: Hello = parsed(&program.line(&wait)?)?;
        if hello.model == MODEL && hello.dimensions == DIMENSIONS { Ok(program) } else { Err(wrong("it has another model")) }
    }

    /// Returns the vector of a text, or `None` if the model cannot read the text. After an error the program must not be used again.
    pub(super) fn vector(&mut self, text: &str, wanted: &dyn Fn() -> bool) -> io::Result<Option<Vector>> {
        self.questions += 1;
        if !self.unread.is_empty() {
            return Err(wrong("it answered without a question"));
        }
        let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let mut question = serde_json::to_vec(&Question { id: self.questions, text })?;
        question.push(b'\n');
        let wait = Wait { deadline: Instant::now() + ANSWER_LIMIT, limit: ANSWER_LIMIT, wanted };
        self.send(&question, &wait)?;
        let answer: Answer = parsed(&self.line(&wait)?)?;
        if answer.id != self.questions {
            return Err(wrong("it answered another question"));
        }
        if answer.vector.is_empty() {
            return Ok(None);
        }
        Vector::new(&answer.vector).map(Some).ok_or_else(|| wrong("its answer has no vector of the right length"))
    }

    fn send(&mut self, mut question: &[u8], wait: &Wait<'_>) -> io::Result<()> {
        while !question.is_empty() {
            match self.input.write(question) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => question = &question[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait.until(PollFd::new(&self.input, PollFlags::OUT))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn line(&mut self, wait: &Wait<'_>) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Ok(self.unread.drain(..=end).collect());
            }
            if self.unread.len() >= MAX_LINE_BYTES {
                return Err(wrong("its answer is too long"));
            }
            wait.until(PollFd::new(&self.output, PollFlags::IN))?;
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; MAX_LINE_BYTES];
        match self.output.read(&mut bytes)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended")),
            count => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

/// The limits of waiting for an answer: a deadline, and a check whether the answer is still wanted.
struct Wait<'a> {
    deadline: Instant,
    limit: Duration,
    wanted: &'a dyn Fn() -> bool,
}

impl Wait<'_> {
    /// Waits until a pipe is ready. Fails if the time is over, or if the answer is no longer wanted. The time is checked first, because the
    /// pipe of a program that writes without end is always ready.
    fn until(&self, pipe: PollFd<'_>) -> io::Result<()> {
        let mut pipe = [pipe];
        loop {
            if !(self.wanted)() || Instant::now() >= self.deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it did not answer within {} s", self.limit.as_secs())));
            }
            match poll(&mut pipe, Some(&POLL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process has no state to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn parsed<'a, T: Deserialize<'a>>(line: &'a [u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|_| wrong("its answer is not what was expected"))
}

fn wrong(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
