/* SPDX-License-Identifier: MIT */
/* Telling kernel time from user time; see kernel_time.h. Runs in signal handlers: reads through the kernel, which cannot fault. */
#include "agent/kernel_time.h"

#include <stdint.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#if defined __x86_64__ || defined __aarch64__
/* Code may be executable only, so it is not loaded. */
static size_t read_code(uintptr_t at, uint8_t *code, size_t size) {
  struct iovec local = {code, size}, remote = {(void *)at, size};
  ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  return got > 0 ? (size_t)got : 0;
}
#endif

#if defined __x86_64__

enum {
  RESUME_FLAG = 1 << 16, /* RF: the instruction is to be resumed after a fault */
  PAGE = 4096,
  REACH =
      128 /* bytes: string instructions go on in blocks, and may fault a little before or behind the page's beginning */
};

static bool after_system_call(const ucontext_t *u) {
  uint8_t code[2];
  uintptr_t pc = (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
  return read_code(pc - sizeof code, code, sizeof code) == sizeof code && code[0] == 0x0f && code[1] == 0x05;
}

/* rep movs, stos and the like, with or without REX. */
static bool is_repeated(uintptr_t pc) {
  uint8_t code[3] = {0};
  read_code(pc, code, sizeof code);
  uint8_t operation = (code[1] & 0xf0) == 0x40 ? code[2] : code[1];
  return (code[0] == 0xf2 || code[0] == 0xf3) &&
         ((operation >= 0xa4 && operation <= 0xa7) || (operation >= 0xaa && operation <= 0xaf));
}

static bool at_page(greg_t address) {
  return ((uintptr_t)address + REACH) % PAGE < (uintptr_t)2 * REACH;
}

/* Intel's processors set the flag as well when a repeated string instruction is interrupted in user mode. It faults where it comes to
 * another page, and is interrupted anywhere. */
static bool after_fault(const ucontext_t *u) {
  const greg_t *registers = u->uc_mcontext.gregs;
  if ((registers[REG_EFL] & RESUME_FLAG) == 0) return false;
  return !is_repeated((uintptr_t)registers[REG_RIP]) || at_page(registers[REG_RDI]) ||
         at_page(registers[REG_RSI]);
}

bool kernel_time_ended(const void *context) {
  return after_fault(context) || after_system_call(context);
}

#elif defined __aarch64__

bool kernel_time_ended(const void *context) {
  const ucontext_t *u = context;
  uint8_t code[4];
  uintptr_t at = (uintptr_t)u->uc_mcontext.pc - sizeof code;
  return read_code(at, code, sizeof code) == sizeof code && code[0] == 0x01 && code[1] == 0 && code[2] == 0 &&
         code[3] == 0xd4;
}

#else

bool kernel_time_ended(const void *context) {
  (void)context;
  return false;
}

#endif
