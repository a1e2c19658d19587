//! Runs cargo-hyperlight on `guest/runtime` with the chosen tools, and without the build variables of the environment.

use crate::toolchain::{Toolchain, command};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The first argument with which the builder starts itself again. cargo-hyperlight takes its tools from the environment of its own process,
/// which is the child.
pub const STAGE: &str = "--stage-compile";
const NAME: &str = "hyperlight-mcp-guest";
const TARGET: &str = "x86_64-hyperlight-none";

/// The guest to build.
#[derive(Clone, Copy)]
pub enum Kind<'a> {
    Standard,
    /// The guest linked with the ring-3 shim; the path is the shim's object file.
    Ring3(&'a Path),
}

/// Builds a guest and returns its ELF file.
pub fn compile(tools: &Toolchain, guest: &Path, target: &Path, kind: Kind) -> Result<Vec<u8>> {
    let bin = target.join("bin");
    link_tools(tools, &bin)?;
    let mut path = vec![bin];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));

    let mut child = command(&env::current_exe()?);
    for (name, _) in env::vars_os() {
        if is_foreign(&name.to_string_lossy()) {
            child.env_remove(name);
        }
    }
    child.arg(STAGE).arg(guest.join("runtime/Cargo.toml"));
    if let Kind::Ring3(object) = kind {
        child.args(["--features", "ring3"]).env("HYPERLIGHT_MCP_RING3_OBJECT", object); // for runtime/build.rs
    }
    let status = child
        .current_dir(guest)
        .env("PATH", env::join_paths(path)?)
        .env("CARGO", &tools.cargo)
        .env("RUSTC", &tools.rustc)
        .env("LIBCLANG_PATH", &tools.libclang)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", remap(guest))
        // QuickJS must use the functions that picolibc has, as it does for systems without threads and atomics (`__DJGPP`). hyperlight-js
        // builds its own guest with `__wasi__`, but that also disables the stack limit, and endless recursion would then use all memory
        // instead of throwing a RangeError.
        .env("HYPERLIGHT_CFLAGS", "-D__DJGPP=1 -D_POSIX_MONOTONIC_CLOCK")
        .status()?;
    ensure!(status.success(), "the guest does not compile; see the errors above");
    let elf = target.join(TARGET).join("release").join(NAME);
    ensure!(elf.is_file(), "cargo succeeded, but did not write {}", elf.display());
    Ok(fs::read(elf)?)
}

/// Runs in the child process, with the arguments that follow [`STAGE`].
pub fn stage(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let mut cargo = cargo_hyperlight::cargo()?;
    // The target is given explicitly, because the addon's cargo configuration sets another default for all folders below it.
    cargo.args(["build", "--release", "--locked", "--target", TARGET, "--manifest-path"]).args(arguments);
    if !std::io::stderr().is_terminal() {
        cargo.arg("--quiet"); // cargo's progress display would add a line for each crate to a log
    }
    // cargo has already printed the error. The returned error contains the whole command line and environment, which would hide it.
    if cargo.status().is_err() {
        std::process::exit(1);
    }
    Ok(())
}

/// Tells if a variable belongs to the surrounding build and must not reach this one.
fn is_foreign(name: &str) -> bool {
    const FLAGS: [&str; 8] = [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "CFLAGS",
        "TARGET_CFLAGS",
        "BINDGEN_EXTRA_CLANG_ARGS",
        "CLANG_PATH",
    ];
    const CARGO_KEEPS: [&str; 6] = ["CARGO_HOME", "CARGO_REGISTR", "CARGO_HTTP_", "CARGO_NET_", "CARGO_SOURCE_", "CARGO_TERM_"];
    let of_cargo = name.starts_with("CARGO") && !CARGO_KEEPS.iter().any(|kept| name.starts_with(kept));
    of_cargo || FLAGS.contains(&name)
}

/// Links the tools under the names by which rustc, cargo-hyperlight and cc look for them.
fn link_tools(tools: &Toolchain, bin: &Path) -> Result<()> {
    fs::create_dir_all(bin)?;
    for (name, tool) in [("rust-lld", &tools.lld), ("clang", &tools.clang), ("rustc", &tools.rustc), ("cargo", &tools.cargo)] {
        let link = bin.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => bail!("{}: {error}", link.display()),
            _ => symlink(tool, &link).with_context(|| format!("cannot link {}", link.display()))?,
        }
    }
    Ok(())
}

/// Returns the compiler flags that remove this machine's folders from the file names in panic messages, so that the guest is the same on
/// every machine.
fn remap(guest: &Path) -> String {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let pairs = [(cargo, "/cargo"), (guest.to_path_buf(), "/guest")];
    let flags = pairs.iter().filter(|(from, _)| !from.to_string_lossy().contains([' ', '=']));
    flags.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect::<Vec<_>>().join(" ")
}
