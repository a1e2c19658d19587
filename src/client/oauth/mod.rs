//! Tokens for servers over HTTP. rmcp's `auth` module implements OAuth 2.1: it finds authorization servers, registers clients and
//! exchanges codes. This module decides which person is asked, how often, and for how long. It also stores the tokens, and provides the
//! HTTP client for all requests.
//!
//! [`OAuth`] (`source`) holds one token and runs at most one token task. A token task is a background task that loads, renews or requests
//! a token (`token_manager`). All callers that need a token wait for the same token task. If a person must be asked, the token task asks
//! the owner of the request that started it (`task_owner`). If a caller stops waiting, the token task continues, so that a person who is
//! being asked can still answer. The decisions are pure functions in `decide`.

mod address;
mod assertion;
mod callback;
mod decide;
mod discovery;
mod documents;
mod exchange;
mod failure;
mod generation;
mod http;
mod obtain;
mod person;
mod recipient;
mod scopes;
mod sent;
mod source;
mod store;
mod task_owner;
mod token_manager;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use secrecy::SecretString;

pub use source::OAuth;
pub use store::TokenStore;

pub use crate::config::{Grant, OAuthSettings, SigningAlgorithm};
use crate::error::Result;

/// Callback that receives each new token and secret. It is called before a secret is used, so that the secret can be redacted.
pub type OnSecret = Arc<dyn Fn(&SecretString) + Send + Sync>;

/// Function that fails if the server is no longer approved. It is called before a token is requested, and before a token is stored.
pub type CheckApproved = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Callbacks and store of an [`OAuth`]. They belong to no caller. If a person must be asked, the request's owner is asked
/// ([`RequestOwner`](crate::client::RequestOwner)).
#[derive(Clone)]
pub struct OAuthContext {
    /// Key of the server ([`ServerDefinition::key`](crate::config::ServerDefinition::key)). Its tokens are stored under this key.
    pub key: String,
    pub store: TokenStore,
    pub check_approved: CheckApproved,
    pub on_secret: OnSecret,
    /// True if HTTP without TLS to other machines is allowed (`allowInsecureHttp`).
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
