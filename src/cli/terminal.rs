//! Standard input, output and error: prints text, shows progress, and asks a person.

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use serde_json::Value as Json;

use super::args::ColorChoice;
use super::held_output::{HeldOutput, Stream};
use super::typed_line;
use super::untrusted::{CONTINUED, indented, without_controls};
use crate::command::{MIN_WIDTH, Style, Tone, columns_in};
use crate::text::{is_unseen, sanitise_line};

/// The standard streams of this process that are terminals, and the width of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screens {
    pub input: bool,
    pub output: bool,
    pub error: bool,
    /// Width of the terminal in columns, if it is known.
    pub columns: Option<usize>,
}

impl Screens {
    /// Checks which streams of this process are terminals. `columns` is the width that Node reports.
    #[must_use]
    pub fn of_this_process(columns: Option<usize>) -> Self {
        Self { input: io::stdin().is_terminal(), output: io::stdout().is_terminal(), error: io::stderr().is_terminal(), columns }
    }

    /// Returns whether a person can read a question and type an answer.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.input && self.error && self.too_few_columns().is_none()
    }

    /// Returns the width of the terminal if it is too narrow for a question.
    pub(super) fn too_few_columns(&self) -> Option<usize> {
        self.columns.filter(|columns| (1..MIN_WIDTH).contains(columns) && (self.output || self.error))
    }
}

/// The state of the screen.
#[derive(Default)]
struct Screen {
    /// True if the last line shows progress. The next output replaces this line.
    progress: bool,
    /// Output that is held back until the open question is answered. `None` if no question is open.
    held: Option<HeldOutput>,
}

/// The reason why nothing more can be written to standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutputEnd {
    /// The reader has closed the output, as `head` does. This is not a failure.
    Closed,
    /// Output was lost. The text is the reason.
    Failed(String),
}

/// The three standard streams. Ignores errors of standard error, as they cannot be reported.
pub(super) struct Terminal {
    pub(super) screens: Screens,
    pub(super) out: Style,
    pub(super) err: Style,
    /// The state of the screen. Its lock is held during each write.
    screen: Mutex<Screen>,
    /// Set when nothing more can be written to standard output.
    output_end: OnceLock<OutputEnd>,
    /// Ensures that only one question is asked at a time.
    asking: tokio::sync::Mutex<()>,
    /// The settings of the terminal from before typed text was hidden. `None` while typed text is visible.
    visible: Mutex<Option<Termios>>,
}

impl Terminal {
    pub(super) fn new(screens: Screens, color: ColorChoice, environment: &BTreeMap<String, String>) -> Self {
        // According to https://no-color.org, the variable is valid if it is set and not empty.
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
            screen: Mutex::default(),
            output_end: OnceLock::new(),
            asking: tokio::sync::Mutex::default(),
            visible: Mutex::default(),
        }
    }

    /// Returns the layout of standard output for lines that programs search, such as those of a log. In a file or a pipe, no line is broken.
    pub(super) fn unbroken(&self) -> Style {
        if self.screens.output { self.out } else { Style { width: usize::MAX, ..self.out } }
    }

    /// Prints text on standard output. A file or a pipe gets the text unchanged. A terminal gets it without control characters, and only
    /// after the answer if a question is open.
    pub(super) fn print(&self, text: &str) {
        if !self.screens.output {
            return self.print_now(text);
        }
        let text = without_controls(text);
        if !self.is_held(Stream::Output, &text) {
            self.print_now(&text);
        }
    }

    fn print_now(&self, text: &str) {
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

    /// Returns the reason if nothing more can be written to standard output. Also detects a closed pipe before the next write.
    pub(super) fn output_end(&self) -> Option<&OutputEnd> {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR) {
            let _ = self.output_end.set(OutputEnd::Closed);
        }
        self.output_end.get()
    }

    /// Prints a JSON document on standard output. Escapes control characters and invisible characters.
    pub(super) fn print_json(&self, json: &Json) {
        self.print_json_text(&format!("{}\n", json_text(json)));
    }

    /// Prints a JSON document on one line of standard output.
    pub(super) fn print_json_line(&self, json: &Json) {
        self.print_json_text(&format!("{}\n", json_line(json)));
    }

    /// Prints the text of JSON documents on standard output. On a terminal, each row that continues a line has a mark. A file or a pipe gets
    /// the text unchanged, because programs read it.
    pub(super) fn print_json_text(&self, json: &str) {
        if self.screens.output { self.print(&broken_json(&self.out, json)) } else { self.print(json) }
    }

    /// Prints text on standard error. A terminal gets it without control characters, and only after the answer if a question is open.
    pub(super) fn say(&self, text: &str) {
        if self.screens.error && self.is_held(Stream::Error, text) {
            return;
        }
        self.say_now(text);
    }

    fn say_now(&self, text: &str) {
        let text = &*if self.screens.error { without_controls(text) } else { Cow::Borrowed(text) };
        let _ = self.write(text, |text| io::stderr().lock().write_all(text));
    }

    /// Holds back other output while a question is open. Otherwise the output could look like a part of the question, and a person could
    /// type an answer to it. Returns whether the text was held back.
    fn is_held(&self, stream: Stream, text: &str) -> bool {
        let mut screen = self.screen();
        let Some(held) = &mut screen.held else { return false };
        held.keep(stream, text);
        true
    }

    /// Prints a coloured word and untrusted text on standard error.
    pub(super) fn note(&self, tone: Tone, word: &str, text: &str) {
        self.note_own(tone, word, &self.after_word(word, text));
    }

    /// Formats untrusted text that is printed on standard error after `used` columns. Each further row has a mark.
    pub(super) fn marked(&self, used: usize, text: &str) -> String {
        indented(self.screens.error.then_some(&self.err), used, text)
    }

    /// Formats lines that may be too long for the terminal. Only the rows that continue a line have a mark.
    pub(super) fn marked_lines(&self, used: usize, text: &str) -> String {
        let lines = text.split('\n').enumerate();
        lines.map(|(index, line)| self.marked(if index == 0 { used } else { 0 }, line)).collect::<Vec<_>>().join("\n")
    }

    /// Breaks the lines of a JSON document that are too long for the terminal of standard error.
    pub(super) fn broken(&self, json: &str) -> String {
        if self.screens.error { broken_json(&self.err, json) } else { json.to_owned() }
    }

    /// Formats untrusted text that is printed by [`Self::note_own`] after this word.
    pub(super) fn after_word(&self, word: &str, text: &str) -> String {
        self.marked(columns_in(word) + 1, text)
    }

    /// Prints a coloured word and trusted text on standard error.
    pub(super) fn note_own(&self, tone: Tone, word: &str, text: &str) {
        self.say(&format!("{} {text}\n", self.err.paint(tone, word)));
    }

    /// Shows progress on a line that the next output replaces. Does nothing if standard error is not a terminal.
    pub(super) fn progress(&self, text: &str) {
        if !self.screens.error {
            return;
        }
        // A second row would stay on the screen, and could look like a line of this program.
        let line = sanitise_line(text, self.err.width.saturating_sub(2));
        let line = self.err.broken(" ", "", &line).swap_remove(0);
        let line = line.trim_start();
        let mut screen = self.screen();
        if screen.held.is_some() {
            return;
        }
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", self.err.paint(Tone::Quiet, line));
        let _ = io::stderr().flush();
        screen.progress = true;
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock()
    }

    fn write(&self, text: &str, write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut screen = self.screen();
        if std::mem::take(&mut screen.progress) {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
        write(text.as_bytes())
    }

    /// Begins a dialog with the person: one or more questions that belong together. Other dialogs wait until this dialog ends, and other
    /// output appears after it.
    pub(super) async fn dialog(&self) -> Dialog<'_> {
        let turn = self.asking.lock().await;
        self.screen().held = Some(HeldOutput::default());
        Dialog { terminal: self, _turn: turn }
    }

    /// Asks for a secret. The typed answer does not appear on the screen.
    pub(super) async fn ask_secret(&self, question: &str) -> Option<String> {
        let dialog = self.dialog().await;
        let hidden = HiddenInput::begin(self);
        let answer = dialog.ask(question).await;
        drop(hidden);
        // The line break that ends the answer was not shown either, so one is printed. If the input has ended, `ask` has already printed
        // one.
        if answer.is_some() {
            dialog.say("\n");
        }
        answer
    }

    /// Restores the terminal before the program ends, even in the middle of a question.
    pub(super) fn leave(&self) {
        self.show_typing();
        self.say_now("");
    }

    fn show_typing(&self) {
        if let Some(visible) = self.visible.lock().take() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &visible);
        }
    }

    /// Returns whether a person answers yes. Any other answer means no.
    pub(super) async fn confirm(&self, question: &str) -> bool {
        self.dialog().await.confirm(question).await
    }
}

/// A dialog: questions that belong together. As long as the dialog exists, nothing else appears on the terminal. When the dialog is
/// dropped, the output that was held back is printed.
pub(super) struct Dialog<'t> {
    terminal: &'t Terminal,
    _turn: tokio::sync::MutexGuard<'t, ()>,
}

impl Dialog<'_> {
    /// Prints text on standard error as part of the dialog.
    pub(super) fn say(&self, text: &str) {
        self.terminal.say_now(text);
    }

    /// Asks a question and reads one line. Discards text that was typed before the question appeared. Returns `None` if the input has ended.
    pub(super) async fn ask(&self, question: &str) -> Option<String> {
        if self.terminal.screens.input {
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
        self.say(question);
        let line = typed_line::read().await;
        if line.is_none() {
            self.say("\n");
        }
        line.map(|line| line.trim().to_owned())
    }

    /// Returns whether a person answers yes. Any other answer means no.
    pub(super) async fn confirm(&self, question: &str) -> bool {
        let answer = self.ask(&format!("{question} [y/N] ")).await.unwrap_or_default();
        matches!(answer.to_lowercase().as_str(), "y" | "yes")
    }
}

impl Drop for Dialog<'_> {
    fn drop(&mut self) {
        let held = self.terminal.screen().held.take().unwrap_or_default();
        for (stream, text) in held.into_parts() {
            match stream {
                Stream::Output => self.terminal.print_now(&text),
                Stream::Error => self.terminal.say_now(&text),
            }
        }
    }
}

/// Hides typed text as long as it exists. Does nothing if standard input is not a terminal.
struct HiddenInput<'t>(&'t Terminal);

impl<'t> HiddenInput<'t> {
    fn begin(terminal: &'t Terminal) -> Self {
        if let Ok(visible) = tcgetattr(io::stdin()) {
            let mut hidden = visible.clone();
            hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
            // The settings are stored before they are changed, because Ctrl-C may occur in between.
            *terminal.visible.lock() = Some(visible);
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &hidden);
        }
        Self(terminal)
    }
}

impl Drop for HiddenInput<'_> {
    fn drop(&mut self) {
        self.0.show_typing();
    }
}

/// Breaks the lines of JSON documents that are too long for a terminal, without changing a character. Each row that continues a line has a mark:
/// the terminal itself would begin a row with any part of a text of others.
fn broken_json(style: &Style, json: &str) -> String {
    let rows: Vec<String> = json.split('\n').flat_map(|line| style.broken("", CONTINUED, line)).collect();
    rows.join("\n")
}

/// Formats JSON for a person. Escapes DEL, C1 control characters and invisible characters. The value stays the same.
///
/// ```
/// let json = serde_json::json!({ "a": "x\u{202e}y" });
/// assert_eq!(hyperlight_mcp::cli::json_text(&json), "{\n  \"a\": \"x\\u202ey\"\n}");
/// ```
#[must_use]
pub fn json_text(json: &Json) -> String {
    escaped(serde_json::to_string_pretty(json).unwrap_or_else(|_| "null".to_owned()))
}

/// Formats JSON like [`json_text`], but on one line.
pub(super) fn json_line(json: &Json) -> String {
    escaped(json.to_string())
}

fn escaped(text: String) -> String {
    let drives = |character: char| matches!(character, '\u{7f}'..='\u{9f}') || is_unseen(character);
    if !text.contains(drives) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if drives(character) {
            // In JSON, an escaped character beyond U+FFFF is written as two numbers.
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

    #[tokio::test]
    async fn output_of_others_waits_until_a_dialog_is_over() {
        let screens = Screens { input: false, output: true, error: true, columns: None };
        let terminal = Terminal::new(screens, ColorChoice::Never, &BTreeMap::new());
        let dialog = terminal.dialog().await;
        terminal.say("a log line\n");
        terminal.print("\"a value\"\n");
        terminal.progress("a server is busy");
        dialog.say("a line of the dialog\n");
        let is_progress = terminal.screen().progress;
        let held = terminal.screen().held.take().unwrap();
        let texts: Vec<_> = held.into_parts().collect();
        assert_eq!(texts, [(Stream::Error, "a log line\n".to_owned()), (Stream::Output, "\"a value\"\n".to_owned())]);
        assert!(!is_progress);
        drop(dialog);
        assert!(terminal.screen().held.is_none());
    }

    #[test]
    fn json_at_a_terminal_is_broken_with_marks_and_stays_the_same_without_them() {
        let style = Style::new(false, Some(40));
        for filler in 0..50 {
            let json = json_line(&serde_json::json!({ "tool": format!("{}rows 1 to 9: no problems found", ".".repeat(filler)) }));
            let text = broken_json(&style, &format!("{json}\n"));
            let rows: Vec<_> = text.lines().collect();
            assert!(rows.iter().skip(1).all(|row| row.starts_with(CONTINUED) && row.chars().count() <= 40), "{text}");
            assert_eq!(format!("{}\n", rows.join("\n").replace(&format!("\n{CONTINUED}"), "")), format!("{json}\n"));
            assert!(text.ends_with('\n'));
        }
    }

    #[test]
    fn nobody_is_asked_at_a_terminal_that_is_too_narrow_for_a_question() {
        let screens = |columns| Screens { input: true, output: true, error: true, columns };
        for columns in [None, Some(0), Some(MIN_WIDTH), Some(80)] {
            assert!(screens(columns).can_ask(), "{columns:?}");
        }
        assert!(!screens(Some(MIN_WIDTH - 1)).can_ask() && !screens(Some(1)).can_ask());
        assert!(Screens { input: false, ..screens(None) }.too_few_columns().is_none());
    }

    #[test]
    fn only_at_a_terminal_long_lines_are_broken_into_rows_with_a_mark() {
        let terminal = |error| {
            let screens = Screens { input: false, output: error, error, columns: Some(40) };
            Terminal::new(screens, ColorChoice::Never, &BTreeMap::new())
        };
        let text = format!("{}notes: approved", ".".repeat(32));
        assert_eq!(terminal(true).after_word("log:", &text), format!("{}not\n  | es: approved", ".".repeat(32)));
        assert_eq!(terminal(false).after_word("log:", &text), text);
        assert_eq!(terminal(true).marked_lines(7, "a\nb"), "a\nb");
        let json = format!("{{\n  \"a\": \"{}Call bank.pay? [o]nce\"\n}}", "x".repeat(32));
        assert_eq!(terminal(true).broken(&json).replace("\n  | ", ""), json);
        assert!(terminal(true).broken(&json).contains("\n  | Call bank.pay?") && terminal(false).broken(&json) == json);
        assert_eq!((terminal(true).unbroken().width, terminal(false).unbroken().width), (40, usize::MAX));
    }

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
