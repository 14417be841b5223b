/* SPDX-License-Identifier: MIT */
/* Heap profiling in hosts: allocators of the host's own that move, refuse, wrap and are wrapped; VMs that close, fork and change
 * threads; memory that runs out. What the allocator saw is compared with what the host's own counted. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "agent/session.h"
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

static bool refuses(arena_t *arena, size_t old, size_t size) {
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
static void *make(const arena_t *arena, size_t size) {
  size_t room = arena->move == MOVE_SELDOM && size <= 4096 ? size * ROOM : size;
  size_t *head = arena->pages
                     ? mmap(NULL, HEAD + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : malloc(HEAD + room);
  if (head == NULL || (void *)head == MAP_FAILED) FAIL("the test itself is out of memory");
  *head = room;
  return (char *)head + HEAD;
}

static size_t *head_of(void *block) {
  return (size_t *)((char *)block - HEAD);
}

static void unmake(const arena_t *arena, void *block) {
  if (arena->pages)
    munmap(head_of(block), HEAD + *head_of(block));
  else
    free(head_of(block));
}

static void *change(arena_t *arena, void *block, size_t old, size_t size) {
  if (size > old) arena->grows++;
  if (size < old) arena->shrinks++;
  if (arena->move == MOVE_SELDOM && size <= *head_of(block)) return block;
  void *result = make(arena, size);
  memcpy(result, block, old < size ? old : size);
  unmake(arena, block);
  arena->moves++;
  return result;
}

static void *arena_allocate(void *ud, void *block, size_t old, size_t size) {
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

static lua_State *open_in(arena_t *arena) {
  *arena = (arena_t){.fail_in = -1, .move = arena->move, .pages = arena->pages};
  return host_prepare(lua_newstate(arena_allocate, arena));
}

static luapulse_profile_options_t heap_options(luapulse_collection_mode_t mode, size_t mean) {
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.features = LUAPULSE_FEATURE_HEAP;
  options.heap_mode = mode;
  options.heap_sample_mean_bytes = mean;
  options.max_process_memory_bytes = (size_t)1 << 30;
  return options;
}

static void start_with(lua_State *L, luapulse_profile_options_t options) {
  luapulse_error_t error = {""};
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
}

static void start_tracing(lua_State *L) {
  start_with(L, heap_options(LUAPULSE_COLLECTION_TRACING, 1));
}

static int value_at(const profile_t *p, const char *name) {
  for (size_t t = 0; t < p->type_count; t++)
    if (strcmp(profile_text(p, p->types[t].type).data, name) == 0) return (int)t;
  FAIL("no values of %s", name);
}

static int64_t sum_of(const profile_t *p, const char *value, const char *function) {
  return host_sum(p, (size_t)value_at(p, value), function, false);
}

/* A total, from the comments of the profile. */
static uint64_t total_of(const profile_t *p, const char *name) {
  char begin[64];
  int len = snprintf(begin, sizeof begin, "heap_%s: ", name);
  for (size_t i = 0; i < p->comment_count; i++) {
    const char *text = profile_text(p, p->comments[i]).data;
    if (strncmp(text, begin, (size_t)len) == 0) return strtoull(text + len, NULL, 10);
  }
  FAIL("no total %s", name);
}

static void check_balance(const profile_t *p) {
  int64_t seen = (int64_t)(total_of(p, "alloc_bytes_total") - total_of(p, "free_bytes_total"));
  int64_t told = (int64_t)(total_of(p, "vm_bytes") - total_of(p, "vm_bytes_start"));
  if (seen != told) FAIL("%" PRId64 " bytes seen, %" PRId64 " told by the VM", seen, told);
}

/* Every block is at its site. */
static void check_whole(const profile_t *p) {
  check_balance(p);
  CHECK((uint64_t)sum_of(p, "alloc_space", NULL) == total_of(p, "alloc_bytes_total"));
  CHECK((uint64_t)sum_of(p, "alloc_objects", NULL) == total_of(p, "alloc_objects_total"));
  CHECK((uint64_t)sum_of(p, "inuse_space", NULL) == total_of(p, "live_bytes"));
}

static void stop_and_check(lua_State *L) {
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  luapulse_profile_free(profile);
}

/* churn(n) allocates in several ways and keeps nothing, keep(n) keeps n tables until drop(). */
static const char PROGRAM[] =
    "kept = {}\n"
    "function keep(n) for i = 1, n do kept[#kept + 1] = {i} end end\n"
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
    "end\n";

static lua_State *open_program(arena_t *arena) {
  lua_State *L = open_in(arena);
  host_run(L, PROGRAM);
  return L;
}

/* -- the host's allocator ---------------------------------------------------------------------------------------------- */

static void totals_are_those_of_the_host(void) {
  for (int move = 0; move < MOVES; move++)
    for (size_t mean = 1; mean <= 10000; mean *= 100) {
      arena_t arena = {.move = (move_t)move}, before;
      lua_State *L = open_program(&arena);
      start_with(L, heap_options(LUAPULSE_COLLECTION_SAMPLING, mean));
      luapulse_profile_free(luapulse_snapshot(L, NULL));
      before = arena;
      luapulse_profile_t *first = luapulse_snapshot(L, NULL);
      host_call(L, "churn", 500);
      host_call(L, "keep", 300);
      host_run(L, "drop()");
      arena_t after = arena;
      luapulse_profile_t *last = luapulse_snapshot(L, NULL);
#define SINCE(total) (total_of(last, total) - total_of(first, total))
      uint64_t grown = after.grows - before.grows, shrunk = after.shrinks - before.shrinks;
      CHECK(SINCE("realloc_grow_total") == grown);
      CHECK(SINCE("realloc_shrink_total") == shrunk);
      CHECK(SINCE("realloc_move_total") == after.moves - before.moves);
      CHECK(SINCE("realloc_total") >= grown + shrunk);
      CHECK(grown > 0 && shrunk > 0);
      CHECK((SINCE("realloc_move_total") < grown) == (move == MOVE_SELDOM));
      /* each of them is a free and an allocation */
      CHECK(SINCE("free_objects_total") - SINCE("realloc_total") == after.frees - before.frees);
      CHECK(SINCE("alloc_objects_total") - SINCE("realloc_total") == after.news - before.news);
      CHECK((int64_t)(SINCE("alloc_bytes_total") - SINCE("free_bytes_total")) == after.bytes - before.bytes);
#undef SINCE
      check_balance(last);
      luapulse_profile_free(first);
      luapulse_profile_free(last);
      luapulse_profile_t *profile = host_stop(L);
      check_balance(profile);
      if (mean == 1) check_whole(profile);
      luapulse_profile_free(profile);
      lua_close(L);
      CHECK(arena.bytes == 0 && arena.blocks == 0);
    }
}

/* A block that grows from 1 to 2^16 slots is in use once, at its last size. */
static void a_block_that_grows_is_counted_once(void) {
  for (int move = 0; move < MOVES; move++) {
    arena_t arena = {.move = (move_t)move};
    lua_State *L = open_program(&arena);
    start_tracing(L);
    host_run(L, "grown = {} function grow() for i = 1, 65536 do grown[i] = true end end grow()");
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "inuse_objects", "grow") <= 2);
    CHECK(sum_of(profile, "inuse_space", "grow") >= 65536 &&
          sum_of(profile, "inuse_space", "grow") <= 65536 * 16 + 256);
    CHECK(sum_of(profile, "alloc_objects", "grow") >= 16);
    luapulse_profile_free(profile);
    lua_close(L);
  }
}

/* A coroutine is freed right after its last block: nothing of it is looked at again. */
static void freed_blocks_are_not_read(void) {
  for (int traced = 0; traced < 2; traced++) {
    arena_t arena = {.pages = true};
    lua_State *L = open_program(&arena);
    host_run(L,
             "collectgarbage() collectgarbage('stop')\n"
             "local wrap, collect = coroutine.wrap, collectgarbage\n"
             "local function body() local x = {} x = nil end\n"
             "function coroutines(n) for i = 1, n do wrap(body)() collect() local y = {} y = nil end end");
    start_with(L, heap_options(traced ? LUAPULSE_COLLECTION_TRACING : LUAPULSE_COLLECTION_SAMPLING, 1));
    host_call(L, "coroutines", 50);
    host_call(L, "churn", 100);
    host_run(L, "collectgarbage() collectgarbage()");
    host_call(L, "churn", 100);
    stop_and_check(L);
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

static void check_allocator(lua_State *L, const arena_t *arena) {
  void *ud;
  CHECK(lua_getallocf(L, &ud) == arena_allocate && ud == arena);
}

static void the_allocator_is_put_back(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  for (int i = 0; i < 20; i++) {
    start_with(L, heap_options(i % 2 == 0 ? LUAPULSE_COLLECTION_SAMPLING : LUAPULSE_COLLECTION_TRACING, 100));
    host_call(L, "churn", 20);
    host_call(L, "keep", 20);
    luapulse_profile_t *profile = host_stop(L);
    check_balance(profile);
    luapulse_profile_free(profile);
    check_allocator(L, &arena);
    if (i % 5 == 0) host_run(L, "drop()"); /* of this and of earlier sessions */
  }
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
}

/* -- a host that wraps ours ----------------------------------------------------------------------------------------------- */

typedef struct {
  lua_Alloc inner;
  void *ud;
  uint64_t calls;
} wrapper_t;

static void *wrapper_allocate(void *ud, void *block, size_t old, size_t size) {
  wrapper_t *wrapper = ud;
  wrapper->calls++;
  return wrapper->inner(wrapper->ud, block, old, size);
}

static void wrap(lua_State *L, wrapper_t *wrapper) {
  *wrapper = (wrapper_t){0};
  wrapper->inner = lua_getallocf(L, &wrapper->ud);
  lua_setallocf(L, wrapper_allocate, wrapper);
}

static bool is_wrapped(lua_State *L, const wrapper_t *wrapper) {
  void *ud;
  return lua_getallocf(L, &ud) == wrapper_allocate && ud == wrapper;
}

static void a_host_that_wraps_ours(void) {
  arena_t arena = {0};
  wrapper_t wrapper;
  lua_State *L = open_program(&arena);
  start_tracing(L);
  host_call(L, "keep", 50);
  wrap(L, &wrapper);
  host_call(L, "churn", 50);
  stop_and_check(L);
  CHECK(is_wrapped(L, &wrapper)); /* the host's stays */
  host_call(L, "churn", 50);
  host_run(L, "drop()");
  for (int i = 0; i < 5; i++) { /* again, each block counted once, and the host's still there */
    uint64_t calls = wrapper.calls;
    start_tracing(L);
    host_call(L, "churn", 50);
    host_call(L, "keep", 50);
    CHECK(wrapper.calls > calls + 100);
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 100 && sum_of(profile, "inuse_objects", "keep") <= 110);
    luapulse_profile_free(profile);
    CHECK(is_wrapped(L, &wrapper));
    host_run(L, "drop()");
  }
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
}

/* … and takes its own, and with it ours, out again: what it kept from before start. */
static void a_host_that_takes_ours_out(void) {
  arena_t arena = {0};
  wrapper_t wrapper;
  lua_State *L = open_program(&arena);
  for (int i = 0; i < 3; i++) {
    start_tracing(L);
    wrap(L, &wrapper);
    host_call(L, "keep", 50);
    luapulse_profile_free(host_stop(L));
    lua_setallocf(L, arena_allocate, &arena);
    host_run(L, "drop()");
    start_tracing(L); /* it must be put in place anew */
    host_call(L, "keep", 50);
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 100);
    luapulse_profile_free(profile);
    check_allocator(L, &arena);
  }
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
}

static void closing_with_a_wrapper_around_ours(void) {
  for (int stopped = 0; stopped < 2; stopped++) {
    arena_t arena = {0};
    wrapper_t wrapper;
    lua_State *L = open_program(&arena);
    start_tracing(L);
    wrap(L, &wrapper);
    host_call(L, "keep", 500);
    if (stopped) luapulse_profile_free(host_stop(L));
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

/* -- ends ------------------------------------------------------------------------------------------------------------------ */

static int close_inside(lua_State *L) { /* blocks are sampled while their finalizers run */
  lua_newtable(L);
  lua_pushnumber(L, 1);
  lua_rawseti(L, -2, 1);
  return 0;
}

static void closing_at_any_time(void) {
  for (int i = 0; i < 60; i++) {
    arena_t arena = {.move = (move_t)(i % MOVES)};
    lua_State *L = open_program(&arena);
    lua_pushcfunction(L, close_inside);
    lua_setglobal(L, "close_inside");
    host_run(
        L,
        "if newproxy then p = newproxy(true) getmetatable(p).__gc = function() close_inside() keep(50) end\n"
        "else p = setmetatable({}, {__gc = function() close_inside() keep(50) end}) end");
    start_with(L, heap_options(i % 2 == 0 ? LUAPULSE_COLLECTION_SAMPLING : LUAPULSE_COLLECTION_TRACING,
                               1 + 50 * (size_t)(i % 4)));
    host_call(L, "keep", i * 20);
    host_call(L, "churn", i);
    if (i % 5 == 0) luapulse_profile_free(luapulse_snapshot(L, NULL));
    if (i % 7 == 0) luapulse_pause(L, NULL);
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

static void blocks_of_earlier_sessions(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  for (int i = 0; i < 10; i++) {
    start_tracing(L);
    host_call(L, "keep", 1000);
    stop_and_check(L);
    start_tracing(L);
    host_run(L, "drop()"); /* of the one before: not this one's */
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "alloc_objects", "keep") == 0 && sum_of(profile, "inuse_objects", "keep") == 0);
    luapulse_profile_free(profile);
  }
  lua_close(L);
}

/* -- memory that runs out ------------------------------------------------------------------------------------------------- */

static void each_allocation_refused(luapulse_collection_mode_t mode, size_t mean) {
  for (int for_good = 0; for_good < 2; for_good++)
    for (long n = 0;; n += 1 + n / 16) {
      arena_t arena = {0};
      lua_State *L = open_program(&arena);
      lua_getglobal(L, "churn");
      start_with(L, heap_options(mode, mean));
      luapulse_profile_t *first = luapulse_snapshot(L, NULL);
      arena.for_good = for_good != 0;
      arena.fail_in = n;
      uint64_t refused_before = arena.refused;
      lua_pushnumber(L, 12);
      int status = lua_pcall(L, 1, 0, 0);
      arena.fail_in = -1;
      uint64_t refused = arena.refused - refused_before;
      if (status != 0 && strstr(lua_tostring(L, -1), "not enough memory") == NULL)
        FAIL("the program was told \"%s\"", lua_tostring(L, -1));
      CHECK(refused > 0 || status == 0);
      lua_settop(L, 0);
      luapulse_profile_t *profile = host_stop(L);
      check_balance(profile);
      CHECK(total_of(profile, "failed_total") - total_of(first, "failed_total") == refused);
      if (mean == 1) check_whole(profile);
      luapulse_profile_free(first);
      luapulse_profile_free(profile);
      host_call(L, "churn", 5);
      lua_close(L);
      CHECK(arena.bytes == 0 && arena.blocks == 0);
      if (refused == 0) {
        CHECK(n > 100);
        break;
      }
    }
}

static void each_allocation_refused_traced(void) {
  each_allocation_refused(LUAPULSE_COLLECTION_TRACING, 1);
}

static void each_allocation_refused_sampled(void) {
  each_allocation_refused(LUAPULSE_COLLECTION_SAMPLING, 1);
  each_allocation_refused(LUAPULSE_COLLECTION_SAMPLING, 300);
}

/* When a block cannot grow the old one stays in use. */
static void a_refused_growth_keeps_the_old_block(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  host_run(L, "grown = {} function grow(n) for i = #grown + 1, n do grown[i] = true end end");
  start_tracing(L);
  host_call(L, "grow", 4096);
  luapulse_profile_t *first = luapulse_snapshot(L, NULL);
  arena.limit = arena.bytes + 4096; /* too little for twice as much */
  lua_getglobal(L, "grow");
  lua_pushnumber(L, 5000);
  CHECK(lua_pcall(L, 1, 0, 0) != 0);
  lua_settop(L, 0);
  arena.limit = 0;
  luapulse_profile_t *second = luapulse_snapshot(L, NULL);
  CHECK(sum_of(second, "inuse_space", "grow") == sum_of(first, "inuse_space", "grow"));
  CHECK(sum_of(second, "inuse_objects", "grow") == sum_of(first, "inuse_objects", "grow"));
  CHECK(total_of(second, "failed_total") > 0);
  host_run(L, "grown = nil collectgarbage()");
  luapulse_profile_t *last = host_stop(L);
  CHECK(sum_of(last, "inuse_space", "grow") == 0);
  check_whole(last);
  luapulse_profile_free(first);
  luapulse_profile_free(second);
  luapulse_profile_free(last);
  lua_close(L);
}

static void step_words(bool ok, const luapulse_error_t *error) {
  if (!ok && error->text[0] == '\0') FAIL("start failed without a word");
}

/* start itself, with each of Lua's allocations refused in turn. */
static void start_refused_by_the_host(void) {
  for (int for_good = 0; for_good < 2; for_good++)
    for (long n = 0;; n++) {
      arena_t arena = {0};
      lua_State *L = open_program(&arena);
      luapulse_error_t error = {""};
      luapulse_profile_options_t options = heap_options(LUAPULSE_COLLECTION_TRACING, 1);
      arena.for_good = for_good != 0;
      arena.fail_in = n;
      bool ok = luapulse_start(L, &options, &error) == 0;
      arena.fail_in = -1;
      step_words(ok, &error);
      CHECK(ok || arena.refused > 0);
      if (!ok) {
        check_allocator(L, &arena);
        arena_t other = {.fail_in = -1, .bytes = arena.bytes, .blocks = arena.blocks};
        lua_setallocf(L, arena_allocate, &other); /* the host changes its mind: nothing stale is used */
        start_tracing(L);
        host_call(L, "churn", 10);
        stop_and_check(L);
        check_allocator(L, &other);
        lua_close(L);
        CHECK(other.bytes == 0 && other.blocks == 0);
      } else {
        host_call(L, "churn", 10);
        stop_and_check(L);
        lua_close(L);
      }
      if (arena.refused == 0) {
        CHECK(ok);
        break;
      }
    }
}

static struct {
  bool on;
  long left;
  long refused;
} own;

static void *failing_realloc(void *old, size_t size) {
  if (own.on && own.left-- <= 0) {
    own.refused++;
    return NULL;
  }
  return realloc(old, size);
}

/* … and with each of the profiler's. */
static void start_without_memory_of_ours(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  mem_realloc = failing_realloc;
  for (long n = 0;; n++) {
    luapulse_error_t error = {""};
    luapulse_profile_options_t options = heap_options(LUAPULSE_COLLECTION_TRACING, 1);
    own.on = true;
    own.left = n;
    own.refused = 0;
    bool ok = luapulse_start(L, &options, &error) == 0;
    own.on = false;
    step_words(ok, &error);
    if (ok) stop_and_check(L);
    check_allocator(L, &arena);
    if (own.refused == 0) {
      CHECK(ok && n > 1);
      break;
    }
    CHECK(!ok);
  }
  mem_realloc = realloc;
  lua_close(L);
  CHECK(arena.bytes == 0);
}

/* A million blocks alive, tables of 1 MiB: what has no room is counted as lost, and the host lives. */
static void small_tables(void) {
  static const luapulse_collection_mode_t modes[] = {LUAPULSE_COLLECTION_TRACING,
                                                     LUAPULSE_COLLECTION_SAMPLING};
  for (int i = 0; i < 2; i++) {
    arena_t arena = {0};
    lua_State *L = open_program(&arena);
    luapulse_profile_options_t options = heap_options(modes[i], 1);
    luapulse_status_t status;
    options.max_memory_bytes = 1 << 20;
    start_with(L, options);
    host_call(L, "keep", HOST_SANITIZED ? 100000 : 500000); /* two blocks each */
    luapulse_get_status(L, &status);
    CHECK(status.lost_overflow > 100000);
    CHECK(status.memory_bytes < 8 << 20);
    host_run(L, "drop()");
    host_call(L, "keep", 100); /* there is room again */
    luapulse_profile_t *profile = host_stop(L);
    check_balance(profile);
    CHECK((uint64_t)sum_of(profile, "alloc_space", NULL) == total_of(profile, "alloc_bytes_total"));
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 200);
    CHECK(sum_of(profile, "inuse_objects", "keep") < 1000);
    CHECK(profile->losses[LOSS_OVERFLOW] >= status.lost_overflow);
    luapulse_profile_free(profile);
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

static void too_small_a_budget(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  luapulse_profile_options_t options = heap_options(LUAPULSE_COLLECTION_TRACING, 1);
  luapulse_error_t error = {""};
  options.max_memory_bytes = options.max_process_memory_bytes = 256 << 10;
  CHECK(luapulse_start(L, &options, &error) != 0 && error.text[0] != '\0');
  check_allocator(L, &arena);
  start_tracing(L);
  stop_and_check(L);
  lua_close(L);
}

/* -- threads ------------------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 15 };

static void *profile_again_and_again(void *number) {
  uintptr_t n = (uintptr_t)number;
  arena_t arena = {.move = (move_t)(n % MOVES)};
  lua_State *L = open_program(&arena);
  for (int i = 0; i < ROUNDS; i++) {
    luapulse_profile_options_t options =
        heap_options(n % 2 == 0 ? LUAPULSE_COLLECTION_TRACING : LUAPULSE_COLLECTION_SAMPLING, 1);
    if (i % 3 == 1) options.features |= LUAPULSE_FEATURE_CPU;
    start_with(L, options);
    host_call(L, "churn", 100);
    host_call(L, "keep", 100);
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 200);
    luapulse_profile_free(profile);
    host_run(L, "drop()");
  }
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
  return NULL;
}

static void many_vms_on_many_threads(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, profile_again_and_again, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void *work_elsewhere(void *L) {
  host_call(L, "churn", 50);
  host_call(L, "keep", 50);
  return NULL;
}

static void a_vm_moves(void) {
  for (int cpu = 0; cpu < 2; cpu++) {
    arena_t arena = {0};
    lua_State *L = open_program(&arena);
    luapulse_profile_options_t options = heap_options(LUAPULSE_COLLECTION_TRACING, 1);
    if (cpu) options.features |= LUAPULSE_FEATURE_CPU;
    start_with(L, options);
    for (int i = 0; i < 10; i++) {
      pthread_t thread;
      CHECK(pthread_create(&thread, NULL, work_elsewhere, L) == 0 && pthread_join(thread, NULL) == 0);
      host_call(L, "churn", 50);
    }
    luapulse_profile_t *profile = host_stop(L);
    check_whole(profile);
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 1000 &&
          sum_of(profile, "inuse_objects", "keep") <= 1010);
    CHECK(profile->losses[LOSS_UNATTRIBUTED] == 0 || cpu);
    luapulse_profile_free(profile);
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

static void *sample_the_cpu(void *unused) {
  (void)unused;
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 50);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
  return NULL;
}

static void while_the_cpu_of_another_is_sampled(void) {
  pthread_t other;
  CHECK(pthread_create(&other, NULL, sample_the_cpu, NULL) == 0);
  profile_again_and_again((void *)0);
  profile_again_and_again((void *)1);
  CHECK(pthread_join(other, NULL) == 0);
}

/* One VM's C function runs another VM: each sees its own. */
static int churn_inside(lua_State *L) {
  host_call(lua_touserdata(L, lua_upvalueindex(1)), "keep", 10);
  return 0;
}

static void one_vm_inside_another(void) {
  arena_t outer_arena = {0}, inner_arena = {0};
  lua_State *outer = open_program(&outer_arena), *inner = open_program(&inner_arena);
  lua_pushlightuserdata(outer, inner);
  lua_pushcclosure(outer, churn_inside, 1);
  lua_setglobal(outer, "inside");
  start_tracing(outer);
  start_tracing(inner);
  host_run(outer, "for i = 1, 20 do keep(5) inside() end");
  luapulse_profile_t *of_outer = host_stop(outer), *of_inner = host_stop(inner);
  check_whole(of_outer);
  check_whole(of_inner);
  CHECK(sum_of(of_outer, "inuse_objects", "keep") >= 200 && sum_of(of_outer, "inuse_objects", "keep") <= 210);
  CHECK(sum_of(of_inner, "inuse_objects", "keep") >= 400 && sum_of(of_inner, "inuse_objects", "keep") <= 410);
  luapulse_profile_free(of_outer);
  luapulse_profile_free(of_inner);
  lua_close(outer);
  lua_close(inner);
}

/* What the host itself allocates, with no function running. */
static void the_host_itself(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  start_tracing(L);
  for (int i = 0; i < 100; i++) lua_newtable(L), lua_pop(L, 1);
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  CHECK(sum_of(profile, "alloc_objects", "[outside Lua]") >= 100);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* -- processes -------------------------------------------------------------------------------------------------------------- */

static void in_a_child(lua_State *L, const arena_t *arena, int number) {
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  CHECK(!status.running);
  host_call(L, "churn", 50);
  host_run(L, "drop()"); /* blocks the parent follows */
  host_call(L, "keep", 50);
  if (number % 3 == 1) {
    start_tracing(L);
    host_call(L, "keep", 50);
    stop_and_check(L);
    check_allocator(L, arena);
  }
  if (number % 3 != 2) {
    lua_close(L);
    CHECK(arena->bytes == 0 && arena->blocks == 0);
  }
  _exit(0);
}

static void forked_children(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  start_tracing(L);
  for (int i = 0; i < 12; i++) {
    host_call(L, "keep", 10);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) in_a_child(L, &arena, i);
    host_call(L, "churn", 20);
    host_wait(pid);
  }
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  CHECK(sum_of(profile, "inuse_objects", "keep") >= 240 && sum_of(profile, "inuse_objects", "keep") <= 250);
  luapulse_profile_free(profile);
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
}

/* The tables of `luapulse run`: shared with another process. */
static void *shared_tables(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  live_prepare(memory, size);
  return memory;
}

static void start_in(lua_State *L, void *memory, size_t size) {
  failure_t failure = {""};
  luapulse_profile_options_t options = heap_options(LUAPULSE_COLLECTION_TRACING, 1);
  if (!session_start(L, &options, (session_region_t){memory, size}, &failure))
    FAIL("start: %s", failure.text);
}

/* Children write nothing into tables that they share with the profiled process. */
static void forked_children_with_shared_tables(void) {
  enum { SIZE = 8 << 20 };
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  void *memory = shared_tables(SIZE), *copy = malloc(SIZE);
  CHECK(copy != NULL);
  start_in(L, memory, SIZE);
  for (int i = 0; i < 6; i++) {
    host_call(L, "keep", 10);
    memcpy(copy, memory, SIZE);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) in_a_child(L, &arena, i);
    host_wait(pid);
    CHECK(memcmp(copy, memory, SIZE) == 0);
  }
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  CHECK(sum_of(profile, "inuse_objects", "keep") >= 120 && sum_of(profile, "inuse_objects", "keep") <= 130);
  luapulse_profile_free(profile);
  lua_close(L);
  free(copy);
}

/* Whatever the profiled process was doing when it was killed, its tables can be read, and are right but for what was under way. */
static void killed_at_any_moment(void) {
  enum { SIZE = 8 << 20 };
  for (int i = 0; i < 30; i++) {
    void *memory = shared_tables(SIZE);
    live_t live = {0};
    failure_t failure = {""};
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      arena_t arena = {0};
      lua_State *L = open_program(&arena);
      start_in(L, memory, SIZE);
      host_call(L, "keep", 100);
      for (;;) host_call(L, "churn", 20);
    }
    uint64_t enough = 2000 + 777 * (uint64_t)i;
    while (!live_open(&live, memory, SIZE, &failure) || live_state(&live) != LIVE_RUNNING ||
           *(volatile uint64_t *)&live_heap_totals(&live)->alloc_objects_total < enough)
      sched_yield();
    profile_t *running = live_snapshot(&live, &failure); /* while it is being written */
    if (running == NULL) FAIL("running: %s", failure.text);
    profile_free(running);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    profile_t *profile = live_snapshot(&live, &failure);
    if (profile == NULL) FAIL("killed: %s", failure.text);
    int64_t at_sites = sum_of(profile, "alloc_objects", NULL),
            total = (int64_t)total_of(profile, "alloc_objects_total");
    CHECK(at_sites >= total - 1 && at_sites <= total + 1); /* one was under way, perhaps */
    CHECK(sum_of(profile, "inuse_objects", "keep") >= 199 && sum_of(profile, "inuse_objects", "keep") <= 210);
    profile_free(profile);
    munmap(memory, SIZE);
  }
}

static const host_test_t tests[] = {
    {"totals_are_those_of_the_host", totals_are_those_of_the_host},
    {"a_block_that_grows_is_counted_once", a_block_that_grows_is_counted_once},
    {"freed_blocks_are_not_read", freed_blocks_are_not_read},
    {"the_allocator_is_put_back", the_allocator_is_put_back},
    {"a_host_that_wraps_ours", a_host_that_wraps_ours},
    {"a_host_that_takes_ours_out", a_host_that_takes_ours_out},
    {"closing_with_a_wrapper_around_ours", closing_with_a_wrapper_around_ours},
    {"closing_at_any_time", closing_at_any_time},
    {"blocks_of_earlier_sessions", blocks_of_earlier_sessions},
    {"each_allocation_refused_traced", each_allocation_refused_traced},
    {"each_allocation_refused_sampled", each_allocation_refused_sampled},
    {"a_refused_growth_keeps_the_old_block", a_refused_growth_keeps_the_old_block},
    {"start_refused_by_the_host", start_refused_by_the_host},
    {"start_without_memory_of_ours", start_without_memory_of_ours},
    {"small_tables", small_tables},
    {"too_small_a_budget", too_small_a_budget},
    {"many_vms_on_many_threads", many_vms_on_many_threads},
    {"a_vm_moves", a_vm_moves},
    {"while_the_cpu_of_another_is_sampled", while_the_cpu_of_another_is_sampled},
    {"one_vm_inside_another", one_vm_inside_another},
    {"the_host_itself", the_host_itself},
    {"forked_children", forked_children},
    {"forked_children_with_shared_tables", forked_children_with_shared_tables},
    {"killed_at_any_moment", killed_at_any_moment},
};

HOST_MAIN(tests)
