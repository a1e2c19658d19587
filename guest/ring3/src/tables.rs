//! The guest's page tables, and the bits in them that open a page to ring 3.

use crate::calls;
use crate::constants::{
    ALLOCATOR, ALLOCATOR_LIMIT, PAGE_SIZE, PHYS_TO_VIRT, PTE_ADDR_MASK, PTE_PRESENT, PTE_USER, TABLE_ENTRIES, VAR_CR3, VAR_OPENED,
};
use core::ptr::{read_volatile, write_volatile};

/// What one leaf table maps: 2 MiB.
const TABLE_SPAN: u64 = PAGE_SIZE * TABLE_ENTRIES;

/// The root, as ring 0 left it in the shim's page when it was first entered.
pub fn root() -> u64 {
    // SAFETY: the shim's page is always mapped, and nobody else's.
    unsafe { read_volatile(VAR_CR3 as *const u64) }
}

/// An entry of a page table in memory.
#[derive(Clone, Copy)]
pub struct Entry(u64);

impl Entry {
    /// The entry for `address` in the table at the physical address that `table` has, bits and all.
    fn of(table: u64, address: u64, shift: u32) -> Self {
        Entry((table & PTE_ADDR_MASK).wrapping_add(PHYS_TO_VIRT) + ((address >> (shift - 3)) & (TABLE_ENTRIES - 1) << 3))
    }

    pub fn get(self) -> u64 {
        // SAFETY: entries are made by `walk` and its like alone, from tables that are there and open.
        unsafe { read_volatile(self.0 as *const u64) }
    }

    pub fn set(self, value: u64) {
        // SAFETY: as above. One processor, so nobody reads it meanwhile but the page-table walker, which takes words.
        unsafe { write_volatile(self.0 as *mut u64, value) };
    }

    /// The entry `count` places before or behind, which must be of the same table.
    pub fn neighbour(self, count: i64) -> Self {
        Entry(self.0.wrapping_add_signed(8 * count))
    }

    /// Its place in the table.
    pub fn index(self) -> u64 {
        self.0 / 8 & (TABLE_ENTRIES - 1)
    }

    /// Sets the user bit of every page in this entry's table: 2 MiB at once, not 4 KiB.
    pub fn open_table(self) {
        open_all(self.0 & !(PAGE_SIZE - 1));
    }
}

/// Sets the user bit of every entry of the table at this virtual address.
fn open_all(table: u64) {
    for index in 0..TABLE_ENTRIES {
        let entry = Entry(table + 8 * index);
        let value = entry.get();
        if value & (PTE_PRESENT | PTE_USER) == PTE_PRESENT {
            entry.set(value | PTE_USER);
        }
    }
}

/// A page's entry, and whether the way to it was open to ring 3 before.
pub struct Walked {
    pub entry: Entry,
    pub opened: bool,
}

/// The entry of the page at `address`, with user bits set on the way down to it; nothing if a table is missing.
pub fn walk(address: u64) -> Option<Walked> {
    let mut table = root();
    let mut opened = false;
    for shift in [39, 30, 21] {
        let entry = Entry::of(table, address, shift);
        table = entry.get();
        if table & PTE_PRESENT == 0 {
            return None;
        }
        if table & PTE_USER == 0 {
            entry.set(table | PTE_USER);
            opened = true;
        }
    }
    Some(Walked { entry: Entry::of(table, address, 12), opened })
}

/// Opens the page at `address` with all others of its table, if it is mapped. Says whether it was closed before.
pub fn open(address: u64) -> bool {
    let Some(walked) = walk(address) else { return false };
    let was_closed = walked.entry.get() & (PTE_PRESENT | PTE_USER) == PTE_PRESENT;
    if was_closed {
        walked.entry.open_table();
    }
    was_closed || walked.opened
}

/// On the first fault after a start or a restore: opens all page tables to ring 3, so that the shim never faults on one
/// itself. The host puts them side by side, the root first and its allocator behind; tables that the guest adds later it
/// writes itself, and so opens them.
pub fn open_tables_once() {
    // SAFETY: the shim's page, as in `root`.
    if unsafe { read_volatile(VAR_OPENED as *const u64) } != 0 {
        return;
    }
    // SAFETY: the host keeps the allocator's word there, in a page that ring 0 has opened.
    let end = unsafe { read_volatile(ALLOCATOR as *const u64) }.wrapping_add(PHYS_TO_VIRT);
    let mut address = (root() & PTE_ADDR_MASK).wrapping_add(PHYS_TO_VIRT);
    while address < end {
        // SAFETY: scratch memory, in which the tables lie, is all mapped.
        let table = unsafe { calls::open(address) };
        // SAFETY: and so is the table itself.
        unsafe { calls::open(table) };
        open_all(table);
        address = (address | (TABLE_SPAN - 1)) + 1;
    }
    // SAFETY: the shim's page.
    unsafe { write_volatile(VAR_OPENED as *mut u64, 1) };
}

/// A page of scratch memory, zeroed: `hyperlight_guest::prim_alloc::alloc_phys_pages(1)`, with the same limit, but nothing
/// instead of an abort.
pub fn allocate() -> Option<u64> {
    let mut page = PAGE_SIZE;
    // SAFETY: the allocator's word; upstream adds to it in the same way.
    unsafe { core::arch::asm!("lock xadd [{}], {}", in(reg) ALLOCATOR, inout(reg) page, options(nostack)) };
    (page + PAGE_SIZE < ALLOCATOR_LIMIT).then_some(page)
}

/// Is there so much left that a few pages more or less will not matter?
pub fn is_plentiful() -> bool {
    /// Pages are never given back, so a guest that comes near its end gets them one by one.
    const RESERVE: u64 = 4 << 20;
    // SAFETY: the allocator's word.
    unsafe { read_volatile(ALLOCATOR as *const u64) + RESERVE < ALLOCATOR_LIMIT }
}
