//! The authentication of rows. Each row has a MAC, and all rows of one kind together have a seal. If a row was changed, its MAC does not
//! match. If a row was removed, or restored from an earlier time, the seal does not match.

use super::{Canonical, Kind, MachineKey};

/// Returns the MAC of one row.
pub(super) fn row_mac(key: &MachineKey, kind: Kind, name: &str, body: &[u8]) -> Vec<u8> {
    key.mac_of(&Canonical::new("hyperlight-mcp row 1").text(kind.as_str()).text(name).bytes(body))
}

/// Returns the MAC of all rows of a kind after `changes` changes, under the anchor with this id. `macs` are the rows' names and MACs, in the order
/// of the names.
pub(super) fn seal_mac<'a>(
    key: &MachineKey,
    anchor: &str,
    kind: Kind,
    changes: u64,
    macs: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Vec<u8> {
    let form = Canonical::new("hyperlight-mcp seal 1").text(anchor).text(kind.as_str()).text(&changes.to_string());
    key.mac_of(&macs.fold(form, |form, (name, mac)| form.text(name).bytes(mac)))
}

/// Returns the MAC of the seals of all kinds after `changes` changes. `seals` are the kinds with their numbers of changes and their MACs,
/// in the order of the kinds.
pub(super) fn all_mac<'a>(key: &MachineKey, anchor: &str, changes: u64, seals: impl Iterator<Item = (&'a str, u64, &'a [u8])>) -> Vec<u8> {
    let form = Canonical::new("hyperlight-mcp seals 1").text(anchor).text(&changes.to_string());
    key.mac_of(&seals.fold(form, |form, (kind, changes, mac)| form.text(kind).text(&changes.to_string()).bytes(mac)))
}
