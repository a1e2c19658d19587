//! The methods of the class `Gateway` for the hosts from which agent code may fetch.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::gateway::Gateway;
use hyperlight_mcp::blocking::blocking;

/// The agent, and the hosts from which its code wants to fetch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FetchRequest {
    agent: Option<String>,
    hosts: Option<Vec<String>>,
}

/// The consent of a person.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FetchConsent {
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    hosts: Option<Vec<String>>,
    digest: String,
}

/// The agent whose approval is revoked.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FetchAgent {
    agent: Option<String>,
}

#[napi]
impl Gateway {
    /// Returns everything that a person must see before the code of an agent may fetch from hosts. The approval means that code that a
    /// model writes may send all its data to these hosts. Default of `hosts`: the hosts in the agent's entry in the config. Default of
    /// `agent`: the operator's own agent.
    ///
    /// Rejects with `ERR_INVALID_OPTION` for a host or name that is not well-formed, or if there are no hosts; `ERR_STORE`, `ERR_CLOSED`.
    ///
    /// ```js
    /// const request = await gateway.fetchApproval({ hosts: ['api.github.com'] }) // a person reads it
    /// await gateway.approveFetch({ hosts: request.hosts, digest: request.digest })
    /// const sandbox = await gateway.sandbox()
    /// await sandbox.run('export const handler = async () => (await fetch("https://api.github.com/zen")).text()', { fetch: { hosts: request.hosts } })
    /// ```
    #[napi(catch_unwind, ts_args_type = "request: FetchRequest", ts_return_type = "Promise<FetchApproval>")]
    pub fn fetch_approval<'env>(&self, env: &'env Env, request: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.fetchApproval", [Some(request)], |gateway, (request,): (FetchRequest,)| {
            blocking(move || gateway.fetch_approval(request.agent.as_deref(), request.hosts.as_deref()))
        })
    }

    /// Approves exactly the hosts that were shown to a person, for one agent and for all processes with the same state folder. These hosts
    /// replace the hosts that were approved for the agent before.
    ///
    /// Rejects with `ERR_DIGEST_CHANGED` if the digest does not belong to these hosts, and with the errors of `fetchApproval`.
    #[napi(catch_unwind, ts_args_type = "consent: FetchConsent", ts_return_type = "Promise<FetchApproval>")]
    pub fn approve_fetch<'env>(&self, env: &'env Env, consent: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.approveFetch", [Some(consent)], |gateway, (consent,): (FetchConsent,)| {
            blocking(move || gateway.approve_fetch(consent.agent.as_deref(), consent.hosts.as_deref(), &consent.digest))
        })
    }

    /// Revokes the approval of an agent's hosts, for all processes. Fetches of the agent's runs in this gateway end immediately. Returns
    /// whether there was an approval. Rejects with `ERR_INVALID_OPTION`, `ERR_STORE`, `ERR_CLOSED`.
    #[napi(catch_unwind, ts_args_type = "of?: FetchAgent", ts_return_type = "Promise<boolean>")]
    pub fn revoke_fetch<'env>(&self, env: &'env Env, of: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.revokeFetch", [of], |gateway, (of,): (Option<FetchAgent>,)| {
            blocking(move || gateway.revoke_fetch(of.unwrap_or_default().agent.as_deref()))
        })
    }
}
