//! Compiles the ring-3 shim to one object file, which the guest is linked with. Checks that the shim can run between any two instructions
//! of the guest: it uses no SSE, has no variables, and calls no code outside itself.

use crate::toolchain::{Toolchain, command};
use crate::upstream::definitions;
use anyhow::{Context, Result, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, elf};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target of rustc without SSE, x87 and a red zone.
const TARGET: &str = "x86_64-unknown-none";
/// Symbols that the object may leave undefined: the linker defines them, or Hyperlight's guest library (`entrypoint`).
const MAY_BE_UNDEFINED: [&str; 5] = ["", "__ehdr_start", "__start_ring3_text", "__stop_ring3_text", "entrypoint"];
/// Relocations through the global offset table, which lies in memory that ring 3 may not be able to read.
const THROUGH_GOT: [u32; 3] = [elf::R_X86_64_GOTPCREL, elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX];
/// The largest stack frame of a function of the shim, in bytes. The shim's stack has 1 KiB; an exception frame and all registers take 176
/// bytes of it.
const LARGEST_FRAME: u64 = 256;

/// Builds the object in `folder` and returns its path.
pub fn build(tools: &Toolchain, sources: &Path, folder: &Path) -> Result<PathBuf> {
    let sysroot = folder.join("sysroot");
    core_library(tools, &sysroot).context("Rust's core does not build for the ring-3 shim")?;
    write_constants(folder)?;
    let compiled = folder.join("compiled.o");
    let mut rustc = rustc(tools, &sysroot);
    rustc.env("RING3_GENERATED", folder).args(["--crate-name", "ring3", "--crate-type", "lib", "--emit", "obj"]);
    rustc.args(["-Copt-level=2", "-Ccodegen-units=1", "-Cforce-unwind-tables=no", "-Zemit-stack-sizes", "-Dwarnings"]);
    run(rustc.arg(format!("--remap-path-prefix={}=/guest", sources.display())).arg(sources.join("src/lib.rs")).arg("-o").arg(&compiled))?;

    let script = folder.join("ring3.ld");
    fs::write(&script, LINK_SCRIPT)?;
    let linked = folder.join("ring3.o");
    let mut lld = command(&tools.lld);
    run(lld.args(["-flavor", "gnu", "-r", "-T"]).arg(script).arg(&compiled).arg("-o").arg(&linked))?;
    check_object(&fs::read(&linked)?)?;
    check_frames(&fs::read(&compiled)?)?;
    check_instructions(&linked)?;
    Ok(linked)
}

/// Puts all code into one section, whose name makes the linker define its start and end. Read-only constants go into the same section,
/// because pages of code are always open to ring 3.
const LINK_SCRIPT: &str = "SECTIONS {
  ring3_text : { *(.text.entry) *(.text .text.*) *(.rodata .rodata.*) }
  /DISCARD/ : { *(.note*) *(.comment) *(.eh_frame*) *(.llvm*) *(.stack_sizes) }
}";

fn rustc(tools: &Toolchain, sysroot: &Path) -> Command {
    let mut rustc = command(&tools.rustc);
    rustc.args(["--edition", "2024", "--target", TARGET, "-Cpanic=abort", "--sysroot"]).arg(sysroot);
    rustc
}

/// Builds Rust's `core` for the target, once for each toolchain, because `folder` belongs to one toolchain. The shim only inlines code of
/// it.
fn core_library(tools: &Toolchain, sysroot: &Path) -> Result<()> {
    let libraries = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    let stamp = sysroot.join("complete");
    if stamp.is_file() {
        return Ok(());
    }
    fs::create_dir_all(&libraries)?;
    let source = tools.rustc.parent().and_then(Path::parent).context("rustc lies in a sysroot")?;
    let source = source.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    let library = |name: &str, source: &Path| {
        let mut rustc = rustc(tools, sysroot);
        rustc.args(["--crate-name", name, "--crate-type", "rlib", "--cap-lints=allow", "-Zforce-unstable-if-unmarked"]);
        run(rustc.arg("--out-dir").arg(&libraries).arg(source))
    };
    library("core", &source)?;
    // Every crate without std needs a crate of this name. It is empty here, because the shim must not call it.
    let builtins = sysroot.join("compiler_builtins.rs");
    fs::write(&builtins, "#![feature(no_core, compiler_builtins)]\n#![no_core]\n#![compiler_builtins]\n")?;
    library("compiler_builtins", &builtins)?;
    fs::write(stamp, "")?;
    Ok(())
}

/// Writes the constants as Rust code and as assembler symbols.
fn write_constants(folder: &Path) -> Result<()> {
    let (mut rust, mut assembly) = (String::new(), String::new());
    for (name, value) in definitions()? {
        writeln!(rust, "pub const {name}: u64 = {value:#x};")?;
        writeln!(assembly, ".set {name}, {}", value.cast_signed())?;
    }
    fs::write(folder.join("constants.rs"), rust)?;
    fs::write(folder.join("constants.s"), assembly)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the ring-3 shim does not build: {} says\n{stderr}", command.get_program().to_string_lossy());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(bytes: &[u8]) -> Result<object::read::elf::ElfFile64<'_, object::Endianness>> {
    Ok(object::read::elf::ElfFile64::parse(bytes)?)
}

/// Checks that the linker defines every undefined symbol, and that there are no variables: writing to a page of the image causes a fault
/// that the shim itself would have to handle.
fn check_object(bytes: &[u8]) -> Result<()> {
    let file = parse(bytes)?;
    for symbol in file.symbols().filter(object::ObjectSymbol::is_undefined) {
        let name = symbol.name()?;
        ensure!(MAY_BE_UNDEFINED.contains(&name), "the ring-3 shim calls `{name}`, which is not part of the shim and may use SSE");
    }
    for section in file.sections().filter(|section| section.size() > 0) {
        let name = section.name()?;
        for (at, relocation) in section.relocations() {
            let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            ensure!(!THROUGH_GOT.contains(&r_type), "the ring-3 shim uses the global offset table, in the section {name} at {at:#x}");
        }
        let is_variable = (name.starts_with(".data") && !name.starts_with(".data.rel.ro")) || name.starts_with(".bss");
        ensure!(!is_variable, "the ring-3 shim has variables in the section {name}; keep them in the shim's page of scratch memory");
    }
    Ok(())
}

/// Checks the stack size of each function. The compiler writes it to `.stack_sizes` (an address, then a LEB128 number), one section for
/// each function.
fn check_frames(bytes: &[u8]) -> Result<()> {
    let file = parse(bytes)?;
    let mut functions = 0;
    for section in file.sections().filter(|section| section.name() == Ok(".stack_sizes")) {
        let data = section.data()?;
        let size = leb128(data.get(8..).context("a short .stack_sizes")?);
        ensure!(size <= LARGEST_FRAME, "a function of the ring-3 shim takes {size} bytes of stack, more than {LARGEST_FRAME}");
        functions += 1;
    }
    ensure!(functions > 0, "the compiler has not written the stack sizes of the ring-3 shim");
    Ok(())
}

fn leb128(bytes: &[u8]) -> u64 {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Checks that the shim uses no vector or x87 registers. The target has none, but an error here would silently change the guest's
/// registers.
fn check_instructions(object: &Path) -> Result<()> {
    let mut objdump = Command::new("objdump");
    let listing = run(objdump.args(["-d", "-j", "ring3_text", "--no-show-raw-insn"]).arg(object))?;
    ensure!(listing.contains("iretq"), "objdump does not show the ring-3 shim's code");
    if let Some(line) = listing.lines().find(|line| touches_vectors(line)) {
        anyhow::bail!("the ring-3 shim uses registers that are not saved: {}", line.trim());
    }
    Ok(())
}

fn touches_vectors(line: &str) -> bool {
    ["%xmm", "%ymm", "%zmm", "%mm", "%st"].iter().any(|register| line.contains(register))
}

#[cfg(test)]
mod tests {
    use super::{leb128, touches_vectors};

    #[test]
    fn a_number_in_leb128_ends_with_its_last_byte() {
        assert_eq!(leb128(&[0x88, 0x01, 0xff]), 136);
        assert_eq!(leb128(&[0x38]), 56);
    }

    #[test]
    fn vector_and_x87_registers_are_found() {
        assert!(touches_vectors("  10:\tmovups %xmm0,(%rdi)"));
        assert!(touches_vectors("  10:\tfld    %st(0)"));
        assert!(!touches_vectors("  10:\trep movsq %ds:(%rsi),%es:(%rdi)"));
    }
}
