//! The two MCP handshakes, and the order in which to try them.

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;
use serde::{Deserialize, Serialize};

/// The handshake that a server understands. It is stored with the server's digest after the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// `initialize`, used by MCP versions 2024-11-05 to 2025-11-25.
    Initialize,
    /// `server/discover`, used since MCP version 2026-07-28.
    Discover,
}

impl Era {
    /// Returns the handshake that this protocol version uses.
    ///
    /// ```
    /// use hyperlight_mcp::client::Era;
    /// assert_eq!(Era::of("2025-11-25"), Era::Initialize);
    /// assert_eq!(Era::of("2026-07-28"), Era::Discover);
    /// ```
    #[must_use]
    pub fn of(version: &str) -> Self {
        // Versions are ISO dates, so comparing them as text gives their order.
        if version < ProtocolVersion::V_2026_07_28.as_str() { Self::Initialize } else { Self::Discover }
    }
}

/// A plan for the next attempt to connect. It contains which handshakes the attempt tries, and determines what is tried after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) enum Plan {
    /// Uses the protocol version that the config fixes.
    Fixed(String),
    Known(Era),
    /// Tries `server/discover` first, and `initialize` if the server refuses `server/discover` or does not answer.
    Probe,
    /// Tries the handshakes in the same order as [`Self::Probe`], but over HTTP and with a new transport for each handshake. A server that
    /// is waiting for a person's authorization is not treated as a server that does not answer.
    ProbeApart,
    /// Tries only this handshake, after a probe has failed.
    Last(Era),
}

/// The class of a failed attempt, which decides the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Refusal {
    /// The server's process ended, or closed its pipe.
    Ended,
    /// The server refused the handshake, or answered it in an unexpected way.
    Answered,
    /// The handshake succeeded, but the lists could not be read.
    Unlisted,
    /// The failure does not depend on the handshake, for example because the server cannot be reached or requires a token.
    Unrelated,
}

impl Plan {
    pub(in crate::client) fn new(fixed: Option<&str>, remembered: Option<Era>) -> Self {
        match (fixed, remembered) {
            (Some(version), _) => Self::Fixed(version.to_owned()),
            (None, Some(era)) => Self::Known(era),
            (None, None) => Self::Probe,
        }
    }

    /// Returns the plan to use for a server over HTTP: [`Self::ProbeApart`] instead of [`Self::Probe`], and each other plan unchanged.
    pub(super) fn over_http(self) -> Self {
        if self == Self::Probe { Self::ProbeApart } else { self }
    }

    /// Returns the plan of the next attempt after a failure. Returns `None` if the failure is final.
    pub(in crate::client) fn after(&self, refusal: Refusal) -> Option<Self> {
        match (self, refusal) {
            (_, Refusal::Unrelated | Refusal::Unlisted) | (Self::Fixed(_) | Self::Last(_), _) | (Self::Known(_), Refusal::Ended) => None,
            // The stored handshake is no longer the right one, probably because the server was replaced by another program.
            (Self::Known(_), Refusal::Answered) => Some(Self::Probe),
            // Some servers exit when they get an unknown request. Others do not answer `server/discover` in time, and only know
            // `initialize`.
            (Self::ProbeApart, Refusal::Ended | Refusal::Answered) | (Self::Probe, Refusal::Ended) => Some(Self::Last(Era::Initialize)),
            (Self::Probe, Refusal::Answered) => Some(Self::Last(Era::Discover)),
        }
    }

    /// Returns whether an unanswered `server/discover` means that the server does not know this method.
    pub(super) fn probes(&self) -> bool {
        *self == Self::Probe
    }

    pub(in crate::client) fn lifecycle(&self) -> ClientLifecycleMode {
        let discover = |version: ProtocolVersion| ClientLifecycleMode::Discover { preferred_versions: vec![version] };
        match self {
            Self::Fixed(version) if Era::of(version) == Era::Discover => discover(self.version()),
            Self::Known(Era::Discover) | Self::Last(Era::Discover) | Self::ProbeApart => discover(ProtocolVersion::V_2026_07_28),
            Self::Fixed(_) | Self::Known(Era::Initialize) | Self::Last(Era::Initialize) => ClientLifecycleMode::Initialize,
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
        }
    }

    /// Returns the protocol version that `initialize` requests.
    pub(in crate::client) fn version(&self) -> ProtocolVersion {
        match self {
            Self::Fixed(version) => {
                let known = ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| known.as_str() == version);
                known.cloned().unwrap_or(ProtocolVersion::V_2025_11_25)
            }
            _ => ProtocolVersion::V_2025_11_25,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_probed() {
        assert!(!Plan::new(None, Some(Era::Initialize)).probes());
        assert!(Plan::new(None, None).probes());
        assert_eq!(Plan::new(Some("2025-06-18"), Some(Era::Discover)).version(), ProtocolVersion::V_2025_06_18);
    }

    #[test]
    fn each_plan_leads_to_an_end() {
        for first in
            [Plan::Probe, Plan::ProbeApart, Plan::Known(Era::Initialize), Plan::Known(Era::Discover), Plan::Fixed("2025-11-25".into())]
        {
            for refusal in [Refusal::Ended, Refusal::Answered, Refusal::Unlisted, Refusal::Unrelated] {
                let mut plan = Some(first.clone());
                let attempts = std::iter::from_fn(|| {
                    let now = plan.take()?;
                    plan = now.after(refusal);
                    Some(now)
                });
                assert!(attempts.count() <= 3, "{first:?} {refusal:?}");
            }
        }
    }

    #[test]
    fn a_server_that_ends_at_a_probe_is_asked_in_the_old_way() {
        assert_eq!(Plan::Probe.after(Refusal::Ended), Some(Plan::Last(Era::Initialize)));
        assert_eq!(Plan::Probe.after(Refusal::Unrelated), None);
        assert_eq!(Plan::Fixed("2026-07-28".into()).after(Refusal::Answered), None);
    }
}
