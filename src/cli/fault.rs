//! What went wrong, told once: a message on standard error, and JSON on standard output where that is asked for.

use serde_json::{Value as Json, json};

use super::Exit;
use super::again::Again;
use super::foreign::behind;
use super::session::Session;
use crate::command::{Tone, printable};
use crate::config::INPUT_ADVICE;
use crate::error::{AuthorizationLack, Error};

/// The code where there is no config.
pub(super) const NO_CONFIG: &str = "ERR_NO_CONFIG";
/// The code where a file that a person named cannot be read or written.
pub(super) const FILE: &str = "ERR_FILE";
/// The code where the words themselves are wrong.
pub(super) const USAGE: &str = "ERR_USAGE";

/// A failure of the program.
#[derive(Debug)]
pub(super) enum Fault {
    /// Of the gateway: it has a code.
    Error(Box<Error>),
    /// Of the gateway, with more to say: a script's line, for example.
    Explained { error: Box<Error>, text: String, more: Json },
    /// Of what was asked for: a code of this program's own, and words that say what to do instead.
    Message(&'static str, String),
    /// The command line is wrong in a way that only the command itself knows.
    Usage(String),
    /// It was told to end: nothing is to be said.
    Interrupted,
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
        let again = &session.again;
        let (text, mut json) = match self {
            Self::Error(error) => (told(&error, again), json!({ "code": error.code(), "message": message(&error, again) })),
            Self::Explained { error, text, more } => {
                let mut json = json!({ "code": error.code(), "message": message(&error, again) });
                if let (Some(json), Json::Object(more)) = (json.as_object_mut(), more) {
                    json.extend(more);
                }
                (text, json)
            }
            Self::Message(code, text) => (text.clone(), json!({ "code": code, "message": text })),
            Self::Usage(text) => (text.clone(), json!({ "code": USAGE, "message": text })),
            Self::Interrupted => return Exit::Interrupted,
        };
        if session.json() {
            json = json!({ "error": json });
            session.terminal.print_json(&json);
        }
        session.terminal.note_own(Tone::Bad, "hyperlight-mcp:", &printable(&text, &['\n']));
        exit
    }
}

/// An error in the words of this program, for a program to read.
pub(super) fn message(error: &Error, again: &Again) -> String {
    worded(error, again, |text| text)
}

/// The same for a person, who must see which lines are not ours: an error may hold what a script, a server or a config says.
pub(super) fn told(error: &Error, again: &Again) -> String {
    worded(error, again, |text| behind(&text))
}

/// Its way out is a command. `others`: how a text is shown that others may have written.
fn worded(error: &Error, again: &Again, others: impl Fn(String) -> String) -> String {
    let about = |command: &str, server: &str| again.with(&format!("{command} {server}"));
    match error {
        Error::NotApproved { server, reason } => others(format!(
            "server \"{server}\" is not approved: {reason}. To read what it would run, and say yes or no: {}",
            about("approve", server)
        )),
        Error::DigestChanged { server } => {
            format!("this digest is not of what server \"{server}\" would run or offer now. See what is: {}", about("approve", server))
        }
        Error::NotEnabled { server } => format!("server \"{server}\" is not among the servers of this run: add it to --servers"),
        Error::ConfigUnreadable { path, problem } => others(format!("the config {} cannot be read: {problem}", path.display())),
        Error::AuthorizationRequired { server, issuer, lack: AuthorizationLack::Issuer } => {
            let issuer = issuer.as_ref().map_or_else(|| "an authorization server".to_owned(), ToString::to_string);
            others(format!(
                "server \"{server}\" names {issuer} for its tokens, and the credential of the config was not sent there: run this in a terminal, where a person can confirm it; or set oauth.issuer in the config"
            ))
        }
        Error::AuthorizationRequired { server, lack: AuthorizationLack::Page, .. } => {
            format!(
                "server \"{server}\" needs an authorization: run this in a terminal, where a person can be shown its page; or put a token into the config's headers.Authorization"
            )
        }
        Error::ServerExited { server, .. } | Error::ConnectFailed { server, .. } | Error::ConnectTimeout { server, .. } => {
            let error = others(error.to_string());
            format!("{error}\nWhat it said: {}", about("logs", server))
        }
        Error::ToolChanged { server, .. } | Error::ToolVanished { server, .. } => {
            let error = others(error.to_string());
            format!("{error}\nSee the change: {}", about("approve", server))
        }
        // Written for the author of an agent, who can give a callback.
        Error::ConfigInvalid { .. } => others(error.to_string().replace(INPUT_ADVICE, "run this in a terminal, where it can be asked for")),
        other => others(other.to_string()),
    }
}
