//! Link arguments of the guest. A library's do not reach the binary that uses it, so what
//! `hyperlight-js-runtime` asks for its own binary has to be asked again here.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_HYPERLIGHT").is_some() {
        // The runtime asks the host for the time: it defines `__wrap_clock_gettime`.
        println!("cargo::rustc-link-arg-bins=-wrap=clock_gettime");
    }
}
