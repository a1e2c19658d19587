//! `fetch` in agent code: which hosts a run may fetch from, and the approvals of hosts by a person.

mod approvals;
mod run;

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

pub(super) use run::{Recorder, RunFetches};

use crate::fetch::{AllowedHosts, Fetcher};
use crate::trust::fetch_row;

/// The permission of a run's code to fetch, with the allowed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RunFetch {
    /// The code may fetch from the hosts of the agent's entry in the config. Without such an entry, it has no `fetch`.
    #[default]
    OfAgent,
    /// The code has no `fetch`.
    Off,
    /// The code may fetch from these hosts. If the agent's entry in the config names hosts, these must be among them.
    Hosts(AllowedHosts),
}

/// The state for fetches that all runs of a gateway share.
pub(super) struct FetchState {
    fetcher: Fetcher,
    /// Hosts that may have private addresses and need no TLS. The operator has configured them.
    private_hosts: AllowedHosts,
    /// The tokens that end the fetches of each agent's runs, by the name of the agent's row in the store.
    revoked: Mutex<HashMap<String, CancellationToken>>,
}

impl FetchState {
    pub(super) fn new(private_hosts: AllowedHosts) -> Self {
        Self { fetcher: Fetcher::new(), private_hosts, revoked: Mutex::default() }
    }

    pub(super) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Returns the token that is cancelled when the approval of an agent's hosts is revoked or replaced. The token ends the fetches of the
    /// agent's runs.
    fn until_revoked(&self, agent: Option<&str>) -> CancellationToken {
        self.revoked.lock().entry(fetch_row(agent).to_owned()).or_default().clone()
    }

    fn end_fetches(&self, agent: Option<&str>) {
        if let Some(ended) = self.revoked.lock().remove(fetch_row(agent)) {
            ended.cancel();
        }
    }
}
