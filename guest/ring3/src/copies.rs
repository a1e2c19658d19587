//! Allocates pages while the guest runs: copies of pages of the snapshot, and pages of the growing stack.

use crate::constants::{
    CLUSTER, PAGE_SIZE, PHYS_TO_VIRT, PTE_COPY_ON_WRITE, PTE_NO_EXECUTE, PTE_PAGE_FLAGS, PTE_PRESENT, PTE_SOFTWARE_MASK, PTE_USER,
    PTE_WRITABLE, STACK_CLUSTER, STACK_LIMIT,
};
use crate::tables::{Entry, allocate, is_plentiful, open};

/// Tells if the entry is a page of the snapshot that must be copied before it is written.
pub fn is_copied_on_write(entry: u64) -> bool {
    entry & (PTE_PRESENT | PTE_WRITABLE | PTE_SOFTWARE_MASK) == PTE_PRESENT | PTE_COPY_ON_WRITE
}

/// Handles the first write to a page since the snapshot. Copies the page and its neighbours, because a fault costs more than a few copies.
/// Returns false if no memory is left; then the guest's own handler tries the same, fails and reports it.
pub fn copy_around(address: u64, entry: Entry) -> bool {
    if !copy(address, entry) {
        return false;
    }
    if is_plentiful() {
        // The cluster is aligned to a power of two, so all its entries are in one table.
        let before = entry.index() % CLUSTER;
        let first = entry.neighbour(-(before as i64));
        for index in 0..CLUSTER {
            let neighbour = first.neighbour(index as i64);
            let page = (address & !(CLUSTER * PAGE_SIZE - 1)) + index * PAGE_SIZE;
            if is_copied_on_write(neighbour.get()) && !copy(page, neighbour) {
                break;
            }
        }
    }
    true
}

fn copy(address: u64, entry: Entry) -> bool {
    let Some(page) = allocate() else { return false };
    let target = page.wrapping_add(PHYS_TO_VIRT);
    // The copy is written through the mapping of scratch memory, which must be open to ring 3 as well. A fault at this point would
    // overwrite the exception frame that is being handled.
    open(target);
    // SAFETY: the source is mapped and open, as its entry says. The target is a new page that no other code uses.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rdi") target => _,
            inout("rsi") address & !(PAGE_SIZE - 1) => _,
            inout("rcx") PAGE_SIZE / 8 => _,
            options(nostack, preserves_flags),
        );
    }
    // No invlpg is needed: the fault has dropped the old translation of the faulting page. The old translation of a neighbour may remain;
    // it is read-only and has the same content. The first write to the neighbour faults, and `faults` then drops the old translation. An
    // invlpg for each page would cost a switch to ring 0.
    entry.set(entry.get() & PTE_NO_EXECUTE | page | PTE_PAGE_FLAGS | PTE_USER);
    true
}

/// Grows the main stack: maps the page at `address` and some pages below it. The host provides memory for a page only when it is touched.
pub fn grow_stack(address: u64, entry: Entry) -> bool {
    let map = |entry: Entry| {
        let page = allocate();
        if let Some(page) = page {
            entry.set(PTE_NO_EXECUTE | page | PTE_PAGE_FLAGS | PTE_USER);
        }
        page.is_some()
    };
    if !map(entry) {
        return false;
    }
    let room = (address - STACK_LIMIT) / PAGE_SIZE;
    let below = entry.index().min(room).min(STACK_CLUSTER - 1);
    if is_plentiful() {
        for count in 1..=below {
            let next = entry.neighbour(-(count as i64));
            if next.get() & PTE_PRESENT != 0 || !map(next) {
                break;
            }
        }
    }
    true
}
