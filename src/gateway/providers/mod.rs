//! Providers: packages, and code of the agent's author, that add servers. The code of a package runs only after a person has approved its
//! name, version and files. The answer of a provider is checked and parsed like entries of a config (`registry/providers/`), and each of
//! its servers needs its own approval.

mod digest;
mod packages;
mod process;
mod run;
mod status;
mod survey;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use process::NodeLoader;
pub use status::{Provider, ProviderCode, ProviderLoader, ProviderOrigin, ProviderRequest, ProviderState, ProviderStatus};

use self::digest::{PackageDigest, package_digest};
use self::packages::FoundPackage;
use self::run::Known;
use self::survey::{PackageApproval, Standing, Surveyed, approval_of, survey};
use super::Gateway;
use super::core::Core;
use crate::blocking::blocking;
use crate::config::{Config, ProviderSettings, ServerSource, SourceKind};
use crate::error::{Error, Result};
use crate::redact::Redactor;
use crate::registry::providers::check_provider_name;
use crate::registry::{Entry, Registry, catalogue, catalogue_source};
use crate::store::Kind;
use crate::store::audit::{AuditParty, ProviderDecision};
use crate::text::escaped;

/// The servers of the catalogue and of the providers, by source.
type Layers = Vec<(ServerSource, Vec<Entry>)>;

/// The providers of a gateway.
pub(super) struct Providers {
    /// The loader for the code of packages. `None`: such code cannot run here.
    loader: Option<Arc<dyn ProviderLoader>>,
    registered: Mutex<BTreeMap<String, Arc<dyn Provider>>>,
    settings: Mutex<ProviderSettings>,
    /// The providers and their servers, as of the last survey. A survey finds all providers and decides whether their code may run.
    known: Mutex<Vec<Known>>,
    /// The statuses of the known providers as a JSON array. It is written at each survey, as Node's main thread must not write it: there can
    /// be tens of thousands of packages.
    list: Mutex<Arc<str>>,
}

impl Providers {
    /// Returns the folders of all packages that the last survey has found. Their code runs outside of a box.
    pub(super) fn package_folders(&self) -> Vec<PathBuf> {
        self.known.lock().iter().filter_map(|known| known.folder.clone()).collect()
    }

    pub(super) fn new(loader: Option<Arc<dyn ProviderLoader>>) -> Self {
        Self { loader, registered: Mutex::default(), settings: Mutex::default(), known: Mutex::default(), list: Mutex::new("[]".into()) }
    }

    /// Returns the reason why the policy of the config denies the server of this name or its provider. Returns `None` if the policy allows
    /// the server.
    pub(super) fn denial_of(&self, server: &str) -> Option<String> {
        let known = self.known.lock();
        let refused = known.iter().flat_map(|known| &known.status.refused).find(|refused| refused.name == server);
        if let Some(refused) = refused {
            return Some(format!("the policy for providers denies it: {}", refused.reason));
        }
        let (provider, _) = server.split_once("--")?;
        let status = &known.iter().find(|known| known.status.name == provider && known.status.state == ProviderState::Denied)?.status;
        let reason = status.problem.as_deref().unwrap_or_default();
        Some(format!("the policy for providers denies the provider \"{provider}\": {reason}"))
    }
}

/// Selects the providers whose code runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anew<'n> {
    All,
    /// Only the provider of this name. All other providers keep their earlier servers if these are still allowed.
    Only(&'n str),
}

/// Returns a path as a person must see it before an approval: complete, and with escapes in place of characters that are invisible or are no
/// text. If these were removed, the path of the file that runs could look like the path of another file.
fn shown_path(redactor: &Redactor, path: &Path) -> String {
    let text: String = path
        .as_os_str()
        .as_encoded_bytes()
        .utf8_chunks()
        .flat_map(|chunk| {
            let raw = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
            std::iter::once(escaped(&chunk.valid().replace('\\', "\\\\"))).chain(raw)
        })
        .collect();
    redactor.without_secrets(&text).replace('\n', "\\n")
}

impl Gateway {
    /// Registers a provider, or replaces the registered provider of this name. Adds its servers as `<name>--<server>`. If the provider
    /// fails, it is listed as failed.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an invalid name, or the name of a package's provider; `ERR_CLOSED`, `ERR_STORE`.
    ///
    /// ```no_run
    /// # async fn register(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
    /// use hyperlight_mcp::gateway::Answer;
    /// use serde_json::{Value, json};
    /// let provider = || -> Answer<Value> { Box::pin(async { Ok(json!([{ "name": "files", "package": "@acme/files" }])) }) };
    /// let status = gateway.register_provider("acme", std::sync::Arc::new(provider)).await?;
    /// assert_eq!(status.servers, ["acme--files"]);
    /// # Ok(()) }
    /// ```
    pub async fn register_provider(&self, name: &str, provider: Arc<dyn Provider>) -> Result<ProviderStatus> {
        self.core.check_open()?;
        let invalid = |problem: String| Error::InvalidOption { method: "Gateway.registerProvider", problem: problem.into() };
        check_provider_name(name).map_err(|problem| invalid(format!("name: {problem}")))?;
        let _one_at_a_time = self.core.reloading.lock().await;
        let is_of_package = |known: &Known| known.status.name == name && known.status.package.is_some();
        if self.core.providers.known.lock().iter().any(is_of_package) {
            return Err(invalid(format!("name: a package has the name \"{name}\" already; choose another one")));
        }
        self.core.providers.registered.lock().insert(name.to_owned(), provider);
        self.look_again(name).await
    }

    /// Lists the providers as of the last survey. The gateway surveys the providers when it opens, at each reload, and after each change of
    /// a provider. Does not block.
    #[must_use]
    pub fn providers(&self) -> Vec<ProviderStatus> {
        self.core.providers.known.lock().iter().map(|known| known.status.clone()).collect()
    }

    /// Lists the providers as [`Self::providers`] does, as a JSON array. Only copies a pointer.
    #[must_use]
    pub fn providers_as_json(&self) -> Arc<str> {
        Arc::clone(&self.core.providers.list.lock())
    }

    /// Returns everything that a person must see before the code of a package may run. `name` is the name of the provider or of its
    /// package.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_PROVIDER`; `ERR_PROVIDER` for a provider that is not a package, is denied or cannot be read; `ERR_STORE`.
    pub async fn provider_request(&self, name: &str) -> Result<ProviderRequest> {
        self.core.check_open()?;
        let (surveyed, package, digest) = self.core.readable_package(name).await.map_err(|error| self.core.redacted(error))?;
        let core = Arc::clone(&self.core);
        let rows = blocking(move || core.store.rows(Kind::Provider)).await.map_err(|error| self.core.redacted(error))?;
        let before = approval_of(&package, &rows);
        let approved = before.as_ref().is_some_and(|before| before.digest == digest.digest);
        let shown = |path: &Path| shown_path(&self.core.redactor, path);
        Ok(ProviderRequest {
            name: surveyed.name,
            folder: shown(&package.folder),
            file: shown(&package.file),
            package: package.name,
            version: package.version,
            files: digest.files,
            bytes: digest.bytes,
            digest: digest.digest,
            approved,
            approved_before: before.filter(|_| !approved).map(|before| before.version),
        })
    }

    /// Approves the code of a package, exactly as shown in the request with this digest. Then runs the code and adds the servers that it
    /// returns. Each of these servers needs its own approval.
    ///
    /// # Errors
    /// `ERR_DIGEST_CHANGED` if the package has changed since the request, and the errors of [`Self::provider_request`].
    pub async fn approve_provider(&self, name: &str, digest: &str) -> Result<ProviderStatus> {
        self.core.check_open()?;
        let _one_at_a_time = self.core.reloading.lock().await;
        let (surveyed, package, now) = self.core.readable_package(name).await.map_err(|error| self.core.redacted(error))?;
        if now.digest != digest {
            return Err(self.core.redacted(Error::ProviderDigestChanged { provider: surveyed.name.into() }));
        }
        let approval = PackageApproval { version: package.version, digest: now.digest.clone() };
        let body = serde_json::to_vec(&approval).map_err(|error| Error::Internal(error.to_string().into()))?;
        let name = package.name.clone();
        self.change_approvals(move |rows| drop(rows.insert(name, Arc::from(body)))).await?;
        self.core.record_provider(package.name, ProviderDecision::Approved { digest: now.digest });
        self.look_again(&surveyed.name).await
    }

    /// Revokes the approval of a package's code, for all processes, and removes the package's servers from this gateway.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_PROVIDER`, `ERR_STORE`.
    pub async fn revoke_provider(&self, name: &str) -> Result<ProviderStatus> {
        self.core.check_open()?;
        let _one_at_a_time = self.core.reloading.lock().await;
        let surveyed = self.core.surveyed(name).await.map_err(|error| self.core.redacted(error))?;
        let Some(package) = surveyed.package else {
            let problem = "it was registered by the agent's code, and has no approval to revoke".into();
            return Err(self.core.redacted(Error::Provider { provider: surveyed.name.into(), problem }));
        };
        let name = package.clone();
        self.change_approvals(move |rows| drop(rows.remove(&name))).await?;
        self.core.record_provider(package, ProviderDecision::Revoked);
        self.look_again(&surveyed.name).await
    }

    async fn change_approvals(&self, change: impl FnOnce(&mut crate::store::Rows) + Send + 'static) -> Result<()> {
        let core = Arc::clone(&self.core);
        let changed = blocking(move || {
            core.store.change(Kind::Provider, |rows| {
                change(rows);
                Ok(())
            })
        });
        changed.await.map_err(|error| self.core.redacted(error))
    }

    /// Surveys all providers, runs the code of one of them, and applies the servers that this provider returns now. The caller must hold
    /// the lock `reloading`.
    async fn look_again(&self, name: &str) -> Result<ProviderStatus> {
        let settings = self.core.providers.settings.lock().clone();
        let layers = self.core.look(&settings, Anew::Only(name)).await.map_err(|error| self.core.redacted(error))?;
        let change = move |registry: &Registry| layers.into_iter().for_each(|(source, entries)| registry.set_layer(source, entries));
        let changes = self.core.apply_layers(change).await?;
        self.core.record_changes(&changes, Some(SourceKind::Provider), AuditParty::Person);
        let found = self.providers().into_iter().find(|provider| provider.name == name);
        found.ok_or_else(|| self.core.redacted(self.core.unknown_provider(name)))
    }

    /// Adds the servers of the catalogue and of all providers when the gateway opens. Blocks until the code of all approved packages has
    /// answered.
    pub(super) fn open_providers(&self, settings: ProviderSettings, with_catalogue: bool) -> Result<()> {
        let mut layers = vec![catalogue_layer(with_catalogue)];
        // The policy is stored even if the config has no packages, because it also applies to providers that the agent's program registers.
        settings.clone_into(&mut self.core.providers.settings.lock());
        if !settings.packages.is_empty() || settings.discover {
            let core = Arc::clone(&self.core);
            let look = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| Error::io("a runtime", &error))?;
                runtime.block_on(core.look(&settings, Anew::All))
            };
            // Uses a separate thread, because the caller may be a task of an async runtime, and such a task must not block.
            let looked = std::thread::scope(|scope| scope.spawn(look).join());
            layers.extend(looked.map_err(|_| Error::Internal("looking for providers panicked".into()))??);
        }
        for (source, entries) in layers {
            self.core.registry.set_layer(source, entries);
        }
        Ok(())
    }
}

impl Core {
    /// Returns the layers of the registry that a reload replaces in addition to the config's own servers: the catalogue, and all providers.
    /// The code of the providers runs again.
    pub(super) async fn brought_layers(self: &Arc<Self>, config: &Config) -> Result<Layers> {
        let mut layers = self.look(&config.providers, Anew::All).await?;
        layers.push(catalogue_layer(config.catalogue));
        Ok(layers)
    }

    /// Surveys and runs all providers, and returns their layers. A provider that no longer exists gets an empty layer.
    async fn look(self: &Arc<Self>, settings: &ProviderSettings, anew: Anew<'_>) -> Result<Layers> {
        settings.clone_into(&mut self.providers.settings.lock());
        let surveyed = self.survey(settings).await?;
        let now = self.run_all(surveyed, &settings.policy, anew).await;
        let list = list_of(&now)?;
        let before = std::mem::replace(&mut *self.providers.known.lock(), now.clone());
        *self.providers.list.lock() = list;
        let source = |known: &Known| known.status.origin.source_of(&known.status.name, known.status.package.as_deref());
        let mut layers: BTreeMap<ServerSource, Vec<Entry>> = before.iter().map(|known| (source(known), Vec::new())).collect();
        for known in now {
            layers.entry(source(&known)).or_default().extend(known.entries);
        }
        Ok(layers.into_iter().collect())
    }

    async fn survey(self: &Arc<Self>, settings: &ProviderSettings) -> Result<Vec<Surveyed>> {
        let (core, settings) = (Arc::clone(self), settings.clone());
        blocking(move || {
            let registered = core.providers.registered.lock().keys().cloned().collect();
            Ok(survey(&settings, &core.search_starts(), &registered, &*core.store.rows(Kind::Provider)?))
        })
        .await
    }

    /// Returns the folders in which the search for packages starts: the config's folder, and the workspace folder.
    fn search_starts(&self) -> Vec<PathBuf> {
        let config = self.source.path().and_then(|path| std::path::absolute(path).ok());
        let folder = config.and_then(|path| path.parent().map(ToOwned::to_owned));
        folder.into_iter().chain([self.surroundings.workspace_folder.clone()]).collect()
    }

    /// Finds a provider by its own name or its package's name, in a new survey.
    async fn surveyed(self: &Arc<Self>, name: &str) -> Result<Surveyed> {
        let settings = self.providers.settings.lock().clone();
        let all = self.survey(&settings).await?;
        // If the provider name of a package is used by another package, the first package is still found by its package name.
        let exact = all.iter().find(|provider| provider.package.as_deref() == Some(name));
        exact.or_else(|| all.iter().find(|provider| provider.is_called(name))).cloned().ok_or_else(|| self.unknown_provider(name))
    }

    /// Finds a package that may be approved, and computes the digest of all its files.
    async fn readable_package(self: &Arc<Self>, name: &str) -> Result<(Surveyed, FoundPackage, PackageDigest)> {
        let surveyed = self.surveyed(name).await?;
        let provider = surveyed.name.clone();
        let refused = move |problem: String| Error::Provider { provider: provider.clone().into(), problem: problem.into() };
        let problem = match &surveyed.standing {
            Standing::Denied(problem) | Standing::Failed(problem) => Some(problem.clone()),
            Standing::Registered => Some("it was registered by the agent's code, and needs no approval".to_owned()),
            Standing::Unapproved(_) | Standing::Approved(_) => None,
        };
        let package = match (problem, surveyed.found.clone()) {
            (None, Some(package)) => package,
            (problem, _) => return Err(refused(problem.unwrap_or_else(|| "its package was not found".to_owned()))),
        };
        let read = package.clone();
        let digest = blocking(move || package_digest(&read).map_err(refused)).await?;
        Ok((surveyed, package, digest))
    }

    fn unknown_provider(&self, name: &str) -> Error {
        let known = self.providers.known.lock().iter().map(|known| known.status.name.clone().into()).collect();
        Error::UnknownProvider { provider: name.into(), known }
    }
}

/// Returns the statuses of providers as a JSON array.
fn list_of(known: &[Known]) -> Result<Arc<str>> {
    let statuses: Vec<&ProviderStatus> = known.iter().map(|known| &known.status).collect();
    serde_json::to_string(&statuses).map(Arc::from).map_err(|error| Error::Internal(error.to_string().into()))
}

fn catalogue_layer(with_catalogue: bool) -> (ServerSource, Vec<Entry>) {
    (catalogue_source(), if with_catalogue { catalogue() } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn two_files_of_a_package_never_look_the_same() {
        let redactor = Redactor::new(None, None);
        let shown = |path: &[u8]| shown_path(&redactor, Path::new(OsStr::from_bytes(path)));
        assert_eq!(shown("lib/provider.js".as_bytes()), "lib/provider.js");
        for (path, expected) in [
            ("provider\u{200b}.js", r"provider\u{200b}.js"),
            ("provider\u{1161}.js", r"provider\u{1161}.js"),
            ("provider\u{1b}[2K.js", r"provider\u{1b}[2K.js"),
            ("a\nb.js", r"a\nb.js"),
            (r"provider\u{200b}.js", r"provider\\u{200b}.js"),
            ("한글.js", "한글.js"),
        ] {
            assert_eq!(shown(path.as_bytes()), expected);
        }
        assert_eq!(shown(b"a\xff.js"), r"a\xff.js");
        redactor.add([&"correct-horse".to_owned().into()]);
        assert_eq!(shown(b"correct-horse.js"), "[redacted].js");
    }
}
