//! Makes the HTTP client of one connection: its TLS settings and its connection pool.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use url::Url;

use super::target::{HttpLimits, is_loopback};

/// Number of connections kept open for the next request.
const IDLE_CONNECTIONS: usize = 16;
/// Time for which an idle connection is kept. It is shorter than the 5 s of Node servers: a call that is sent while the server closes the
/// connection is lost, and calls are not sent again.
const IDLE: Duration = Duration::from_secs(4);

/// Makes the HTTP client of one server. The client itself follows no redirects and retries nothing, because other modules decide about both.
pub(super) fn client_for(url: &Url, limits: &HttpLimits) -> Result<reqwest::Client, String> {
    // For `http://` no certificates are loaded, so that a machine without any can still reach local servers.
    let tls = if url.scheme() == "https" { verifying()? } else { distrusting()? };
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(limits.connect)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION")));
    // Requests to this machine must not go through a proxy.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}

fn builder() -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, String> {
    rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))
}

/// Returns TLS settings with this machine's certificate authorities. They are read only once, because there are hundreds of certificates.
fn verifying() -> Result<rustls::ClientConfig, String> {
    static CONFIG: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let verified = builder()?.with_platform_verifier().map_err(|error| format!("this machine's certificates cannot be read: {error}"))?;
    Ok(CONFIG.get_or_init(|| verified.with_no_client_auth()).clone())
}

/// Returns TLS settings without any certificate authority, for servers that are reached over `http://`.
fn distrusting() -> Result<rustls::ClientConfig, String> {
    Ok(builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}
