//! Makes the HTTP client of one connection, with its connection pool.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::target::{HttpLimits, is_loopback};
use crate::network::Lookups;
use crate::tls;

/// Number of idle connections that are kept open for later requests.
const IDLE_CONNECTIONS: usize = 16;
/// Time for which an idle connection is kept. It is shorter than the 5 s for which Node servers keep one. If a server closes the connection
/// while a call is sent, the call is lost, because calls are not sent again.
const IDLE: Duration = Duration::from_secs(4);

/// Makes the HTTP client of one server. The client follows no redirects and makes no retries, because the modules `redirect` and `retry` do
/// both.
pub(super) fn client_for(url: &Url, limits: &HttpLimits) -> Result<reqwest::Client, String> {
    // For `http://` no certificates are loaded, so a machine without certificates can still reach local servers.
    let tls = if url.scheme() == "https" { tls::verifying()? } else { tls::distrusting()? };
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(limits.connect)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE)
        .dns_resolver(Arc::new(Lookups::default()))
        .user_agent(concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION")));
    // Requests to this machine must not go through a proxy.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}
