//! Loads, requests and renews the tokens of one server.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::OAuthContext;
use super::decide::{Cause, Challenge, Freshness, NextStep, Plan, TokenHistory, Work, freshness, given_up, plan};
use super::discovery::{Discovery, discover};
use super::exchange::{self, Granted, Issuer, Proof};
use super::failure::{Problem, without};
use super::generation::{Generation, Stored};
use super::http::Http;
use super::recipient::check_pinned;
use super::scopes::{configured, is_within};
use super::store::{Client, StoredCredentials, Token, TokenFile};
use super::task_owner::TaskOwner;
use crate::config::{Grant, OAuthSettings};
use crate::error::Error;

/// Longest time that a person may take to answer.
pub(super) const PERSON_TIME: Duration = Duration::from_mins(5);
/// Pause after a failed renewal. During the pause, the old token is used as long as it is valid.
const PAUSE_SECONDS: u64 = 10;

/// Clock and time limit. Tests can replace them.
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

/// A token with its client and history.
pub(super) struct StoredToken {
    pub(super) token: Token,
    client: Client,
    history: TokenHistory,
    /// Generation of the server's tokens when the token was requested or read.
    began: Generation,
}

/// The token in memory.
#[derive(Clone)]
pub(super) enum Held {
    /// The store has not been read yet.
    Unread,
    Nothing,
    Token(Arc<StoredToken>),
}

struct State {
    held: Held,
    /// Issuer of the token. `None` until it is known.
    issuer: Option<Issuer>,
    /// Time before which a valid token is not renewed, in seconds since 1970.
    renew_after: u64,
    /// Generation of the server's tokens when the current token task began.
    began: Generation,
    /// Scopes of the first token that was requested without a person.
    first_scopes: Option<Vec<String>>,
}

/// The tokens of one server. The server's token tasks share them.
pub(super) struct TokenManager {
    pub(super) server: String,
    /// URL from the config. It may contain a secret.
    url: SecretString,
    /// URL without the parts that may be secret. It may be shown, and may be sent to other servers.
    pub(super) base: Url,
    pub(super) settings: OAuthSettings,
    pub(super) context: OAuthContext,
    pub(super) timing: Timing,
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
            state: Mutex::new(State { held: Held::Unread, issuer: None, renew_after: 0, began: Generation::default(), first_scopes: None }),
        })
    }

    /// Removes the token from memory if another process has forgotten the server's tokens since this token was requested. The next step
    /// then looks for a newer token in the store.
    pub(super) async fn drop_forgotten(&self) {
        if self.token().is_none() {
            return;
        }
        let (store, key) = (self.context.store.clone(), self.context.key.clone());
        let Ok(now) = tokio::task::spawn_blocking(move || store.last_generation(&key)).await else { return };
        let mut state = self.state();
        if matches!(&state.held, Held::Token(held) if held.began.is_over(&now)) {
            state.held = Held::Unread;
        }
    }

    /// Returns the token to send now, or the work that must be done first.
    pub(super) fn next_step(&self) -> NextStep {
        let now = self.now();
        let mut state = self.state();
        match &state.held {
            Held::Unread
                if self.settings.grant == Grant::AuthorizationCode && self.context.store.has_any(&self.context.key, self.url()) =>
            {
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

    /// Returns whether there is a valid token other than `used`, which the server has refused.
    pub(super) fn has_other_than(&self, used: Option<&SecretString>) -> bool {
        let holds = |token: &Token| freshness(token.received_at, token.lifetime, self.now()) != Freshness::Expired;
        let is_other = |token: &Token| used.is_none_or(|used| used.expose_secret() != token.access.expose_secret());
        self.token().is_some_and(|held| holds(&held.token) && is_other(&held.token))
    }

    /// Records that the server accepted a token. A later refusal is then treated as a new event. The number of requests for more scopes
    /// is not reset.
    pub(super) fn accepted(&self, used: &SecretString) {
        let mut state = self.state();
        if let Held::Token(held) = &state.held
            && held.history.cause != Cause::Known
            && held.token.access.expose_secret() == used.expose_secret()
        {
            let history = TokenHistory { cause: Cause::Known, ..held.history };
            let (token, client, began) = (held.token.clone(), held.client.clone(), held.began.clone());
            state.held = Held::Token(Arc::new(StoredToken { token, client, history, began }));
        }
    }

    /// Does the work of one token task. If a person is needed, `task_owner` is asked.
    pub(super) async fn work(&self, work: Work, task_owner: &TaskOwner) -> Result<(), Error> {
        if self.settings.grant == Grant::AuthorizationCode || self.settings.issuer.is_none() {
            let began = self.context.store.generation(&self.context.key);
            self.state().began = began;
        }
        self.check_approved().map_err(|problem| self.error(problem))?;
        if let Some(held) = self.token() {
            // The secrets are reported again, because the redactor keeps only the secrets that were reported last, and these secrets are
            // still used.
            self.tell(&held.client, &held.token);
        }
        let done = match work {
            Work::Load => self.load().await,
            Work::Renew => self.renew_in_time(task_owner).await,
            Work::Answer { challenge, header, used } => self.answer(&challenge, &header, used.as_ref(), task_owner).await,
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

    /// Finds the authorization server. Fails if the issuer in the config differs from the issuer that the server names.
    async fn discover(&self, header: Option<&str>) -> Result<Discovery, Problem> {
        let found = discover(&self.http()?, &self.base, header).await?;
        check_pinned(&self.settings, &found.issuer.name)?;
        Ok(found)
    }

    async fn renew_in_time(&self, task_owner: &TaskOwner) -> Result<(), Problem> {
        let Some(held) = self.token() else { return Ok(()) };
        let before = freshness(held.token.received_at, held.token.lifetime, self.now());
        if before == Freshness::Fresh {
            return Ok(());
        }
        match self.renew(&held, Cause::Known, task_owner).await {
            Ok(()) => Ok(()),
            Err(problem) if problem.is_definite() => {
                self.drop_token(&held).await;
                Ok(())
            }
            Err(Problem::Unapproved) => Err(Problem::Unapproved),
            Err(_) if before == Freshness::Due => {
                self.state().renew_after = self.now() + PAUSE_SECONDS;
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    async fn answer(
        &self,
        challenge: &Challenge,
        header: &str,
        used: Option<&SecretString>,
        task_owner: &TaskOwner,
    ) -> Result<(), Problem> {
        let found = self.discover(Some(header)).await?;
        self.settle(&found.issuer, used);
        if self.has_other_than(used) {
            return Ok(());
        }
        let held = self.token();
        let renewable = held.as_ref().is_some_and(|held| self.is_renewable(held));
        match plan(challenge, held.as_ref().map(|held| held.history), renewable, self.now()) {
            Plan::GiveUp => Err(Problem::failed(given_up(challenge))),
            Plan::Authorize { step_ups } => self.obtain(found, challenge, used, step_ups, task_owner).await,
            Plan::Renew => match held {
                Some(held) => match self.renew(&held, Cause::Renewed, task_owner).await {
                    Err(problem) if problem.is_definite() => {
                        self.drop_token(&held).await;
                        self.obtain(found, challenge, used, 0, task_owner).await
                    }
                    renewed => renewed,
                },
                None => self.obtain(found, challenge, used, 0, task_owner).await,
            },
        }
    }

    /// Sets the current issuer, and drops a token of another issuer. If another process has stored a newer token than `used`, uses the
    /// newer token.
    pub(super) fn settle(&self, issuer: &Issuer, used: Option<&SecretString>) {
        let now = self.now();
        let (kept, began, ceiling) = (self.file(issuer).read(), self.began(), self.ceiling());
        // The secrets are reported before the state is locked, because reporting may take some time.
        if let StoredCredentials { client: Some(client), token: Some(token) } = &kept {
            self.tell(&client.clone().with_secret_of(&self.settings), token);
        }
        let mut state = self.state();
        if state.issuer.as_ref().is_some_and(|known| known.name != issuer.name) {
            state.held = Held::Nothing;
        }
        state.issuer = Some(issuer.clone());
        let StoredCredentials { client: Some(client), token: Some(token) } = kept else { return };
        let client = client.with_secret_of(&self.settings);
        let is_ours = self.settings.client_id.as_ref().is_none_or(|id| *id == client.id);
        let is_known = matches!(&state.held, Held::Token(held) if held.token.access.expose_secret() == token.access.expose_secret());
        let is_refused = used.is_some_and(|used| used.expose_secret() == token.access.expose_secret());
        let is_better = !is_refused && freshness(token.received_at, token.lifetime, now) == Freshness::Fresh;
        if is_ours && is_within(&token, ceiling.as_deref()) && !is_known && (is_better || !matches!(state.held, Held::Token(_))) {
            state.held = Held::Token(Arc::new(StoredToken { token, client, history: TokenHistory::known(now), began }));
        }
    }

    /// Renews a token. No person has to log in for this.
    async fn renew(&self, held: &StoredToken, cause: Cause, task_owner: &TaskOwner) -> Result<(), Problem> {
        let history = TokenHistory { cause, step_ups: held.history.step_ups, since: self.now() };
        let issuer = self.state().issuer.clone().ok_or_else(|| Problem::failed("its authorization server is not known"))?;
        if self.settings.grant == Grant::ClientCredentials {
            let (scopes, resource) = (held.token.requested().to_vec(), held.token.resource.clone());
            return self.request_with_client_credentials(&issuer, scopes, resource, history, task_owner).await;
        }
        // A refresh token that was forgotten is not sent to the authorization server, and no new token is stored.
        if held.began.is_over(&self.began()) {
            return Err(Problem::Forgotten);
        }
        self.check_recipient(&issuer, task_owner).await?;
        let file = self.file(&issuer);
        // If the lock cannot be taken, for example because the folder is not writable, the renewal continues without the lock. Other
        // processes cannot write to the folder either.
        let _lock = file.lock().await.ok();
        if let StoredCredentials { client: Some(client), token: Some(token) } = file.read()
            && token.access.expose_secret() != held.token.access.expose_secret()
            && freshness(token.received_at, token.lifetime, self.now()) == Freshness::Fresh
            && is_within(&token, self.ceiling().as_deref())
        {
            let client = client.with_secret_of(&self.settings);
            self.tell(&client, &token);
            self.hold(client, token, history, self.began());
            return Ok(());
        }
        let Some(refresh) = &held.token.refresh else { return Err(Problem::failed("there is no refresh token")) };
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose_secret()), ("resource", &held.token.resource)];
        // The approval is checked again, because the wait for a person or for the lock may have been long.
        self.check_approved()?;
        let granted = exchange::request(&*self.http()?, &issuer, Proof::Secret(&held.client), &fields).await?;
        let renewed = self.token_of(granted, Some(refresh.clone()), held.token.scopes.clone(), held.token.resource.clone());
        let token = Token { requested: Some(held.token.requested().to_vec()), ..renewed };
        self.accept(&file, held.client.clone(), token, history, held.began.clone()).await
    }

    /// Makes a token from a response. If the response contains no new refresh token, `refresh` stays valid (RFC 6749, 6).
    pub(super) fn token_of(&self, granted: Granted, refresh: Option<SecretString>, asked: Vec<String>, resource: String) -> Token {
        Token {
            access: granted.access,
            refresh: granted.refresh.or(refresh),
            received_at: self.now(),
            lifetime: granted.lifetime,
            scopes: granted.scopes.unwrap_or_else(|| asked.clone()),
            requested: Some(asked),
            resource,
        }
    }

    pub(super) async fn accept(
        &self,
        file: &TokenFile,
        client: Client,
        token: Token,
        history: TokenHistory,
        began: Generation,
    ) -> Result<(), Problem> {
        self.tell(&client, &token);
        self.check_approved()?;
        self.save(file, StoredCredentials { client: Some(client.clone()), token: Some(token.clone()) }, &began).await?;
        self.hold(client, token, history, began);
        Ok(())
    }

    pub(super) fn hold(&self, client: Client, token: Token, history: TokenHistory, began: Generation) {
        let mut state = self.state();
        state.held = Held::Token(Arc::new(StoredToken { token, client, history, began }));
        state.renew_after = 0;
    }

    /// Removes a token that can no longer be used, from memory and from the store. The client's registration is kept.
    async fn drop_token(&self, held: &StoredToken) {
        let issuer = self.state().issuer.clone();
        self.state().held = Held::Nothing;
        if let Some(file) = issuer.map(|issuer| self.file(&issuer))
            && file.read().token.is_some_and(|token| token.access.expose_secret() == held.token.access.expose_secret())
        {
            // A failure is ignored. If the token was forgotten, it has already been removed from the store.
            let _ = self.save(&file, StoredCredentials { client: Some(held.client.clone()), token: None }, &held.began).await;
        }
    }

    /// Stores a token. If the token cannot be written to the disk, it is used nevertheless. If the server's tokens were forgotten since
    /// `began`, the token is not used, and the result is [`Problem::Forgotten`].
    pub(super) async fn save(&self, file: &TokenFile, kept: StoredCredentials, began: &Generation) -> Result<(), Problem> {
        let (file, began) = (file.clone(), began.clone());
        let written = tokio::task::spawn_blocking(move || file.write(&kept, &began)).await;
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

    /// Reports every secret to the redactor. This must happen before the secret is used.
    pub(super) fn tell(&self, client: &Client, token: &Token) {
        for secret in [Some(&token.access), token.refresh.as_ref(), client.secret.as_ref()].into_iter().flatten() {
            (self.context.on_secret)(secret);
        }
    }

    /// Fails if the server is no longer approved. In this case, also removes the server's token from memory.
    pub(super) fn check_approved(&self) -> Result<(), Problem> {
        (self.context.check_approved)().map_err(|_| {
            self.state().held = Held::Nothing;
            Problem::Unapproved
        })
    }

    fn error(&self, problem: Problem) -> Error {
        if problem == Problem::Unapproved
            && let Err(error) = (self.context.check_approved)()
        {
            return error;
        }
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

    /// Returns the only scopes that may be requested. These are the scopes of the config. If the config lists none, they are the scopes
    /// of the first request without a person. Returns `None` if there is no limit.
    pub(super) fn ceiling(&self) -> Option<Vec<String>> {
        configured(&self.settings).or_else(|| self.state().first_scopes.clone())
    }

    /// Limits all later requests without a person to these scopes, unless an earlier request has already set the limit.
    pub(super) fn limit_to(&self, scopes: &[String]) {
        self.state().first_scopes.get_or_insert_with(|| scopes.to_vec());
    }

    pub(super) fn http(&self) -> Result<Arc<Http>, Problem> {
        let made =
            self.http.get_or_init(|| Http::new(&self.base, self.context.allow_insecure, Arc::clone(&self.context.on_secret)).map(Arc::new));
        made.clone().map_err(Problem::Failed)
    }

    pub(super) fn file(&self, issuer: &Issuer) -> TokenFile {
        self.context.store.file(&self.context.key, self.url(), &issuer.name)
    }

    pub(super) fn url(&self) -> &str {
        self.url.expose_secret()
    }

    pub(super) fn now(&self) -> u64 {
        (self.timing.now)()
    }

    pub(super) fn began(&self) -> Generation {
        self.state().began.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
