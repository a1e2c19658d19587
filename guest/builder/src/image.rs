//! Works on a guest's ELF file: checks that hyperlight-host will load it, strips it, and fills in the tables of the ring-3 shim.

use crate::upstream::LOAD_BASE;
use anyhow::{Context, Result, bail, ensure};
use hyperlight_common::version_note::HYPERLIGHT_VERSION_SECTION;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, elf};
use std::collections::HashMap;

type File<'a> = ElfFile64<'a, Endianness>;

/// Checks the file. The error says why hyperlight-host would refuse the file, or why the shim would misread it.
pub fn check(bytes: &[u8], version: &str) -> Result<()> {
    let file = File::parse(bytes).context("not an ELF file")?;
    let header = file.elf_header();
    let endian = file.endian();
    ensure!(header.e_type(endian) == elf::ET_DYN, "the guest is not position independent");
    check_relocations(&file)?;
    let note = file.section_by_name(HYPERLIGHT_VERSION_SECTION).context("the guest has no ELF note with Hyperlight's version")?;
    let found = note.data()?.windows(version.len()).any(|window| window == version.as_bytes());
    ensure!(found, "the guest was not built with hyperlight-guest-bin {version}");

    let loads = || file.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    let base = loads().map(|header| header.p_vaddr(endian)).min().context("the guest has no loadable segment")?;
    ensure!(base == 0, "the image starts at {base:#x}, not at 0: the shim's tables would have wrong addresses");
    let end = loads().map(|header| header.p_vaddr(endian) + header.p_memsz(endian)).max().unwrap_or(0);
    ensure!(LOAD_BASE + end < 1 << 31, "the image ends at {end:#x}: the shim looks up addresses of 31 bits");
    Ok(())
}

/// Checks that the file only has relocations of the type `R_X86_64_RELATIVE`, the only type that hyperlight-host supports.
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

/// Removes symbols, comments and debug information, which the host does not read.
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

/// Checks that the guest's entry point is the function with this name. The file must have its symbols.
pub fn check_entry(bytes: &[u8], name: &str) -> Result<()> {
    let file = File::parse(bytes)?;
    let entry = file.entry();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address());
    ensure!(found == Some(entry), "the guest's entry point is {entry:#x}, but it must be {name}, which is at {found:#x?}");
    Ok(())
}

/// Fills the addresses into the shim's GDT and IDT. An address is split over several fields there, which no relocation can express. The
/// addresses are known because the host loads every guest at the same address.
pub fn fill_tables(bytes: &[u8]) -> Result<Vec<u8>> {
    let file = File::parse(bytes)?;
    let symbols: HashMap<&str, u64> = file.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.address()))).collect();
    let symbol = |name: &str| symbols.get(name).copied().with_context(|| format!("the ring-3 guest has no {name}"));
    let offset = |address: u64| offset_of(&file, address);
    let mut out = bytes.to_vec();

    let task_state = symbol("shim_tss")?;
    let limit = symbol("shim_tss_end")? - task_state - 1;
    put(&mut out, offset(symbol("shim_gdt")? + 0x38)?, &task_descriptor(LOAD_BASE + task_state, limit));
    let idt = symbol("shim_idt")?;
    for vector in 0..32 {
        // Exceptions without a handler cannot happen; Hyperlight's IDT has no handler for them either.
        if let Some(handler) = symbols.get(format!("shim_vector_{vector}").as_str()) {
            put(&mut out, offset(idt + 16 * vector)?, &gate(LOAD_BASE + handler, stack_of(vector)));
        }
    }
    Ok(out)
}

/// Returns the offset in the file at which the bytes of this address of the image are.
fn offset_of(file: &File, address: u64) -> Result<usize> {
    let endian = file.endian();
    let holds = |header: &&elf::ProgramHeader64<Endianness>| {
        let start = header.p_vaddr(endian);
        header.p_type(endian) == elf::PT_LOAD && (start..start + header.p_filesz(endian)).contains(&address)
    };
    let header = file.elf_program_headers().iter().find(holds).with_context(|| format!("no segment of the guest contains {address:#x}"))?;
    Ok(usize::try_from(address - header.p_vaddr(endian) + header.p_offset(endian))?)
}

/// Returns the number of the stack on which an exception arrives. Protection and page faults use the shim's ring-3 stack (1). The other
/// exceptions can also happen inside the shim, because its calls of ring 0 are invalid instructions, so they must not overwrite that stack.
fn stack_of(vector: u64) -> u64 {
    if matches!(vector, 13 | 14) { 1 } else { 2 }
}

/// Makes a task-state descriptor of the GDT: 16 bytes, with the address in four pieces.
fn task_descriptor(address: u64, limit: u64) -> [u8; 16] {
    let low = (limit & 0xffff) | (address & 0xff_ffff) << 16 | 0x89 << 40 | (address >> 24 & 0xff) << 56;
    let mut out = [0; 16];
    put(&mut out, 0, &low.to_le_bytes());
    put(&mut out, 8, &(address >> 32).to_le_bytes());
    out
}

/// Makes an interrupt gate to ring 0 (selector 8) that uses its own stack and cannot be called from ring 3.
fn gate(handler: u64, stack: u64) -> [u8; 16] {
    let low = (handler & 0xffff) | 8 << 16 | stack << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    let mut out = [0; 16];
    put(&mut out, 0, &low.to_le_bytes());
    put(&mut out, 8, &(handler >> 32).to_le_bytes());
    out
}

/// Overwrites the bytes at `at`.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::{gate, task_descriptor};

    #[test]
    fn a_gate_splits_the_address() {
        assert_eq!(gate(0x1122_3344_5566_7788, 2), [0x88, 0x77, 8, 0, 2, 0x8e, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
    }

    #[test]
    fn a_task_descriptor_splits_the_address() {
        assert_eq!(
            task_descriptor(0x1122_3344_5566_7788, 0x78),
            [0x78, 0, 0x88, 0x77, 0x66, 0x89, 0, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]
        );
    }
}
