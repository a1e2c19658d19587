//! Runs the code of all allowed providers concurrently, and parses their answers.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value as Json;
use tokio::sync::Semaphore;

use super::Anew;
use super::status::{ProviderState, ProviderStatus};
use super::survey::{Standing, Surveyed};
use crate::config::ProviderPolicy;
use crate::error::Error;
use crate::gateway::Answer;
use crate::gateway::core::Core;
use crate::gateway::status::MAX_DESCRIPTION_CHARS;
use crate::registry::Entry;
use crate::registry::providers::{RefusedServer, read_answer};

/// The maximum time for the answer of a registered provider.
const REGISTERED_TIME: Duration = Duration::from_secs(2);
/// The maximum time for the answer of a loader. The loader itself ends the code of a package after 2 s, but starting the code may take
/// longer on a busy machine.
const LOADER_TIME: Duration = Duration::from_secs(15);
const MAX_PROBLEM_CHARS: usize = 500;
/// The number of packages whose code runs at the same time. The code of each may use a process with hundreds of MiB of memory.
const CONCURRENT: usize = 8;

/// A provider with its status and its servers.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) status: ProviderStatus,
    pub(super) entries: Vec<Entry>,
    /// The folder of the provider's package.
    pub(super) folder: Option<PathBuf>,
    standing: Standing,
}

impl Core {
    /// Runs the code of the allowed providers. A provider that `anew` does not select keeps its earlier servers, if the provider has not
    /// changed.
    pub(super) async fn run_all(self: &Arc<Self>, all: Vec<Surveyed>, policy: &ProviderPolicy, anew: Anew<'_>) -> Vec<Known> {
        let before = self.providers.known.lock().clone();
        let kept = |provider: &Surveyed| {
            let is_kept = !matches!(anew, Anew::Only(name) if name == provider.name) && anew != Anew::All;
            let is_same = |known: &&Known| {
                known.status.name == provider.name && known.status.package == provider.package && known.standing == provider.standing
            };
            before.iter().find(|known| is_kept && is_same(known)).cloned()
        };
        let slots = &Semaphore::new(CONCURRENT);
        let runs = all.into_iter().map(|provider| {
            let kept = kept(&provider);
            async move {
                match kept {
                    Some(known) => known,
                    None => self.run_one(provider, policy, slots).await,
                }
            }
        });
        futures::future::join_all(runs).await
    }

    async fn run_one(&self, provider: Surveyed, policy: &ProviderPolicy, slots: &Semaphore) -> Known {
        let Surveyed { name, origin, package, found, standing } = provider;
        let outcome = match &standing {
            Standing::Denied(reason) => Err((ProviderState::Denied, reason.clone())),
            Standing::Unapproved(reason) => Err((ProviderState::Unapproved, reason.clone())),
            Standing::Failed(problem) => Err((ProviderState::Failed, problem.clone())),
            Standing::Approved(code) => match &self.providers.loader {
                Some(loader) => {
                    let _slot = slots.acquire().await;
                    self.answered(|| loader.load(code), LOADER_TIME).await.map_err(|problem| (ProviderState::Failed, problem))
                }
                None => Err((ProviderState::Failed, "no JavaScript engine is available here to run its code".to_owned())),
            },
            Standing::Registered => {
                let registered = self.providers.registered.lock().get(&name).cloned();
                match registered {
                    Some(registered) => self.answered(|| registered.servers(), REGISTERED_TIME).await,
                    None => Err("it is not registered".to_owned()),
                }
                .map_err(|problem| (ProviderState::Failed, problem))
            }
        };
        let brought = outcome
            .and_then(|answer| {
                let source = origin.source_of(&name, package.as_deref());
                read_answer(&source, &answer, policy).map_err(|problem| (ProviderState::Failed, problem))
            })
            .map_err(|(state, problem)| (state, self.redactor.readable_line(&problem, MAX_PROBLEM_CHARS)));
        let description = found.as_ref().and_then(|found| found.description.as_deref());
        let description = description.map(|text| self.redactor.readable_line(text, MAX_DESCRIPTION_CHARS)).filter(|text| !text.is_empty());
        let (version, folder) = found.map(|found| (found.version, found.folder)).unzip();
        let status = |state, problem| ProviderStatus {
            name,
            package,
            version,
            description,
            origin,
            state,
            problem,
            servers: Vec::new(),
            refused: Vec::new(),
        };
        match brought {
            Ok(brought) => {
                brought.warnings.into_iter().for_each(|warning| self.events.warn(warning));
                let servers = brought.entries.iter().map(|entry| entry.name().to_owned()).collect();
                // The reasons contain texts of the provider.
                let readable = |text: &str| self.redactor.readable_line(text, MAX_PROBLEM_CHARS);
                let shown = |refused: RefusedServer| RefusedServer { name: refused.name, reason: readable(&refused.reason) };
                let refused = brought.refused.into_iter().map(shown).collect();
                let status = ProviderStatus { servers, refused, ..status(ProviderState::Ready, None) };
                Known { status, entries: brought.entries, folder, standing }
            }
            Err((state, problem)) => {
                let status = status(state, Some(problem));
                self.tell(&status);
                Known { status, entries: Vec::new(), folder, standing }
            }
        }
    }

    /// Sends a warning with the reason why a provider has no servers. For a discovered package, sends a warning only if it fails: nobody
    /// has requested the package, so otherwise it is only listed.
    fn tell(&self, status: &ProviderStatus) {
        if let Some(problem) = &status.problem
            && (status.state == ProviderState::Failed || status.origin != super::ProviderOrigin::Discovered)
        {
            self.events.warn(format!("the provider \"{}\" has no servers ({}): {problem}", status.name, status.state.as_str()));
        }
    }

    /// Waits for the answer of a provider's code, which may panic, fail or never answer. The error is a text for a person.
    async fn answered(&self, ask: impl FnOnce() -> Answer<Json>, patience: Duration) -> Result<Json, String> {
        let asked = AssertUnwindSafe(async move { ask().await }).catch_unwind();
        match tokio::time::timeout(patience, asked).await {
            Err(_) => Err(format!("it did not answer within {} s", patience.as_secs())),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) => Err(match self.redacted(error) {
                // Only the message of the provider's own code is shown, because the name of the called function means nothing to a person.
                Error::HostFunction { message, .. } => message.shown().to_owned(),
                other => other.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value as Json, json};

    use super::CONCURRENT;
    use crate::error::{Error, Result};
    use crate::gateway::{Answer, Gateway, GatewayOptions, Provider, ProviderCode, ProviderLoader, ProviderState};

    fn answering(answer: impl Fn() -> Result<Json> + Send + Sync + 'static) -> Arc<dyn Provider> {
        Arc::new(move || -> Answer<Json> {
            let answer = answer();
            Box::pin(async { answer })
        })
    }

    #[tokio::test]
    async fn the_policy_holds_for_a_provider_that_is_registered_before_any_reload() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({ "providers": { "deny": { "providers": ["evil"], "packages": ["@evil/*"] } } }));
        options.state_dir = Some(folder.path().join("state"));
        let gateway = Gateway::open(options).unwrap();
        let denied = gateway.register_provider("evil", answering(|| Ok(json!([])))).await.unwrap();
        assert_eq!(denied.state, ProviderState::Denied);
        let servers = json!([{ "name": "good", "package": "@acme/x" }, { "name": "evil", "package": "@evil/x" }]);
        let judged = gateway.register_provider("acme", answering(move || Ok(servers.clone()))).await.unwrap();
        assert_eq!(judged.servers, ["acme--good"]);
        assert_eq!((judged.refused.len(), judged.refused[0].name.as_str()), (1, "acme--evil"));
    }

    /// A loader whose packages all bring one server.
    struct OneServer;

    impl ProviderLoader for OneServer {
        fn load(&self, _code: &ProviderCode) -> Answer<Json> {
            Box::pin(async { Ok(json!([{ "name": "files", "package": "@acme/files" }])) })
        }
    }

    #[tokio::test]
    async fn a_server_of_the_agents_code_and_one_of_a_package_of_the_same_name_share_no_approval() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("node_modules/acme");
        std::fs::create_dir_all(&package).unwrap();
        let manifest = json!({ "name": "acme", "version": "1.0.0", "hyperlight-mcp": { "provider": "./provider.js" } });
        std::fs::write(package.join("package.json"), manifest.to_string()).unwrap();
        std::fs::write(package.join("provider.js"), "").unwrap();
        let open = |state: &str, config: Json| {
            let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
            options.config = Some(config);
            options.workspace_folder = Some(folder.path().to_owned());
            options.state_dir = Some(folder.path().join(state));
            options.provider_loader = Some(Arc::new(OneServer));
            Gateway::open(options).unwrap()
        };
        let key = |gateway: &Gateway| gateway.core.registry.server("acme--files").unwrap().key();
        let of_package = open("one", json!({ "providers": ["acme"] }));
        let request = of_package.provider_request("acme").await.unwrap();
        assert_eq!(of_package.approve_provider("acme", &request.digest).await.unwrap().servers, ["acme--files"]);
        assert_eq!(key(&of_package), "provider:acme:acme--files", "as in stores of earlier versions");
        let of_code = open("two", json!({}));
        let servers = json!([{ "name": "files", "package": "@acme/files" }]);
        of_code.register_provider("acme", answering(move || Ok(servers.clone()))).await.unwrap();
        assert_eq!(key(&of_code), "registered:acme:acme--files");
    }

    /// A loader that counts the packages whose code runs at the same time, and their maximum.
    #[derive(Default)]
    struct Counting(Arc<Mutex<(usize, usize)>>);

    impl ProviderLoader for Counting {
        fn load(&self, _code: &ProviderCode) -> Answer<Json> {
            let counts = Arc::clone(&self.0);
            Box::pin(async move {
                {
                    let mut counts = counts.lock();
                    counts.0 += 1;
                    counts.1 = counts.1.max(counts.0);
                }
                tokio::task::yield_now().await;
                counts.lock().0 -= 1;
                Ok(json!([]))
            })
        }
    }

    #[tokio::test]
    async fn the_code_of_many_packages_never_runs_all_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..2 * CONCURRENT).map(|place| format!("acme-{place}")).collect();
        for name in &names {
            let package = folder.path().join("node_modules").join(name);
            std::fs::create_dir_all(&package).unwrap();
            let manifest = json!({ "name": name, "version": "1.0.0", "hyperlight-mcp": { "provider": "./provider.js" } });
            std::fs::write(package.join("package.json"), manifest.to_string()).unwrap();
            std::fs::write(package.join("provider.js"), "").unwrap();
        }
        let counts = Arc::default();
        let open = || {
            let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
            options.config = Some(json!({ "providers": names }));
            options.workspace_folder = Some(folder.path().to_owned());
            options.state_dir = Some(folder.path().join("state"));
            options.provider_loader = Some(Arc::new(Counting(Arc::clone(&counts))));
            Gateway::open(options).unwrap()
        };
        let first = open();
        for name in &names {
            let request = first.provider_request(name).await.unwrap();
            first.approve_provider(name, &request.digest).await.unwrap();
        }
        open();
        assert_eq!(*counts.lock(), (0, CONCURRENT), "a gateway that opens runs them all");
    }

    #[tokio::test]
    async fn a_closure_brings_servers_and_one_that_panics_or_fails_hurts_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({}));
        options.state_dir = Some(folder.path().join("state"));
        let gateway = Gateway::open(options).unwrap();
        let good =
            gateway.register_provider("good", answering(|| Ok(json!([{ "name": "files", "package": "@acme/files" }])))).await.unwrap();
        assert_eq!((good.state, &good.servers[..]), (ProviderState::Ready, &["good--files".to_owned()][..]));
        let panicking = gateway.register_provider("panicking", answering(|| panic!("no servers today"))).await.unwrap();
        assert_eq!((panicking.state, panicking.problem.as_deref()), (ProviderState::Failed, Some("it panicked")));
        let failing = answering(|| Err(Error::HostFunction { function: "servers".into(), message: "no\nservers today".into() }));
        let failing = gateway.register_provider("failing", failing).await.unwrap();
        assert_eq!(failing.problem.as_deref(), Some("no servers today"));
        let names: Vec<_> = gateway.servers().unwrap().into_iter().map(|server| server.name).collect();
        assert_eq!(names, ["good--files"]);
        gateway.register_provider("good", answering(|| Ok(json!([])))).await.unwrap();
        assert!(gateway.servers().unwrap().is_empty());
        assert_eq!(gateway.revoke_provider("good").await.unwrap_err().code(), "ERR_PROVIDER");
        assert_eq!(gateway.provider_request("nobody").await.unwrap_err().code(), "ERR_UNKNOWN_PROVIDER");
    }
}
