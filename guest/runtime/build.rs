//! Passes link arguments for the guest. Cargo does not pass on a library's link arguments to a binary that depends on it, so this file
//! repeats the ones that `hyperlight-js-runtime` sets for its own binary.

use std::env;

/// The environment variable in which the builder gives the path of the compiled ring-3 shim.
const RING3_OBJECT: &str = "HYPERLIGHT_MCP_RING3_OBJECT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={RING3_OBJECT}");
    if env::var_os("CARGO_CFG_HYPERLIGHT").is_none() {
        return;
    }
    // The runtime defines `__wrap_clock_gettime`, which asks the host for the time.
    println!("cargo::rustc-link-arg-bins=-wrap=clock_gettime");
    // `src/memory.rs` defines `__wrap_malloc` and so on, but no `__wrap_aligned_alloc`: nothing uses this function, and what would use it does
    // not link, as `free` would not know its blocks.
    for function in ["malloc", "calloc", "realloc", "free", "aligned_alloc"] {
        println!("cargo::rustc-link-arg-bins=-wrap={function}");
    }
    if env::var_os("CARGO_FEATURE_RING3").is_some() {
        let object = env::var(RING3_OBJECT).unwrap_or_else(|_| panic!("{RING3_OBJECT} is not set; build the guest with guest/builder"));
        println!("cargo::rerun-if-changed={object}");
        println!("cargo::rustc-link-arg-bins={object}");
        // If several entry points are given, the linker uses the last one.
        println!("cargo::rustc-link-arg-bins=-eshim_entry");
    }
}
