//! The ring-3 shim: lets a guest that was written for ring 0 run in ring 3, on machines whose KVM only emulates ring 0.
//! `docs/GUEST.md` explains why, and how an exception goes.
//!
//! Compiled by `guest/builder` for `x86_64-unknown-none`, a target without SSE and x87, as the guest's registers of those
//! are not saved: the shim runs between two instructions of the guest. It has no variables (a page of the image that is
//! written is copied on write, by the shim itself), does not allocate, does not panic, and calls nothing outside itself:
//! the builder checks the object for all of that.
#![no_std]
#![no_builtins] // else a loop that copies becomes a call of the guest's memcpy, which uses SSE
#![deny(unsafe_op_in_unsafe_fn)]

mod calls;
mod copies;
mod faults;
mod instructions;
mod tables;

/// Written by the builder from Hyperlight's own crates: see `builder/src/upstream.rs`.
mod constants {
    #![allow(dead_code)]
    include!(concat!(env!("RING3_GENERATED"), "/constants.rs"));
}

use core::arch::global_asm;

// The same constants for the assembler, which knows them as symbols.
global_asm!(include_str!(concat!(env!("RING3_GENERATED"), "/constants.s")), options(att_syntax, raw));
global_asm!(include_str!("entry.s"), options(att_syntax, raw));

/// What an exception handler made of an exception. `entry.s` knows the numbers.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Upstream's handler gets it, as if nobody had looked.
    NotOurs = 0,
    /// Done: the guest goes on.
    Handled = 1,
}

impl Verdict {
    /// Upstream's IDT says where its handler is, and `entry.s` must be able to read it.
    fn prepared(self) -> Self {
        if self == Verdict::NotOurs && tables::open(constants::UPSTREAM_IDT) {
            calls::invalidate(constants::UPSTREAM_IDT); // ring 0 may have read it before
        }
        self
    }
}

/// The guest's registers, as `entry.s` pushes them: rax first, so it is last; then what the processor pushed.
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
    /// A general register, by the number that instructions know it by. The stack pointer's place among the pushed ones
    /// has the shim's own; the guest's is in what the processor pushed.
    fn register(&mut self, number: u8) -> &mut u64 {
        const STACK_POINTER: u8 = 4;
        match number & 15 {
            STACK_POINTER => &mut self.rsp,
            number => &mut self.registers[15 - number as usize],
        }
    }
}
