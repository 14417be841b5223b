/* SPDX-License-Identifier: MIT */
/* The registers of a thread that is stopped by ptrace, numbered as in walk/registers.h. */
#ifndef LUAPULSE_ATTACH_REGISTERS_PTRACE_H
#define LUAPULSE_ATTACH_REGISTERS_PTRACE_H

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "walk/registers.h"

/* False on a processor that is not known, for a 32-bit thread, and when the thread is not stopped. */
static inline bool registers_of_stopped(pid_t tid, walk_registers_t *out) {
#if defined __x86_64__
  struct user_regs_struct r;
  struct iovec place = {&r, sizeof r};
  if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &place) != 0 || place.iov_len != sizeof r)
    return false; /* of a 32-bit thread there are fewer */
  const uint64_t values[X64_COUNT] = {
      [X64_RBX] = r.rbx, [X64_RBP] = r.rbp, [X64_R12] = r.r12, [X64_R13] = r.r13, [X64_R14] = r.r14,
      [X64_R15] = r.r15, [X64_RDI] = r.rdi, [X64_RSI] = r.rsi, [X64_RAX] = r.rax, [X64_RCX] = r.rcx,
      [X64_RDX] = r.rdx, [X64_R8] = r.r8,   [X64_R9] = r.r9,   [X64_R10] = r.r10, [X64_R11] = r.r11,
  };
  for (int i = 0; i < X64_COUNT; i++) out->values[i] = values[i];
  out->count = X64_COUNT;
  out->sp = r.rsp;
  out->pc = r.rip;
  return true;
#elif defined __aarch64__
  struct user_regs_struct r;
  struct iovec place = {&r, sizeof r};
  if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &place) != 0 || place.iov_len != sizeof r)
    return false;
  for (int i = 0; i < ARM64_SAVED; i++) out->values[i] = r.regs[19 + i];
  for (int i = 0; i < 19; i++) out->values[ARM64_SAVED + i] = r.regs[i];
  out->count = ARM64_COUNT;
  out->sp = r.sp;
  out->pc = r.pc;
  return true;
#else
  (void)tid;
  out->count = 0;
  out->sp = out->pc = 0;
  return false;
#endif
}

#endif
