/* SPDX-License-Identifier: MIT */
/* LuaJIT 2.1: states and frames, with two-slot frames and 64-bit references (GC64) or one slot and 32 bits (GC32). Compiled for
 * BPF, too. */
#include "walk/family_luajit.h"
#include "walk/registers.h"

WALK_LOCAL bool read_ref(walk_t *walk, uint64_t at, walk_trust_t trust, uint64_t *value) {
  uint64_t word = 0;
  if (!walk_read(walk->memory, &word, at, layout_of(walk)->luajit.pointer, trust)) return false;
  *value = word;
  return true;
}

/* What a VM that runs may be about to change, and one that stands in its allocator is not. */
static walk_trust_t trust_of_vm(const walk_t *walk) {
  return is_calm(walk) ? WALK_LIVE : WALK_LEAD;
}

/* -- states ------------------------------------------------------------------------------------------------ */

WALK_PLACE bool luajit_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  const uint8_t *head = walk->buffer;
  if (l->state_size > WALK_BUFFER || !walk_read(walk->memory, walk->buffer, state, l->state_size, trust))
    return false;
  if (head[l->state_tag] != TYPE_THREAD) return false;
  *out = (walk_state_t){
      .state = state,
      .global = bytes_ref(head, l->state_global, l->pointer),
      .cframe = bytes_u64(head, l->state_cframe),
      .call = bytes_u64(head, l->state_base),
      .stack = bytes_ref(head, l->state_stack, l->pointer),
      .stack_end = bytes_ref(head, l->state_max, l->pointer),
  };
  out->place = out->cframe & ~(uint64_t)3;
  bytes_clear(walk->buffer, l->state_tag, 1); /* in the own process the copy must not be taken for a state */
  bytes_clear(walk->buffer, l->state_global, l->pointer);
  return true;
}

WALK_PLACE uint64_t luajit_main_of(walk_t *walk, uint64_t global) {
  uint64_t main;
  return read_ref(walk, global + layout_of(walk)->luajit.global_main, trust_of_vm(walk), &main) ? main : 0;
}

WALK_PLACE uint64_t luajit_current(walk_t *walk, uint64_t global) {
  uint64_t current;
  return read_ref(walk, global + layout_of(walk)->luajit.global_current, WALK_LIVE, &current) ? current : 0;
}

static int32_t read_vmstate(walk_t *walk, uint64_t global) {
  int32_t vmstate = ~VMST_INTERP;
  walk_read(walk->memory, &vmstate, global + layout_of(walk)->luajit.global_vmstate, sizeof vmstate,
            trust_of_vm(walk));
  return vmstate;
}

/* The VM itself says which of its coroutines runs; another VM can be at work only inside a C function. */
WALK_PLACE bool luajit_runs_lua(walk_t *walk, const walk_state_t *state) {
  return state->global == walk->likely_global &&
         (walk->alone || read_vmstate(walk, state->global) != ~VMST_C);
}

/* -- one frame ----------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t function; /* object */
  int64_t link;
  bool tagged; /* the slot says itself that it holds a function: it does, or did until that was collected */
} link_t;

/* The frame whose link lies at f, the slot below its base. */
WALK_LOCAL bool read_link(walk_t *walk, uint64_t f, link_t *out) {
  uint64_t slots[2];
  if (!two_slots(walk)) {
    if (!walk_read_slots(walk, slots, f, SLOT, trust_of_vm(walk))) return false;
    *out = (link_t){(uint32_t)slots[0], (int32_t)(slots[0] >> 32), false};
    return true;
  }
  if (!walk_read_slots(walk, slots, f - SLOT, 2 * SLOT, trust_of_vm(walk))) return false;
  *out = (link_t){slots[0] & (((uint64_t)1 << 47) - 1), (int64_t)slots[1],
                  (int64_t)slots[0] >> 47 == ~(int64_t)TYPE_FUNCTION};
  return true;
}

static inline uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

/* Of the prototype only what the mark is made of, which lies together: memory that nobody has read for long is slow. */
static bool mark_proto(walk_t *walk, walk_frame_t *frame, walk_trust_t trust) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  uint32_t low = least(least(l->proto_source, l->proto_line), l->proto_lines);
  uint32_t len = l->proto_size - low;
  if (len > WALK_BUFFER) return false;
  const uint8_t *bytes = walk_read_proto(walk, frame->proto + low, len, trust);
  if (bytes == NULL) return false;
  walk_proto_t *proto = &walk->marked.proto;
  proto->source = bytes_ref(bytes, l->proto_source - low, l->pointer);
  proto->lines = bytes_ref(bytes, l->proto_lines - low, l->pointer);
  proto->line = (int32_t)bytes_u32(bytes, l->proto_line - low);
  frame->mark = walk_mark_frame(walk, proto);
  return true;
}

WALK_APART bool read_object(walk_t *walk, uint64_t object, walk_trust_t trust, walk_frame_t *frame) {
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_LUAJIT) || !walk_given(frame)) return false;
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  if (l->function_pc + 8u > WALK_OBJECT || (object & 7) != 0) return false;
  const uint8_t *bytes = walk_object_nearby(walk, object, trust);
  if (bytes == NULL) {
    if (!walk_read(walk->memory, walk->buffer, object, l->function_pc + l->pointer, trust)) return false;
    bytes = walk->buffer;
  }
  if (bytes[l->state_tag] != TYPE_FUNCTION) return false; /* all objects keep their type in one place */
  *frame = (walk_frame_t){.function = object, .ffid = bytes[l->function_ffid]};
  if (frame->ffid == FF_LUA) {
    frame->kind = WALK_LUA;
    frame->proto = bytes_ref(bytes, l->function_pc, l->pointer) - l->proto_size;
    return !marks_functions(walk) || mark_proto(walk, frame, trust);
  }
  frame->kind = frame->ffid == FF_C ? WALK_C : WALK_BUILTIN;
  return walk_read(walk->memory, &frame->code, object + l->function_code, 8, trust);
}

/* `call` is the caller's instruction just before its pc, 0 when it is no Lua function; its operand A tells where the frame began. */
static uint64_t caller_by(walk_t *walk, uint64_t f, int64_t link, uint32_t call) {
  uint64_t distance = (uint64_t)link & ~(uint64_t)LINK_TYPE_P;
  if ((link & LINK_TYPE) == LINK_LUA)
    distance = (uint64_t)SLOT * (1u + (two_slots(walk) ? 1u : 0u) + (call >> 8 & 255));
  return distance >= SLOT && distance < f ? f - distance : 0;
}

WALK_PLACE uint64_t luajit_caller_of(walk_t *walk, uint64_t f, int64_t link, walk_trust_t trust) {
  uint32_t call = 0;
  if ((link & LINK_TYPE) == LINK_LUA &&
      !walk_read(walk->memory, &call, (uint64_t)link - INSTRUCTION, INSTRUCTION, trust))
    return 0;
  return caller_by(walk, f, link, call);
}

/* The same, where the caller's prototype is wanted next. */
static uint64_t next_caller(walk_t *walk, uint64_t f, int64_t link, walk_trust_t trust) {
  uint64_t call = 0;
  if ((link & LINK_TYPE) == LINK_LUA) call = walk_instruction(walk, (uint64_t)link - INSTRUCTION, trust);
  return call != WALK_NO_INSTRUCTION ? caller_by(walk, f, link, (uint32_t)call) : 0;
}

/* -- where to begin --------------------------------------------------------------------------------------------- */

WALK_APART_PLACE bool luajit_is_base(walk_t *walk, const walk_state_t *state, uint64_t base) {
  walk_frame_t frame = {
      .kind = WALK_C}; /* before Linux 6.3 what a function that is apart writes to has to be whole */
  link_t link;
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_LUAJIT) || !walk_given(state)) return false;
  if ((base & 7) != 0 || base <= state->stack + SLOT || base > state->stack_end + STACK_RESERVE) return false;
  if (!read_link(walk, base - SLOT, &link)) return false;
  if (link.function == state->state) return true;
  walk_trust_t trust = is_calm(walk) ? WALK_LIVE : link.tagged ? WALK_LEAD : WALK_GUESS;
  return read_object(walk, link.function, trust, &frame);
}

WALK_LOCAL uint64_t cframe_pc(walk_t *walk, uint64_t cframe) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  uint64_t pc = 0, owner = 0;
  if (!read_ref(walk, cframe + l->cframe_pc, trust_of_vm(walk), &pc)) return 0;
  /* until the first instruction the place of the pc holds the state itself */
  return read_ref(walk, cframe + l->cframe_state, trust_of_vm(walk), &owner) && pc != owner ? pc : 0;
}

static void read_vm(walk_t *walk, const walk_state_t *state, uint64_t *jit_base) {
  int32_t vmstate = read_vmstate(walk, state->global);
  *jit_base = 0;
  read_ref(walk, state->global + layout_of(walk)->luajit.global_jit_base, trust_of_vm(walk), jit_base);
  walk->vmstate = vmstate == ~VMST_C               ? WALK_VM_C
                  : vmstate == ~VMST_GC            ? WALK_VM_GC
                  : vmstate == ~VMST_EXIT          ? WALK_VM_EXIT
                  : vmstate >= 0 || *jit_base != 0 ? WALK_VM_TRACE
                  : vmstate <= ~VMST_RECORD        ? WALK_VM_COMPILER
                                                   : WALK_VM_INTERPRETER;
  walk->trace = vmstate >= 0 ? (uint32_t)vmstate : 0;
}

/* While the interpreter makes or leaves a frame, whose slots are being written then, the register of the pc holds what that frame's
 * link is or was; and on x86-64, on the way back to C, the base of the C function's frame. */
static void find_tops_in_vm(walk_t *walk) {
  walk_top_t *tops = walk->tops;
  const uint64_t *r = walk->registers.values;
  uint64_t base = r[LUAJIT_BASE], pc = r[LUAJIT_PC];
  if (walk->registers.count < REGISTERS_ALL) return;
  tops[0] = (walk_top_t){base, pc, false};
  tops[1] = (walk_top_t){r[LUAJIT_BASE_KEPT], pc, false}; /* just back from C code, which spoils the other */
  tops[2] = (walk_top_t){base, pc, true};
  tops[3] = (walk_top_t){pc, 0, false};
}

/* A base is no link: what stands before it is no instruction. */
static walk_top_t caller_of_top(walk_t *walk, const walk_state_t *state, const walk_top_t *top) {
  if (top->pc >= state->stack && top->pc < state->stack_end) return (walk_top_t){0, 0, false};
  uint64_t caller = luajit_caller_of(walk, top->base - SLOT, (int64_t)top->pc, WALK_GUESS);
  if (caller == 0) return (walk_top_t){0, 0, false};
  return (walk_top_t){caller + SLOT, (top->pc & LINK_TYPE) == LINK_LUA ? top->pc : 0, false};
}

static bool is_in_vm(const walk_t *walk) {
  return walk->registers.pc >= walk->vm_low && walk->registers.pc < walk->vm_high;
}

/* When the VM moves a stack it sets the new one, clears what was added to it, and only then moves the bases along. Meanwhile
 * the code that does so keeps where the old stack was in a register: as far as a base lies from it, it lies from the new. */
typedef struct {
  walk_t *walk;
  const walk_state_t *state;
  uint64_t base; /* before, and after when it was found */
} moving_t;

static long step_moved(uint32_t i, void *context) {
  moving_t *m = context;
  const walk_state_t *state = m->state;
  if (i >= WALK_MAX_REGISTERS) return 1;
  uint64_t old = m->walk->registers.values[i], base = state->stack + (m->base - old);
  if (old > m->base || m->base - old > state->stack_end - state->stack || (old & (SLOT - 1)) != 0) return 0;
  if (old == 0 || !luajit_is_base(m->walk, state, base)) return 0;
  m->base = base;
  return 1;
}

static uint64_t moved(walk_t *walk, const walk_state_t *state, uint64_t base) {
  moving_t moving = {walk, state, base};
  if (base >= state->stack && base <= state->stack_end + STACK_RESERVE) return base;
  walk_loop(walk->registers.count, step_moved, &moving);
  return moving.base;
}

/* In a trace the VM knows. C code called by the interpreter has kept its base, and the pc is in its C frame. What the state says is old while
 * either runs, but right enough while a frame is being made. */
WALK_PLACE void luajit_find_tops(walk_t *walk, const walk_state_t *state) {
  walk_top_t *tops = walk->tops;
  uint64_t jit_base;
  for (uint32_t i = 0; i < WALK_MAX_TOPS; i++) tops[i] = (walk_top_t){0, 0, false};
  read_vm(walk, state, &jit_base);
  if (is_calm(walk)) { /* the VM has written its base down before it called C code */
    tops[0] = (walk_top_t){jit_base != 0 ? jit_base : state->call,
                           jit_base != 0 ? 0 : cframe_pc(walk, state->place), false};
    return;
  }
  if (jit_base != 0) {
    tops[0] = (walk_top_t){moved(walk, state, jit_base), 0, false};
    return;
  }
  uint64_t saved_pc = cframe_pc(walk, state->place);
  if (is_in_vm(walk))
    find_tops_in_vm(walk);
  else if (walk->registers.count > LUAJIT_BASE_KEPT)
    tops[0] = (walk_top_t){walk->registers.values[LUAJIT_BASE_KEPT], saved_pc, false};
  tops[WALK_MAX_TOPS - 1] = (walk_top_t){moved(walk, state, state->call), saved_pc, false};
}

/* A trace has no pc: it is charged to the line where it starts. On arm64 the VM does not say which one runs. Of those that begin in the
 * function it is the one whose code the thread is in; where C code runs that a trace calls, or a trace that begins at the exit of
 * another, the line is that of the first. */
typedef struct {
  walk_t *walk;
} trace_search_t;

static bool traces_are_known(const layout_luajit_t *l) {
  return l->proto_trace != LAYOUT_ABSENT && l->trace_next != LAYOUT_ABSENT &&
         l->trace_next + 2u <= WALK_BUFFER && l->trace_code + 8u <= l->trace_next &&
         l->trace_code_bytes + 4u <= l->trace_next;
}

static bool find_traces(walk_t *walk, uint64_t global) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  uint64_t jit = global + (uint64_t)l->gg_jit - l->gg_global;
  walk_trust_t trust = trust_of_vm(walk);
  return walk_read(walk->memory, &walk->traces.count, jit + l->jit_trace_count, 4, trust) &&
         read_ref(walk, jit + l->jit_traces, trust, &walk->traces.table);
}

/* The object of a trace, 0 when there is none. */
static uint64_t trace_of(walk_t *walk, uint32_t number) {
  uint32_t pointer = layout_of(walk)->luajit.pointer;
  uint64_t trace = 0;
  if (number == 0 || number >= walk->traces.count) return 0;
  read_ref(walk, walk->traces.table + (uint64_t)number * pointer, trust_of_vm(walk), &trace);
  return trace;
}

/* Ends at the trace whose code the thread is in, or with the last. */
static long step_trace(uint32_t i, void *context) {
  walk_t *walk = ((trace_search_t *)context)->walk;
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  const uint8_t *bytes = walk->buffer;
  uint64_t trace = trace_of(walk, walk->traces.number);
  (void)i;
  if (trace == 0 || !walk_read(walk->memory, walk->buffer, trace, l->trace_next + 2u, trust_of_vm(walk)))
    return 1;
  if (walk->registers.pc - bytes_u64(bytes, l->trace_code) < bytes_u32(bytes, l->trace_code_bytes)) {
    walk->trace = walk->traces.number;
    return 1;
  }
  walk->traces.number = bytes[l->trace_next] | (uint32_t)bytes[l->trace_next + 1] << 8;
  return 0;
}

static void search_trace(walk_t *walk, uint64_t proto) {
  enum { MOST_TRACES = 16 };
  trace_search_t search = {walk};
  walk->traces.first = 0;
  if (!traces_are_known(&layout_of(walk)->luajit)) return;
  walk_read(walk->memory, &walk->traces.first, proto + layout_of(walk)->luajit.proto_trace, 2,
            trust_of_vm(walk));
  walk->traces.number = walk->traces.first;
  walk_loop(MOST_TRACES, step_trace, &search);
}

/* Where the trace starts, if it does so in the function; else 0. */
static uint64_t start_within(walk_t *walk, uint64_t trace, uint64_t proto) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  walk_trust_t trust = trust_of_vm(walk);
  uint64_t found = 0;
  if (trace == 0 || !read_ref(walk, trace + l->trace_proto, trust, &found) || found != proto) return 0;
  return read_ref(walk, trace + l->trace_pc, trust, &found) ? found : 0;
}

#if !defined __bpf__
/* A trace that begins at an exit within an inlined function has the frame of the function where the first of them, its root, began:
 * the object of that. GCtrace.root stands before GCtrace.nextroot. */
static uint64_t root_of(walk_t *walk, uint64_t trace) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  uint16_t root = 0;
  if (trace == 0 || l->trace_next == LAYOUT_ABSENT || l->trace_next < sizeof root) return 0;
  walk_read(walk->memory, &root, trace + l->trace_next - sizeof root, sizeof root, trust_of_vm(walk));
  return trace_of(walk, root);
}
#endif

static uint64_t trace_start(walk_t *walk, uint64_t global, uint64_t proto) {
  if (!find_traces(walk, global)) return 0;
  if (walk->trace == 0) search_trace(walk, proto);
  uint64_t trace = trace_of(walk, walk->trace != 0 ? walk->trace : walk->traces.first);
  uint64_t start = start_within(walk, trace, proto);
#if !defined __bpf__
  if (start == 0) start = start_within(walk, root_of(walk, trace), proto);
#endif
  return start;
}

/* -- all frames of a coroutine ------------------------------------------------------------------------------------ */

/* The C frames of the interpreter, followed along with the Lua frames: which of them runs the frame at hand. Where a Lua function
 * lies below one that was called through the C interface (by a finalizer, a hook, an error handler), its pc stands there. */
typedef struct {
  uint64_t cframe; /* 0: they lead nowhere */
  uint64_t limit;  /* frames below belong to the one before: it only protects a call */
  uint64_t pc;     /* of the Lua function that called out of it */
} cframes_t;

/* The verifier need not know what comes of it: hence apart. */
WALK_APART bool enter_cframe(walk_t *walk, const walk_state_t *state, cframes_t *c, uint64_t cframe) {
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_LUAJIT) || !walk_given(state) || !walk_given(c))
    return false;
  int32_t results = 0;
  uint64_t place = (cframe & ~(uint64_t)3) + layout_of(walk)->luajit.cframe_results;
  bool got = cframe != 0 && walk_read(walk->memory, &results, place, sizeof results, trust_of_vm(walk));
  c->cframe = got ? cframe & ~(uint64_t)3 : 0;
  c->limit = results < 0 ? state->stack + (uint64_t)(-(int64_t)results) : 0;
  c->pc = got ? cframe_pc(walk, c->cframe) : 0;
  return got;
}

static void leave_cframe(walk_t *walk, const walk_state_t *state, cframes_t *c) {
  uint64_t previous = 0;
  walk_read(walk->memory, &previous, c->cframe + layout_of(walk)->luajit.cframe_previous, 8,
            trust_of_vm(walk));
  enter_cframe(walk, state, c, c->cframe != 0 ? previous : 0);
}

WALK_LOCAL uint64_t return_pc(walk_t *walk, uint64_t f, int64_t link) {
  uint64_t pc = 0;
  if ((link & LINK_TYPE) == LINK_LUA) return (uint64_t)link;
  if ((link & LINK_TYPE_P) != LINK_CONT) return 0;
  if (two_slots(walk))
    return walk_read(walk->memory, &pc, f - (uint64_t)2 * SLOT, 8, trust_of_vm(walk)) ? pc : 0;
  return walk_read(walk->memory, &pc, f - SLOT + 4, 4, WALK_LEAD) ? pc : 0;
}

WALK_PLACE void luajit_expect(walk_t *walk, const walk_state_t *state) {
#if !defined __bpf__
  if (walk->memory->expect != NULL && state->stack_end > state->stack)
    walk->memory->expect(walk->memory, WALK_SLOTS, state->stack, state->stack_end + STACK_RESERVE);
#else
  (void)walk;
  (void)state;
#endif
}

/* The topmost frames may be in the making, and what they lead to is a guess; further down everything is alive, unless C code
 * is moving the stack: the allocator writes into the old one as soon as it is free. */
static walk_trust_t trust_at(const walk_t *walk, uint32_t step, bool running) {
  if (is_calm(walk)) return WALK_LIVE;
  return running && (step < GUESSED_STEPS || !is_in_vm(walk)) ? WALK_LEAD : WALK_LIVE;
}

WALK_PLACE bool luajit_finalizes(walk_t *walk, const walk_state_t *state) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  uint8_t mask = 0;
  if (l->global_hookmask == LAYOUT_ABSENT) return false;
  return walk_read(walk->memory, &mask, state->global + l->global_hookmask, 1, trust_of_vm(walk)) &&
         (mask & HOOK_GC) != 0;
}

typedef struct {
  walk_t *walk;
  const walk_state_t *state;
  cframes_t cframes;
  uint64_t f, end, bottom; /* the frame at hand; where to stop; the coroutine's first */
  uint64_t pc;             /* of the function at hand */
  uint64_t distance;       /* to the caller's frame: the same for the same link */
  int64_t last_link;       /* of the frame above, LINK_LUA at first */
  walk_reason_t reason;
  bool running, finalizes, below_top;
} frames_t;

/* False when there is no function there. */
WALK_LOCAL bool add_frame(frames_t *s, uint64_t function, bool top, walk_trust_t trust) {
  walk_t *walk = s->walk;
  uint32_t count = walk->frame_count;
  if (count >= WALK_MAX_FRAMES) return false;
  walk_frame_t *frame = &walk->frames[count];
  const walk_frame_t *met = walk_met(walk, function, count);
  if (met != NULL)
    *frame = *met;
  else if (!read_object(walk, function, trust, frame))
    return false;
#if !defined __bpf__
  bool finalizer_above = s->finalizes && (s->last_link & LINK_TYPE_P) == LINK_CP;
  if (finalizer_above && frame->kind == WALK_LUA && count + 1 < WALK_MAX_FRAMES) {
    walk_frame_t caller =
        *frame; /* a Lua function calls nothing through the C interface: the collector did */
    walk_add_collector(walk);
    frame = &walk->frames[++count];
    *frame = caller;
  }
#endif
  walk->frame_count = count + 1;
  walk_meet(walk, function, count);
  if (frame->kind != WALK_LUA) return true;
  if (marks_functions(walk)) frame->slot = s->f + SLOT;
  if ((s->last_link & LINK_TYPE) == LINK_C) walk->links_unsure = true;
  if (top && s->running && walk->vmstate == WALK_VM_TRACE)
    s->pc = trace_start(walk, s->state->global, frame->proto) + INSTRUCTION;
  frame->pc = s->pc > INSTRUCTION ? s->pc - INSTRUCTION : 0;
  return true;
}

static long end_frames(frames_t *s, walk_reason_t reason) {
  s->reason = reason;
  return 1;
}

/* A step is a frame, or a C frame that ends. */
static long step_frame(uint32_t step, void *context) {
  frames_t *s = context;
  walk_t *walk = s->walk;
  const walk_state_t *state = s->state;
  uint64_t f = s->f;
  link_t link;
  if (f < s->cframes.limit) {
    leave_cframe(walk, state, &s->cframes);
    return 0;
  }
  walk_trust_t trust = trust_at(walk, step, s->running);
  if (f <= s->bottom || f == s->end) return end_frames(s, WALK_OK);
  if (f > state->stack_end + STACK_RESERVE || f < state->stack) return end_frames(s, WALK_BAD_LINK);
  if (!read_link(walk, f, &link)) return end_frames(s, WALK_BAD_SLOT);
  if ((s->last_link & LINK_TYPE) == LINK_C) s->pc = s->cframes.pc;
#if !defined __bpf__
  if (walk->links != NULL) luajit_keep_link(walk, state, f);
#endif
  bool is_copied = (s->last_link & LINK_TYPE_P) == LINK_VARG; /* above */
  if (link.function != state->state && !is_copied) {          /* the state itself stands for no function */
    if (walk->frame_count >= WALK_MAX_FRAMES) {
      walk->truncated = true;
      return end_frames(s, WALK_OK);
    }
    if (!add_frame(s, link.function, !s->below_top, trust)) return end_frames(s, WALK_BAD_FUNCTION);
  }
  s->below_top = true;
  if ((link.link & LINK_TYPE_P) != LINK_VARG) s->pc = return_pc(walk, f, link.link);
  if ((link.link & LINK_TYPE) == LINK_C) leave_cframe(walk, state, &s->cframes);
  if (link.link != s->last_link) {
    uint64_t caller = next_caller(walk, f, link.link, trust);
    if (caller == 0) return end_frames(s, WALK_BAD_LINK);
    s->distance = f - caller;
    s->last_link = link.link;
  }
  if (s->distance == 0 || s->distance >= f) return end_frames(s, WALK_BAD_LINK);
  s->f = f - s->distance;
  return 0;
}

WALK_APART_PLACE walk_reason_t luajit_walk_from(walk_t *walk, const walk_state_t *state,
                                                const walk_top_t *top, bool running, uint64_t end) {
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_LUAJIT) || !walk_given(state) || !walk_given(top))
    return WALK_BAD_BASE;
  uint64_t start = top->base - SLOT;
  frames_t frames = {.walk = walk,
                     .state = state,
                     .f = start,
                     .end = end,
                     .bottom = bottom_of(walk, state),
                     .pc = top->pc,
                     .distance = walk_zero(walk),
                     .last_link = (int64_t)walk_zero(walk),
                     .below_top = walk_zero(walk) != 0,
                     .reason = WALK_ENDLESS,
                     .running = running,
                     .finalizes = marks_collector(walk) && running && luajit_finalizes(walk, state)};
  enter_cframe(walk, state, &frames.cframes, state->place);
  walk_loop(MAX_STEPS, step_frame, &frames);
  return frames.reason;
}

typedef struct {
  walk_t *walk;
  const walk_state_t *state;
  uint32_t before; /* walk->frame_count */
  walk_reason_t reason;
} tries_t;

static long step_top(uint32_t i, void *context) {
  tries_t *tries = context;
  if (i >= WALK_MAX_TOPS) return 1;
  walk_top_t top = tries->walk->tops[i];
  if (top.of_callee) top = caller_of_top(tries->walk, tries->state, &top);
  if (top.base == 0 || !luajit_is_base(tries->walk, tries->state, top.base)) return 0;
  tries->walk->frame_count = tries->before;
  tries->reason = luajit_walk_from(tries->walk, tries->state, &top, true, 0);
  return tries->reason == WALK_OK;
}

WALK_APART_PLACE walk_reason_t luajit_frames(walk_t *walk, const walk_state_t *state, bool running) {
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_LUAJIT) || !walk_given(state)) return WALK_NO_STATE;
  tries_t tries = {.walk = walk, .state = state, .before = walk->frame_count, .reason = WALK_BAD_BASE};
  luajit_expect(walk, state);
  if (!running) { /* HEAD runs finalizers on a state of their own */
    walk_top_t top = {state->call, cframe_pc(walk, state->place), false};
    return luajit_walk_from(walk, state, &top, false, 0);
  }
  luajit_find_tops(walk, state);
  walk_loop(WALK_MAX_TOPS, step_top, &tries);
  return tries.reason;
}

/* -- functions --------------------------------------------------------------------------------------------------- */

WALK_PLACE bool luajit_proto(walk_t *walk, uint64_t address, walk_trust_t trust, walk_proto_t *out) {
  const layout_luajit_t *l = &layout_of(walk)->luajit;
  const uint8_t *bytes = walk->buffer;
  if (l->proto_size > WALK_BUFFER || !walk_read(walk->memory, walk->buffer, address, l->proto_size, trust))
    return false;
  if (bytes[l->state_tag] != 7) return false; /* the type of a prototype */
  uint32_t code_count = bytes_u32(bytes, l->proto_code_count);
  if (code_count == 0 || code_count > 1u << 26) return false;
  *out = (walk_proto_t){
      .proto = address,
      .source = bytes_ref(bytes, l->proto_source, l->pointer),
      .code = address + l->proto_size,
      .code_end = address + l->proto_size + (uint64_t)code_count * INSTRUCTION,
      .lines = bytes_ref(bytes, l->proto_lines, l->pointer),
      .line = (int32_t)bytes_u32(bytes, l->proto_line),
      .line_count = bytes_u32(bytes, l->proto_line_count),
  };
  out->last_line = (int32_t)((uint32_t)out->line + out->line_count);
  return true;
}
