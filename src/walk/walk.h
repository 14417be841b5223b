/* SPDX-License-Identifier: MIT */
/* Lua stacks out of raw memory: find the lua_State that runs on a native stack, walk its frames and those of the coroutines
 * that resumed it, tell functions and lines. Without the Lua interface, on a process stopped at any instruction.
 *
 * Mental model. A walk has a layout (where things are), a memory (how to read) and the registers of the interrupted
 * thread. It trusts nothing: every read can fail, every loop is bounded, every failure has a reason that is counted. One
 * walk_t serves one thread at a time; it is large and holds no pointers into itself, so it may live anywhere.
 *
 * No Lua, no libc beyond memcpy: the same source serves a signal handler, another process and recorded memory. */
#ifndef LUAPULSE_WALK_WALK_H
#define LUAPULSE_WALK_WALK_H

#include <stddef.h>

#include "walk/layout.h"
#include "walk/memory.h"

enum {
  WALK_MAX_FRAMES = 1024,
  WALK_MAX_STATES = 64, /* running coroutines of one native stack */
  WALK_MAX_REGISTERS = 32,
  WALK_SCAN_BYTES = 65536, /* of native stack looked at for lua_States */
  WALK_MAX_LOOKS = 1024,   /* words of it that may be one */
  WALK_RULED_OUT = 1024,   /* words remembered not to be one */
  WALK_WORDS = 64,         /* of it read at a time */
  WALK_BUFFER = 192,       /* bytes of a structure read at a time */
  WALK_WINDOW = 64,        /* words of a Lua stack read at a time in BPF */
  WALK_CALL = 96,          /* bytes of a call record, at most … */
  WALK_CALLS_READ = 1024,  /* … and of records side by side, read at a time in BPF */
  WALK_OBJECT = 64,        /* bytes of a function object, at most … */
  WALK_OBJECTS_READ = 512, /* … and of such that lie near each other, read at a time in BPF */
  WALK_CODE_READ = 512,    /* bytes of a prototype and its code, read at a time in BPF */
  WALK_SOURCE = 128,       /* bytes of the string of a source's name, read at once: most have no more */
  WALK_SOURCES_BITS = 4,   /* of their number, which are remembered of a walk */
  WALK_SOURCES = 1 << WALK_SOURCES_BITS,
  WALK_MET_BITS = 6, /* likewise of functions, and of instructions that call */
  WALK_MET = 1 << WALK_MET_BITS,
  WALK_NEAR_IMAGES = 8,
  WALK_MAX_TOPS = 5,
  WALK_BARREN = 8,           /* places remembered to have nothing above … */
  WALK_BARREN_FOR = 16,      /* … for so many walks */
  WALK_NO_SHIFT = UINT16_MAX /* not known: the call may be in the making */
};

typedef enum {
  WALK_OK,
  WALK_NO_STATE,     /* no Lua runs on this native stack */
  WALK_BAD_CALLINFO, /* a call record cannot be read or leads nowhere */
  WALK_BAD_SLOT,     /* a stack slot cannot be read: the stack is being moved */
  WALK_NO_FUNCTION,  /* the slot of a call holds no function */
  WALK_BAD_FUNCTION, /* the function's memory holds none */
  WALK_BAD_BASE,     /* LuaJIT: no valid frame to start from */
  WALK_BAD_LINK,     /* LuaJIT: a frame leads outside the stack */
  WALK_ENDLESS,      /* more steps than any stack has */
  WALK_REASONS
} walk_reason_t;

typedef enum {
  WALK_LUA,
  WALK_C,
  WALK_BUILTIN,
  WALK_COLLECTOR /* no function: the collector, which called the finalizer above; only where it is asked for */
} walk_kind_t;

/* What a C function does with coroutines. */
typedef enum {
  WALK_C_ANY,              /* anything, for all that is known */
  WALK_C_INERT,            /* it runs no other without a Lua frame on top of its own */
  WALK_C_RESUMES_ARGUMENT, /* it resumes its first argument, and no other: coroutine.resume */
  WALK_C_RESUMES_UPVALUE   /* its first upvalue, and no other: what coroutine.wrap makes */
} walk_nature_t;

typedef struct {
  uint64_t function; /* the function object; 0 for a light C function */
  uint64_t proto;    /* WALK_LUA: its prototype */
  union {
    uint64_t code; /* WALK_C, WALK_BUILTIN: address of the C function (or of the built-in's code) */
    uint64_t slot; /* WALK_LUA, where marks are: PUC: of the function; LuaJIT: its first register */
  };
  uint64_t pc;   /* WALK_LUA: address of the instruction at work, 0 when unknown */
  uint32_t mark; /* WALK_LUA, where it is asked for: walk_mark() of the prototype */
  uint8_t kind;  /* walk_kind_t */
  uint8_t tail;  /* WALK_LUA, where marks are: the frame below may not be its caller's */
  union {
    uint16_t ffid; /* WALK_BUILTIN: its number */
    uint16_t
        shift; /* WALK_LUA of PUC, where marks are: slots from `slot` to its first register (up to 5.3); extra arguments, if it is a
                     * vararg function (5.4 on) */
  };
} walk_frame_t;

typedef enum {
  WALK_IN_KERNEL = 1, /* where the thread was interrupted; as far as the engine can tell */
  WALK_COLLECTING = 2 /* walk_is_collecting() */
} walk_origin_flags_t;

/* Whose stack it is, for who hands it on; a walk does not look at it. */
typedef struct {
  uint64_t time;   /* CLOCK_MONOTONIC, ns */
  uint64_t weight; /* CPU time that the sample stands for, ns; 0: the period */
  uint64_t pc; /* in the program's own code, native: where it was, or has called the kernel; 0 when unknown */
  uint64_t space;  /* tells address spaces apart: it changes with exec, a forked child has another */
  uint64_t global; /* the VM of the innermost coroutine; 0: none was found */
  int32_t pid, tid;
  uint32_t runtime; /* which of the Luas of its process: index into runtimes_t */
  uint32_t reason;  /* walk_reason_t */
  uint32_t flags;   /* walk_origin_flags_t */
} walk_origin_t;

/* A coroutine that runs on the native stack: itself, or by having resumed one that does. */
typedef struct {
  uint64_t state;  /* lua_State */
  uint64_t global; /* global_State */
  uint64_t place;  /* on the native stack: its innermost protected call (PUC), its C frame (LuaJIT) */
  uint64_t call;   /* PUC: CallInfo of the running function; LuaJIT: base */
  uint64_t first;  /* PUC: CallInfo below the first */
  uint64_t stack, stack_end;
  uint64_t savedpc; /* 5.1 */
  uint64_t cframe;  /* LuaJIT: as in lua_State, flags included */
} walk_state_t;

/* Which register a build of PUC Lua keeps its pc in, as it turns out. */
typedef struct {
  uint64_t code; /* of the function that ran last */
  uint32_t
      last[WALK_MAX_REGISTERS]; /* lower half of what each register held when it last may have been the pc */
  uint32_t votes[WALK_MAX_REGISTERS]; /* how often what it held spoke for it */
} walk_pc_register_t;

typedef struct {
  uint64_t values[WALK_MAX_REGISTERS]; /* as the platform numbers them, see registers.h */
  uint32_t count;
  uint64_t pc, sp;
} walk_registers_t;

typedef struct {
  uint64_t start, end;
} walk_range_t;

/* LuaJIT: a frame as it lies on the stack. */
typedef struct {
  uint64_t place; /* from the bottom of the stack */
  uint64_t function, link;
  uint64_t continuation; /* the pc that stands below the frame of a metamethod */
  uint32_t frames;       /* walk->frame_count before it */
} walk_link_t;

/* LuaJIT: where the topmost frame may be. */
typedef struct {
  uint64_t base; /* 0: none */
  uint64_t pc;   /* next instruction of the topmost function, 0 when unknown */
  uint64_t
      of_callee; /* not 0: this is the frame it called or calls, whose link is the pc. As wide as the rest, for the verifiers
                       * before Linux 6.3 let nobody copy the space that a smaller one would leave */
} walk_top_t;

/* LuaJIT: what the VM was doing. */
typedef enum {
  WALK_VM_NONE, /* PUC */
  WALK_VM_INTERPRETER,
  WALK_VM_TRACE,
  WALK_VM_C,
  WALK_VM_GC,
  WALK_VM_COMPILER, /* recording, optimising, assembling */
  WALK_VM_EXIT
} walk_vmstate_t;

/* What a function's prototype tells. */
typedef struct {
  uint64_t proto;
  uint64_t source; /* string object */
  uint64_t code, code_end;
  uint64_t lines, anchors;
  uint32_t line_count, anchor_count;
  int32_t line, last_line; /* of definition */
} walk_proto_t;

typedef struct walk {
  const layout_t *layout;
  walk_memory_t *memory;
  walk_registers_t registers;
  /* The thread stands still in Lua's allocator: the walk is a call from there, not an interruption. Registers are not known
   * (all are on the native stack by then), and what is being made is not yet in sight: stacks and calls are whole. */
  bool calm;
  struct {
    uint64_t bytes;
    uint32_t type;              /* of a new object from 5.2 on, as the allocator is told; else 0 */
  } allocating;                 /* calm: what the allocator is asked for */
  uint64_t calm_low, calm_high; /* calm: the stack being read */
  bool mark_collector;          /* frames of finalizers are to stand above one of the collector */
  bool last_is_alive;           /* calm: the coroutine that ran in the last walk was not freed since */
  bool mark_functions;          /* frames are to tell prototypes from others that come to the same address */
  bool stack_known;         /* stack_high is the end of the native stack: nothing up to it is a lua_State */
  bool alone;               /* no other VM counts: nothing else can run inside this one */
  uint64_t stack_high;      /* end of the native stack, or a bound for it */
  uint64_t vm_low, vm_high; /* LuaJIT: code of the interpreter, 0 when unknown */

  /* What need not be read to be known for no lua_State: whose address has not this remainder by 16 (mask 15, or 7: by 8),
   * or lies in a program or library. Sorted; NULL: none is known. */
  uint64_t state_mask, state_rest;
  const walk_range_t *images;
  uint32_t image_count;

  /* Words that were seen to be no lua_States, by walk_word_slot(); NULL: not remembered. Only for who sees all that is
   * allocated: an address that becomes one must be taken out. */
  uint64_t *ruled_out;

  /* Places of coroutines above which no state was found lately: a host's C code resumes them, and most of a walk would be the way to the
   * end of the native stack. Places are of one process; whoever walks has to empty it now and then. */
  uint64_t barren[WALK_BARREN];
  uint32_t barren_walks;
  bool remembers_barren;

  /* The VMs that count: NULL takes any whose memory is consistent. */
  bool (*accepts)(void *context, uint64_t global);
  walk_nature_t (*nature)(void *context, uint64_t code); /* of a C function; NULL: of none it is known */
  void *context;
  uint64_t likely_global; /* LuaJIT: the VM whose current state is asked for first; alive, 0 none */
  uint64_t likely_main;   /* PUC: a main thread that is alive, looked at first; 0 none */

  uint32_t state_count, last_count; /* of states and last, below */
  uint32_t looks; /* left to take: so many words are read for lua_States in a walk, no more */
  uint32_t soon_count;
  uint64_t linked;        /* from this place up each state resumes the next one in; 0: none is known to */
  walk_state_t candidate; /* that is being looked at; not on the stack, of which BPF has little */
  _Alignas(8) uint8_t buffer[WALK_BUFFER]; /* the structure at hand */
  uint16_t met[WALK_MET];         /* by walk_slot(): where in frames its function was met, if it was */
  walk_top_t tops[WALK_MAX_TOPS]; /* best first */

  /* LuaJIT, where it is asked for: the frames as they lie, leaf first; NULL: not wanted */
  walk_link_t *links;
  uint32_t link_count;
  bool links_unsure; /* a frame has its pc elsewhere */

  struct {
    uint64_t table;
    uint32_t count, first, number;
  } traces; /* LuaJIT: among which the one that runs is looked for, if it is */

  walk_pc_register_t pc_register; /* PUC; kept from walk to walk */

  struct {
    struct {
      uint64_t source, hash;
    } sources[WALK_SOURCES]; /* met in this walk, by walk_slot() */
    /* of the last one's string, from the beginning; not on the stack, of which BPF has little */
    uint64_t words[WALK_SOURCE / 8];
    uint64_t tail;      /* the last of it */
    walk_proto_t proto; /* likewise */
  } marked;

  uint64_t zero; /* BPF: see walk_zero() */

  uint64_t parser_node; /* calm, PUC: where in its table the parser's closure was last */

  /* What is large comes last, so that what every walk touches lies together. The coroutines found, innermost first; kept for the next
   * walk, which checks them first */
  walk_state_t states[WALK_MAX_STATES];
  walk_state_t last[WALK_MAX_STATES];
  uint64_t soon[WALK_FORESEEN]; /* words that are to be looked at, together */
  uint64_t words[WALK_WORDS];   /* of the native stack */
  uint64_t recent[WALK_WORDS];  /* words looked at in this walk, by walk_word_slot() */
  struct {
    uint64_t words[WALK_WINDOW];
    uint64_t low; /* where they lie; 0: nowhere */
  } window;       /* BPF: of the Lua stack that is being read */
  struct {
    _Alignas(8) uint8_t bytes[WALK_CALLS_READ];
    uint64_t low;  /* where they lie; 0: nowhere */
    uint64_t last; /* the record that was asked for last */
  } calls;         /* BPF: PUC's call records */
  struct {
    _Alignas(8) uint8_t bytes[WALK_OBJECTS_READ];
    uint64_t low, last; /* as of calls */
  } objects;            /* BPF: function objects */
  struct {
    _Alignas(8) uint8_t bytes[WALK_CODE_READ];
    uint64_t low; /* where they lie; 0: nowhere */
  } code;         /* BPF, LuaJIT: instructions, and what lies before them */
  /* BPF, LuaJIT: instructions that have called, by walk_slot(), of the walk that `turn` says */
  struct {
    uint64_t at;
    uint32_t turn, instruction;
  } calling[WALK_MET];
  uint32_t turn;                              /* BPF: of walks */
  walk_range_t near_images[WALK_NEAR_IMAGES]; /* BPF: in place of images, empty ones included */

  /* What was found, from here on in one piece: it is handed from the kernel to the recorder as it lies here. */
  walk_origin_t origin;
  walk_vmstate_t vmstate;
  uint32_t trace; /* its number, when vmstate is WALK_VM_TRACE */
  uint32_t frame_count;
  bool truncated;
  bool collector_marked;                /* one of them is the collector's */
  walk_frame_t frames[WALK_MAX_FRAMES]; /* leaf first */
} walk_t;

/* Where of 1 << bits places an address is remembered. */
static inline uint32_t walk_slot(uint64_t address, uint32_t bits) {
  return (uint32_t)((address >> 2) * 0x9e3779b97f4a7c15u >> (64 - bits));
}

static inline uint32_t walk_word_slot(uint64_t word) {
  return walk_slot(word, 10); /* of WALK_RULED_OUT */
}

/* Finds the coroutines that run on the native stack: walk->states. */
WALK_APART_PLACE walk_reason_t walk_find(walk_t *walk);
/* Their frames, one stack from the leaf to the root: walk->frames. */
WALK_PLACE walk_reason_t walk_frames(walk_t *walk);

/* The frames of one coroutine alone. `running`: it is the innermost of the thread whose registers the walk has; else it has resumed
 * another, or does not run at all. */
WALK_PLACE walk_reason_t walk_frames_of(walk_t *walk, const walk_state_t *state, bool running);

/* Tells a prototype from another one that is at the same address later, or whose source is. */
WALK_PLACE uint32_t walk_mark(walk_t *walk, const walk_proto_t *proto);

WALK_PLACE bool walk_proto(walk_t *walk, uint64_t proto, walk_trust_t trust, walk_proto_t *out);
/* The line of the instruction at pc, 0 when unknown. */
WALK_PLACE int32_t walk_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc);
/* Copies at most size bytes of a string object. False when it is none; *len is its whole length. */
WALK_PLACE bool walk_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len);

/* The main thread of a VM, 0 when it cannot be read. */
WALK_PLACE uint64_t walk_main_of(walk_t *walk, uint64_t global);
/* PUC Lua from 5.4.3 on: the collector of the VM is at work, finalizers excepted. False: it is not, or that is not known. */
WALK_PLACE bool walk_is_collecting(walk_t *walk, uint64_t global);
/* Reads the lua_State at `state`; false when there is none. place is 0 when it does not run. */
WALK_PLACE bool walk_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out);

/* So many bytes of it are read. */
WALK_PLACE uint32_t walk_state_bytes(walk_t *walk);

/* What stands where a coroutine keeps its first function: tells it from another one at the same address. 0: unreadable. */
WALK_PLACE uint64_t walk_body(walk_t *walk, const walk_state_t *state);
WALK_PLACE uint64_t walk_body_offset(const layout_t *layout); /* from the bottom of its stack */

/* The name of the chunk that is being compiled by the coroutine found first, a string object; 0 when none is, as far as can be
 * told. Calm walks only. */
WALK_PLACE uint64_t walk_parsing(walk_t *walk);
/* PUC Lua from 5.4.9 and 5.5.1 on: the collector is about to call finalizers, and none of them runs yet: what call records and stacks need
 * is for them. Calm walks only. */
WALK_PLACE bool walk_prepares_finalizers(walk_t *walk);

WALK_PLACE const char *walk_reason_name(walk_reason_t reason);

#endif
