//! Records in the audit which servers of a config file were added, changed or removed since the last record. A change is recorded no matter
//! who made it: for example, a process that has ended, or a person with an editor. The store keeps a digest of each entry for this
//! comparison, but not the entries.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::Gateway;
use super::config_source::{ConfigContent, ConfigSource};
use super::core::Core;
use super::reload::ServerChanges;
use crate::blocking::blocking;
use crate::config::SourceKind;
use crate::error::Result;
use crate::limits::LimitChanges;
use crate::registry::{Entry, Registry};
use crate::store::audit::AuditParty;
use crate::store::{Kind, Rows};
use crate::text::variant_of;

/// The digests of a config's entries, by server.
type Digests = BTreeMap<String, String>;

impl Core {
    /// Compares the servers of the gateway's config file with those that were last recorded for this file, and records the differences.
    /// `by` is the author of the differences. `None` means that the audit has the differences already: then only the digests are stored.
    /// Ignores an error of the store, because the next use of the store reports it. Blocks.
    pub(super) fn note_config_servers(&self, by: Option<AuditParty>) {
        if let Some(path) = self.source.path() {
            self.note_servers_of(path, &self.registry, by)
                .unwrap_or_else(|error| tracing::warn!(%error, "the config's servers were not noted"));
        }
    }

    /// Does the same as [`Self::note_config_servers`] on a thread that may block.
    pub(super) async fn note_config_servers_soon(self: &Arc<Self>, by: Option<AuditParty>) {
        let core = Arc::clone(self);
        let noted = blocking(move || {
            core.note_config_servers(by);
            Ok(())
        });
        drop(noted.await);
    }

    fn note_servers_of(&self, path: &Path, registry: &Registry, by: Option<AuditParty>) -> Result<()> {
        let name = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        let is_own = |entry: &&Entry| entry.source().is_operators_config() && variant_of(entry.name()).is_none();
        let entries = registry.entries();
        let now: Digests = entries.iter().filter(is_own).map(|entry| (entry.name().to_owned(), self.entry_fingerprint(entry))).collect();
        let of = |rows: &Rows| rows.get(&name).and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
        if of(&*self.store.rows(Kind::Config)?) == now {
            return Ok(());
        }
        let body: Arc<[u8]> = serde_json::json!(now).to_string().into_bytes().into();
        let change = |rows: &mut Rows| {
            let before = of(rows);
            rows.insert(name.clone(), body);
            Ok(before)
        };
        // The row is compared again within the transaction, so that only one of two processes records a difference.
        let before: Digests = self.store.change(Kind::Config, change)?;
        if let Some(by) = by {
            self.record_changes(&ServerChanges::between(&before, &now), Some(SourceKind::Config), by);
        }
        Ok(())
    }
}

impl Gateway {
    /// Compares the servers of a config file with those that were last recorded for this file, and records the differences as made by a
    /// person. The file need not be the config of this gateway. Blocks.
    ///
    /// # Errors
    /// `ERR_STORE`, and `ERR_CONFIG_…` for a file that cannot be used.
    pub(crate) fn record_config_file(&self, path: &Path) -> Result<()> {
        let core = &self.core;
        let source = ConfigSource::new(ConfigContent::File(path.to_owned()), LimitChanges::default(), core.surroundings.clone());
        let noted = source.read().and_then(|config| core.note_servers_of(path, &Registry::new(config), Some(AuditParty::Person)));
        noted.map_err(|error| core.redacted(error))
    }
}
