# What has to be assembly: the start, and the way of every exception from ring 0 to ring 3 and back.
#
# KVM-PVM emulates ring-0 code one instruction at a time (about 0.6 us each) and without SSE: so the way of a page fault is
# six instructions, and all decisions are taken in ring 3, in Rust. Names in capitals that are not defined here are the
# builder's (`builder/src/upstream.rs`), which takes them from Hyperlight's own crates.

.set SEL_KERNEL_CODE, 0x08
.set SEL_USER_DATA,   0x2b               # index 5, RPL 3: the selectors that Linux uses for user code and data, as
.set SEL_USER_CODE,   0x33               # KVM-PVM runs only what looks like a Linux user process natively
.set SEL_TSS,         0x38
.set GDT_BYTES,       9*8                # seven descriptors and the TSS's, which takes two
.set RFLAGS_RESERVED, 0x2                # bit 1 is always one
.set RFLAGS_KEEP,     0x3002             # what upstream's handlers start with: the I/O privilege level of who was interrupted
.set FRAME,           48                 # error code, rip, cs, rflags, rsp, ss
.set EXN_FRAME,       EXN_STACK_TOP-FRAME

.code64
.section .text.entry,"ax",@progbits
.balign 4096

# ---- boot --------------------------------------------------------------
# rdi, rsi, rdx, rcx are the arguments of upstream's entry point; the stack is upstream's exception stack.
.globl shim_entry
shim_entry:
  lea __ehdr_start(%rip),%rax
  cmp $LOAD_BASE,%rax                    # the builder fills in the tables below for one load address: refuse any other
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
  lea entrypoint(%rip),%rax              # upstream's
  push %rax
  iretq
wrong_load_address:
  lea load_address_text(%rip),%rsi
  jmp stop                               # ring 0 may do I/O

# ---- page faults and privileged instructions -----------------------------
# Stack 1 is the top of the stack that the shim has in ring 3: the processor pushes what it knows right where the Rust
# code reads it, and the way down is an iretq with a frame that never changes. The shim must not fault itself then, as
# that would push over it: `open_tables_once` and `first_fault` see to it. All of the shim's code, from
# entry.s or from Rust, lies side by side in the section `ring3_text`.
.globl shim_vector_14
shim_vector_14:                                     # error code, rip, cs, rflags, rsp, ss
  push %rax
  mov %cr2,%rax
  cmpq $0,VAR_CR3                        # scratch memory is zeroed by the host on a start and on each restore
  je first_fault
to_page_fault:
  lea page_fault_frame(%rip),%rsp
  iretq

.globl shim_vector_13
shim_vector_13:
  push %rax
  lea protection_fault_frame(%rip),%rsp
  iretq

# The first one: ring 3 can run nothing yet. Opens what the shim needs at once, and nothing else, as it is slow.
first_fault:
  .irp r,rcx,rdx,r8,r9,rax
  push %\r
  .endr
  lea __start_ring3_text(%rip),%rax
  call open_path
  lea __stop_ring3_text-1(%rip),%rax
  call open_path
  mov $SHIM_VARS,%rax
  call open_path
  mov $ALLOCATOR,%rax
  call open_path
  mov %cr3,%rax
  mov %rax,VAR_CR3
  mov %rax,%cr3                          # drops the translation of the shim's page, from before it was open
  .irp r,rax,r9,r8,rdx,rcx
  pop %\r
  .endr
  jmp to_page_fault

# Sets the user bits on the way to the address in rax, which is mapped. Leaves its leaf table's address in rcx.
# Changes rdx, r8, r9.
open_path:
  mov %cr3,%rcx
  movabs $PHYS_TO_VIRT,%r9
  movabs $PTE_ADDR_MASK,%r8
  .irp shift,36,27,18
  and %r8,%rcx
  add %r9,%rcx
  mov %rax,%rdx
  shr $\shift,%rdx
  and $0xff8,%edx
  orb $PTE_USER,(%rcx,%rdx)
  mov (%rcx,%rdx),%rcx
  .endr
  and %r8,%rcx
  add %r9,%rcx
  mov %rax,%rdx
  shr $9,%rdx
  and $0xff8,%edx
  orb $PTE_USER,(%rcx,%rdx)
  ret

# ---- calls from ring 3 to ring 0: calls.rs ----------------------------------
.globl shim_vector_6
shim_vector_6:                                      # rip, cs, rflags, rsp, ss
  push %rcx
  lea shim_hypercall_instruction(%rip),%rcx
  cmp %rcx,8(%rsp)
  pop %rcx
  jne generic6                           # some other invalid instruction
  addq $2,(%rsp)                         # past the ud2
  test %eax,%eax                         # CALL_INVALIDATE
  jnz 1f
  invlpg (%rdi)
  iretq
1: cmp $CALL_SET_CR3,%eax
  jne 2f
  mov %rdi,%cr3                          # which is also how the whole TLB is flushed
  iretq
2: cmp $CALL_OPEN,%eax
  jne 3f
  mov %rdi,%rax
  call open_path                         # rcx, rdx, r8, r9: the caller's to save
  mov %cr3,%rax                          # ring 0 has just read tables that are not open yet, and their translations
  mov %rax,%cr3                          # would be kept: ring 3 would fault on them
  mov %rcx,%rax
  iretq
3: orq $RFLAGS_IOPL,16(%rsp)             # CALL_ALLOW_IO: of the shim, which hands it on: ring 3 cannot change it
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
.globl shim_vector_\vector
shim_vector_\vector:
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
.macro PUSH_REST                         # struct Frame in lib.rs; rax is there already
  .irp r,rcx,rdx,rbx,rsp,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
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
# Calls the function in Rust with the frame and what is in rax, and does what it says.
.macro IN_RING3 function, vector
  cld
  PUSH_REST
  mov %rsp,%rdi
  mov %rax,%rsi
  call \function                         # the stack is aligned: 22 words below its top
  test %eax,%eax                         # Verdict::NotOurs
  jz 1f
  POP_ALL
  add $8,%rsp                            # error code
  iretq                                  # ring 3 to ring 3
1: POP_ALL
  push $\vector
  jmp to_upstream
.endm
protection_fault: IN_RING3 shim_protection_fault, 13
page_fault:
  mov %rax,VAR_CR2
  push %rax
  lea __start_ring3_text(%rip),%rax      # rip: is it the shim itself that faulted?
  cmp %rax,24(%rsp)
  jb 1f
  lea __stop_ring3_text(%rip),%rax
  cmp %rax,24(%rsp)
  jb shim_faulted                        # it has lost what it was working on
1: pop %rax
  IN_RING3 shim_page_fault, 14

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

.globl shim_hypercall                    # (argument, call): see shim_vector_6
shim_hypercall:
  mov %esi,%eax
shim_hypercall_instruction:
  ud2
  ret

# ---- the end, with a message that the host reports ------------------------
.globl shim_stop_for_foreign_idt
shim_stop_for_foreign_idt:
  lea foreign_idt_text(%rip),%rsi
  jmp stop_in_ring3
shim_faulted:
  lea shim_faulted_text(%rip),%rsi
stop_in_ring3:
  push %rsi
  mov $CALL_ALLOW_IO,%esi
  call shim_hypercall
  pop %rsi
# Each write to the port carries its length, here one, in the lowest byte. rsi: the text. In either ring, with any stack.
stop:
  mov $PORT_ABORT,%edx
  mov $1|ABORT_CODE<<8,%eax
1: out %eax,%dx
  movzbl (%rsi),%eax
  inc %rsi
  test %al,%al
  jz 2f
  shl $8,%eax
  or $1,%eax
  jmp 1b
2: mov $1|0xff<<8,%eax                   # end of text: the host does not run us again
  out %eax,%dx
3: jmp 3b

# Texts lie with the code, as all constants do: code is open, data need not be.
load_address_text: .asciz "ring-3 shim: loaded at another address than its tables were made for"
foreign_idt_text:  .asciz "ring-3 shim: the guest's IDT is not where the shim looks for it"
shim_faulted_text: .asciz "ring-3 shim: a page fault in the shim itself"

# ---- tables ------------------------------------------------------------
# Read by the processor and by ring 0 alone, and never written. The builder fills in addresses that are split over fields.
.section ring3_tables,"a",@progbits
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
  .quad 0, 0                             # 38: TSS
.balign 64
.globl shim_tss
shim_tss:
  .long 0
  .quad SHIM_RING0_STACK, 0, 0           # rsp0 to rsp2
  .quad 0
  .quad SHIM_RING3_STACK                 # ist1: page faults and protection faults
  .quad SHIM_RING0_STACK                 # ist2: the others, calls from the shim's ring 3 among them
  .quad 0,0,0,0,0
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
  .fill 32*16,1,0                        # gates of the vectors above
# The same, with addresses that the host relocates.
.section .data.rel.ro.ring3_tables,"aw",@progbits
.balign 16
shim_gdtr:
  .word GDT_BYTES-1
  .quad shim_gdt
.balign 16
shim_idtr:
  .word 32*16-1
  .quad shim_idt
.balign 16
# What iretq takes to go on in ring 3: below the processor's six words lies rax.
page_fault_frame:       .quad page_fault, SEL_USER_CODE, RFLAGS_RESERVED, SHIM_RING3_STACK-FRAME-8, SEL_USER_DATA
protection_fault_frame: .quad protection_fault, SEL_USER_CODE, RFLAGS_RESERVED, SHIM_RING3_STACK-FRAME-8, SEL_USER_DATA
