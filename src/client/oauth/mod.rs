//! Tokens for servers over HTTP. rmcp's `auth` module implements OAuth 2.1: it finds authorization servers, registers clients and exchanges
//! codes. This module decides who is asked, how often and how long, stores the tokens, and provides the HTTP client of every request.
//!
//! [`OAuth`] (`source`) holds one token and runs at most one flight. A flight is a background task that loads, renews or requests a token
//! (`token_manager`). All callers that need a token wait for the same flight. If a caller stops waiting, the flight continues, so that a person
//! who is being asked can still answer. The decisions are pure functions in `decide`.

mod address;
mod assertion;
mod callback;
mod decide;
mod discovery;
mod exchange;
mod failure;
mod generation;
mod http;
mod person;
mod recipient;
mod source;
mod store;
mod token_manager;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use secrecy::SecretString;

pub use recipient::Credential;
pub use source::OAuth;
pub use store::TokenStore;

pub use crate::config::{Grant, OAuthSettings, SigningAlgorithm};
use crate::error::Result;

/// A request to a person to open an authorization page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationPrompt {
    pub server: String,
    /// URL to open in a browser. Its scheme is `https`, except on this machine.
    pub url: String,
    /// Issuer (authorization server) of the page.
    pub issuer: String,
}

/// Future of the URL to which the browser was redirected. `None` if the browser is redirected to this machine's own listener.
pub type Authorization = Pin<Box<dyn Future<Output = Result<Option<String>>> + Send>>;

/// Callback that asks a person to open an authorization page.
pub type Authorize = Arc<dyn Fn(AuthorizationPrompt) -> Authorization + Send + Sync>;

/// A question to a person: may a credential of the config be sent to an issuer that the config does not name?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPrompt {
    pub server: String,
    /// The authorization server that the MCP server has named.
    pub issuer: String,
    /// Client id of the credential.
    pub client_id: String,
    pub credential: Credential,
}

/// Callback that asks a person whether the issuer may be sent the credential.
pub type ConfirmIssuer = Arc<dyn Fn(IssuerPrompt) -> Pin<Box<dyn Future<Output = Result<bool>> + Send>> + Send + Sync>;

/// Callback for each new token and secret. It is called before the secret is used, so that the secret can be redacted.
pub type OnSecret = Arc<dyn Fn(&SecretString) + Send + Sync>;

/// Callbacks and store of an [`OAuth`].
#[derive(Clone)]
pub struct OAuthContext {
    pub store: TokenStore,
    /// Callback that asks a person to authorize. Without it, nobody can be asked.
    pub authorize: Option<Authorize>,
    /// Callback that asks a person to confirm an issuer. Without it, a credential is sent only to the issuer that the config names, or that a
    /// person confirmed before.
    pub confirm_issuer: Option<ConfirmIssuer>,
    pub on_secret: OnSecret,
    /// True if HTTP without TLS is allowed to other machines (`allowInsecureHttp`).
    pub allow_insecure: bool,
}

impl Debug for OAuthContext {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OAuthContext")
            .field("store", &self.store)
            .field("allow_insecure", &self.allow_insecure)
            .finish_non_exhaustive()
    }
}
