//! Finds the tools that build a guest: a Rust with the sources of the standard library, a linker called `rust-lld`, clang and libclang.
//!
//! A Rust from rustup is preferred if it has the component `rust-src`. The second choice is Debian's package, which has the sources. The
//! last choice is a download of the component by rustup, which may wait for a network that does not exist.

use anyhow::{Context, Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that names the Rust installation to use, by the folder that contains `bin/rustc`.
pub const CHOOSE: &str = "HYPERLIGHT_MCP_GUEST_RUST";
/// LLD 19 leaves a relocation that the host refuses. Version 22 is the first version that is known to link a guest correctly.
const OLDEST_LLD: u32 = 22;
const FETCH_LIMIT: Duration = Duration::from_secs(60);

pub const APT_LINE: &str =
    "apt-get install --no-install-recommends rustc-web cargo-web rust-web-src clang-19 libclang-19-dev lld-22 binutils";

pub struct Toolchain {
    pub rustc: PathBuf,
    pub cargo: PathBuf,
    /// The linker, which has different names on different systems.
    pub lld: PathBuf,
    pub clang: PathBuf,
    /// The folder of libclang, which bindgen needs.
    pub libclang: PathBuf,
    /// The versions of all tools, which are part of the digest.
    pub versions: String,
}

struct Rust {
    sysroot: PathBuf,
    lld: PathBuf,
}

impl Toolchain {
    pub fn find() -> Result<Self> {
        let rust = find_rust()?;
        let (clang, libclang) = find_clang()?;
        which("ar").context("`ar` is missing; install it with:\n  apt-get install binutils")?;
        let rustc = rust.sysroot.join("bin/rustc");
        let versions = [
            first_line(&said(command(&rustc).arg("-vV"))?, usize::MAX),
            first_line(&said(command(&rust.lld).args(["-flavor", "gnu", "--version"]))?, 1),
            first_line(&said(command(&clang).arg("--version"))?, 1),
        ];
        Ok(Toolchain { cargo: rust.sysroot.join("bin/cargo"), rustc, lld: rust.lld, clang, libclang, versions: versions.join("\n") })
    }

    /// Describes the toolchain in one line.
    pub fn summary(&self) -> String {
        let line = |start: &str| self.versions.lines().find(|line| line.starts_with(start)).unwrap_or("");
        let rustc = line("rustc ");
        format!(
            "{rustc} at {}, {}",
            self.rustc.display(),
            self.versions.lines().skip(1).filter(|line| { line.contains("LLD") || line.contains("clang") }).collect::<Vec<_>>().join(", ")
        )
    }
}

/// Makes a command without the variables that cargo and rustup set for the programs they run. Their library folder would mix two Rust
/// installations, and `RUSTUP_TOOLCHAIN` would override the toolchain chosen here.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH").env_remove("RUSTUP_TOOLCHAIN").env("RUSTC_BOOTSTRAP", "1");
    command
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn first_line(text: &str, lines: usize) -> String {
    text.lines().take(lines).collect::<Vec<_>>().join("\n")
}

fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn find_rust() -> Result<Rust> {
    if let Some(chosen) = env::var_os(CHOOSE) {
        return usable(Path::new(&chosen)).map_err(|why| why.context(format!("{CHOOSE} is set to {chosen:?}, which cannot be used")));
    }
    let mut refused = Vec::new();
    let mut first_usable = |candidates: Vec<PathBuf>| {
        candidates.into_iter().find_map(|sysroot| match usable(&sysroot) {
            Ok(rust) => Some(rust),
            Err(why) => {
                refused.push(format!("  {}: {why}", sysroot.display()));
                None
            }
        })
    };
    if let Some(rust) = first_usable(rustup_sysroots()).or_else(|| first_usable(vec![PathBuf::from("/usr")])) {
        return Ok(rust);
    }
    let fetched = fetch_rust_src();
    if fetched.is_ok()
        && let Some(rust) = rustup_sysroots().iter().find_map(|sysroot| usable(sysroot).ok())
    {
        return Ok(rust);
    }
    let fetched = fetched.err().map(|why| format!("\n  rustup: {why}")).unwrap_or_default();
    bail!(
        "no Rust installation on this machine can build the guest, which needs the sources of Rust's standard library:\n{}{fetched}\n\
         Either of these commands installs them:\n  rustup component add rust-src\n  {APT_LINE}",
        refused.join("\n")
    )
}

/// Returns the folders of the active Rust and of all toolchains that rustup has.
fn rustup_sysroots() -> Vec<PathBuf> {
    let mut sysroots = Vec::new();
    // The environment is kept here, because RUSTUP_TOOLCHAIN selects the active Rust.
    if let Some(rustc) = which("rustc")
        && let Ok(sysroot) = said(Command::new(rustc).args(["--print", "sysroot"]))
    {
        sysroots.push(PathBuf::from(sysroot.trim()));
    }
    let home = env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".rustup")));
    let others = home.and_then(|home| fs::read_dir(home.join("toolchains")).ok());
    let mut others: Vec<_> = others.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    others.sort();
    sysroots.extend(others);
    sysroots.retain(|sysroot| sysroot != Path::new("/usr"));
    sysroots.dedup();
    sysroots
}

/// Returns the Rust in this folder, or an error that names the missing part.
fn usable(sysroot: &Path) -> Result<Rust> {
    for program in ["bin/rustc", "bin/cargo"] {
        if !sysroot.join(program).is_file() {
            bail!("has no {program}");
        }
    }
    if !sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file() {
        bail!("has no sources of the standard library (rustup component rust-src, Debian package rust-web-src)");
    }
    let own = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    let lld = if own.is_file() { own } else { system_lld()? };
    Ok(Rust { sysroot: sysroot.to_path_buf(), lld })
}

/// Finds LLD's generic driver, which accepts `-flavor` as rustc passes it. Debian's name for it is `lld-22`.
fn system_lld() -> Result<PathBuf> {
    (OLDEST_LLD..OLDEST_LLD + 10)
        .find_map(|version| which(&format!("lld-{version}")))
        .with_context(|| format!("has no rust-lld, and there is no lld-{OLDEST_LLD} or newer (Debian package lld-{OLDEST_LLD})"))
}

fn find_clang() -> Result<(PathBuf, PathBuf)> {
    let names = ["clang-19", "clang"].map(String::from).into_iter();
    let clang = names.chain((14..30).rev().map(|version| format!("clang-{version}"))).find_map(|name| which(&name));
    let clang = clang.context("clang is missing; install it with:\n  apt-get install clang-19 libclang-19-dev")?;
    if let Some(folder) = env::var_os("LIBCLANG_PATH") {
        return Ok((clang, folder.into()));
    }
    let real = fs::canonicalize(&clang)?; // for example /usr/lib/llvm-19/bin/clang
    let beside = real.parent().and_then(Path::parent).map(|folder| folder.join("lib"));
    let others = (14..30).rev().map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/lib")));
    let has_libclang = |folder: &PathBuf| {
        fs::read_dir(folder).is_ok_and(|entries| {
            entries.flatten().any(|entry| {
                let name = entry.file_name();
                name.to_string_lossy().starts_with("libclang")
                    && name.to_string_lossy().contains(".so")
                    && !name.to_string_lossy().starts_with("libclang-cpp")
            })
        })
    };
    let libclang = beside.into_iter().chain(others).find(has_libclang);
    let libclang = libclang.context("libclang is missing; install it with:\n  apt-get install libclang-19-dev")?;
    Ok((clang, libclang))
}

fn fetch_rust_src() -> Result<()> {
    let rustup = which("rustup").context("is not installed")?;
    eprintln!("guest: fetching rust-src with rustup, because no Rust here has the sources of its standard library (at most 60 s)");
    let mut child = Command::new(rustup).args(["component", "add", "rust-src"]).stdin(Stdio::null()).spawn()?;
    let deadline = Instant::now() + FETCH_LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("cannot fetch rust-src") };
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("fetching rust-src took longer than {} s", FETCH_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
