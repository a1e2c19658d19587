//! A changed config, applied: what is another loses its connection, what is the same is not touched.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Gateway;
use crate::config::{ArgumentCheck, ProtocolVersion, SchemaViolations};
use crate::error::Result;
use crate::registry::Entry;
use crate::trust::Canonical;

/// What `reload()` found. Names of servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Their connections were ended. Where what would run has changed, they need approval again.
    pub changed: Vec<String>,
    /// Listed with an error.
    pub invalid: Vec<String>,
    pub warnings: Vec<String>,
}

impl Gateway {
    /// Reads the config again. Where it cannot be read or is wrong as a whole, all stays as it is.
    ///
    /// # Errors
    /// `ERR_CONFIG_…`, `ERR_TOO_MANY_SERVERS`, `ERR_CLOSED`.
    pub async fn reload(&self) -> Result<ReloadReport> {
        self.core.check_open()?;
        let config = self.core.source.read().map_err(|error| self.core.redacted(error))?;
        let warnings = config.warnings.clone();
        let before = self.fingerprints();
        self.core.registry.replace(config);
        let now = self.fingerprints();
        let report = ReloadReport {
            added: now.keys().filter(|name| !before.contains_key(*name)).cloned().collect(),
            removed: before.keys().filter(|name| !now.contains_key(*name)).cloned().collect(),
            changed: now
                .iter()
                .filter(|(name, form)| before.get(*name).is_some_and(|old| old != *form))
                .map(|(name, _)| name.clone())
                .collect(),
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
        for name in &report.changed {
            self.core.registry.interrupt(name);
            self.core.session.forget(name);
            self.core.connections.close(name).await;
        }
        for name in &report.removed {
            self.core.registry.retire(name);
            self.core.session.forget(name);
            self.core.watched.forget(name);
            self.core.connections.close(name).await;
        }
        for warning in warnings {
            self.core.events.warn(warning);
        }
        Ok(report)
    }

    /// A digest of all that each entry says, under this machine's key.
    fn fingerprints(&self) -> BTreeMap<String, String> {
        let key = self.core.approvals.key();
        let form = |entry: &Entry| match entry {
            Entry::Invalid(server) => Canonical::new("invalid").text(&server.error.to_string()),
            Entry::Valid(server) => {
                let number = |number: Option<u64>| number.map(|number| number.to_string());
                Canonical::new("valid")
                    .text(&crate::trust::Subject::new(server, key, None, None, None).digest)
                    .optional(number(server.call_timeout_ms).as_deref())
                    .optional(number(server.connect_timeout_ms).as_deref())
                    .flag(server.disabled)
                    .flag(server.pinned)
                    .flag(server.elicits)
                    .text(&format!("{:?}", server.parallel))
                    .optional(number(server.idle_timeout_ms).as_deref())
                    .optional(number(server.keep_alive_ms).as_deref())
                    .optional(number(server.max_call_timeout_ms).as_deref())
                    .optional(server.protocol_version.map(ProtocolVersion::as_str))
                    .optional(server.schema_violations.map(|mode| if mode == SchemaViolations::Warn { "warn" } else { "error" }))
                    .optional(server.argument_checks.map(ArgumentCheck::as_str))
            }
        };
        self.core.registry.entries().iter().map(|entry| (entry.name().to_owned(), key.authenticate(&form(entry)))).collect()
    }
}
