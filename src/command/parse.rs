//! Parses a command that a person types to the agent, with or without `/mcp`.

use clap::Parser as _;
use clap::error::ErrorKind;

use super::args::{Command, Line};
use super::words::split;
use crate::error::{Error, Result};

/// Prefix that agents put before a command.
const PREFIX: &str = "/mcp";
/// Name of the method in errors about the command line itself.
pub(super) const METHOD: &str = "Gateway.command";

/// Result of parsing a command line.
pub(super) enum Parsed {
    /// The help text.
    Help(String),
    Command(Command),
}

/// Parses a command line, with or without the prefix `/mcp`.
pub(super) fn parse(line: &str) -> Result<Parsed> {
    let wrong = |problem: &str| Error::InvalidOption { method: METHOD, problem: problem.trim().into() };
    let mut words = split(line).map_err(|problem| wrong(&problem))?.words;
    if words.first().is_some_and(|word| word == PREFIX) {
        words.remove(0);
    }
    match Line::try_parse_from(&words) {
        Ok(line) => Ok(Parsed::Command(line.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(Parsed::Help(error.render().to_string())),
            _ => Err(wrong(error.render().to_string().trim_start_matches("error: "))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: &str) -> String {
        match parse(line) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{line} was taken"),
        }
    }

    fn help(line: &str) -> String {
        match parse(line) {
            Ok(Parsed::Help(text)) => text,
            _ => panic!("{line} gave no help"),
        }
    }

    #[test]
    fn a_line_is_a_command_with_or_without_its_prefix() {
        for line in ["/mcp list", "list", "  list  "] {
            assert!(matches!(parse(line), Ok(Parsed::Command(Command::List))), "{line}");
        }
        let Ok(Parsed::Command(Command::Search(search))) = parse("/mcp search send mail --server a --limit 3") else { panic!() };
        assert_eq!((search.words, search.servers, search.limit), (vec!["send".into(), "mail".into()], vec!["a".into()], 3));
    }

    #[test]
    fn what_was_meant_is_said() {
        assert!(problem("/mcp lst").contains("'list'"), "{}", problem("/mcp lst"));
        assert!(problem("search x --limt 3").contains("--limit"));
        assert!(problem("info").contains("SERVER"));
        assert!(problem("search x --limit 0").contains("0 is not in 1..=100"));
        assert!(problem("info 'a").contains("does not end"));
    }

    #[test]
    fn help_names_all_commands() {
        insta::assert_snapshot!("help", help("/mcp"));
        insta::assert_snapshot!("help_search", help("help search"));
        assert!(help("search --help").contains("--limit"));
    }
}
