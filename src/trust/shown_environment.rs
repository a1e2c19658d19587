//! Prepares the variables of an entry for display. Finds those whose values are part of the code that the entry's arguments run, because no
//! list of names has them.

use secrecy::ExposeSecret as _;

use super::shown::shown_variable;
use super::shown_value::may_name_a_secret;
use crate::config::{BoxDefinition, ServerDefinition, Transport, loads_code, redirects_traffic};
use crate::redact::{is_secret, secrets_within};

/// Programs that run code from their arguments, without the number of a version. A name ends with its version: `python3.12`.
const INTERPRETERS: [&str; 45] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "bunx",
    "busybox",
    "cmd",
    "csh",
    "dash",
    "deno",
    "elixir",
    "env",
    "erl",
    "eval",
    "fish",
    "gawk",
    "groovy",
    "guile",
    "julia",
    "ksh",
    "lua",
    "luajit",
    "mawk",
    "node",
    "nodejs",
    "npm",
    "npx",
    "osascript",
    "perl",
    "php",
    "pnpm",
    "powershell",
    "pwsh",
    "pypy",
    "python",
    "r",
    "ruby",
    "rscript",
    "scala",
    "sh",
    "tcsh",
    "ts-node",
    "tsx",
    "yarn",
    "zsh",
];
/// Interpreters whose code needs no flag before it.
const WITHOUT_FLAG: [&str; 4] = ["awk", "eval", "gawk", "mawk"];
/// Letters of short flags whose value is code, in any of the interpreters: `-c`, `-e`, `-p`, `-r` and similar.
const FLAG_LETTERS: &str = "cCeEprRSBi";
/// Maximum number of letters before the one that means code, as in `-lc`.
const MAX_LETTERS_BEFORE: usize = 4;
/// Long flags whose value is code.
const LONG_FLAGS: [&str; 12] = [
    "--call",
    "--command",
    "--eval",
    "--exec",
    "--experimental-loader",
    "--import",
    "--init-command",
    "--loader",
    "--print",
    "--require",
    "--run",
    "--split-string",
];
/// The words `eval` and `/c`, after which code follows.
const WORDS: [&str; 3] = ["eval", "/c", "/k"];

/// The end of a sentence about a variable that is [`InCode::Hidden`].
pub(crate) const HIDDEN_IN_CODE: &str = "its value is part of the code that runs, and is not shown in full, as it may be a secret";

/// The part of a variable in the code that its entry runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InCode {
    /// The code does not name the variable, or its name is that of a variable that loads code anyway.
    No,
    /// The value is part of the code, and is shown in full.
    Shown,
    /// The value is part of the code, but it may be a secret, or comes from a placeholder. So it is not shown in full.
    Hidden,
}

/// Returns the part of a variable in the code that the arguments of its entry run.
pub(crate) fn in_code(command: &str, arguments: &[String], name: &str, value: &str) -> InCode {
    let names_it = || std::iter::once(command).chain(arguments.iter().map(String::as_str)).any(|text| has_word(text, name));
    if loads_code(name) || !takes_code(command, arguments) || !names_it() {
        return InCode::No;
    }
    let may_be_secret = may_name_a_secret(name) || is_secret(name, value) || !secrets_within(value).is_empty();
    if may_be_secret || value.contains("${") { InCode::Hidden } else { InCode::Shown }
}

/// Returns `NAME=value` of an entry's variable. The value is complete if the variable can make a program load code, or is part of the code
/// that the arguments run. Otherwise it is shown as by [`shown_variable`].
pub(crate) fn shown_variable_of(command: &str, arguments: &[String], name: &str, value: &str) -> String {
    match in_code(command, arguments, name, value) {
        InCode::Shown => format!("{name}={value}"),
        // Code has several words. Only the parts that may be secrets are hidden, so that the other parts can be read.
        InCode::Hidden if value.contains(char::is_whitespace) && !may_name_a_secret(name) => {
            let secrets = secrets_within(value);
            let mut longest_first: Vec<&String> = secrets.iter().filter(|secret| !secret.is_empty()).collect();
            longest_first.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
            let shown = longest_first.into_iter().fold(value.to_owned(), |shown, secret| shown.replace(secret.as_str(), "***"));
            format!("{name}={shown}")
        }
        InCode::No | InCode::Hidden => shown_variable(name, value),
    }
}

/// Returns whether a command runs code from its arguments: it is a shell or an interpreter, or starts one, with a flag for code after it.
fn takes_code(command: &str, arguments: &[String]) -> bool {
    let words: Vec<&str> = std::iter::once(command).chain(arguments.iter().map(String::as_str)).collect();
    let interpreter = words.iter().position(|word| interpreter_of(word).is_some());
    let Some(at) = interpreter else { return false };
    let needs_no_flag = words[at..].iter().filter_map(|word| interpreter_of(word)).any(|name| WITHOUT_FLAG.contains(&name.as_str()));
    needs_no_flag || words[at + 1..].iter().any(|word| is_flag_for_code(word))
}

/// Returns the name of the interpreter that a word names, in lower case and without its folder and version.
fn interpreter_of(word: &str) -> Option<String> {
    let name = word.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.' || last == '-');
    INTERPRETERS.contains(&name).then(|| name.to_owned())
}

fn is_flag_for_code(word: &str) -> bool {
    if WORDS.contains(&word) || LONG_FLAGS.contains(&word.split('=').next().unwrap_or_default()) {
        return true;
    }
    let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else { return false };
    let mut letters = letters.chars().take_while(char::is_ascii_alphabetic).take(MAX_LETTERS_BEFORE + 1);
    letters.any(|letter| FLAG_LETTERS.contains(letter))
}

/// Returns whether a text has a name as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '_');
    let is_alone = |(at, _): (usize, &str)| !is_part(text[..at].chars().next_back()) && !is_part(text[at + name.len()..].chars().next());
    !name.is_empty() && text.match_indices(name).any(is_alone)
}

/// The variables of an entry, as they are shown.
#[derive(Debug, Default)]
pub(super) struct ShownEnvironment {
    pub(super) lines: Vec<String>,
    /// Names of variables that load code, or whose values are part of the code that the arguments run, and are shown in full.
    pub(super) loaders: Vec<String>,
    /// Names of variables that redirect traffic.
    pub(super) redirectors: Vec<String>,
    /// Names of variables whose values are part of the code that the arguments run, and are not shown in full.
    pub(super) hidden_in_code: Vec<String>,
}

impl ShownEnvironment {
    /// Prepares the variables of a server's entry and of its box.
    pub(super) fn of(server: &ServerDefinition) -> Self {
        let Transport::Stdio { command, arguments, environment, removed_environment, .. } = &server.transport else {
            return Self::default();
        };
        let of_entry = environment.iter().map(|(name, value)| (name, value.expose_secret()));
        let lines = of_entry.clone().map(|(name, value)| shown_variable_of(command, arguments, name, value));
        let lines = lines.chain(removed_environment.iter().map(|name| format!("{name} (not passed on)"))).collect();
        let of_box = match &server.in_box {
            Some(BoxDefinition::On(settings)) => Some(&settings.environment),
            None | Some(BoxDefinition::Off) => None,
        };
        let of_box = of_box.into_iter().flatten().map(|(name, value)| (name, value.as_str()));
        let mut shown = Self { lines, ..Self::default() };
        for (name, value) in of_entry.chain(of_box) {
            let in_code = in_code(command, arguments, name, value);
            if loads_code(name) || in_code == InCode::Shown {
                shown.loaders.push(name.clone());
            }
            if in_code == InCode::Hidden {
                shown.hidden_in_code.push(name.clone());
            }
            if redirects_traffic(name) {
                shown.redirectors.push(name.clone());
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &str, arguments: &[&str], name: &str, value: &str) -> String {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        format!("{:?} {}", in_code(command, &arguments, name, value), shown_variable_of(command, &arguments, name, value))
    }

    #[test]
    fn the_value_of_a_variable_that_is_part_of_the_code_is_shown() {
        let value = "curl -s evil.example; touch /tmp/x";
        for (command, arguments) in [
            ("sh", &["-c", "eval \"$INIT\"; exec node server.js"][..]),
            ("/usr/bin/bash", &["-lc", "${INIT}"]),
            ("env", &["A=b", "sh", "-c", "$INIT"]),
            ("node", &["--eval=eval(process.env.INIT)"]),
            ("node", &["-e", "eval(process.env['INIT'])"]),
            ("python3.12", &["-c", "import os; exec(os.environ[\"INIT\"])"]),
            ("perl", &["-ne", "eval $ENV{INIT}"]),
            ("php", &["-r", "eval(getenv('INIT'));"]),
            ("docker", &["run", "-e", "INIT", "alpine", "sh", "-c", "eval $INIT"]),
            ("npx", &["-y", "-c", "$INIT"]),
            ("gawk", &["BEGIN { system(ENVIRON[\"INIT\"]) }"]),
            ("cmd.exe", &["/c", "%INIT%"]),
            ("deno", &["eval", "new Function(Deno.env.get('INIT'))()"]),
        ] {
            assert_eq!(shown(command, arguments, "INIT", value), format!("Shown INIT={value}"), "{command}");
        }
        assert_eq!(shown("sh", &["-c", "$SETUP x"], "SETUP", "eval"), "Shown SETUP=eval");
    }

    #[test]
    fn what_may_be_a_secret_stays_masked_in_code_and_is_told() {
        let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        for (name, value) in [("API_TOKEN", "curl evil; touch x"), ("X", token), ("X", &format!("run --token {token}")), ("X", "${X}")] {
            let shown = shown("sh", &["-c", "server $API_TOKEN $X"], name, value);
            assert!(shown.starts_with("Hidden ") && !shown.contains("touch") && !shown.contains(&token[8..]), "{shown}");
        }
    }

    #[test]
    fn only_the_secret_parts_of_code_are_masked() {
        let value = "curl evil.example; touch ${A:-b c}; login ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        let shown = shown("sh", &["-c", "eval $X"], "X", value);
        assert!(shown.starts_with("Hidden X=curl evil.example; touch ${A:-b c};") && !shown.contains("ghp_16C7"), "{shown}");
    }

    #[test]
    fn an_ordinary_entry_shows_no_more_than_before() {
        let (name, value) = ("NOTE", "two words of somebody");
        for (command, arguments) in [
            ("npx", &["-y", "server", "--note", "${NOTE}"][..]),
            ("node", &["server.js", "NOTE"]),
            ("sh", &["-c", "exec server"]),
            ("sh", &["-c", "exec server $NOTES $MY_NOTE"]),
            ("docker", &["run", "-i", "--rm", "-e", "NOTE", "mcp/server"]),
            ("uvx", &["server", "-c", "NOTE"]),
        ] {
            assert_eq!(shown(command, arguments, name, value), format!("No {}", shown_variable(name, value)), "{command} {arguments:?}");
        }
        assert!(shown_variable(name, value).contains("***"));
    }
}
