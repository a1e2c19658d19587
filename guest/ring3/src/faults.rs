//! Page faults: user bits that are missing, writes of pages that are shared with the snapshot, the growing stack.

use crate::constants::{PTE_NO_EXECUTE, PTE_PRESENT, PTE_USER, PTE_WRITABLE, STACK_LIMIT, STACK_TOP};
use crate::copies::{copy_around, grow_stack, is_copied_on_write};
use crate::tables::{open_tables_once, walk};
use crate::{Frame, Verdict, calls};

// The processor's error code.
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
    frame.error = error & !USER; // upstream's handler only knows faults of the supervisor
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
        return Verdict::Handled; // somebody has mapped it since
    }
    if error & WRITE != 0 && value & PTE_WRITABLE == 0 {
        return verdict(is_copied_on_write(value) && copy_around(address, walked.entry));
    }
    if error & FETCH != 0 && value & PTE_NO_EXECUTE != 0 {
        return Verdict::NotOurs;
    }
    // The tables allow it, so the processor has an old translation: unless it was opened just now, drop that.
    if !walked.opened && !was_closed {
        calls::invalidate(address);
    }
    Verdict::Handled
}

fn verdict(handled: bool) -> Verdict {
    if handled { Verdict::Handled } else { Verdict::NotOurs }
}
