//! The HTTP client of one connection: its TLS, and no habits of its own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use url::Url;

use super::target::{HttpLimits, is_loopback};

/// Number of connections kept open for the next request.
const IDLE_CONNECTIONS: usize = 16;
/// Time for which an idle connection is kept: less than Node servers keep theirs (5 s). A request that meets their close is lost, and a
/// call is not sent again.
const IDLE: Duration = Duration::from_secs(4);

/// Makes the client of one server. It follows no redirect and retries nothing: both are decided here.
pub(super) fn client_for(url: &Url, limits: &HttpLimits) -> Result<reqwest::Client, String> {
    // A machine without certificates can still speak to itself.
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
    // Requests to this machine need no proxy.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}

fn builder() -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, String> {
    rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))
}

/// TLS settings with this machine's certificate authorities. Read once: a system has hundreds of certificates.
fn verifying() -> Result<rustls::ClientConfig, String> {
    static CONFIG: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let verified = builder()?.with_platform_verifier().map_err(|error| format!("this machine's certificates cannot be read: {error}"))?;
    Ok(CONFIG.get_or_init(|| verified.with_no_client_auth()).clone())
}

/// TLS settings without any certificate authority: for servers that show no certificate.
fn distrusting() -> Result<rustls::ClientConfig, String> {
    Ok(builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}
