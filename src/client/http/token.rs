//! Source of a server's bearer tokens.

use std::future::Future;
use std::pin::Pin;

use secrecy::SecretString;

use crate::client::inbound::owner::RequestOwner;
use crate::error::Result;

/// Future of a token. A person may have to give an authorization before the future resolves.
pub type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Source of the bearer tokens of one server.
pub trait TokenSource: Send + Sync {
    /// Returns the token to send now, without the prefix `Bearer `. Renews a token that will soon expire. Returns `None` if the request is
    /// sent without a token. If a person has to confirm something first, the request's `owner` is asked.
    fn token<'a>(&'a self, owner: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>>;

    /// Handles a refused request that was sent with the token `used`. `status` is 401, or 403 if a scope is missing. `challenge` is the
    /// value of the `WWW-Authenticate` header. Returns `true` if there is a new token, so that the request may be sent again. If a person
    /// is needed, the request's `owner` is asked.
    fn challenged<'a>(
        &'a self,
        status: u16,
        challenge: &'a str,
        used: Option<&'a SecretString>,
        owner: &'a RequestOwner,
    ) -> TokenFuture<'a, bool>;

    /// Records that the server accepted a request with the token `used`. A token without this record is treated as accepted after one
    /// minute.
    fn accepted(&self, _used: &SecretString) {}
}
