//! Tests of OAuth with a real authorization server. They use OAuth in the same way as the HTTP transport.

mod discovery;
mod forgetting;
mod lifetime;
mod machines;
mod owners;
mod people;
mod recipients;
mod scopes;
mod secrets;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::testing::{World, fetch};
use super::token_manager::Timing;
use super::*;
use crate::client::http::TokenSource as _;
use crate::client::inbound::authorization::{AuthorizationPrompt, Credential, IssuerPrompt};
use crate::client::inbound::caller::{Caller, Elicitation, ElicitationAnswer, Reply, Sampling};
use crate::client::inbound::notification::Notice;
use crate::client::inbound::owner::RequestOwner;
use crate::error::{Error, Result};

/// The behaviour of the person at the browser.
#[derive(Clone)]
enum Person {
    /// The person opens the page, and the browser is redirected to this machine.
    Opens,
    /// The person opens the page on another machine. They then paste the URL to which the browser was redirected.
    Pastes,
    /// As `Pastes`, but the URL has this path.
    PastesFrom(&'static str),
    /// The person always pastes this text instead of the URL.
    PastesAlways(String),
    /// The person never answers.
    Sleeps,
    /// The agent's callback has returned, but the person is still on the page.
    Reads,
}

/// An agent, with a state folder, a person, and a clock.
struct Agent {
    folder: tempfile::TempDir,
    store: TokenStore,
    person: Mutex<Option<Person>>,
    prompts: Mutex<Vec<AuthorizationPrompt>>,
    /// The person's answer to a question about an issuer. `None` if nobody can be asked.
    confirms: Mutex<Option<bool>>,
    issuers: Mutex<Vec<IssuerPrompt>>,
    told: Mutex<Vec<String>>,
    /// True if another process forgets the tokens as soon as a new token has arrived, before the token can be stored.
    forgets_when_told: AtomicBool,
    /// True once the server's approval was revoked.
    is_revoked: AtomicBool,
    /// Number of current pauses of the agent's clocks.
    pauses: AtomicUsize,
    /// Number of seconds that have passed.
    clock: AtomicU64,
    patience: Duration,
}

impl Agent {
    fn new(person: impl Into<Option<Person>>) -> Arc<Self> {
        Self::with_patience(person, Duration::from_mins(1))
    }

    fn with_patience(person: impl Into<Option<Person>>, patience: Duration) -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        Arc::new(Self {
            store: TokenStore::new(folder.path().join("tokens")),
            folder,
            person: Mutex::new(person.into()),
            prompts: Mutex::default(),
            confirms: Mutex::default(),
            issuers: Mutex::default(),
            told: Mutex::default(),
            forgets_when_told: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            pauses: AtomicUsize::new(0),
            clock: AtomicU64::new(1_000_000),
            patience,
        })
    }

    fn set_person(&self, person: Person) {
        *self.person.lock() = Some(person);
    }

    /// Sets the person's answer to a question about an issuer. Connections that are made later use this answer.
    fn confirms(&self, answer: impl Into<Option<bool>>) {
        *self.confirms.lock() = answer.into();
    }

    fn pass(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Returns a store for the same folder, as another process would open it.
    fn other_process(&self) -> TokenStore {
        TokenStore::new(self.folder.path().join("tokens"))
    }

    fn prompts(&self) -> usize {
        self.prompts.lock().len()
    }

    /// Makes another connection in the same program. This agent owns its requests.
    fn oauth(self: &Arc<Self>, world: &World, settings: OAuthSettings) -> Arc<Connected> {
        self.oauth_at(&world.url(), settings)
    }

    fn oauth_at(self: &Arc<Self>, url: &str, settings: OAuthSettings) -> Arc<Connected> {
        let (hearer, time, approver) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        let context = OAuthContext {
            key: "weather".to_owned(),
            store: self.store.clone(),
            check_approved: Arc::new(move || {
                let is_revoked = approver.is_revoked.load(Ordering::SeqCst);
                if is_revoked { Err(Error::NotApproved { server: "weather".into(), reason: "revoked".to_owned().into() }) } else { Ok(()) }
            }),
            on_secret: Arc::new(move |secret| {
                hearer.told.lock().push(secret.expose_secret().to_owned());
                if hearer.forgets_when_told.swap(false, Ordering::SeqCst) {
                    hearer.other_process().forget("weather").unwrap();
                }
            }),
            allow_insecure: false,
        };
        let timing = Timing { person: self.patience, now: Box::new(move || time.clock.load(Ordering::SeqCst)) };
        let oauth = OAuth::with_timing("weather", url, settings, context, timing).unwrap();
        Arc::new(Connected { oauth, owner: self.owner() })
    }

    /// Makes the owner of requests: this agent, with its current callbacks.
    fn owner(self: &Arc<Self>) -> RequestOwner {
        let (can_authorize, can_confirm) = (self.person.lock().is_some(), self.confirms.lock().is_some());
        RequestOwner::new(Arc::new(Owner { agent: Arc::clone(self), can_authorize, can_confirm }), None)
    }
}

/// A connection, and the owner of its requests.
#[derive(Debug)]
struct Connected {
    oauth: Arc<OAuth>,
    owner: RequestOwner,
}

impl Connected {
    /// Returns the same connection with another agent as the owner of its requests.
    fn used_by(&self, agent: &Arc<Agent>) -> Self {
        Self { oauth: Arc::clone(&self.oauth), owner: agent.owner() }
    }

    async fn token(&self) -> Result<Option<SecretString>> {
        self.oauth.token(&self.owner).await
    }

    async fn challenged(&self, status: u16, challenge: &str, used: Option<&SecretString>) -> Result<bool> {
        self.oauth.challenged(status, challenge, used, &self.owner).await
    }

    fn accepted(&self, used: &SecretString) {
        self.oauth.accepted(used);
    }
}

struct Owner {
    agent: Arc<Agent>,
    can_authorize: bool,
    can_confirm: bool,
}

impl Caller for Owner {
    fn identity(&self) -> u64 {
        0
    }

    fn can_elicit(&self) -> bool {
        false
    }

    fn elicit(&self, _elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        None
    }

    fn sample(&self, _sampling: Sampling) -> Option<Reply<serde_json::Value>> {
        None
    }

    fn can_authorize(&self) -> bool {
        self.can_authorize
    }

    fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        Some(Box::pin(answer(Arc::clone(&self.agent), prompt)))
    }

    fn can_confirm_issuer(&self) -> bool {
        self.can_confirm
    }

    fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        self.agent.issuers.lock().push(prompt);
        let answer = self.agent.confirms.lock().unwrap();
        Some(Box::pin(async move { Ok(answer) }))
    }

    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        self.agent.pauses.fetch_add(1, Ordering::SeqCst);
        Some(Box::new(Pause(Arc::clone(&self.agent))))
    }
}

struct Pause(Arc<Agent>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(agent: Arc<Agent>, prompt: AuthorizationPrompt) -> Result<Option<String>> {
    let url = prompt.url.clone();
    agent.prompts.lock().push(prompt);
    let person = agent.person.lock().clone();
    match person {
        Some(Person::Opens) => {
            let page = fetch(&url, None).await.unwrap();
            let back = page.get("Location").unwrap().to_owned();
            tokio::spawn(async move { fetch(&back, None).await });
            Ok(None)
        }
        Some(Person::Pastes) => Ok(fetch(&url, None).await.unwrap().get("Location").map(ToOwned::to_owned)),
        Some(Person::PastesFrom(path)) => {
            let mut back = url::Url::parse(fetch(&url, None).await.unwrap().get("Location").unwrap()).unwrap();
            back.set_path(path);
            Ok(Some(back.into()))
        }
        Some(Person::PastesAlways(text)) => Ok(Some(text)),
        Some(Person::Reads) => Ok(None),
        Some(Person::Sleeps) | None => std::future::pending().await,
    }
}

/// Makes a call in the same way as the transport: gets a token, sends the request, and sends the request again after each challenge for
/// which there is a new token.
async fn call(world: &World, oauth: &Connected) -> Result<u16> {
    for _ in 0..8 {
        let token = oauth.token().await?;
        let page = fetch(&world.url(), token.as_ref().map(SecretString::expose_secret)).await.unwrap();
        let header = page.get("WWW-Authenticate").unwrap_or_default();
        if !oauth.challenged(page.status, header, token.as_ref()).await? {
            if let (200, Some(token)) = (page.status, &token) {
                oauth.accepted(token);
            }
            return Ok(page.status);
        }
    }
    panic!("the transport would never stop");
}

async fn refusal(world: &World, oauth: &Connected) -> Error {
    call(world, oauth).await.unwrap_err().opened()
}

async fn current(oauth: &Connected) -> String {
    oauth.token().await.unwrap().map(|token| token.expose_secret().to_owned()).unwrap_or_default()
}

fn settings() -> OAuthSettings {
    OAuthSettings::default()
}

fn scopes_of(query: &std::collections::BTreeMap<String, String>) -> Vec<&str> {
    query.get("scope").map(|scopes| scopes.split(' ').collect()).unwrap_or_default()
}

/// Makes several calls at the same time. Returns how many were successful.
async fn calls_at_once(world: &Arc<World>, oauth: &Arc<Connected>, count: usize) -> usize {
    let through = Arc::new(AtomicUsize::new(0));
    let call = |_| {
        let (world, oauth, through) = (Arc::clone(world), Arc::clone(oauth), Arc::clone(&through));
        tokio::spawn(async move {
            if call(&world, &oauth).await.is_ok_and(|status| status == 200) {
                through.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    futures::future::join_all((0..count).map(call)).await;
    through.load(Ordering::SeqCst)
}

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}
