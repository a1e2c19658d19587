//! The two guests that are embedded, and which of them a gateway asks for.

use serde::{Deserialize, Serialize};

/// A guest that was built and embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// Runs in ring 0, as Hyperlight intends: ordinary KVM.
    Standard,
    /// Runs in ring 3: for a KVM that cannot run ring-0 guest code (KVM-PVM). The isolation between guest and host is
    /// the virtual machine's either way; what is lost is the guest's protection from itself.
    Ring3,
}

/// Which guest to use: `guest` in `Gateway.open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestChoice {
    /// The standard guest, and the ring-3 guest where that fails in the known way.
    #[default]
    Auto,
    Standard,
    Ring3,
}

impl GuestKind {
    /// The guest's program, as `guest/builder` wrote it.
    pub(super) fn binary(self) -> &'static [u8] {
        match self {
            Self::Standard => include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/out/hyperlight-mcp-guest.standard")),
            Self::Ring3 => include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/out/hyperlight-mcp-guest.ring3")),
        }
    }

    /// The name as options and reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Ring3 => "ring3",
        }
    }
}

impl GuestChoice {
    /// The guests to try, in order.
    pub(super) fn candidates(self) -> &'static [GuestKind] {
        match self {
            Self::Auto => &[GuestKind::Standard, GuestKind::Ring3],
            Self::Standard => &[GuestKind::Standard],
            Self::Ring3 => &[GuestKind::Ring3],
        }
    }
}
