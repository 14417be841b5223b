/* SPDX-License-Identifier: MIT */
/* Heap profiling of VMs in many threads, in forked children, and killed at any moment. */
#include <pthread.h>
#include <sched.h>

#include "agent/session.h"
#include "heap.h"

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

static void *start_here(void *L) {
  start_tracing(L);
  return NULL;
}

static void *allocate_outside_and_inside(void *L) {
  for (int i = 0; i < 20; i++) lua_newtable(L), lua_pop(L, 1);
  host_call(L, "keep", 50);
  host_call(L, "churn", 5);
  return NULL;
}

static void run_on_stack(void *(*function)(void *), lua_State *L, void *low, size_t size) {
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, low, size) == 0);
  CHECK(pthread_create(&thread, &attributes, function, L) == 0 && pthread_join(thread, NULL) == 0);
  pthread_attr_destroy(&attributes);
}

/* Where the stack of the thread that called start was, there is a small one now, with nothing to be read above it. */
static void its_thread_has_ended(void) {
  enum { LARGE = 8 << 20, SMALL = 1 << 20 };
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  char *stack = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  run_on_stack(start_here, L, stack, LARGE);
  CHECK(mprotect(stack, LARGE, PROT_NONE) == 0);
  for (int at = SMALL; at < LARGE; at += 2 * SMALL) {
    CHECK(mprotect(stack + at, SMALL, PROT_READ | PROT_WRITE) == 0);
    run_on_stack(allocate_outside_and_inside, L, stack + at, SMALL);
    CHECK(mprotect(stack + at, SMALL, PROT_NONE) == 0);
  }
  host_call(L, "keep", 50); /* here, where it never was */
  luapulse_profile_t *profile = host_stop(L);
  check_whole(profile);
  CHECK(profile->losses[LOSS_UNATTRIBUTED] == 0);
  int64_t kept = sum_of(profile, "inuse_objects", "keep");
  CHECK(kept >= 500 && kept <= 510);
  luapulse_profile_free(profile);
  lua_close(L);
  CHECK(munmap(stack, LARGE) == 0);
}

/* -- VMs that share an allocator ----------------------------------------------------------------------------------------------- */

static void *plain_allocate(void *ud, void *block, size_t old, size_t size) {
  (void)ud;
  (void)old;
  if (size == 0) return free(block), NULL;
  return realloc(block, size);
}

typedef struct {
  lua_Alloc allocate;
  void *ud;
  lua_State *made; /* already; else it makes one itself */
} lane_t;

static void *run_lane(void *context) {
  lane_t *lane = context;
  lua_State *L = lane->made != NULL ? lane->made : host_new_state(lane->allocate, lane->ud);
  host_prepare(L);
  host_run(L, PROGRAM);
  for (int i = 0; i < FEWER(20); i++) {
    host_call(L, "churn", 200);
    host_call(L, "keep", 200);
    host_run(L, "drop()");
  }
  lua_close(L);
  return NULL;
}

static void check_a_whole_session(lua_State *L) {
  start_tracing(L);
  host_call(L, "keep", 50);
  stop_and_check(L);
}

/* As Lua Lanes makes its states: what lua_getallocf tells of the profiled one goes to lua_newstate, and they run on threads of their own. */
static void another_vm_takes_our_allocator(void) {
  enum { LANES = 2 };
  for (int round = 0; round < 8; round++) {
    bool made_here = round % 2 == 0, traced = round / 2 % 2 == 0, after_stop = round >= 4;
    luapulse_status_t status;
    pthread_t threads[LANES];
    lane_t lanes[LANES];
    lua_State *L = host_prepare(host_new_state(plain_allocate, NULL));
    host_run(L, PROGRAM);
    start_with(L, heap_options(traced ? LUAPULSE_COLLECTION_TRACING : LUAPULSE_COLLECTION_SAMPLING, 1));
    for (int i = 0; i < LANES; i++) lanes[i].allocate = lua_getallocf(L, &lanes[i].ud);
    if (after_stop) luapulse_profile_free(host_stop(L));
    for (int i = 0; i < LANES; i++) {
      lanes[i].made = made_here ? host_new_state(lanes[i].allocate, lanes[i].ud) : NULL;
      CHECK(pthread_create(&threads[i], NULL, run_lane, &lanes[i]) == 0);
    }
    if (made_here ||
        LUA_VERSION_NUM >=
            502) { /* on others one that is made elsewhere may be overlooked while this one allocates */
      if (!made_here) CHECK(pthread_join(threads[0], NULL) == 0);
      luapulse_get_status(L, &status);
      CHECK((strstr(status.note, "another VM") != NULL) == !after_stop);
      for (int i = 0; i < 10; i++) host_call(L, "churn", 200);
      if (!after_stop) luapulse_profile_free(host_stop(L));
      check_a_whole_session(L);
      for (int i = 0; i < 10; i++) host_call(L, "churn", 200);
    } else {
      CHECK(pthread_join(threads[0], NULL) == 0);
    }
    lua_close(L); /* before theirs */
    CHECK(pthread_join(threads[1], NULL) == 0);
    if (made_here) CHECK(pthread_join(threads[0], NULL) == 0);
  }
}

/* Lua 5.5 makes long strings of buffers out of memory that the VM does not count; this it counts on any. */
static int push_string(lua_State *L) {
  static char bytes[10000];
  lua_pushlstring(L, bytes, (size_t)luaL_checkinteger(L, 1));
  return 1;
}

/* Blocks of that size are nothing else to a VM itself. */
static void blocks_as_large_as_a_vm(void) {
  arena_t arena = {0};
  lua_State *L = open_program(&arena);
  lua_register(L, "string_of", push_string);
  host_run(L, "function sizes() local t = {} for size = 1, 9000 do t[1] = string_of(size) end end");
  for (int traced = 0; traced < 2; traced++) {
    luapulse_status_t status;
    start_with(L, heap_options(traced ? LUAPULSE_COLLECTION_TRACING : LUAPULSE_COLLECTION_SAMPLING, 1));
    host_run(L, "sizes()");
    luapulse_get_status(L, &status);
    CHECK(status.note[0] == '\0');
    stop_and_check(L);
  }
  lua_close(L);
  CHECK(arena.bytes == 0 && arena.blocks == 0);
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
  for (int i = 0; i < FEWER(30); i++) {
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
    {"many_vms_on_many_threads", many_vms_on_many_threads},
    {"a_vm_moves", a_vm_moves},
    {"its_thread_has_ended", its_thread_has_ended},
    {"another_vm_takes_our_allocator", another_vm_takes_our_allocator},
    {"blocks_as_large_as_a_vm", blocks_as_large_as_a_vm},
    {"while_the_cpu_of_another_is_sampled", while_the_cpu_of_another_is_sampled},
    {"one_vm_inside_another", one_vm_inside_another},
    {"the_host_itself", the_host_itself},
    {"forked_children", forked_children},
    {"forked_children_with_shared_tables", forked_children_with_shared_tables},
    {"killed_at_any_moment", killed_at_any_moment},
};

HOST_MAIN(tests)
