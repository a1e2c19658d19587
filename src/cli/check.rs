//! The command `check`: finds errors in a script without running it.

use serde_json::json;

use super::args::Check;
use super::error::CliError;
use super::session::Session;
use super::{Exit, files};
use crate::command::{printable, problem_text};

pub(super) async fn check(session: &Session, arguments: &Check) -> Result<Exit, CliError> {
    let code = files::read_until(&arguments.file, &session.stop).await?;
    let gateway = session.open_for(arguments.servers.as_deref())?;
    let report = gateway.check(&code)?;
    let file = arguments.file.display().to_string();
    if session.json() {
        session.terminal.print_json(&json!({ "file": file, "ok": report.ok, "looked": report.looked, "problems": report.problems }));
    } else if !report.looked {
        session.terminal.say(&format!("{file}: not checked, as the code is nested too deeply or the check took longer than 5 s\n"));
    } else if report.ok {
        session.terminal.print(&format!("{file}: no errors found\n"));
    } else {
        for problem in &report.problems {
            let text = printable(&problem_text(&file, problem), &['\n']);
            session.terminal.say(&format!("{}\n", session.terminal.marked_lines(0, text.trim_end())));
        }
        for server in gateway.servers()?.iter().filter(|server| !server.approved && code.contains(&format!("host:mcp-{}", server.name))) {
            let approve = session.next_command.with(&format!("approve {}", server.name));
            session.terminal.say(&format!("server \"{}\" is not approved: {approve}\n", server.name));
        }
    }
    Ok(if report.ok && report.looked { Exit::Done } else { Exit::Failed })
}
