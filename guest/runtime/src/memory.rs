//! The functions of C with which the JavaScript engine manages its memory. The linker replaces those of `hyperlight-guest-bin` with these
//! (`build.rs`). Rust code uses Hyperlight's heap directly, as it has few blocks at a time.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr;

use hyperlight_common::flatbuffer_wrappers::guest_error::ErrorCode;
use hyperlight_guest::exit::abort_with_code;
use spin::Mutex;

use crate::heap::{Heap, Source};

/// Hyperlight's heap, whose size is `limits.guestHeapBytes`.
struct Hyperlights;

// SAFETY: these are the functions of the global allocator, which has this contract. No layout has the size zero.
unsafe impl Source for Hyperlights {
    fn take(&mut self, layout: Layout) -> *mut u8 {
        // SAFETY: the heap only asks for layouts of at least a slab.
        unsafe { alloc(layout) }
    }

    unsafe fn give_back(&mut self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that the block is one of `take`, with this layout.
        unsafe { dealloc(block, layout) }
    }
}

static HEAP: Mutex<Heap<Hyperlights>> = Mutex::new(Heap::new(Hyperlights));

/// Returns the block. Without one it ends the guest, as Hyperlight's own functions do: the run fails with `ERR_GUEST_MEMORY`.
fn given(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        abort_with_code(&[ErrorCode::MallocFailed as u8]);
    }
    block
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_malloc(size: usize) -> *mut u8 {
    if size == 0 { ptr::null_mut() } else { given(HEAP.lock().allocate(size)) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_calloc(count: usize, size: usize) -> *mut u8 {
    let Some(size) = count.checked_mul(size) else { return given(ptr::null_mut()) };
    let block = __wrap_malloc(size);
    if !block.is_null() {
        // SAFETY: the block has this size, and nobody else uses it.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// # Safety
/// As for `free` in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_free(block: *mut u8) {
    if !block.is_null() {
        // SAFETY: all blocks that C code has are from `HEAP`, as the linker replaces all of these functions, and C code does not use the
        // block any more.
        unsafe { HEAP.lock().free(block) };
    }
}

/// # Safety
/// As for `realloc` in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_realloc(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return __wrap_malloc(size);
    }
    // SAFETY: as for `__wrap_free`.
    unsafe {
        if size == 0 {
            __wrap_free(block);
            return ptr::null_mut();
        }
        given(HEAP.lock().resize(block, size))
    }
}
