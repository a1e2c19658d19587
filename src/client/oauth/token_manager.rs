//! Loads, requests and renews the tokens of one server.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::OAuthContext;
use super::assertion::Signer;
use super::decide::{Cause, Challenge, Freshness, NextStep, Past, Plan, Work, freshness, given_up, plan, union};
use super::discovery::{Discovery, OFFLINE_ACCESS, discover};
use super::exchange::{self, Granted, Issuer, Proof};
use super::failure::{Problem, without};
use super::generation::{Generation, Stored};
use super::http::Http;
use super::person::Question;
use super::recipient::{QUIET_SECONDS, Recipient, check_pinned};
use super::store::{Client, Kept, Slot, Token};
use crate::config::{Grant, OAuthSettings};
use crate::error::Error;

/// Longest time that a person has to answer.
pub(super) const PERSON_TIME: Duration = Duration::from_mins(5);
/// Pause after a failed renewal. During the pause, the old token is used if it is still valid.
const PAUSE_SECONDS: u64 = 10;

/// Clock and time limits, which tests can replace.
pub(super) struct Timing {
    pub(super) person: Duration,
    /// Clock, in seconds since 1970.
    pub(super) now: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for Timing {
    fn default() -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { person: PERSON_TIME, now: Box::new(now) }
    }
}

/// A token with its client and its history.
pub(super) struct StoredToken {
    pub(super) token: Token,
    client: Client,
    past: Past,
    /// Generation of the server's tokens in which it was requested, or read.
    began: Generation,
}

/// The token that is held in memory.
#[derive(Clone)]
pub(super) enum Held {
    /// The store has not been read yet.
    Unread,
    Nothing,
    Token(Arc<StoredToken>),
}

struct State {
    held: Held,
    /// Issuer of the token, once it is known.
    issuer: Option<Issuer>,
    /// Time before which a valid token is not renewed, in seconds since 1970.
    renew_after: u64,
    /// Generation of the server's tokens when the present flight began.
    began: Generation,
}

/// Tokens of one server, shared by its flights.
pub(super) struct TokenManager {
    pub(super) server: String,
    /// URL as configured. It may contain a secret.
    url: SecretString,
    /// URL without the parts that may be secret. It may be shown and sent to others.
    pub(super) base: Url,
    settings: OAuthSettings,
    context: OAuthContext,
    timing: Timing,
    http: OnceLock<Result<Arc<Http>, String>>,
    state: Mutex<State>,
}

impl TokenManager {
    pub(super) fn new(server: &str, url: &str, settings: OAuthSettings, context: OAuthContext, timing: Timing) -> Result<Self, Error> {
        let mut base = Url::parse(url).map_err(|_| Error::authorization_failed(server, None, "its address is not a URL"))?;
        base.set_query(None);
        base.set_fragment(None);
        // These calls cannot fail, because a URL with a user name has a host.
        let _ = base.set_username("").and_then(|()| base.set_password(None));
        Ok(Self {
            server: server.to_owned(),
            url: SecretString::from(url),
            base,
            settings,
            context,
            timing,
            http: OnceLock::new(),
            state: Mutex::new(State { held: Held::Unread, issuer: None, renew_after: 0, began: Generation::default() }),
        })
    }

    /// Returns the token to send now, or the work that has to be done first.
    pub(super) fn next_step(&self) -> NextStep {
        let now = self.now();
        let mut state = self.state();
        match &state.held {
            Held::Unread if self.settings.grant == Grant::AuthorizationCode && self.context.store.has_any(&self.server, self.url()) => {
                NextStep::First(Work::Load)
            }
            Held::Unread => {
                state.held = Held::Nothing;
                NextStep::Nothing
            }
            Held::Nothing => NextStep::Nothing,
            Held::Token(held) => match freshness(held.token.received_at, held.token.lifetime, now) {
                Freshness::Fresh => NextStep::Send(held.token.access.clone()),
                Freshness::Due if !self.is_renewable(held) || now < state.renew_after => NextStep::Send(held.token.access.clone()),
                Freshness::Expired if !self.is_renewable(held) => NextStep::Nothing,
                Freshness::Due | Freshness::Expired => NextStep::First(Work::Renew),
            },
        }
    }

    /// Returns whether there is a token that the server has not refused yet.
    pub(super) fn has_other_than(&self, used: Option<&SecretString>) -> bool {
        let holds = |token: &Token| freshness(token.received_at, token.lifetime, self.now()) != Freshness::Expired;
        let is_other = |token: &Token| used.is_none_or(|used| used.expose_secret() != token.access.expose_secret());
        self.token().is_some_and(|held| holds(&held.token) && is_other(&held.token))
    }

    /// Records that the server accepted a token, so that a later refusal is treated as a new one. The count of step-ups is kept.
    pub(super) fn accepted(&self, used: &SecretString) {
        let mut state = self.state();
        if let Held::Token(held) = &state.held
            && held.past.cause != Cause::Known
            && held.token.access.expose_secret() == used.expose_secret()
        {
            let past = Past { cause: Cause::Known, ..held.past };
            let (token, client, began) = (held.token.clone(), held.client.clone(), held.began.clone());
            state.held = Held::Token(Arc::new(StoredToken { token, client, past, began }));
        }
    }

    pub(super) async fn work(&self, work: Work) -> Result<(), Error> {
        if self.settings.grant == Grant::AuthorizationCode || self.settings.issuer.is_none() {
            let began = self.context.store.generation(&self.server);
            self.state().began = began;
        }
        let done = match work {
            Work::Load => self.load().await,
            Work::Renew => self.renew_in_time().await,
            Work::Answer { challenge, header, used } => self.answer(&challenge, &header, used.as_ref()).await,
        };
        done.map_err(|problem| self.error(problem))
    }

    async fn load(&self) -> Result<(), Problem> {
        let found = self.discover(None).await?;
        self.settle(&found.issuer, None);
        let mut state = self.state();
        if matches!(state.held, Held::Unread) {
            state.held = Held::Nothing;
        }
        Ok(())
    }

    /// Finds the authorization server. Fails if the config names an issuer and the server names another.
    async fn discover(&self, header: Option<&str>) -> Result<Discovery, Problem> {
        let found = discover(&self.http()?, &self.base, header).await?;
        check_pinned(&self.settings, &found.issuer.name)?;
        Ok(found)
    }

    /// Checks that the issuer may get a credential of the config, before any grant sends one.
    async fn check_recipient(&self, issuer: &Issuer) -> Result<(), Problem> {
        let recipient = Recipient {
            server: &self.server,
            url: self.url(),
            issuer: &issuer.name,
            settings: &self.settings,
            store: &self.context.store,
            began: &self.began(),
            confirm: self.context.confirm_issuer.as_ref(),
            time: self.timing.person,
            now: &*self.timing.now,
        };
        recipient.check().await
    }

    async fn renew_in_time(&self) -> Result<(), Problem> {
        let Some(held) = self.token() else { return Ok(()) };
        let before = freshness(held.token.received_at, held.token.lifetime, self.now());
        if before == Freshness::Fresh {
            return Ok(());
        }
        match self.renew(&held, Cause::Known).await {
            Ok(()) => Ok(()),
            Err(problem) if problem.is_definite() => {
                self.drop_token(&held).await;
                Ok(())
            }
            Err(_) if before == Freshness::Due => {
                self.state().renew_after = self.now() + PAUSE_SECONDS;
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    async fn answer(&self, challenge: &Challenge, header: &str, used: Option<&SecretString>) -> Result<(), Problem> {
        let found = self.discover(Some(header)).await?;
        self.settle(&found.issuer, used);
        if self.has_other_than(used) {
            return Ok(());
        }
        let held = self.token();
        let renewable = held.as_ref().is_some_and(|held| self.is_renewable(held));
        match plan(challenge, held.as_ref().map(|held| held.past), renewable, self.now()) {
            Plan::GiveUp => Err(Problem::failed(given_up(challenge))),
            Plan::Authorize { step_ups } => self.obtain(found, challenge, used, step_ups).await,
            Plan::Renew => match held {
                Some(held) => match self.renew(&held, Cause::Renewed).await {
                    Err(problem) if problem.is_definite() => {
                        self.drop_token(&held).await;
                        self.obtain(found, challenge, used, 0).await
                    }
                    renewed => renewed,
                },
                None => self.obtain(found, challenge, used, 0).await,
            },
        }
    }

    /// Sets the current issuer, and drops a token of another issuer. Uses a newer token from the store if another process has saved one.
    fn settle(&self, issuer: &Issuer, used: Option<&SecretString>) {
        let now = self.now();
        let (kept, began) = (self.slot(issuer).read(), self.began());
        let mut state = self.state();
        if state.issuer.as_ref().is_some_and(|known| known.name != issuer.name) {
            state.held = Held::Nothing;
        }
        state.issuer = Some(issuer.clone());
        let Kept { client: Some(client), token: Some(token) } = kept else { return };
        let client = client.with_secret_of(&self.settings);
        let is_ours = self.settings.client_id.as_ref().is_none_or(|id| *id == client.id);
        let is_known = matches!(&state.held, Held::Token(held) if held.token.access.expose_secret() == token.access.expose_secret());
        let is_refused = used.is_some_and(|used| used.expose_secret() == token.access.expose_secret());
        let is_better = !is_refused && freshness(token.received_at, token.lifetime, now) == Freshness::Fresh;
        if is_ours && !is_known && (is_better || !matches!(state.held, Held::Token(_))) {
            self.tell(&client, &token);
            state.held = Held::Token(Arc::new(StoredToken { token, client, past: Past::known(now), began }));
        }
    }

    /// Gets a new token. Depending on the grant, a person is asked or the client authenticates itself.
    async fn obtain(&self, found: Discovery, challenge: &Challenge, used: Option<&SecretString>, step_ups: u8) -> Result<(), Problem> {
        let scopes = self.scopes(&found, challenge);
        let past = Past { cause: Cause::Authorized, step_ups, since: self.now() };
        match self.settings.grant {
            Grant::ClientCredentials => self.speak_for_itself(found, scopes, past).await,
            Grant::AuthorizationCode => self.ask_a_person(found, scopes, used, past).await,
        }
    }

    /// Returns the scopes to request: those of the config or else those that the server names, and all that were granted before.
    fn scopes(&self, found: &Discovery, challenge: &Challenge) -> Vec<String> {
        let first = if self.settings.scopes.is_empty() { &found.scopes } else { &self.settings.scopes };
        let before = self.token().map(|held| held.token.scopes.clone()).unwrap_or_default();
        let mut scopes = match challenge {
            Challenge::MissingScopes(wanted) if before.is_empty() => union(first, wanted),
            Challenge::MissingScopes(wanted) if wanted.is_empty() => union(&before, first),
            Challenge::MissingScopes(wanted) => union(&before, wanted),
            Challenge::Unauthorized => union(&before, first),
        };
        scopes.retain(|scope| scope != OFFLINE_ACCESS || self.settings.grant == Grant::AuthorizationCode);
        if self.settings.grant == Grant::AuthorizationCode && !scopes.is_empty() && found.has_offline_access() {
            scopes = union(&scopes, &[OFFLINE_ACCESS.to_owned()]);
        }
        scopes
    }

    async fn ask_a_person(&self, found: Discovery, scopes: Vec<String>, used: Option<&SecretString>, past: Past) -> Result<(), Problem> {
        let authorize = self.context.authorize.as_ref().ok_or(Problem::NobodyToAsk)?;
        self.check_recipient(&found.issuer).await?;
        // Another connection of this server may already be asking. Its answer is valid for this one too.
        let turn = self.context.store.turn(&self.server, self.url());
        let _asking = turn.asking.lock().await;
        self.settle(&found.issuer, used);
        if self.has_other_than(used) {
            return Ok(());
        }
        let refused = turn.refused.lock().clone();
        if let Some((_, problem)) = refused.filter(|(until, _)| self.now() < *until) {
            return Err(problem);
        }
        let began = self.began();
        if began.is_over(&self.context.store.generation(&self.server)) {
            return Err(Problem::Forgotten);
        }
        let (http, slot) = (self.http()?, self.slot(&found.issuer));
        let known = slot.read().client.filter(|client| client.registered_for.is_some());
        let question = Question {
            server: &self.server,
            http: &http,
            settings: &self.settings,
            authorize,
            known: known.clone(),
            scopes,
            time: self.timing.person,
        };
        let authorized = match question.ask(found).await {
            Ok(authorized) => authorized,
            Err(problem) => {
                let refused = Some((self.now() + QUIET_SECONDS, problem.clone()));
                *turn.refused.lock() = refused;
                // The authorization server may have deleted the registration. It then shows the person an error and does not redirect, so a new
                // registration is made next time.
                if known.is_some() {
                    self.save(&slot, Kept { client: None, token: slot.read().token }, &began).await?;
                }
                return Err(problem);
            }
        };
        *turn.refused.lock() = None;
        let token = self.token_of(authorized.granted, None, authorized.scopes, authorized.resource);
        self.accept(&slot, authorized.client, token, past, began).await
    }

    async fn speak_for_itself(&self, mut found: Discovery, scopes: Vec<String>, past: Past) -> Result<(), Problem> {
        let resource = found.resource(&self.base).await;
        self.request_for_itself(&found.issuer, scopes, resource, past).await
    }

    async fn request_for_itself(&self, issuer: &Issuer, scopes: Vec<String>, resource: String, past: Past) -> Result<(), Problem> {
        self.check_recipient(issuer).await?;
        let id = self.settings.client_id.clone().ok_or_else(|| Problem::failed("oauth.clientId is missing"))?;
        let client = Client { id, secret: self.settings.client_secret.clone(), registered_for: None };
        let proof = match &self.settings.private_key {
            Some(key) => {
                let signer = Signer::read(key, self.settings.signing_algorithm).map_err(Problem::Failed)?;
                Proof::Assertion(signer.assertion(&client.id, &issuer.name, self.now()).map_err(Problem::Failed)?)
            }
            None => Proof::Secret(&client),
        };
        let scope = scopes.join(" ");
        let fields = [("grant_type", "client_credentials"), ("scope", scope.as_str()), ("resource", resource.as_str())];
        let granted = exchange::request(&*self.http()?, issuer, proof, &fields).await?;
        let token = self.token_of(granted, None, scopes, resource);
        self.tell(&client, &token);
        // The token is not stored, because a new one can be requested at any time.
        self.hold(client, token, past, self.began());
        Ok(())
    }

    /// Renews a token without a person.
    async fn renew(&self, held: &StoredToken, cause: Cause) -> Result<(), Problem> {
        let past = Past { cause, step_ups: held.past.step_ups, since: self.now() };
        let issuer = self.state().issuer.clone().ok_or_else(|| Problem::failed("its authorization server is not known"))?;
        if self.settings.grant == Grant::ClientCredentials {
            return self.request_for_itself(&issuer, held.token.scopes.clone(), held.token.resource.clone(), past).await;
        }
        // A refresh token that was forgotten is not sent, and what it would give is not kept.
        if held.began.is_over(&self.began()) {
            return Err(Problem::Forgotten);
        }
        self.check_recipient(&issuer).await?;
        let slot = self.slot(&issuer);
        // If the folder is not writable, the renewal continues without a lock, because other processes cannot write there either.
        let _lock = slot.lock().await.ok();
        if let Kept { client: Some(client), token: Some(token) } = slot.read()
            && token.access.expose_secret() != held.token.access.expose_secret()
            && freshness(token.received_at, token.lifetime, self.now()) == Freshness::Fresh
        {
            let client = client.with_secret_of(&self.settings);
            self.tell(&client, &token);
            self.hold(client, token, past, self.began());
            return Ok(());
        }
        let Some(refresh) = &held.token.refresh else { return Err(Problem::failed("there is no refresh token")) };
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose_secret()), ("resource", &held.token.resource)];
        let granted = exchange::request(&*self.http()?, &issuer, Proof::Secret(&held.client), &fields).await?;
        let token = self.token_of(granted, Some(refresh.clone()), held.token.scopes.clone(), held.token.resource.clone());
        self.accept(&slot, held.client.clone(), token, past, held.began.clone()).await
    }

    /// Makes a token from a response. `refresh` is kept if the response has no new refresh token (RFC 6749, 6).
    fn token_of(&self, granted: Granted, refresh: Option<SecretString>, asked: Vec<String>, resource: String) -> Token {
        Token {
            access: granted.access,
            refresh: granted.refresh.or(refresh),
            received_at: self.now(),
            lifetime: granted.lifetime,
            scopes: granted.scopes.unwrap_or(asked),
            resource,
        }
    }

    async fn accept(&self, slot: &Slot, client: Client, token: Token, past: Past, began: Generation) -> Result<(), Problem> {
        self.tell(&client, &token);
        self.save(slot, Kept { client: Some(client.clone()), token: Some(token.clone()) }, &began).await?;
        self.hold(client, token, past, began);
        Ok(())
    }

    fn hold(&self, client: Client, token: Token, past: Past, began: Generation) {
        let mut state = self.state();
        state.held = Held::Token(Arc::new(StoredToken { token, client, past, began }));
        state.renew_after = 0;
    }

    /// Drops a token that can no longer be used. The client's registration is kept.
    async fn drop_token(&self, held: &StoredToken) {
        let issuer = self.state().issuer.clone();
        self.state().held = Held::Nothing;
        if let Some(slot) = issuer.map(|issuer| self.slot(&issuer))
            && slot.read().token.is_some_and(|token| token.access.expose_secret() == held.token.access.expose_secret())
        {
            // Where it was forgotten, there is nothing left to drop.
            let _ = self.save(&slot, Kept { client: Some(held.client.clone()), token: None }, &held.began).await;
        }
    }

    /// Saves a token. One that cannot be saved is used all the same; one that was forgotten since `began` is not.
    async fn save(&self, slot: &Slot, kept: Kept, began: &Generation) -> Result<(), Problem> {
        let (slot, began) = (slot.clone(), began.clone());
        let written = tokio::task::spawn_blocking(move || slot.write(&kept, &began)).await;
        match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(Stored::Kept) => Ok(()),
            Ok(Stored::Forgotten) => {
                self.state().held = Held::Nothing;
                Err(Problem::Forgotten)
            }
            Err(error) => {
                tracing::warn!(server = self.server, %error, "a token cannot be stored; the person will be asked again after a restart");
                Ok(())
            }
        }
    }

    /// Reports every secret to the redactor, before it is used.
    fn tell(&self, client: &Client, token: &Token) {
        for secret in [Some(&token.access), token.refresh.as_ref(), client.secret.as_ref()].into_iter().flatten() {
            (self.context.on_secret)(secret);
        }
    }

    fn error(&self, problem: Problem) -> Error {
        let issuer = self.state().issuer.as_ref().map(|issuer| issuer.name.clone());
        let mut secrets: Vec<_> = [&self.settings.client_secret, &self.settings.private_key].into_iter().flatten().cloned().collect();
        if let Some(held) = self.token() {
            secrets.push(held.token.access.clone());
            secrets.extend(held.token.refresh.iter().chain(&held.client.secret).cloned());
        }
        let issuer = issuer.map(|issuer| without(&issuer, &secrets));
        problem.without(&secrets).into_error(&self.server, issuer.as_deref())
    }

    fn is_renewable(&self, held: &StoredToken) -> bool {
        held.token.refresh.is_some() || self.settings.grant == Grant::ClientCredentials
    }

    pub(super) fn token(&self) -> Option<Arc<StoredToken>> {
        if let Held::Token(held) = &self.state().held { Some(Arc::clone(held)) } else { None }
    }

    fn http(&self) -> Result<Arc<Http>, Problem> {
        let made = self.http.get_or_init(|| Http::new(&self.base, self.context.allow_insecure).map(Arc::new));
        made.clone().map_err(Problem::Failed)
    }

    fn slot(&self, issuer: &Issuer) -> Slot {
        self.context.store.slot(&self.server, self.url(), &issuer.name)
    }

    fn url(&self) -> &str {
        self.url.expose_secret()
    }

    fn now(&self) -> u64 {
        (self.timing.now)()
    }

    fn began(&self) -> Generation {
        self.state().began.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
