//! The authorization code flow. A person consents in a browser.

use std::time::Duration;

use rmcp::transport::auth::{AuthError, OAuthClientConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use url::Url;

use super::OnSecret;
use super::callback::{Answer, Callback, PATH, answer_at};
use super::discovery::{Discovery, parameter, quiet};
use super::exchange::Granted;
use super::failure::Problem;
use super::http::Http;
use super::store::{Client, short_digest};
use super::task_owner::TaskOwner;
use crate::client::inbound::authorization::AuthorizationPrompt;
use crate::config::OAuthSettings;

/// Client name for dynamic client registration.
const CLIENT_NAME: &str = "hyperlight-mcp";

impl Client {
    /// Returns the client in the form in which it is stored. A secret from the config is removed.
    pub(super) fn as_stored(&self) -> Self {
        Self { secret: self.secret.clone().filter(|_| self.registered_for.is_some()), ..self.clone() }
    }

    /// Adds the secret from the config, if the config names this client.
    pub(super) fn with_secret_of(self, settings: &OAuthSettings) -> Self {
        match self.registered_for {
            Some(_) => self,
            None => Self { secret: settings.client_secret.clone().filter(|_| settings.client_id.as_ref() == Some(&self.id)), ..self },
        }
    }
}

/// Maximum length in bytes of the URL of an authorization page. A person cannot judge a longer URL, and no honest page needs one.
const MAX_PAGE_BYTES: usize = 8 * 1024;
/// Parameters of an authorization request that determine which client asks, what it asks for, and where the answer goes. Only this
/// program may set them.
const OUR_PARAMETERS: [&str; 12] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "request",
    "request_uri",
    "resource",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// A question to a person: may this client use the server?
pub(super) struct Question<'a> {
    pub(super) server: &'a str,
    pub(super) http: &'a Http,
    pub(super) settings: &'a OAuthSettings,
    pub(super) task_owner: &'a TaskOwner,
    /// Function that fails if the server is no longer approved.
    pub(super) check_approved: &'a (dyn Fn() -> Result<(), Problem> + Send + Sync),
    pub(super) on_secret: &'a OnSecret,
    /// Client that was registered earlier, if any.
    pub(super) known: Option<Client>,
    pub(super) scopes: Vec<String>,
    pub(super) time: Duration,
}

/// The result of a successful authorization.
pub(super) struct Authorized {
    pub(super) client: Client,
    pub(super) granted: Granted,
    /// Scopes that were requested.
    pub(super) scopes: Vec<String>,
    pub(super) resource: String,
}

impl Question<'_> {
    pub(super) async fn ask(self, mut found: Discovery) -> Result<Authorized, Problem> {
        found.check_pkce()?;
        found.check_page(self.settings)?;
        check_endpoint(&found.metadata.authorization_endpoint)?;
        let callback = self.listen(&self.callback_path(&found)).await?;
        let redirect_uri = callback.redirect_uri().clone();
        self.http.take_failure();
        let client = self.client(&mut found, &redirect_uri).await?;
        let scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        let page = quiet(found.manager.get_authorization_url(&scopes)).await?;
        let page = Url::parse(&page).map_err(|_| Problem::failed("its authorization endpoint is not a URL"))?;
        // The page's URL is checked, because a browser would also open a file or start a program for some URLs.
        self.http.check(&page).map_err(|problem| Problem::failed(format!("its authorization page cannot be shown: {problem}")))?;
        if page.as_str().len() > MAX_PAGE_BYTES {
            return Err(Problem::failed(format!("the URL of its authorization page is longer than {MAX_PAGE_BYTES} bytes")));
        }
        let required = |name: &str| {
            let missing = || Problem::failed(format!("the URL of its authorization page has no parameter \"{name}\""));
            parameter(&page, name).ok_or_else(missing)
        };
        let (state, resource) = (SecretString::from(required("state")?), required("resource")?);
        let answer = timeout(self.time, self.wait(&page, &found.issuer.name, callback, &state)).await;
        // Another process may have withdrawn the approval while the person was on the page.
        (self.check_approved)()?;
        let late = |_| Problem::failed(format!("nobody answered the question within {} s", self.time.as_secs()));
        let (code, issuer) = code_of(answer.map_err(late)??, found.metadata.issuer.as_deref())?;
        let exchange = found.manager.exchange_code_for_token_with_issuer(code.expose_secret(), state.expose_secret(), issuer.as_deref());
        let response = quiet(exchange).await.map_err(|error| self.explain(error).without(&[code, state.clone()]))?;
        let unusable = || Problem::failed("its token endpoint gave no bearer token");
        let granted = serde_json::to_value(&response).ok().as_ref().and_then(Granted::read).ok_or_else(unusable)?;
        Ok(Authorized { client, granted, scopes: self.scopes, resource })
    }

    /// Returns the path to which the browser is redirected. For a client that is registered at this issuer, the path is different for each
    /// issuer. This prevents an attack: a malicious authorization server redirects the person to the page of an honest one, and uses the id
    /// of the client that is registered at the honest one. The code of the honest server then goes to another path, so the malicious server
    /// does not get the code.
    fn callback_path(&self, found: &Discovery) -> String {
        if found.is_known_elsewhere(self.settings) {
            PATH.to_owned()
        } else {
            format!("{PATH}/{}", short_digest(&["callback", &found.issuer.name]))
        }
    }

    /// Listens for the redirect. If possible, uses the port for which the client was registered.
    async fn listen(&self, path: &str) -> Result<Callback, Problem> {
        if let Some(port) = self.settings.callback_port {
            let taken = |error| Problem::failed(format!("cannot listen on port {port} (oauth.callbackPort): {error}"));
            return Callback::bind(Some(port), path).await.map_err(taken);
        }
        let before = self.known.as_ref().and_then(|client| Url::parse(client.registered_for.as_ref()?).ok()?.port());
        let listening = match before {
            Some(port) => match Callback::bind(Some(port), path).await {
                Ok(callback) => Ok(callback),
                Err(_) => Callback::bind(None, path).await,
            },
            None => Callback::bind(None, path).await,
        };
        listening.map_err(|error| Problem::failed(format!("no port of 127.0.0.1 can be listened on: {error}")))
    }

    /// Returns the client to use. This is the first of the following that exists: the client from the config, the client's metadata
    /// document, a client that was registered earlier, or a newly registered client.
    async fn client(&self, found: &mut Discovery, redirect_uri: &Url) -> Result<Client, Problem> {
        let client = match choose(self.settings, self.known.as_ref(), found.takes_client_documents(), redirect_uri.as_str()) {
            Some(client) => client,
            None if found.metadata.registration_endpoint.is_none() => {
                let problem = "the authorization server registers no clients: set oauth.clientId to one that it knows";
                return Err(Problem::failed(problem));
            }
            None => return self.register(found, redirect_uri).await,
        };
        let config = OAuthClientConfig::new(client.id.as_str(), redirect_uri.as_str());
        let config = client.secret.iter().fold(config, |config, secret| config.with_client_secret(secret.expose_secret()));
        found.manager.configure_client(config)?;
        Ok(client)
    }

    async fn register(&self, found: &mut Discovery, redirect_uri: &Url) -> Result<Client, Problem> {
        let scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        let registered = quiet(found.manager.register_client(CLIENT_NAME, redirect_uri.as_str(), &scopes)).await;
        let config = registered.map_err(|error| self.explain(error))?;
        let secret = config.client_secret.map(SecretString::from);
        if let Some(secret) = &secret {
            (self.on_secret)(secret);
        }
        Ok(Client { id: config.client_id, secret, registered_for: Some(redirect_uri.to_string()) })
    }

    /// Waits until the browser reaches the callback, or the agent returns the redirect URL. The clocks of all callers pause during this
    /// time. They also pause after the agent's callback has returned, because the person is still on the page.
    async fn wait(&self, page: &Url, issuer: &str, callback: Callback, state: &SecretString) -> Result<Answer, Problem> {
        let redirect_uri = callback.redirect_uri().clone();
        let prompt = AuthorizationPrompt { server: self.server.to_owned(), url: page.to_string(), issuer: issuer.to_owned() };
        let _person = self.task_owner.pause();
        let mut heard = std::pin::pin!(callback.answer(state));
        let asked = self.task_owner.authorize(prompt).ok_or(Problem::NobodyToAsk)?;
        let told = tokio::select! {
            answer = &mut heard => return Ok(answer),
            told = asked => told.map_err(|error| Problem::failed(format!("onAuthorize failed: {error}")))?,
        };
        let Some(told) = told.map(SecretString::from) else { return Ok(heard.await) };
        let stray = || {
            Problem::failed(
                "onAuthorize returned a URL that is not an answer to this authorization: it must be the one to which the browser was redirected",
            )
        };
        answer_at(&redirect_uri, told.expose_secret().trim(), state).ok_or_else(stray)
    }

    /// Converts rmcp's error to a failure that contains the details of the authorization server's answer. rmcp's error does not contain
    /// these details.
    fn explain(&self, error: AuthError) -> Problem {
        match error {
            AuthError::TokenExchangeFailed(_) | AuthError::RegistrationFailed(_) => {
                self.http.take_failure().unwrap_or_else(|| error.into())
            }
            other => other.into(),
        }
    }
}

/// Checks the URL of the page that a person opens to authorize. A user name or password before the host is refused, because it could make
/// the URL look like another host's. The query must not set a parameter that this program sets, because an authorization server may use
/// either of two values.
fn check_endpoint(endpoint: &str) -> Result<(), Problem> {
    let page = Url::parse(endpoint).map_err(|_| Problem::failed("its authorization endpoint is not a URL"))?;
    if !page.username().is_empty() || page.password().is_some() {
        return Err(Problem::failed("its authorization endpoint has a user name or a password before the host, which only hides the host"));
    }
    if page.fragment().is_some() {
        return Err(Problem::failed("its authorization endpoint has a fragment"));
    }
    if let Some((name, _)) = page.query_pairs().find(|(name, _)| OUR_PARAMETERS.iter().any(|ours| name.eq_ignore_ascii_case(ours))) {
        return Err(Problem::failed(format!("its authorization endpoint sets the parameter \"{name}\" of the request")));
    }
    Ok(())
}

/// Chooses the client. Returns `None` if a new client must be registered.
fn choose(settings: &OAuthSettings, known: Option<&Client>, takes_documents: bool, redirect_uri: &str) -> Option<Client> {
    if let Some(id) = &settings.client_id {
        return Some(Client { id: id.clone(), secret: settings.client_secret.clone(), registered_for: None });
    }
    if let Some(url) = settings.client_metadata_url.as_ref().filter(|_| takes_documents) {
        return Some(Client { id: url.clone(), secret: None, registered_for: None });
    }
    known.filter(|client| client.registered_for.as_deref() == Some(redirect_uri)).cloned()
}

/// Returns the authorization code and its issuer, which rmcp checks. For a refusal, this function itself checks the issuer.
fn code_of(answer: Answer, expected: Option<&str>) -> Result<(SecretString, Option<String>), Problem> {
    match answer {
        Answer::Code { code, issuer } => Ok((code, issuer)),
        Answer::Refused { issuer: Some(issuer), .. } if expected.is_some_and(|expected| expected != issuer) => {
            let expected_issuer = expected.unwrap_or_default().to_owned();
            Err(AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer: issuer }.into())
        }
        Answer::Refused { refusal, .. } => Err(Problem::Refused(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "http://127.0.0.1:1/callback";

    fn id(settings: &OAuthSettings, known: Option<&Client>, takes_documents: bool) -> Option<String> {
        choose(settings, known, takes_documents, HERE).map(|client| client.id)
    }

    #[test]
    fn a_known_client_comes_before_a_document_and_that_before_a_registration() {
        let registered = |uri: &str| Client { id: "registered".into(), secret: None, registered_for: Some(uri.into()) };
        let document = OAuthSettings { client_metadata_url: Some("https://c/x".into()), ..OAuthSettings::default() };
        let both = OAuthSettings { client_id: Some("known".into()), ..document.clone() };
        assert_eq!(id(&both, Some(&registered(HERE)), true).as_deref(), Some("known"));
        assert_eq!(id(&document, Some(&registered(HERE)), true).as_deref(), Some("https://c/x"));
        assert_eq!(id(&document, Some(&registered(HERE)), false).as_deref(), Some("registered"));
        assert_eq!(id(&document, Some(&registered("http://127.0.0.1:2/callback")), false), None);
        assert_eq!(id(&OAuthSettings::default(), None, true), None);
    }

    #[test]
    fn a_page_that_is_not_what_it_looks_like_is_not_shown() {
        for (endpoint, problem) in [
            ("http://accounts.google.com%2Fo%2Foauth2@127.0.0.1:1/a", "hides the host"),
            ("https://accounts.google.com@evil.example/a", "hides the host"),
            ("https://:x@evil.example/a", "hides the host"),
            ("https://a.example/a?client_id=other", "client_id"),
            ("https://a.example/a?x=1&redirect%5Furi=https://evil.example", "redirect_uri"),
            ("https://a.example/a?State=fixed", "State"),
            ("https://a.example/a?request_uri=https://evil.example/r", "request_uri"),
            ("https://a.example/a#b", "fragment"),
            ("a", "not a URL"),
        ] {
            let Err(Problem::Failed(refused)) = check_endpoint(endpoint) else { panic!("{endpoint} is shown") };
            assert!(refused.contains(problem), "{endpoint}: {refused}");
        }
        for endpoint in ["https://a.example/a", "https://a.example/a?tenant=x&prompt=consent", "https://a.example/@name"] {
            assert!(check_endpoint(endpoint).is_ok(), "{endpoint}");
        }
    }
}
