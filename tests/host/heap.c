/* SPDX-License-Identifier: MIT */
/* Heap profiling in hosts: what the allocator saw against what the host counted; allocators that move, wrap and are wrapped;
 * VMs that close. */
#include <malloc.h>

#include "heap.h"

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

/* From here on what is freed is overwritten, which the C library does not do to the few blocks of each size that it keeps for the thread. */
static void spoil_what_is_freed(void) {
  enum { KEPT = 7, MOST = 1024 };
  mallopt(M_PERTURB, 0xa5);
  for (size_t size = 16; size < MOST; size += 16) {
    void *blocks[KEPT];
    for (int i = 0; i < KEPT; i++) blocks[i] = malloc(size);
    for (int i = 0; i < KEPT; i++) free(blocks[i]);
  }
}

/* Given a host that puts back what it had asked for during a session: as it is, or with its own around it and profiled once more. When the
 * VM is closed, then ours still serves. */
static void a_host_that_puts_ours_back(void) {
  for (int again = 0; again < 2; again++) {
    arena_t arena = {0};
    wrapper_t wrapper;
    void *ud;
    lua_State *L = open_program(&arena);
    start_tracing(L);
    lua_Alloc ours = lua_getallocf(L, &ud);
    luapulse_profile_free(host_stop(L));
    lua_setallocf(L, ours, ud);
    if (again) {
      start_tracing(L);
      wrap(L, &wrapper);
      luapulse_profile_free(host_stop(L));
    }
    host_call(L, "keep", 500);
    spoil_what_is_freed();
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

/* Given strings that were made in a buffer while the heap was profiled: on 5.5 they keep our wrapper, and are freed by it. When they go
 * while nothing is profiled, in a later session, or with the VM, then that is seen as any other block's end, and nothing is left. */
static void strings_of_buffers_outlive_sessions(void) {
  for (int stopped = 0; stopped < 2; stopped++) {
    arena_t arena = {0};
    lua_State *L = open_program(&arena);
    host_run(L,
             "collectgarbage() collectgarbage('stop') strings = {} made = 10000\n"
             "function long(n) for i = 1, n do made = made + 1 strings[#strings + 1] = ('' .. "
             "made):rep(1001) end end\n"
             "function less(n) for i = 1, n do strings[#strings] = nil end collectgarbage() end");
    for (int i = 0; i < 3; i++) {
      start_tracing(L);
      host_call(L, "less", i * 10);
      host_call(L, "long", 50);
      host_call(L, "less", 10);
      luapulse_profile_t *profile = host_stop(L);
      CHECK(sum_of(profile, "inuse_space", "long") >= 40 * 5000); /* more than 5.5 itself knows of */
      luapulse_profile_free(profile);
      host_call(L, "less", 10);
    }
    start_tracing(L);
    host_call(L, "long", 50);
    if (stopped) luapulse_profile_free(host_stop(L));
    lua_close(L);
    CHECK(arena.bytes == 0 && arena.blocks == 0);
  }
}

/* -- a coroutine at an address that was none's before ----------------------------------------------------------------------- */

enum { PLACE = 4096 };

/* Where lua_newthread takes its first block from here on, as long as it is free: one place for all blocks of that size. */
typedef struct {
  size_t size; /* of the last new block, while `learns`; after that of the place */
  bool learns, used;
  char *place;
} one_place_t;

static void *allocate_in_one_place(void *ud, void *block, size_t old, size_t size) {
  one_place_t *one = ud;
  if (block == one->place) {
    if (size == 0) return memset(one->place, 0, PLACE), one->used = false, NULL;
    FAIL("a coroutine's block is to change its size");
  }
  if (size == 0) return free(block), NULL;
  if (block == NULL && one->learns) one->size = size, one->learns = false;
  if (block == NULL && size == one->size && !one->used) return one->used = true, one->place;
  (void)old;
  return realloc(block, size);
}

static int run_global(lua_State *L, lua_State *co, const char *name) {
  lua_getglobal(co, name);
#if LUA_VERSION_NUM >= 504
  int results;
  int status = lua_resume(co, L, 0, &results);
#elif LUA_VERSION_NUM >= 502
  int status = lua_resume(co, L, 0);
#else
  (void)L;
  int status = lua_resume(co, 0);
#endif
  lua_settop(co, 0);
  return status;
}

static lua_State *anchored_coroutine(lua_State *L) {
  lua_State *co = lua_newthread(L);
  luaL_ref(L, LUA_REGISTRYINDEX);
  return co;
}

/* Given a word on the native stack that was seen to be no coroutine. When one is made there while the session is paused, then what it
 * allocates after resume is its own. */
static void a_coroutine_is_made_while_paused(void) {
  one_place_t one = {.place = calloc(1, PLACE)};
  CHECK(one.place != NULL);
  luapulse_error_t error;
  lua_State *L = host_prepare(host_new_state(allocate_in_one_place, &one));
  host_run(L, PROGRAM);
  host_run(L,
           "collectgarbage() collectgarbage('stop')\n"
           "function warm() local t = {} for i = 1, 50 do t[i] = {} end end\n"
           "function inner() local t = {} for i = 1, 1000 do t[i] = {} end end");
  one.learns = true;
  lua_State *first = lua_newthread(L);
  CHECK((char *)first >= one.place && (char *)first < one.place + PLACE);
  volatile uintptr_t words[64];
  for (int i = 0; i < 64; i++) words[i] = (uintptr_t)first;
  lua_settop(L, 0);
  host_run(L, "collectgarbage() collectgarbage() collectgarbage('stop')");
  CHECK(!one.used);
  one.used = true; /* not yet */
  lua_State *other = anchored_coroutine(L);
  start_tracing(L);
  CHECK(run_global(L, other, "warm") == 0);
  CHECK(luapulse_pause(L, &error) == 0);
  one.used = false;
  lua_State *second = anchored_coroutine(L);
  CHECK((uintptr_t)second == words[0]);
  CHECK(luapulse_resume(L, &error) == 0);
  CHECK(run_global(L, second, "inner") == 0);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(sum_of(profile, "alloc_objects", "inner") >= 1000);
  luapulse_profile_free(profile);
  lua_close(L);
  free(one.place);
}

static const host_test_t tests[] = {
    {"a_coroutine_is_made_while_paused", a_coroutine_is_made_while_paused},
    {"totals_are_those_of_the_host", totals_are_those_of_the_host},
    {"a_block_that_grows_is_counted_once", a_block_that_grows_is_counted_once},
    {"freed_blocks_are_not_read", freed_blocks_are_not_read},
    {"the_allocator_is_put_back", the_allocator_is_put_back},
    {"a_host_that_wraps_ours", a_host_that_wraps_ours},
    {"a_host_that_takes_ours_out", a_host_that_takes_ours_out},
    {"a_host_that_puts_ours_back", a_host_that_puts_ours_back},
    {"closing_with_a_wrapper_around_ours", closing_with_a_wrapper_around_ours},
    {"closing_at_any_time", closing_at_any_time},
    {"blocks_of_earlier_sessions", blocks_of_earlier_sessions},
    {"strings_of_buffers_outlive_sessions", strings_of_buffers_outlive_sessions},
};

HOST_MAIN(tests)
