//! Errors of which an authorization server may have said the words.

use super::{Error, Words};
use crate::trust::sanitise_line;

const MAX_ISSUER_BYTES: usize = 200;
const MAX_PROBLEM_BYTES: usize = 500;

impl Error {
    pub(crate) fn authorization_required(server: &str, issuer: Option<&str>) -> Self {
        Self::AuthorizationRequired { server: server.to_owned(), issuer: issuer.map(|issuer| line_of(issuer, MAX_ISSUER_BYTES)) }
    }

    /// `problem` may be the words of an authorization server: they are cut, and show as they are.
    pub(crate) fn authorization_failed(server: &str, issuer: Option<&str>, problem: &str) -> Self {
        Self::AuthorizationFailed {
            server: server.to_owned(),
            issuer: issuer.map(|issuer| line_of(issuer, MAX_ISSUER_BYTES)),
            problem: line_of(problem, MAX_PROBLEM_BYTES),
        }
    }
}

/// A stranger's words in one line.
fn line_of(text: &str, limit: usize) -> Words {
    Words::cut(&sanitise_line(text, usize::MAX), limit)
}
