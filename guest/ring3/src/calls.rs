//! From ring 3 to ring 0: what only ring 0 may do. An invalid instruction takes us there, as KVM-PVM runs no `syscall`.

use crate::constants::{CALL_ALLOW_IO, CALL_INVALIDATE, CALL_OPEN, CALL_SET_CR3};

/// Goes to ring 0 (entry.s), by a direct call: the compiler's own would go through the global offset table, which lies in
/// memory that is not open.
///
/// # Safety
/// As each call says.
unsafe fn hypercall(argument: u64, call: u64) -> u64 {
    let result;
    // SAFETY: as promised by the caller; what the code on the other side changes is named here.
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

/// Drops the translation of one address.
pub fn invalidate(address: u64) {
    // SAFETY: dropping a translation changes no meaning; the processor reads the tables again.
    unsafe { hypercall(address, CALL_INVALIDATE) };
}

/// Sets the root of the page tables, which also drops all translations.
///
/// # Safety
/// The tables must map what runs.
pub unsafe fn set_root(cr3: u64) {
    // SAFETY: as promised by the caller.
    unsafe { hypercall(cr3, CALL_SET_CR3) };
}

/// Opens one page to ring 3, also where ring 3 cannot reach its tables. Returns the virtual address of the leaf table.
///
/// # Safety
/// The page must be mapped.
pub unsafe fn open(address: u64) -> u64 {
    // SAFETY: the tables on the way are there, as promised by the caller; only user bits change.
    unsafe { hypercall(address, CALL_OPEN) }
}

/// Gives the guest the I/O privilege level, so that its `out` works without the bitmap.
pub fn allow_io() {
    // SAFETY: the ports lead to the host, which trusts no guest in either ring.
    unsafe { hypercall(0, CALL_ALLOW_IO) };
}

/// Ends the guest with a message.
pub fn foreign_idt() -> ! {
    // SAFETY: does not return.
    unsafe { core::arch::asm!("jmp shim_stop_for_foreign_idt", options(noreturn)) }
}
