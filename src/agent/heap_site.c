/* SPDX-License-Identifier: MIT */
/* Where something is being allocated; see heap_site.h. */
#include "agent/heap_site.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "agent/c_nature.h"
#include "agent/heap_links.h"
#include "agent/heap_trail.h"
#include "agent/label.h"
#include "agent/mapping.h"
#include "agent/sampler.h"
#include "agent/thread_state.h"
#include "agent/time.h"
#include "agent/walk_setup.h"
#include "walk/memory_own.h"

enum {
  UNKNOWN_STACK = 8 << 20, /* how far up a native stack may go whose end is not known */
  CLOCK_EVERY = 64 /* the time is for what is looked at again once a second: no need to read it each time */
};

struct heap_walk {
  walk_t walk;
  memory_own_t memory;
  heap_filter_t filter;
  path_t path;
  heap_trail_t trail;                 /* PUC */
  heap_links_t links;                 /* LuaJIT */
  uint64_t ruled_out[WALK_RULED_OUT]; /* tracing: see walk.h */
  uint64_t stack_low, stack_high;     /* of the thread that called start … */
  pthread_t thread;                   /* … which is this one */
  uint64_t vm_low, vm_high;           /* the VM's global_State */
  uint64_t count;
  /* the last site: the next allocation is often made at the same place */
  live_ref_t last_node, last_labels, last_site;
  live_ref_t string_table_function, own_node;
};

static bool accepts(void *context, uint64_t global) {
  return global == *(const uint64_t *)context;
}

static walk_nature_t nature_of_code(void *context, uint64_t code) {
  (void)context;
  return c_nature_of(code);
}

/* -- setting up: ordinary context ----------------------------------------------------------------------------- */

/* The part of it that walks read. */
static void find_vm(heap_walk_t *w, const vm_t *vm) {
  const layout_t *l = walk_setup_layout();
  if (l->family == LAYOUT_LUAJIT) {
    w->vm_low = vm->global - l->luajit.gg_global;
    w->vm_high = w->vm_low + l->luajit.gg_code;
  }
}

heap_filter_t *heap_walk_filter(heap_walk_t *walk) {
  return &walk->filter;
}

size_t heap_walk_size(void) {
  return sizeof(heap_walk_t);
}

heap_walk_t *heap_walk_new(vm_t *vm) {
  heap_walk_t *w = mapping_new(sizeof *w);
  if (w == NULL) return NULL;
  memory_own_init(&w->memory, getpid());
  w->walk.memory = &w->memory.memory;
  w->walk.accepts = accepts;
  w->walk.nature = nature_of_code;
  w->walk.context = &vm->global;
  w->walk.calm = true;
  w->walk.mark_collector = true;
  w->walk.alone = true;
  w->walk.likely_global = vm->global;
  w->walk.likely_main = vm->main_state;
  thread_own_stack(&w->stack_low, &w->stack_high);
  w->thread = pthread_self();
  find_vm(w, vm);
  vm->collector_function = live_pseudo(&vm->live, "[gc]");
  w->string_table_function = live_pseudo(&vm->live, "[string table]");
  w->own_node = live_child(&vm->live, LIVE_ROOT, live_pseudo(&vm->live, "[luapulse]"), 0);
  if (vm->collector_function != 0 && w->string_table_function != 0 && w->own_node != 0) return w;
  heap_walk_free(w);
  return NULL;
}

void heap_walk_free(heap_walk_t *walk) {
  mapping_end(walk, sizeof *walk);
}

/* -- in the allocator -------------------------------------------------------------------------------------------- */

/* From 5.2 on the allocator is told what a new block is for. */
static label_type_t type_of(const heap_request_t *request) {
  uint8_t language = walk_setup_layout()->language;
  if (request->address != 0 || language < 52) return LABEL_NO_TYPE;
  switch (request->old_size) {
    case LUA_TSTRING:
      return LABEL_STRING;
    case LUA_TTABLE:
      return LABEL_TABLE;
    case LUA_TFUNCTION:
      return LABEL_FUNCTION;
    case LUA_TUSERDATA:
      return LABEL_USERDATA;
    case LUA_TTHREAD:
      return LABEL_THREAD;
    case LUA_TTHREAD + 1:
      return language >= 54 ? LABEL_UPVALUE : LABEL_PROTOTYPE;
    case LUA_TTHREAD + 2:
      return language >= 54 ? LABEL_PROTOTYPE : language == 52 ? LABEL_UPVALUE : LABEL_NO_TYPE;
    default:
      return LABEL_NO_TYPE;
  }
}

static uint64_t stack_pointer(void) {
  uint64_t sp;
#if defined __x86_64__
  __asm__ volatile("movq %%rsp, %0" : "=r"(sp));
#elif defined __aarch64__
  __asm__ volatile("mov %0, sp" : "=r"(sp));
#else
  volatile char here;
  sp = (uint64_t)(uintptr_t)&here;
#endif
  return sp;
}

/* Where the thread that called start has ended, its stack is free for others: a smaller one may lie there, with nothing mapped between it and
 * the old end. A thread's descriptor lies at the upper end of its stack: a new thread with the same one has its stack end there, too. */
static bool is_own_stack(const heap_walk_t *w, uint64_t sp) {
  return sp >= w->stack_low && sp < w->stack_high && pthread_equal(w->thread, pthread_self());
}

static void aim(heap_walk_t *w, const heap_request_t *request, uint64_t sp) {
  walk_t *walk = &w->walk;
  walk->allocating.bytes = request->new_size;
  walk->allocating.type = request->address == 0 ? (uint32_t)request->old_size : 0;
  walk_setup_apply(walk);
  walk->registers.count = 0;
  walk->registers.sp = sp;
  bool own_stack = is_own_stack(w, sp); /* else of another thread, or of the host's making */
  walk->stack_known = own_stack;
  walk->stack_high = own_stack ? w->stack_high : sp + UNKNOWN_STACK;
  memory_own_begin_calm(&w->memory, own_stack ? sp : 0, own_stack ? w->stack_high : 0, w->vm_low, w->vm_high);
}

static void drop_last(heap_walk_t *w) {
  heap_trail_drop(&w->trail);
  heap_links_drop(&w->links);
}

static bool follow_last(heap_walk_t *w, uint32_t *kept) {
  return w->walk.layout->family == LAYOUT_LUAJIT ? heap_links_follow(&w->links, &w->walk, kept)
                                                 : heap_trail_follow(&w->trail, &w->walk, kept);
}

static live_ref_t node_of_walk(heap_t *heap, walk_reason_t reason, uint32_t kept) {
  vm_t *vm = heap->vm;
  heap_walk_t *w = heap->walk;
  if (reason == WALK_OK) {
    if (w->walk.truncated) live_lose(&vm->live, LOSS_TRUNCATED, 1);
    live_ref_t node = sampler_walked_node(vm, &w->walk, &w->path, kept);
    if (node == 0) drop_last(w);
    return node;
  }
  drop_last(w);
  w->walk.vmstate = WALK_VM_NONE;
  if (w->walk.state_count == 0) w->walk.states[0].state = 0; /* of no coroutine: no labels */
  if (reason == WALK_NO_STATE) return vm->outside_node;      /* the host itself, by the C interface */
  atomic_fetch_add_explicit(&vm->rejects[reason], 1, memory_order_relaxed);
  live_lose(&vm->live, LOSS_UNATTRIBUTED, 1);
  return vm->unreadable_node;
}

/* Not inlined: the registers of whoever called the allocator are on the stack above this frame, or saved in it. */
__attribute__((noinline)) static walk_reason_t walk_here(heap_walk_t *w, const heap_request_t *request,
                                                         bool traced, uint32_t *kept) {
  walk_t *walk = &w->walk;
  __builtin_unwind_init(); /* saves those that nobody has saved yet: the VM may keep its state in one, and its pc */
  aim(w, request, stack_pointer());
  *kept = 0;
  walk->ruled_out = traced ? w->ruled_out : NULL;
  walk->remembers_barren = !traced;
  if (traced && follow_last(w, kept)) return WALK_OK;
  drop_last(w);
  *kept = 0;
  walk_reason_t reason = walk_find(walk);
  walk->last_is_alive = traced && reason == WALK_OK; /* until it is freed, which is seen */
  bool luajit = walk->layout->family == LAYOUT_LUAJIT;
  walk->links = traced && luajit ? w->links.seen : NULL;
  if (reason == WALK_OK) reason = walk_frames(walk);
  walk->links = NULL;
  if (traced && reason == WALK_OK && luajit) heap_links_learn(&w->links, walk);
  if (traced && reason == WALK_OK && !luajit) heap_trail_learn(&w->trail, walk);
  return reason;
}

static uint64_t load64(uint64_t address) {
  return *(const uint64_t *)(uintptr_t)address;
}

/* The array of the string table, a live object of the VM's; 0 when the layout does not tell where. */
static uint64_t string_table(const vm_t *vm) {
  const layout_t *l = walk_setup_layout();
  uint16_t offset = l->family == LAYOUT_PUC ? l->puc.global_strings : l->luajit.global_strings;
  return offset != LAYOUT_ABSENT ? load64(vm->global + offset) : 0;
}

static uint32_t load32(uint64_t address) {
  return *(const uint32_t *)(uintptr_t)address;
}

/* 5.1 and LuaJIT do not let the array grow: they make one twice as long, once there are more strings than buckets. Behind the
 * pointer to it stand, on all of them, how many strings there are and how many buckets, on LuaJIT the other way round and less
 * one. While strings are swept it stays as it is, and the excess says nothing. */
static bool makes_string_table(const vm_t *vm, const heap_request_t *request) {
  const layout_t *l = walk_setup_layout();
  bool luajit = l->family == LAYOUT_LUAJIT;
  uint16_t offset = luajit ? l->luajit.global_strings : l->puc.global_strings;
  uint16_t gc_state = luajit ? l->luajit.global_gc_state : l->puc.global_gc_state;
  const uint8_t sweeps_strings = luajit ? 3 : 2;
  if (request->address != 0 || l->language != 51) return false;
  if (offset == LAYOUT_ABSENT || gc_state == LAYOUT_ABSENT) return false;
  uint64_t counts = vm->global + offset + sizeof(uint64_t);
  uint64_t strings = load32(counts + (luajit ? 4 : 0));
  uint64_t buckets = luajit ? (uint64_t)load32(counts) + 1 : load32(counts + 4);
  uint64_t bucket_size = luajit ? l->luajit.pointer : sizeof(uint64_t);
  return request->new_size == 2 * buckets * bucket_size && strings > buckets &&
         *(const uint8_t *)(uintptr_t)(vm->global + gc_state) != sweeps_strings;
}

static bool is_stack(const walk_t *walk, uint64_t address) {
  for (uint32_t i = 0; i < walk->state_count; i++)
    if (walk->states[i].stack == address) return true;
  return false;
}

/* A call record, or a larger stack. */
static bool is_room_for_calls(const walk_t *walk, const heap_request_t *request) {
  if (walk->layout->family != LAYOUT_PUC) return false;
  if (request->address != 0) return is_stack(walk, request->address);
  return request->new_size == walk->layout->puc.ci_size && walk->allocating.type == 0;
}

/* Who allocates, when it is not the function that runs: the parser, the collector, the table of strings. 0: nobody else. */
static live_ref_t actor(heap_t *heap, const heap_request_t *request, walk_reason_t reason) {
  vm_t *vm = heap->vm;
  heap_walk_t *w = heap->walk;
  walk_t *walk = &w->walk;
  bool shrinks = request->address != 0 && request->new_size < request->old_size;
  if (walk->vmstate == WALK_VM_GC && reason == WALK_OK && !walk->collector_marked)
    return vm->collector_function;
  if (request->address != 0 && request->address == string_table(vm))
    return shrinks ? vm->collector_function : w->string_table_function;
  if (makes_string_table(vm, request)) return w->string_table_function;
  if (shrinks && is_stack(walk, request->address)) return vm->collector_function;
  if (is_room_for_calls(walk, request) && walk_prepares_finalizers(walk)) return vm->collector_function;
  uint32_t top = reason == WALK_OK ? walk->frames[0].kind : WALK_C;
  if (walk->state_count == 0 || top == WALK_LUA || top == WALK_COLLECTOR) return 0;
  uint64_t source = walk_parsing(walk);
  return source != 0 ? walked_parser(vm, walk, source) : 0;
}

live_ref_t heap_own_site(heap_t *heap) {
  return live_heap_site(&heap->vm->live, heap->walk->own_node, 0);
}

live_ref_t heap_site(heap_t *heap, const heap_request_t *request) {
  vm_t *vm = heap->vm;
  heap_walk_t *w = heap->walk;
  if (w->count++ % CLOCK_EVERY == 0 || !heap->traced) {
    vm->now = time_monotonic();
    live_set_duration(&vm->live, (int64_t)(vm->now - vm->started));
  }
  uint32_t kept;
  walk_reason_t reason = walk_here(w, request, heap->traced, &kept);
  live_ref_t node = node_of_walk(heap, reason, kept);
  live_ref_t other = actor(heap, request, reason);
  if (node != 0 && other != 0) node = live_child(&vm->live, node, other, 0);
  live_ref_t labels = label_of_walk(vm, &w->walk, LABEL_NO_STATE, type_of(request));
  if (node == 0) return live_heap_overflow_site(&vm->live);
  if (node != w->last_node || labels != w->last_labels || w->last_site == 0) {
    w->last_node = node;
    w->last_labels = labels;
    w->last_site = live_heap_site(&vm->live, node, labels);
  }
  return w->last_site;
}

void heap_site_allocated(heap_t *heap, const heap_request_t *request, uint64_t address) {
  enum { MOST_EXTRA = 64 }; /* what a build may keep below its lua_States */
  heap_walk_t *w = heap->walk;
  bool told = walk_setup_layout()->language >= 52;
  if (told && (request->address != 0 || request->old_size != LUA_TTHREAD)) return;
  for (uint64_t word = address; word <= address + MOST_EXTRA; word += 8)
    if (w->ruled_out[walk_word_slot(word)] == word) w->ruled_out[walk_word_slot(word)] = 0;
}

void heap_site_resumed(heap_t *heap) {
  memset(heap->walk->ruled_out, 0, sizeof heap->walk->ruled_out);
}

void heap_site_freed(heap_t *heap, uint64_t address, size_t size) {
  heap_walk_t *w = heap->walk;
  walk_t *walk = &w->walk;
  for (uint32_t i = 0; i < walk->state_count; i++)
    if (walk->states[i].state - address < size) walk->last_is_alive = false;
  walked_entry_t *entry = walked_find(heap->vm, address);
  if (entry == NULL) return;
  entry->key = 0; /* a prototype: what comes to lie there is another function */
  drop_last(w);
}
