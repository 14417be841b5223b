/* SPDX-License-Identifier: MIT */
/* All Lua stacks of a process at one moment: taken while it is held, read when it runs again. */
#ifndef LUAPULSE_ATTACH_SNAPSHOT_H
#define LUAPULSE_ATTACH_SNAPSHOT_H

#include "attach/runtime.h"

enum {
  SNAPSHOT_STACKS = 65536,   /* coroutines at most */
  SNAPSHOT_FRAMES = 1 << 20, /* of all of them */
  SNAPSHOT_SOURCES = 4096,
  SNAPSHOT_SOURCE_BYTES = 65536 /* kept of each: a chunk's source may be its text */
};

typedef struct {
  uint64_t object; /* the string it was */
  char *text;
  size_t len;
} snapshot_source_t;

typedef struct {
  uint32_t kind;         /* walk_kind_t */
  uint32_t ffid;         /* WALK_BUILTIN; WALK_LUA: walk_frame_t.shift */
  uint64_t code;         /* WALK_C, WALK_BUILTIN; WALK_LUA: walk_frame_t.slot */
  uint64_t function;     /* the object, 0: none */
  uint64_t proto;        /* WALK_LUA: the prototype, and … */
  uint32_t mark;         /* … walk_mark() of it */
  bool tail;             /* WALK_LUA: the frame below may not be its caller's */
  uint64_t pc;           /* WALK_LUA: the instruction at work, 0 when unknown */
  int32_t line, defined; /* WALK_LUA: at work, of definition; 0 when unknown, defined 0: a main chunk */
  uint32_t source;       /* WALK_LUA: index, SNAPSHOT_SOURCES when it could not be read */
} snapshot_frame_t;

typedef struct {
  uint64_t state, global;
  size_t runtime;
  pid_t thread; /* on whose native stack it is, 0: on none */
  bool main;
  bool status_known;
  coroutine_status_t status;
  walk_reason_t reason; /* WALK_OK, or why the frames are not there or not all */
  bool truncated;
  size_t first, count; /* frames, leaf first */
} snapshot_stack_t;

/* How the list of a VM's coroutines ended. */
typedef struct {
  uint64_t global;
  size_t runtime;
  objects_end_t end;
  uint64_t objects;  /* followed */
  size_t coroutines; /* that are on no native stack */
} snapshot_vm_t;

typedef struct {
  snapshot_stack_t *stacks; /* those of threads first, thread by thread and innermost first; then VM by VM */
  size_t stack_count, stack_room;
  snapshot_frame_t *frames;
  size_t frame_count, frame_room;
  snapshot_source_t *sources;
  size_t source_count, source_room;
  snapshot_vm_t *vms;
  size_t vm_count, vm_room;
  bool cut;    /* one of the bounds above was met */
  bool failed; /* memory was out */
} snapshot_t;

/* The process is held. False when memory is out. */
bool snapshot_take(snapshot_t *snapshot, target_t *target, const runtimes_t *runtimes);
void snapshot_free(snapshot_t *snapshot);

#endif
