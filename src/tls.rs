//! TLS settings of the HTTP clients.

use std::sync::{Arc, OnceLock};

use rustls::crypto::ring;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// Returns TLS settings with this machine's certificate authorities. The certificates are read only once, because there are hundreds of
/// them.
pub(crate) fn verifying() -> Result<ClientConfig, String> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let verified = builder()?.with_platform_verifier().map_err(|error| format!("this machine's certificates cannot be read: {error}"))?;
    Ok(CONFIG.get_or_init(|| verified.with_no_client_auth()).clone())
}

/// Returns TLS settings without any certificate authority, for servers that are reached over `http://`.
pub(crate) fn distrusting() -> Result<ClientConfig, String> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))
}
