/* SPDX-License-Identifier: MIT */
/* LuaJIT: an event at the next instruction, without lua_sethook.
 *
 * Mental model. LuaJIT's interpreter jumps to each instruction through a table, `now`, one entry for each opcode; a second table, `usual`,
 * has what stands there while no hook is set, and is where a hook goes on to when it is done. A count hook fills the whole of `now` with
 * one address, that of the code that counts down and calls the hook; lua_sethook does so, and undoes it, by copying all of it. We wait
 * for the end of a C function with a count of one, twice for each call of one, and know which instruction will be the next: its caller's,
 * at the place where the function returns to. So we write that one entry, and the bit of the count hook in the VM's mask of hooks, and
 * take both back in the event. The count itself is set to one by lua_sethook at the start of tracing, and LuaJIT sets it anew each time.
 *
 * Why it is safe:
 * - Where the tables and the mask are is learned at each start by what lua_sethook changes in them, and only within the GG_State of a VM
 *   whose layout was checked. Whatever looks odd, and everything is left to lua_sethook, as it is for callers that are not known.
 * - An entry is written only if it is the usual one, and taken back only if it is still ours. If it stays (a hook of the program's took the
 *   place of ours), the code behind it sees no count hook in the mask and goes on to the usual instruction. Returns are never written:
 *   they have a hook of their own, which tells that the C function has ended as well.
 * - If LuaJIT itself rewrites the tables meanwhile (jit.on, its profiler), it finds the bit in the mask and fills all of `now`, as if
 *   lua_sethook had set it. That shows in a second entry, and lua_sethook puts it right.
 * - An event at another instruction than the expected one (the function raised an error, or called back) is as right as any: an
 *   instruction runs, so what was above its function has ended.
 *
 * All of it on the thread that runs the VM, in hooks and at start and stop. */
#ifndef LUAPULSE_AGENT_LUAJIT_DISPATCH_H
#define LUAPULSE_AGENT_LUAJIT_DISPATCH_H

#include "agent/lua_version.h"
#include "walk/layout.h"

enum { LUAJIT_DISPATCH_NONE = 256 /* no opcode */ };

typedef struct {
  uint64_t *now;         /* by opcode: where the interpreter jumps to */
  const uint64_t *usual; /* … while no hook is set */
  uint8_t *mask;         /* of hooks, in global_State; the upper bits are LuaJIT's own */
  uint64_t counting;     /* the code that counts instructions */
  uint64_t returning;    /* the code that calls the hook of returns */
  uint32_t opcodes; /* that have an entry in both tables; 0: nothing was learned, nothing is ever written */
  uint32_t armed;   /* the opcode whose entry is ours, or LUAJIT_DISPATCH_NONE */
} luajit_dispatch_t;

/* Finds the tables of the VM. The JIT is off, and there is no hook, nor is there one afterwards. */
void luajit_dispatch_learn(luajit_dispatch_t *d, const layout_luajit_t *l, lua_State *L, uint64_t global);

/* Where the interpreter goes on when the functions of C on top of L have returned, 0 when that is not known. */
uint64_t luajit_dispatch_next(const layout_luajit_t *l, lua_State *L);

/* Rare: the entry is not the usual one, or another one is ours. */
bool luajit_dispatch_arm_other(luajit_dispatch_t *d, uint32_t opcode);

/* An event will come when the instruction at pc runs, that of the count hook or that of a return. False: it will not. */
static inline bool luajit_dispatch_arm(luajit_dispatch_t *d, uint64_t pc) {
  uint32_t opcode = *(const uint8_t *)(uintptr_t)pc;
  if (opcode >= d->opcodes) return false;
  uint64_t entry = d->now[opcode];
  if (entry != d->usual[opcode] || d->armed != LUAJIT_DISPATCH_NONE)
    return luajit_dispatch_arm_other(d, opcode);
  /* the mask first: if a signal's handler sets a hook in between, the mask is its own, and the entry alone does nothing */
  *d->mask = (uint8_t)(*d->mask | LUA_MASKCOUNT);
  d->now[opcode] = d->counting;
  d->armed = opcode;
  return true;
}

static inline bool luajit_dispatch_is_armed(const luajit_dispatch_t *d) {
  return d->armed != LUAJIT_DISPATCH_NONE;
}

/* Takes it back, in an event. False: LuaJIT has filled the table meanwhile, lua_sethook is to put it right. */
static inline bool luajit_dispatch_disarm(luajit_dispatch_t *d) {
  uint32_t opcode = d->armed;
  d->armed = LUAJIT_DISPATCH_NONE;
  *d->mask = (uint8_t)(*d->mask & ~LUA_MASKCOUNT);
  if (d->now[opcode] == d->counting) d->now[opcode] = d->usual[opcode];
  return d->now[opcode == 0] != d->counting;
}

/* Before lua_sethook, or when the hook is another one's: takes back what is still ours. */
void luajit_dispatch_release(luajit_dispatch_t *d);

#endif
