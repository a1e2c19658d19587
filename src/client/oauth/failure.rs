//! Failures of requests for a token. Texts from an authorization server are not trusted, and may repeat secrets that were sent to this
//! server.

use rmcp::transport::auth::AuthError;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;
use url::form_urlencoded::byte_serialize;

use crate::error::{Error, MissingCallback};

/// Minimum length of a secret that is redacted. A shorter secret is probably a part of ordinary words too.
const MIN_SECRET_CHARS: usize = 4;

/// An OAuth error answer (RFC 6749, 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: String,
    pub(super) description: Option<String>,
}

impl Refusal {
    pub(super) fn read(body: &Json) -> Option<Self> {
        let text = |key: &str| body.get(key).and_then(Json::as_str).map(ToOwned::to_owned);
        Some(Self { error: text("error")?, description: text("error_description") })
    }

    /// Returns whether the refused grant or client will always be refused. In this case, only a new authorization can help.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.error.as_str(), "invalid_grant" | "invalid_client" | "unauthorized_client" | "unsupported_grant_type")
    }
}

/// The reason why a step of getting a token failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// The authorization server answered with an error.
    Refused(Refusal),
    /// There was no usable answer.
    Failed(String),
    /// A person must authorize, but nobody can be asked.
    NobodyToAsk,
    /// A person must confirm the issuer, but nobody can be asked.
    NobodyToConfirm,
    /// The server's tokens were forgotten after the work had begun.
    Forgotten,
    /// The server is no longer approved.
    Unapproved,
}

impl Problem {
    pub(super) fn failed(problem: impl Into<String>) -> Self {
        Self::Failed(problem.into())
    }

    /// Returns whether the same request would certainly fail again.
    pub(super) fn is_definite(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_definite(),
            Self::Forgotten => true,
            Self::Failed(_) | Self::NobodyToAsk | Self::NobodyToConfirm | Self::Unapproved => false,
        }
    }

    /// Replaces secrets that an authorization server may have repeated.
    pub(super) fn without(self, secrets: &[SecretString]) -> Self {
        match self {
            Self::Refused(Refusal { error, description }) => Self::Refused(Refusal {
                error: without(&error, secrets),
                description: description.map(|description| without(&description, secrets)),
            }),
            Self::Failed(problem) => Self::Failed(without(&problem, secrets)),
            same @ (Self::NobodyToAsk | Self::NobodyToConfirm | Self::Forgotten | Self::Unapproved) => same,
        }
    }

    /// Converts the problem to an error for a person.
    pub(super) fn into_error(self, server: &str, issuer: Option<&str>) -> Error {
        let text = match self {
            Self::NobodyToAsk => return Error::authorization_required(server, issuer, MissingCallback::Page),
            Self::NobodyToConfirm => return Error::authorization_required(server, issuer, MissingCallback::Issuer),
            Self::Refused(Refusal { error, description: None }) => format!("the authorization server says {error}"),
            Self::Refused(Refusal { error, description: Some(words) }) => format!("the authorization server says {error}: {words}"),
            Self::Failed(problem) => problem,
            Self::Forgotten | Self::Unapproved => FORGOTTEN.to_owned(),
        };
        Error::authorization_failed(server, issuer, &text)
    }
}

/// Converts rmcp's errors to texts without secrets. rmcp's own texts are not used, because they may quote a response body.
impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        Self::Failed(match error {
            AuthError::PkceUnsupported => PKCE.to_owned(),
            AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
                format!(
                    "the issuer is {received_issuer}, but must be {expected_issuer}: the answer comes from another authorization server"
                )
            }
            AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
                format!("the answer does not name its issuer, which must be {expected_issuer}")
            }
            AuthError::DiscoveryRequestFailed { url, source } => {
                format!("its metadata cannot be read from {}: {source}", super::address::origin_of(&url))
            }
            AuthError::ProtectedResourceMetadataInvalid { reason, .. } => format!("the server's metadata is unusable: {reason}"),
            AuthError::AuthorizationServersUnavailable { authorization_servers, .. } => {
                format!("none of its authorization servers has usable metadata: {}", authorization_servers.join(", "))
            }
            AuthError::InvalidScope(_) => "the authorization server does not support the authorization code flow".to_owned(),
            AuthError::RegistrationFailed(_) => "this program could not be registered with the authorization server".to_owned(),
            AuthError::NoAuthorizationSupport => "the server names no authorization server".to_owned(),
            AuthError::UrlError(_) => "an address in its metadata is not a URL".to_owned(),
            _ => "the authorization server gave no usable answer".to_owned(),
        })
    }
}

const FORGOTTEN: &str =
    "its approval was revoked in the meantime, so its tokens were removed and no new token was stored. Approve the server, then call again";
pub(super) const PKCE: &str = "the authorization server does not announce PKCE with S256 (code_challenge_methods_supported), and without PKCE an authorization code can be stolen";

/// Returns the text with its secrets replaced by `***`.
pub(super) fn without(text: &str, secrets: &[SecretString]) -> String {
    let known = secrets.iter().map(SecretString::expose_secret).filter(|secret| secret.len() >= MIN_SECRET_CHARS);
    known.fold(text.to_owned(), |text, secret| {
        let encoded: String = byte_serialize(secret.as_bytes()).collect();
        text.replace(secret, "***").replace(&encoded, "***")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_strangers_words_are_shown_without_secrets_and_control_characters_and_cut() {
        let refusal = Refusal {
            error: "invalid_grant".to_owned(),
            description: Some(format!("code c0de/1 (c0de%2F1) is used\u{1b}[31m\r\n{}", "x".repeat(5_000))),
        };
        let error = Problem::Refused(refusal).without(&["c0de/1".into()]).into_error("weather", Some("https://auth.example.com"));
        let text = error.in_full();
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
        assert!(text.contains("\"weather\"") && text.contains("https://auth.example.com") && text.contains("invalid_grant"), "{text}");
        assert!(!text.contains("c0de") && !text.chars().any(char::is_control) && text.len() < 1_000, "{text}");
    }

    #[test]
    fn nobody_to_ask_is_told_what_to_do() {
        let error = Problem::NobodyToAsk.into_error("weather", Some("https://auth.example.com"));
        assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
        for word in ["onAuthorize", "headers", "client_credentials", "https://auth.example.com"] {
            assert!(error.in_full().contains(word), "{error}");
        }
    }

    #[test]
    fn nobody_to_confirm_an_issuer_is_told_which_key_to_set() {
        let error = Problem::NobodyToConfirm.into_error("weather", Some("https://auth.example.com"));
        assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
        for word in ["weather", "oauth.issuer", "onIssuer", "https://auth.example.com"] {
            assert!(error.in_full().contains(word), "{error}");
        }
    }

    #[test]
    fn what_rmcp_quotes_of_a_body_is_not_repeated() {
        for error in [AuthError::TokenExchangeFailed("t0k3n".into()), AuthError::RegistrationFailed("HTTP 400: t0k3n".into())] {
            assert!(!format!("{:?}", Problem::from(error)).contains("t0k3n"));
        }
    }

    #[test]
    fn only_an_answer_about_what_was_presented_is_definite() {
        let refused = |error: &str| Problem::Refused(Refusal::read(&json!({ "error": error })).unwrap());
        assert!(refused("invalid_grant").is_definite() && refused("invalid_client").is_definite());
        assert!(!refused("temporarily_unavailable").is_definite() && !Problem::failed("no answer").is_definite());
        assert_eq!(Refusal::read(&json!({ "error": 1 })), None);
    }
}
