// Ring-3 part of the ring-3 shim: emulates the few privileged instructions that Hyperlight's guest executes, and does
// what its page-fault handler would do, with user bits added. Runs natively, on a stack of its own, and uses no SSE, as
// the guest's registers are not saved. Names in capitals that are not defined here come from the builder.

typedef unsigned long u64;
typedef unsigned char u8;
typedef int i32;
typedef signed char i8;

// Bits of a page-table entry, and of a page fault's error code. Those that upstream keeps to itself are read from the
// entries that its own code makes (upstream.rs).
#define PTE_USER 4UL
#define FAULT_PRESENT 1UL
#define FAULT_WRITE 2UL
#define FAULT_USER 4UL
#define FAULT_RESERVED 8UL
#define FAULT_FETCH 16UL

#define RFLAGS_IOPL 0x3000UL

// Written by ring 0 on each exception: ring 3 cannot read control registers.
#define VAR_CR3 (*(volatile u64 *)SHIM_VARS)
#define VAR_CR2 (*(volatile u64 *)(SHIM_VARS + 8))

// As pushed by PUSH_ALL in r0.S: rax first, so it is last here.
struct frame {
  u64 registers[16];
  u64 error, rip, cs, rflags, rsp, ss;
};

extern u64 hypercall(u64 argument, u64 call);
#define CALL_INVALIDATE 0 // CALL_SET_CR3 and CALL_ALLOW_IO are shared with r0.S

static inline void out(unsigned port, unsigned value) {
  __asm__ volatile("out %0, %w1" : : "a"(value), "d"(port) : "memory");
}

// Ends the run with a text that the host reports. Each write carries its length (here one byte) in the lowest byte.
// Called from ring 0 as well, before anything is set up: position independent, no hypercall.
__attribute__((noreturn)) void shim_abort(const char *text) {
  out(PORT_ABORT, 1 | ABORT_CODE << 8);
  for (; *text; text++) out(PORT_ABORT, 1 | (unsigned)(u8)*text << 8);
  out(PORT_ABORT, 1 | 0xff << 8); // end of text: the host does not run us again
  for (;;) {
  }
}

static u64 *reg(struct frame *f, int n) { return n == 4 ? &f->rsp : &f->registers[15 - n]; }

// ---- page tables --------------------------------------------------------

static inline volatile u64 *entry_in(u64 table, u64 va, int shift) {
  return (volatile u64 *)((table & PTE_ADDR_MASK) + PHYS_TO_VIRT + ((va >> (shift - 3)) & 0xff8));
}

// The page's entry, with user bits set on the way down to it; 0 if a table is missing.
static volatile u64 *walk(u64 va, int *opened) {
  u64 table = VAR_CR3;
  for (int shift = 39; shift > 12; shift -= 9) {
    volatile u64 *entry = entry_in(table, va, shift);
    table = *entry;
    if (!(table & PTE_PRESENT)) return 0;
    if (!(table & PTE_USER)) {
      *entry = table | PTE_USER;
      *opened = 1;
    }
  }
  return entry_in(table, va, 12);
}

// Sets the user bit of every page in the table: 2 MiB a fault, not 4 KiB.
static void open_table_of(volatile u64 *entry) {
  volatile u64 *table = (volatile u64 *)((u64)entry & ~(PAGE_SIZE - 1));
  for (int i = 0; i < TABLE_ENTRIES; i++) {
    u64 value = table[i];
    if ((value & (PTE_PRESENT | PTE_USER)) == PTE_PRESENT) table[i] = value | PTE_USER;
  }
}

// As hyperlight_guest::prim_alloc::alloc_phys_pages(1), but 0 instead of an abort.
static u64 alloc_page(void) {
  u64 page = PAGE_SIZE;
  __asm__ volatile("lock xaddq %0, (%1)" : "+r"(page) : "r"(ALLOCATOR) : "memory");
  return page + PAGE_SIZE >= ALLOCATOR_LIMIT ? 0 : page;
}

// A page of the guest's memory was written for the first time since the snapshot: give it a page of its own.
static int copy_on_write(u64 va, volatile u64 *entry) {
  u64 page = alloc_page();
  if (!page) return 0; // upstream tries as well, fails as well, and reports it
  u64 target = page + PHYS_TO_VIRT;
  int opened = 0;
  // Without this, each copy would fault once more, into the slow walk in ring 0.
  volatile u64 *target_entry = walk(target, &opened);
  if (target_entry && !(*target_entry & PTE_USER)) open_table_of(target_entry);
  u64 source = va & ~(PAGE_SIZE - 1), words = PAGE_SIZE / 8;
  __asm__ volatile("rep movsq" : "+D"(target), "+S"(source), "+c"(words) : : "memory");
  // No invlpg: the fault itself has dropped the old translation, and should one survive, the write faults again and
  // shim_pf then finds the page writable and invalidates it. An invlpg each time costs 0.8 ms a run.
  *entry = (*entry & PTE_NO_EXECUTE) | page | PTE_PAGE_FLAGS | PTE_USER;
  return 1;
}

// ---- exceptions: each returns 1 if it is dealt with, 0 if upstream's handler is to have it ---------------------------

int shim_pf(struct frame *f) {
  u64 va = VAR_CR2, error = f->error;
  int opened = 0;
  f->error = error & ~FAULT_USER; // upstream's handler only knows faults of the supervisor
  if (error & FAULT_RESERVED) return 0;
  volatile u64 *entry = walk(va, &opened);
  if (!entry) return 0;
  u64 value = *entry;
  if (!(value & PTE_PRESENT)) { // the main stack grows, into a table that is there
    if (error & FAULT_PRESENT || va - STACK_LIMIT >= STACK_TOP - STACK_LIMIT) return 0;
    u64 page = alloc_page();
    if (page) *entry = PTE_NO_EXECUTE | page | PTE_PAGE_FLAGS | PTE_USER;
    return page != 0;
  }
  if (!(value & PTE_USER)) {
    open_table_of(entry);
    opened = 1;
  }
  if (!(error & FAULT_PRESENT)) return 1; // somebody has mapped it since
  if (error & FAULT_WRITE) {
    if (!(value & PTE_WRITABLE))
      return (value & PTE_SOFTWARE_MASK) == PTE_COPY_ON_WRITE && copy_on_write(va, entry);
  } else if (error & FAULT_FETCH && value & PTE_NO_EXECUTE) {
    return 0;
  }
  // The tables allow it, so the processor has an old translation: unless it was opened just now, drop that.
  if (!opened) hypercall(va, CALL_INVALIDATE);
  return 1;
}

// ---- instructions -------------------------------------------------------

// Bytes of modrm, sib and displacement; p is at modrm.
static int modrm_length(const u8 *p) {
  int mod = p[0] >> 6, rm = p[0] & 7, n = 1;
  if (mod != 3 && rm == 4) {
    n++;
    if (mod == 0 && (p[1] & 7) == 5) n += 4;
  }
  if (mod == 0 && rm == 5) n += 4;
  if (mod == 1) n += 1;
  if (mod == 2) n += 4;
  return n;
}

// The address of a memory operand; p is at modrm, `next` is the next instruction.
static u64 operand_address(struct frame *f, const u8 *p, int rex, u64 next) {
  int mod = p[0] >> 6, rm = p[0] & 7;
  const u8 *q = p + 1;
  u64 address = 0;
  if (rm == 4) {
    int sib = *q++, base = sib & 7, index = ((sib >> 3) & 7) | ((rex & 2) << 2);
    if (index != 4) address = *reg(f, index) << (sib >> 6);
    if (mod == 0 && base == 5) return address + (u64)(long)*(const i32 *)q;
    address += *reg(f, base | ((rex & 1) << 3));
  } else if (mod == 0 && rm == 5) {
    return next + (u64)(long)*(const i32 *)q;
  } else {
    address = *reg(f, rm | ((rex & 1) << 3));
  }
  if (mod == 1) address += (u64)(long)(i8)*q;
  if (mod == 2) address += (u64)(long)*(const i32 *)q;
  return address;
}

// 0f 20, 0f 22: mov from and to a control register.
static int move_control(struct frame *f, const u8 *q, int rex) {
  int number = (q[2] >> 3) & 7;
  u64 *general = reg(f, (q[2] & 7) | ((rex & 1) << 3));
  if (q[1] == 0x20) {
    // What hyperlight-host sets CR0 and CR4 to. The guest writes back what it read, as a barrier.
    *general = number == 0 ? CR0_VALUE : number == 2 ? VAR_CR2 : number == 3 ? VAR_CR3 : number == 4 ? CR4_VALUE : 0;
  } else if (number == 3) {
    hypercall(*general, CALL_SET_CR3);
    VAR_CR3 = *general;
  } else if (number == 4 && *general & CR4_GLOBAL_PAGES) {
    hypercall(VAR_CR3, CALL_SET_CR3); // toggled by the guest to flush the TLB
  }
  f->rip = (u64)(q + 3);
  return 1;
}

// 0f 00, 0f 01: lgdt, lidt, ltr are skipped, as the shim's tables stay in place; invlpg.
static int system_instruction(struct frame *f, const u8 *q, int rex) {
  int operation = (q[2] >> 3) & 7, memory = q[2] >> 6 != 3;
  u64 next = (u64)(q + 2 + modrm_length(q + 2));
  if (q[1] == 0x01 && memory && operation == 7) { // invlpg
    hypercall(operand_address(f, q + 2, rex, next), CALL_INVALIDATE);
  } else if (q[1] == 0x01 && memory && operation == 3) { // lidt: the limit in two bytes, the address
    if (*(const u64 *)(operand_address(f, q + 2, rex, next) + 2) != UPSTREAM_IDT) {
      hypercall(0, CALL_ALLOW_IO);
      shim_abort("ring-3 shim: the guest's IDT is not where the shim looks for it");
    }
  } else if (!(q[1] == 0x01 && memory && operation == 2) && !(q[1] == 0x00 && operation == 3)) {
    return 0; // neither lgdt nor ltr
  }
  f->rip = next;
  return 1;
}

int shim_gp(struct frame *f) {
  const u8 *q = (const u8 *)f->rip;
  int rex = 0;
  for (;; q++) {
    if ((*q & 0xf0) == 0x40) rex = *q;
    else if (*q != 0x66) break;
  }
  if (q[0] == 0x0f && (q[1] == 0x20 || q[1] == 0x22)) return move_control(f, q, rex);
  if (q[0] == 0x0f && (q[1] == 0x01 || q[1] == 0x00)) return system_instruction(f, q, rex);
  switch (q[0]) {
  case 0x8e: // mov to a segment register: the shim's selectors stay
    f->rip = (u64)(q + 1 + modrm_length(q + 1));
    return 1;
  case 0xcb: // retfq, with which upstream loads its code segment: a near return that drops the selector
    if (!(rex & 8)) return 0;
    f->rip = *(u64 *)f->rsp;
    f->rsp += 16;
    return 1;
  case 0xee: // out: QEMU does not honour the bitmap once the TSS is busy, and keeps IOPL where KVM-PVM drops it
  case 0xef:
    if (f->rflags & RFLAGS_IOPL) return 0;
    hypercall(0, CALL_ALLOW_IO); // stays: an iretq in ring 3 does not change IOPL
    return 1;                    // again
  case 0xfa: // cli, sti: there are no interrupts
  case 0xfb:
    f->rip = (u64)(q + 1);
    return 1;
  }
  return 0;
}
