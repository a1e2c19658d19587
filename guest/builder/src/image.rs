//! A guest's ELF file: checks that hyperlight-host will load it, strips it, appends the shim.

use crate::shim::Shim;
use anyhow::{Context, Result, bail, ensure};
use hyperlight_common::version_note::HYPERLIGHT_VERSION_SECTION;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, LittleEndian, Object as _, ObjectSection as _, elf};

type File<'a> = ElfFile64<'a, Endianness>;

/// What the shim's linking depends on.
pub struct Layout {
    /// The first free page behind the image, counted from its start.
    pub end: u64,
    pub entry: u64,
}

/// Checks the file, or says why hyperlight-host would refuse it or the shim misread it.
pub fn check(bytes: &[u8], version: &str) -> Result<Layout> {
    let file = File::parse(bytes).context("not an ELF file")?;
    let header = file.elf_header();
    let endian = file.endian();
    ensure!(header.e_type(endian) == elf::ET_DYN, "the guest is not position independent");
    check_relocations(&file)?;
    let note = file.section_by_name(HYPERLIGHT_VERSION_SECTION).context("no note names Hyperlight's version")?;
    let found = note.data()?.windows(version.len()).any(|window| window == version.as_bytes());
    ensure!(found, "the guest was not built with hyperlight-guest-bin {version}");

    let loads = || file.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    let base = loads().map(|header| header.p_vaddr(endian)).min().context("nothing to load")?;
    ensure!(base == 0, "the image starts at {base:#x}, not at 0: the shim would be linked for a wrong address");
    let end = loads().map(|header| header.p_vaddr(endian) + header.p_memsz(endian)).max().unwrap_or(0);
    Ok(Layout { end: end.next_multiple_of(4096), entry: header.e_entry(endian) })
}

/// hyperlight-host knows `R_X86_64_RELATIVE` alone.
fn check_relocations(file: &File) -> Result<()> {
    let Some(relocations) = file.dynamic_relocations() else { return Ok(()) };
    for (offset, relocation) in relocations {
        let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        if r_type != elf::R_X86_64_RELATIVE {
            bail!(
                "the linker left a relocation of type {r_type} at {offset:#x}, which Hyperlight refuses. LLD 19 is known \
                 to; LLD 22 is not. Use rustup's rust-lld (1.95 or newer), or:\n  apt-get install lld-22"
            );
        }
    }
    Ok(())
}

/// Without symbols and comments: what is left is what the host reads.
pub fn strip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut builder = object::build::elf::Builder::read(bytes)?;
    for section in &mut builder.sections {
        let name = section.name.to_string();
        section.delete = matches!(name.as_str(), ".symtab" | ".strtab" | ".comment") || name.starts_with(".debug");
    }
    for symbol in &mut builder.symbols {
        symbol.delete = true;
    }
    let mut out = Vec::new();
    builder.write(&mut out)?;
    Ok(out)
}

/// The guest with the shim behind it, as one more segment in the place of PT_GNU_STACK, which means nothing to the host.
pub fn with_shim(guest: &[u8], shim: &Shim, va: u64) -> Result<Vec<u8>> {
    let header = elf::FileHeader64::<LittleEndian>::parse(guest)?;
    let headers = header.program_headers(LittleEndian, guest)?;
    let index = headers
        .iter()
        .position(|header| header.p_type(LittleEndian) == elf::PT_GNU_STACK)
        .context("no PT_GNU_STACK whose place the shim could take")?;
    let at = header.e_phoff.get(LittleEndian) as usize + index * size_of::<elf::ProgramHeader64<LittleEndian>>();

    let mut out = guest.to_vec();
    out.resize(out.len().next_multiple_of(4096), 0);
    let offset = out.len() as u64;
    let size = shim.bytes.len() as u64;
    out.extend_from_slice(&shim.bytes);
    let flags = elf::PF_R | elf::PF_W | elf::PF_X;
    put(&mut out, at, &(elf::PT_LOAD.to_le_bytes()));
    put(&mut out, at + 4, &flags.to_le_bytes());
    for (field, value) in [offset, va, va, size, size, 4096].into_iter().enumerate() {
        put(&mut out, at + 8 + 8 * field, &value.to_le_bytes());
    }
    put(&mut out, 24, &shim.entry.to_le_bytes()); // e_entry
    Ok(out)
}

/// Writes bytes over others.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
