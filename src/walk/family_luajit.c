/* SPDX-License-Identifier: MIT */
/* LuaJIT 2.1: states and frames, with two-slot frames and 64-bit references (GC64) or one slot and 32 bits (GC32). */
#include "walk/bytes.h"
#include "walk/family.h"
#include "walk/registers.h"

enum {
  HEAD_BYTES = 128, /* of lua_State */
  FUNCTION_BYTES = 48,
  SLOT = 8,
  INSTRUCTION = 4,
  TYPE_THREAD = 6, /* of objects: the complement of a value's type */
  TYPE_FUNCTION = 8,
  FF_LUA = 0, /* ffid: Lua function, C function; built-ins above */
  FF_C = 1,
  MAX_STEPS = 4096,
  GUESSED_FRAMES = 4,
  MAX_TOPS = 5
};

/* The lowest bits of a frame's link. */
enum {
  LINK_TYPE = 3,
  LINK_TYPE_P = 7,
  LINK_LUA = 0,  /* called by Lua code: the link is the caller's pc */
  LINK_C = 1,    /* called through the C interface */
  LINK_CP = 5,   /* the same, protected */
  LINK_CONT = 2, /* called for a metamethod: the pc stands in a slot below */
  LINK_VARG = 3  /* the same function again: its copy of a vararg frame */
};

enum {
  HOOK_GC = 0x40,
  VALUE_STRING = 0x1fffb,
  VALUE_TABLE = 0x1fff4 /* what stands above the 47 bits of a reference */
};

/* Complement of g->vmstate when no trace runs. */
enum { VMST_INTERP, VMST_C, VMST_GC, VMST_EXIT, VMST_RECORD, VMST_OPT, VMST_ASM };

static bool two_slots(const walk_t *walk) {
  return walk->layout->luajit.pointer == 8;
}

static bool read_ref(walk_t *walk, uint64_t at, walk_trust_t trust, uint64_t *value) {
  uint8_t bytes[8];
  uint32_t size = walk->layout->luajit.pointer;
  if (!walk_read(walk->memory, bytes, at, size, trust)) return false;
  *value = bytes_ref(bytes, 0, size);
  return true;
}

/* What a VM that runs may be about to change, and one that stands in its allocator is not. */
static walk_trust_t trust_of_vm(const walk_t *walk) {
  return walk->calm ? WALK_LIVE : WALK_GUESS;
}

/* -- states ------------------------------------------------------------------------------------------------ */

bool luajit_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t head[HEAD_BYTES];
  if (l->state_size > sizeof head || !walk_read(walk->memory, head, state, l->state_size, trust))
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
  return true;
}

uint64_t luajit_main_of(walk_t *walk, uint64_t global) {
  uint64_t main;
  return read_ref(walk, global + walk->layout->luajit.global_main, trust_of_vm(walk), &main) ? main : 0;
}

uint64_t luajit_current(walk_t *walk, uint64_t global) {
  uint64_t current;
  return read_ref(walk, global + walk->layout->luajit.global_current, WALK_LIVE, &current) ? current : 0;
}

static int32_t read_vmstate(walk_t *walk, uint64_t global) {
  int32_t vmstate = ~VMST_INTERP;
  walk_read(walk->memory, &vmstate, global + walk->layout->luajit.global_vmstate, sizeof vmstate,
            trust_of_vm(walk));
  return vmstate;
}

/* The VM itself says which of its coroutines runs; another VM can be at work only inside a C function. */
bool luajit_runs_lua(walk_t *walk, const walk_state_t *state) {
  return state->global == walk->likely_global &&
         (walk->alone || read_vmstate(walk, state->global) != ~VMST_C);
}

/* -- one frame ----------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t function; /* object */
  int64_t link;
} link_t;

/* The frame whose link lies at f, the slot below its base. */
static bool read_link(walk_t *walk, uint64_t f, link_t *out) {
  uint8_t bytes[2 * SLOT];
  if (!two_slots(walk)) {
    if (!walk_read(walk->memory, bytes, f, SLOT, trust_of_vm(walk))) return false;
    *out = (link_t){bytes_u32(bytes, 0), (int32_t)bytes_u32(bytes, 4)};
    return true;
  }
  if (!walk_read(walk->memory, bytes, f - SLOT, 2 * SLOT, trust_of_vm(walk))) return false;
  *out = (link_t){bytes_u64(bytes, 0) & (((uint64_t)1 << 47) - 1), (int64_t)bytes_u64(bytes, SLOT)};
  return true;
}

static bool read_function(walk_t *walk, uint64_t object, walk_trust_t trust, walk_frame_t *frame) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t bytes[FUNCTION_BYTES];
  if (l->function_pc + 8u > sizeof bytes) return false;
  if ((object & 7) != 0 || !walk_read(walk->memory, bytes, object, l->function_pc + l->pointer, trust))
    return false;
  if (bytes[l->state_tag] != TYPE_FUNCTION) return false; /* all objects keep their type in one place */
  *frame = (walk_frame_t){.function = object, .ffid = bytes[l->function_ffid]};
  if (frame->ffid == FF_LUA) {
    frame->kind = WALK_LUA;
    frame->proto = bytes_ref(bytes, l->function_pc, l->pointer) - l->proto_size;
    if (!walk->mark_functions) return true;
    walk_proto_t proto;
    if (!luajit_proto(walk, frame->proto, trust, &proto)) return false;
    frame->mark = walk_mark(&proto);
    return true;
  }
  frame->kind = frame->ffid == FF_C ? WALK_C : WALK_BUILTIN;
  return walk_read(walk->memory, &frame->code, object + l->function_code, 8, trust);
}

/* The link slot of the caller's frame, 0 when the link leads nowhere. */
static uint64_t caller_of(walk_t *walk, uint64_t f, int64_t link, walk_trust_t trust) {
  uint64_t distance = (uint64_t)link & ~(uint64_t)LINK_TYPE_P;
  if ((link & LINK_TYPE) == LINK_LUA) {
    uint8_t
        call[INSTRUCTION]; /* of the caller, just before its pc; its operand A tells where the frame began */
    if (!walk_read(walk->memory, call, (uint64_t)link - INSTRUCTION, INSTRUCTION, trust)) return 0;
    distance = (uint64_t)SLOT * (1u + (two_slots(walk) ? 1u : 0u) + call[1]);
  }
  return distance >= SLOT && distance < f ? f - distance : 0;
}

/* -- where to begin --------------------------------------------------------------------------------------------- */

static bool is_base(walk_t *walk, const walk_state_t *state, uint64_t base) {
  walk_frame_t frame;
  link_t link;
  if ((base & 7) != 0 || base <= state->stack + SLOT || base > state->stack_end + 64 * SLOT) return false;
  if (!read_link(walk, base - SLOT, &link)) return false;
  return link.function == state->state || read_function(walk, link.function, trust_of_vm(walk), &frame);
}

typedef struct {
  uint64_t base;
  uint64_t pc; /* next instruction of the topmost function, 0 when unknown */
} top_t;

static uint64_t cframe_pc(walk_t *walk, uint64_t cframe) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint64_t pc = 0, owner = 0;
  if (!read_ref(walk, cframe + l->cframe_pc, trust_of_vm(walk), &pc)) return 0;
  /* until the first instruction the place of the pc holds the state itself */
  return read_ref(walk, cframe + l->cframe_state, trust_of_vm(walk), &owner) && pc != owner ? pc : 0;
}

static void read_vm(walk_t *walk, const walk_state_t *state, uint64_t *jit_base) {
  int32_t vmstate = read_vmstate(walk, state->global);
  *jit_base = 0;
  read_ref(walk, state->global + walk->layout->luajit.global_jit_base, trust_of_vm(walk), jit_base);
  walk->vmstate = vmstate == ~VMST_C               ? WALK_VM_C
                  : vmstate == ~VMST_GC            ? WALK_VM_GC
                  : vmstate == ~VMST_EXIT          ? WALK_VM_EXIT
                  : vmstate >= 0 || *jit_base != 0 ? WALK_VM_TRACE
                  : vmstate <= ~VMST_RECORD        ? WALK_VM_COMPILER
                                                   : WALK_VM_INTERPRETER;
  walk->trace = vmstate >= 0 ? (uint32_t)vmstate : 0;
}

/* While the interpreter runs (x86-64) BASE is rdx and PC is rbx. While it makes or leaves a frame, whose slots are being
 * written then, rbx holds what that frame's link is or was, and on the way back to C the base of the C function's frame. */
static uint32_t find_tops_in_vm(walk_t *walk, top_t tops[MAX_TOPS]) {
  const uint64_t *r = walk->registers.values;
  uint64_t base = r[X64_RDX], pc = r[X64_RBX];
  uint32_t count = 0;
  if (walk->registers.count <= X64_RDX) return 0;
  tops[count++] = (top_t){base, pc};
  tops[count++] = (top_t){walk->registers.values[X64_RBP], pc}; /* just back from C code, which spoils rdx */
  uint64_t caller = caller_of(walk, base - SLOT, (int64_t)pc, WALK_GUESS);
  if (caller != 0) tops[count++] = (top_t){caller + SLOT, (pc & LINK_TYPE) == LINK_LUA ? pc : 0};
  tops[count++] = (top_t){pc, 0};
  return count;
}

/* When the VM moves a stack it sets the new one, clears what was added to it, and only then moves the bases along. Meanwhile
 * the code that does so keeps where the old stack was in a register: as far as a base lies from it, it lies from the new. */
static uint64_t moved(walk_t *walk, const walk_state_t *state, uint64_t base) {
  if (base >= state->stack && base <= state->stack_end + 64 * SLOT) return base;
  for (uint32_t i = 0; i < walk->registers.count; i++) {
    uint64_t old = walk->registers.values[i];
    if (old > base || base - old > state->stack_end - state->stack || (old & (SLOT - 1)) != 0) continue;
    if (old != 0 && is_base(walk, state, state->stack + (base - old))) return state->stack + (base - old);
  }
  return base;
}

/* Where the topmost frame may be, best first. In a trace the VM knows. C code called by the interpreter has BASE in rbp and PC
 * in its C frame. What the state says is old while either runs, but right enough while a frame is being made. */
static uint32_t find_tops(walk_t *walk, const walk_state_t *state, top_t tops[MAX_TOPS]) {
  const uint64_t *r = walk->registers.values;
  uint64_t jit_base;
  uint32_t count = 0;
  read_vm(walk, state, &jit_base);
  if (walk->calm) { /* the VM has written its base down before it called C code */
    tops[count++] =
        (top_t){jit_base != 0 ? jit_base : state->call, jit_base != 0 ? 0 : cframe_pc(walk, state->place)};
    return count;
  }
  if (jit_base != 0) {
    tops[count++] = (top_t){moved(walk, state, jit_base), 0};
    return count;
  }
  bool in_vm = !walk->calm && walk->registers.pc >= walk->vm_low && walk->registers.pc < walk->vm_high;
  uint64_t saved_pc = cframe_pc(walk, state->place);
  if (in_vm) count = find_tops_in_vm(walk, tops);
  if (!in_vm && walk->registers.count > X64_RBP) tops[count++] = (top_t){r[X64_RBP], saved_pc};
  tops[count++] = (top_t){moved(walk, state, state->call), saved_pc};
  return count;
}

/* A trace has no pc: it is charged to the line where it starts. */
static uint64_t trace_start(walk_t *walk, uint64_t global, uint64_t proto) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint64_t jit = global + (uint64_t)l->gg_jit - l->gg_global, traces, trace, start_proto, pc;
  walk_trust_t trust = trust_of_vm(walk);
  uint32_t count;
  if (walk->trace == 0 || !walk_read(walk->memory, &count, jit + l->jit_trace_count, sizeof count, trust))
    return 0;
  if (walk->trace >= count || !read_ref(walk, jit + l->jit_traces, trust, &traces)) return 0;
  if (!read_ref(walk, traces + (uint64_t)walk->trace * l->pointer, trust, &trace) || trace == 0) return 0;
  if (!read_ref(walk, trace + l->trace_proto, trust, &start_proto) || start_proto != proto) return 0;
  return read_ref(walk, trace + l->trace_pc, trust, &pc) ? pc : 0;
}

/* -- all frames of a coroutine ------------------------------------------------------------------------------------ */

/* The C frames of the interpreter, followed along with the Lua frames: which of them ran the frames up to f. */
typedef struct {
  uint64_t cframe, f;
} cframes_t;

/* The pc of a Lua function below one that was called through the C interface (by a finalizer, a hook, an error handler):
 * it stands in the C frame of the interpreter that ran it. Follows the frames from where it was left, as LuaJIT does. */
static uint64_t pc_below_c(walk_t *walk, const walk_state_t *state, cframes_t *c, uint64_t callee) {
  const layout_luajit_t *l = &walk->layout->luajit;
  for (uint32_t steps = 0; steps < MAX_STEPS && c->cframe != 0; steps++) {
    int32_t results;
    if (!walk_read(walk->memory, &results, c->cframe + l->cframe_results, sizeof results, trust_of_vm(walk)))
      break;
    bool protected_only = results < 0 && c->f < state->stack + (uint64_t)(-(int64_t)results);
    if (!protected_only && c->f < callee) return cframe_pc(walk, c->cframe);
    link_t link = {0, LINK_C};
    if (!protected_only && !read_link(walk, c->f, &link)) break;
    if (protected_only || (link.link & LINK_TYPE) == LINK_C) {
      if (!walk_read(walk->memory, &c->cframe, c->cframe + l->cframe_previous, 8, trust_of_vm(walk))) break;
      c->cframe &= ~(uint64_t)3;
    }
    if (!protected_only && (c->f = caller_of(walk, c->f, link.link, trust_of_vm(walk))) == 0) break;
  }
  c->cframe = 0; /* it leads nowhere: not tried again in this walk */
  return 0;
}

static uint64_t return_pc(walk_t *walk, const walk_state_t *state, cframes_t *c, uint64_t f, int64_t link) {
  uint64_t pc = 0;
  if ((link & LINK_TYPE) == LINK_LUA) return (uint64_t)link;
  if ((link & LINK_TYPE_P) == LINK_CONT) {
    if (two_slots(walk)) return walk_read(walk->memory, &pc, f - 2 * SLOT, 8, trust_of_vm(walk)) ? pc : 0;
    return walk_read(walk->memory, &pc, f - SLOT + 4, 4, WALK_GUESS) ? pc : 0;
  }
  return (link & LINK_TYPE) == LINK_C ? pc_below_c(walk, state, c, f) : 0;
}

static void expect_memory(walk_t *walk, const walk_state_t *state) {
  if (walk->memory->expect != NULL && state->stack_end > state->stack)
    walk->memory->expect(walk->memory, WALK_SLOTS, state->stack, state->stack_end + 64 * SLOT);
}

static bool is_in_vm(const walk_t *walk) {
  return walk->registers.pc >= walk->vm_low && walk->registers.pc < walk->vm_high;
}

/* The topmost frames may be in the making, and what they lead to is a guess; further down everything is alive, unless C code
 * is moving the stack: the allocator writes into the old one as soon as it is free. */
static walk_trust_t trust_at(const walk_t *walk, uint32_t depth, bool running) {
  if (walk->calm) return WALK_LIVE;
  return running && (depth < GUESSED_FRAMES || !is_in_vm(walk)) ? WALK_GUESS : WALK_LIVE;
}

/* -- the collector, the parser ---------------------------------------------------------------------------------- */

bool luajit_finalizes(walk_t *walk, const walk_state_t *state) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t mask = 0;
  if (l->global_hookmask == LAYOUT_ABSENT) return false;
  return walk_read(walk->memory, &mask, state->global + l->global_hookmask, 1, trust_of_vm(walk)) &&
         (mask & HOOK_GC) != 0;
}

/* The parser runs in a protected C call, whose frame tells how high the stack was; there it puts the chunk's name, a table
 * above it. */
uint64_t luajit_parsing(walk_t *walk, const walk_state_t *state) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint64_t slots[2], slot;
  int32_t results;
  if (!two_slots(walk)) return 0;
  if (!walk_read(walk->memory, &results, state->place + l->cframe_results, sizeof results, WALK_GUESS) ||
      results >= 0)
    return 0;
  slot = state->stack + (uint64_t)(-(int64_t)results);
  if (slot < state->stack || slot + sizeof slots > state->stack_end || (slot & (SLOT - 1)) != 0) return 0;
  if (!walk_read(walk->memory, slots, slot, sizeof slots, WALK_GUESS)) return 0;
  bool is_name = slots[0] >> 47 == VALUE_STRING && slots[1] >> 47 == VALUE_TABLE;
  return is_name ? slots[0] & (((uint64_t)1 << 47) - 1) : 0;
}

static uint64_t bottom_of(const walk_t *walk, const walk_state_t *state) {
  return state->stack + (two_slots(walk) ? SLOT : 0);
}

void luajit_link(const walk_t *walk, const walk_state_t *state, uint64_t place, walk_link_t *out) {
  const uint64_t *f = (const uint64_t *)(uintptr_t)(state->stack + place);
  bool wide = two_slots(walk);
  *out = (walk_link_t){.place = place,
                       .function = wide ? f[-1] & (((uint64_t)1 << 47) - 1) : (uint32_t)f[0],
                       .link = wide ? f[0] : f[0] >> 32};
  if ((out->link & LINK_TYPE_P) == LINK_CONT) out->continuation = wide ? f[-2] : f[-1] >> 32;
}

uint64_t luajit_caller(walk_t *walk, const walk_state_t *state, const walk_link_t *link) {
  int64_t word = two_slots(walk) ? (int64_t)link->link : (int32_t)(uint32_t)link->link;
  uint64_t caller = caller_of(walk, state->stack + link->place, word, WALK_LIVE);
  return caller > bottom_of(walk, state) ? caller - state->stack : 0;
}

static void keep_link(walk_t *walk, const walk_state_t *state, uint64_t f) {
  if (walk->links == NULL || walk->link_count == WALK_MAX_FRAMES) {
    walk->links_unsure = true;
    return;
  }
  walk_link_t *link = &walk->links[walk->link_count++];
  luajit_link(walk, state, f - state->stack, link);
  link->frames = walk->frame_count;
}

/* Up to the frame at `end`. */
static walk_reason_t walk_from(walk_t *walk, const walk_state_t *state, const top_t *top, bool running,
                               uint64_t end) {
  uint64_t bottom = bottom_of(walk, state), pc = top->pc, start = top->base - SLOT;
  uint64_t distance = 0; /* to the caller's frame: the same for the same link */
  int64_t last_link = 0;
  cframes_t cframes = {state->place, start};
  const walk_frame_t *inner = NULL;
  bool copy_above = false, finalizer_above = false, called_by_c = false;
  bool finalizes = walk->mark_collector && running && luajit_finalizes(walk, state);
  uint32_t steps = 0;
  for (uint64_t f = start; f > bottom && f != end; steps++) {
    link_t link;
    walk_trust_t trust = trust_at(walk, steps, running);
    if (steps == MAX_STEPS) return WALK_ENDLESS;
    if (f > state->stack_end + 64 * SLOT || f < state->stack) return WALK_BAD_LINK;
    if (!read_link(walk, f, &link)) return WALK_BAD_SLOT;
    if (walk->links != NULL) keep_link(walk, state, f);
    bool counts = link.function != state->state && !copy_above; /* the state itself stands for no function */
    if (counts) {
      if (walk->frame_count == WALK_MAX_FRAMES) {
        walk->truncated = true;
        return WALK_OK;
      }
      walk_frame_t *frame = &walk->frames[walk->frame_count];
      if (inner != NULL && inner->function == link.function)
        *frame = *inner; /* recursion */
      else if (!read_function(walk, link.function, trust, frame))
        return WALK_BAD_FUNCTION;
      if (finalizer_above && frame->kind == WALK_LUA && walk->frame_count + 1 < WALK_MAX_FRAMES) {
        walk_frame_t caller =
            *frame; /* a Lua function calls nothing through the C interface: the collector did */
        walk_add_collector(walk);
        frame = &walk->frames[walk->frame_count];
        *frame = caller;
      }
      inner = frame;
      if (frame->kind == WALK_LUA && called_by_c) walk->links_unsure = true;
      if (frame->kind == WALK_LUA) {
        if (steps == 0 && running && walk->trace != 0)
          pc = trace_start(walk, state->global, frame->proto) + INSTRUCTION;
        frame->pc = pc > INSTRUCTION ? pc - INSTRUCTION : 0;
      }
      walk->frame_count++;
    }
    called_by_c = (link.link & LINK_TYPE) == LINK_C;
    finalizer_above = finalizes && (link.link & LINK_TYPE_P) == LINK_CP;
    copy_above = (link.link & LINK_TYPE_P) == LINK_VARG;
    if (!copy_above) pc = return_pc(walk, state, &cframes, f, link.link);
    if (link.link != last_link) {
      uint64_t caller = caller_of(walk, f, link.link, trust);
      if (caller == 0) return WALK_BAD_LINK;
      distance = f - caller;
      last_link = link.link;
    }
    if (distance == 0 || distance >= f) return WALK_BAD_LINK;
    f -= distance;
  }
  return WALK_OK;
}

walk_reason_t luajit_frames(walk_t *walk, const walk_state_t *state, bool running) {
  top_t tops[MAX_TOPS] = {
      {state->call, cframe_pc(walk, state->place)}}; /* HEAD runs finalizers on a state of their own */
  uint32_t count = 1, before = walk->frame_count;
  walk_reason_t reason = WALK_BAD_BASE;
  expect_memory(walk, state);
  if (running) count = find_tops(walk, state, tops);
  for (uint32_t i = 0; i < count; i++) {
    if (running && !is_base(walk, state, tops[i].base)) continue;
    walk->frame_count = before;
    reason = walk_from(walk, state, &tops[i], running, 0);
    if (reason == WALK_OK) break;
  }
  return reason;
}

uint64_t luajit_top(walk_t *walk, const walk_state_t *state) {
  top_t tops[MAX_TOPS];
  return find_tops(walk, state, tops) > 0 && is_base(walk, state, tops[0].base) ? tops[0].base : 0;
}

bool luajit_frames_above(walk_t *walk, const walk_state_t *state, uint64_t place) {
  top_t tops[MAX_TOPS];
  walk->frame_count = walk->link_count = 0;
  walk->truncated = walk->collector_marked = walk->links_unsure = false;
  expect_memory(walk, state);
  return find_tops(walk, state, tops) > 0 &&
         walk_from(walk, state, &tops[0], true, state->stack + place) == WALK_OK && !walk->truncated;
}

/* -- functions --------------------------------------------------------------------------------------------------- */

bool luajit_proto(walk_t *walk, uint64_t address, walk_trust_t trust, walk_proto_t *out) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t bytes[128];
  if (l->proto_size > sizeof bytes || !walk_read(walk->memory, bytes, address, l->proto_size, trust))
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

/* Lines are kept as distances from the first, one byte, two or four each, without the function's first instruction. */
int32_t luajit_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc) {
  if (proto->lines == 0 || pc < proto->code || pc >= proto->code_end) return 0;
  uint64_t index = (pc - proto->code) / INSTRUCTION;
  if (index == 0) return proto->line;
  uint32_t size = proto->line_count < 256 ? 1 : proto->line_count < 65536 ? 2 : 4, distance = 0;
  if (!walk_read(walk->memory, &distance, proto->lines + (index - 1) * size, size, WALK_LIVE)) return 0;
  return (int32_t)((uint32_t)proto->line + distance);
}

bool luajit_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t head[32];
  if (l->string_bytes > sizeof head || !walk_read(walk->memory, head, string, l->string_bytes, WALK_LIVE))
    return false;
  if (head[l->state_tag] != 4) return false; /* the type of a string */
  *len = bytes_u32(head, l->string_length);
  size_t wanted = *len < size ? *len : size;
  return wanted == 0 || walk_read(walk->memory, to, string + l->string_bytes, (uint32_t)wanted, WALK_LIVE);
}
