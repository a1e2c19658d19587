//! Drift: the differences between a live server and its approved manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::core::Core;
use super::events::Event;
use crate::catalog::Manifest;
use crate::config::ServerDefinition;
use crate::error::Result;
use crate::trust::{ApprovalStatus, Drift, filter_manifest, filter_warnings};

impl Core {
    /// Reports the differences between a live manifest and the approved one, once for each live manifest.
    pub(super) fn report_drift(&self, server: &ServerDefinition, live: &Arc<Manifest>) -> Result<()> {
        if !self.registry.is_new_manifest(&server.name, live) {
            return Ok(());
        }
        for warning in filter_warnings(server, live) {
            self.events.warn(warning);
        }
        let ApprovalStatus::Full(approved) = self.approval_status(server)? else { return Ok(()) };
        let drift = Drift::of_calls(&approved, &filter_manifest(server, live));
        let differing: BTreeSet<String> = drift.changed.iter().chain(&drift.removed).cloned().collect();
        self.forget_shapes(&server.name, &differing);
        self.registry.set_quarantined(&server.name, differing);
        if !drift.is_empty() {
            tracing::warn!(server = server.name, ?drift, "tools differ from those that were approved");
            self.events.send(&Event::ToolsChanged { server: server.name.clone(), drift: Box::new(drift) });
        }
        Ok(())
    }
}
