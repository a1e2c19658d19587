//! The command `install --undo`: restores the config of a host.

use std::fs;

use serde_json::json;

use super::edit::{self, Undone};
use super::kept::{self, Kept};
use super::{PROJECT_MODE, Place, USER_MODE, command, not_changed, shown};
use crate::cli::Exit;
use crate::cli::args::{Install, Scope};
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::files::replace_kept;

/// Restores the file as it was before `install`. If somebody has changed it since, takes back our change alone.
pub(super) fn undo(session: &Session, arguments: &Install, place: &Place) -> Result<Exit, CliError> {
    let Some(kept) = place.kept()? else {
        tell(session, place, &Outcome::nothing("hyperlight-mcp has not changed this file"));
        return Ok(Exit::Done);
    };
    if place.text.is_none() {
        if arguments.write {
            place.locked(|| forget(place))?;
        }
        tell(session, place, &Outcome::nothing("the file is not there any more"));
        return Ok(Exit::Done);
    }
    let before = kept.before().map_err(|problem| not_changed(&place.host, &problem.to_string()))?;
    let undone = edit::undone(place.host.shape, place.text(), &kept.done(&before)).map_err(|problem| place.unusable(&problem))?;
    let removes_file = undone.exact && !kept.existed;
    if !session.json() {
        show(session, place, &undone)?;
    }
    if arguments.write {
        place.locked(|| write(place, &kept, &undone, removes_file))?;
    }
    let outcome = Outcome { written: arguments.write, exact: undone.exact, removes_file, why: None };
    tell(session, place, &outcome);
    Ok(Exit::Done)
}

/// Result of the command.
struct Outcome {
    written: bool,
    /// The file gets exactly the bytes that it had before.
    exact: bool,
    removes_file: bool,
    /// Reason why there is nothing to undo.
    why: Option<&'static str>,
}

impl Outcome {
    fn nothing(why: &'static str) -> Self {
        Self { written: false, exact: false, removes_file: false, why: Some(why) }
    }
}

fn show(session: &Session, place: &Place, undone: &Undone) -> Result<(), CliError> {
    // A file that somebody has made unreadable is restored all the same, if its bytes are known.
    let Ok(before) = edit::servers(place.host.shape, place.text()) else { return Ok(()) };
    let after = edit::servers(place.host.shape, &undone.text).map_err(|problem| place.unusable(&problem))?;
    session.terminal.print(&shown::difference(&place.host, &before, &after, &session.terminal.out));
    Ok(())
}

fn write(place: &Place, kept: &Kept, undone: &Undone, removes_file: bool) -> Result<(), CliError> {
    let failed = |problem: std::io::Error| not_changed(&place.host, &problem.to_string());
    if removes_file {
        super::check_writable(place).map_err(failed)?;
        fs::remove_file(&place.target).map_err(failed)?;
        if let (true, Some(folder)) = (kept.made_folder, place.target.parent()) {
            // The folder stays if somebody has put another file into it.
            let _ = fs::remove_dir(folder);
        }
    } else {
        let mode = if place.host.scope == Scope::User { USER_MODE } else { PROJECT_MODE };
        replace_kept(&place.target, undone.text.as_bytes(), mode).map_err(failed)?;
    }
    forget(place)
}

fn forget(place: &Place) -> Result<(), CliError> {
    kept::remove(&place.state, &place.target).map_err(|problem| not_changed(&place.host, &problem.to_string()))
}

fn tell(session: &Session, place: &Place, outcome: &Outcome) {
    let Outcome { written, exact, removes_file, why } = outcome;
    let (host, file) = (&place.host, place.host.path.display().to_string());
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
        (None, true) => format!("restored {file}: {result}\nthe servers stay in {} too\n", place.config.display()),
        (None, false) => {
            format!("{result}\nnothing was written. To write this: {}\n", command(session, host, " --undo --write"))
        }
    };
    session.terminal.print(&text);
}
