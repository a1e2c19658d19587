//! Gets new tokens. Either a person authorizes this client, or the client authenticates itself.

use secrecy::SecretString;

use super::assertion::Signer;
use super::decide::{Cause, Challenge, TokenHistory, given_up};
use super::discovery::Discovery;
use super::exchange::{self, Issuer, Proof};
use super::failure::Problem;
use super::person::Question;
use super::recipient::{QUIET_SECONDS, Recipient};
use super::scopes::{Scopes, refused};
use super::store::{Client, Login, StoredCredentials, Turn};
use super::task_owner::TaskOwner;
use super::token_manager::TokenManager;
use crate::client::inbound::authorization::Credential;
use crate::config::Grant;

impl TokenManager {
    /// Checks that the issuer may receive a credential from the config. Every grant calls this before it sends the credential.
    pub(super) async fn check_recipient(&self, issuer: &Issuer, task_owner: &TaskOwner) -> Result<(), Problem> {
        self.check_recipient_of(Credential::of(&self.settings), issuer, task_owner).await
    }

    /// Checks that the issuer may receive the code of a login, and the credential from the config.
    async fn check_login(&self, found: &Discovery, task_owner: &TaskOwner) -> Result<(), Problem> {
        found.check_page(&self.settings)?;
        let login = found.needs_confirmation(&self.settings).then_some(Credential::ClientId);
        self.check_recipient_of(Credential::of(&self.settings).or(login), &found.issuer, task_owner).await
    }

    async fn check_recipient_of(&self, credential: Option<Credential>, issuer: &Issuer, task_owner: &TaskOwner) -> Result<(), Problem> {
        let recipient = Recipient {
            server: &self.server,
            key: &self.context.key,
            url: self.url(),
            issuer: &issuer.name,
            settings: &self.settings,
            credential,
            store: &self.context.store,
            began: &self.began(),
            task_owner,
            time: self.timing.person,
            now: &*self.timing.now,
        };
        recipient.check().await
    }

    /// Gets a new token. Depending on the grant, either a person is asked or the client authenticates itself.
    pub(super) async fn obtain(
        &self,
        found: Discovery,
        challenge: &Challenge,
        used: Option<&SecretString>,
        step_ups: u8,
        task_owner: &TaskOwner,
    ) -> Result<(), Problem> {
        let scopes = self.scopes(&found, challenge)?;
        let history = TokenHistory { cause: Cause::Authorized, step_ups, since: self.now() };
        match self.settings.grant {
            Grant::ClientCredentials => self.authorize_with_client_credentials(found, scopes, history, task_owner).await,
            Grant::AuthorizationCode => self.ask_a_person(found, scopes, used, history, task_owner).await,
        }
    }

    /// Returns the scopes to request. Fails if the server requires scopes that may not be requested.
    fn scopes(&self, found: &Discovery, challenge: &Challenge) -> Result<Vec<String>, Problem> {
        let before = self.token().map(|held| held.token.scopes.clone()).unwrap_or_default();
        let scopes = Scopes {
            ceiling: self.ceiling(),
            named: &found.scopes,
            before: &before,
            grant: self.settings.grant,
            has_offline_access: found.has_offline_access(),
        };
        scopes.to_request(challenge).map_err(|beyond| Problem::Failed(refused(&beyond)))
    }

    async fn ask_a_person(
        &self,
        found: Discovery,
        scopes: Vec<String>,
        used: Option<&SecretString>,
        history: TokenHistory,
        task_owner: &TaskOwner,
    ) -> Result<(), Problem> {
        if !task_owner.can_authorize() {
            return Err(Problem::NobodyToAsk);
        }
        self.check_login(&found, task_owner).await?;
        // Another connection of this server may already be asking the person. The person's answer is valid for this connection too.
        let turn = self.context.store.turn(&self.context.key, self.url());
        let other_person = task_owner.pause();
        let _asking = turn.mutex.lock().await;
        drop(other_person);
        self.check_approved()?;
        self.settle(&found.issuer, used);
        if self.has_other_than(used) {
            return Ok(());
        }
        let (began, http, file) = (self.began(), self.http()?, self.file(&found.issuer));
        let login =
            Login { at: self.now(), began: began.clone(), issuer: found.issuer.name.clone(), client: self.settings.client_id.clone() };
        self.check_last_answer(&turn, &login, history)?;
        if began.is_over(&self.context.store.generation(&self.context.key)) {
            return Err(Problem::Forgotten);
        }
        let known = file.read().client.filter(|client| client.registered_for.is_some());
        let question = Question {
            server: &self.server,
            http: &http,
            settings: &self.settings,
            task_owner,
            check_approved: &|| self.check_approved(),
            on_secret: &self.context.on_secret,
            known: known.clone(),
            scopes,
            time: self.timing.person,
        };
        let authorized = match question.ask(found).await {
            Ok(authorized) => authorized,
            // In these cases nobody has refused to authorize, so no refusal is stored.
            Err(problem @ (Problem::Unapproved | Problem::NobodyToAsk)) => return Err(problem),
            Err(problem) => {
                *turn.refused.lock() = Some((self.now() + QUIET_SECONDS, problem.clone()));
                // The authorization server may have deleted the registration. It then shows the person an error and does not redirect. So
                // the registration is deleted here too, and a new one is made next time.
                if known.is_some() {
                    self.save(&file, StoredCredentials { client: None, token: file.read().token }, &began).await?;
                }
                return Err(problem);
            }
        };
        *turn.refused.lock() = None;
        turn.add_login(Login { at: self.now(), ..login });
        let token = self.token_of(authorized.granted, None, authorized.scopes, authorized.resource);
        self.accept(&file, authorized.client, token, history, began).await
    }

    /// Fails if a person has just refused to log in, or has just logged in.
    fn check_last_answer(&self, turn: &Turn, next: &Login, history: TokenHistory) -> Result<(), Problem> {
        let refused = turn.refused.lock().clone();
        if let Some((_, problem)) = refused.filter(|(until, _)| self.now() < *until) {
            return Err(problem);
        }
        // Requests for more scopes have a limit of their own.
        if history.step_ups == 0 && turn.has_recent_login(self.now(), next) {
            Err(Problem::failed(given_up(&Challenge::Unauthorized)))
        } else {
            Ok(())
        }
    }

    async fn authorize_with_client_credentials(
        &self,
        mut found: Discovery,
        scopes: Vec<String>,
        history: TokenHistory,
        task_owner: &TaskOwner,
    ) -> Result<(), Problem> {
        let resource = found.resource(&self.base).await;
        self.request_with_client_credentials(&found.issuer, scopes, resource, history, task_owner).await
    }

    pub(super) async fn request_with_client_credentials(
        &self,
        issuer: &Issuer,
        scopes: Vec<String>,
        resource: String,
        history: TokenHistory,
        task_owner: &TaskOwner,
    ) -> Result<(), Problem> {
        self.check_recipient(issuer, task_owner).await?;
        self.check_approved()?;
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
        self.limit_to(&scopes);
        let token = self.token_of(granted, None, scopes, resource);
        self.tell(&client, &token);
        self.check_approved()?;
        // The token is not stored, because a new token can be requested at any time.
        self.hold(client, token, history, self.began());
        Ok(())
    }
}
