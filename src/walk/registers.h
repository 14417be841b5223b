/* SPDX-License-Identifier: MIT */
/* How a walk numbers the registers of an interrupted thread. */
#ifndef LUAPULSE_WALK_REGISTERS_H
#define LUAPULSE_WALK_REGISTERS_H

#include "walk/walk.h"

/* x86-64: callee-saved ones first: C code keeps what it needs for long in them. */
enum {
  X64_RBX,
  X64_RBP,
  X64_R12,
  X64_R13,
  X64_R14,
  X64_R15,
  X64_SAVED, /* how many are callee-saved */
  X64_RDI = X64_SAVED,
  X64_RSI,
  X64_RAX,
  X64_RCX,
  X64_RDX,
  X64_R8,
  X64_R9,
  X64_R10,
  X64_R11,
  X64_COUNT
};

/* arm64: x19 to x29, which are callee-saved, then x0 to x18. */
enum { ARM64_X19 = 0, ARM64_X21 = 2, ARM64_SAVED = 11, ARM64_COUNT = 30 };

/* LuaJIT's interpreter has the base of the frame that runs, and where its code goes on, in registers; the base in one that C code which
 * it calls has to keep. */
#if defined __aarch64__ || defined __TARGET_ARCH_arm64
enum {
  REGISTERS_SAVED = ARM64_SAVED,
  REGISTERS_ALL = ARM64_COUNT,
  LUAJIT_BASE = ARM64_X19,
  LUAJIT_BASE_KEPT = ARM64_X19,
  LUAJIT_PC = ARM64_X21
};
#else
enum {
  REGISTERS_SAVED = X64_SAVED,
  REGISTERS_ALL = X64_COUNT,
  LUAJIT_BASE = X64_RDX,
  LUAJIT_BASE_KEPT = X64_RBP,
  LUAJIT_PC = X64_RBX
};
#endif

#endif
