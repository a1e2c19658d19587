//! Decisions about tokens, as functions without side effects.

use secrecy::SecretString;
use std::collections::HashSet;

/// Remaining lifetime at which a token is renewed.
const MARGIN_SECONDS: u64 = 30;
/// Age from which a token is treated as accepted by the server. A later refusal is then treated as a new event, and not as a failure of
/// the last renewal.
const PROVEN_SECONDS: u64 = 60;
const MAX_STEP_UPS: u8 = 2;

/// The way in which this program got the token that it uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The token was stored earlier, it replaced a token that would soon have expired, or the server has accepted it.
    Known,
    /// The previous token was refused, and this token is its renewal.
    Renewed,
    /// A person or the client itself authorized this token. Before that, the renewed token was refused, or there was no token.
    Authorized,
}

/// The history of a token, from which the reaction to its refusal is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenHistory {
    pub(super) cause: Cause,
    /// Number of consecutive requests for more scopes.
    pub(super) step_ups: u8,
    /// Time at which the token was requested, in seconds since 1970.
    pub(super) since: u64,
}

impl TokenHistory {
    pub(super) fn known(now: u64) -> Self {
        Self { cause: Cause::Known, step_ups: 0, since: now }
    }

    fn is_proven(self, now: u64) -> bool {
        now.saturating_sub(self.since) >= PROVEN_SECONDS
    }
}

/// A challenge, with which the server refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// The server answered with status 401.
    Unauthorized,
    /// The server answered with status 403, because these scopes are missing.
    MissingScopes(Vec<String>),
}

/// The reaction to a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    Renew,
    Authorize {
        step_ups: u8,
    },
    /// Requests no new token, because the server would probably refuse the new token too.
    GiveUp,
}

/// Decides the reaction to a challenge. `history` is the history of the refused token. It is `None` if no token was sent. `renewable` is
/// true if the token can be renewed without a person.
pub(super) fn plan(challenge: &Challenge, history: Option<TokenHistory>, renewable: bool, now: u64) -> Plan {
    let history = history.filter(|history| !history.is_proven(now));
    match (challenge, history) {
        (Challenge::MissingScopes(_), Some(TokenHistory { step_ups, .. })) if step_ups >= MAX_STEP_UPS => Plan::GiveUp,
        (Challenge::MissingScopes(_), history) => Plan::Authorize { step_ups: history.map_or(0, |history| history.step_ups) + 1 },
        (Challenge::Unauthorized, Some(TokenHistory { cause: Cause::Authorized, .. })) => Plan::GiveUp,
        (Challenge::Unauthorized, Some(TokenHistory { cause: Cause::Known, .. }) | None) if renewable => Plan::Renew,
        (Challenge::Unauthorized, Some(_) | None) => Plan::Authorize { step_ups: 0 },
    }
}

/// The freshness of a token: whether it can be used, or must be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    Fresh,
    /// The token is still valid, but should be renewed before it is used.
    Due,
    Expired,
}

/// Returns the freshness of a token. `lifetime` is `None` if the authorization server did not give it.
pub(super) fn freshness(received_at: u64, lifetime: Option<u64>, now: u64) -> Freshness {
    let Some(lifetime) = lifetime else { return Freshness::Fresh };
    let left = lifetime.saturating_sub(now.saturating_sub(received_at));
    // For a short lifetime, the margin is shorter. With the full margin, such a token would be renewed before every request.
    let margin = MARGIN_SECONDS.min(lifetime / 2);
    match left {
        0 => Freshness::Expired,
        left if left <= margin => Freshness::Due,
        _ => Freshness::Fresh,
    }
}

/// Returns the union of both lists. The scopes keep their order.
pub(super) fn union(granted: &[String], wanted: &[String]) -> Vec<String> {
    // The union uses a set, because a server may name a large number of scopes.
    let mut known = HashSet::new();
    granted.iter().chain(wanted).filter(|scope| known.insert(scope.as_str())).cloned().collect()
}

pub(super) fn given_up(challenge: &Challenge) -> String {
    match challenge {
        Challenge::Unauthorized => "the server refuses the token that its authorization server has just issued".to_owned(),
        Challenge::MissingScopes(scopes) => {
            format!("after two authorizations for more scopes the server still requires these scopes: {}", scopes.join(" "))
        }
    }
}

/// The next step that is needed before a request can be sent.
pub(super) enum NextStep {
    Send(SecretString),
    Nothing,
    /// This work must be done before the request is sent.
    First(Work),
}

/// Work that one token task does.
#[derive(Clone)]
pub(super) enum Work {
    /// Loads a stored token. For this, the task first asks the server for the name of its issuer.
    Load,
    /// Renews a token that will soon expire, or that has expired.
    Renew,
    /// Reacts to a server's refusal of a request.
    Answer { challenge: Challenge, header: String, used: Option<SecretString> },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(cause: Cause, step_ups: u8) -> TokenHistory {
        TokenHistory { cause, step_ups, since: 1_000 }
    }

    #[test]
    fn a_refused_token_is_renewed_once_then_authorized_once_then_given_up() {
        let plan = |history, renewable| plan(&Challenge::Unauthorized, history, renewable, 1_001);
        assert_eq!(plan(Some(history(Cause::Known, 0)), true), Plan::Renew);
        assert_eq!(plan(Some(history(Cause::Renewed, 0)), true), Plan::Authorize { step_ups: 0 });
        assert_eq!(plan(Some(history(Cause::Authorized, 0)), true), Plan::GiveUp);
        assert_eq!(plan(Some(history(Cause::Known, 0)), false), Plan::Authorize { step_ups: 0 });
        assert_eq!(plan(None, false), Plan::Authorize { step_ups: 0 });
    }

    #[test]
    fn a_token_that_has_lived_a_minute_was_accepted_and_its_refusal_is_news() {
        for cause in [Cause::Known, Cause::Renewed, Cause::Authorized] {
            assert_eq!(plan(&Challenge::Unauthorized, Some(history(cause, 0)), true, 1_060), Plan::Renew);
        }
    }

    #[test]
    fn scopes_are_asked_for_twice_in_a_row_at_most() {
        let plan = |step_ups, now| plan(&Challenge::MissingScopes(vec!["a".into()]), Some(history(Cause::Authorized, step_ups)), true, now);
        assert_eq!(plan(0, 1_001), Plan::Authorize { step_ups: 1 });
        assert_eq!(plan(1, 1_001), Plan::Authorize { step_ups: 2 });
        assert_eq!(plan(2, 1_001), Plan::GiveUp);
        assert_eq!(plan(2, 1_060), Plan::Authorize { step_ups: 1 });
    }

    #[test]
    fn a_token_is_due_half_a_minute_before_its_end() {
        let at = |now| freshness(1_000, Some(3_600), now);
        assert_eq!([at(1_000), at(4_569), at(4_570), at(4_599), at(4_600), at(9_000)], {
            use Freshness::{Due, Expired, Fresh};
            [Fresh, Fresh, Due, Due, Expired, Expired]
        });
        assert_eq!(freshness(1_000, None, 1_000_000), Freshness::Fresh);
    }

    #[test]
    fn one_that_lives_only_seconds_is_not_due_at_once() {
        assert_eq!(freshness(1_000, Some(10), 1_000), Freshness::Fresh);
        assert_eq!(freshness(1_000, Some(10), 1_005), Freshness::Due);
    }

    #[test]
    fn a_union_has_each_scope_once() {
        let list = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        assert_eq!(union(&list("a b"), &list("b c")), list("a b c"));
    }
}
