//! Source of a server's bearer tokens.

use std::future::Future;
use std::pin::Pin;

use secrecy::SecretString;

use crate::client::inbound::owner::RequestOwner;
use crate::error::Result;

/// Future of a token. A person may have to authorize before it resolves.
pub type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Source of the bearer tokens of one server.
pub trait TokenSource: Send + Sync {
    /// Returns the token to send now, without the prefix `Bearer `. Renews a token that is about to expire. `None` means that no token is sent.
    /// If a person has to confirm something first, the `owner` of the request is asked.
    fn token<'a>(&'a self, owner: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>>;

    /// Handles a refusal of a request that was sent with `used`. `status` is 401, or 403 for a missing scope, and `challenge` is the header
    /// `WWW-Authenticate`. Returns `true` if there is a new token and the request may be sent again. If a person is needed, the `owner` of the
    /// request is asked.
    fn challenged<'a>(
        &'a self,
        status: u16,
        challenge: &'a str,
        used: Option<&'a SecretString>,
        owner: &'a RequestOwner,
    ) -> TokenFuture<'a, bool>;

    /// Records that the server accepted a request with the token `used`. Without this record, a token counts as accepted after a minute.
    fn accepted(&self, _used: &SecretString) {}
}
