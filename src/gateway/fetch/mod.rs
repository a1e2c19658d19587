//! `fetch` in agent code: which hosts a run may fetch from, and the approvals of hosts by a person.

mod approvals;
mod run;

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

pub(super) use run::{Recorder, RunFetches};

use crate::fetch::{AllowedHosts, Fetcher};
use crate::trust::fetch_row;

/// Whether the code of a run may fetch, and from which hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RunFetch {
    /// From the hosts of the agent's entry in the config. Without such an entry, the code has no `fetch`.
    #[default]
    OfAgent,
    /// The code has no `fetch`.
    Off,
    /// From these hosts. If the agent's entry in the config names hosts, these must be among them.
    Hosts(AllowedHosts),
}

/// What the runs of a gateway that fetch share.
pub(super) struct FetchState {
    fetcher: Fetcher,
    /// Hosts that may have private addresses and need no TLS, as the operator says.
    private_hosts: AllowedHosts,
    /// What ends the fetches of an agent's runs, by the name of its row.
    revoked: Mutex<HashMap<String, CancellationToken>>,
}

impl FetchState {
    pub(super) fn new(private_hosts: AllowedHosts) -> Self {
        Self { fetcher: Fetcher::new(), private_hosts, revoked: Mutex::default() }
    }

    pub(super) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Returns what ends the fetches of an agent's runs when its approval is revoked or replaced.
    fn until_revoked(&self, agent: Option<&str>) -> CancellationToken {
        self.revoked.lock().entry(fetch_row(agent).to_owned()).or_default().clone()
    }

    fn end_fetches(&self, agent: Option<&str>) {
        if let Some(ended) = self.revoked.lock().remove(fetch_row(agent)) {
            ended.cancel();
        }
    }
}
