//! Approvals of hosts: a person sees the list of hosts, and approves exactly this list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use super::super::agent::Identity;
use super::super::core::Core;
use super::super::{Agent, Gateway};
use crate::config::{MAX_FETCH_HOSTS, check_label};
use crate::error::{Error, Result};
use crate::fetch::AllowedHosts;
use crate::store::audit::{AuditEvent, AuditParty};
use crate::store::{Kind, Rows};
use crate::trust::{FetchApproval, FetchHosts, fetch_row};

impl Gateway {
    /// Returns what a person must see before an agent's code may fetch from hosts. `agent` is the agent's name, or `None` for the
    /// operator's own agent. If `hosts` is `None`, the hosts of the agent's entry in the config are used. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an agent's name or a host that is not well-formed, or if there are no hosts; `ERR_STORE`, `ERR_CLOSED`.
    pub fn fetch_approval(&self, agent: Option<&str>, hosts: Option<&[String]>) -> Result<FetchApproval> {
        const METHOD: &str = "Gateway.fetchApproval";
        self.core.check_open()?;
        let shown = self.core.fetch_hosts(METHOD, agent, hosts).map_err(|error| self.core.redacted(error))?;
        let approved = self.core.approved_hosts(agent).map_err(|error| self.core.redacted(error))?;
        Ok(FetchApproval {
            agent: agent.map(str::to_owned),
            digest: shown.digest(agent),
            approved: shown.is_within(&approved),
            approved_hosts: approved.hosts,
            unicode_hosts: shown.in_unicode(),
            hosts_of_strangers: shown.of_strangers(),
            shown,
        })
    }

    /// Approves exactly the hosts that a person was shown. These hosts replace all hosts that were approved for the agent before. Blocks.
    ///
    /// # Errors
    /// `ERR_DIGEST_CHANGED` if the digest does not belong to these hosts, and the errors of [`Self::fetch_approval`].
    pub fn approve_fetch(&self, agent: Option<&str>, hosts: Option<&[String]>, digest: &str) -> Result<FetchApproval> {
        const METHOD: &str = "Gateway.approveFetch";
        self.core.check_open()?;
        let shown = self.core.fetch_hosts(METHOD, agent, hosts).map_err(|error| self.core.redacted(error))?;
        if shown.digest(agent) != digest {
            return Err(self.core.redacted(Error::FetchDigestChanged { agent: agent_in_words(agent).into() }));
        }
        let body = shown.row(agent, SystemTime::now());
        let change = self.core.store.change(Kind::Fetch, |rows| {
            rows.insert(fetch_row(agent).to_owned(), body);
            Ok(())
        });
        change.map_err(|error| self.core.redacted(error))?;
        // Pending fetches are ended, because runs in progress may use hosts that are no longer approved.
        self.core.fetch.end_fetches(agent);
        self.record_fetch_approval(agent, &shown.hosts, Some(digest));
        Ok(FetchApproval {
            agent: agent.map(str::to_owned),
            digest: digest.to_owned(),
            approved: true,
            approved_hosts: shown.hosts.clone(),
            unicode_hosts: shown.in_unicode(),
            hosts_of_strangers: shown.of_strangers(),
            shown,
        })
    }

    /// Revokes the approval of an agent's hosts, for all processes. Pending fetches of the agent's runs in this gateway end. Returns
    /// whether there was an approval. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an agent's name that is not well-formed, `ERR_STORE`, `ERR_CLOSED`.
    pub fn revoke_fetch(&self, agent: Option<&str>) -> Result<bool> {
        self.core.check_open()?;
        check_agent("Gateway.revokeFetch", agent)?;
        self.core.fetch.end_fetches(agent);
        let revoked = self.core.store.change(Kind::Fetch, |rows| Ok(rows.remove(fetch_row(agent)).is_some()));
        let revoked = revoked.map_err(|error| self.core.redacted(error))?;
        // A run may have begun a fetch before the row was removed.
        self.core.fetch.end_fetches(agent);
        if revoked {
            self.record_fetch_approval(agent, &BTreeSet::new(), None);
        }
        Ok(revoked)
    }

    fn record_fetch_approval(&self, agent: Option<&str>, hosts: &BTreeSet<String>, digest: Option<&str>) {
        self.core.audit.record(AuditEvent::FetchApproval {
            agent: agent.map(Arc::from),
            hosts: hosts.iter().cloned().collect(),
            digest: digest.map(str::to_owned),
            by: AuditParty::Person,
        });
    }
}

impl Agent {
    /// Returns the hosts that the agent's code may fetch from in each run, as of the last time that the store was read. Reads no file.
    pub(crate) fn hosts_of_runs(&self) -> Vec<String> {
        self.core.hosts_of_runs(&self.identity)
    }
}

impl Core {
    /// Returns the hosts of the agent's entry in the config, if all of them were approved when the store was read last. Reads no file.
    pub(in crate::gateway) fn hosts_of_runs(&self, identity: &Identity) -> Vec<String> {
        let agent = identity.granted_name.as_deref();
        let Some(hosts) = agent.and_then(|name| self.configured_hosts(name)) else { return Vec::new() };
        let rows = self.store.last_rows(Kind::Fetch).unwrap_or_default();
        if self.shown(&hosts).is_within(&approved_in(&rows, agent)) { hosts.texts() } else { Vec::new() }
    }

    /// Returns the hosts of an agent's entry in the config.
    pub(super) fn configured_hosts(&self, agent: &str) -> Option<AllowedHosts> {
        self.grants.settings().agents.get(agent)?.fetch.clone().filter(|hosts| !hosts.is_empty())
    }

    /// Returns the hosts as a person sees them.
    pub(super) fn shown(&self, hosts: &AllowedHosts) -> FetchHosts {
        let private = self.fetch.private_hosts.texts();
        let hosts = BTreeSet::from_iter(hosts.texts());
        FetchHosts { private_hosts: hosts.iter().filter(|host| private.contains(host)).cloned().collect(), hosts }
    }

    /// Returns the hosts that a person has approved for an agent. Rows that another program has changed approve nothing.
    pub(super) fn approved_hosts(&self, agent: Option<&str>) -> Result<FetchHosts> {
        Ok(approved_in(&*self.store.rows(Kind::Fetch)?, agent))
    }

    fn fetch_hosts(&self, method: &'static str, agent: Option<&str>, hosts: Option<&[String]>) -> Result<FetchHosts> {
        check_agent(method, agent)?;
        let hosts = match hosts {
            Some(texts) => parsed_hosts(method, texts)?,
            None => agent.and_then(|name| self.configured_hosts(name)).unwrap_or_default(),
        };
        if hosts.is_empty() {
            let problem =
                "hosts: name at least one, such as [\"api.github.com\"], or name an agent whose entry in the config has fetch.hosts";
            return Err(Error::InvalidOption { method, problem: problem.into() });
        }
        Ok(self.shown(&hosts))
    }
}

fn approved_in(rows: &Rows, agent: Option<&str>) -> FetchHosts {
    rows.get(fetch_row(agent)).and_then(|body| FetchHosts::read(agent, body)).unwrap_or_default()
}

/// Parses a list of host patterns.
///
/// # Errors
/// `ERR_INVALID_OPTION` that contains the wrong entry.
fn parsed_hosts(method: &'static str, texts: &[String]) -> Result<AllowedHosts> {
    let wrong = |problem: String| Error::InvalidOption { method, problem: problem.into() };
    if texts.len() > MAX_FETCH_HOSTS {
        return Err(wrong(format!("hosts: a list has at most {MAX_FETCH_HOSTS}")));
    }
    AllowedHosts::parse(texts.iter().map(String::as_str)).map_err(|problem| wrong(format!("hosts: {problem}")))
}

fn check_agent(method: &'static str, agent: Option<&str>) -> Result<()> {
    agent.map_or(Ok(()), check_label).map_err(|problem| Error::InvalidOption { method, problem: format!("agent: {problem}").into() })
}

/// Names an agent in a sentence.
pub(super) fn agent_in_words(agent: Option<&str>) -> String {
    agent.map_or_else(|| "the operator's own agent".to_owned(), |name| format!("agent \"{name}\""))
}
