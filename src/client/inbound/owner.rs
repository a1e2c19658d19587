//! Owners of requests. If a request requires an authorization, its owner is asked. The owner's clocks pause while a person answers.

use parking_lot::Mutex;
use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use rmcp::model::RequestId;
use tokio::sync::watch;

use super::authorization::{AuthorizationPrompt, IssuerPrompt};
use super::caller::{Caller, Observer, Reply};
use super::calls::Calls;
use crate::client::clock::CallClock;
use crate::error::MissingCallback;

/// The owner of a request. It contains the caller that is asked if the request needs an authorization, and the clock that runs while the
/// caller waits. The default owner can ask nobody.
#[derive(Clone, Default)]
pub struct RequestOwner {
    caller: Option<Arc<dyn Caller>>,
    clock: Option<CallClock>,
}

/// Function that returns the owner of the request with this id. A message without an id, such as a notification, is treated as belonging
/// to no call.
pub(in crate::client) type OwnerOf = Arc<dyn Fn(Option<&RequestId>) -> RequestOwner + Send + Sync>;

impl RequestOwner {
    pub(in crate::client) fn new(caller: Arc<dyn Caller>, clock: Option<CallClock>) -> Self {
        Self { caller: Some(caller), clock }
    }

    /// Returns whether this owner can ask somebody to do the missing step of an authorization.
    pub(in crate::client) fn can_do(&self, step: MissingCallback) -> bool {
        self.caller.as_ref().is_some_and(|caller| match step {
            MissingCallback::Page => caller.can_authorize(),
            MissingCallback::Issuer => caller.can_confirm_issuer(),
        })
    }

    /// Shows the authorization page to a person. Returns `None` if nobody can be asked.
    pub(in crate::client) fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        self.caller.as_ref()?.authorize(prompt)
    }

    /// Asks a person to confirm an issuer. Returns `None` if nobody can be asked.
    pub(in crate::client) fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        self.caller.as_ref()?.confirm_issuer(prompt)
    }

    /// Waits for `work`. `asked` is the number of people who are being asked. While this number is above 0, all clocks of this owner are
    /// paused.
    pub(in crate::client) async fn wait<T>(&self, mut asked: watch::Receiver<usize>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut pause = None;
        loop {
            let is_asked = *asked.borrow_and_update() > 0;
            if is_asked != pause.is_some() {
                pause = is_asked.then(|| self.pause());
            }
            let changed = tokio::select! {
                biased;
                done = &mut work => return done,
                changed = asked.changed() => changed,
            };
            // The sender was dropped, so nobody will be asked any more.
            if changed.is_err() {
                drop(pause);
                return work.await;
            }
        }
    }

    fn pause(&self) -> impl Send + use<> {
        let enclosing = self.caller.as_ref().and_then(|caller| caller.pause());
        (self.clock.as_ref().map(CallClock::pause), enclosing)
    }
}

impl Debug for RequestOwner {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RequestOwner").finish_non_exhaustive()
    }
}

/// Finds the owner of each request of one connection.
pub(in crate::client) struct RequestOwners {
    calls: Arc<Calls>,
    observer: Arc<dyn Observer>,
    /// Owner of the requests that belong to no call. It is set while the connection is opened or its lists are read.
    temporary: Mutex<Option<RequestOwner>>,
}

impl RequestOwners {
    pub(in crate::client) fn new(calls: &Arc<Calls>, observer: &Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { calls: Arc::clone(calls), observer: Arc::clone(observer), temporary: Mutex::default() })
    }

    /// Returns the owner of a request. This is the caller of the request's call, otherwise the temporary owner, and otherwise the
    /// gateway.
    pub(in crate::client) fn owner(&self, request: Option<&RequestId>) -> RequestOwner {
        if let Some(call) = request.and_then(|request| self.calls.with_id(request)) {
            return RequestOwner::new(call.caller, Some(call.clock));
        }
        let temporary = self.temporary.lock().clone();
        temporary.unwrap_or_else(|| RequestOwner::new(self.observer.nobody_in_particular(), None))
    }

    /// Makes `owner` the owner of requests that belong to no call, until the returned guard is dropped. The guard also drops `owner`, and
    /// with it the callbacks of its caller.
    pub(in crate::client) fn set_temporary(self: &Arc<Self>, owner: RequestOwner) -> TemporaryOwner {
        *self.temporary.lock() = Some(owner);
        TemporaryOwner(Arc::clone(self))
    }
}

/// Guard of a temporary owner.
pub(in crate::client) struct TemporaryOwner(Arc<RequestOwners>);

impl Drop for TemporaryOwner {
    fn drop(&mut self) {
        let owner = self.0.temporary.lock().take();
        drop(owner);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::clock::CallLimits;

    #[tokio::test]
    async fn a_clock_stands_for_exactly_as_long_as_a_person_is_asked() {
        let clock = CallClock::start(CallLimits::fixed(Duration::from_millis(1)));
        let owner = RequestOwner { caller: None, clock: Some(clock.clone()) };
        let (asking, asked) = watch::channel(1);
        let person = async {
            assert!(
                tokio::time::timeout(Duration::from_millis(20), clock.expired()).await.is_err(),
                "the clock runs while a person is asked"
            );
            asking.send_replace(0);
            clock.expired().await;
        };
        owner.wait(asked, person).await;
    }

    #[tokio::test]
    async fn work_that_can_ask_nobody_any_more_is_still_waited_for() {
        let clock = CallClock::start(CallLimits::fixed(Duration::from_millis(1)));
        let owner = RequestOwner { caller: None, clock: Some(clock.clone()) };
        let (asking, asked) = watch::channel(1);
        drop(asking);
        let work = async {
            clock.expired().await;
            5
        };
        assert_eq!(owner.wait(asked, work).await, 5);
    }
}
