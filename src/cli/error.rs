//! Errors of the command line. Each error is a message on standard error and, with `--json`, also JSON on standard output.

use serde_json::{Value as Json, json};

use super::Exit;
use super::session::Session;
use super::terminal::Terminal;
use crate::command::{Tone, columns_in, printable};
use crate::config::INPUT_ADVICE;
use crate::error::{Error, MissingCallback};
use crate::text::NextCommand;

/// Error code for a missing config.
pub(super) const NO_CONFIG: &str = "ERR_NO_CONFIG";
/// Error code for a file that cannot be read or written.
pub(super) const FILE: &str = "ERR_FILE";
/// Error code for a terminal that is too narrow for a question.
pub(super) const TERMINAL: &str = "ERR_TERMINAL";
/// Error code for wrong arguments.
pub(super) const USAGE: &str = "ERR_USAGE";
/// The word before the message of an error.
pub(super) const WORD: &str = "hyperlight-mcp:";

/// An error of the program.
#[derive(Debug)]
pub(super) enum CliError {
    /// An error of the gateway, with its own code.
    Error(Box<Error>),
    /// An error of the gateway with more details, for example the line of a script.
    Explained { error: Box<Error>, text: String, more: Json },
    /// An error code of this program, and a message that tells the person what to do.
    Message(&'static str, String),
    /// An error in the arguments that only the command itself can find.
    Usage(String),
    /// The program was interrupted. No error is reported.
    Interrupted,
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error))
    }
}

impl CliError {
    /// Returns the message for a person.
    pub(super) fn sentence(&self, next_command: &NextCommand) -> String {
        match self {
            Self::Error(error) => message(error, next_command),
            Self::Explained { text, .. } | Self::Message(_, text) | Self::Usage(text) => text.clone(),
            Self::Interrupted => "the program was interrupted".to_owned(),
        }
    }

    /// Prints the error. Returns the exit status of the program.
    pub(super) fn tell(self, session: &Session) -> Exit {
        let exit = if matches!(self, Self::Usage(_)) { Exit::Usage } else { Exit::Failed };
        let (next_command, terminal) = (&session.next_command, &session.terminal);
        let plain = |text: &str| terminal.marked_lines(columns_in(WORD) + 1, &printable(text, &['\n']));
        let (text, mut json) = match self {
            Self::Error(error) => {
                (told(&error, next_command, terminal), json!({ "code": error.code(), "message": message(&error, next_command) }))
            }
            Self::Explained { error, text, more } => {
                let mut json = json!({ "code": error.code(), "message": message(&error, next_command) });
                if let (Some(json), Json::Object(more)) = (json.as_object_mut(), more) {
                    json.extend(more);
                }
                (text, json)
            }
            Self::Message(code, text) => (plain(&text), json!({ "code": code, "message": text })),
            Self::Usage(text) => (plain(&text), json!({ "code": USAGE, "message": text })),
            Self::Interrupted => return Exit::Interrupted,
        };
        if session.json() {
            json = json!({ "error": json });
            terminal.print_json(&json);
        }
        terminal.note_own(Tone::Bad, WORD, &printable(&text, &['\n']));
        exit
    }
}

/// Returns the message for JSON output. It suggests commands of this program.
pub(super) fn message(error: &Error, next_command: &NextCommand) -> String {
    worded(error, next_command, |text| text)
}

/// Returns the message for a person, which is printed after [`WORD`]. Marks untrusted rows, because an error may contain text of a script, a
/// server or a config. A command is not broken into rows, so that it can be copied.
pub(super) fn told(error: &Error, next_command: &NextCommand, terminal: &Terminal) -> String {
    told_at("", error, next_command, terminal)
}

/// Returns the same message as [`told`], with the place of the error before it.
pub(super) fn told_at(place: &str, error: &Error, next_command: &NextCommand, terminal: &Terminal) -> String {
    let used = columns_in(WORD) + 1 + columns_in(place);
    let text = worded(error, next_command, |text| terminal.marked(used, &printable(&text, &['\n'])));
    format!("{place}{text}")
}

/// Builds a message that suggests the next command. `others` formats texts that may be untrusted.
fn worded(error: &Error, next_command: &NextCommand, others: impl Fn(String) -> String) -> String {
    let about = |command: &str, server: &str| next_command.with(&format!("{command} {server}"));
    match error {
        Error::NotApproved { server, reason } => {
            let text = others(format!("server \"{server}\" is not approved: {reason}. To read its approval request and decide:"));
            format!("{text} {}", about("approve", server))
        }
        Error::DigestChanged { server } => {
            format!(
                "this digest does not match what server \"{server}\" would run or offer now. To read the current request: {}",
                about("approve", server)
            )
        }
        Error::NotEnabled { server } => format!("server \"{server}\" is not among the servers of this run: add it to --servers"),
        Error::ConfigUnreadable { path, problem } => others(format!("the config {} cannot be read: {}", path.shown(), problem.shown())),
        Error::AuthorizationRequired { server, issuer, lack: MissingCallback::Issuer } => {
            let issuer = issuer.as_ref().map_or_else(|| "an authorization server", |issuer| issuer.shown());
            others(format!(
                "server \"{server}\" names the authorization server {issuer}, which is not in the config, so the credential was not sent there. Run this command in a terminal, where a person can confirm the authorization server, or set oauth.issuer in the config"
            ))
        }
        Error::AuthorizationRequired { server, lack: MissingCallback::Page, .. } => {
            format!(
                "server \"{server}\" needs authorization: run this command in a terminal, where a person can open the sign-in page, or put a token into headers.Authorization of the server's entry in the config"
            )
        }
        Error::ServerExited { server, .. } | Error::ConnectFailed { server, .. } | Error::ConnectTimeout { server, .. } => {
            let error = others(error.summary());
            format!("{error}\nTo read the log of the server: {}", about("logs", server))
        }
        Error::ToolChanged { server, .. } | Error::ToolVanished { server, .. } => {
            let error = others(error.to_string());
            format!("{error}\nTo read the change: {}", about("approve", server))
        }
        // The advice in the error is about a callback, which only the author of an agent can provide.
        Error::ConfigInvalid { .. } => {
            others(error.to_string().replace(INPUT_ADVICE, "run this command in a terminal, where a person can type it"))
        }
        other => others(other.to_string()),
    }
}
