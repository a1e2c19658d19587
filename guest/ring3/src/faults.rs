//! Handles page faults: missing user bits, writes to pages that are shared with the snapshot, and the growing stack.

use crate::constants::{PTE_NO_EXECUTE, PTE_PRESENT, PTE_USER, PTE_WRITABLE, STACK_LIMIT, STACK_TOP};
use crate::copies::{copy_around, grow_stack, is_copied_on_write};
use crate::tables::{open_tables_once, walk};
use crate::{Frame, Verdict, calls};

// Bits of the page fault's error code.
const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;
const RESERVED: u64 = 8;
const FETCH: u64 = 16;

#[unsafe(no_mangle)]
extern "C" fn shim_page_fault(frame: &mut Frame, address: u64) -> Verdict {
    open_tables_once();
    resolve(frame, address).prepared()
}

fn resolve(frame: &mut Frame, address: u64) -> Verdict {
    let error = frame.error;
    frame.error = error & !USER; // Hyperlight's handler only supports faults in supervisor mode
    if error & RESERVED != 0 {
        return Verdict::NotOurs;
    }
    let Some(walked) = walk(address) else { return Verdict::NotOurs };
    let value = walked.entry.get();
    if value & PTE_PRESENT == 0 {
        let is_stack = error & PRESENT == 0 && (STACK_LIMIT..STACK_TOP).contains(&address);
        return verdict(is_stack && grow_stack(address, walked.entry));
    }
    let was_closed = value & PTE_USER == 0;
    if was_closed {
        walked.entry.open_table();
    }
    if error & PRESENT == 0 {
        return Verdict::Handled; // the page was mapped after the fault
    }
    if error & WRITE != 0 && value & PTE_WRITABLE == 0 {
        return verdict(is_copied_on_write(value) && copy_around(address, walked.entry));
    }
    if error & FETCH != 0 && value & PTE_NO_EXECUTE != 0 {
        return Verdict::NotOurs;
    }
    // The tables allow this access, so the processor has used an old translation. It must be dropped, unless an entry was opened just now.
    if !walked.opened && !was_closed {
        calls::invalidate(address);
    }
    Verdict::Handled
}

fn verdict(handled: bool) -> Verdict {
    if handled { Verdict::Handled } else { Verdict::NotOurs }
}
