//! Walks the guest's page tables and sets the bits that open a page to ring 3.

use crate::calls;
use crate::constants::{
    ALLOCATOR, ALLOCATOR_LIMIT, PAGE_SIZE, PHYS_TO_VIRT, PTE_ADDR_MASK, PTE_PRESENT, PTE_USER, TABLE_ENTRIES, VAR_CR3, VAR_OPENED,
};
use core::ptr::{read_volatile, write_volatile};

/// The number of bytes that one leaf table maps: 2 MiB.
const TABLE_SPAN: u64 = PAGE_SIZE * TABLE_ENTRIES;

/// The root of the page tables. Ring 0 stored it in the shim's page when it was first entered.
pub fn root() -> u64 {
    // SAFETY: the shim's page is always mapped, and no other code uses it.
    unsafe { read_volatile(VAR_CR3 as *const u64) }
}

/// The address of a page-table entry in memory.
#[derive(Clone, Copy)]
pub struct Entry(u64);

impl Entry {
    /// Finds the entry for `address` in a table. `table` is the entry that points to this table, flag bits included.
    fn of(table: u64, address: u64, shift: u32) -> Self {
        Entry((table & PTE_ADDR_MASK).wrapping_add(PHYS_TO_VIRT) + ((address >> (shift - 3)) & (TABLE_ENTRIES - 1) << 3))
    }

    pub fn get(self) -> u64 {
        // SAFETY: entries are only made by the functions of this file, from tables that exist and are open to ring 3.
        unsafe { read_volatile(self.0 as *const u64) }
    }

    pub fn set(self, value: u64) {
        // SAFETY: as above. There is one processor, so only the page-table walker may read the entry meanwhile, and it reads whole words.
        unsafe { write_volatile(self.0 as *mut u64, value) };
    }

    /// The entry `count` places further (or back, if negative). It must be in the same table.
    pub fn neighbour(self, count: i64) -> Self {
        Entry(self.0.wrapping_add_signed(8 * count))
    }

    /// The entry's index in its table.
    pub fn index(self) -> u64 {
        self.0 / 8 & (TABLE_ENTRIES - 1)
    }

    /// Sets the user bit of every page in this entry's table, which opens 2 MiB at once instead of 4 KiB.
    pub fn open_table(self) {
        open_all(self.0 & !(PAGE_SIZE - 1));
    }
}

/// Sets the user bit of every present entry in the table at this virtual address.
fn open_all(table: u64) {
    for index in 0..TABLE_ENTRIES {
        let entry = Entry(table + 8 * index);
        let value = entry.get();
        if value & (PTE_PRESENT | PTE_USER) == PTE_PRESENT {
            entry.set(value | PTE_USER);
        }
    }
}

/// The entry of a page. `opened` is true if a user bit had to be set on the way to it.
pub struct Walked {
    pub entry: Entry,
    pub opened: bool,
}

/// Finds the entry of the page at `address` and sets the user bits on the way to it. Returns `None` if a table is missing.
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

/// Opens the page at `address` and all other pages of its table, if it is mapped. Returns true if it was closed before.
pub fn open(address: u64) -> bool {
    let Some(walked) = walk(address) else { return false };
    let was_closed = walked.entry.get() & (PTE_PRESENT | PTE_USER) == PTE_PRESENT;
    if was_closed {
        walked.entry.open_table();
    }
    was_closed || walked.opened
}

/// Opens all page tables to ring 3 at the first fault after a start or a restore, so that the shim itself never faults on a table. The
/// tables lie side by side: the host places the root first, and its allocator places the others behind. The guest writes later tables
/// itself, which opens them.
pub fn open_tables_once() {
    // SAFETY: the shim's page is always mapped, as in `root`.
    if unsafe { read_volatile(VAR_OPENED as *const u64) } != 0 {
        return;
    }
    // SAFETY: the host keeps the allocator's word at this address, in a page that ring 0 has opened.
    let end = unsafe { read_volatile(ALLOCATOR as *const u64) }.wrapping_add(PHYS_TO_VIRT);
    let mut address = (root() & PTE_ADDR_MASK).wrapping_add(PHYS_TO_VIRT);
    while address < end {
        // SAFETY: the tables lie in scratch memory, which is completely mapped.
        let table = unsafe { calls::open(address) };
        // SAFETY: the leaf table lies in scratch memory too.
        unsafe { calls::open(table) };
        open_all(table);
        address = (address | (TABLE_SPAN - 1)) + 1;
    }
    // SAFETY: the shim's page is always mapped.
    unsafe { write_volatile(VAR_OPENED as *mut u64, 1) };
}

/// Allocates a zeroed page of scratch memory. Like `hyperlight_guest::prim_alloc::alloc_phys_pages(1)`, but returns `None` when the limit
/// is reached, instead of stopping the guest.
pub fn allocate() -> Option<u64> {
    let mut page = PAGE_SIZE;
    // SAFETY: this is the allocator's word, and Hyperlight's allocator adds to it in the same way.
    unsafe { core::arch::asm!("lock xadd [{}], {}", in(reg) ALLOCATOR, inout(reg) page, options(nostack)) };
    (page + PAGE_SIZE < ALLOCATOR_LIMIT).then_some(page)
}

/// Tells if enough memory is left to allocate more pages than necessary.
pub fn is_plentiful() -> bool {
    /// Pages are never freed. A guest that has less memory left than this gets single pages.
    const RESERVE: u64 = 4 << 20;
    // SAFETY: this is the allocator's word.
    unsafe { read_volatile(ALLOCATOR as *const u64) + RESERVE < ALLOCATOR_LIMIT }
}
