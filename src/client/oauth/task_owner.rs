//! The person whom a token task asks, and how the callers that wait for the token task learn that a person is being asked.

use tokio::sync::watch;

use super::{AuthorizationPrompt, IssuerPrompt};
use crate::client::inbound::caller::Reply;
use crate::client::inbound::owner::RequestOwner;
use crate::error::MissingCallback;

/// The owner of the request that started a token task. A token task asks nobody else, and drops the owner at its end.
pub(super) struct TaskOwner {
    owner: RequestOwner,
    /// Number of questions that wait for a person.
    open: watch::Sender<usize>,
}

impl TaskOwner {
    /// Also returns the number of questions that wait for a person, as it changes.
    pub(super) fn new(owner: RequestOwner) -> (Self, watch::Receiver<usize>) {
        let (open, asked) = watch::channel(0);
        (Self { owner, open }, asked)
    }

    /// Pauses the clocks of all callers that wait for the token task, until the guard is dropped.
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

/// Guard of a time that a person takes.
pub(super) struct PersonPause<'a>(&'a watch::Sender<usize>);

impl Drop for PersonPause<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
