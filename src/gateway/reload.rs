//! Applies a changed config. Servers whose entry changed lose their connection; other servers are not affected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Gateway;
use super::core::Core;
use super::ending::EndReason;
use super::events::Event;
use crate::blocking::blocking;
use crate::config::{ArgumentCheck, ProtocolVersion, SchemaViolations, ServerDefinition};
use crate::error::{Error, Result};
use crate::registry::{Decider, Entry, Registry};
use crate::store::audit::AuditParty;
use crate::text::{is_registry_name, marked_name};
use crate::trust::{Canonical, Circumstances, Subject};

/// The result of `reload()`, with the names of servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Servers whose entry changed. Their connections were closed. If the change affects what is executed, they need a new approval.
    pub changed: Vec<String>,
    /// Servers whose entry has an error.
    pub invalid: Vec<String>,
    pub warnings: Vec<String>,
}

impl ReloadReport {
    /// Returns the report for a model. A model gets only the number of warnings, because their texts can contain parts of the config.
    #[must_use]
    pub fn for_model(&self) -> Json {
        let Self { added, removed, changed, invalid, warnings } = self;
        // A variant is reported under the name that code imports.
        let name = |name: &'_ String| is_registry_name(name).then(|| marked_name(name).0.to_owned());
        let names = |names: &[String]| -> Json { names.iter().filter_map(name).collect::<BTreeSet<_>>().into_iter().collect() };
        let mut told = json!({
            "added": names(added),
            "removed": names(removed),
            "changed": names(changed),
            "invalid": invalid.len(),
            "warnings": warnings.len(),
        });
        if !(invalid.is_empty() && warnings.is_empty()) {
            told["note"] = "the config has errors or warnings. The user can see them with /mcp list and /mcp reload".into();
        }
        told
    }
}

/// The warning about a config that a server may have written.
const HELD: &str =
    "the config was replaced while a server could write in its folder, so it is not read automatically: look at it, and then reload it";

impl Gateway {
    /// Reads the config again. If the config cannot be read or is invalid as a whole, nothing changes.
    ///
    /// # Errors
    /// `ERR_CONFIG_…`, `ERR_TOO_MANY_SERVERS`, `ERR_CLOSED`.
    pub async fn reload(&self) -> Result<ReloadReport> {
        self.core.check_open()?;
        self.core.release_config();
        self.reload_by(Decider::Person).await
    }

    /// Reads the config again. If a server may have written the config, it is read only on behalf of a person or of the agent's own code.
    async fn reload_by(&self, decider: Decider) -> Result<ReloadReport> {
        self.core.check_open()?;
        let _one_at_a_time = self.core.reloading.lock().await;
        let core = Arc::clone(&self.core);
        let read = blocking(move || Ok((core.source.read()?, core.read_added()?)));
        let (config, (servers, added_warnings)) = read.await.map_err(|error| self.core.redacted(error))?;
        // The check comes after the read: a file that is replaced later is not the file that was read.
        if decider == Decider::Model && self.core.is_config_held().await {
            let problem = "the config was replaced while a server could write in its folder: a person must look at it first";
            return Err(Error::OperatorOnly { what: "reload", problem });
        }
        let warnings: Vec<String> = config.warnings.iter().cloned().chain(added_warnings).collect();
        let brought = self.core.brought_layers(&config).await.map_err(|error| self.core.redacted(error))?;
        let held = self.core.held_by_profiles();
        // The grants are replaced before the servers, so that no agent sees a new server through its earlier grants.
        let (grants_before, grants) = (self.core.grants.settings(), config.grants.clone());
        self.core.record_config_grants(&grants_before, &grants);
        self.core.grants.replace(grants);
        let change = |registry: &Registry| {
            registry.replace(config);
            // Another process may have changed the added servers as well.
            self.core.set_added(&servers, registry);
            for (source, entries) in brought {
                registry.set_layer(source, entries);
            }
        };
        let changes = self.core.apply_layers(change).await?;
        self.core.record_changes(&changes, None, AuditParty::Config);
        self.core.note_config_servers_soon(None).await;
        let ServerChanges { added, removed, changed } = changes;
        // If a profile was removed, the connections of its servers are closed, unless another agent still has these servers.
        self.core.end_left(held).await;
        let report = ReloadReport {
            added,
            removed,
            changed,
            invalid: self
                .core
                .registry
                .entries()
                .iter()
                .filter(|entry| matches!(entry, Entry::Invalid(_)))
                .map(|entry| entry.name().to_owned())
                .collect(),
            warnings: warnings.iter().map(|warning| self.core.redactor.readable(warning)).collect(),
        };
        for warning in warnings {
            self.core.events.warn(warning);
        }
        Ok(report)
    }

    /// Reads the config again for a model. Fails if a server may have written the config.
    ///
    /// # Errors
    /// Those of [`Gateway::reload`]; `ERR_OPERATOR_ONLY`.
    pub async fn reload_for_model(&self) -> Result<ReloadReport> {
        self.reload_by(Decider::Model).await
    }

    /// Reads a changed config again, and sends the outcome as an event. If the config is not usable, nothing changes.
    pub(super) async fn reload_changed(&self) {
        // If the config is held because a server may have written it, it is not read at all. So the warning about it is sent once for each
        // version of the files.
        let reloaded = if self.core.is_config_held().await { None } else { Some(self.reload_by(Decider::Model).await) };
        match reloaded {
            Some(Ok(report)) => self.core.events.send(&Event::ConfigReloaded { report: Box::new(report) }),
            Some(Err(Error::Closed { .. })) => {}
            None | Some(Err(Error::OperatorOnly { .. })) => {
                if self.core.source.note_held() {
                    self.core.events.warn(HELD);
                }
            }
            Some(Err(error)) => {
                let problem = format!("the config has changed, and cannot be used as it is now. The servers stay as they were: {error}");
                self.core.events.warn(problem);
            }
        }
    }
}

/// The names of the servers that a change of the registry has affected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerChanges {
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) changed: Vec<String>,
}

impl ServerChanges {
    /// Returns the differences between the servers at two moments. Each map has a digest of each entry, by the server's name.
    pub(super) fn between(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Self {
        let differs = |(name, form): &(&String, &String)| before.get(*name).is_some_and(|old| old != *form);
        Self {
            added: now.keys().filter(|name| !before.contains_key(*name)).cloned().collect(),
            removed: before.keys().filter(|name| !now.contains_key(*name)).cloned().collect(),
            changed: now.iter().filter(differs).map(|(name, _)| name.clone()).collect(),
        }
    }
}

impl Core {
    /// Changes the layers of the registry, and ends everything that the change affects. A changed server loses its connection. A removed
    /// server also loses its subscriptions and call permissions. A box that could write the program of a new server is ended too. The
    /// caller must hold the lock `reloading`. Otherwise the changes of one caller could be taken for the changes of another.
    pub(super) async fn apply_layers(self: &Arc<Self>, change: impl FnOnce(&Registry)) -> Result<ServerChanges> {
        let before = self.fingerprints();
        change(&self.registry);
        self.requests.unavailable.servers_changed();
        let core = Arc::clone(self);
        blocking(move || {
            core.read_all_approvals();
            Ok(())
        })
        .await?;
        let now = self.fingerprints();
        let changes = ServerChanges::between(&before, &now);
        // All servers are ended concurrently, so that no server continues with its old definition while the process of another server ends.
        let changed = changes.changed.iter().map(|name| (name, EndReason::Reconfigured));
        let removed = changes.removed.iter().map(|name| (name, EndReason::Retired));
        let ended: Vec<_> = changed.chain(removed).map(|(name, why)| self.end(name, why)).collect();
        futures::future::join_all(ended).await;
        self.end_boxes_with_new_files(None).await;
        Ok(changes)
    }

    /// Returns an authenticated digest of each entry, computed with this machine's key.
    fn fingerprints(&self) -> BTreeMap<String, String> {
        self.registry.entries().iter().map(|entry| (entry.name().to_owned(), self.entry_fingerprint(entry))).collect()
    }

    /// Returns an authenticated digest of an entry, computed with this machine's key.
    pub(super) fn entry_fingerprint(&self, entry: &Entry) -> String {
        let invalid = |error: Error| Canonical::new("invalid").text(&self.redacted(error).to_string());
        match entry {
            Entry::Invalid(server) => self.store.key().authenticate(&invalid(server.error.clone())),
            Entry::Valid(server) => self.fingerprint(server),
        }
    }

    /// Returns an authenticated digest of a valid entry, computed with this machine's key. Two different entries have different digests.
    pub(super) fn fingerprint(&self, server: &ServerDefinition) -> String {
        let key = self.store.key();
        let approved = Subject::new(server, key, Circumstances::default()).digest;
        key.authenticate(&with_call_settings(Canonical::new("valid").text(&approved), server))
    }
}

/// Adds the fields that determine how and when a server is called. Each field of an entry is used here, or is covered by the digest of the
/// approval, or has no influence on calls.
fn with_call_settings(form: Canonical, server: &ServerDefinition) -> Canonical {
    let ServerDefinition {
        call_timeout_ms,
        connect_timeout_ms,
        disabled,
        pinned,
        schema_violations,
        argument_checks,
        parallel,
        elicits,
        idle_timeout_ms,
        keep_alive_ms,
        max_call_timeout_ms,
        protocol_version,
        // These fields are in the digest of the approval.
        name: _,
        source: _,
        transport: _,
        filter: _,
        confirm: _,
        reads: _,
        pin_executable: _,
        pin_values: _,
        resource_filter: _,
        prompt_filter: _,
        allow_insecure_http: _,
        in_box: _,
        roots: _,
        input_defaults: _,
        input_descriptions: _,
        // Determines only how a person is asked.
        secret_inputs: _,
        // These fields are read when a task starts, and do not affect a connection.
        keywords: _,
        capabilities: _,
        // A change of this field also changes the environment or the headers, which the digest of the approval covers.
        required_environment: _,
        // Text for people.
        description: _,
        // The position of an entry in its file may change without effect.
        origin: _,
    } = server;
    let number = |number: &Option<u64>| number.map(|number| number.to_string());
    form.optional(number(call_timeout_ms).as_deref())
        .optional(number(connect_timeout_ms).as_deref())
        .flag(*disabled)
        .flag(*pinned)
        .flag(*elicits)
        .text(&format!("{parallel:?}"))
        .optional(number(idle_timeout_ms).as_deref())
        .optional(number(keep_alive_ms).as_deref())
        .optional(number(max_call_timeout_ms).as_deref())
        .optional(protocol_version.map(ProtocolVersion::as_str))
        .optional(schema_violations.map(|mode| if mode == SchemaViolations::Warn { "warn" } else { "error" }))
        .optional(argument_checks.map(ArgumentCheck::as_str))
}
