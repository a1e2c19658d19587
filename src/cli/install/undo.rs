//! The command `install --undo`: restores the config of a host.

use std::fs;

use serde_json::json;

use super::install_record::{self, InstallRecord};
use super::{PROJECT_MODE, TargetConfig, USER_MODE, command, not_changed, shown};
use crate::cli::Exit;
use crate::cli::args::{Install, Scope};
use crate::cli::edit::{self, UndoResult};
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::files::replace_kept;

/// Restores the file as it was before `install`. If somebody has changed the file since, reverses only our change.
pub(super) fn undo(session: &Session, arguments: &Install, target_config: &TargetConfig) -> Result<Exit, CliError> {
    let Some(record) = target_config.record()? else {
        tell(session, target_config, &Outcome::nothing("hyperlight-mcp has not changed this file"));
        return Ok(Exit::Done);
    };
    if target_config.text.is_none() {
        if arguments.write {
            target_config.locked(|| forget(target_config))?;
        }
        tell(session, target_config, &Outcome::nothing("the file is not there any more"));
        return Ok(Exit::Done);
    }
    let before = record.before().map_err(|problem| not_changed(&target_config.host, &problem.to_string()))?;
    let undone = edit::undone(target_config.host.shape, target_config.text(), &record.done(&before))
        .map_err(|problem| target_config.unusable(&problem))?;
    let removes_file = undone.exact && !record.existed;
    if !session.json() {
        show(session, target_config, &undone)?;
    }
    if arguments.write {
        target_config.locked(|| write(target_config, &record, &undone, removes_file))?;
    }
    let outcome = Outcome { written: arguments.write, exact: undone.exact, removes_file, why: None };
    tell(session, target_config, &outcome);
    Ok(Exit::Done)
}

/// Result of the command.
struct Outcome {
    written: bool,
    /// True if the file gets exactly the bytes that it had before.
    exact: bool,
    removes_file: bool,
    /// The reason why there is nothing to undo.
    why: Option<&'static str>,
}

impl Outcome {
    fn nothing(why: &'static str) -> Self {
        Self { written: false, exact: false, removes_file: false, why: Some(why) }
    }
}

fn show(session: &Session, target_config: &TargetConfig, undone: &UndoResult) -> Result<(), CliError> {
    // If the file can no longer be parsed, it is restored without showing the difference.
    let Ok(before) = edit::servers(target_config.host.shape, target_config.text()) else { return Ok(()) };
    let after = edit::servers(target_config.host.shape, &undone.text).map_err(|problem| target_config.unusable(&problem))?;
    session.terminal.print(&shown::difference(&target_config.host, &before, &after, &session.terminal.unbroken()));
    Ok(())
}

fn write(target_config: &TargetConfig, record: &InstallRecord, undone: &UndoResult, removes_file: bool) -> Result<(), CliError> {
    let failed = |problem: std::io::Error| not_changed(&target_config.host, &problem.to_string());
    if removes_file {
        super::check_writable(target_config).map_err(failed)?;
        fs::remove_file(&target_config.target).map_err(failed)?;
        if let (true, Some(folder)) = (record.made_folder, target_config.target.parent()) {
            // Removing the folder fails if somebody has put another file into it. Then the folder stays.
            let _ = fs::remove_dir(folder);
        }
    } else {
        let mode = if target_config.host.scope == Scope::User { USER_MODE } else { PROJECT_MODE };
        replace_kept(&target_config.target, undone.text.as_bytes(), mode).map_err(failed)?;
    }
    forget(target_config)
}

fn forget(target_config: &TargetConfig) -> Result<(), CliError> {
    install_record::remove(&target_config.state, &target_config.target)
        .map_err(|problem| not_changed(&target_config.host, &problem.to_string()))
}

fn tell(session: &Session, target_config: &TargetConfig, outcome: &Outcome) {
    let Outcome { written, exact, removes_file, why } = outcome;
    let (host, file) = (&target_config.host, target_config.host.path.display().to_string());
    if session.json() {
        let document = json!({
            "program": host.program.word(), "scope": host.scope.word(), "file": file, "changes": why.is_none(), "written": written,
            "exact": exact, "removesFile": removes_file,
        });
        return session.terminal.print_json(&document);
    }
    let result = match (removes_file, exact) {
        (true, _) => "the file did not exist before, and is removed",
        (false, true) => "the file gets exactly the bytes that it had before",
        (false, false) => "somebody has changed the file since, so only the change of hyperlight-mcp is taken back",
    };
    let text = match (why, written) {
        (Some(why), _) => format!("nothing to undo in {file}: {why}\n"),
        (None, true) => format!("restored {file}: {result}\nthe servers stay in {} too\n", target_config.config.display()),
        (None, false) => {
            format!("{result}\nnothing was written. To write this: {}\n", command(session, host, " --undo --write"))
        }
    };
    session.terminal.print(&text);
}
