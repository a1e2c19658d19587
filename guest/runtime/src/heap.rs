//! The heap of the JavaScript engine: blocks of fixed sizes in slabs, so that allocating and freeing take constant time. The engine allocates
//! and frees millions of small blocks, and Hyperlight's own heap looks through all free blocks of a size each time one of them is freed.
//!
//! A slab is 16 KiB, aligned to its size: a header, then blocks of one size. It comes from the heap below ([`Source`]), and goes back when
//! all its blocks are free, so that any other block can use it. A block that is too large for a slab comes from the heap below itself. The
//! place of a block tells both kinds apart. `tests/guest_heap.rs` includes this file.

// All blocks are aligned to `ALIGN`, which is enough for the types in them.
#![allow(clippy::cast_ptr_alignment)]

use core::alloc::Layout;
use core::ptr;

/// The size of a slab, and its alignment: as large as the cluster of pages that the ring-3 shim copies on the first write.
pub const SLAB: usize = 16 * 1024;
/// The alignment of all blocks, which is what C expects of `malloc`.
pub const ALIGN: usize = 16;
const _: () = assert!(align_of::<Layout>() <= ALIGN && align_of::<Freed>() <= ALIGN && size_of::<Layout>() <= LARGE_HEADER);
/// The space before the first block of a slab.
const HEADER: usize = 64;
/// The space before a large block, in which its size is kept.
const LARGE_HEADER: usize = 16;
/// The sizes of blocks in slabs. From 1,088 on, each is the largest size of which as many blocks fit into a slab.
const SIZES: [u16; 33] = [
    16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 320, 384, 448, 512, 640, 768, 896, 1088, 1248, 1472, 1808,
    2032, 2720, 3264, 4080, 5440, 8160,
];
/// The largest block of a slab.
pub const MAX_SMALL: usize = SIZES[SIZES.len() - 1] as usize;
/// The class of each size, in steps of [`ALIGN`].
const CLASSES: [u8; MAX_SMALL / ALIGN + 1] = classes();
/// The largest number of empty slabs that are kept for the next blocks of any size. More would be missing elsewhere in the guest.
const MAX_EMPTY: usize = 16;

const _: () =
    assert!(size_of::<Slab>() <= HEADER && HEADER.is_multiple_of(ALIGN) && HEADER != LARGE_HEADER && LARGE_HEADER.is_multiple_of(ALIGN));
const _: () = assert!(size_of::<Freed>() <= SIZES[0] as usize && align_of::<Slab>() <= SLAB && 2 * MAX_SMALL <= SLAB - HEADER);

#[allow(clippy::cast_possible_truncation)] // there are 33 classes
const fn classes() -> [u8; MAX_SMALL / ALIGN + 1] {
    let mut classes = [0; MAX_SMALL / ALIGN + 1];
    let (mut step, mut class) = (0, 0);
    while step < classes.len() {
        assert!((SIZES[class] as usize).is_multiple_of(ALIGN));
        if step * ALIGN > SIZES[class] as usize {
            class += 1;
        }
        classes[step] = class as u8;
        step += 1;
    }
    classes
}

/// Returns the class of a size of at most [`MAX_SMALL`].
fn class_of(size: usize) -> usize {
    CLASSES[size.div_ceil(ALIGN)].into()
}

/// Returns the layout that a large block has in the heap below, or nothing if no block can be that large. Its size is a power of two, as the
/// heap below rounds each size up to one anyway.
fn large_layout(size: usize) -> Option<Layout> {
    let whole = size.checked_add(LARGE_HEADER)?.checked_next_power_of_two()?.max(SLAB);
    Layout::from_size_align(whole, SLAB).ok()
}

/// The heap below, which gives slabs and large blocks.
///
/// # Safety
/// A block that `take` returns must have its layout, and nothing else may use its memory until `give_back` gets it.
pub unsafe trait Source {
    /// Returns a block, or null if there is none.
    fn take(&mut self, layout: Layout) -> *mut u8;

    /// Takes a block back.
    ///
    /// # Safety
    /// `take` must have returned this block for this layout, and the block must not be used any more.
    unsafe fn give_back(&mut self, block: *mut u8, layout: Layout);
}

/// A block that is free again, in the list of its slab.
struct Freed {
    next: *mut Freed,
}

/// The header of a slab.
struct Slab {
    /// The neighbours in the list of the class, or the next empty slab.
    next: *mut Slab,
    previous: *mut Slab,
    /// The blocks that were freed.
    freed: *mut Freed,
    /// The offset of the first block that was never used. What comes after it is not written, so its pages need no memory of the host.
    fresh: usize,
    /// The number of blocks in use.
    used: usize,
    class: usize,
}

impl Slab {
    const LAYOUT: Layout = match Layout::from_size_align(SLAB, SLAB) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn is_full(&self) -> bool {
        self.used == (SLAB - HEADER) / usize::from(SIZES[self.class])
    }
}

/// The slabs, by the sizes of their blocks.
pub struct Heap<S> {
    source: S,
    /// For each class, the list of the slabs that have both used and free blocks.
    open: [*mut Slab; SIZES.len()],
    /// The empty slabs that are kept.
    empty: *mut Slab,
    empty_count: usize,
}

// SAFETY: all pointers lead to memory that belongs to this heap alone, wherever it is used from.
unsafe impl<S: Send> Send for Heap<S> {}

impl<S: Source> Heap<S> {
    pub const fn new(source: S) -> Self {
        Self { source, open: [ptr::null_mut(); SIZES.len()], empty: ptr::null_mut(), empty_count: 0 }
    }

    /// Returns a block of at least `size` bytes, aligned to [`ALIGN`], or null if the memory is exhausted.
    pub fn allocate(&mut self, size: usize) -> *mut u8 {
        if size <= MAX_SMALL { self.allocate_small(class_of(size)) } else { self.allocate_large(size) }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// This heap must have returned the block, and the block must not be used any more.
    pub unsafe fn free(&mut self, block: *mut u8) {
        // SAFETY: the caller promises that the block is from this heap and not used any more.
        unsafe {
            if let Some(whole) = Self::large(block) {
                self.source.give_back(block.sub(LARGE_HEADER), whole);
            } else {
                self.free_small(block);
            }
        }
    }

    /// Changes the size of a block. Returns the block, or another one with the same contents, or null if the memory is exhausted: then the
    /// old block is still valid.
    ///
    /// # Safety
    /// This heap must have returned the block. If the result is another block, the old one must not be used any more.
    pub unsafe fn resize(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the block is from this heap.
        let (room, fits) = unsafe {
            if let Some(whole) = Self::large(block) {
                (whole.size() - LARGE_HEADER, size > MAX_SMALL && large_layout(size) == Some(whole))
            } else {
                let class = (*Self::slab_of(block)).class;
                (SIZES[class].into(), size <= MAX_SMALL && class_of(size) == class)
            }
        };
        if fits {
            return block;
        }
        let other = self.allocate(size);
        if other.is_null() {
            return if size <= room { block } else { other };
        }
        // SAFETY: the blocks are different, `room` bytes of the old one and `size` bytes of the new one are theirs, and the caller does not
        // use the old one any more.
        unsafe {
            ptr::copy_nonoverlapping(block, other, room.min(size));
            self.free(block);
        }
        other
    }

    /// Returns the layout of a large block in the heap below, or nothing for a block of a slab.
    ///
    /// # Safety
    /// The block must be from this heap.
    unsafe fn large(block: *mut u8) -> Option<Layout> {
        // Slabs and large blocks begin at multiples of `SLAB`. Within a slab no block begins that early.
        if block.addr() % SLAB != LARGE_HEADER {
            return None;
        }
        // SAFETY: `allocate_large` wrote the layout before the block.
        Some(unsafe { block.sub(LARGE_HEADER).cast::<Layout>().read() })
    }

    fn allocate_large(&mut self, size: usize) -> *mut u8 {
        let Some(whole) = large_layout(size) else { return ptr::null_mut() };
        let mut start = self.source.take(whole);
        if start.is_null() && self.empty_count > 0 {
            self.give_back_empty();
            start = self.source.take(whole);
        }
        if start.is_null() {
            return start;
        }
        // SAFETY: the block has more than the space of its header, and is aligned to it.
        unsafe {
            start.cast::<Layout>().write(whole);
            start.add(LARGE_HEADER)
        }
    }

    /// Gives all empty slabs back, as a large block may need their memory.
    fn give_back_empty(&mut self) {
        while !self.empty.is_null() {
            let slab = self.empty;
            // SAFETY: slabs in this list have no used blocks, are from the source, and leave the list here.
            unsafe {
                self.empty = (*slab).next;
                self.source.give_back(slab.cast(), Slab::LAYOUT);
            }
        }
        self.empty_count = 0;
    }

    fn allocate_small(&mut self, class: usize) -> *mut u8 {
        let mut slab = self.open[class];
        if slab.is_null() {
            slab = self.new_slab(class);
            if slab.is_null() {
                return ptr::null_mut();
            }
        }
        // SAFETY: slabs in `open` are valid and not full. So there is a freed block, or one that was never used, at `fresh`, within the slab.
        unsafe {
            let freed = (*slab).freed;
            let block = if freed.is_null() {
                let fresh = (*slab).fresh;
                (*slab).fresh = fresh + usize::from(SIZES[class]);
                slab.cast::<u8>().add(fresh)
            } else {
                (*slab).freed = (*freed).next;
                freed.cast()
            };
            (*slab).used += 1;
            if (*slab).is_full() {
                self.unlink(slab);
            }
            block
        }
    }

    /// Makes a slab the first open one of its class. Returns null if the memory is exhausted.
    fn new_slab(&mut self, class: usize) -> *mut Slab {
        let mut slab = self.empty;
        if slab.is_null() {
            slab = self.source.take(Slab::LAYOUT).cast();
            if slab.is_null() {
                return slab;
            }
        } else {
            // SAFETY: slabs in this list are valid.
            self.empty = unsafe { (*slab).next };
            self.empty_count -= 1;
        }
        // SAFETY: the slab is in no list, nothing else uses its memory, and it is aligned to its size.
        unsafe {
            slab.write(Slab { next: ptr::null_mut(), previous: ptr::null_mut(), freed: ptr::null_mut(), fresh: HEADER, used: 0, class });
            self.link(slab);
        }
        slab
    }

    /// Returns the slab of a block.
    fn slab_of(block: *mut u8) -> *mut Slab {
        block.map_addr(|address| address & !(SLAB - 1)).cast()
    }

    /// Frees a block of a slab.
    ///
    /// # Safety
    /// As for [`Heap::free`], and the block must be one of a slab.
    unsafe fn free_small(&mut self, block: *mut u8) {
        let slab = Self::slab_of(block);
        // SAFETY: the block is used, so its slab is valid and has it, and nobody else uses its memory any more. A slab is in its
        // class's list if, and only if, it is not full.
        unsafe {
            if (*slab).is_full() {
                self.link(slab);
            }
            let freed = block.cast::<Freed>();
            freed.write(Freed { next: (*slab).freed });
            (*slab).freed = freed;
            (*slab).used -= 1;
            if (*slab).used == 0 {
                self.unlink(slab);
                self.retire(slab);
            }
        }
    }

    /// Keeps an empty slab, or gives it back.
    ///
    /// # Safety
    /// The slab must be from the source, without used blocks, and in no list.
    unsafe fn retire(&mut self, slab: *mut Slab) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.empty_count == MAX_EMPTY {
                self.source.give_back(slab.cast(), Slab::LAYOUT);
                return;
            }
            (*slab).next = self.empty;
        }
        self.empty = slab;
        self.empty_count += 1;
    }

    /// Adds a slab to its class's list, as the first one.
    ///
    /// # Safety
    /// The slab must be valid and in no list.
    unsafe fn link(&mut self, slab: *mut Slab) {
        // SAFETY: the caller promises it for this slab, and slabs in lists are valid.
        unsafe {
            let first = &mut self.open[(*slab).class];
            (*slab).next = *first;
            (*slab).previous = ptr::null_mut();
            if !first.is_null() {
                (**first).previous = slab;
            }
            *first = slab;
        }
    }

    /// Removes a slab from its class's list.
    ///
    /// # Safety
    /// The slab must be valid and in this list.
    unsafe fn unlink(&mut self, slab: *mut Slab) {
        // SAFETY: the caller promises it for this slab, and slabs in lists are valid.
        unsafe {
            let (next, previous) = ((*slab).next, (*slab).previous);
            if previous.is_null() {
                self.open[(*slab).class] = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}
