//! `logs --follow`: what comes, as it comes, from whatever process.

use std::time::Duration;

use serde_json::json;

use super::Exit;
use super::fault::Fault;
use super::session::Session;
use crate::command::{Logs, logs_text};
use crate::gateway::LogLine;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_millis(300);
/// Lines of one look: more than a server says in that time, or the first of them are left out.
const WINDOW: usize = 1_000;

pub(super) async fn follow(session: &Session, logs: &Logs) -> Result<Exit, Fault> {
    session.check_config()?;
    let gateway = session.open()?;
    let mut known = Vec::new();
    let mut now = gateway.logs(&logs.server, usize::from(logs.lines))?;
    loop {
        let fresh = after(&known, &now);
        if session.json() {
            // One document a line: it never ends.
            for line in fresh {
                session.terminal.print(&format!("{}\n", json!(line)));
            }
        } else if !fresh.is_empty() {
            session.terminal.print(&logs_text(fresh, &session.terminal.out));
        }
        // Ctrl-C ends this from outside; so does whoever reads it, by reading no more.
        if session.terminal.output_end().is_some() {
            return Ok(Exit::Done);
        }
        known = now;
        tokio::time::sleep(INTERVAL).await;
        now = gateway.logs(&logs.server, WINDOW)?;
    }
}

/// What comes after the last line that is known.
fn after<'n>(known: &[LogLine], now: &'n [LogLine]) -> &'n [LogLine] {
    let seen = known.last().and_then(|last| now.iter().rposition(|line| line == last));
    &now[seen.map_or(0, |index| index + 1)..]
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
}
