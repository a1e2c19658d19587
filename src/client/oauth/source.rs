//! Provides the tokens of one server to the HTTP transport.

use parking_lot::Mutex;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use rmcp::transport::auth::WWWAuthenticateParams;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::decide::{Challenge, NextStep, Work};
use super::task_owner::TaskOwner;
use super::token_manager::{Timing, TokenManager};
use super::{OAuthContext, OAuthSettings};
use crate::client::http::{TokenFuture, TokenSource};
use crate::client::inbound::owner::RequestOwner;
use crate::error::{Error, Result};

const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
/// Maximum number of token tasks for which one call waits. The number includes tasks that were already running, and the call's own task.
const MAX_TOKEN_TASKS: usize = 3;

/// Source of the tokens of one server. Reads, requests, renews and stores them.
pub struct OAuth {
    pub(super) manager: Arc<TokenManager>,
    token_task: Mutex<Option<TokenTask>>,
}

/// A task that loads, renews or requests a token. It continues if its callers stop waiting. It is aborted when its [`OAuth`] is dropped.
struct TokenTask {
    done: Shared<BoxFuture<'static, Result<()>>>,
    /// Number of the token task's questions that a person has not answered yet.
    asked: watch::Receiver<usize>,
    task: AbortHandle,
}

impl OAuth {
    /// Makes the token source for the server at `url`. No request is sent before a token is needed.
    ///
    /// # Errors
    /// `ERR_AUTHORIZATION_FAILED` if `url` is not a valid URL.
    pub fn new(server: &str, url: &str, settings: OAuthSettings, context: OAuthContext) -> Result<Arc<Self>> {
        Self::with_timing(server, url, settings, context, Timing::default())
    }

    pub(super) fn with_timing(
        server: &str,
        url: &str,
        settings: OAuthSettings,
        context: OAuthContext,
        timing: Timing,
    ) -> Result<Arc<Self>> {
        let manager = TokenManager::new(server, url, settings, context, timing)?;
        Ok(Arc::new(Self { manager: Arc::new(manager), token_task: Mutex::new(None) }))
    }

    /// Waits for the running token task, or starts a token task that asks `owner`. At most one token task runs at a time. While the token
    /// task waits for a person, even another owner's person, the clocks of `owner` pause.
    async fn run_token_task(&self, work: Work, owner: &RequestOwner) -> Result<()> {
        loop {
            let (done, asked, is_own) = {
                let mut token_task = self.token_task.lock();
                let running = token_task.as_ref().filter(|token_task| token_task.done.peek().is_none());
                let is_own = running.is_none();
                let token_task = match running {
                    Some(running) => running,
                    None => token_task.insert(TokenTask::start(Arc::clone(&self.manager), work.clone(), owner.clone())),
                };
                (token_task.done.clone(), token_task.asked.clone(), is_own)
            };
            match owner.wait(asked, done).await {
                // The owner for which that token task ran had nobody to ask. The owner of this request can ask somebody, so another token
                // task is started.
                Err(Error::AuthorizationRequired { lack, .. }) if !is_own && owner.can_do(lack) => {}
                outcome => return outcome,
            }
        }
    }

    async fn current(&self, owner: &RequestOwner) -> Result<Option<SecretString>> {
        self.manager.drop_forgotten().await;
        for _ in 0..MAX_TOKEN_TASKS {
            match self.manager.next_step() {
                NextStep::Send(token) => return Ok(Some(token)),
                NextStep::Nothing => return Ok(None),
                NextStep::First(work) => self.run_token_task(work, owner).await?,
            }
        }
        // The token expires faster than it can be renewed. It is sent anyway, and the server decides whether to accept it.
        Ok(self.manager.token().map(|held| held.token.access.clone()))
    }

    async fn answer(&self, status: u16, header: &str, used: Option<&SecretString>, owner: &RequestOwner) -> Result<bool> {
        let Some(challenge) = classify(status, &WWWAuthenticateParams::parse(header, &self.manager.base)) else { return Ok(false) };
        for _ in 0..MAX_TOKEN_TASKS {
            if self.manager.has_other_than(used) {
                return Ok(true);
            }
            let work = Work::Answer { challenge: challenge.clone(), header: header.to_owned(), used: used.cloned() };
            self.run_token_task(work, owner).await?;
        }
        Ok(self.manager.has_other_than(used))
    }
}

fn classify(status: u16, parameters: &WWWAuthenticateParams) -> Option<Challenge> {
    match status {
        UNAUTHORIZED => Some(Challenge::Unauthorized),
        FORBIDDEN if parameters.is_insufficient_scope() => {
            let scopes = parameters.scope.as_deref().unwrap_or_default();
            Some(Challenge::MissingScopes(scopes.split_whitespace().map(ToOwned::to_owned).collect()))
        }
        _ => None,
    }
}

impl TokenTask {
    fn start(manager: Arc<TokenManager>, work: Work, owner: RequestOwner) -> Self {
        let server = manager.server.clone();
        let (task_owner, asked) = TaskOwner::new(owner);
        let task = tokio::spawn(async move { Box::pin(manager.work(work, &task_owner)).await });
        let handle = task.abort_handle();
        let ended = move |_| Err(Error::authorization_failed(&server, None, "the authorization was cancelled"));
        Self { done: task.map(|done| done.unwrap_or_else(ended)).boxed().shared(), asked, task: handle }
    }
}

impl TokenSource for OAuth {
    fn token<'a>(&'a self, owner: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>> {
        Box::pin(self.current(owner))
    }

    fn challenged<'a>(
        &'a self,
        status: u16,
        challenge: &'a str,
        used: Option<&'a SecretString>,
        owner: &'a RequestOwner,
    ) -> TokenFuture<'a, bool> {
        Box::pin(self.answer(status, challenge, used, owner))
    }

    fn accepted(&self, used: &SecretString) {
        self.manager.accepted(used);
    }
}

impl Drop for OAuth {
    fn drop(&mut self) {
        let token_task = self.token_task.get_mut();
        if let Some(token_task) = token_task {
            token_task.task.abort();
        }
    }
}

impl Debug for OAuth {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OAuth").field("server", &self.manager.server).finish_non_exhaustive()
    }
}
