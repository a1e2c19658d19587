//! The output of `boot` while it works: a line for each step on standard error, and a bar at a terminal while the model works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::boot::Progress;
use crate::cli::terminal::Terminal;
use crate::command::{Tone, date_time};
use crate::fetch::shown_host_entry;
use crate::text::sanitise_line;

/// Time between two drawings of the bar.
const FRAME: Duration = Duration::from_millis(200);
const BAR_CELLS: usize = 20;
/// The largest number of characters in one line.
const MAX_LINE_CHARS: usize = 400;

/// The display of one command.
pub(super) struct Display {
    terminal: Arc<Terminal>,
    verbose: bool,
    work: Arc<Mutex<Work>>,
    /// Draws the bar. `None` without a terminal.
    drawing: Option<JoinHandle<()>>,
}

/// The current work of the model.
#[derive(Debug, Default)]
struct Work {
    since: Option<Instant>,
    done: usize,
    /// The number of tools, once it is known.
    tools: Option<usize>,
}

impl Work {
    /// Returns the bar. It shows the share of the tools that are written, or a moving mark while the number of tools is not known.
    fn bar(&self, now: Instant) -> Option<String> {
        let elapsed = now.saturating_duration_since(self.since?);
        let seconds = elapsed.as_secs();
        let Some(tools) = self.tools else {
            let at = usize::try_from(elapsed.as_millis() / FRAME.as_millis()).unwrap_or_default() % BAR_CELLS;
            return Some(format!("[{}={}] the model plans, {seconds} s", " ".repeat(at), " ".repeat(BAR_CELLS - 1 - at)));
        };
        let full = BAR_CELLS * self.done.min(tools) / tools.max(1);
        let bar = format!("{}{}", "=".repeat(full), " ".repeat(BAR_CELLS - full));
        Some(format!("[{bar}] {} of {tools} tools, the model writes, {seconds} s", self.done))
    }
}

impl Display {
    /// Begins the display. It ends when it is dropped.
    pub(super) fn new(terminal: &Arc<Terminal>, verbose: bool) -> Self {
        let work = Arc::<Mutex<Work>>::default();
        let drawing = terminal.screens.error.then(|| {
            let (terminal, work) = (Arc::clone(terminal), Arc::clone(&work));
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(FRAME).await;
                    if let Some(bar) = work.lock().bar(Instant::now()) {
                        terminal.progress(&bar);
                    }
                }
            })
        });
        Self { terminal: Arc::clone(terminal), verbose, work, drawing }
    }

    /// Shows a step.
    pub(super) fn show(&self, step: &Progress) {
        match step {
            Progress::Planning { .. } => *self.work.lock() = Work { since: Some(Instant::now()), ..Work::default() },
            Progress::Planned { .. } => self.work.lock().since = None,
            Progress::Compiling { tools } => {
                *self.work.lock() = Work { since: Some(Instant::now()), done: 0, tools: Some(*tools) };
            }
            Progress::Written { done, tools, .. } => {
                let mut work = self.work.lock();
                work.done = *done;
                if done == tools {
                    work.since = None;
                }
            }
            _ => {}
        }
        if let Progress::Warning { text } = step {
            return self.terminal.note(Tone::Warning, "warning:", &sanitise_line(text, MAX_LINE_CHARS));
        }
        let lines = lines(step, Shown { verbose: self.verbose, bar: self.drawing.is_some() });
        for line in lines {
            self.terminal.say(&format!("{}\n", self.terminal.marked(0, &sanitise_line(&line, MAX_LINE_CHARS))));
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(drawing) = &self.drawing {
            drawing.abort();
        }
    }
}

/// The parts that a display shows in addition to the lines of each step.
#[derive(Debug, Clone, Copy)]
struct Shown {
    verbose: bool,
    /// True at a terminal, where a bar shows that the model works.
    bar: bool,
}

/// Returns the lines of a step. Some steps have lines only with `--verbose`.
fn lines(step: &Progress, shown: Shown) -> Vec<String> {
    let detail = |line: String| if shown.verbose { vec![line] } else { Vec::new() };
    // Without a bar, a line says that the model works. A second attempt needs no line, because the refusal of the first answer was shown.
    let asking = |what: &str, attempt: u32, bytes: usize| match shown {
        Shown { verbose: true, .. } => vec![format!("asking the model for {what}, try {attempt}: {bytes} bytes to the model")],
        Shown { bar: false, .. } if attempt == 1 => vec![format!("asking the model for {what}")],
        Shown { .. } => Vec::new(),
    };
    match step {
        Progress::Reading { pages } => vec![format!("reading {}", counted(*pages, "page"))],
        Progress::PageRead { url, kind, chars, ms } => vec![format!("  {url}: {}, {chars} characters, {}", kind.as_str(), time(*ms))],
        Progress::PageUnchanged { url, ms } => vec![format!("  {url}: unchanged, {}", time(*ms))],
        Progress::Hosts { hosts, .. } if hosts.is_empty() => vec!["the tools may reach nothing: the prompt names no URL".to_owned()],
        Progress::Hosts { hosts, .. } => vec![format!("the tools may reach {}: {}", counted(hosts.len(), "host"), shown_hosts(hosts))],
        Progress::FromCache { tools, created_at_ms } => {
            vec![format!("{} from the cache, made at {} UTC: no model is asked", counted(*tools, "tool"), date_time(*created_at_ms))]
        }
        Progress::Planning { attempt, request_bytes } => asking("the plan", *attempt, *request_bytes),
        Progress::Answered { tool, attempt, answer_bytes, ms } => {
            let what = tool.as_deref().unwrap_or("the plan");
            detail(format!("  {what}, try {attempt}: {answer_bytes} bytes from the model, {}", time(*ms)))
        }
        Progress::Planned { tools, answer_bytes: _, ms } => vec![format!("planned {}, {}", counted(*tools, "tool"), time(*ms))],
        Progress::PlanRefused { problems } => {
            vec![format!("the plan cannot be used, asking once more: {}", problems.join("; "))]
        }
        Progress::Writing { tool, attempt, request_bytes } => asking(&format!("the code of {tool}"), *attempt, *request_bytes),
        Progress::CodeRefused { tool, problems } => {
            vec![format!("the code of {tool} cannot be used, asking once more: {}", problems.join("; "))]
        }
        Progress::Written { tool, done, tools, lines, ms } => {
            vec![format!("wrote {tool} ({done} of {tools}): {}, {}", counted(*lines, "line"), time(*ms))]
        }
        Progress::Stored => detail("  kept in the cache".to_owned()),
        // Warnings are shown in colour, and a cut is a warning too.
        Progress::Warning { .. } | Progress::PageCut { .. } | Progress::Compiling { .. } => Vec::new(),
    }
}

/// Lists hosts. Hosts with letters outside of ASCII are listed in both forms.
pub(super) fn shown_hosts(hosts: &[String]) -> String {
    hosts.iter().map(|host| shown_host_entry(host)).collect::<Vec<_>>().join(", ")
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[allow(clippy::cast_precision_loss, reason = "a time for a person")]
fn time(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { format!("{:.1} s", ms as f64 / 1_000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_counts_and_times_and_sizes_only_if_they_are_asked_for() {
        let [plain, verbose] = [false, true].map(|verbose| Shown { verbose, bar: true });
        let planned = Progress::Planned { tools: 1, answer_bytes: 900, ms: 1_250 };
        assert_eq!(lines(&planned, plain), ["planned 1 tool, 1.2 s"]);
        for (tool, what) in [(None, "the plan"), (Some("add".to_owned()), "add")] {
            let answered = Progress::Answered { tool, attempt: 2, answer_bytes: 900, ms: 1_250 };
            assert!(lines(&answered, plain).is_empty());
            assert_eq!(lines(&answered, verbose), [format!("  {what}, try 2: 900 bytes from the model, 1.2 s")]);
        }
        let writing = |attempt| Progress::Writing { tool: "add".to_owned(), attempt, request_bytes: 70 };
        assert!(lines(&writing(1), plain).is_empty());
        assert_eq!(lines(&writing(2), verbose), ["asking the model for the code of add, try 2: 70 bytes to the model"]);
        // Where no bar shows that the model works, a line does.
        let without = Shown { bar: false, ..plain };
        assert_eq!(lines(&Progress::Planning { attempt: 1, request_bytes: 70 }, without), ["asking the model for the plan"]);
        assert_eq!(lines(&writing(1), without), ["asking the model for the code of add"]);
        assert!(lines(&writing(2), without).is_empty());
        let written = Progress::Written { tool: "add".to_owned(), done: 1, tools: 3, lines: 12, ms: 80 };
        assert_eq!(lines(&written, plain), ["wrote add (1 of 3): 12 lines, 80 ms"]);
    }

    #[test]
    fn tools_of_the_cache_say_from_when_they_are() {
        let found = Progress::FromCache { tools: 2, created_at_ms: 1_785_229_503_000 };
        assert_eq!(
            lines(&found, Shown { verbose: false, bar: true }),
            ["2 tools from the cache, made at 2026-07-28 09:05:03 UTC: no model is asked"]
        );
    }

    #[test]
    fn the_bar_shows_the_share_of_the_tools_that_are_written() {
        let since = Instant::now();
        let now = since + Duration::from_secs(3);
        assert_eq!(Work::default().bar(now), None);
        let work = Work { since: Some(since), done: 1, tools: Some(4) };
        assert_eq!(work.bar(now).unwrap(), "[=====               ] 1 of 4 tools, the model writes, 3 s");
        let planning = Work { since: Some(since), ..Work::default() };
        assert_eq!(planning.bar(since + FRAME).unwrap(), "[ =                  ] the model plans, 0 s");
    }
}
