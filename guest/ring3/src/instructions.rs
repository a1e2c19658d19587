//! Emulates the few privileged instructions that Hyperlight's guest executes.

use crate::constants::{CR0_VALUE, CR4_GLOBAL_PAGES, CR4_VALUE, RFLAGS_IOPL, UPSTREAM_IDT, VAR_CR2, VAR_CR3};
use crate::tables::root;
use crate::{Frame, Verdict, calls};
use core::ptr::{read_unaligned, read_volatile, write_volatile};

/// Reads the bytes of an instruction that was just executed, or of its operands.
#[derive(Clone, Copy)]
struct Bytes(u64);

impl Bytes {
    fn at(self, offset: u64) -> u8 {
        // SAFETY: the processor has just read this instruction, so its bytes are mapped and open.
        unsafe { read_volatile((self.0 + offset) as *const u8) }
    }

    fn word(self, offset: u64) -> u64 {
        // SAFETY: as above.
        let word = unsafe { read_unaligned((self.0 + offset) as *const i32) };
        i64::from(word) as u64
    }
}

/// A REX prefix; 0 if there is none.
#[derive(Clone, Copy)]
struct Prefix(u8);

impl Prefix {
    fn base(self) -> u8 {
        (self.0 & 1) << 3
    }
    fn index(self) -> u8 {
        (self.0 & 2) << 2
    }
    fn is_wide(self) -> bool {
        self.0 & 8 != 0
    }
}

/// A ModRM byte with the SIB byte and the displacement that follow it.
#[derive(Clone, Copy)]
struct Operand {
    bytes: Bytes,
    mode: u8,
    operation: u8,
    rm: u8,
}

impl Operand {
    const REGISTER: u8 = 3;
    /// The value of `rm` after which a SIB byte follows.
    const SCALED: u8 = 4;
    /// The value of `rm`, or of a SIB byte's base, that means "displacement only, no base register" if `mode` is 0.
    const NO_BASE: u8 = 5;

    fn at(bytes: Bytes) -> Self {
        let modrm = bytes.at(0);
        Operand { bytes, mode: modrm >> 6, operation: modrm >> 3 & 7, rm: modrm & 7 }
    }

    fn is_memory(self) -> bool {
        self.mode != Self::REGISTER
    }

    fn scaled(self) -> Option<u8> {
        (self.is_memory() && self.rm == Self::SCALED).then(|| self.bytes.at(1))
    }

    fn has_no_base(self) -> bool {
        let base = self.scaled().map_or(self.rm, |sib| sib & 7);
        self.mode == 0 && base == Self::NO_BASE
    }

    /// The number of bytes of ModRM, SIB and displacement.
    fn length(self) -> u64 {
        let displacement = match self.mode {
            1 => 1,
            2 => 4,
            _ if self.has_no_base() => 4,
            _ => 0,
        };
        1 + u64::from(self.scaled().is_some()) + displacement
    }

    /// Computes the operand's address in memory. `next` is the address of the next instruction.
    fn address(self, frame: &mut Frame, prefix: Prefix, next: u64) -> u64 {
        let sib = self.scaled();
        let displaced = 1 + u64::from(sib.is_some());
        let mut address = match self.mode {
            1 => i64::from(self.bytes.at(displaced) as i8) as u64,
            2 => self.bytes.word(displaced),
            _ if self.has_no_base() => self.bytes.word(displaced),
            _ => 0,
        };
        if let Some(sib) = sib {
            let index = sib >> 3 & 7 | prefix.index();
            if index != Self::SCALED {
                address = address.wrapping_add(*frame.register(index) << (sib >> 6));
            }
            if !self.has_no_base() {
                address = address.wrapping_add(*frame.register(sib & 7 | prefix.base()));
            }
        } else if self.has_no_base() {
            address = address.wrapping_add(next);
        } else {
            address = address.wrapping_add(*frame.register(self.rm | prefix.base()));
        }
        address
    }
}

#[unsafe(no_mangle)]
extern "C" fn shim_protection_fault(frame: &mut Frame) -> Verdict {
    emulate(frame).prepared()
}

fn emulate(frame: &mut Frame) -> Verdict {
    let mut bytes = Bytes(frame.rip);
    let mut prefix = Prefix(0);
    loop {
        match bytes.at(0) {
            byte @ 0x40..=0x4f => prefix = Prefix(byte),
            0x66 => {}
            _ => break,
        }
        bytes = Bytes(bytes.0 + 1);
    }
    match (bytes.at(0), bytes.at(1)) {
        (0x0f, 0x20) => read_control(frame, bytes, prefix),
        (0x0f, 0x22) => write_control(frame, bytes, prefix),
        (0x0f, 0x00) => task_register(frame, bytes),
        (0x0f, 0x01) => descriptor_or_page(frame, bytes, prefix),
        // mov to a segment register is skipped, because the shim's selectors must stay.
        (0x8e, _) => skip(frame, bytes.0 + 1 + Operand::at(Bytes(bytes.0 + 1)).length()),
        (0xcb, _) if prefix.is_wide() => far_return(frame),
        (0xee | 0xef, _) if frame.flags & RFLAGS_IOPL == 0 => {
            // out: QEMU ignores the I/O bitmap once the TSS is busy, and keeps IOPL where KVM-PVM drops it. The guest keeps the IOPL flag,
            // because an iretq in ring 3 does not change it. The instruction is executed again.
            calls::allow_io();
            Verdict::Handled
        }
        // cli and sti are skipped, because there are no interrupts.
        (0xfa | 0xfb, _) => skip(frame, bytes.0 + 1),
        _ => Verdict::NotOurs,
    }
}

fn skip(frame: &mut Frame, next: u64) -> Verdict {
    frame.rip = next;
    Verdict::Handled
}

/// Emulates `mov` from a control register. The guest writes the values of CR0 and CR4 back as a barrier.
fn read_control(frame: &mut Frame, bytes: Bytes, prefix: Prefix) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    let value = match operand.operation {
        0 => CR0_VALUE,
        // SAFETY: the shim's page is always mapped. Each page fault writes this word.
        2 => unsafe { read_volatile(VAR_CR2 as *const u64) },
        3 => root(),
        4 => CR4_VALUE,
        _ => 0,
    };
    *frame.register(operand.rm | prefix.base()) = value;
    skip(frame, bytes.0 + 3)
}

fn write_control(frame: &mut Frame, bytes: Bytes, prefix: Prefix) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    let value = *frame.register(operand.rm | prefix.base());
    match operand.operation {
        // SAFETY: the guest executes the same operation in ring 0.
        3 => unsafe {
            calls::set_root(value);
            write_volatile(VAR_CR3 as *mut u64, value);
        },
        // The guest toggles this bit to flush the TLB.
        // SAFETY: the root of the page tables does not change.
        4 if value & CR4_GLOBAL_PAGES != 0 => unsafe { calls::set_root(root()) },
        _ => {}
    }
    skip(frame, bytes.0 + 3)
}

/// Skips `ltr`, because the shim's task state must stay.
fn task_register(frame: &mut Frame, bytes: Bytes) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    if operand.operation == 3 { skip(frame, bytes.0 + 2 + operand.length()) } else { Verdict::NotOurs }
}

/// Emulates `invlpg`. Skips `lgdt` and `lidt`, because the shim's tables must stay; an IDT other than
/// Hyperlight's stops the guest.
fn descriptor_or_page(frame: &mut Frame, bytes: Bytes, prefix: Prefix) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    let next = bytes.0 + 2 + operand.length();
    if !operand.is_memory() {
        return Verdict::NotOurs;
    }
    let address = operand.address(frame, prefix, next);
    match operand.operation {
        2 => {}
        // SAFETY: this is the instruction's operand: a limit of two bytes, then the address.
        3 if unsafe { read_unaligned((address + 2) as *const u64) } != UPSTREAM_IDT => calls::foreign_idt(),
        3 => {}
        7 => calls::invalidate(address),
        _ => return Verdict::NotOurs,
    }
    skip(frame, next)
}

/// Emulates `retfq`, with which the guest loads its code segment, as a near return that drops the selector.
fn far_return(frame: &mut Frame) -> Verdict {
    // SAFETY: the guest has just pushed the address and the selector on its stack.
    let target = unsafe { read_volatile(frame.rsp as *const u64) };
    frame.rsp += 16;
    skip(frame, target)
}
