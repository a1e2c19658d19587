//! The approval of hosts that code of an agent may fetch from: the shown request, its digest, and its row in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::digest::digest;
use crate::fetch::{AllowedHost, unicode_entries};
use crate::store::Canonical;

/// The name of the operator's own row. No agent can have this name.
const OPERATOR: &str = ":operator";

/// Hosts to fetch from, in their normal form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchHosts {
    pub hosts: BTreeSet<String>,
    /// The hosts in `hosts` for which the operator allows private addresses.
    pub private_hosts: BTreeSet<String>,
}

/// The request that a person sees before an approval: `fetchApproval()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchApproval {
    /// The agent's name. Missing for the operator's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(flatten)]
    pub shown: FetchHosts,
    /// The Unicode form of each host that has letters outside of ASCII, by host. Such a form can look like another host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unicode_hosts: BTreeMap<String, String>,
    /// The entries that include host names which anyone can get, for example `*.github.io`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts_of_strangers: BTreeSet<String>,
    /// The digest of the agent and the hosts.
    pub digest: String,
    /// True if a person has approved all of these hosts for the agent.
    pub approved: bool,
    /// The hosts that are approved for the agent now. A new approval replaces them.
    pub approved_hosts: BTreeSet<String>,
}

/// An approval as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    approved: FetchHosts,
    digest: String,
    /// Milliseconds since 1970.
    approved_at: u64,
}

impl FetchHosts {
    /// Returns the entries that include host names which anyone can get.
    #[must_use]
    pub fn of_strangers(&self) -> BTreeSet<String> {
        let includes_strangers = |host: &&String| host.parse::<AllowedHost>().is_ok_and(|host| host.includes_strangers());
        self.hosts.iter().chain(&self.private_hosts).filter(includes_strangers).cloned().collect()
    }

    /// Returns the Unicode form of each host that has letters outside of ASCII, by host.
    #[must_use]
    pub fn in_unicode(&self) -> BTreeMap<String, String> {
        unicode_entries(self.hosts.iter().chain(&self.private_hosts))
    }

    /// Returns the digest of these hosts for an agent.
    ///
    /// ```
    /// use hyperlight_mcp::trust::FetchHosts;
    /// let hosts = FetchHosts { hosts: ["a.example".to_owned()].into(), ..FetchHosts::default() };
    /// assert_eq!(hosts.digest(None).len(), 64);
    /// assert_ne!(hosts.digest(None), hosts.digest(Some("a")));
    /// ```
    #[must_use]
    pub fn digest(&self, agent: Option<&str>) -> String {
        let Self { hosts, private_hosts } = self;
        let form = Canonical::new("hyperlight-mcp fetch 1").optional(agent);
        digest(&form.list(hosts.iter().map(String::as_str)).list(private_hosts.iter().map(String::as_str)))
    }

    /// Returns whether an approval contains all these hosts. A private host must have been shown as one.
    #[must_use]
    pub fn is_within(&self, approved: &Self) -> bool {
        self.hosts.is_subset(&approved.hosts) && self.private_hosts.is_subset(&approved.private_hosts)
    }

    /// Returns the hosts that an approval lacks.
    #[must_use]
    pub fn missing_in(&self, approved: &Self) -> BTreeSet<String> {
        let hosts = self.hosts.difference(&approved.hosts);
        hosts.chain(self.private_hosts.difference(&approved.private_hosts)).cloned().collect()
    }

    /// Returns these hosts together with others.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        Self { hosts: &self.hosts | &others.hosts, private_hosts: &self.private_hosts | &others.private_hosts }
    }

    /// Returns the body of the row that approves these hosts for an agent.
    #[must_use]
    pub fn row(&self, agent: Option<&str>, now: SystemTime) -> Arc<[u8]> {
        let approved_at = u64::try_from(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX);
        let row = Row { approved: self.clone(), digest: self.digest(agent), approved_at };
        // Texts and numbers can always be written.
        serde_json::to_vec(&row).unwrap_or_default().into()
    }

    /// Reads the row of an agent. A row that cannot be read, or that is of another agent, approves nothing.
    #[must_use]
    pub fn read(agent: Option<&str>, body: &[u8]) -> Option<Self> {
        let Row { approved, digest, approved_at: _ } = serde_json::from_slice(body).ok()?;
        (approved.digest(agent) == digest).then_some(approved)
    }
}

/// Returns the name of an agent's row.
#[must_use]
pub fn fetch_row(agent: Option<&str>) -> &str {
    agent.unwrap_or(OPERATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[&str], private: &[&str]) -> FetchHosts {
        let set = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        FetchHosts { hosts: set(hosts), private_hosts: set(private) }
    }

    #[test]
    fn the_digest_covers_the_agent_each_host_and_which_are_private() {
        let shown = hosts(&["a.example", "b.example"], &[]);
        assert_eq!(shown.digest(None), hosts(&["b.example", "a.example"], &[]).digest(None));
        for other in [hosts(&["a.example"], &[]), hosts(&["a.example", "b.example"], &["a.example"])] {
            assert_ne!(shown.digest(None), other.digest(None));
        }
        assert_ne!(shown.digest(None), shown.digest(Some("a")));
    }

    #[test]
    fn an_approval_is_for_its_hosts_and_for_fewer_of_them() {
        let approved = hosts(&["*.a.example", "b.example"], &[]);
        assert!(hosts(&["b.example"], &[]).is_within(&approved) && approved.is_within(&approved));
        for other in [hosts(&["c.example"], &[]), hosts(&["b.example:8443"], &[]), hosts(&["b.example"], &["b.example"])] {
            assert!(!other.is_within(&approved), "{other:?}");
        }
        let wanted = hosts(&["b.example", "c.example"], &["b.example"]);
        assert_eq!(wanted.missing_in(&approved), hosts(&["b.example", "c.example"], &[]).hosts);
    }

    #[test]
    fn a_row_is_read_again_by_its_own_agent_alone() {
        let approved = hosts(&["a.example"], &["a.example"]);
        let body = approved.row(Some("a"), SystemTime::now());
        assert_eq!(FetchHosts::read(Some("a"), &body), Some(approved));
        assert_eq!(FetchHosts::read(Some("b"), &body), None);
        assert_eq!(FetchHosts::read(None, &body), None);
        assert_eq!(FetchHosts::read(Some("a"), b"{}"), None);
    }
}
