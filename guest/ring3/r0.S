# Ring-0 part of the ring-3 shim: sets up the processor's tables, drops to ring 3, and takes every exception.
#
# KVM-PVM emulates ring-0 code one instruction at a time (about 0.6 us each) and without SSE: so this file is short, and
# all decisions are taken in ring 3, in r3.c. Names in capitals that are not defined here come from the builder's
# `upstream.rs`, which takes them from Hyperlight's own crates.

.set SEL_KERNEL_CODE, 0x08
.set SEL_USER_DATA,   0x2b               # index 5, RPL 3: the selectors that Linux uses for user code and data, as
.set SEL_USER_CODE,   0x33               # KVM-PVM runs only what looks like a Linux user process natively
.set SEL_TSS,         0x38
.set GDT_BYTES,       9*8                # seven descriptors and the TSS's, which takes two
.set RFLAGS_RESERVED, 0x2                # bit 1 is always one
.set RFLAGS_KEEP,     0x3002             # what a handler starts with: the I/O privilege level of who was interrupted
.set RFLAGS_IOPL,     0x3000
.set PF_PRESENT,      1                  # page-fault error code: the page was there, the access was not allowed
.set PF_WRITE,        2
.set PF_USER,         4
.set PF_FETCH,        0x10
.set PTE_USER,        4
.set VAR_CR3,         SHIM_VARS          # control registers, as ring 3 cannot read them
.set VAR_CR2,         SHIM_VARS+8
.set VAR_TARGET,      SHIM_VARS+16       # upstream's handler, for an indirect jump with every register the guest's
.set FRAME,           48                 # error code, rip, cs, rflags, rsp, ss
.set R3_FRAME,        SHIM_RING3_STACK-FRAME
.set EXN_FRAME,       EXN_STACK_TOP-FRAME

.code64
.section .text.entry,"ax"

# ---- boot --------------------------------------------------------------
# rdi, rsi, rdx, rcx are the arguments of upstream's entry point; the stack is upstream's exception stack.
.globl shim_entry
shim_entry:
  lea shim_entry(%rip),%rax
  cmp $shim_entry,%rax                   # everything below is linked for one load address: refuse any other
  jne wrong_load_address
  lea shim_gdt(%rip),%rax
  mov %rsp,%r10
  # `ltr` sets the busy bit in the descriptor, and the image is read-only until the first copy on write, which needs the
  # handlers below. So the task register is loaded from a copy of the GDT on the stack, and then the GDT is changed.
  sub $GDT_BYTES+8,%rsp
  .irp i,0,1,2,3,4,5,6,7,8
  mov (8*\i)(%rax),%rbx
  mov %rbx,(8*\i)(%rsp)
  .endr
  push %rsp
  pushw $GDT_BYTES-1
  lgdt (%rsp)
  mov $SEL_TSS,%ebx
  ltr %bx
  lea shim_gdtr(%rip),%rbx
  lgdt (%rbx)
  lea shim_idtr(%rip),%rbx
  lidt (%rbx)
  mov $SEL_USER_DATA,%ebx
  mov %ebx,%ds
  mov %ebx,%es
  mov %ebx,%fs
  mov %ebx,%gs
  mov %r10,%rsp                          # the guest must not see that its stack was used
  push $SEL_USER_DATA
  push %r10
  push $RFLAGS_RESERVED
  push $SEL_USER_CODE
  mov $UPSTREAM_ENTRY,%eax
  push %rax
  iretq
wrong_load_address:
  lea load_address_text(%rip),%rdi
  jmp shim_abort                         # ring 0 may do I/O, and shim_abort is position independent

# ---- page faults -------------------------------------------------------
# One level of a page-table walk of the address in rax: sets the user bit of the entry, leaves the entry in rdx and the
# next table's address in rcx. r8: mask of an entry's address, r9: from physical to virtual.
.macro WALK shift
  mov %rax,%rdx
  shr $(\shift-3),%rdx
  and $0xff8,%edx
  add %rdx,%rcx
  mov (%rcx),%rdx
  test $PTE_USER,%dl
  jnz 1f
  or $PTE_USER,%rdx
  orq $PTE_USER,(%rcx)
1:
.if \shift > 12
  mov %rdx,%rcx
  and %r8,%rcx
  add %r9,%rcx
.endif
.endm

# Leaves an exception with an error code for `handler` in ring 3, on the shim's own ring-3 stack, which is always mapped:
# the guest's may be what faulted. On the stack: rax, error code, rip, cs, rflags, rsp, ss.
.macro TO_RING3 handler
  .irp i,0,1,2,3,4,5
  mov 8+8*\i(%rsp),%rax
  mov %rax,R3_FRAME+8*\i
  .endr
  movq $R3_FRAME,40(%rsp)
  movq $\handler,16(%rsp)
  andq $RFLAGS_KEEP,32(%rsp)
  pop %rax
  add $8,%rsp
  iretq
.endm

# The same, with the control registers that the handler needs. rax is saved.
.macro PAGE_FAULT_TO_RING3 handler
  mov %cr3,%rax
  mov %rax,VAR_CR3
  mov %cr2,%rax
  mov %rax,VAR_CR2
  TO_RING3 \handler
.endm

.globl v14
v14:                                     # error code, rip, cs, rflags, rsp, ss
  push %rax
  mov 16(%rsp),%rax                      # rip: is it the shim itself that faulted?
  cmp $shim_entry,%rax
  jb 1f
  cmp $shim_code_end,%rax
  jb shim_fault                          # which must not overwrite what shim_pf is working on
1: PAGE_FAULT_TO_RING3 r3_pf

# The shim, in ring 3, touched a page that has no user bit yet: its own code and stacks, page tables, the page a copy goes
# to. Set the bits and try again; anything else is an error in the shim, and upstream's handler reports it.
shim_fault:
  push %rcx
  push %rdx
  push %r8
  push %r9
  mov %cr2,%rax
  testb $PF_PRESENT,40(%rsp)             # five registers are on the stack below the error code
  jz shim_fault_is_fatal
  mov %cr3,%rcx
  movabs $PHYS_TO_VIRT,%r9
  movabs $PTE_ADDR_MASK,%r8
  and %r8,%rcx
  add %r9,%rcx
  WALK 39
  WALK 30
  WALK 21
  WALK 12                                # rdx: the page's own entry
  testb $PF_WRITE,40(%rsp)
  jz 2f
  test $PTE_WRITABLE,%dl
  jz shim_fault_is_fatal
2: testb $PF_FETCH,40(%rsp)
  jz 3f
  test %rdx,%rdx                         # bit 63: no execute
  js shim_fault_is_fatal
3: pop %r9
  pop %r8
  pop %rdx
  pop %rcx
  pop %rax
  add $8,%rsp
  iretq
shim_fault_is_fatal:
  pop %r9
  pop %r8
  pop %rdx
  pop %rcx
  PAGE_FAULT_TO_RING3 r3_pf_fatal

# ---- privileged instructions -------------------------------------------
.globl v13
v13:                                     # error code, rip, cs, rflags, rsp, ss
  push %rax
  mov %cr3,%rax
  mov %rax,VAR_CR3
  TO_RING3 r3_gp

# ---- calls from ring 3 to ring 0 ---------------------------------------
.globl v6
v6:                                      # rip, cs, rflags, rsp, ss
  cmpq $hypercall_instruction,(%rsp)
  jne generic6                           # some other invalid instruction
  addq $2,(%rsp)                         # past the ud2
  test %eax,%eax
  jnz 1f
  invlpg (%rdi)
  iretq
1: cmp $CALL_SET_CR3,%eax
  jne 2f
  mov %rdi,%cr3                          # which is also how the whole TLB is flushed
  iretq
2: orq $RFLAGS_IOPL,16(%rsp)             # CALL_ALLOW_IO
  iretq

# ---- every other exception: upstream's handler takes it, in ring 3 -----
# rcx: vector * 16 -> eax: the handler's address, of which the low half is enough, as the image lies below 2 GiB.
.macro UPSTREAM_HANDLER
  movabs $UPSTREAM_IDT,%rdx
  add %rdx,%rcx
  movzwl GATE_OFFSET_LOW(%rcx),%eax
  movzwl GATE_OFFSET_MID(%rcx),%edx
  shl $16,%edx
  or %edx,%eax
.endm
# Three registers and the vector are on the stack, then what the processor pushed: `words` of it.
.macro TO_UPSTREAM words
  push %rax
  push %rcx
  push %rdx
  mov $EXN_STACK_TOP-8*\words,%rcx
  .irp i,0,1,2,3,4
  mov 32+8*\i(%rsp),%rax
  mov %rax,8*\i(%rcx)
  .endr
.if \words == 6
  mov 32+8*5(%rsp),%rax
  mov %rax,8*5(%rcx)
.endif
  mov %rcx,32+8*(\words-2)(%rsp)         # rsp
  mov 24(%rsp),%ecx                      # vector
  shl $4,%ecx
  UPSTREAM_HANDLER
  mov %rax,32+8*(\words-5)(%rsp)         # rip
  andq $RFLAGS_KEEP,32+8*(\words-3)(%rsp)
  pop %rdx
  pop %rcx
  pop %rax
  add $8+8*(\words-5),%rsp               # the vector, and the error code if there is one
  iretq
.endm
.macro GENERIC vector, label
.globl v\vector
v\vector:
  push $\vector
  jmp \label
.endm
generic6:
  push $6
  jmp no_error_code
.irp n,0,1,2,3,4,5,7,9,15,16,18,19,20
GENERIC \n no_error_code
.endr
.irp n,8,10,11,12,17,30
GENERIC \n error_code
.endr
no_error_code: TO_UPSTREAM 5
error_code:    TO_UPSTREAM 6

# ---- ring 3 ------------------------------------------------------------
.macro PUSH_ALL                          # struct frame in r3.c
  .irp r,rax,rcx,rdx,rbx,rsp,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
  push %\r
  .endr
.endm
.macro POP_ALL
  .irp r,r15,r14,r13,r12,r11,r10,r9,r8,rdi,rsi,rbp
  pop %\r
  .endr
  add $8,%rsp                            # rsp: comes back with iretq
  .irp r,rbx,rdx,rcx,rax
  pop %\r
  .endr
.endm
# `function` says whether it has dealt with the exception; if not, upstream's handler gets it as if nobody had looked.
.macro IN_RING3 function, vector
  cld
  PUSH_ALL
  mov %rsp,%rdi
  call \function
  test %eax,%eax
  jz 1f
  POP_ALL
  add $8,%rsp                            # error code
  iretq                                  # ring 3 to ring 3
1: POP_ALL
  push $\vector
  jmp to_upstream
.endm
r3_gp: IN_RING3 shim_gp, 13
r3_pf: IN_RING3 shim_pf, 14
r3_pf_fatal:
  push $14
to_upstream:                             # vector, error code, rip, cs, rflags, rsp, ss on the shim's stack
  push %rax
  push %rcx
  push %rdx
  movabs $EXN_FRAME,%rcx
  .irp i,0,1,2,3,4,5
  mov 32+8*\i(%rsp),%rax
  mov %rax,8*\i(%rcx)
  .endr
  mov 24(%rsp),%ecx                      # vector
  shl $4,%ecx
  UPSTREAM_HANDLER
  mov %rax,VAR_TARGET
  pop %rdx
  pop %rcx
  pop %rax
  mov $EXN_FRAME,%rsp
  jmp *VAR_TARGET

.globl hypercall                         # (argument, call): see v6
hypercall:
  mov %esi,%eax
hypercall_instruction:
  ud2
  ret

# ---- tables ------------------------------------------------------------
.section .data.tables,"aw"
.balign 64
.globl shim_gdt
shim_gdt:
  .quad 0
  .quad 0x00af9b000000ffff               # 08: ring-0 code
  .quad 0x00cff3000000ffff               # 10: data, DPL 3, so that upstream's own loads of 0x10 succeed in ring 3
  .quad 0
  .quad 0
  .quad 0x00cff3000000ffff               # 2b: ring-3 data
  .quad 0x00affb000000ffff               # 33: ring-3 code, 64 bits
  .quad 0, 0                             # 38: TSS, filled in by the builder: its address is split over six fields
shim_gdtr:
  .word GDT_BYTES-1
  .quad shim_gdt
.balign 8
shim_idtr:
  .word 32*16-1
  .quad shim_idt
.balign 64
.globl shim_tss
shim_tss:
  .long 0
  .quad SHIM_RING0_STACK, 0, 0           # rsp0 to rsp2
  .quad 0
  .quad SHIM_RING0_STACK                 # ist1: every gate uses it, so that a fault in ring 0 finds a stack as well
  .quad 0,0,0,0,0,0
  .quad 0
  .word 0
  .word 0x68                             # where the I/O permission bitmap starts: here
  # Ring-0 `iretq` drops IOPL under KVM-PVM, hence the bitmap: ports 0 to 127 are allowed, the others are not.
  .fill IO_PORTS/8,1,0
  .byte 0xff                             # the processor wants a byte of ones behind the last
.globl shim_tss_end
shim_tss_end:
.balign 64
.globl shim_idt
shim_idt:
  .fill 32*16,1,0                        # gates of the vectors above, filled in by the builder
load_address_text:
  .asciz "ring-3 shim: loaded at another address than it was linked for"
