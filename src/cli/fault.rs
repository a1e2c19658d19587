//! What went wrong, told once: a message on standard error, and JSON on standard output where that is asked for.

use serde_json::{Value as Json, json};

use super::Exit;
use super::session::Session;
use crate::command::{Tone, printable};
use crate::error::Error;

/// A failure of the program.
#[derive(Debug)]
pub(super) enum Fault {
    /// Of the gateway: it has a code.
    Error(Box<Error>),
    /// Of the gateway, with more to say: a script's line, for example.
    Explained { error: Box<Error>, text: String, more: Json },
    /// Of what was asked for, in words that say what to do instead.
    Message(String),
    /// The command line is wrong in a way that only the command itself knows.
    Usage(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error))
    }
}

impl Fault {
    /// Tells it, and how the program ends.
    pub(super) fn tell(self, session: &Session) -> Exit {
        let exit = if matches!(self, Self::Usage(_)) { Exit::Usage } else { Exit::Failed };
        let (text, mut json) = match self {
            Self::Error(error) => {
                let message = message(&error);
                (message.clone(), json!({ "code": error.code(), "message": message }))
            }
            Self::Explained { error, text, more } => {
                let mut json = json!({ "code": error.code(), "message": message(&error) });
                if let (Some(json), Json::Object(more)) = (json.as_object_mut(), more) {
                    json.extend(more);
                }
                (text, json)
            }
            Self::Message(text) => (text.clone(), json!({ "message": text })),
            Self::Usage(text) => (text.clone(), json!({ "code": "ERR_USAGE", "message": text })),
        };
        if session.json() {
            json = json!({ "error": json });
            session.terminal.print_json(&json);
        }
        session.terminal.note(Tone::Bad, "hyperlight-mcp:", &printable(&text, &['\n']));
        exit
    }
}

/// An error in the words of this program: its way out is a command.
pub(super) fn message(error: &Error) -> String {
    match error {
        Error::NotApproved { server, reason } => {
            format!(
                "server \"{server}\" is not approved: {reason}. To read what it would run, and say yes or no: hyperlight-mcp approve {server}"
            )
        }
        Error::DigestChanged { server } => {
            format!("this digest is not of what server \"{server}\" would run or offer now. See what is: hyperlight-mcp approve {server}")
        }
        Error::NotEnabled { server } => format!("server \"{server}\" is not among the servers of this run: add it to --servers"),
        Error::ConfigUnreadable { path, problem } => format!("the config {} cannot be read: {problem}", path.display()),
        Error::AuthorizationRequired { server, .. } => {
            format!(
                "server \"{server}\" needs an authorization: run this in a terminal, where a person can be shown its page; or put a token into the config's headers.Authorization"
            )
        }
        Error::ServerExited { server, .. } | Error::ConnectFailed { server, .. } | Error::ConnectTimeout { server, .. } => {
            format!("{error}\nWhat it said: hyperlight-mcp logs {server}")
        }
        Error::ToolChanged { server, .. } | Error::ToolVanished { server, .. } => {
            format!("{error}\nSee the change: hyperlight-mcp approve {server}")
        }
        other => other.to_string(),
    }
}
