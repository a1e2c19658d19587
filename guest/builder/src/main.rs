//! Builds the guest: `cargo run --profile builder --manifest-path guest/builder/Cargo.toml -- [--check] [--out FOLDER]`.
//!
//! It builds two guests: `standard`, for processors with hardware virtualisation, and `ring3`, the same guest linked with a shim for
//! KVM-PVM, which can only emulate ring-0 code. See `docs/GUEST.md`.

mod cache;
mod compile;
mod image;
mod shim;
mod toolchain;
mod upstream;

/// A stub of a module of hyperlight-guest-bin. `upstream.rs` compiles a file of that crate that uses this module.
mod paging {
    pub unsafe fn map_region(_physical: u64, _virtual: *mut u8, _length: u64, _kind: hyperlight_common::vmem::MappingKind) {
        unreachable!("only constants are taken from hyperlight-guest-bin")
    }
    pub mod barrier {
        pub fn first_valid_same_ctx() {}
    }
}

use anyhow::{Context, Result, bail};
use cache::{Guest, Manifest};
use compile::Kind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};
use toolchain::Toolchain;

const USAGE: &str = "usage: hyperlight-mcp-guest-builder [--check] [--out FOLDER]
  --check   build nothing; succeed if the guests are up to date
  --out     the folder to write the guests to (default: guest/out)";

struct Options {
    check: bool,
    out: PathBuf,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the builder's folder is not inside guest/")?;
    let mut arguments = env::args_os().skip(1);
    let mut options = Options { check: false, out: guest.join("out") };
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--check") => options.check = true,
            Some("--out") => options.out = arguments.next().context("--out needs a folder")?.into(),
            Some(compile::STAGE) => {
                compile::stage(arguments)?;
                return Ok(ExitCode::SUCCESS);
            }
            _ => bail!("unknown argument {argument:?}\n{USAGE}"),
        }
    }
    check_locks(guest)?;
    let sources = cache::sources_digest(guest)?;
    let current = cache::load(&options.out);
    let tools = match Toolchain::find() {
        Ok(tools) => tools,
        Err(_) if current.as_ref().is_some_and(|manifest| manifest.sources == sources) => {
            eprintln!("guest: up to date with its sources (this machine has no toolchain to build another)");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error),
    };
    let digest = cache::digest(&sources, &tools);
    if current.is_some_and(|manifest| manifest.digest == digest) {
        eprintln!("guest: up to date ({})", &digest[..12]);
        return Ok(ExitCode::SUCCESS);
    }
    if options.check {
        eprintln!("guest: not built, or built from other sources or with another toolchain; run scripts/setup to build it");
        return Ok(ExitCode::FAILURE);
    }
    produce(guest, &tools, sources, digest, &options.out)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the versions of Hyperlight's crates in the guest's lock file and in the addon's, which has the host's crates.
fn check_locks(guest: &Path) -> Result<()> {
    for lock in ["Cargo.lock", "../Cargo.lock"] {
        if let Ok(text) = fs::read_to_string(guest.join(lock)) {
            upstream::check_reviewed(&text).with_context(|| format!("guest/{lock}"))?;
        }
    }
    Ok(())
}

fn produce(guest: &Path, tools: &Toolchain, sources: String, digest: String, out: &Path) -> Result<()> {
    let kept = cache::folder(&digest)?;
    if let Some(manifest) = cache::load(&kept) {
        let standard = fs::read(kept.join(cache::STANDARD))?;
        let ring3 = fs::read(kept.join(cache::RING3))?;
        cache::store(out, &manifest, &[(cache::STANDARD, &standard), (cache::RING3, &ring3)])?;
        eprintln!("guest: copied from the cache folder {}", kept.display());
        return Ok(());
    }
    let start = Instant::now();
    eprintln!(
        "guest: compiling for the micro-VM, because its sources or the toolchain changed. Two to four minutes if Rust's standard library \
         must be compiled first (with a new target folder), otherwise one minute or less"
    );
    eprintln!("guest: using {}", tools.summary());
    // Each toolchain has its own target folder, because cargo-hyperlight does not rebuild its copy of the standard library when the
    // compiler changes.
    let key = &cache::digest("", tools)[..8];
    let target = guest.join("target/micro-vm").join(key);
    let symbols = compile::compile(tools, guest, &target, Kind::Standard)?;
    image::check_entry(&symbols, "entrypoint")?;
    let standard = finish(&symbols)?;

    eprintln!("guest: building the second guest, for machines that emulate ring 0 (KVM-PVM)");
    let folder = target.join("ring3");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let object = shim::build(tools, &guest.join("ring3"), &folder)?;
    let ring3_symbols = compile::compile(tools, guest, &target, Kind::Ring3(&object))?;
    image::check_entry(&ring3_symbols, "shim_entry")?;
    let ring3 = finish(&image::fill_tables(&ring3_symbols)?)?;

    let manifest = Manifest {
        digest,
        sources,
        toolchain: tools.versions.clone(),
        hyperlight: upstream::REVIEWED[0].1.to_string(),
        standard: Guest::of(&standard),
        ring3: Guest::of(&ring3),
    };
    let files = [(cache::STANDARD, standard.as_slice()), (cache::RING3, ring3.as_slice())];
    cache::store(&kept, &manifest, &[files[0], files[1], (cache::SYMBOLS, &symbols), (cache::RING3_SYMBOLS, &ring3_symbols)])?;
    cache::store(out, &manifest, &files)?;
    eprintln!(
        "guest: built in {} s: standard {} KiB, ring3 {} KiB; {}",
        start.elapsed().as_secs(),
        standard.len() / 1024,
        ring3.len() / 1024,
        out.display()
    );
    Ok(())
}

/// Checks the linked guest, and strips everything that the host does not read.
fn finish(symbols: &[u8]) -> Result<Vec<u8>> {
    let version = upstream::REVIEWED[0].1;
    image::check(symbols, version)?;
    let stripped = image::strip(symbols)?;
    image::check(&stripped, version).context("after stripping")?;
    Ok(stripped)
}
