//! Standard input, output and error: what is written where, and how a person is asked.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use serde_json::Value as Json;

use super::args::ColorChoice;
use super::foreign::behind;
use crate::command::{Style, Tone};
use crate::text::{is_unseen, sanitise_line};

/// What a person can type in one answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// What this process has for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screens {
    pub input: bool,
    pub output: bool,
    pub error: bool,
    /// Columns, where one of them is a terminal.
    pub columns: Option<usize>,
}

impl Screens {
    /// As it is for this process. `columns`: as Node knows them.
    #[must_use]
    pub fn of_this_process(columns: Option<usize>) -> Self {
        Self { input: io::stdin().is_terminal(), output: io::stdout().is_terminal(), error: io::stderr().is_terminal(), columns }
    }

    /// Whether there is somebody who reads questions and types answers.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.input && self.error
    }
}

/// What the screen's last line is taken by.
#[derive(Default)]
struct LastLine {
    /// Words about progress, which make way for anything.
    progress: bool,
    /// A question that somebody is answering.
    question: bool,
}

/// What became of standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutputEnd {
    /// Whoever read it has read enough, as `head` does: no failure.
    Closed,
    /// Something is lost, and why.
    Failed(String),
}

/// The three streams. An error of standard error ends nothing: there is nobody to tell.
pub(super) struct Terminal {
    pub(super) screens: Screens,
    pub(super) out: Style,
    pub(super) err: Style,
    /// What stands on the screen's last line. Held while something is written.
    last_line: Mutex<LastLine>,
    /// Where standard output takes nothing any more.
    output_end: OnceLock<OutputEnd>,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
    /// How the terminal was before it was told to hide what is typed.
    visible: Mutex<Option<Termios>>,
}

impl Terminal {
    pub(super) fn new(screens: Screens, color: ColorChoice, environment: &BTreeMap<String, String>) -> Self {
        // https://no-color.org: present and not empty.
        let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty())
            || environment.get("TERM").is_some_and(|term| term == "dumb");
        let wanted = |is_screen: bool| match color {
            ColorChoice::Auto => is_screen && !plain,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self {
            screens,
            out: Style::new(wanted(screens.output), screens.columns),
            err: Style::new(wanted(screens.error), screens.columns),
            last_line: Mutex::default(),
            output_end: OnceLock::new(),
            asking: tokio::sync::Mutex::default(),
            visible: Mutex::default(),
        }
    }

    /// To standard output, as it is.
    pub(super) fn print(&self, text: &str) {
        if self.output_end.get().is_some() {
            return;
        }
        let written = self.write(text, |text| io::stdout().lock().write_all(text).and_then(|()| io::stdout().flush()));
        if let Err(error) = written {
            let _ = self.output_end.set(match error.kind() {
                io::ErrorKind::BrokenPipe => OutputEnd::Closed,
                _ => OutputEnd::Failed(error.to_string()),
            });
        }
    }

    /// Whether standard output takes nothing any more. Looks at a pipe, too, that nothing was written to.
    pub(super) fn output_end(&self) -> Option<&OutputEnd> {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR) {
            let _ = self.output_end.set(OutputEnd::Closed);
        }
        self.output_end.get()
    }

    /// To standard output, as a document of its own. What would drive a terminal is written as numbers.
    pub(super) fn print_json(&self, json: &Json) {
        self.print(&format!("{}\n", json_text(json)));
    }

    /// To standard error.
    pub(super) fn say(&self, text: &str) {
        let _ = self.write(text, |text| io::stderr().lock().write_all(text));
    }

    /// To standard error: a word of ours in the colour of its meaning, and what others may have written.
    pub(super) fn note(&self, tone: Tone, word: &str, text: &str) {
        self.note_own(tone, word, &behind(text));
    }

    /// The same for a text whose lines are ours.
    pub(super) fn note_own(&self, tone: Tone, word: &str, text: &str) {
        self.say(&format!("{} {text}\n", self.err.paint(tone, word)));
    }

    /// What goes on, in a line that the next one takes the place of; only on a terminal.
    pub(super) fn progress(&self, text: &str) {
        if !self.screens.error {
            return;
        }
        let line = sanitise_line(text, self.err.width.saturating_sub(2));
        let mut last = self.last_line();
        if last.question {
            return;
        }
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", self.err.paint(Tone::Quiet, &line));
        let _ = io::stderr().flush();
        last.progress = true;
    }

    fn last_line(&self) -> MutexGuard<'_, LastLine> {
        self.last_line.lock()
    }

    fn write(&self, text: &str, write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut last = self.last_line();
        if std::mem::take(&mut last.progress) {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
        write(text.as_bytes())
    }

    /// A person's answer, without its end of line; `None` where the input has ended.
    pub(super) async fn ask(&self, question: &str) -> Option<String> {
        let _turn = self.asking.lock().await;
        self.answer(question).await
    }

    /// The same for what must not be seen on the screen.
    pub(super) async fn ask_secret(&self, question: &str) -> Option<String> {
        let _turn = self.asking.lock().await;
        let hidden = Hidden::begin(self);
        let answer = self.answer(question).await;
        drop(hidden);
        // The end of the line was not shown either; where the input has ended, it was.
        if answer.is_some() {
            self.say("\n");
        }
        answer
    }

    /// Asks, and reads one line. Only what is typed after the question stands there is an answer to it.
    async fn answer(&self, question: &str) -> Option<String> {
        if self.screens.input {
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
        let asked = Asked::begin(self);
        self.say(question);
        let (sender, answer) = tokio::sync::oneshot::channel();
        // A thread that waits for a person for ever must hold nothing up.
        let read = move || {
            let mut line = String::new();
            let read = io::stdin().lock().take(MAX_ANSWER_BYTES).read_line(&mut line);
            let _ = sender.send(read.is_ok_and(|bytes| bytes > 0).then_some(line));
        };
        std::thread::Builder::new().name("hyperlight-mcp-ask".to_owned()).spawn(read).ok()?;
        let line = answer.await.ok().flatten();
        drop(asked);
        if line.is_none() {
            self.say("\n");
        }
        line.map(|line| line.trim().to_owned())
    }

    /// Before the program ends, which may be in the middle of a question.
    pub(super) fn leave(&self) {
        self.show_typing();
        self.say("");
    }

    fn show_typing(&self) {
        if let Some(visible) = self.visible.lock().take() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &visible);
        }
    }

    /// Whether a person says yes; all else is no.
    pub(super) async fn confirm(&self, question: &str) -> bool {
        let answer = self.ask(&format!("{question} [y/N] ")).await.unwrap_or_default();
        matches!(answer.to_lowercase().as_str(), "y" | "yes")
    }
}

/// While this lives, nothing about progress is written into the line that somebody types in.
struct Asked<'t>(&'t Terminal);

impl<'t> Asked<'t> {
    fn begin(terminal: &'t Terminal) -> Self {
        terminal.last_line().question = true;
        Self(terminal)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.last_line().question = false;
    }
}

/// While this lives, the terminal that is standard input does not show what is typed. Where there is none, there is nothing to hide.
struct Hidden<'t>(&'t Terminal);

impl<'t> Hidden<'t> {
    fn begin(terminal: &'t Terminal) -> Self {
        if let Ok(visible) = tcgetattr(io::stdin()) {
            let mut hidden = visible.clone();
            hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
            // Kept before it is changed: Ctrl-C may come in between.
            *terminal.visible.lock() = Some(visible);
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &hidden);
        }
        Self(terminal)
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.0.show_typing();
    }
}

/// JSON for reading. Control characters beyond ASCII, and what cannot be seen, become escapes: it stays the same JSON.
///
/// ```
/// let json = serde_json::json!({ "a": "x\u{202e}y" });
/// assert_eq!(hyperlight_mcp::cli::json_text(&json), "{\n  \"a\": \"x\\u202ey\"\n}");
/// ```
#[must_use]
pub fn json_text(json: &Json) -> String {
    let text = serde_json::to_string_pretty(json).unwrap_or_else(|_| "null".to_owned());
    let drives = |character: char| matches!(character, '\u{7f}'..='\u{9f}') || is_unseen(character);
    if !text.contains(drives) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if drives(character) {
            // Beyond the first plane JSON has two numbers for a character.
            out.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_what_cannot_be_seen_is_the_same_json() {
        let json = serde_json::json!({ "a": "x\u{e0041}\u{fe0f}\u{61c}\u{180e}\u{9b}\u{2028}y", "天気": "é" });
        let text = json_text(&json);
        assert!(
            !text.contains(is_unseen) && text.contains("x\\udb40\\udc41\\ufe0f\\u061c\\u180e\\u009b\\u2028y") && text.contains("天気"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), json);
    }
}
