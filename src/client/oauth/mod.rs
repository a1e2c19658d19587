//! Tokens for servers over HTTP: OAuth 2.1 through rmcp's `auth`, which finds authorization servers, registers clients and exchanges codes.
//! Written here: who is asked, how often and how long; which tokens are kept, and for whom; the HTTP client of every request.
//!
//! [`OAuth`] (`source`) has one token and one flight: whoever needs a token waits for the one that is on its way. A flight
//! (`source`, its work in `token_manager`) is a task of its own, so that a call that gives up does not take the question from the
//! person who reads it.
//! The decisions are pure functions, in `decide`.

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

/// A question to a person: to open an authorization page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationPrompt {
    pub server: String,
    /// Address to open in a browser: `https`, or on this machine.
    pub url: String,
    /// Issuer of the page.
    pub issuer: String,
}

/// The URL to which the browser was redirected; `None` where it comes back to this machine by itself.
pub type Authorization = Pin<Box<dyn Future<Output = Result<Option<String>>> + Send>>;

/// Callback that shows a page to a person.
pub type Authorize = Arc<dyn Fn(AuthorizationPrompt) -> Authorization + Send + Sync>;

/// A question to a person: may a credential of the config go to an issuer that the config does not name?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPrompt {
    pub server: String,
    /// The authorization server, as the MCP server has named it.
    pub issuer: String,
    /// Client id of the credential.
    pub client_id: String,
    pub credential: Credential,
}

/// Callback that asks a person whether the issuer may be sent the credential.
pub type ConfirmIssuer = Arc<dyn Fn(IssuerPrompt) -> Pin<Box<dyn Future<Output = Result<bool>> + Send>> + Send + Sync>;

/// Callback for each new token and secret, called before it is used.
pub type OnSecret = Arc<dyn Fn(&SecretString) + Send + Sync>;

/// Callbacks and store of an [`OAuth`].
#[derive(Clone)]
pub struct OAuthContext {
    pub store: TokenStore,
    /// Callback that asks a person to authorize; without it, nobody can be asked.
    pub authorize: Option<Authorize>,
    /// Callback that asks a person to confirm an issuer; without it, a credential goes only to the issuer that the config names, or that
    /// was confirmed before.
    pub confirm_issuer: Option<ConfirmIssuer>,
    pub on_secret: OnSecret,
    /// `allowInsecureHttp`: allows HTTP without TLS to other machines.
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
