/* SPDX-License-Identifier: MIT */
/* Which Lua a process runs, with which layout: decided by its memory.
 *
 * What the marks claim (ident.h) chooses the layouts that are tried. A layout is taken when the live process agrees: a lua_State
 * is found on the native stack of a stopped thread, its VM and main thread lead to each other, all frames can be walked, and every
 * Lua function on them has a prototype, a source and lines that make sense. Where no Lua runs at the moment, the VM found in memory must
 * have such functions among its objects. What was tried in vain is kept, with the reason. */
#ifndef LUAPULSE_ATTACH_RUNTIME_H
#define LUAPULSE_ATTACH_RUNTIME_H

#include "attach/vms.h"

enum { RUNTIMES_MAX = 4, RUNTIME_TRIED = 40, RUNTIME_WHY = 128 };

typedef struct {
  char name[96];
  char why[RUNTIME_WHY]; /* it was not taken */
} runtime_tried_t;

typedef struct {
  ident_t ident;            /* the claim; text is "" when there is none and a layout was given */
  const layout_t *layout;   /* NULL: none agrees */
  const char *origin;       /* where the layout is from */
  char why[RUNTIME_WHY];    /* what agreed, or, when none was taken, what did not last */
  char not_by_debug[256];   /* why the file's debug information says nothing; "": it does, or there is none */
  uint64_t vm_low, vm_high; /* LuaJIT: the interpreter's code */
  bool idle;                /* no Lua ran: it was checked by the functions in memory */
  runtime_tried_t tried[RUNTIME_TRIED];
  size_t tried_count;
  vms_t *vms;
} runtime_t;

/* A layout from somewhere else than those that are known; made when it is wanted. */
typedef struct {
  const layout_t *given; /* it alone is tried; NULL: none */
  const char *given_name;
  /* What the debug information of the file at `path` says, tried before those that are known: one of them that it agrees with, or one that it made
   * in `room`; NULL: there is none, or it says nothing, because of what is in `why_not`. NULL: debug information is not asked. */
  const layout_t *(*from_debug)(const char *path, layout_t *room, failure_t *why_not);
} runtime_options_t;

typedef struct {
  runtime_t runtimes[RUNTIMES_MAX];
  size_t count;
  layout_t from_debug[RUNTIMES_MAX]; /* those that were made */
  vms_seen_t *seen;
} runtimes_t;

/* Holds the process (leaving it held when true comes back and there is a runtime), decides, and lists the VMs. False when it cannot be held or memory is
 * out; that no layout agrees is no failure. */
bool runtimes_decide(runtimes_t *runtimes, target_t *target, const runtime_options_t *options,
                     failure_t *failure);
void runtimes_free(runtimes_t *runtimes);
bool runtimes_any(const runtimes_t *runtimes); /* that was decided */
/* Says that there is no Lua, and what was looked at. */
void runtimes_say_none(const runtimes_t *runtimes, const target_t *target, failure_t *failure);
/* Looks through the writable memory for VMs that were made since, while the process runs; those that were closed are taken out. */
void runtimes_look_again(runtimes_t *runtimes, target_t *target);
/* For who keeps many: gives back what only the decision needed. VMs stay where there is a layout. */
void runtimes_trim(runtimes_t *runtimes);

#endif
