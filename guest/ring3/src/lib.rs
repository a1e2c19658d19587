//! The ring-3 shim lets a guest that was written for ring 0 run in ring 3, on machines whose KVM only emulates ring 0. `docs/GUEST.md`
//! explains the reason and the way of an exception through the shim.
//!
//! `guest/builder` compiles the shim for `x86_64-unknown-none`, a target without SSE and x87: the shim interrupts the guest between two
//! instructions and does not save those registers. The shim has no variables (a written page of the image is copied on write, by the shim
//! itself), does not allocate, does not panic, and calls no code outside itself. The builder checks the object file for all of this.
//!
//! In names, `upstream` means Hyperlight's own guest code, with which the shim is linked.
#![no_std]
#![no_builtins] // otherwise a copying loop becomes a call to the guest's memcpy, which uses SSE
#![deny(unsafe_op_in_unsafe_fn)]

mod calls;
mod copies;
mod faults;
mod instructions;
mod tables;

/// Constants that the builder takes from Hyperlight's own crates, see `builder/src/upstream.rs`.
mod constants {
    #![allow(dead_code)]
    include!(concat!(env!("RING3_GENERATED"), "/constants.rs"));
}

use core::arch::global_asm;

// The assembler gets the same constants as symbols.
global_asm!(include_str!(concat!(env!("RING3_GENERATED"), "/constants.s")), options(att_syntax, raw));
global_asm!(include_str!("entry.s"), options(att_syntax, raw));

/// The result of an exception handler of the shim. `entry.s` uses these numbers.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The shim does not handle this exception; Hyperlight's handler must run.
    NotOurs = 0,
    /// The exception was handled, and the guest continues.
    Handled = 1,
}

impl Verdict {
    /// Makes Hyperlight's IDT readable for `entry.s`, which looks up Hyperlight's handler there.
    fn prepared(self) -> Self {
        if self == Verdict::NotOurs && tables::open(constants::UPSTREAM_IDT) {
            calls::invalidate(constants::UPSTREAM_IDT); // ring 0 may have cached the old translation
        }
        self
    }
}

/// The guest's registers, in the order in which `entry.s` pushes them: rax is pushed first, so it is last here. Behind them are the words
/// that the processor pushed.
#[repr(C)]
pub struct Frame {
    registers: [u64; 16],
    error: u64,
    rip: u64,
    code_segment: u64,
    flags: u64,
    rsp: u64,
    stack_segment: u64,
}

impl Frame {
    /// Returns a general register by its number in x86 instructions. The stack pointer is read from the processor's words, because
    /// `entry.s` pushes the shim's own stack pointer in its place.
    fn register(&mut self, number: u8) -> &mut u64 {
        const STACK_POINTER: u8 = 4;
        match number & 15 {
            STACK_POINTER => &mut self.rsp,
            number => &mut self.registers[15 - number as usize],
        }
    }
}
