/* SPDX-License-Identifier: MIT */
/* The registers of an interrupted thread, out of a signal handler's context, numbered as in walk/registers.h. */
#ifndef LUAPULSE_AGENT_REGISTERS_CONTEXT_H
#define LUAPULSE_AGENT_REGISTERS_CONTEXT_H

#include <ucontext.h>

#include "walk/registers.h"

/* False on a processor that is not known. */
static inline bool registers_of_context(const void *context, walk_registers_t *out) {
  const ucontext_t *u = context;
#if defined __x86_64__
  static const int general[X64_COUNT] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14,
                                         REG_R15, REG_RDI, REG_RSI, REG_RAX, REG_RCX,
                                         REG_RDX, REG_R8,  REG_R9,  REG_R10, REG_R11};
  for (int i = 0; i < X64_COUNT; i++) out->values[i] = (uint64_t)u->uc_mcontext.gregs[general[i]];
  out->count = X64_COUNT;
  out->sp = (uint64_t)u->uc_mcontext.gregs[REG_RSP];
  out->pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
  return true;
#elif defined __aarch64__
  /* x19 … x28 and the frame pointer are callee-saved */
  for (int i = 0; i < ARM64_SAVED; i++) out->values[i] = u->uc_mcontext.regs[19 + i];
  for (int i = 0; i < 19; i++) out->values[ARM64_SAVED + i] = u->uc_mcontext.regs[i];
  out->count = ARM64_COUNT;
  out->sp = u->uc_mcontext.sp;
  out->pc = u->uc_mcontext.pc;
  return true;
#else
  (void)u;
  out->count = 0;
  out->sp = out->pc = 0;
  return false;
#endif
}

#endif
