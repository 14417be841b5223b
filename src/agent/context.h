/* SPDX-License-Identifier: MIT */
/* The registers of an interrupted thread, out of a signal handler's context. */
#ifndef LUAPULSE_AGENT_CONTEXT_H
#define LUAPULSE_AGENT_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

enum { CONTEXT_MAX_REGISTERS = 32 };

/* Copies the general registers; returns how many, 0 on a processor that is not known. *sp is the stack pointer. */
static inline size_t context_registers(const void *context, uintptr_t *registers, uintptr_t *sp) {
  const ucontext_t *u = context;
  size_t count = 0;
#if defined __x86_64__
  static const int general[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15, REG_RDI, REG_RSI,
                                REG_RAX, REG_RCX, REG_RDX, REG_R8,  REG_R9,  REG_R10, REG_R11};
  for (; count < sizeof general / sizeof general[0]; count++)
    registers[count] = (uintptr_t)u->uc_mcontext.gregs[general[count]];
  *sp = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
#elif defined __aarch64__
  for (; count < 31; count++) registers[count] = u->uc_mcontext.regs[count];
  *sp = u->uc_mcontext.sp;
#else
  (void)u;
  (void)registers;
  *sp = 0;
#endif
  return count;
}

#endif
