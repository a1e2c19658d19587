//! Decides which issuer may receive a credential from the config. Only the issuer that the config names may receive it, or an issuer that
//! a person has confirmed. The MCP server itself names its authorization server, so a malicious MCP server could name its own one to get
//! a secret.

use std::time::Duration;

use tokio::time::timeout;
use url::Url;

use super::failure::Problem;
use super::generation::{Generation, Stored};
use super::store::TokenStore;
use super::task_owner::TaskOwner;
use crate::client::inbound::authorization::{Credential, IssuerPrompt};
use crate::config::OAuthSettings;

/// Time for which a refusal is reused. Without this time, an agent that calls a tool in a loop would ask the person again and again.
pub(super) const QUIET_SECONDS: u64 = 30;
/// Well-known path of RFC 8414.
const OAUTH_PLACE: &str = "/.well-known/oauth-authorization-server";
/// Well-known path of `OpenID` Connect Discovery.
const OPENID_PLACE: &str = "/.well-known/openid-configuration";

impl Credential {
    pub(super) fn of(settings: &OAuthSettings) -> Option<Self> {
        let OAuthSettings { client_secret, private_key, .. } = settings;
        match (private_key, client_secret) {
            (Some(_), _) => Some(Self::PrivateKey),
            (None, Some(_)) => Some(Self::ClientSecret),
            (None, None) => None,
        }
    }
}

/// Fails if the config names an issuer other than `found`, the issuer that was discovered.
pub(super) fn check_pinned(settings: &OAuthSettings, found: &str) -> Result<(), Problem> {
    match &settings.issuer {
        Some(pinned) if !is_same(pinned, found) => Err(Problem::failed(format!(
            "the server names the authorization server {found}, but oauth.issuer is {pinned}, so nothing was sent"
        ))),
        _ => Ok(()),
    }
}

/// Returns whether two issuers are the same. If an address has no path, a slash at its end makes no difference.
fn is_same(one: &str, other: &str) -> bool {
    let normal = |issuer: &str| Url::parse(issuer).ok().filter(|url| url.path() == "/").map(|url| url.to_string());
    one == other || normal(one).is_some_and(|one| normal(other).as_ref() == Some(&one))
}

/// Returns whether `document` is a well-known URL for this issuer's metadata. Only the issuer's host can serve such a URL. The issuer
/// must be a plain URL in normalized spelling, so that a person who reads it sees the real host.
pub(super) fn is_place_of(issuer: &str, document: &Url) -> bool {
    let Ok(url) = Url::parse(issuer) else { return false };
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    let is_spelled_so = url.as_str() == issuer || url.as_str().strip_suffix('/') == Some(issuer);
    // A query could select a document of somebody other than the issuer.
    let is_other = document.query().is_some() || url.origin() != document.origin();
    if !is_bare || !is_spelled_so || is_other {
        return false;
    }
    let path = url.path().trim_end_matches('/');
    let places = [format!("{OAUTH_PLACE}{path}"), format!("{OPENID_PLACE}{path}"), format!("{path}{OPENID_PLACE}")];
    let of_host = [OAUTH_PLACE, OPENID_PLACE];
    let at = document.path().trim_end_matches('/');
    places.iter().any(|place| place == at) || of_host.contains(&at)
}

/// A check whether this issuer may receive the credential. The check may ask a person.
pub(super) struct Recipient<'a> {
    pub(super) server: &'a str,
    /// Key under which the store keeps the server's tokens and confirmations.
    pub(super) key: &'a str,
    pub(super) url: &'a str,
    pub(super) issuer: &'a str,
    pub(super) settings: &'a OAuthSettings,
    /// Credential that the issuer would receive. `None` if the issuer would receive no credential.
    pub(super) credential: Option<Credential>,
    pub(super) store: &'a TokenStore,
    /// The generation of the server's tokens when the work that needs this check began.
    pub(super) began: &'a Generation,
    pub(super) task_owner: &'a TaskOwner,
    pub(super) time: Duration,
    pub(super) now: &'a (dyn Fn() -> u64 + Send + Sync),
}

impl Recipient<'_> {
    /// Succeeds in three cases: no credential is sent, the config names this issuer, or a person confirms the issuer now or has confirmed
    /// it before.
    pub(super) async fn check(self) -> Result<(), Problem> {
        check_pinned(self.settings, self.issuer)?;
        let Some(credential) = self.credential.filter(|_| self.settings.issuer.is_none()) else { return Ok(()) };
        if self.is_confirmed() {
            return Ok(());
        }
        if !self.task_owner.can_confirm_issuer() {
            return Err(Problem::NobodyToConfirm);
        }
        let _person = self.task_owner.pause();
        // Another connection of this server may already be asking the person. The person's answer is valid for this connection too.
        let turn = self.store.turn(self.key, self.url);
        let _asking = turn.mutex.lock().await;
        if self.is_confirmed() {
            return Ok(());
        }
        let refused = turn.refused.lock().clone();
        if let Some((_, problem)) = refused.filter(|(until, _)| (self.now)() < *until) {
            return Err(problem);
        }
        let prompt = IssuerPrompt {
            server: self.server.to_owned(),
            issuer: self.issuer.to_owned(),
            client_id: self.client().to_owned(),
            credential,
        };
        let answer = self.task_owner.confirm_issuer(prompt).ok_or(Problem::NobodyToConfirm)?;
        let problem = match timeout(self.time, answer).await {
            Ok(Ok(true)) => {
                return match self.store.confirm(self.key, self.url, self.issuer, &self.confirmed_client(), self.began) {
                    Stored::Kept => Ok(()),
                    Stored::Forgotten => Err(Problem::Forgotten),
                };
            }
            Ok(Ok(false)) => format!("the {credential} was not sent: onIssuer returned false for this authorization server"),
            Ok(Err(error)) => format!("onIssuer failed: {error}"),
            Err(_) => format!("nobody answered the question within {} s", self.time.as_secs()),
        };
        let problem = Problem::Failed(problem);
        *turn.refused.lock() = Some(((self.now)() + QUIET_SECONDS, problem.clone()));
        Err(problem)
    }

    fn is_confirmed(&self) -> bool {
        self.store.is_confirmed(self.key, self.url, self.issuer, &self.confirmed_client())
    }

    fn client(&self) -> &str {
        let OAuthSettings { client_id, client_metadata_url, .. } = self.settings;
        client_id.as_deref().or(client_metadata_url.as_deref()).unwrap_or_default()
    }

    /// Returns the client name under which a confirmation is stored. A confirmation for a login without a secret is not valid for a
    /// secret that is added to the config later. So it is stored under another name.
    fn confirmed_client(&self) -> String {
        let suffix = if self.credential == Some(Credential::ClientId) { " (client id only)" } else { "" };
        format!("{}{suffix}", self.client())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_issuer_that_the_config_names_passes() {
        let pinned = |issuer: &str| OAuthSettings { issuer: Some(issuer.to_owned()), ..OAuthSettings::default() };
        for (issuer, found) in [
            ("https://auth.example.com", "https://auth.example.com"),
            ("https://auth.example.com", "https://auth.example.com/"),
            ("https://auth.example.com/tenant", "https://auth.example.com/tenant"),
        ] {
            assert!(check_pinned(&pinned(issuer), found).is_ok(), "{issuer} {found}");
        }
        for (issuer, found) in [
            ("https://auth.example.com", "http://auth.example.com"),
            ("https://auth.example.com", "https://auth.example.com:8443"),
            ("https://auth.example.com", "https://auth.example.com.evil.example"),
            ("https://auth.example.com/tenant", "https://auth.example.com/tenant/"),
            ("https://auth.example.com/tenant", "https://auth.example.com/other"),
            ("https://auth.example.com", "https://evil.example"),
        ] {
            let Err(Problem::Failed(problem)) = check_pinned(&pinned(issuer), found) else { panic!("{issuer} {found}") };
            assert!(problem.contains(issuer) && problem.contains(found) && problem.contains("oauth.issuer"), "{problem}");
        }
        assert!(check_pinned(&OAuthSettings::default(), "https://evil.example").is_ok());
    }

    #[test]
    fn an_issuers_metadata_stands_where_nobody_else_can_put_it() {
        let is_place = |issuer: &str, document: &str| is_place_of(issuer, &Url::parse(document).unwrap());
        for document in [
            "https://a.example/.well-known/oauth-authorization-server/t",
            "https://a.example/.well-known/openid-configuration/t",
            "https://a.example/t/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server",
        ] {
            assert!(is_place("https://a.example/t", document) && is_place("https://a.example/t/", document), "{document}");
        }
        assert!(is_place("https://a.example", "https://a.example/.well-known/openid-configuration"));
        assert!(is_place("https://a.example/", "https://a.example/.well-known/oauth-authorization-server"));
        for (issuer, document) in [
            ("https://a.example", "https://evil.example/.well-known/oauth-authorization-server"),
            ("https://a.example", "https://a.example/.well-known/other"),
            ("https://a.example", "https://a.example/.well-known/openid-configuration?of=evil"),
            ("https://a.example/t", "https://a.example/evil/.well-known/openid-configuration"),
            ("https://a.example/t", "https://a.example/.well-known/oauth-authorization-server/evil"),
            ("https://a.example@evil.example", "https://evil.example/.well-known/oauth-authorization-server"),
            ("https://evil.example?https://a.example", "https://evil.example/.well-known/oauth-authorization-server"),
            ("https://evil.example#https://a.example", "https://evil.example/.well-known/oauth-authorization-server"),
            ("https://EVIL.example", "https://evil.example/.well-known/oauth-authorization-server"),
            ("http://a.example", "https://a.example/.well-known/oauth-authorization-server"),
            ("a.example", "https://a.example/.well-known/oauth-authorization-server"),
        ] {
            assert!(!is_place(issuer, document), "{issuer} {document}");
        }
    }
}
