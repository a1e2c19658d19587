//! The command `logs --follow`: prints new lines of a server's log, no matter which process writes them.

use std::time::Duration;

use serde_json::json;

use super::Exit;
use super::error::CliError;
use super::session::Session;
use crate::command::{Logs, logs_text};
use crate::gateway::LogLine;

/// Time between two readings of the log file.
const INTERVAL: Duration = Duration::from_millis(300);
/// Maximum number of lines that one reading returns. If a server writes more lines in one interval, the first of them are lost.
const WINDOW: usize = 1_000;

pub(super) async fn follow(session: &Session, logs: &Logs) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open()?;
    let lines = usize::from(logs.lines);
    let window = WINDOW.max(lines);
    let mut now = gateway.logs(&logs.server, window)?;
    let mut fresh = &now[now.len().saturating_sub(lines)..];
    let mut known;
    loop {
        if session.json() {
            // Each line is a separate JSON document, because the output has no end.
            for line in fresh {
                session.terminal.print_json_line(&json!(line));
            }
        } else if !fresh.is_empty() {
            session.terminal.print(&logs_text(fresh, &session.terminal.unbroken()));
        }
        // Ctrl-C stops this loop from outside. If the reader closes the output, the loop ends here.
        if session.terminal.output_end().is_some() {
            return Ok(Exit::Done);
        }
        known = now;
        tokio::time::sleep(INTERVAL).await;
        now = gateway.logs(&logs.server, window)?;
        fresh = after(&known, &now);
    }
}

/// Returns the lines of `now` that follow `known`. Both are the last lines of the same log, so `now` begins with lines that are at the end
/// of `known`. Lines with equal texts are kept.
fn after<'n>(known: &[LogLine], now: &'n [LogLine]) -> &'n [LogLine] {
    let most = known.len().min(now.len());
    let seen = (0..=most).rev().find(|&count| known.ends_with(&now[..count])).unwrap_or_default();
    &now[seen..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_comes() {
        let line = |at| LogLine { at, pid: 1, kind: "stderr".into(), text: "t".into(), error: None };
        let all = [line(1), line(2), line(3)];
        assert_eq!(after(&all[..2], &all), &all[2..]);
        assert_eq!(after(&all, &all), &[]);
        assert_eq!(after(&[], &all), &all);
        assert_eq!(after(&[line(9)], &all), &all);
    }

    #[test]
    fn a_line_that_comes_twice_is_shown_twice() {
        let line = |at| LogLine { at, pid: 1, kind: "stderr".into(), text: "t".into(), error: None };
        let (one, two) = (line(1), line(2));
        let known = std::slice::from_ref(&one);
        assert_eq!(after(known, &[one.clone(), one.clone()]), known);
        assert_eq!(after(&[one.clone(), two.clone()], &[two.clone(), one.clone(), two.clone()]), &[one, two]);
    }
}
