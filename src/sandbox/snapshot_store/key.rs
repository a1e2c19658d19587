//! The key of a stored snapshot. It depends on everything on which a snapshot depends: the guest, the limits, the processor, the kernel and
//! the version of Hyperlight.

use std::fs;

use sha2::{Digest as _, Sha256};

use crate::limits::Limits;
use crate::sandbox::features::GuestFeatures;
use crate::sandbox::guest::GuestKind;
use crate::sandbox::image::HANDLER_SOURCE;

/// The record that the builder of the guests writes. It contains the digests of the guests, and the version of Hyperlight.
const GUESTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/out/guest.json"));
/// The version of the format. It must be increased when snapshots are created or stored in another way.
const FORMAT: &str = "1";
/// The fields of `/proc/cpuinfo` that identify the processor and its features.
const PROCESSOR_FIELDS: [&str; 6] = ["vendor_id", "cpu family", "model", "model name", "stepping", "flags"];

/// The key of a snapshot. It is also the name of the snapshot's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) struct Key(String);

impl Key {
    pub(in crate::sandbox) fn new(kind: GuestKind, features: GuestFeatures, limits: &Limits) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::of(kind, features, limits, &read("/proc/cpuinfo"), &read("/proc/sys/kernel/osrelease"))
    }

    fn of(kind: GuestKind, features: GuestFeatures, limits: &Limits, cpuinfo: &str, kernel: &str) -> Self {
        let sizes = [
            limits.guest_heap_bytes,
            limits.max_input_bytes as u64,
            limits.max_code_bytes as u64,
            limits.max_response_bytes as u64,
            limits.max_value_bytes as u64,
            limits.max_argument_bytes as u64,
            limits.max_log_bytes as u64,
        ];
        let parts = [
            FORMAT,
            env!("CARGO_PKG_VERSION"),
            GUESTS,
            kind.name(),
            HANDLER_SOURCE,
            crate::sandbox::run_binding::WARM_UP_SOURCE,
            &format!("{sizes:?}"),
            &processor(cpuinfo),
            kernel.trim(),
        ];
        let globals = features.globals().map(|(_, source)| source);
        let mut hash = Sha256::new();
        for part in parts.into_iter().chain(globals) {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(hex::encode(hash.finalize()))
    }

    pub(in crate::sandbox) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns those lines of the first processor that do not change. Changing values such as the clock rate are left out.
fn processor(cpuinfo: &str) -> String {
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let named = |line: &&str| line.split_once(':').is_some_and(|(name, _)| PROCESSOR_FIELDS.contains(&name.trim()));
    first.lines().filter(named).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu sse\ncpu MHz\t\t: 2000.1\n\nprocessor\t: 1\n";

    fn key(change: impl Fn(&mut Limits)) -> Key {
        let mut limits = Limits::default();
        change(&mut limits);
        Key::of(GuestKind::Ring3, GuestFeatures::Basic, &limits, CPUINFO, "6.1.0\n")
    }

    #[test]
    fn a_clock_rate_changes_nothing_and_a_processor_a_kernel_a_guest_a_feature_and_a_limit_do() {
        let (limits, known) = (Limits::default(), key(|_| ()));
        assert_eq!(Key::of(GuestKind::Ring3, GuestFeatures::Basic, &limits, &CPUINFO.replace("2000.1", "3000.9"), "6.1.0"), known);
        assert_ne!(Key::of(GuestKind::Ring3, GuestFeatures::Basic, &limits, &CPUINFO.replace("fpu sse", "fpu sse avx"), "6.1.0"), known);
        assert_ne!(Key::of(GuestKind::Ring3, GuestFeatures::Basic, &limits, CPUINFO, "6.1.1"), known);
        assert_ne!(Key::of(GuestKind::Standard, GuestFeatures::Basic, &limits, CPUINFO, "6.1.0"), known);
        assert_ne!(Key::of(GuestKind::Ring3, GuestFeatures::Fetch, &limits, CPUINFO, "6.1.0"), known);
        assert_ne!(key(|limits| limits.guest_heap_bytes += 4096), known);
        assert_eq!(key(|limits| limits.max_servers += 1), known, "a limit that the guest does not depend on");
    }
}
