//! Link arguments of the guest. A library's do not reach the binary that uses it, so what
//! `hyperlight-js-runtime` asks for its own binary has to be asked again here.

use std::env;

/// Where the builder has put the ring-3 shim.
const RING3_OBJECT: &str = "HYPERLIGHT_MCP_RING3_OBJECT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={RING3_OBJECT}");
    if env::var_os("CARGO_CFG_HYPERLIGHT").is_none() {
        return;
    }
    // The runtime asks the host for the time: it defines `__wrap_clock_gettime`.
    println!("cargo::rustc-link-arg-bins=-wrap=clock_gettime");
    if env::var_os("CARGO_FEATURE_RING3").is_some() {
        let object = env::var(RING3_OBJECT).unwrap_or_else(|_| panic!("{RING3_OBJECT} is not set: guest/builder builds this guest"));
        println!("cargo::rerun-if-changed={object}");
        println!("cargo::rustc-link-arg-bins={object}");
        // The last one counts.
        println!("cargo::rustc-link-arg-bins=-eshim_entry");
    }
}
