//! Compiles and links the ring-3 shim for one guest, and fills in its descriptor tables.

use crate::image::{Layout, put};
use crate::toolchain::{Toolchain, command};
use crate::upstream::{LOAD_BASE, definitions};
use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

pub struct Shim {
    pub bytes: Vec<u8>,
    /// Counted from the start of the image, as in an ELF header.
    pub entry: u64,
}

/// No SSE and no red zone, as in a kernel: the shim runs between two instructions of the guest.
const C_FLAGS: [&str; 17] = [
    "--target=x86_64-unknown-none-elf",
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wframe-larger-than=256",
    "-ffreestanding",
    "-fno-pic",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-jump-tables",
    "-fno-vectorize",
    "-fno-slp-vectorize",
];

pub fn build(tools: &Toolchain, sources: &Path, layout: &Layout) -> Result<Shim> {
    let base = LOAD_BASE + layout.end;
    let mut defines: Vec<String> = definitions()?.iter().map(|(name, value)| format!("-D{name}={value:#x}")).collect();
    defines.push(format!("-DUPSTREAM_ENTRY={:#x}", LOAD_BASE + layout.entry));
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path();
    for source in ["r0.S", "r3.c"] {
        let object = folder.join(source).with_extension("o");
        let mut clang = command(&tools.clang);
        clang.args(C_FLAGS.iter().filter(|flag| source == "r3.c" || !flag.starts_with("-std")));
        run(clang.args(["-Wno-unused-command-line-argument", "-c"]).arg(sources.join(source)).arg("-o").arg(object).args(&defines))?;
    }
    let script = folder.join("shim.ld");
    std::fs::write(&script, link_script(base))?;
    let linked = folder.join("shim.elf");
    let mut lld = command(&tools.lld);
    lld.args(["-flavor", "gnu", "-nostdlib", "-static", "-e", "shim_entry", "-T"]).arg(&script).arg("-o").arg(&linked);
    run(lld.arg(folder.join("r0.o")).arg(folder.join("r3.o")))?;
    flatten(&std::fs::read(linked)?, base)
}

/// Code first, tables on a page of their own, nothing else.
fn link_script(base: u64) -> String {
    format!(
        "SECTIONS {{
  . = {base:#x};
  .text : {{ *(.text.entry) *(.text*) *(.rodata*) shim_code_end = .; }}
  . = ALIGN(4096);
  .data : {{ *(.data*) }}
  .bss : {{ *(.bss*) *(COMMON) }}
  /DISCARD/ : {{ *(.note*) *(.comment) *(.eh_frame*) *(.llvm*) }}
}}"
    )
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the ring-3 shim does not build: {} says\n{stderr}", command.get_program().to_string_lossy());
    Ok(())
}

/// The linked shim as it lies in memory, with its tables filled in.
fn flatten(linked: &[u8], base: u64) -> Result<Shim> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(linked)?;
    let mut bytes = Vec::new();
    for section in file.sections().filter(|section| section.address() >= base && section.size() > 0) {
        ensure!(section.name()? != ".bss", "the shim has variables: its memory is copied on write, it must have none");
        let at = (section.address() - base) as usize;
        let data = section.data()?;
        bytes.resize(bytes.len().max(at + data.len()), 0);
        put(&mut bytes, at, data);
    }
    let symbols: HashMap<&str, u64> = file.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.address()))).collect();
    let symbol = |name: &str| symbols.get(name).copied().with_context(|| format!("the shim has no {name}"));
    let end = base + bytes.len() as u64;
    ensure!(end < 1 << 31, "the image ends at {end:#x}: the shim has addresses of 31 bits");

    let task_state = symbol("shim_tss")?;
    let limit = symbol("shim_tss_end")? - task_state - 1;
    let gdt = (symbol("shim_gdt")? - base) as usize;
    put(&mut bytes, gdt + 0x38, &task_descriptor(task_state, limit));
    let idt = (symbol("shim_idt")? - base) as usize;
    for vector in 0..32 {
        // Vectors without a handler cannot happen; upstream has none either.
        if let Some(handler) = symbols.get(format!("v{vector}").as_str()) {
            put(&mut bytes, idt + 16 * vector, &gate(*handler));
        }
    }
    Ok(Shim { bytes, entry: symbol("shim_entry")? - LOAD_BASE })
}

/// A task-state descriptor in the GDT: 16 bytes, the address in four pieces.
fn task_descriptor(address: u64, limit: u64) -> [u8; 16] {
    let low = (limit & 0xffff) | (address & 0xff_ffff) << 16 | 0x89 << 40 | (address >> 24 & 0xff) << 56;
    let mut out = [0; 16];
    put(&mut out, 0, &low.to_le_bytes());
    put(&mut out, 8, &(address >> 32).to_le_bytes());
    out
}

/// An interrupt gate to ring 0 (selector 8) with stack 1, not callable from ring 3.
fn gate(handler: u64) -> [u8; 16] {
    let low = (handler & 0xffff) | 8 << 16 | 1 << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    let mut out = [0; 16];
    put(&mut out, 0, &low.to_le_bytes());
    put(&mut out, 8, &(handler >> 32).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::{gate, task_descriptor};

    #[test]
    fn a_gate_splits_the_address() {
        assert_eq!(gate(0x1122_3344_5566_7788), [0x88, 0x77, 8, 0, 1, 0x8e, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
    }

    #[test]
    fn a_task_descriptor_splits_the_address() {
        assert_eq!(
            task_descriptor(0x1122_3344_5566_7788, 0x78),
            [0x78, 0, 0x88, 0x77, 0x66, 0x89, 0, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]
        );
    }
}
