//! Pages that the guest gets while it runs: copies of the snapshot's, and its stack's.

use crate::constants::{
    CLUSTER, PAGE_SIZE, PHYS_TO_VIRT, PTE_COPY_ON_WRITE, PTE_NO_EXECUTE, PTE_PAGE_FLAGS, PTE_PRESENT, PTE_SOFTWARE_MASK, PTE_USER,
    PTE_WRITABLE, STACK_CLUSTER, STACK_LIMIT,
};
use crate::tables::{Entry, allocate, is_plentiful, open};

/// Is it a page of the snapshot that is to be copied when it is written?
pub fn is_copied_on_write(entry: u64) -> bool {
    entry & (PTE_PRESENT | PTE_WRITABLE | PTE_SOFTWARE_MASK) == PTE_PRESENT | PTE_COPY_ON_WRITE
}

/// A page was written for the first time since the snapshot: gives it a page of its own, and its neighbours as well, as a
/// fault costs more than some copies. False if there is no memory left: upstream tries too, fails too, and reports it.
pub fn copy_around(address: u64, entry: Entry) -> bool {
    if !copy(address, entry) {
        return false;
    }
    if is_plentiful() {
        // Aligned to a power of two, so all of them are in one table.
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
    // The copy is written through scratch memory's own mapping, which has to be open as well: a fault in here would
    // overwrite the frame that is worked on.
    open(target);
    // SAFETY: the source is mapped and open (its entry says so), the target is a page that is nobody's yet.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rdi") target => _,
            inout("rsi") address & !(PAGE_SIZE - 1) => _,
            inout("rcx") PAGE_SIZE / 8 => _,
            options(nostack, preserves_flags),
        );
    }
    // No invlpg: the fault itself has dropped the old translation. A neighbour's may survive, which is read-only and has
    // the same content: the first write faults, and `faults` finds the page writable and drops it then. An invlpg for
    // each page costs a way to ring 0.
    entry.set(entry.get() & PTE_NO_EXECUTE | page | PTE_PAGE_FLAGS | PTE_USER);
    true
}

/// The main stack grows: maps the page and some below it. They take no memory of the host's until they are touched.
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
