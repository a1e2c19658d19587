//! Collects everything that the ring-3 shim relies on in Hyperlight, taken from Hyperlight's own crates.
//!
//! There are four kinds of sources, the strongest first:
//! 1. `const` values: public constants, and constants of private files of `hyperlight-guest-bin`, which are compiled into the builder;
//! 2. page-table entries: Hyperlight's own mapping code makes them when the builder runs ([`Entries::made_by_upstream`]);
//! 3. public functions: they are called when the builder runs, and their results are compared ([`check_functions`]);
//! 4. literals inside function bodies (the allocator's limit, the load base, CR0 and CR4, the rules of the page-fault handler): a person
//!    has read them in the sources with the checksums in [`REVIEWED`]. If the load base or the IDT is at another address, the shim stops
//!    the guest's first boot with a message.
//!
//! If an assertion fails, Hyperlight has changed. Then compare its new code with `ring3/src` and correct both the shim and this file.

use anyhow::{Result, bail, ensure};
use hyperlight_common::flatbuffer_wrappers::guest_error::ErrorCode;
use hyperlight_common::layout::{
    SCRATCH_TOP_ALLOCATOR_OFFSET, SCRATCH_TOP_EXN_STACK_OFFSET, SCRATCH_TOP_GPA, SCRATCH_TOP_GVA, SCRATCH_TOP_SIZE_OFFSET,
    scratch_base_gpa, scratch_base_gva,
};
use hyperlight_common::outb::{OutBAction, VmAction};
use hyperlight_common::vmem::{
    BasicMapping, CowMapping, Mapping, MappingKind, MayNotMoveTable, PAGE_PRESENT, PAGE_SIZE, PAGE_TABLE_ENTRIES_PER_TABLE, PTE_ADDR_MASK,
    TableOps, TableReadOps, Void, map,
};
use hyperlight_guest::layout::{MAIN_STACK_LIMIT_GVA, MAIN_STACK_TOP_GVA};
use std::cell::RefCell;

/// The versions whose sources were read when the shim was written, with their checksums from Cargo.lock.
pub const REVIEWED: [(&str, &str, &str); 4] = [
    ("hyperlight-common", "0.17.0", "3ad5576d6ef947dc2822c2f5038ddff8325c158ddef4cbabf9d0b125294cdb0f"),
    ("hyperlight-guest", "0.17.0", "816f673f3f8ef6d5703796bf92927b85177ad1baac6f391551a88451a9e46a7e"),
    ("hyperlight-guest-bin", "0.17.0", "9c2d0ea739be89822992706da9dc6812ce359b654b328efd6141ba1549751907"),
    ("hyperlight-host", "0.17.0", "d85dcf5ae7a578e1b09bdeb76cc3b3ca8e6e57d6395d2f57204aec45c1bbbde9"),
];

/// Private files of `hyperlight-guest-bin`.
#[allow(dead_code, clippy::all)]
mod guest_bin {
    include!(concat!(env!("OUT_DIR"), "/guest_bin.rs"));

    use std::mem::{offset_of, size_of};

    pub const IDT: u64 = layout::PROC_CONTROL_GVA + offset_of!(machine::ProcCtrl, idt) as u64;
    /// An exception frame has six words, the error code first.
    const _: () = assert!(size_of::<machine::ExceptionInfo>() == 48);
    const _: () = assert!(offset_of!(machine::ExceptionInfo, error_code) == 0);
    const _: () = assert!(offset_of!(machine::ExceptionInfo, rip) == 8);
    const _: () = assert!(offset_of!(machine::ExceptionInfo, rflags) == 24);
    /// A gate has sixteen bytes (the shim shifts by four), and the address of its handler is split.
    const _: () = assert!(size_of::<machine::IdtEntry>() == 16);
}

/// The address to which `hyperlight-host` loads the first byte of the image: `SandboxMemoryLayout::BASE_ADDRESS`, which is private. That
/// crate asserts the value (`snapshot/tripwires.rs`), and `shim_entry` compares it at boot.
pub const LOAD_BASE: u64 = 0x4000;

const PAGE: u64 = PAGE_SIZE as u64;
const TOP_GVA: u64 = SCRATCH_TOP_GVA as u64 + 1;
/// The pages that `alloc_phys_pages` reserves at the top of scratch memory: one for the exception stack and the metadata, and one below it.
/// The lower page is unused unless the exception stack overflows, so the shim uses the lower page.
const RESERVED_PAGES: u64 = 2;
const ALLOCATOR_LIMIT: u64 = SCRATCH_TOP_GPA as u64 - RESERVED_PAGES * PAGE;
const PHYS_TO_VIRT: u64 = SCRATCH_TOP_GVA as u64 - SCRATCH_TOP_GPA as u64;
const EXN_STACK_TOP: u64 = TOP_GVA - SCRATCH_TOP_EXN_STACK_OFFSET;

/// The layout of the shim's page, from its start: four words; the ring-0 stack, for one frame and eight words; the ring-3 stack, for one
/// frame, all registers and Rust frames, which the builder limits to 256 bytes each. More than half of the page is left for an exception
/// stack that grows beyond its own page.
const SHIM_VARS: u64 = TOP_GVA - RESERVED_PAGES * PAGE;
const SHIM_RING0_STACK: u64 = SHIM_VARS + 0x200;
const SHIM_RING3_STACK: u64 = SHIM_VARS + 0x600;

/// The number of pages that are copied together on a write: a power of two. See docs/GUEST.md for the measurements.
const CLUSTER: u64 = 4;
/// The number of pages by which the stack grows: a power of two. See docs/GUEST.md for the measurements.
const STACK_CLUSTER: u64 = 16;

/// The number of ports that the I/O permission bitmap opens.
const IO_PORTS: u64 = 128;

const _: () = assert!(PAGE == 4096 && PAGE_TABLE_ENTRIES_PER_TABLE == 512, "the shim walks four-level tables of 4 KiB");
const _: () = assert!(CLUSTER.is_power_of_two() && CLUSTER <= 512, "an aligned cluster lies in one table");
const _: () = assert!(SCRATCH_TOP_GVA as u64 & (PAGE - 1) == PAGE - 1, "scratch memory ends with a page");
const _: () = assert!(SCRATCH_TOP_GPA as u64 & (PAGE - 1) == PAGE - 1, "scratch memory ends with a page in physical memory too");
const _: () = assert!(SHIM_VARS >> 31 == (1 << 33) - 1, "the shim's page is addressed by sign-extended 32 bits");
const _: () = assert!(SHIM_VARS & (PAGE - 1) == 0 && SHIM_RING3_STACK < SHIM_VARS + PAGE, "the shim's data lies within its page");
const _: () = assert!(SHIM_RING0_STACK.is_multiple_of(16) && SHIM_RING3_STACK.is_multiple_of(16), "stacks are aligned");
const _: () = assert!(SHIM_VARS - PHYS_TO_VIRT + PAGE > ALLOCATOR_LIMIT, "the allocator never allocates the shim's page");
const _: () = assert!(EXN_STACK_TOP.is_multiple_of(16), "the exception stack is aligned");
const _: () = assert!(EXN_STACK_TOP > SHIM_VARS + PAGE && EXN_STACK_TOP < TOP_GVA, "the exception stack is in the last page");
const _: () = assert!(EXN_STACK_TOP - SHIM_RING3_STACK >= 6 * 1024, "there is room between the exception stack and the shim's stack");
const _: () = assert!(SCRATCH_TOP_ALLOCATOR_OFFSET < SCRATCH_TOP_EXN_STACK_OFFSET, "the allocator's word is above the exception stack");
const _: () = assert!(SCRATCH_TOP_SIZE_OFFSET < SCRATCH_TOP_EXN_STACK_OFFSET, "the size of scratch memory is above the exception stack");
const _: () =
    assert!(MAIN_STACK_LIMIT_GVA < MAIN_STACK_TOP_GVA && MAIN_STACK_TOP_GVA < SHIM_VARS, "the main stack is below the shim's page");
const _: () = assert!(guest_bin::IDT & (PAGE - 1) == 0, "the IDT begins at the start of a page");
const _: () = assert!(PAGE_PRESENT == 1 && PTE_ADDR_MASK == 0x000f_ffff_ffff_f000, "x86 entries");
const _: () = assert!((OutBAction::Log as u64) < IO_PORTS && (OutBAction::DebugPrint as u64) < IO_PORTS);
const _: () = assert!((OutBAction::CallFunction as u64) < IO_PORTS && (OutBAction::Abort as u64) < IO_PORTS);
const _: () = assert!((VmAction::Halt as u64) < IO_PORTS && (VmAction::PvTimerConfig as u64) < IO_PORTS);

/// Returns the constants with which the shim is compiled.
pub fn definitions() -> Result<Vec<(&'static str, u64)>> {
    check_functions()?;
    let entries = Entries::made_by_upstream()?;
    Ok(vec![
        ("LOAD_BASE", LOAD_BASE),
        ("CLUSTER", CLUSTER),
        ("STACK_CLUSTER", STACK_CLUSTER),
        ("SHIM_VARS", SHIM_VARS),
        ("VAR_CR3", SHIM_VARS), // copies of control registers, which ring 3 cannot read; 0 until the first page fault
        ("VAR_CR2", SHIM_VARS + 8),
        ("VAR_TARGET", SHIM_VARS + 16), // address of Hyperlight's handler, for an indirect jump that changes no register
        ("VAR_OPENED", SHIM_VARS + 24), // not zero once all page tables are open
        ("SHIM_RING0_STACK", SHIM_RING0_STACK),
        ("SHIM_RING3_STACK", SHIM_RING3_STACK),
        ("EXN_STACK_TOP", EXN_STACK_TOP),
        ("UPSTREAM_IDT", guest_bin::IDT),
        ("GATE_OFFSET_LOW", 0),
        ("GATE_OFFSET_MID", 6),
        ("STACK_LIMIT", MAIN_STACK_LIMIT_GVA),
        ("STACK_TOP", MAIN_STACK_TOP_GVA),
        ("ALLOCATOR", TOP_GVA - SCRATCH_TOP_ALLOCATOR_OFFSET),
        ("ALLOCATOR_LIMIT", ALLOCATOR_LIMIT),
        ("PHYS_TO_VIRT", PHYS_TO_VIRT),
        ("PAGE_SIZE", PAGE),
        ("TABLE_ENTRIES", PAGE_TABLE_ENTRIES_PER_TABLE as u64),
        ("PTE_ADDR_MASK", PTE_ADDR_MASK),
        ("PTE_PRESENT", PAGE_PRESENT),
        ("PTE_USER", USER),
        ("PTE_WRITABLE", entries.writable),
        ("PTE_NO_EXECUTE", entries.no_execute),
        ("PTE_COPY_ON_WRITE", entries.copy_on_write),
        ("PTE_SOFTWARE_MASK", SOFTWARE_MASK),
        ("PTE_PAGE_FLAGS", entries.page_flags),
        ("PORT_ABORT", OutBAction::Abort as u64),
        ("ABORT_CODE", ErrorCode::GuestError as u64),
        ("IO_PORTS", IO_PORTS),
        // Values of hyperlight-host's `CommonSpecialRegisters::standard_64bit_defaults`. The guest writes back the values that it reads,
        // and the shim drops these writes, so a wrong value here would have no effect.
        ("CR0_VALUE", 0x8005_0033),
        ("CR4_VALUE", 0x620),
        ("CR4_GLOBAL_PAGES", 0x80),
        ("RFLAGS_IOPL", 0x3000),
        ("CALL_INVALIDATE", 0),
        ("CALL_SET_CR3", 1),
        ("CALL_ALLOW_IO", 2),
        ("CALL_OPEN", 3),
    ])
}

/// Checks that the layout of the sandbox memory matches the constants above, for several sizes.
fn check_functions() -> Result<()> {
    for size in [0x2_0000, 0x10_0000, 0x400_0000, 0x4000_0000] {
        let offset = scratch_base_gva(size).wrapping_sub(scratch_base_gpa(size));
        ensure!(offset == PHYS_TO_VIRT, "scratch memory of {size:#x} bytes is mapped at another offset: {offset:#x}");
    }
    let allocator = hyperlight_guest::layout::allocator_gva() as u64;
    ensure!(allocator == TOP_GVA - SCRATCH_TOP_ALLOCATOR_OFFSET, "the allocator's word is at {allocator:#x}");
    Ok(())
}

/// Checks that `lock` (the text of a Cargo.lock) contains the reviewed versions of these crates. Crates that are not in the lock file are
/// not checked.
pub fn check_reviewed(lock: &str) -> Result<()> {
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.and_then(|rest| rest.strip_suffix('"'))
        };
        let Some((name, version, checksum)) = REVIEWED.iter().find(|reviewed| field("name") == Some(reviewed.0)) else {
            continue;
        };
        if field("version") != Some(version) || field("checksum") != Some(checksum) {
            bail!(
                "{name} {} is not the {version} that guest/ring3 was written for: the shim relies on private details \
                 of that crate. Compare its new code with guest/ring3, then put its version and checksum into \
                 REVIEWED in guest/builder/src/upstream.rs.",
                field("version").unwrap_or("of unknown version")
            );
        }
    }
    Ok(())
}

/// The bits of a page-table entry that x86 leaves to software.
const SOFTWARE_MASK: u64 = 0xe00;
const USER: u64 = 4;

/// Flags of the page-table entries that Hyperlight's own code makes.
struct Entries {
    writable: u64,
    no_execute: u64,
    copy_on_write: u64,
    /// The flags of a page that may be read, written and executed.
    page_flags: u64,
}

impl Entries {
    fn made_by_upstream() -> Result<Self> {
        let basic = |writable, executable| leaf(MappingKind::Basic(BasicMapping { readable: true, writable, executable }));
        let copied = leaf(MappingKind::Cow(CowMapping { readable: true, executable: true }));
        let no_execute = basic(true, false) ^ basic(true, true);
        let writable = basic(true, true) ^ basic(false, true);
        let entries = Entries { writable, no_execute, copy_on_write: copied & SOFTWARE_MASK, page_flags: basic(true, true) };
        ensure!(writable == 2 && no_execute == 1 << 63, "Hyperlight uses other bits than x86: {writable:#x}, {no_execute:#x}");
        ensure!(entries.page_flags == 0x63, "the shim does not support the page-table flags {:#x}", entries.page_flags);
        ensure!(entries.copy_on_write != 0, "copy-on-write pages are not marked in the software bits of their entries");
        ensure!(copied & writable == 0, "copy-on-write pages are writable");
        ensure!(basic(false, true) & SOFTWARE_MASK == 0, "read-only pages are marked as copy-on-write");
        ensure!((copied | entries.page_flags) & USER == 0, "pages are already open to ring 3, so the shim is not needed");
        Ok(entries)
    }
}

/// Uses Hyperlight's own code to map one page, in page tables of this program. Returns the flags of the page's entry.
fn leaf(kind: MappingKind) -> u64 {
    let tables = Tables(RefCell::new(vec![0; PAGE_TABLE_ENTRIES_PER_TABLE]));
    let mapping = Mapping { phys_base: 0x1_0000, virt_base: 0x1_0000, len: PAGE, kind };
    // SAFETY: the tables are normal memory of this program. `map` is unsafe because it usually changes the active page tables.
    unsafe { map(&tables, mapping) };
    let entries = tables.0.borrow();
    let entry = entries.iter().find(|entry| *entry & PTE_ADDR_MASK == 0x1_0000);
    entry.map_or(0, |entry| entry & !PTE_ADDR_MASK)
}

/// Page tables in a vector, for [`leaf`]. The root page table comes first.
struct Tables(RefCell<Vec<u64>>);

/// The physical address of the root page table in [`Tables`]. It is far from the page that [`leaf`] maps.
const ROOT: u64 = 0x10_0000;

impl TableReadOps for Tables {
    type TableAddr = u64;
    fn entry_addr(address: u64, offset: u64) -> u64 {
        address + offset
    }
    unsafe fn read_entry(&self, address: u64) -> u64 {
        self.0.borrow()[(address - ROOT) as usize / 8]
    }
    fn to_phys(address: u64) -> u64 {
        address
    }
    fn from_phys(address: u64) -> u64 {
        address
    }
    fn root_table(&self) -> u64 {
        ROOT
    }
}

impl TableOps for Tables {
    type TableMovability = MayNotMoveTable;
    unsafe fn alloc_table(&self) -> u64 {
        let mut entries = self.0.borrow_mut();
        let address = ROOT + entries.len() as u64 * 8;
        let longer = entries.len() + PAGE_TABLE_ENTRIES_PER_TABLE;
        entries.resize(longer, 0);
        address
    }
    unsafe fn write_entry(&self, address: u64, entry: u64) -> Option<Void> {
        self.0.borrow_mut()[(address - ROOT) as usize / 8] = entry;
        None
    }
    unsafe fn update_root(&self, new_root: Void) {
        match new_root {}
    }
}
