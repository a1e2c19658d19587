//! The methods of the class `Gateway` for the hosts that agent code may fetch from.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::gateway::Gateway;
use hyperlight_mcp::blocking::blocking;

/// The agent, and the hosts that its code asks to fetch from.
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
    /// Returns what a person must see before the code of an agent may fetch from hosts. An approval means that code that a model writes may
    /// send any data that it has to these hosts. Default of `hosts`: those of the agent's entry in the config. Default of `agent`: the
    /// operator's own agent.
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

    /// Approves exactly the hosts that a person was shown, for one agent and for all processes with the same state folder. They replace those that were
    /// approved for the agent before.
    ///
    /// Rejects with `ERR_DIGEST_CHANGED` if the digest does not belong to these hosts, and with the errors of `fetchApproval`.
    #[napi(catch_unwind, ts_args_type = "consent: FetchConsent", ts_return_type = "Promise<FetchApproval>")]
    pub fn approve_fetch<'env>(&self, env: &'env Env, consent: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.approveFetch", [Some(consent)], |gateway, (consent,): (FetchConsent,)| {
            blocking(move || gateway.approve_fetch(consent.agent.as_deref(), consent.hosts.as_deref(), &consent.digest))
        })
    }

    /// Revokes the approval of an agent's hosts, for all processes. Fetches of its runs in this gateway end at once. Returns whether there was an
    /// approval. Rejects with `ERR_INVALID_OPTION`, `ERR_STORE`, `ERR_CLOSED`.
    #[napi(catch_unwind, ts_args_type = "of?: FetchAgent", ts_return_type = "Promise<boolean>")]
    pub fn revoke_fetch<'env>(&self, env: &'env Env, of: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.revokeFetch", [of], |gateway, (of,): (Option<FetchAgent>,)| {
            blocking(move || gateway.revoke_fetch(of.unwrap_or_default().agent.as_deref()))
        })
    }
}
