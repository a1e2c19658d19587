//! The hosts that the code of a generated server may fetch from, and the secrets that it may use.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use secrecy::SecretString;

use super::runner::ToolCaller;
use crate::bridge::FetchCalls;
use crate::catalog::MAX_SHOWN_NAME_CHARS;
use crate::config::{GeneratedTool, GeneratedTools};
use crate::error::{Error, Result};
use crate::fetch::{AllowedHost, AllowedHosts, FetchPolicy, FetchSecret, Methods};
use crate::gateway::core::Core;
use crate::gateway::fetch::Recorder;
use crate::text::sanitise_line;

/// The advice at the end of the error message about a request to a host that the prompt does not name.
const WAY_OUT: &str = "Add it to your prompt to allow access.";

/// The network of one generated server's code, as a person has approved it.
pub(super) struct Network {
    server: Arc<str>,
    hosts: AllowedHosts,
    private_hosts: AllowedHosts,
    secrets: Vec<FetchSecret>,
}

/// Returns the problem of the hosts and secrets of generated tools, if there is one.
pub(super) fn problem_of(tools: &GeneratedTools) -> Option<String> {
    let GeneratedTools { tools: _, hosts, private_hosts, secrets } = tools;
    let hosts_of = |field: &str, hosts: &[String]| hosts_in(hosts).err().map(|problem| format!("{field}: {problem}"));
    let mut names = BTreeSet::new();
    let secret = || {
        secrets.iter().find_map(|secret| {
            if !names.insert(&secret.name) {
                return Some(format!("secrets: {} is named twice", sanitise_line(&secret.name, MAX_SHOWN_NAME_CHARS)));
            }
            if !is_variable_name(&secret.name) {
                return Some(format!("secrets: \"{}\" cannot be the name of a variable", secret.name));
            }
            secret.host.parse::<AllowedHost>().err().map(|problem| format!("secrets: {}: {problem}", secret.name))
        })
    };
    hosts_of("hosts", hosts).or_else(|| hosts_of("privateHosts", private_hosts)).or_else(secret)
}

impl Network {
    /// Takes the values of the secrets from the gateway's environment, and registers them for redaction.
    pub(super) fn new(core: &Core, server: &str, tools: &GeneratedTools) -> Result<Self> {
        let hosts = |texts: &[String]| hosts_in(texts).map_err(|problem| Error::Internal(problem.into()));
        let secrets = tools.secrets.iter().map(|secret| {
            let host = secret.host.parse().map_err(|problem| Error::Internal(format!("{problem}").into()))?;
            let made = core.boot_secret(&secret.name, host)?;
            Ok(if secret.in_body { made.for_bodies() } else { made })
        });
        Ok(Self {
            server: server.into(),
            hosts: hosts(&tools.hosts)?,
            private_hosts: hosts(&tools.private_hosts)?,
            secrets: secrets.collect::<Result<_>>()?,
        })
    }

    /// Returns the placeholders that the code gets in place of the secrets, each as a pair: the name of the secret, and its placeholder.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = (String, String)> {
        self.secrets.iter().map(|secret| (secret.name().to_owned(), secret.placeholder().to_owned()))
    }

    /// Returns the fetches of one call of a tool.
    pub(super) fn calls(&self, core: &Core, tool: &GeneratedTool, caller: &ToolCaller) -> Result<FetchCalls> {
        let mut policy = FetchPolicy::new(self.hosts.clone(), WAY_OUT);
        policy.private_hosts = self.private_hosts.clone();
        policy.methods = if tool.read_only { Methods::ReadOnly } else { Methods::default() };
        policy.secrets.clone_from(&self.secrets);
        let tool = (Arc::clone(&self.server), tool.name.as_str().into());
        let observer = Recorder { core: Weak::clone(&core.weak), agent: caller.agent.clone(), tool: Some(tool), run_id: caller.run_id };
        let session = core.fetch.fetcher().session(policy, Arc::new(observer));
        Ok(FetchCalls::new(session.map_err(|error| Error::Internal(error.to_string().into()))?, core.limits.max_argument_bytes))
    }
}

impl Core {
    /// Returns a secret with its value from the gateway's environment.
    ///
    /// # Errors
    /// `ERR_BOOT_SECRET` if the variable is not set, or its value cannot be used.
    pub(in crate::gateway) fn boot_secret(&self, name: &str, host: AllowedHost) -> Result<FetchSecret> {
        let unusable = |problem: String| Error::BootSecret { name: name.into(), problem: problem.into() };
        let value = self.surroundings.environment.get(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| unusable(format!("the environment variable {name} is not set. Set it, and start again")))?;
        let value = SecretString::from(value.as_str());
        self.redactor.add([&value]);
        FetchSecret::new(name, value, host).map_err(|error| unusable(error.to_string()))
    }
}

fn hosts_in(texts: &[String]) -> std::result::Result<AllowedHosts, String> {
    AllowedHosts::parse(texts.iter().map(String::as_str)).map_err(|problem| problem.to_string())
}

/// Returns whether a text can be the name of an environment variable. In code, it is also the name of a field of `secrets`.
fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GeneratedSecret;

    fn problem(hosts: &[&str], private_hosts: &[&str], secrets: &[(&str, &str)]) -> Option<String> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let secret = |(name, host): &(&str, &str)| GeneratedSecret { name: (*name).to_owned(), host: (*host).to_owned(), in_body: false };
        problem_of(&GeneratedTools {
            tools: Vec::new(),
            hosts: texts(hosts),
            private_hosts: texts(private_hosts),
            secrets: secrets.iter().map(secret).collect(),
        })
    }

    #[test]
    fn hosts_and_secrets_that_the_border_cannot_judge_are_refused() {
        assert_eq!(problem(&["*.a.example", "http://127.0.0.1:80"], &["localhost"], &[("KEY", "a.example")]), None);
        for (found, part) in [
            (problem(&["a/b"], &[], &[]), "hosts: "),
            (problem(&[], &["*"], &[]), "privateHosts: "),
            (problem(&[], &[], &[("KEY", "no host")]), "secrets: KEY: "),
            (problem(&[], &[], &[("KEY", "a.example"), ("KEY", "b.example")]), "secrets: KEY is named twice"),
            (problem(&[], &[], &[("A-B", "a.example")]), "secrets: \"A-B\" cannot be the name of a variable"),
            (problem(&[], &[], &[("__proto__ ", "a.example")]), "cannot be the name"),
        ] {
            assert!(found.as_ref().is_some_and(|found| found.contains(part)), "{part}: {found:?}");
        }
    }
}
