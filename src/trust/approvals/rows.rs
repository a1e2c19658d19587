//! Converts the approvals to rows of the store, and rows to approvals. Does not access the disk.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::store::Rows;
use crate::trust::document::{Approval, Approvals};

/// Converts rows to approvals and numbers of revocations. Rows that are the same as in `known_rows` are not parsed again.
pub(super) fn parsed(
    [approvals, revocations]: &[impl Borrow<Rows>; 2],
    [known_rows, _]: &[Arc<Rows>; 2],
    known: Option<&Approvals>,
) -> Result<Approvals, String> {
    let known = |key: &str, row: &Arc<[u8]>| {
        known_rows.get(key).filter(|known| Arc::ptr_eq(known, row)).and_then(|_| known?.get(key)).map(Arc::clone)
    };
    let unreadable = |key: &str, problem: &dyn std::fmt::Display| {
        format!(
            "the approval of \"{key}\" cannot be read ({problem}): a later version of hyperlight-mcp may have written it. Update hyperlight-mcp, \
                 or choose another stateDir"
        )
    };
    let servers = approvals.borrow().iter().map(|(key, row)| {
        let approval = match known(key, row) {
            Some(approval) => approval,
            None => Arc::new(serde_json::from_slice::<Approval>(row).map_err(|problem| unreadable(key, &problem))?),
        };
        Ok::<_, String>((key.clone(), approval))
    });
    let revocations = revocations.borrow().iter().map(|(key, row)| {
        let count = serde_json::from_slice(row).map_err(|problem| unreadable(key, &problem))?;
        Ok::<_, String>((key.clone(), count))
    });
    Ok(Approvals { servers: servers.collect::<Result<_, _>>()?, revocations: revocations.collect::<Result<_, _>>()? })
}

/// Writes the differences from `before` into the rows.
pub(super) fn write_changed([approvals, revocations]: &mut [Rows; 2], before: &Approvals, after: &Approvals) -> Result<(), String> {
    approvals.retain(|key, _| after.servers.contains_key(key));
    for (key, approval) in &after.servers {
        if before.get(key).is_none_or(|before| !Arc::ptr_eq(before, approval)) {
            approvals.insert(key.clone(), written(&**approval)?);
        }
    }
    revocations.retain(|key, _| after.revocations.contains_key(key));
    for (key, count) in &after.revocations {
        if before.revocations.get(key) != Some(count) {
            revocations.insert(key.clone(), written(count)?);
        }
    }
    Ok(())
}

fn written(value: &impl serde::Serialize) -> Result<Arc<[u8]>, String> {
    serde_json::to_vec(value).map(Arc::from).map_err(|error| error.to_string())
}
