//! Calls from ring 3 to ring 0, for operations that only ring 0 may do. An invalid instruction makes the switch, because KVM-PVM does not
//! run `syscall`.

use crate::constants::{CALL_ALLOW_IO, CALL_INVALIDATE, CALL_OPEN, CALL_SET_CR3};

/// Goes to ring 0 (entry.s) by a direct call. A call that the compiler generates would go through the global offset table, which lies in
/// memory that ring 3 may not be able to read.
///
/// # Safety
/// The caller must meet the conditions of the given call, see below.
unsafe fn hypercall(argument: u64, call: u64) -> u64 {
    let result;
    // SAFETY: as promised by the caller. The operands name every register that the code in ring 0 changes.
    unsafe {
        core::arch::asm!(
            "call shim_hypercall",
            in("rdi") argument,
            in("rsi") call,
            out("rax") result,
            out("rcx") _,
            out("rdx") _,
            out("r8") _,
            out("r9") _,
        );
    }
    result
}

/// Drops the cached translation of one address.
pub fn invalidate(address: u64) {
    // SAFETY: dropping a translation changes no mapping, as the processor reads the page tables again.
    unsafe { hypercall(address, CALL_INVALIDATE) };
}

/// Sets the root of the page tables. This also drops all cached translations.
///
/// # Safety
/// The new tables must map the code and data in use.
pub unsafe fn set_root(cr3: u64) {
    // SAFETY: as promised by the caller.
    unsafe { hypercall(cr3, CALL_SET_CR3) };
}

/// Opens one page to ring 3, even if ring 3 cannot reach the page's tables. Returns the virtual address of the leaf table.
///
/// # Safety
/// The page must be mapped.
pub unsafe fn open(address: u64) -> u64 {
    // SAFETY: the caller promises that the tables on the way to the page exist. Only user bits change.
    unsafe { hypercall(address, CALL_OPEN) }
}

/// Gives the guest the I/O privilege level, so that its `out` instructions work without the I/O permission bitmap.
pub fn allow_io() {
    // SAFETY: the ports lead to the host, which does not trust the guest in either ring.
    unsafe { hypercall(0, CALL_ALLOW_IO) };
}

/// Stops the guest with a message that the IDT is not where the shim expects it.
pub fn foreign_idt() -> ! {
    // SAFETY: does not return.
    unsafe { core::arch::asm!("jmp shim_stop_for_foreign_idt", options(noreturn)) }
}
