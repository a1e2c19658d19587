//! The reader program. It answers questions until its input ends.

use std::io::{self, BufReader};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::PARSE_TIME_LIMIT;
use super::protocol::{Answer, Question, read_frame, write_frame};
use crate::error::Error;
use crate::sandbox::script::{body_problems, checked, explain_load, explain_not_a_function, explain_syntax, to_javascript};

/// The limit on the process's address space in bytes. It includes the stack for the deepest code that is parsed. If the process needs more
/// memory, it ends.
const MAX_ADDRESS_SPACE: u64 = 640 << 20;
/// The time after which the process ends itself. The asking process stops waiting much earlier.
const PATIENCE: Duration = PARSE_TIME_LIMIT.saturating_mul(4);
/// The interval at which the process checks whether the asking process has ended.
const POLL: Duration = Duration::from_millis(100);

/// Runs the program `hyperlight-mcp-reader`: reads questions about code from standard input, one after another, and writes the answers to
/// standard output. Returns at the end of the input, or with an error if parsing does not end.
///
/// # Errors
/// The I/O error if reading or writing fails.
///
/// ```no_run
/// hyperlight_mcp::sandbox::serve_reader().unwrap();
/// ```
pub fn serve_reader() -> io::Result<()> {
    let limit = Some(MAX_ADDRESS_SPACE);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit })?;
    // If the code crashes the process, no core dump must be written.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let mut input = BufReader::new(io::stdin().lock());
    let (questions, inbox) = mpsc::channel::<Question<'static>>();
    let (outbox, answers) = mpsc::channel();
    std::thread::spawn(move || {
        for question in inbox {
            let _ = outbox.send(answer(&question));
        }
    });
    while let Some(question) = read_frame(&mut input)? {
        questions.send(question).map_err(io::Error::other)?;
        let answer = wait_for(&answers)?;
        write_frame(&mut io::stdout().lock(), &answer)?;
    }
    Ok(())
}

fn wait_for(answers: &mpsc::Receiver<Answer>) -> io::Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match answers.recv_timeout(POLL) {
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline && !input_is_closed() => {}
            answer => return answer.map_err(io::Error::other),
        }
    }
}

/// Returns whether the other end of standard input is closed. If it is, Node has ended.
fn input_is_closed() -> bool {
    let stdin = io::stdin();
    // `poll` always reports a closed end, even if no events were requested.
    let mut pipe = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut pipe, Some(&Timespec::default())).is_ok_and(|_| pipe[0].revents().contains(PollFlags::HUP))
}

fn answer(question: &Question<'_>) -> Answer {
    match question {
        Question::ToJavascript { code } => match to_javascript(code) {
            Ok(Some(javascript)) if javascript == *code => Answer::AsItIs,
            Ok(Some(javascript)) => Answer::Javascript { code: javascript.into_owned() },
            Ok(None) => Answer::Nothing,
            Err(error) => syntax(Some(error)),
        },
        Question::Check { code, modules } => checked(code, modules).map_or(Answer::Nothing, |problems| Answer::Problems { problems }),
        Question::ExplainLoad { code, modules } => syntax(explain_load(code, modules)),
        Question::ExplainSyntax { code, modules, message, line } => syntax(Some(explain_syntax(code, modules, message.clone(), *line))),
        Question::ExplainNotAFunction { code, modules, line } => {
            explain_not_a_function(code, modules, *line).map_or(Answer::Nothing, |text| Answer::Text { text })
        }
        Question::CheckBody { body, parameters, globals } => {
            body_problems(body, parameters, globals).map_or(Answer::Nothing, |sentences| Answer::Sentences { sentences })
        }
    }
}

fn syntax(error: Option<Error>) -> Answer {
    match error {
        Some(Error::CodeSyntax { message, line, column }) => Answer::Syntax { message: message.shown().to_owned(), line, column },
        _ => Answer::Nothing,
    }
}
