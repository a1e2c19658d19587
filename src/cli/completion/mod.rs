//! Completion at the prompt of a shell. `completion SHELL` prints a script for the shell. On each Tab, the script runs the hidden command
//! `complete` with the words of the line, which prints what the last word can become: commands, options, values, names of servers, and paths.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete};

use super::args::Cli;
use super::session::Session;
use crate::text::sanitise_text;

const PROGRAM: &str = "hyperlight-mcp";
/// The value names, as the help shows them, of arguments that are names of servers.
const SERVERS: [&str; 3] = ["SERVER", "SERVERS", "SERVER[.TOOL]"];
const MAX_DESCRIPTION_CHARS: usize = 80;

/// Arguments of `complete`.
#[derive(Debug, Clone, Args)]
pub struct Complete {
    /// The words of the line, from the program's name to the word before the cursor, which can be empty
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Returns the script that adds the completion to a shell.
pub(super) fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => include_str!("bash.sh").to_owned(),
        Shell::Zsh => include_str!("zsh.sh").to_owned(),
        Shell::Fish => include_str!("script.fish").to_owned(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut Cli::command(), PROGRAM, &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    }
}

/// Prints one line for each word that can be typed at the cursor: the word, a tab, and its description. Prints nothing if the config cannot
/// be read and a server is asked for: a message would end up within the line that a person types.
pub(super) fn print(session: &Session, arguments: &Complete) {
    let names = session.with_config(config_of(&arguments.words)).server_names().unwrap_or_default();
    let lines: Vec<String> = candidates(&arguments.words, &names).iter().map(line_of).collect();
    // The last line must end too, or a shell's `read` fails on it.
    session.terminal.print(&(lines.join("\n") + "\n"));
}

/// Returns the config that the line names.
fn config_of(words: &[String]) -> Option<PathBuf> {
    // The last word is left out, because it is not complete. Errors are ignored, because the rest of the line is not typed yet.
    let before = words.split_last().map_or(words, |(_, before)| before);
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(before).ok()?;
    matches.get_one::<PathBuf>("config").cloned()
}

/// Returns the possible completions of the last word.
fn candidates(words: &[String], names: &[String]) -> Vec<CompletionCandidate> {
    let Some((last, _)) = words.split_last() else { return Vec::new() };
    let mut command = with_names(Cli::command(), names);
    let all: Vec<OsString> = words.iter().map(OsString::from).collect();
    let found = complete(&mut command, all, words.len() - 1, None).unwrap_or_default();
    let is_option = |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().starts_with('-');
    // Options are proposed once a hyphen is typed, or if nothing else can be typed there.
    let has_others = last.is_empty() && found.iter().any(|candidate| !is_option(candidate));
    let is_left_out = |candidate: &CompletionCandidate| candidate.is_hide_set() || (has_others && is_option(candidate));
    found.into_iter().filter(|candidate| !is_left_out(candidate)).collect()
}

/// Adds the names of the servers to each argument that takes them.
fn with_names(command: Command, names: &[String]) -> Command {
    let takes_servers = |argument: &clap::Arg| {
        argument.get_value_names().is_some_and(|values| values.iter().any(|value| SERVERS.contains(&value.as_str())))
    };
    let candidates = || {
        let names = names.to_vec();
        ArgValueCandidates::new(move || names.iter().map(CompletionCandidate::new).collect())
    };
    command
        .mut_args(|argument| if takes_servers(&argument) { argument.add(candidates()) } else { argument })
        .mut_subcommands(|subcommand| with_names(subcommand, names))
}

/// Formats a candidate as a line. Returns nothing for a candidate with a control character, which would change what the shell inserts:
/// names come from a config, and paths from a folder.
fn line_of(candidate: &CompletionCandidate) -> String {
    let value = candidate.get_value().to_string_lossy();
    if value.chars().any(char::is_control) {
        return String::new();
    }
    let help = candidate.get_help().map(StyledStr::to_string).unwrap_or_default();
    match help.lines().next() {
        Some(first) => format!("{value}\t{}", sanitise_text(first, MAX_DESCRIPTION_CHARS)),
        None => value.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let names = ["weather", "wiki", "files"].map(str::to_owned);
        candidates(&words, &names).iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn each_place_has_its_words() {
        assert_eq!(found("hyperlight-mcp ap"), ["approve"]);
        assert_eq!(found("hyperlight-mcp completion z"), ["zsh"]);
        assert_eq!(found("hyperlight-mcp run a.js --tool-errors "), ["return", "throw"]);
        assert_eq!(found("hyperlight-mcp run a.js --time"), ["--timeout"]);
        assert!(found("hyperlight-mcp --col").contains(&"--color".to_owned()));
        assert!(!found("hyperlight-mcp ").contains(&"complete".to_owned()), "the hidden command");
    }

    #[test]
    fn servers_stand_wherever_a_server_is_asked_for() {
        for command in
            ["info", "approve", "revoke", "remove", "enable", "test", "logs", "set", "unset", "search x --server", "audit --server"]
        {
            assert_eq!(found(&format!("hyperlight-mcp {command} w")), ["weather", "wiki"], "{command}");
        }
        for command in [
            "run a.js --servers",
            "check a.js --servers",
            "types --servers",
            "serve --servers",
            "install vscode --servers",
            "serve --direct",
        ] {
            assert_eq!(found(&format!("hyperlight-mcp {command} files,w")), ["files,weather", "files,wiki"], "{command}");
            assert_eq!(found(&format!("hyperlight-mcp {command}=w")).len(), 2, "{command}");
        }
        assert_eq!(found("hyperlight-mcp run a.js --allow-writes f"), ["files"]);
        assert_eq!(found("hyperlight-mcp approve weather f"), ["files"]);
        assert!(found("hyperlight-mcp add w").is_empty(), "a new name");
    }

    #[test]
    fn options_are_proposed_where_nothing_else_stands() {
        assert_eq!(found("hyperlight-mcp info "), ["weather", "wiki", "files"]);
        assert!(found("hyperlight-mcp doctor ").contains(&"--json".to_owned()));
        assert!(found("hyperlight-mcp info -").contains(&"--json".to_owned()));
    }

    #[test]
    fn the_config_of_the_line_is_found_wherever_it_stands() {
        let config = |line: &str| config_of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(config("hyperlight-mcp info --config a.json "), Some("a.json".into()));
        assert_eq!(config("hyperlight-mcp --config=a.json info "), Some("a.json".into()));
        assert_eq!(config("hyperlight-mcp info "), None);
        assert_eq!(config("hyperlight-mcp nonsense --bad --config a.json x y"), None);
    }

    #[test]
    fn a_name_that_would_break_the_line_is_left_out() {
        assert_eq!(line_of(&CompletionCandidate::new("a\nb")), "");
        assert_eq!(line_of(&CompletionCandidate::new("a").help(Some("x\u{1b}[31m".into()))), "a\tx");
    }
}
