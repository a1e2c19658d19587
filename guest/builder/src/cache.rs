//! The cache of built guests. A guest is stored in the cache folder under a digest of its sources and toolchain, and copied from there to
//! `out/`.

use crate::toolchain::Toolchain;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub const STANDARD: &str = "hyperlight-mcp-guest.standard";
pub const RING3: &str = "hyperlight-mcp-guest.ring3";
/// The guests with symbols, for debugging. They stay in the cache folder.
pub const SYMBOLS: &str = "hyperlight-mcp-guest.symbols";
pub const RING3_SYMBOLS: &str = "hyperlight-mcp-guest.ring3.symbols";
pub const MANIFEST: &str = "guest.json";

/// The content of `guest.json`.
#[derive(Serialize, Deserialize, PartialEq)]
pub struct Manifest {
    /// The digest of the sources and the toolchain.
    pub digest: String,
    /// The digest of the sources alone. A machine without a toolchain uses it to tell if its guests are up to date.
    pub sources: String,
    pub toolchain: String,
    pub hyperlight: String,
    pub standard: Guest,
    pub ring3: Guest,
}

#[derive(Serialize, Deserialize, PartialEq)]
pub struct Guest {
    pub sha256: String,
    pub bytes: usize,
}

impl Guest {
    pub fn of(bytes: &[u8]) -> Self {
        Guest { sha256: hex(&Sha256::digest(bytes)), bytes: bytes.len() }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the digest of the names and contents of all files that go into a guest.
pub fn sources_digest(guest: &Path) -> Result<String> {
    let mut files = Vec::new();
    for part in ["Cargo.toml", "Cargo.lock", "runtime", "builder", "ring3"] {
        collect(&guest.join(part), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let bytes = fs::read(&file)?;
        let name = file.strip_prefix(guest)?.to_string_lossy().into_owned();
        hash.update(format!("{name}\n{}\n", bytes.len()));
        hash.update(&bytes);
    }
    Ok(hex(&hash.finalize()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('.') || name == "target" || name.ends_with(".md") {
        return Ok(());
    }
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

pub fn digest(sources: &str, tools: &Toolchain) -> String {
    hex(&Sha256::digest(format!("{sources}\n{}", tools.versions)))
}

/// Returns the cache folder of the guests with this digest.
pub fn folder(digest: &str) -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(base.join("hyperlight-mcp/guest").join(digest))
}

/// Returns the manifest of the guests in a folder, if all files exist and match it.
pub fn load(folder: &Path) -> Option<Manifest> {
    let manifest: Manifest = serde_json::from_slice(&fs::read(folder.join(MANIFEST)).ok()?).ok()?;
    let matches = |name: &str, guest: &Guest| fs::read(folder.join(name)).is_ok_and(|bytes| Guest::of(&bytes) == *guest);
    (matches(STANDARD, &manifest.standard) && matches(RING3, &manifest.ring3)).then_some(manifest)
}

/// Writes files to a folder. The manifest is written last, because its existence shows that the other files are complete.
pub fn store(folder: &Path, manifest: &Manifest, files: &[(&str, &[u8])]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let json = serde_json::to_vec_pretty(manifest)?;
    for (name, bytes) in files.iter().copied().chain([(MANIFEST, json.as_slice())]) {
        // The file is written under a temporary name and renamed, so that a reader sees either the old or the new content.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut file, bytes)?;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?; // only the owner can read a temporary file
        file.persist(folder.join(name)).with_context(|| format!("cannot write {name} in {}", folder.display()))?;
    }
    Ok(())
}
