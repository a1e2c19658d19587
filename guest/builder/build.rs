//! Finds the sources of `hyperlight-guest-bin`. That crate cannot be a dependency of a host program, because it defines a panic handler and
//! an allocator. Two of its files define the address of the guest's IDT, and `upstream.rs` compiles these.

use std::path::{Path, PathBuf};
use std::{env, fs, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let folder = source_of("hyperlight-guest-bin").join("src/arch/amd64");
    let mut text = String::new();
    for name in ["layout", "machine"] {
        let file = folder.join(format!("{name}.rs"));
        assert!(
            file.is_file(),
            "{} does not exist: this version of hyperlight-guest-bin keeps its constants elsewhere; see upstream.rs",
            file.display()
        );
        text += &format!("#[path = {file:?}]\npub mod {name};\n");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("guest_bin.rs"), text).expect("OUT_DIR is writable");
}

/// Returns the folder of a dependency's sources. `cargo metadata` finds it, and downloads it if necessary.
fn source_of(package: &str) -> PathBuf {
    let cargo = env::var_os("CARGO").expect("cargo sets CARGO");
    let output = Command::new(cargo).args(["metadata", "--format-version=1", "--locked"]).output().expect("cargo starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let found = metadata["packages"].as_array().and_then(|packages| packages.iter().find(|candidate| candidate["name"] == package));
    let manifest =
        found.and_then(|package| package["manifest_path"].as_str()).unwrap_or_else(|| panic!("{package} is not in guest/Cargo.lock"));
    Path::new(manifest).parent().expect("a manifest lies in a folder").to_path_buf()
}
