//! Tests of the heap of the guest's JavaScript engine, which is the guest's own source file, over a heap below that checks what it gets back.

#[path = "../guest/runtime/src/heap.rs"]
mod heap;

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use heap::{ALIGN, Heap, MAX_SMALL, SLAB, Source};
use proptest::prelude::*;

/// The most memory that a heap may keep without a block in use: its empty slabs.
const KEPT: usize = 16 * SLAB;

/// The blocks that a heap has, and how much more it may take.
#[derive(Default)]
struct Taken {
    blocks: HashMap<*mut u8, Layout>,
    left: usize,
    calls: usize,
}

impl Taken {
    fn bytes(&self) -> usize {
        self.blocks.values().map(Layout::size).sum()
    }
}

#[derive(Clone, Default)]
struct Below(Rc<RefCell<Taken>>);

// SAFETY: the blocks are those of the global allocator.
unsafe impl Source for Below {
    fn take(&mut self, layout: Layout) -> *mut u8 {
        let mut taken = self.0.borrow_mut();
        taken.calls += 1;
        let Some(left) = taken.left.checked_sub(layout.size()) else { return std::ptr::null_mut() };
        taken.left = left;
        // SAFETY: the heap does not ask for blocks of the size zero.
        let block = unsafe { alloc(layout) };
        taken.blocks.insert(block, layout);
        block
    }

    unsafe fn give_back(&mut self, block: *mut u8, layout: Layout) {
        let mut taken = self.0.borrow_mut();
        assert_eq!(taken.blocks.remove(&block), Some(layout), "what is given back was taken");
        taken.left += layout.size();
        // SAFETY: `take` returned the block for this layout.
        unsafe { dealloc(block, layout) }
    }
}

/// A block, and the byte that it is filled with.
struct Block {
    start: *mut u8,
    size: usize,
    byte: u8,
}

impl Block {
    fn contents(&self) -> &[u8] {
        // SAFETY: the heap returned the block for this size, and `Blocks::fill` wrote all of it.
        unsafe { std::slice::from_raw_parts(self.start, self.size) }
    }

    #[track_caller]
    fn check(&self, length: usize) {
        assert!(self.contents()[..length].iter().all(|&byte| byte == self.byte), "the block of {} bytes has its contents", self.size);
    }
}

/// A heap with its used blocks.
struct Blocks {
    heap: Heap<Below>,
    below: Below,
    used: Vec<Block>,
    made: u8,
}

impl Blocks {
    fn new(limit: usize) -> Self {
        let below = Below::default();
        below.0.borrow_mut().left = limit;
        Self { heap: Heap::new(below.clone()), below, used: Vec::new(), made: 0 }
    }

    fn fill(&mut self, block: &mut Block) {
        assert_eq!(block.start.addr() % ALIGN, 0, "a block of {} bytes is aligned", block.size);
        self.made = self.made.wrapping_add(1);
        block.byte = self.made;
        // SAFETY: the heap returned the block for this size.
        unsafe { block.start.write_bytes(block.byte, block.size) };
    }

    /// Tells if there was memory for the block.
    fn allocate(&mut self, size: usize) -> bool {
        let start = self.heap.allocate(size);
        if start.is_null() {
            return false;
        }
        let mut block = Block { start, size, byte: 0 };
        self.fill(&mut block);
        self.used.push(block);
        true
    }

    fn free(&mut self, index: usize) {
        let block = self.used.swap_remove(index);
        block.check(block.size);
        // SAFETY: the block is used, and nothing uses it any more.
        unsafe { self.heap.free(block.start) };
    }

    fn resize(&mut self, index: usize, size: usize) -> bool {
        let mut block = self.used.swap_remove(index);
        block.check(block.size);
        // SAFETY: the block is used, and only the result is used after this.
        let start = unsafe { self.heap.resize(block.start, size) };
        let kept = if start.is_null() { block.size } else { block.size.min(size) };
        if !start.is_null() {
            (block.start, block.size) = (start, size);
        }
        block.check(kept);
        self.fill(&mut block);
        self.used.push(block);
        !start.is_null()
    }

    fn free_all(&mut self) {
        while !self.used.is_empty() {
            self.free(self.used.len() - 1);
        }
        assert!(self.below.0.borrow().bytes() <= KEPT, "only some empty slabs are kept");
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (block, layout) in self.below.0.borrow_mut().blocks.drain() {
            // SAFETY: `take` returned the block for this layout, and its users are gone.
            unsafe { dealloc(block, layout) };
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(prop::sample::Index),
    Resize(prop::sample::Index, usize),
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..=300_usize, 3 => 1..=MAX_SMALL + 100, 1 => 1..=200_000_usize]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        4 => sizes().prop_map(Step::Allocate),
        3 => index().prop_map(Step::Free),
        2 => (index(), sizes()).prop_map(|(index, size)| Step::Resize(index, size)),
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Blocks never overlap and keep their contents, also when the memory is exhausted, and all memory comes back.
    #[test]
    fn blocks_keep_their_contents(steps in steps(), limit in prop_oneof![Just(64 * SLAB), Just(usize::MAX)]) {
        let mut blocks = Blocks::new(limit);
        for step in steps {
            let count = blocks.used.len();
            match step {
                Step::Allocate(size) => _ = blocks.allocate(size),
                Step::Free(index) if count > 0 => blocks.free(index.index(count)),
                Step::Resize(index, size) if count > 0 => _ = blocks.resize(index.index(count), size),
                Step::Free(_) | Step::Resize(..) => {}
            }
        }
        blocks.free_all();
    }
}

#[test]
fn every_size_has_its_block() {
    let mut blocks = Blocks::new(usize::MAX);
    for size in (1..=MAX_SMALL + 2 * ALIGN).chain([SLAB - 17, SLAB - 16, SLAB - 15, SLAB, 2 * SLAB - 16, 2 * SLAB, 10 * SLAB]) {
        assert!(blocks.allocate(size) && blocks.allocate(size));
    }
    blocks.free_all();
}

/// Small blocks fill the memory. When they are free, one block can have it, and then small ones again.
#[test]
fn freed_memory_serves_other_sizes() {
    const LIMIT: usize = 256 * SLAB;
    let mut blocks = Blocks::new(LIMIT);
    for size in [16, 72, 300, 8160] {
        while blocks.allocate(size) {}
        let filled: usize = blocks.used.iter().map(|block| block.size).sum();
        assert!(filled * 100 > LIMIT * 88, "{filled} of {LIMIT} bytes are in blocks of {size} bytes");
        assert!(!blocks.allocate(2 * SLAB), "no memory is left");
        for index in (0..blocks.used.len()).rev().step_by(2) {
            blocks.free(index);
        }
        blocks.free_all();
        assert!(blocks.allocate(LIMIT - 16), "all memory is one block");
        blocks.free_all();
    }
}

#[test]
fn exhausted_memory_leaves_a_block_as_it_is() {
    let mut blocks = Blocks::new(2 * SLAB);
    assert!(blocks.allocate(100) && blocks.allocate(SLAB - 16));
    assert!(
        !blocks.resize(0, SLAB) && !blocks.resize(0, SLAB) && !blocks.allocate(usize::MAX) && !blocks.allocate(isize::MAX.unsigned_abs())
    );
    for index in [0, 0] {
        assert!(blocks.resize(index, 90), "a block that gets smaller stays");
    }
    blocks.free_all();
}

/// A slab at the border between empty and used is not taken and given back each time.
#[test]
fn an_empty_slab_is_kept() {
    let mut blocks = Blocks::new(usize::MAX);
    for _ in 0..1000 {
        assert!(blocks.allocate(40));
        blocks.free(0);
    }
    assert_eq!(blocks.below.0.borrow().calls, 1);
}

/// Ten thousands of blocks are freed in any order without a search: this test takes long only if one of them looks at the others.
#[test]
fn freeing_takes_constant_time() {
    let mut blocks = Blocks::new(usize::MAX);
    for _ in 0..300_000 {
        assert!(blocks.allocate(40));
    }
    for step in [7, 3, 2, 1] {
        for index in (0..blocks.used.len()).rev().step_by(step) {
            blocks.free(index);
        }
    }
    blocks.free_all();
}
