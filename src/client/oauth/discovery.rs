//! Finds the authorization server of an MCP server. rmcp reads the protected resource metadata and the authorization server metadata.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::auth::{AuthorizationManager, AuthorizationMetadata, OAuthClientConfig};
use serde_json::Value as Json;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;
use url::Url;

use super::address::origin_of;
use super::documents::MAX_CHALLENGE_BYTES;
use super::exchange::Issuer;
use super::failure::{PKCE, Problem};
use super::http::Http;
use super::recipient::is_place_of;
use crate::config::OAuthSettings;

/// Longest time for all requests that find the authorization server. A document can name several servers, and each request has its own time
/// limit.
const TIME: Duration = Duration::from_mins(1);

/// The authorization server that was found.
pub(super) struct Discovery {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) issuer: Issuer,
    /// Scopes that the challenge or the metadata lists.
    pub(super) scopes: Vec<String>,
    /// True if the authorization server publishes metadata. A server of MCP 2025-03-26 may have no metadata; its endpoints are then at
    /// default paths.
    is_published: bool,
}

/// Finds the authorization server. Starts from a challenge if there is one.
pub(super) async fn discover(http: &Arc<Http>, base: &Url, challenge: Option<&str>) -> Result<Discovery, Problem> {
    http.forget_document();
    let challenge = challenge.filter(|challenge| challenge.len() <= MAX_CHALLENGE_BYTES);
    let found = quiet(async {
        let mut manager = AuthorizationManager::new_with_oauth_http_client(base.clone(), Arc::clone(http) as _).await?;
        let resolution = manager.resolve_metadata_from_challenge(challenge).await?;
        let metadata = resolution.metadata;
        let is_published = resolution.source.is_discovered();
        if is_published {
            check_place(&metadata, http)?;
        }
        let issuer = issuer_of(&metadata, http)?;
        manager.set_metadata(metadata.clone());
        let scopes = manager.select_initial_scopes(&[]).await;
        Ok(Discovery { manager, metadata, issuer, scopes, is_published })
    });
    let seconds = TIME.as_secs();
    timeout(TIME, found).await.unwrap_or_else(|_| {
        Err(Problem::failed(format!(
            "its authorization server was not found within {seconds} s, so nothing was sent: its metadata names hosts that do not answer"
        )))
    })
}

impl Discovery {
    /// Checks that the metadata announces the PKCE method S256. MCP requires this, but rmcp also accepts metadata without it.
    pub(super) fn check_pkce(&self) -> Result<(), Problem> {
        let methods = self.metadata.code_challenge_methods_supported.as_deref().unwrap_or_default();
        if methods.iter().any(|method| method == "S256") || !self.is_published { Ok(()) } else { Err(Problem::failed(PKCE)) }
    }

    /// Checks that the answer of this authorization page cannot be confused with the answer of another authorization server. A malicious
    /// MCP server could name the page of an honest authorization server as its own page. The malicious server would then receive the code
    /// for which a person logs in on that page (RFC 9700, 4.4).
    pub(super) fn check_page(&self, settings: &OAuthSettings) -> Result<(), Problem> {
        // If the config names an issuer, a person has approved it, and `discover` has compared it with the issuer that was found.
        if self.names_issuer() || settings.issuer.is_some() {
            return Ok(());
        }
        let page =
            Url::parse(&self.metadata.authorization_endpoint).map_err(|_| Problem::failed("its authorization endpoint is not a URL"))?;
        if Url::parse(&self.issuer.name).is_ok_and(|issuer| issuer.origin() == page.origin()) {
            return Ok(());
        }
        Err(Problem::failed(format!(
            "its login page is on another host than its issuer, and it does not promise to name itself in its answers ({NAMES_ISSUER}). So the answer of another authorization server could not be distinguished from its own. Issuer: {}, page: {}. If this issuer is the right one, set oauth.issuer to it, and approve the server again",
            self.issuer.name,
            origin_of(&page)
        )))
    }

    /// Returns whether a person must confirm the issuer before a login. This prevents a mix-up attack: other authorization servers may know
    /// the client too, with the same redirect URI. If only the MCP server has named the issuer, the issuer may be malicious: it redirects
    /// the person to the page of an honest authorization server, and then gets the code from that page.
    pub(super) fn needs_confirmation(&self, settings: &OAuthSettings) -> bool {
        self.is_known_elsewhere(settings) && !self.names_issuer() && settings.issuer.is_none()
    }

    /// Returns whether other authorization servers may know the client too. This is possible if the client was not registered here.
    pub(super) fn is_known_elsewhere(&self, settings: &OAuthSettings) -> bool {
        settings.client_id.is_some() || (settings.client_metadata_url.is_some() && self.takes_client_documents())
    }

    /// Returns whether the authorization server promises that each answer of its page names the issuer. rmcp then refuses an answer
    /// without an issuer.
    fn names_issuer(&self) -> bool {
        self.metadata.additional_fields.get(NAMES_ISSUER).and_then(Json::as_bool).unwrap_or(false)
    }

    /// Returns whether the authorization server accepts a client metadata document instead of a registration (SEP-991).
    pub(super) fn takes_client_documents(&self) -> bool {
        self.metadata.additional_fields.get("client_id_metadata_document_supported").and_then(Json::as_bool).unwrap_or(false)
    }

    /// Returns whether the authorization server offers the scope `offline_access`. Some authorization servers only issue a refresh token
    /// with this scope (SEP-2207).
    pub(super) fn has_offline_access(&self) -> bool {
        self.metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE_ACCESS)
    }

    /// Returns the resource for which tokens are requested (RFC 8707). The resource is read from an authorization URL, because rmcp exposes
    /// it in no other way.
    pub(super) async fn resource(&mut self, base: &Url) -> String {
        let page = quiet(async {
            self.manager.configure_client(OAuthClientConfig::new("resource", base.as_str())).ok()?;
            Url::parse(&self.manager.get_authorization_url(&[]).await.ok()?).ok()
        })
        .await;
        page.and_then(|page| parameter(&page, "resource")).unwrap_or_else(|| base.to_string())
    }
}

/// Metadata field with which an authorization server promises that each answer names the issuer (RFC 9207).
const NAMES_ISSUER: &str = "authorization_response_iss_parameter_supported";
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// Runs work without logging, because rmcp would log authorization codes and fields of tokens.
pub(super) fn quiet<F: Future>(work: F) -> impl Future<Output = F::Output> {
    work.with_subscriber(NoSubscriber::default())
}

pub(super) fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Checks that the metadata was loaded from an address that belongs to its issuer. Without this check, any host could claim to be any
/// issuer.
fn check_place(metadata: &AuthorizationMetadata, http: &Http) -> Result<(), Problem> {
    let issuer = metadata.issuer.as_deref().unwrap_or_default();
    let document = http.last_document();
    if document.as_ref().is_some_and(|document| is_place_of(issuer, document)) {
        return Ok(());
    }
    let place = document.as_ref().map(origin_of).unwrap_or_default();
    Err(Problem::failed(format!("metadata of {place} names the issuer \"{issuer}\", but was not loaded from an address of this issuer")))
}

fn issuer_of(metadata: &AuthorizationMetadata, http: &Http) -> Result<Issuer, Problem> {
    let endpoint = Url::parse(&metadata.token_endpoint).map_err(|_| Problem::failed("its token endpoint is not a URL"))?;
    // The endpoint is checked now, so that no person is asked for an authorization that cannot be used later.
    http.check(&endpoint).map_err(|problem| Problem::failed(format!("its token endpoint cannot be used: {problem}")))?;
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported").and_then(Json::as_array);
    let texts = |list: &Vec<Json>| list.iter().filter_map(Json::as_str).map(ToOwned::to_owned).collect();
    Ok(Issuer {
        name: metadata.issuer.clone().unwrap_or_else(|| origin_of(&endpoint)),
        token_endpoint: endpoint.to_string(),
        methods: methods.map(texts),
    })
}
