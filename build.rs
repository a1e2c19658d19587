//! Checks that the guest is there. Nothing is built or fetched here.

use std::path::Path;

fn main() {
    for guest in ["guest/out/hyperlight-mcp-guest.standard", "guest/out/hyperlight-mcp-guest.ring3"] {
        println!("cargo::rerun-if-changed={guest}");
        if !Path::new(guest).is_file() {
            println!(
                "cargo::error={guest} is missing. Build it with: npm run build:guest (or scripts/setup, which does all that is needed)"
            );
        }
    }
}
