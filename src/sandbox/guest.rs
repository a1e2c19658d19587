//! The two guests that are embedded in this library, and the choice between them.

use serde::{Deserialize, Serialize};

/// A guest that is embedded in this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// The guest runs in ring 0, as Hyperlight intends, on standard KVM.
    Standard,
    /// The guest runs in ring 3, on a KVM that cannot run ring-0 guest code (KVM-PVM). The virtual machine isolates both kinds of guest
    /// from the host. In ring 3, the guest's own kernel is not protected from the code in the guest.
    Ring3,
}

/// The guest that the user chooses. It is the option `guest` of `Gateway.open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestChoice {
    /// The standard guest, or the ring-3 guest if the standard guest fails because KVM cannot run ring-0 code.
    #[default]
    Auto,
    Standard,
    Ring3,
}

impl GuestKind {
    /// Returns the program of the guest. `guest/builder` builds this program.
    pub(super) fn binary(self) -> &'static [u8] {
        match self {
            Self::Standard => include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/out/hyperlight-mcp-guest.standard")),
            Self::Ring3 => include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/out/hyperlight-mcp-guest.ring3")),
        }
    }

    /// Returns the name of the guest that options and reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Ring3 => "ring3",
        }
    }
}

impl GuestChoice {
    /// Returns the guests to try, in the order in which they are tried.
    pub(super) fn candidates(self) -> &'static [GuestKind] {
        match self {
            Self::Auto => &[GuestKind::Standard, GuestKind::Ring3],
            Self::Standard => &[GuestKind::Standard],
            Self::Ring3 => &[GuestKind::Ring3],
        }
    }
}
