//! Checks that the guest is there, and waits for a build of it that is under way. Nothing is built or fetched here.

use std::fs::File;
use std::path::Path;

/// Locked by `scripts/build` while it builds the guest beside the dependencies of this crate.
const LOCK: &str = "guest/out/.building";

fn main() {
    for guest in ["guest/out/hyperlight-mcp-guest.standard", "guest/out/hyperlight-mcp-guest.ring3"] {
        println!("cargo::rerun-if-changed={guest}");
        if !Path::new(guest).is_file() {
            wait_for_build();
        }
        if !Path::new(guest).is_file() {
            println!(
                "cargo::error={guest} is missing. Build it with: npm run build:guest (or scripts/setup, which does all that is needed)"
            );
        }
    }
}

/// Waits until no process builds the guest. The kernel ends the lock of a process that has ended, however it ended.
fn wait_for_build() {
    if let Ok(lock) = File::open(LOCK) {
        let _ = lock.lock_shared();
    }
}
