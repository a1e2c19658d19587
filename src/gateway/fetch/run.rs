//! The fetches of one run: whether they are allowed, and their records for the audit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::agent::Identity;
use super::super::core::Core;
use super::RunFetch;
use super::approvals::agent_in_words;
use crate::bridge::FetchCalls;
use crate::error::{Error, Result};
use crate::fetch::{AllowedHosts, FetchObserver, FetchOutcome, FetchPolicy, FetchRecord};
use crate::sandbox::{HostAnswer, HostCall, HostReply};
use crate::store::audit::{AuditEvent, FetchEntry};
use crate::trust::FetchHosts;

/// The advice at the end of the error message about a request to a host that is not allowed.
const WAY_OUT: &str = "Add it to fetch.hosts of the run or the agent, and let a person approve it";
const NOT_APPROVED: &str = "ERR_FETCH_NOT_APPROVED";

/// The fetches of one run. They end when the approval of the run's hosts is revoked.
pub(in crate::gateway) struct RunFetches {
    calls: FetchCalls,
    revoked: CancellationToken,
}

impl RunFetches {
    /// Returns whether a call is a fetch.
    pub(in crate::gateway) fn owns(module: &str) -> bool {
        FetchCalls::owns(module)
    }

    pub(in crate::gateway) fn start(&self, call: HostCall) -> HostAnswer {
        let revoked = self.revoked.clone();
        match self.calls.start(call) {
            HostAnswer::Ready(_) | HostAnswer::Later(_) if revoked.is_cancelled() => HostAnswer::Ready(no_longer_approved()),
            HostAnswer::Ready(reply) => HostAnswer::Ready(reply),
            HostAnswer::Later(answer) => HostAnswer::Later(Box::pin(async move {
                tokio::select! {
                    biased;
                    () = revoked.cancelled() => no_longer_approved(),
                    reply = answer => reply,
                }
            })),
        }
    }
}

fn no_longer_approved() -> HostReply {
    let message = "Fetch failed: the approval of this run's hosts was revoked or replaced";
    HostReply::Throw { name: Some("TypeError".to_owned()), message: message.to_owned(), code: Some(NOT_APPROVED.to_owned()) }
}

/// Writes the fetches of a run, or of a call of a generated tool, to the audit.
pub(in crate::gateway) struct Recorder {
    pub(in crate::gateway) core: std::sync::Weak<Core>,
    pub(in crate::gateway) agent: Option<Arc<str>>,
    /// The generated server and the tool whose code fetches. `None` for the code of a run.
    pub(in crate::gateway) tool: Option<(Arc<str>, Arc<str>)>,
    pub(in crate::gateway) run_id: Option<u64>,
}

impl FetchObserver for Recorder {
    fn ended(&self, record: FetchRecord) {
        let Some(core) = self.core.upgrade() else { return };
        let FetchRecord { method, origin, status, sent_bytes, received_bytes, duration, outcome, refused_address } = record;
        core.audit.record(AuditEvent::Fetch(FetchEntry {
            agent: self.agent.clone(),
            tool: self.tool.clone(),
            run_id: self.run_id,
            host: origin,
            method: Some(method),
            status,
            sent_bytes,
            received_bytes,
            duration,
            outcome: match outcome {
                FetchOutcome::Done => "ok",
                FetchOutcome::Redirected => "redirected",
                FetchOutcome::Cancelled => "cancelled",
                FetchOutcome::Refused(code) | FetchOutcome::Failed(code) => code,
            },
            refused_address,
        }));
    }
}

impl Core {
    /// Returns the fetches of a run that begins, or `None` if the run's code has no `fetch`. If the run itself asks for no hosts, the hosts
    /// of the agent's entry in the config are used. If nobody has approved those, this is not an error: sends a warning and returns `None`.
    ///
    /// # Errors
    /// `ERR_FETCH_NOT_APPROVED` if the run asks for hosts that a person has not approved for the run's agent, or that are not in the
    /// agent's entry in the config; `ERR_STORE`.
    pub(in crate::gateway) fn fetches_of_run(
        &self,
        identity: &Identity,
        wanted: &RunFetch,
        run_id: Option<u64>,
        warn: impl FnOnce(String),
    ) -> Result<Option<RunFetches>> {
        // If the operator has not chosen the agent's name, the agent has neither an entry in the config nor an approval.
        let agent = identity.granted_name.as_deref();
        let configured = agent.and_then(|name| self.configured_hosts(name));
        let asked = match wanted {
            RunFetch::Off => return Ok(None),
            RunFetch::Hosts(hosts) if hosts.is_empty() => return Ok(None),
            RunFetch::Hosts(hosts) => Some(hosts),
            RunFetch::OfAgent => None,
        };
        let Some(hosts) = asked.or(configured.as_ref()) else { return Ok(None) };
        // The token is taken before the approval is read, so that no revocation between the two is missed.
        let revoked = self.fetch.until_revoked(agent);
        let refused = match self.check_hosts(identity, hosts, configured.as_ref()) {
            Ok(()) => None,
            Err(error @ Error::FetchNotApproved { .. }) => Some(error),
            Err(error) => return Err(error),
        };
        if let Some(error) = refused {
            self.record_refused_run(identity, hosts, run_id);
            if asked.is_some() {
                return Err(error);
            }
            warn(format!("the code of this run has no fetch: {}", self.redacted(error)));
            return Ok(None);
        }
        let private = self.fetch.private_hosts.texts();
        let mut policy = FetchPolicy::new(hosts.clone(), WAY_OUT);
        policy.private_hosts = hosts.iter().filter(|host| private.contains(&host.to_string())).cloned().collect();
        let observer = Recorder { core: self.weak.clone(), agent: identity.audit_name(), tool: None, run_id };
        let session = self.fetch.fetcher.session(policy, Arc::new(observer)).map_err(|error| Error::Internal(error.to_string().into()))?;
        Ok(Some(RunFetches { calls: FetchCalls::new(session, self.limits.max_argument_bytes), revoked }))
    }

    fn check_hosts(&self, identity: &Identity, hosts: &AllowedHosts, configured: Option<&AllowedHosts>) -> Result<()> {
        let agent = identity.granted_name.as_deref();
        if agent.is_none() && !identity.is_operator() {
            let reason = "the operator has not chosen this name, so nothing is approved for it";
            let way_out = "Give the caller a token with a name, or serve with --agent NAME, and let a person approve hosts for that name";
            return Err(refusal(identity, &hosts.texts(), reason, way_out.to_owned()));
        }
        if let Some(configured) = configured {
            let ceiling = configured.texts();
            let beyond: Vec<_> = hosts.texts().into_iter().filter(|host| !ceiling.contains(host)).collect();
            if !beyond.is_empty() {
                let reason = "agents.NAME.fetch.hosts in the config does not have these hosts";
                return Err(refusal(identity, &beyond, reason, "Add them there, and let a person approve them".to_owned()));
            }
        }
        let (wanted, approved) = (self.shown(hosts), self.approved_hosts(agent)?);
        let missing = wanted.missing_in(&approved);
        if missing.is_empty() {
            return Ok(());
        }
        let way_out =
            format!("A person approves them with: {}", self.runs.next_command.with(&approval_words(agent, &wanted.with(&approved))));
        Err(refusal(identity, &Vec::from_iter(missing), "no person has approved these hosts", way_out))
    }

    fn record_refused_run(&self, identity: &Identity, hosts: &AllowedHosts, run_id: Option<u64>) {
        self.audit.record(AuditEvent::Fetch(FetchEntry {
            agent: identity.audit_name(),
            tool: None,
            run_id,
            host: hosts.texts().join(" "),
            method: None,
            status: None,
            sent_bytes: 0,
            received_bytes: 0,
            duration: Duration::ZERO,
            outcome: NOT_APPROVED,
            refused_address: None,
        }));
    }
}

/// Returns the error of a run that needs hosts which its agent is not allowed to use.
fn refusal(identity: &Identity, lacking: &[String], reason: &str, way_out: String) -> Error {
    Error::FetchNotApproved {
        agent: agent_in_words(identity.audit_name().as_deref()).into(),
        hosts: lacking.join(", ").into(),
        reason: reason.into(),
        way_out: way_out.into(),
    }
}

/// Returns the words of the command with which a person approves hosts. An approval replaces the earlier approval, so `hosts` must contain
/// all hosts that are to be approved.
fn approval_words(agent: Option<&str>, hosts: &FetchHosts) -> String {
    let list = |hosts: &BTreeSet<String>| hosts.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let FetchHosts { hosts, private_hosts } = hosts;
    let private = if private_hosts.is_empty() { String::new() } else { format!(" --private-hosts '{}'", list(private_hosts)) };
    let agent = agent.map_or_else(String::new, |name| format!(" --agent {name}"));
    format!("approve --fetch '{}'{private}{agent}", list(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_all_that_is_needed_and_keeps_what_was_approved() {
        let hosts = |hosts: &[&str], private: &[&str]| {
            let set = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            FetchHosts { hosts: set(hosts), private_hosts: set(private) }
        };
        let wanted = hosts(&["b.example", "http://10.0.0.5"], &["http://10.0.0.5"]);
        let approved = hosts(&["a.example", "10.0.0.6"], &["10.0.0.6"]);
        let command = "approve --fetch '10.0.0.6,a.example,b.example,http://10.0.0.5' --private-hosts '10.0.0.6,http://10.0.0.5'";
        assert_eq!(approval_words(None, &wanted.with(&approved)), command);
        let command = "approve --fetch 'b.example' --agent reader";
        assert_eq!(approval_words(Some("reader"), &hosts(&["b.example"], &[]).with(&FetchHosts::default())), command);
    }
}
