//! Pings that show whether a server has read the messages that were sent before them.

use parking_lot::Mutex;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, PingRequest};
use rmcp::service::{Peer, PeerRequestOptions};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The pings of one connection. At most one ping is unanswered at any time, however many callers wait, because a server may never answer
/// it.
pub(in crate::client) struct ReadCheck {
    pings: Mutex<Pings>,
    /// Number of answered pings.
    answered: watch::Sender<u64>,
}

#[derive(Default)]
struct Pings {
    begun: u64,
    /// Number of the last ping for which a caller waits.
    wanted: u64,
    is_running: bool,
}

impl ReadCheck {
    pub(in crate::client) fn new() -> Arc<Self> {
        Arc::new(Self { pings: Mutex::default(), answered: watch::Sender::new(0) })
    }

    /// Resolves once the server has answered a ping that was sent after this call began. An error is also an answer. Also resolves when
    /// the connection has ended.
    pub(super) async fn passed(self: &Arc<Self>, peer: &Peer<RoleClient>, runtime: &Handle) {
        let mut answered = self.answered.subscribe();
        let (number, is_first) = self.want();
        if is_first {
            let (check, peer) = (Arc::clone(self), peer.clone());
            runtime.spawn(async move { check.run(|| answer_to_ping(&peer)).await });
        }
        // The sender lives as long as `self`, so this cannot fail.
        let _ = answered.wait_for(|answered| *answered >= number).await;
    }

    /// Returns the number of the next ping, and whether the caller must start the task that sends it.
    fn want(&self) -> (u64, bool) {
        let mut pings = self.pings.lock();
        // A ping that is already running may have been sent before the caller's message, so the next ping is used.
        pings.wanted = pings.begun + 1;
        (pings.wanted, !std::mem::replace(&mut pings.is_running, true))
    }

    /// Sends one ping after another until no caller waits for one.
    async fn run<P: Future<Output = ()>>(&self, ping: impl Fn() -> P) {
        while let Some(number) = self.next() {
            ping().await;
            self.answered.send_replace(number);
        }
    }

    fn next(&self) -> Option<u64> {
        let mut pings = self.pings.lock();
        pings.is_running = pings.wanted > pings.begun;
        pings.is_running.then(|| {
            pings.begun += 1;
            pings.begun
        })
    }
}

/// Sends a ping. Resolves once the server has answered it, or the connection has ended. An error is also an answer.
async fn answer_to_ping(peer: &Peer<RoleClient>) {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    if let Ok(handle) = peer.send_cancellable_request(ping, PeerRequestOptions::no_options()).await {
        let _ = handle.rx.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn those_who_wait_share_a_ping_that_began_after_they_came_and_one_is_sent_at_a_time() {
        let check = ReadCheck::new();
        let (sent, answer) = (AtomicU64::new(0), tokio::sync::Semaphore::new(0));
        let ping = || {
            sent.fetch_add(1, Ordering::Relaxed);
            async { answer.acquire().await.unwrap().forget() }
        };
        assert_eq!(check.want(), (1, true));
        let mut running = Box::pin(check.run(ping));
        assert!(running.as_mut().now_or_never().is_none());
        for _ in 0..1_000 {
            assert_eq!(check.want(), (2, false), "the first ping may have been sent before");
        }
        assert!(running.as_mut().now_or_never().is_none());
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        answer.add_permits(1);
        assert!(running.as_mut().now_or_never().is_none());
        assert_eq!((sent.load(Ordering::Relaxed), *check.answered.borrow()), (2, 1));
        answer.add_permits(1);
        assert!(running.as_mut().now_or_never().is_some());
        assert_eq!((*check.answered.borrow(), check.want()), (2, (3, true)));
    }
}
