//! Refusals of a box, and the decision which of them are reported. A server chooses the names that it asks for, so the number of reports is
//! limited.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::pace::Pace;
use crate::text::sanitise_line;

/// Maximum number of refusals that are remembered, so that each is reported once.
const MAX_REMEMBERED: usize = 1024;
/// Limit for the refusals that are reported: `BURST` at once, and then one in each `EVERY`.
const BURST: u32 = 30;
const EVERY: Duration = Duration::from_secs(2);
/// The longest host that is shown, in characters.
const MAX_HOST_CHARS: usize = 120;

/// The reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// The list of hosts does not contain the host, or not with this port.
    NotAllowed,
    /// The name is allowed, but leads to an address that only this machine or its network can reach.
    PrivateAddress,
    /// The server uses more connections, names or descriptors of the gateway's process than it may.
    TooMany,
}

/// An attempt that a box has refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The name by which the server asked for the host, or the address.
    pub host: String,
    /// The port. `None` if the server has only looked up the name.
    pub port: Option<u16>,
    pub reason: RefusalReason,
}

impl Refusal {
    /// Returns the refusal with a host that can be shown.
    fn readable(self) -> Self {
        Self { host: sanitise_line(&self.host, MAX_HOST_CHARS), ..self }
    }

    /// Returns host and port as they are written in a list of hosts.
    #[must_use]
    pub fn target(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target();
        match self.reason {
            RefusalReason::NotAllowed => write!(formatter, "its box does not allow {target}"),
            RefusalReason::PrivateAddress => {
                write!(formatter, "its box refuses {target}, which leads to a private address: name that address")
            }
            RefusalReason::TooMany => write!(formatter, "it uses more of the network than its box allows, so {target} was refused"),
        }
    }
}

/// Decides which refusals are reported.
#[derive(Debug)]
pub(super) struct Refusals {
    told: HashSet<Refusal>,
    pace: Pace,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self { told: HashSet::new(), pace: Pace::new(BURST, EVERY, now) }
    }

    /// Returns the refusal if it must be reported: it was not reported before, and the number and rate of reports are within their limits.
    pub(super) fn admit(&mut self, refusal: Refusal, now: Instant) -> Option<Refusal> {
        let refusal = refusal.readable();
        if self.told.contains(&refusal) || self.told.len() >= MAX_REMEMBERED || self.pace.take(now).is_err() {
            return None;
        }
        self.told.insert(refusal.clone());
        Some(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(host: &str) -> Refusal {
        Refusal { host: host.to_owned(), port: Some(443), reason: RefusalReason::NotAllowed }
    }

    #[test]
    fn each_refusal_is_told_once_and_a_flood_is_not() {
        let begin = Instant::now();
        let mut refusals = Refusals::new(begin);
        assert_eq!(refusals.admit(refusal("a"), begin), Some(refusal("a")));
        assert_eq!(refusals.admit(refusal("a"), begin + Duration::from_hours(1)), None);
        let later = begin + Duration::from_hours(1);
        let told = (0..10_000).filter(|number| refusals.admit(refusal(&number.to_string()), later).is_some()).count();
        assert_eq!(told, 30);
        // A refusal that the rate limit has suppressed can be reported later.
        assert!(refusals.admit(refusal("9999"), later + EVERY).is_some());
    }

    #[test]
    fn a_name_of_the_server_cannot_write_a_line_of_its_own() {
        let mut refusals = Refusals::new(Instant::now());
        let told = refusals.admit(refusal(&format!("a\n\u{1b}[2Jb{}", "c".repeat(500))), Instant::now()).unwrap();
        assert!(!told.host.contains(['\n', '\u{1b}']) && told.host.chars().count() <= MAX_HOST_CHARS + 1, "{}", told.host);
        assert_eq!(refusal("a.example").to_string(), "its box does not allow a.example:443");
    }
}
