//! Makes tools from a prompt, and adds them to a gateway as a generated server. This module connects the module `boot` with the parts of a
//! gateway: `fetch`, the micro-VM and the servers.

mod secrets;

use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::blocking::blocking;
use crate::boot::{
    BootParts, CodeCheck, FetchedPages, Generate, HandlerTrial, Origin, Plan, PrepareOptions, Prepared, ProgressListener, SecretName,
    SystemClock, generated_tool, prepare, prompt_digest,
};
use crate::config::CodeProblem;
use crate::error::{Error, Result};
use crate::fetch::{AllowedHosts, Fetcher};
use crate::gateway::{Attached, Gateway};
use crate::text::check_server_name;

const METHOD: &str = "Gateway.boot";
/// The number of hexadecimal digits of the prompt's digest that a server's name contains.
const NAME_DIGITS: usize = 8;

/// The prompt from which tools are made, and the options for making them.
#[derive(Debug, Clone, Default)]
pub struct BootOptions {
    /// The prompt: describes the tools, with the URLs of the documentation of the services that they use.
    pub prompt: String,
    /// The name of the server. Default: `boot-` followed by the beginning of the prompt's digest, so that each prompt has its own server.
    pub name: Option<String>,
    /// The folder of the cache. If `None`, a model makes the tools each time.
    pub cache: Option<PathBuf>,
    /// True to take the tools from the cache, without network and without a model.
    pub locked: bool,
    /// True to stop after the plan is made. No code is written, and no server is added.
    pub dry_run: bool,
    /// Secrets as `NAME@HOST`, or as `NAME` if the prompt names a single host. The gateway's environment contains their values.
    pub secrets: Vec<String>,
    /// Hosts that may have private addresses and need no TLS. This list cannot allow a host that the prompt does not name.
    pub allow_hosts: Vec<String>,
}

/// Tools that were made from a prompt.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Booted {
    /// The name of the server in the gateway. The server can be used after its approval.
    pub name: String,
    /// The digest for the approval of the code, as in the server's approval request. Absent after `dryRun`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub plan: Plan,
    /// The hosts that the tools may reach.
    pub hosts: Vec<String>,
    /// The secrets that the tools may use, each with the only host that gets its value.
    pub secrets: Vec<SecretName>,
    pub origin: Origin,
    /// The moment at which the model made the tools, in milliseconds since 1970.
    pub created_at: u64,
    /// Problems that did not prevent the tools from being made, but that a person should know about.
    pub warnings: Vec<String>,
}

/// Checks code with the parser and the micro-VM of a gateway.
struct GatewayCheck<'a>(&'a Gateway);

impl CodeCheck for GatewayCheck<'_> {
    fn check<'a>(&'a self, trial: HandlerTrial<'a>) -> BoxFuture<'a, Result<Option<CodeProblem>>> {
        let HandlerTrial { tool, body, module: _, secrets, arguments } = trial;
        let secrets = secrets.iter().map(|secret| secret.name.clone()).collect::<Vec<_>>();
        async move { self.0.try_generated(&generated_tool(tool, body), &secrets, arguments).await }.boxed()
    }
}

impl Gateway {
    /// Makes tools from a prompt, or takes them from the cache, and adds them to the gateway as a generated server. Like any server, the
    /// generated server can be used only after a person has approved it.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION`, `ERR_BOOT_SECRET`, `ERR_NO_HYPERVISOR`, `ERR_CLOSED`, and the errors of [`prepare`].
    pub fn boot<'a>(
        &'a self,
        options: BootOptions,
        model: &'a dyn Generate,
        progress: &'a ProgressListener,
    ) -> BoxFuture<'a, Result<Booted>> {
        self.until_closed(options, model, progress).boxed()
    }

    async fn until_closed(&self, options: BootOptions, model: &dyn Generate, progress: &ProgressListener) -> Result<Booted> {
        let Attached { closed, until_dropped: _until_dropped } = self.attach()?;
        let outcome = tokio::select! {
            biased;
            () = closed.cancelled() => Err(Error::Closed { what: "gateway" }),
            outcome = self.made(options, model, progress) => outcome,
        };
        outcome.map_err(|error| self.redacted(error))
    }

    async fn made(&self, options: BootOptions, model: &dyn Generate, progress: &ProgressListener) -> Result<Booted> {
        let BootOptions { prompt, name, cache, locked, dry_run, secrets, allow_hosts } = options;
        let invalid = |problem: String| Error::InvalidOption { method: METHOD, problem: problem.into() };
        if let Some(name) = &name {
            check_server_name(name).map_err(|problem| invalid(format!("name: {problem}")))?;
        }
        let private_hosts = AllowedHosts::parse(allow_hosts.iter().map(String::as_str));
        let private_hosts = private_hosts.map_err(|problem| invalid(format!("allowHosts: {problem}")))?;
        let secrets = secrets::read(&secrets, &prompt).map_err(|problem| invalid(format!("secrets: {problem}")))?;
        for (secret, host) in &secrets {
            self.check_secret(&secret.name, host)?;
        }
        if !dry_run && !locked {
            let gateway = self.clone();
            blocking(move || gateway.check_guest()).await?;
        }
        let secrets: Vec<_> = secrets.into_iter().map(|(secret, _)| secret).collect();
        let name = name.unwrap_or_else(|| format!("boot-{}", &prompt_digest(&prompt, &secrets)[..NAME_DIGITS]));
        let options = PrepareOptions { cache, locked, plan_only: dry_run, secrets, ..PrepareOptions::default() };
        let pages = FetchedPages::new(Fetcher::new(), private_hosts.clone());
        let parts = BootParts { pages: &pages, model, check: &GatewayCheck(self), clock: &SystemClock, progress };
        let prepared = Box::pin(prepare(&prompt, &options, parts)).await?;
        let digest = if dry_run {
            None
        } else {
            self.set_generated(&name, prepared.generated(&private_hosts)).await?;
            Some(self.command_digest(&name).await?)
        };
        let Prepared { plan, handlers: _, hosts, pages: _, secrets, origin, created_at_ms, warnings } = prepared;
        Ok(Booted { name, digest, plan, hosts: hosts.texts(), secrets, origin, created_at: created_at_ms, warnings })
    }
}
