/* SPDX-License-Identifier: MIT */
/* What tests of heap profiling in hosts share: a host's allocator that counts what it does, and moves, refuses and unmaps on
 * demand; a program that allocates; checks of a profile against both. */
#ifndef LUAPULSE_TESTS_HOST_HEAP_H
#define LUAPULSE_TESTS_HOST_HEAP_H

#include <sys/mman.h>

#include "host.h"
#include "profile/live_heap.h"
#include "profile/mem.h"

/* -- an allocator that counts ----------------------------------------------------------------------------------------- */

typedef enum { MOVE_ALWAYS, MOVE_SELDOM, MOVES } move_t;

typedef struct {
  uint64_t news, frees, grows, shrinks, moves, refused;
  int64_t bytes;  /* in use */
  int64_t blocks; /* in use */
  move_t move;
  bool pages;    /* each block is a mapping of its own, gone when it is freed: who reads it then crashes */
  long fail_in;  /* requests until the one that is refused, counted from 0; -1: none */
  bool for_good; /* and all after it */
  int64_t limit; /* bytes in use, 0: none */
} arena_t;

enum { HEAD = 16, ROOM = 64 };

static inline bool refuses(arena_t *arena, size_t old, size_t size) {
  if (size <= old) return false; /* Lua counts on it */
  if (arena->limit > 0 && arena->bytes + (int64_t)(size - old) > arena->limit) {
    arena->refused++;
    return true;
  }
  if (arena->fail_in < 0 || arena->fail_in-- > 0) return false;
  arena->fail_in = arena->for_good ? 0 : -1;
  arena->refused++;
  return true;
}

/* Each block has its room in front of it. One that seldom moves has room for 64 times its first size. */
static inline void *make(const arena_t *arena, size_t size) {
  size_t room = arena->move == MOVE_SELDOM && size <= 4096 ? size * ROOM : size;
  size_t *head = arena->pages
                     ? mmap(NULL, HEAD + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : malloc(HEAD + room);
  if (head == NULL || (void *)head == MAP_FAILED) FAIL("the test itself is out of memory");
  *head = room;
  return (char *)head + HEAD;
}

static inline size_t *head_of(void *block) {
  return (size_t *)((char *)block - HEAD);
}

static inline void unmake(const arena_t *arena, void *block) {
  if (arena->pages)
    munmap(head_of(block), HEAD + *head_of(block));
  else
    free(head_of(block));
}

static inline void *change(arena_t *arena, void *block, size_t old, size_t size) {
  if (size > old) arena->grows++;
  if (size < old) arena->shrinks++;
  if (arena->move == MOVE_SELDOM && size <= *head_of(block)) return block;
  void *result = make(arena, size);
  memcpy(result, block, old < size ? old : size);
  unmake(arena, block);
  arena->moves++;
  return result;
}

static inline void *arena_allocate(void *ud, void *block, size_t old, size_t size) {
  arena_t *arena = ud;
  if (block == NULL) old = 0; /* else the type of the new block */
  if (size == 0) {
    if (block == NULL) return NULL;
    arena->frees++;
    arena->blocks--;
    arena->bytes -= (int64_t)old;
    unmake(arena, block);
    return NULL;
  }
  if (refuses(arena, old, size)) return NULL;
  if (block == NULL) {
    arena->news++;
    arena->blocks++;
  }
  arena->bytes += (int64_t)size - (int64_t)old;
  return block == NULL ? make(arena, size) : change(arena, block, old, size);
}

/* -- a VM with it, profiled ------------------------------------------------------------------------------------------- */

static inline lua_State *open_in(arena_t *arena) {
  *arena = (arena_t){.fail_in = -1, .move = arena->move, .pages = arena->pages};
  return host_prepare(host_new_state(arena_allocate, arena));
}

static inline luapulse_profile_options_t heap_options(luapulse_collection_mode_t mode, size_t mean) {
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.features = LUAPULSE_FEATURE_HEAP;
  options.heap_mode = mode;
  options.heap_sample_mean_bytes = mean;
  options.max_process_memory_bytes = (size_t)1 << 30;
  return options;
}

static inline void start_with(lua_State *L, luapulse_profile_options_t options) {
  luapulse_error_t error = {""};
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
}

static inline void start_tracing(lua_State *L) {
  start_with(L, heap_options(LUAPULSE_COLLECTION_TRACING, 1));
}

static inline int value_at(const profile_t *p, const char *name) {
  for (size_t t = 0; t < p->type_count; t++)
    if (strcmp(profile_text(p, p->types[t].type).data, name) == 0) return (int)t;
  FAIL("no values of %s", name);
}

static inline int64_t sum_of(const profile_t *p, const char *value, const char *function) {
  return host_sum(p, (size_t)value_at(p, value), function, false);
}

/* A total, from the comments of the profile. */
static inline uint64_t total_of(const profile_t *p, const char *name) {
  char begin[64];
  int len = snprintf(begin, sizeof begin, "heap_%s: ", name);
  for (size_t i = 0; i < p->comment_count; i++) {
    const char *text = profile_text(p, p->comments[i]).data;
    if (strncmp(text, begin, (size_t)len) == 0) return strtoull(text + len, NULL, 10);
  }
  FAIL("no total %s", name);
}

static inline void check_balance(const profile_t *p) {
  int64_t seen = (int64_t)(total_of(p, "alloc_bytes_total") - total_of(p, "free_bytes_total"));
  int64_t told = (int64_t)(total_of(p, "vm_bytes") - total_of(p, "vm_bytes_start"));
  if (seen != told) FAIL("%" PRId64 " bytes seen, %" PRId64 " told by the VM", seen, told);
}

/* Every block is at its site. */
static inline void check_whole(const profile_t *p) {
  check_balance(p);
  CHECK((uint64_t)sum_of(p, "alloc_space", NULL) == total_of(p, "alloc_bytes_total"));
  CHECK((uint64_t)sum_of(p, "alloc_objects", NULL) == total_of(p, "alloc_objects_total"));
  CHECK((uint64_t)sum_of(p, "inuse_space", NULL) == total_of(p, "live_bytes"));
}

static inline void stop_and_check(lua_State *L) {
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  luapulse_profile_free(profile);
}

/* The compiler of LuaJIT, which would allocate where it is called, is off. churn(n) allocates in several ways and keeps nothing, everything(n) also parses, collects and does so in a coroutine; keep(n) keeps n tables
 * of two blocks each until drop(). */
static const char PROGRAM[] =
    "if jit then jit.off() end\n"
    "kept = {}\n"
    "function keep(n) for i = 1, n do kept[#kept + 1] = {i = i} end end\n"
    "function drop() kept = {} collectgarbage() collectgarbage() end\n"
    "function churn(n)\n"
    "  local t = {}\n"
    "  for i = 1, n do\n"
    "    t[i] = {i, tostring(i) .. 'text'}\n"
    "    t[i].f = function() return i end\n"
    "    local co = coroutine.wrap(function() coroutine.yield({i}) end) co()\n"
    "    t[i].s = ('x'):rep(i % 300)\n"
    "  end\n"
    "  return #t\n"
    "end\n"
    "function everything(n)\n"
    "  churn(n)\n"
    "  local make = assert((loadstring or load)(\"local t = {...} return function(a) return {a, 'text', t} "
    "end\", '=made.lua'))\n"
    "  assert(#make(1)(2) == 3)\n"
    "  collectgarbage()\n"
    "  coroutine.wrap(function() churn(2) coroutine.yield() end)()\n"
    "  return coroutine.wrap(function() return make(n) end)()\n"
    "end\n";

static inline lua_State *open_program(arena_t *arena) {
  lua_State *L = open_in(arena);
  host_run(L, PROGRAM);
  return L;
}

/* Nothing is left, after lua_close. Of a coroutine whose stack was refused LuaJIT itself frees 8 bytes less than it had asked for. */
static inline void check_empty(const arena_t *arena) {
  CHECK(arena->blocks == 0);
#if __has_include(<luajit.h>) /* is beside its lua.h only */
  CHECK(arena->bytes == 0 || arena->refused > 0);
#else
  CHECK(arena->bytes == 0);
#endif
}

/* -- the host's allocator ---------------------------------------------------------------------------------------------- */

static inline void check_allocator(lua_State *L, const arena_t *arena) {
  void *ud;
  CHECK(lua_getallocf(L, &ud) == arena_allocate && ud == arena);
}

#endif
