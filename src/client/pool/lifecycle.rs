//! State of a server's connection, and the decision whether the server may be connected again. Both are computed by a state machine and a
//! circuit breaker, which have no side effects.

use std::time::Duration;

use tokio::time::Instant;

/// Wait after the first failure. The wait doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Time for which the circuit breaker refuses to connect a server that has failed too often.
const BREAKER_OPEN: Duration = Duration::from_secs(30);

/// State of a server's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The server is not connected, because no caller has needed it yet.
    Idle,
    Connecting,
    Connected,
    /// The connection ended. The next call connects again.
    Closed(Closed),
    /// The last attempt failed.
    Error,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The server crashed, or closed its pipe.
    Lost,
    /// The connection was idle for longer than its idle time-out.
    IdledOut,
    /// The connection was closed to make room for the connection of another server.
    Evicted,
    /// The approval under which the connection was opened was revoked. The server has another approval now.
    Revoked,
    /// A person or the gateway closed the connection.
    Ended,
}

/// An event that changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    Connect,
    Ready,
    Failed,
    /// The caller stopped waiting before the attempt to connect succeeded or failed.
    GivenUp,
    Close(Closed),
}

impl ConnectionState {
    /// Returns the state after a transition. Returns `None` if the transition is not possible in this state.
    ///
    /// ```
    /// use hyperlight_mcp::client::{ConnectionState, Transition};
    /// assert_eq!(ConnectionState::Idle.after(Transition::Connect), Some(ConnectionState::Connecting));
    /// assert_eq!(ConnectionState::Idle.after(Transition::Ready), None);
    /// ```
    #[must_use]
    pub fn after(self, transition: Transition) -> Option<Self> {
        match (self, transition) {
            (Self::Idle | Self::Closed(_) | Self::Error, Transition::Connect) => Some(Self::Connecting),
            (Self::Connecting, Transition::Ready) => Some(Self::Connected),
            (Self::Connecting, Transition::Failed) => Some(Self::Error),
            (Self::Connecting, Transition::GivenUp) => Some(Self::Idle),
            (Self::Connected, Transition::Close(reason)) => Some(Self::Closed(reason)),
            _ => None,
        }
    }
}

/// The decision whether a server may be connected now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectDecision {
    Now,
    /// The server may be connected after this time.
    Wait(Duration),
    /// The server has failed too often. It may be connected after this time.
    Refused(Duration),
}

/// A server's connection state, and its consecutive failures.
#[derive(Debug)]
pub struct Lifecycle {
    state: ConnectionState,
    failures: u32,
    failed_at: Option<Instant>,
    /// Number of consecutive failures at which the circuit breaker refuses to connect the server.
    most_failures: u32,
}

impl Lifecycle {
    /// Makes the initial state. `max_reconnects` is the number of consecutive failures at which the circuit breaker refuses to connect
    /// the server. 0 has the same effect as 1.
    #[must_use]
    pub fn new(max_reconnects: u32) -> Self {
        Self { state: ConnectionState::Idle, failures: 0, failed_at: None, most_failures: max_reconnects.max(1) }
    }

    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Applies a transition. If the transition is not possible in the current state, another transition came first, and nothing changes.
    pub fn on(&mut self, transition: Transition, now: Instant) {
        let Some(next) = self.state.after(transition) else {
            tracing::debug!(state = ?self.state, ?transition, "a transition was ignored, because another one came first");
            return;
        };
        match next {
            ConnectionState::Error => {
                self.failures = self.failures.saturating_add(1);
                self.failed_at = Some(now);
            }
            ConnectionState::Connected => self.reset(),
            ConnectionState::Idle | ConnectionState::Connecting | ConnectionState::Closed(_) => {}
        }
        self.state = next;
    }

    /// Deletes the record of failures. Used when a person wants to connect without waiting.
    pub fn reset(&mut self) {
        (self.failures, self.failed_at) = (0, None);
    }

    /// Decides whether the server may be connected now.
    #[must_use]
    pub fn connect_decision(&self, now: Instant) -> ConnectDecision {
        let Some(failed_at) = self.failed_at else { return ConnectDecision::Now };
        let passed = now.saturating_duration_since(failed_at);
        if self.failures >= self.most_failures {
            // After this time, one attempt is allowed. If this attempt fails, further attempts are refused again for the same time.
            let left = BREAKER_OPEN.saturating_sub(passed);
            return if left.is_zero() { ConnectDecision::Now } else { ConnectDecision::Refused(left) };
        }
        let doublings = self.failures.saturating_sub(1).min(16);
        let left = (FIRST_BACKOFF * (1 << doublings)).min(LONGEST_BACKOFF).saturating_sub(passed);
        if left.is_zero() { ConnectDecision::Now } else { ConnectDecision::Wait(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState as State;
    use Transition::{Close, Connect, Failed, GivenUp, Ready};

    const CLOSED: [Closed; 5] = [Closed::Lost, Closed::IdledOut, Closed::Evicted, Closed::Revoked, Closed::Ended];

    #[test]
    fn every_transition_is_as_drawn_and_no_other_happens() {
        let states = [State::Idle, State::Connecting, State::Connected, State::Error].into_iter().chain(CLOSED.map(State::Closed));
        for state in states {
            for transition in [Connect, Ready, Failed, GivenUp].into_iter().chain(CLOSED.map(Close)) {
                let expected = match (state, transition) {
                    (State::Idle | State::Error | State::Closed(_), Connect) => Some(State::Connecting),
                    (State::Connecting, Ready) => Some(State::Connected),
                    (State::Connecting, Failed) => Some(State::Error),
                    (State::Connecting, GivenUp) => Some(State::Idle),
                    (State::Connected, Close(reason)) => Some(State::Closed(reason)),
                    _ => None,
                };
                assert_eq!(state.after(transition), expected, "{state:?} {transition:?}");
            }
        }
    }

    fn fail(lifecycle: &mut Lifecycle, now: Instant) {
        lifecycle.on(Connect, now);
        lifecycle.on(Failed, now);
    }

    #[test]
    fn each_failure_doubles_the_wait_and_too_many_open_the_breaker() {
        let start = Instant::now();
        let mut lifecycle = Lifecycle::new(3);
        assert_eq!(lifecycle.connect_decision(start), ConnectDecision::Now);
        fail(&mut lifecycle, start);
        assert_eq!(lifecycle.connect_decision(start), ConnectDecision::Wait(FIRST_BACKOFF));
        assert_eq!(lifecycle.connect_decision(start + FIRST_BACKOFF), ConnectDecision::Now);
        fail(&mut lifecycle, start);
        assert_eq!(lifecycle.connect_decision(start), ConnectDecision::Wait(FIRST_BACKOFF * 2));
        fail(&mut lifecycle, start);
        assert_eq!(lifecycle.connect_decision(start), ConnectDecision::Refused(BREAKER_OPEN));
    }

    #[test]
    fn an_open_breaker_lets_one_attempt_through_and_opens_again() {
        let start = Instant::now();
        let mut lifecycle = Lifecycle::new(1);
        fail(&mut lifecycle, start);
        let later = start + BREAKER_OPEN;
        assert_eq!(lifecycle.connect_decision(later), ConnectDecision::Now);
        fail(&mut lifecycle, later);
        assert_eq!(lifecycle.connect_decision(later), ConnectDecision::Refused(BREAKER_OPEN));
    }

    #[test]
    fn a_success_forgets_the_failures_and_so_does_a_person() {
        let now = Instant::now();
        let mut lifecycle = Lifecycle::new(3);
        fail(&mut lifecycle, now);
        lifecycle.on(Connect, now);
        lifecycle.on(Ready, now);
        assert_eq!((lifecycle.failures(), lifecycle.connect_decision(now)), (0, ConnectDecision::Now));
        lifecycle.on(Close(Closed::Lost), now);
        assert_eq!(lifecycle.connect_decision(now), ConnectDecision::Now, "a crash is not a failed reconnect");
        fail(&mut lifecycle, now);
        lifecycle.reset();
        assert_eq!(lifecycle.connect_decision(now), ConnectDecision::Now);
    }
}
