//! Errors of authorization. The name of the issuer and all texts from an authorization server are untrusted.

use std::fmt::{self, Display, Formatter};

use super::{Error, ErrorText, ForeignText};
use crate::text::sanitise_line;

const MAX_ISSUER_BYTES: usize = 200;
const MAX_PROBLEM_BYTES: usize = 500;

/// The step of an authorization that needs a person, and for which the agent provided no callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingCallback {
    /// A person must allow the access on a page in a browser.
    Page,
    /// A person must confirm the issuer. The issuer would receive a credential of the config, or the code of the person's login for the
    /// client of the config.
    Issuer,
}

impl Display for MissingCallback {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Page => {
                "Give onAuthorize(url): it shows the URL to a person, and if no browser runs on this machine, it returns the URL to which the browser was redirected. Without a person: put a token into the config's headers.Authorization, or set oauth.grant to \"client_credentials\" with oauth.clientId and oauth.clientSecret or oauth.privateKey"
            }
            Self::Issuer => {
                "The server itself named that authorization server, so no login and no credential of the config was sent to it. If the config's client is registered there, set oauth.issuer to it in the config; or give onIssuer(question), which asks a person"
            }
        })
    }
}

impl Error {
    /// Returns `ERR_AUTHORIZATION_REQUIRED`. The name of the issuer is cut to its maximum length.
    pub(crate) fn authorization_required(server: &str, issuer: Option<&str>, lack: MissingCallback) -> Self {
        Self::AuthorizationRequired { server: server.to_owned(), issuer: issuer.map(|issuer| line_of(issuer, MAX_ISSUER_BYTES)), lack }
    }

    /// Returns `ERR_AUTHORIZATION_FAILED`. `problem` may be a text of an authorization server. It is cut to its maximum length.
    pub(crate) fn authorization_failed(server: &str, issuer: Option<&str>, problem: &str) -> Self {
        Self::AuthorizationFailed {
            server: server.to_owned(),
            issuer: issuer.map(|issuer| line_of(issuer, MAX_ISSUER_BYTES)),
            problem: line_of(problem, MAX_PROBLEM_BYTES),
        }
    }
}

/// Returns the part of a message that names the issuer. Returns an empty text if there is no issuer.
pub(super) fn of_issuer(issuer: Option<&ErrorText>) -> String {
    issuer.map(|issuer| format!(" by {}", issuer.shown())).unwrap_or_default()
}

/// Returns an untrusted text on one line, cut to at most `limit` bytes.
fn line_of(text: &str, limit: usize) -> ErrorText {
    ForeignText::cut(&sanitise_line(text, usize::MAX), limit).into()
}
