//! Completion of a line that a person types.

use clap::CommandFactory as _;

use super::args::Line;
use super::words::split;

/// Commands that take the name of a server as an argument.
const OF_A_SERVER: [&str; 7] = ["info", "enable", "disable", "approve", "revoke", "test", "logs"];

/// Returns the words that can complete the last word of the line, in order. The words are commands, options of commands, and names of
/// servers. Each result is a complete word.
///
/// ```
/// use hyperlight_mcp::command::complete;
/// assert_eq!(complete("/mcp re", &[]), ["reload", "revoke"]);
/// assert_eq!(complete("/mcp info w", &["weather", "files"]), ["weather"]);
/// assert_eq!(complete("/mcp search mail --l", &[]), ["--limit"]);
/// ```
#[must_use]
pub fn complete(line: &str, servers: &[&str]) -> Vec<String> {
    let Ok(words) = split(line) else { return Vec::new() };
    let (mut before, open) = (words.words, words.open);
    let last = if open { before.pop().unwrap_or_default() } else { String::new() };
    if before.first().is_some_and(|word| word == "/mcp") {
        before.remove(0);
    } else if before.is_empty() && !last.is_empty() && "/mcp".starts_with(&last) {
        return vec!["/mcp".to_owned()];
    }
    let mut found: Vec<String> =
        candidates(&before, &last, servers).into_iter().filter(|candidate| candidate.starts_with(&last) && *candidate != last).collect();
    found.sort();
    found.dedup();
    found
}

fn candidates(before: &[String], last: &str, servers: &[&str]) -> Vec<String> {
    let root = Line::command();
    let names = || servers.iter().map(|name| (*name).to_owned()).collect();
    let Some((command, rest)) = before.split_first() else {
        return root.get_subcommands().map(|command| command.get_name().to_owned()).chain(["help".to_owned()]).collect();
    };
    if command == "help" {
        return root.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    }
    let Some(command) = root.find_subcommand(command) else { return Vec::new() };
    if rest.last().is_some_and(|word| word == "--server") {
        return names();
    }
    if last.starts_with('-') {
        return command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
    }
    if rest.is_empty() && OF_A_SERVER.contains(&command.get_name()) { names() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_words() {
        let servers = ["weather", "wiki", "files"];
        assert_eq!(complete("/m", &servers), ["/mcp"]);
        assert_eq!(complete("", &servers).len(), 12);
        assert_eq!(complete("/mcp help se", &servers), ["search"]);
        assert_eq!(complete("info ", &servers), ["files", "weather", "wiki"]);
        assert_eq!(complete("search x --server w", &servers), ["weather", "wiki"]);
        assert_eq!(complete("logs weather -", &servers), ["--lines"]);
    }

    #[test]
    fn where_nothing_can_stand_nothing_is_proposed() {
        for line in ["info weather ", "nothing ", "info 'a", "list x"] {
            assert!(complete(line, &["weather"]).is_empty(), "{line}");
        }
    }
}
