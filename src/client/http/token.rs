//! The source of a server's bearer tokens.

use std::future::Future;
use std::pin::Pin;

use secrecy::SecretString;

use crate::error::Result;

/// Future that may take a person's time.
pub type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The tokens of one server.
pub trait TokenSource: Send + Sync {
    /// The token to send now, renewed if it is about to expire; `None`: send none. Without `Bearer `.
    fn token(&self) -> TokenFuture<'_, Option<SecretString>>;

    /// The server refused a request that was sent with `used`: 401, or 403 for a missing scope, with the header
    /// `WWW-Authenticate` as it came. `true`: there is another token now, and the request may be sent once more.
    fn challenged<'a>(&'a self, status: u16, challenge: &'a str, used: Option<&'a SecretString>) -> TokenFuture<'a, bool>;

    /// The server took a request that was sent with `used`. Where this is not told, a token counts as taken after a minute.
    fn accepted(&self, _used: &SecretString) {}
}
