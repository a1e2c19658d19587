//! The command `audit`: prints the records of approvals, changes, connections and calls, exports them to a file, or verifies them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::error::CliError;
use super::session::Session;
use super::terminal::json_line;
use super::{Exit, files};
use crate::command::Tone;
use crate::gateway::Gateway;
use crate::store::audit::{AuditKind, AuditQuery, AuditReport, AuditRow};

/// Number of rows that are printed if no limit is given.
const PRINTED: usize = 1_000;
/// Time between two readings with `--follow`.
const INTERVAL: Duration = Duration::from_millis(300);

/// Arguments of `audit`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    pub action: Option<AuditCommand>,
    /// Print new rows as they come, until Ctrl-C
    #[arg(long, short, conflicts_with = "export")]
    pub follow: bool,
    /// Write the rows into this file, mode 0600, whole or not at all
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Only from this time on: 30m, 12h, 7d ago, or like 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<u64>,
    /// Only of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only of this server
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Only of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only of this kind: approval, call, connection, …
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Option<AuditKind>,
    /// Only the last rows [default: 1000; with --export all]
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

/// The actions of `audit` besides reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum AuditCommand {
    /// Check that no row was changed, removed, added or moved
    Verify,
}

impl Audit {
    fn query(&self) -> AuditQuery {
        let limit = self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        AuditQuery {
            after: None,
            since: self.since,
            agent: self.agent.clone(),
            server: self.server.clone(),
            tool: self.tool.clone(),
            kind: self.kind,
            limit: if self.export.is_some() { limit } else { limit.or(Some(PRINTED)) },
        }
    }
}

pub(super) async fn audit(session: &Session, arguments: &Audit) -> Result<Exit, CliError> {
    let gateway = session.open_state()?;
    match (&arguments.action, &arguments.export) {
        (Some(AuditCommand::Verify), _) => verify(session, &gateway).await,
        (None, Some(file)) => {
            let rows = gateway.audit(arguments.query()).await?;
            files::write_private(file, &lines(&rows))?;
            if session.json() {
                session.terminal.print_json(&json!({ "file": file, "rows": rows.len() }));
            } else {
                session.terminal.say(&format!("{} rows in {}\n", rows.len(), file.display()));
            }
            Ok(Exit::Done)
        }
        (None, None) if arguments.follow => follow(session, &gateway, arguments.query()).await,
        (None, None) => {
            let rows = gateway.audit(arguments.query()).await?;
            if session.json() {
                session.terminal.print_json(&json!({ "rows": rows }));
            } else {
                session.terminal.print_json_text(&lines(&rows));
            }
            Ok(Exit::Done)
        }
    }
}

/// Prints rows when they are written. Each line is a separate JSON document, because the output has no end.
async fn follow(session: &Session, gateway: &Gateway, query: AuditQuery) -> Result<Exit, CliError> {
    let mut next = query;
    loop {
        let rows = gateway.audit(next.clone()).await?;
        session.terminal.print_json_text(&lines(&rows));
        // Ctrl-C stops this loop from outside. If the reader closes the output, the loop ends here.
        if session.terminal.output_end().is_some() {
            return Ok(Exit::Done);
        }
        next = AuditQuery { after: rows.last().map(|row| row.number).or(next.after).or(Some(0)), limit: None, ..next };
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn verify(session: &Session, gateway: &Gateway) -> Result<Exit, CliError> {
    let report = gateway.verify_audit().await?;
    if session.json() {
        session.terminal.print_json(&json!(report));
    } else {
        session.terminal.print(&verified_text(&report));
        for problem in &report.problems {
            session.terminal.note(Tone::Bad, "audit:", problem);
        }
    }
    Ok(if report.whole { Exit::Done } else { Exit::Failed })
}

fn verified_text(report: &AuditReport) -> String {
    let AuditReport { whole, rows, first, last, head, gaps, problems } = report;
    let (Some(first), Some(last), Some(head)) = (first, last, head) else {
        return if *whole { "the audit is empty\n".to_owned() } else { format!("the audit is empty, {} problems\n", problems.len()) };
    };
    let gaps = if *gaps == 0 { String::new() } else { format!(", {gaps} of them report a gap") };
    let end = if *whole { "no problems found".to_owned() } else { format!("{} problems", problems.len()) };
    format!("rows {first} to {last}: {rows} rows{gaps}; {end}\nhead: {last} {head}\n")
}

fn lines(rows: &[AuditRow]) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{}", json_line(&json!(row)));
        text
    })
}

fn kind(word: &str) -> Result<AuditKind, String> {
    let known = || AuditKind::ALL.map(AuditKind::as_str).join(", ");
    AuditKind::named(word).ok_or_else(|| format!("write one of {}", known()))
}

/// Parses a time: a number of minutes, hours or days before now, or a date with time and zone. Returns milliseconds since 1970.
fn moment(text: &str) -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    moment_at(text, u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn moment_at(text: &str, now: u64) -> Result<u64, String> {
    let wrong = || "write an age (30m, 12h or 7d), or a time like 2026-01-31T08:00:00Z".to_owned();
    let seconds = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 0,
    };
    if seconds > 0 {
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        return Ok(now.saturating_sub(number.saturating_mul(seconds * 1000)));
    }
    let time: Timestamp = text.parse().map_err(|_| wrong())?;
    u64::try_from(time.as_millisecond()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_so_long_ago_or_a_date_with_its_zone() {
        let now = 1_800_000_000_000;
        let ago = |text| now - moment_at(text, now).unwrap();
        assert_eq!([ago("90s"), ago("30m"), ago("12h"), ago("7d")], [90_000, 1_800_000, 43_200_000, 604_800_000]);
        assert_eq!(moment_at("1970-01-02T00:00:00Z", now), Ok(86_400_000));
        assert_eq!(moment_at("9999999999999d", now), Ok(0));
        for wrong in ["", "d", "1.5h", "-1h", "soon", "2026-01-31", "1969-01-01T00:00:00Z", "12"] {
            assert!(moment_at(wrong, now).unwrap_err().contains("12h"), "{wrong}");
        }
    }

    #[test]
    fn a_kind_is_one_of_those_that_there_are() {
        assert_eq!(kind("call"), Ok(AuditKind::Call));
        assert!(kind("calls").unwrap_err().contains("approval, revocation"));
    }

    #[test]
    fn a_verification_is_told_with_its_head_to_be_kept_elsewhere() {
        let whole = AuditReport { whole: true, ..AuditReport::default() };
        assert_eq!(verified_text(&whole), "the audit is empty\n");
        let report = AuditReport { rows: 3, first: Some(4), last: Some(6), head: Some("ab".into()), gaps: 1, ..whole };
        assert_eq!(verified_text(&report), "rows 4 to 6: 3 rows, 1 of them report a gap; no problems found\nhead: 6 ab\n");
        let broken = AuditReport { whole: false, problems: vec!["row 5 is missing".into()], ..report };
        assert!(verified_text(&broken).contains("; 1 problems\n"));
    }
}
