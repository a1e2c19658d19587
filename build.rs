//! napi's set-up, and a check that the guest is there. Nothing is built or fetched here.

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
    if std::env::var_os("CARGO_FEATURE_NODE").is_some() {
        // Where napi-derive notes types (.cargo/config.toml); it complains where there is no such folder.
        if let Some(types) = std::env::var_os("NAPI_TYPE_DEF_TMP_FOLDER") {
            let _ = std::fs::create_dir_all(types);
        }
        napi_build::setup();
    }
}
