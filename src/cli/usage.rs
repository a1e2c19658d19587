//! Formats the error for a wrong command line as one line.

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Error};

use super::args::Cli;

/// Returns the error as one line that names the command's help. If there is no command, returns the whole help, because the person must
/// first choose a command.
pub(super) fn usage_error(error: &Error, words: &[String]) -> String {
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return text;
    }
    let told = text.split("\nUsage:").next().unwrap_or(&text);
    let told = told.split("\nFor more information").next().unwrap_or(told);
    let told = told.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ");
    let program = Cli::command();
    let command = words.iter().find(|word| program.find_subcommand(word).is_some());
    let command = command.map(|word| format!(" {word}")).unwrap_or_default();
    format!("{told}. To see all options: hyperlight-mcp{command} --help")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn line(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(std::iter::once("hyperlight-mcp".to_owned()).chain(words.clone())).unwrap_err();
        usage_error(&error, &words)
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one_line_with_what_was_meant_and_where_the_options_stand() {
        for (words, expected) in [
            ("serve --bogus", "unexpected argument '--bogus' found. To see all options: hyperlight-mcp serve --help"),
            (
                "serve --names x",
                "invalid value 'x' for '--names <STYLE>' [possible values: underscore, hyphen]. To see all options: hyperlight-mcp serve --help",
            ),
            (
                "lst",
                "unrecognized subcommand 'lst' tip: some similar subcommands exist: 'test', 'list'. To see all options: hyperlight-mcp --help",
            ),
            ("run", "the following required arguments were not provided: <FILE>. To see all options: hyperlight-mcp run --help"),
        ] {
            assert_eq!(line(words), expected);
        }
    }
}
