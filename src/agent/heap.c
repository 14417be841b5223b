/* SPDX-License-Identifier: MIT */
/* The allocator's wrapper; see heap.h. allocate() and what it calls run inside Lua wherever it allocates: no Lua, no stdio, and no malloc
 * but in the stead of a host's allocator that would do the same. */
#include "agent/heap.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "agent/engine.h"
#include "agent/heap_cycle.h"
#include "agent/heap_foreign.h"
#include "agent/heap_site.h"
#include "agent/host_allocator.h"
#include "agent/lean.h"
#include "profile/mem.h"

enum { STACK_WIPED = 768, CACHE_LINE = 64 };

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* the list; taken in the allocator for a VM's last block alone */
static heap_t *heaps;
static _Atomic uint64_t sessions;

static void enlist(heap_t *heap) {
  pthread_mutex_lock(&lock);
  heap->next = heaps;
  heaps = heap;
  pthread_mutex_unlock(&lock);
}

static void delist(heap_t *heap) {
  pthread_mutex_lock(&lock);
  for (heap_t **link = &heaps; *link != NULL; link = &(*link)->next)
    if (*link == heap) {
      *link = heap->next;
      break;
    }
  pthread_mutex_unlock(&lock);
}

/* -- events --------------------------------------------------------------------------------------------------------- */

bool heap_enter(vm_t *vm) {
  if (atomic_load_explicit(&vm->inside, memory_order_relaxed)) return false;
  if (vm->heap->interrupted) vm_keep_out(vm);
  return true;
}

void heap_leave(vm_t *vm, bool entered) {
  if (entered && vm->heap->interrupted) vm_let_in(vm);
}

static inline bool may_be_followed(const heap_t *heap, uint64_t address) {
  return heap_filter_may_have(heap->filter, heap->filter_mask, address);
}

static void remove_block(heap_t *heap, uint64_t address) {
  if (live_heap_remove(&heap->vm->live, address) && !heap->traced)
    heap_filter_remove(heap->filter, heap->filter_mask, address);
}

static void forget(heap_t *heap, uint64_t address, size_t size) {
  bool entered = heap_enter(heap->vm);
  if (heap->traced) heap_site_freed(heap, address, size);
  remove_block(heap, address);
  heap_leave(heap->vm, entered);
}

static inline void count_free(heap_t *heap, size_t size) {
  heap->free_bytes += size;
  /* Two additions to memory are less work than one of a vector that has to be put together first, as compilers would have it. */
  __asm__ volatile("");
  heap->free_objects++;
}

static void draw_gap(heap_t *heap) {
  int64_t gap = heap_gap(&heap->rate, &heap->random);
  heap->granted += (uint64_t)gap - (uint64_t)heap->left;
  heap->left = gap;
}

/* Brings the totals that others read up to date. */
static void publish(heap_t *heap) {
  live_heap_totals_t *totals = heap->totals;
  totals->alloc_bytes_total = heap->granted - (uint64_t)heap->left;
  totals->alloc_objects_total = heap->alloc_objects;
  totals->free_bytes_total = heap->free_bytes;
  totals->free_objects_total = heap->free_objects;
  totals->vm_bytes = totals->vm_bytes_start + totals->alloc_bytes_total - totals->free_bytes_total;
}

/* A block grows, shrinks or moves: it is freed, and allocated anew. */
static inline void count_realloc(heap_t *heap, uint64_t address, size_t old_size, size_t new_size,
                                 const void *result) {
  live_heap_totals_t *totals = heap->totals;
  count_free(heap, old_size);
  totals->realloc_total++;
  if (new_size > old_size) totals->realloc_grow_total++;
  if (new_size < old_size) totals->realloc_shrink_total++;
  if ((uint64_t)(uintptr_t)result != address) totals->realloc_move_total++;
}

static void enter_block(heap_t *heap, live_ref_t site, uint64_t address, size_t size) {
  uint32_t objects;
  uint64_t bytes;
  heap_weigh(&heap->rate, size, &heap->random, &objects, &bytes);
  bool followed = live_heap_add(&heap->vm->live, site, address, objects, bytes);
  atomic_fetch_add_explicit(&heap->vm->samples, 1, memory_order_relaxed);
  if (followed && !heap->traced) heap_filter_add(heap->filter, &heap->filter_mask, address);
}

/* A block that is a sample, or that was one and changes its size. */
__attribute__((noinline)) static void *allocate_seen(heap_t *heap, const heap_request_t *request) {
  vm_t *vm = heap->vm;
  bool wanted = heap->left < 0;
  live_ref_t site = 0;
  bool entered = heap_enter(vm);
  if (wanted) site = entered ? heap_site(heap, request) : heap_own_site(heap);
  heap_leave(vm, entered); /* the host's allocator may take its time: ticks meanwhile are welcome */
  void *result =
      heap->allocate(heap->ud, (void *)(uintptr_t)request->address, request->old_size, request->new_size);
  if (result == NULL) { /* the old block stays, and so does what is known of it */
    heap->left += (int64_t)request->new_size;
    heap->totals->failed_total++;
    return NULL;
  }
  entered = heap_enter(vm);
  if (request->address != 0) {
    if (heap->traced) heap_site_freed(heap, request->address, request->old_size);
    remove_block(heap, request->address);
    count_realloc(heap, request->address, request->old_size, request->new_size, result);
  }
  heap->alloc_objects++;
  if (heap->traced) heap_site_allocated(heap, request, (uint64_t)(uintptr_t)result);
  if (wanted) {
    enter_block(heap, site, (uint64_t)(uintptr_t)result, request->new_size);
    draw_gap(heap);
  }
  publish(heap);
  heap_leave(vm, entered);
  return result;
}

/* While nothing is to be sampled, blocks that are followed must be seen to go all the same. */
static void *allocate_paused(heap_t *heap, void *block, size_t old_size, size_t new_size) {
  if (new_size != 0 && heap_cycle_has_turned(heap)) heap_cycle_turned(heap);
  uint64_t address = (uint64_t)(uintptr_t)block;
  bool followed = block != NULL && (heap->traced || may_be_followed(heap, address));
  if (followed && new_size == 0) forget(heap, address, old_size);
  void *result = heap->allocate(heap->ud, block, old_size, new_size);
  if (followed && new_size != 0 && result != NULL) forget(heap, address, old_size);
  return result;
}

/* Wipes the native stack below the caller. The walk looks there for registers of the VM, which the functions about to be called
 * put there; what earlier ones left in the gaps between, an old pc say, must not be taken for them. */
__attribute__((noinline)) static void wipe_stack(void) {
  uint64_t below[STACK_WIPED / sizeof(uint64_t)] = {0};
  __asm__ volatile("" : : "r"(below) : "memory"); /* as if somebody read it */
}

__attribute__((noinline)) static void *free_followed(heap_t *heap, void *block, size_t size) {
  forget(heap, (uint64_t)(uintptr_t)block, size);
  return heap->allocate(heap->ud, block, size, 0);
}

/* A sample, or a block that was one and changes its size. */
__attribute__((noinline)) static void *allocate_sample(heap_t *heap, void *block, size_t old_size,
                                                       size_t new_size) {
  heap_request_t request = {(uint64_t)(uintptr_t)block, old_size, new_size};
  wipe_stack();
  return allocate_seen(heap, &request);
}

static void *allocate_traced(heap_t *heap, void *block, size_t old_size, size_t new_size) {
  if (new_size != 0) {
    if (heap_cycle_has_turned(heap)) heap_cycle_turned(heap);
    heap->left -= (int64_t)new_size;
    return allocate_sample(heap, block, old_size, new_size);
  }
  if (block == NULL) return heap->allocate(heap->ud, block, old_size, new_size);
  count_free(heap, old_size);
  return free_followed(heap, block, old_size);
}

/* Whoever might have kept the wrapper is gone. */
static void *free_last(heap_t *heap, void *block, size_t size) {
  lua_Alloc function = heap->allocate;
  void *ud = heap->ud;
  delist(heap);
  mem_free(heap->block);
  return function(ud, block, size, 0);
}

static void *allocate_in_state(heap_t *heap, int state, void *block, size_t old_size, size_t new_size) {
  if (state == HEAP_TRACING) return allocate_traced(heap, block, old_size, new_size);
  if (state == HEAP_PAUSED) return allocate_paused(heap, block, old_size, new_size);
  if (state == HEAP_PROBED) heap->was_called = true;
  if (state == HEAP_LAST && new_size == 0 && (uint64_t)(uintptr_t)block == heap->last_block)
    return free_last(heap, block, old_size);
  return heap->allocate(heap->ud, block, old_size, new_size);
}

static void *allocate_like_a_vm(heap_t *heap, void *block, size_t old_size, size_t new_size);

__attribute__((noinline)) static void *allocate_not_sampling(heap_t *heap, void *block, size_t old_size,
                                                             size_t new_size) {
  int state = atomic_load_explicit(&heap->state, memory_order_relaxed);
  if (state == HEAP_DOUBTED) {
    heap_foreign_settle(heap);
    return heap->wrapper(heap, block, old_size, new_size);
  }
  if (new_size != 0 && new_size == heap->vm_size) return allocate_like_a_vm(heap, block, old_size, new_size);
  return allocate_in_state(heap, state, block, old_size, new_size);
}

__attribute__((noinline)) static void *count_failure(heap_t *heap) {
  heap->left += (int64_t)heap->requested;
  heap->alloc_objects--;
  heap->totals->failed_total++;
  return NULL;
}

/* The first allocation after a collection of the young. */
__attribute__((noinline)) static void *allocate_turned(heap_t *heap, void *block, size_t old_size,
                                                       size_t new_size) {
  heap_cycle_turned(heap);
  return heap->wrapper(heap, block, old_size, new_size);
}

/* A block changes its size, and neither was a sample nor becomes one. */
LEAN __attribute__((noinline)) static void *reallocate(heap_t *heap, void *block, size_t old_size,
                                                       size_t new_size) {
  uint64_t address = (uint64_t)(uintptr_t)block;
  if (may_be_followed(heap, address)) return allocate_sample(heap, block, old_size, new_size);
  heap->alloc_objects++;
  heap->requested = new_size;
  void *result = heap->resizes_plainly ? host_allocator_resize_plainly(block, new_size)
                                       : heap->allocate(heap->ud, block, old_size, new_size);
  if (__builtin_expect(result == NULL, 0)) return count_failure(heap);
  count_realloc(heap, address, old_size, new_size, result);
  return result;
}

/* As the host's allocator does it, or in its stead where that is known to be plain, or to be made of parts. */
typedef enum { BY_THE_HOST, PLAINLY, BY_PARTS } way_t;

LEAN_INLINE void *hand_on_new(heap_t *heap, size_t old_size, size_t size, way_t way) {
  if (way == PLAINLY) return host_allocator_make_plainly(size);
  return way == BY_PARTS ? heap->parts.make(heap->ud, size, old_size, size)
                         : heap->allocate(heap->ud, NULL, old_size, size);
}

LEAN_INLINE void *hand_on_free(heap_t *heap, void *block, size_t size, way_t way) {
  if (way == BY_PARTS) return heap->parts.release(heap->ud, block, size, 0);
  if (way == BY_THE_HOST) return heap->allocate(heap->ud, block, size, 0);
  host_allocator_free_plainly(block);
  return NULL;
}

/* What a failure would have to undo is kept in the heap, not across the call. */
LEAN_INLINE void *count_more(heap_t *heap, void *block, size_t old_size, size_t new_size, way_t way) {
  heap->left -= (int64_t)new_size;
  if (heap->left < 0) return allocate_sample(heap, block, old_size, new_size);
  if (block != NULL) return reallocate(heap, block, old_size, new_size);
  heap->alloc_objects++;
  heap->requested = new_size;
  void *result = hand_on_new(heap, old_size, new_size, way);
  return __builtin_expect(result != NULL, 1) ? result : count_failure(heap);
}

/* A block of the size that another VM would ask for first. */
__attribute__((noinline)) static void *allocate_like_a_vm(heap_t *heap, void *block, size_t old_size,
                                                          size_t new_size) {
  if (block == NULL && heap_foreign_begins(heap, old_size))
    return heap->allocate(heap->ud, block, old_size, new_size);
  int state = atomic_load_explicit(&heap->state, memory_order_relaxed);
  void *result = state == HEAP_SAMPLING ? count_more(heap, block, old_size, new_size, BY_THE_HOST)
                                        : allocate_in_state(heap, state, block, old_size, new_size);
  if (block == NULL && result != NULL) heap_foreign_doubt(heap, result);
  return result;
}

LEAN_INLINE void *more(heap_t *heap, void *block, size_t old_size, size_t new_size, way_t way) {
  if (__builtin_expect(heap_cycle_has_turned(heap), 0))
    return allocate_turned(heap, block, old_size, new_size);
  if (__builtin_expect(new_size == heap->vm_size, 0))
    return allocate_like_a_vm(heap, block, old_size, new_size);
  return count_more(heap, block, old_size, new_size, way);
}

LEAN_INLINE void *any(heap_t *heap, void *block, size_t old_size, size_t new_size, way_t way,
                      lua_Alloc with_more) {
  if (__builtin_expect(atomic_load_explicit(&heap->state, memory_order_relaxed) != HEAP_SAMPLING, 0))
    return allocate_not_sampling(heap, block, old_size, new_size);
  if (new_size != 0) return with_more(heap, block, old_size, new_size);
  if (block != NULL) {
    count_free(heap, old_size);
    if (may_be_followed(heap, (uint64_t)(uintptr_t)block)) return free_followed(heap, block, old_size);
  }
  return hand_on_free(heap, block, old_size, way);
}

/* What is called for everything Lua allocates and frees: as little as can be, and the rest elsewhere, by tail calls. One for each way. */
#define WRAPPER(name, way)                                                                            \
  LEAN __attribute__((noinline)) static void *name##_more(void *ud, void *block, size_t old_size,     \
                                                          size_t new_size) {                          \
    return more(ud, block, old_size, new_size, way);                                                  \
  }                                                                                                   \
  LEAN __attribute__((aligned(CACHE_LINE))) static void *name(void *ud, void *block, size_t old_size, \
                                                              size_t new_size) {                      \
    return any(ud, block, old_size, new_size, way, name##_more);                                      \
  }

WRAPPER(allocate, BY_THE_HOST)
WRAPPER(allocate_plainly, PLAINLY)
WRAPPER(allocate_by_parts, BY_PARTS)

static lua_Alloc choose_wrapper(heap_t *heap) {
  if (host_allocator_is_plain(heap->allocate)) return allocate_plainly;
  return host_allocator_parts(heap->allocate, &heap->parts) ? allocate_by_parts : allocate;
}

/* -- starting and ending: ordinary context ---------------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* The tables are the parent's, and may be shared with it. */
static void after_fork_child(void) {
  for (heap_t *heap = heaps; heap != NULL; heap = heap->next) atomic_store(&heap->state, HEAP_OFF);
  pthread_mutex_unlock(&lock);
}

int heap_guard_forks(void) {
  return pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Makes a block and frees it. */
static void try_out(lua_Alloc function, void *ud) {
  enum { SOME_SIZE = 64 };
  void *block = function(ud, NULL, 0, SOME_SIZE);
  if (block != NULL) function(ud, block, SOME_SIZE, 0);
}

/* True when the VM's allocator calls this wrapper, itself or by one of the host's around it. */
static bool is_in_place(heap_t *heap, lua_State *L) {
  void *ud;
  lua_Alloc current = lua_getallocf(L, &ud);
  heap->was_called = false;
  atomic_store(&heap->state, HEAP_PROBED);
  try_out(current, ud);
  atomic_store(&heap->state, HEAP_OFF);
  return heap->was_called;
}

static void put_in_place(heap_t *heap, lua_State *L) {
  heap->allocate = lua_getallocf(L, &heap->ud);
  try_out(heap->allocate, heap->ud); /* by now whatever it calls is bound */
  heap->wrapper = choose_wrapper(heap);
  heap->resizes_plainly = host_allocator_resizes_plainly(heap->allocate);
  heap->taken_out = false;
  lua_setallocf(L, heap->wrapper, heap);
}

enum { HEAP_SIZE = sizeof(heap_t) + CACHE_LINE };

static heap_t *new_heap(void) {
  char *block = mem_alloc(HEAP_SIZE);
  if (block == NULL) return NULL;
  heap_t *heap = (heap_t *)(void *)(block + CACHE_LINE - (uintptr_t)block % CACHE_LINE);
  heap->block = block;
  return heap;
}

/* One that an earlier session had to leave in place serves again: a second one around it would see every event twice. One that
 * the host has taken out meanwhile is left alone: it may put it back. So is one that another VM uses. */
static heap_t *make_heap(vm_t *vm, lua_State *L) {
  heap_t *heap = vm->heap != NULL && !atomic_load(&vm->heap->shared) ? vm->heap : NULL;
  if (heap != NULL && is_in_place(heap, L)) {
    heap->taken_out = false; /* the host has put it back itself */
    return heap;
  }
  if (heap != NULL && heap->taken_out) {
    put_in_place(heap, L);
    return heap;
  }
  heap = vm_charge(vm, HEAP_SIZE) ? new_heap() : NULL;
  if (heap == NULL) return NULL;
  heap->vm = vm;
  heap->last_block = vm->global;
  enlist(heap);
  vm->heap = heap;
  put_in_place(heap, L);
  return heap;
}

bool heap_start(vm_t *vm, lua_State *L, failure_t *failure) {
  heap_t *heap = make_heap(vm, L);
  heap_walk_t *walk = heap != NULL && vm_charge(vm, heap_walk_size()) ? heap_walk_new(vm) : NULL;
  if (walk == NULL) {
    return failure_set(failure,
                       "no memory to profile the heap with, within max_memory_bytes (%zu) and "
                       "max_process_memory_bytes (%zu)",
                       vm->options.max_memory_bytes, vm->options.max_process_memory_bytes);
  }
  heap->vm = vm;
  heap->walk = walk;
  heap->traced = vm->options.heap_mode == LUAPULSE_COLLECTION_TRACING;
  heap->totals = live_heap_totals(&vm->live);
  heap->interrupted = vm->engine == &engine_walk || vm->engine->asks_lua;
  heap->alloc_objects = heap->free_objects = heap->free_bytes = heap->granted = 0;
  heap->left = 0;
  heap->filter = heap_walk_filter(walk);
  heap->filter_mask = HEAP_FILTER_FIRST - 1;
  heap->random.state = random_next(&vm->random);
  heap_foreign_learn(heap);
  heap->session = atomic_fetch_add(&sessions, 1) + 1;
  heap_set_mean(vm, heap->traced ? 1 : vm->options.heap_sample_mean_bytes);
  heap_cycle_watch(vm, L);
  heap_set_gc(vm, vm->options.heap_gc);
  return true;
}

static heap_state_t running_state(const heap_t *heap) {
  return heap->traced ? HEAP_TRACING : HEAP_SAMPLING;
}

void heap_begin(vm_t *vm, lua_State *L) {
  heap_note_memory(vm, L);
  vm->heap->totals->vm_bytes_start = vm->heap->totals->vm_bytes;
  if (!atomic_load(&vm->heap->shared)) atomic_store(&vm->heap->state, running_state(vm->heap));
}

const char *heap_given_up(const vm_t *vm) {
  static const char why[] =
      "the heap is not profiled any more: another VM was made with this one's allocator";
  return vm->heap != NULL && vm->heap->walk != NULL && atomic_load(&vm->heap->shared) ? why : NULL;
}

void heap_stop(vm_t *vm, lua_State *L) {
  heap_t *heap = vm->heap;
  void *ud;
  if (heap == NULL) return;
  atomic_store(&heap->state, HEAP_OFF);
  heap_walk_free(heap->walk);
  heap->walk = NULL;
  heap->filter = NULL;
  heap->totals = NULL;
  if (lua_getallocf(L, &ud) != heap->wrapper || ud != heap)
    return; /* the host calls it from its own, or has it no more */
  lua_setallocf(L, heap->allocate, heap->ud);
  heap->taken_out = true;
}

void heap_forget(vm_t *vm, lua_State *L) {
  heap_t *heap = vm->heap;
  vm->heap = NULL;
  if (heap == NULL || !heap->taken_out || atomic_load(&heap->shared))
    return;                           /* one that is left in place serves until the last block is freed */
  if (lv_strings_keep_allocators()) { /* in place, it sees when the last of them is gone */
    if (!is_in_place(heap, L)) put_in_place(heap, L);
    atomic_store(&heap->state, HEAP_LAST);
    return;
  }
  if (is_in_place(heap, L))
    return; /* the host has put it back itself: too small to be worth more than leaving it */
  delist(heap);
  mem_free(heap->block);
}

void heap_pause(vm_t *vm, bool pause) {
  heap_t *heap = vm->heap;
  if (heap == NULL || atomic_load(&heap->state) == HEAP_OFF) return;
  if (!pause) heap_site_resumed(heap);
  atomic_store(&heap->state, (int)(pause ? HEAP_PAUSED : running_state(heap)));
}

luapulse_gc_t heap_set_gc(vm_t *vm, luapulse_gc_t gc) {
  luapulse_gc_t was = vm->options.heap_gc;
  vm->options.heap_gc = gc;
  live_heap_show_completed(&vm->live, gc == LUAPULSE_GC_COMPLETED);
  return was;
}

void heap_set_mean(vm_t *vm, size_t mean) {
  heap_t *heap = vm->heap;
  heap->rate = heap_rate(mean);
  draw_gap(heap);
}

void heap_note_memory(vm_t *vm, lua_State *L) {
  publish(vm->heap);
  int kilobytes = lua_gc(L, LUA_GCCOUNT, 0); /* negative inside a finalizer, from 5.4.4 on */
  if (kilobytes < 0) return;                 /* then it is what it was, and what has come and gone since */
  vm->heap->totals->vm_bytes = (uint64_t)kilobytes * 1024 + (uint64_t)lua_gc(L, LUA_GCCOUNTB, 0);
}

static int collect_protected(lua_State *L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

void heap_collect(lua_State *L) {
  lv_protected_call(L, collect_protected, NULL);
}
