//! The few privileged instructions that Hyperlight's guest executes, emulated.

use crate::constants::{CR0_VALUE, CR4_GLOBAL_PAGES, CR4_VALUE, RFLAGS_IOPL, UPSTREAM_IDT, VAR_CR2, VAR_CR3};
use crate::tables::root;
use crate::{Frame, Verdict, calls};
use core::ptr::{read_unaligned, read_volatile, write_volatile};

/// The bytes from an address on, as signed numbers or not. They were just executed, or are an operand of what was.
#[derive(Clone, Copy)]
struct Bytes(u64);

impl Bytes {
    fn at(self, offset: u64) -> u8 {
        // SAFETY: an instruction that the processor has just read, so it is mapped and open.
        unsafe { read_volatile((self.0 + offset) as *const u8) }
    }

    fn word(self, offset: u64) -> u64 {
        // SAFETY: as above.
        let word = unsafe { read_unaligned((self.0 + offset) as *const i32) };
        i64::from(word) as u64
    }
}

/// A REX prefix, or none.
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

/// A ModRM byte with what belongs to it.
#[derive(Clone, Copy)]
struct Operand {
    bytes: Bytes,
    mode: u8,
    operation: u8,
    rm: u8,
}

impl Operand {
    const REGISTER: u8 = 3;
    /// `rm` that announces a SIB byte.
    const SCALED: u8 = 4;
    /// `rm`, or a SIB's base, that announces a displacement and no register where `mode` is 0.
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

    /// Of ModRM, SIB and displacement.
    fn length(self) -> u64 {
        let displacement = match self.mode {
            1 => 1,
            2 => 4,
            _ if self.has_no_base() => 4,
            _ => 0,
        };
        1 + u64::from(self.scaled().is_some()) + displacement
    }

    /// The address in memory; `next` is the next instruction's.
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
        // mov to a segment register: the shim's selectors stay.
        (0x8e, _) => skip(frame, bytes.0 + 1 + Operand::at(Bytes(bytes.0 + 1)).length()),
        (0xcb, _) if prefix.is_wide() => far_return(frame),
        (0xee | 0xef, _) if frame.flags & RFLAGS_IOPL == 0 => {
            // out: QEMU does not honour the bitmap once the TSS is busy, and keeps IOPL where KVM-PVM drops it. The flag
            // stays: an iretq in ring 3 does not change it. The instruction is run again.
            calls::allow_io();
            Verdict::Handled
        }
        // cli, sti: there are no interrupts.
        (0xfa | 0xfb, _) => skip(frame, bytes.0 + 1),
        _ => Verdict::NotOurs,
    }
}

fn skip(frame: &mut Frame, next: u64) -> Verdict {
    frame.rip = next;
    Verdict::Handled
}

/// `mov` from a control register. The guest writes CR0 and CR4 back as it read them, as a barrier.
fn read_control(frame: &mut Frame, bytes: Bytes, prefix: Prefix) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    let value = match operand.operation {
        0 => CR0_VALUE,
        // SAFETY: the shim's page; written on each page fault.
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
        // SAFETY: what the guest would have done itself.
        3 => unsafe {
            calls::set_root(value);
            write_volatile(VAR_CR3 as *mut u64, value);
        },
        // Toggled by the guest to flush the TLB.
        // SAFETY: the root stays what it is.
        4 if value & CR4_GLOBAL_PAGES != 0 => unsafe { calls::set_root(root()) },
        _ => {}
    }
    skip(frame, bytes.0 + 3)
}

/// `ltr` is skipped, as the shim's task state stays.
fn task_register(frame: &mut Frame, bytes: Bytes) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    if operand.operation == 3 { skip(frame, bytes.0 + 2 + operand.length()) } else { Verdict::NotOurs }
}

/// `lgdt`, `lidt`: skipped, as the shim's tables stay; but upstream's IDT is where its handlers are looked up. `invlpg`.
fn descriptor_or_page(frame: &mut Frame, bytes: Bytes, prefix: Prefix) -> Verdict {
    let operand = Operand::at(Bytes(bytes.0 + 2));
    let next = bytes.0 + 2 + operand.length();
    if !operand.is_memory() {
        return Verdict::NotOurs;
    }
    let address = operand.address(frame, prefix, next);
    match operand.operation {
        2 => {}
        // SAFETY: the instruction's operand: a limit in two bytes, then the address.
        3 if unsafe { read_unaligned((address + 2) as *const u64) } != UPSTREAM_IDT => calls::foreign_idt(),
        3 => {}
        7 => calls::invalidate(address),
        _ => return Verdict::NotOurs,
    }
    skip(frame, next)
}

/// `retfq`, with which upstream loads its code segment: a near return that drops the selector.
fn far_return(frame: &mut Frame) -> Verdict {
    // SAFETY: the guest's stack, on which it has just put both.
    let target = unsafe { read_volatile(frame.rsp as *const u64) };
    frame.rsp += 16;
    skip(frame, target)
}
