/* SPDX-License-Identifier: MIT */
/* Heap profiling in hosts whose memory runs out: allocations of Lua's and of the profiler's refused, one after the other; tables that
 * are too small. */
#include "heap.h"

/* -- memory that runs out ------------------------------------------------------------------------------------------------- */

/* Every one of them; under a sanitizer some. */
static void each_allocation_refused(luapulse_collection_mode_t mode, size_t mean) {
  for (int for_good = 0; for_good < 2; for_good++)
    for (long n = 0;; n += SANITIZED_ADDRESS ? 1 + n / 16 : 1) {
      arena_t arena = {0};
      lua_State *L = open_program(&arena);
      lua_getglobal(L, "everything");
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
      check_empty(&arena);
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
        arena_t other = {
            .fail_in = -1, .bytes = arena.bytes, .blocks = arena.blocks, .refused = arena.refused};
        lua_setallocf(L, arena_allocate, &other); /* the host changes its mind: nothing stale is used */
        start_tracing(L);
        host_call(L, "churn", 10);
        stop_and_check(L);
        check_allocator(L, &other);
        lua_close(L);
        check_empty(&other);
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

enum { FIXED = (72 + 230 + 32) << 10 }; /* beside the tables, docs/heap.md#memory */

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
    host_call(L, "keep", SANITIZED_ADDRESS ? 100000 : 500000); /* two blocks each */
    luapulse_get_status(L, &status);
    CHECK(status.lost_overflow > 100000);
    CHECK(status.memory_bytes > options.max_memory_bytes / 2);
    CHECK(status.memory_bytes <= options.max_memory_bytes + FIXED);
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

static const host_test_t tests[] = {
    {"each_allocation_refused_traced", each_allocation_refused_traced},
    {"each_allocation_refused_sampled", each_allocation_refused_sampled},
    {"a_refused_growth_keeps_the_old_block", a_refused_growth_keeps_the_old_block},
    {"start_refused_by_the_host", start_refused_by_the_host},
    {"start_without_memory_of_ours", start_without_memory_of_ours},
    {"small_tables", small_tables},
    {"too_small_a_budget", too_small_a_budget},
};

HOST_MAIN(tests)
