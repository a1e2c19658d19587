//! The owner that a token task asks if it needs a person. This module also informs the callers that wait for the token task when a person
//! is being asked.

use tokio::sync::watch;

use crate::client::inbound::authorization::{AuthorizationPrompt, IssuerPrompt};
use crate::client::inbound::caller::Reply;
use crate::client::inbound::owner::RequestOwner;
use crate::error::MissingCallback;

/// The owner of the request that started a token task. The token task asks nobody else, and drops this value when it ends.
pub(super) struct TaskOwner {
    owner: RequestOwner,
    /// Number of questions that a person has not answered yet.
    open: watch::Sender<usize>,
}

impl TaskOwner {
    /// Makes a task owner. Also returns a receiver for the number of questions that a person has not answered yet.
    pub(super) fn new(owner: RequestOwner) -> (Self, watch::Receiver<usize>) {
        let (open, asked) = watch::channel(0);
        (Self { owner, open }, asked)
    }

    /// Pauses the clocks of all callers that wait for the token task, until the returned guard is dropped.
    pub(super) fn pause(&self) -> PersonPause<'_> {
        self.open.send_modify(|open| *open += 1);
        PersonPause(&self.open)
    }

    pub(super) fn can_authorize(&self) -> bool {
        self.owner.can_do(MissingCallback::Page)
    }

    pub(super) fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        self.owner.authorize(prompt)
    }

    pub(super) fn can_confirm_issuer(&self) -> bool {
        self.owner.can_do(MissingCallback::Issuer)
    }

    pub(super) fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        self.owner.confirm_issuer(prompt)
    }
}

/// Guard for the time during which a person is being asked.
pub(super) struct PersonPause<'a>(&'a watch::Sender<usize>);

impl Drop for PersonPause<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
