/* SPDX-License-Identifier: MIT */
/* Hosts that are not the stock interpreter: most of their time is spent in C, they resume coroutines themselves,
 * call without protection, and make coroutines at any moment. */
#include "host.h"

/* In user time: asking for the time is a system call, so it is asked for seldom. */
static void burn_in_c(uint64_t nanos) {
  for (uint64_t start = time_thread_cpu(); time_thread_cpu() - start < nanos;)
    for (volatile int i = 0; i < 100000; i++) {
    }
}

static int c_function(lua_State *L) {
  burn_in_c((uint64_t)(lua_tonumber(L, 1) * 1e9));
  return 0;
}

static lua_State *open_host(void) {
  lua_State *L = host_open();
  lua_pushcfunction(L, c_function);
  lua_setglobal(L, "c_function");
  host_run(L, "function quick() return step(1) end function other() return step(2) end");
  return L;
}

/* Nine tenths outside Lua, a tenth in burn(): that is what the profile says. quick() is called first each time and
 * must not inherit what was spent before it. */
static void in_c_by(const host_way_t *way) {
  lua_State *L = open_host();
  timer_t ticks = host_watch_ticks();
  host_start_by(L, way);
  luapulse_status_t status;
  uint64_t outside = 0, inside = 0;
  do {
    uint64_t start = time_thread_cpu();
    burn_in_c(18000000);
    uint64_t middle = time_thread_cpu();
    host_call(L, "quick", 0);
    host_call(L, "burn", 0.002);
    outside += middle - start;
    inside += time_thread_cpu() - middle;
    luapulse_get_status(L, &status);
  } while (status.samples < 100);
  luapulse_profile_t *profile = host_stop(L);
  double total = (double)host_total(profile, 1),
         sampled = (double)host_sum(profile, 1, "[outside Lua]", false) / total;
  double expected = (double)outside / (double)(outside + inside);
  /* 5 sigma of 100 samples with nine tenths each way is 0.15 */
  if (sampled < expected - 0.15 || sampled > expected + 0.15)
    FAIL("%.3f outside Lua, was %.3f", sampled, expected);
  CHECK((double)host_sum(profile, 1, "quick", false) < 0.05 * total);
  CHECK(profile->losses[LOSS_UNATTRIBUTED] > 0 &&
        (int64_t)profile->losses[LOSS_UNATTRIBUTED] ==
            host_sum(profile, 0, "[outside Lua]", false) + host_sum(profile, 0, "[unreadable stack]", false));
  /* the whole time is there, however long the ticks waited for Lua */
  CHECK(total > 0.8 * (double)(outside + inside) &&
        total <= 1.01 * (double)(outside + inside) + (double)host_ahead(ticks));
  luapulse_profile_free(profile);
  lua_close(L);
}

static void mostly_in_c(void) {
  in_c_by(HOST_BY_WALK);
  in_c_by(HOST_BY_HOOK);
}

/* Time in a C function that Lua called is that function's, with its callers. */
static void c_function_by(const host_way_t *way) {
  lua_State *L = open_host();
  host_run(L, "function caller(seconds) c_function(seconds) end");
  host_start_by(L, way);
  luapulse_status_t status;
  do {
    host_call(L, "caller", 0.01);
    luapulse_get_status(L, &status);
  } while (status.samples < 30);
  luapulse_profile_t *profile = host_stop(L);
  int64_t total = host_total(profile, 1);
  CHECK(host_sum(profile, 1, "c_function", true) > total / 10 * 8);
  CHECK(host_sum(profile, 1, "caller", false) > total / 10 * 8);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void c_function_called_by_lua(void) {
  c_function_by(HOST_BY_WALK);
  c_function_by(HOST_BY_HOOK);
}

/* -- coroutines of the host's own
 * -------------------------------------------------------------------------------- */

static const char endless[] =
    "function endless(name) while true do work(200) coroutine.yield(name) end end\n"
    "function failing() work(200) error('as planned') end\n";

/* A scheduler in C: some hundred coroutines, made and resumed by lua_resume, that yield, end, fail. */
static void host_resumes(const host_way_t *way) {
  enum { COROUTINES = 100 };
  lua_State *L = open_host();
  host_run(L, endless);
  host_run(L, host_keep_library);
  host_start_by(L, way);
  luapulse_status_t status;
  int base = lua_gettop(L);
  CHECK(lua_checkstack(L, COROUTINES + LUA_MINSTACK));
  for (int round = 0; round < 10000; round++) {
    lua_State *coroutines[COROUTINES];
    for (int i = 0; i < COROUTINES; i++) {
      coroutines[i] = lua_newthread(L);
      lua_getglobal(coroutines[i], i % 10 == 0 ? "failing" : "endless");
    }
    for (int turn = 0; turn < 3; turn++)
      for (int i = 0; i < COROUTINES; i++) {
        int results;
        if (turn > 0 && i % 10 == 0) continue;
        int result = lv_resume(coroutines[i], L, 0, &results);
        CHECK(result == (i % 10 == 0 ? LUA_ERRRUN : LUA_YIELD));
        lua_settop(coroutines[i], 0);
      }
    lua_settop(L, base);
    lua_gc(L, LUA_GCCOLLECT, 0); /* they are gone, armed or not */
    host_call(L, "quick", 0);
    luapulse_get_status(L, &status);
    if (status.samples >= 15) break;
  }
  CHECK(status.samples >= 15);
  luapulse_profile_free(host_stop(L));
  host_check_untouched(L);
  lua_close(L);
}

static void host_resumes_cpu(void) {
  host_resumes(HOST_BY_WALK);
  host_resumes(HOST_BY_HOOK);
}

static void host_resumes_instructions(void) {
  host_resumes(HOST_BY_COUNT);
}

static void counting_hook(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
}

/* A coroutine made while our hook is armed inherits it, and then has the host's instead: none, or its own. */
static void coroutine_made_while_armed(void) {
  lua_State *L = open_host();
  host_run(L, endless);
  host_start_by(L, HOST_BY_HOOK);
  for (int i = 0; i < 6; i++) {
    bool hooked = i % 2 == 1;
    if (hooked)
      lua_sethook(L, counting_hook, LUA_MASKCOUNT, 1234567);
    else
      lua_sethook(L, NULL, 0, 0);
    lua_Hook host = lua_gethook(L);
    for (uint64_t start = time_thread_cpu(); lua_gethook(L) == host;)
      if (time_thread_cpu() - start > 20000000000u) FAIL("no tick in 20 s of CPU time");
    lua_State *co = lua_newthread(L); /* armed: it inherits */
    lua_State *kept = lua_newthread(L);
    int results;
    lua_getglobal(co, "endless");
    CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
    lua_Hook hook = lua_gethook(co);
    int mask = lua_gethookmask(co), count = lua_gethookcount(co);
    if (hook == (hooked ? counting_hook : NULL)) /* else armed again, by a tick since */
      CHECK(mask == (hooked ? LUA_MASKCOUNT : 0) && (!hooked || count == 1234567));
    if (i >= 4) { /* the second sleeps through the end of the session */
      luapulse_profile_free(host_stop(L));
      CHECK(lua_gethook(L) == (hooked ? counting_hook : NULL));
      lua_getglobal(kept, "endless");
      CHECK(lv_resume(kept, L, 0, &results) == LUA_YIELD);
      CHECK(lua_gethook(kept) == (hooked ? counting_hook : NULL));
      CHECK(lua_gethookmask(kept) == (hooked ? LUA_MASKCOUNT : 0));
      host_start_by(L, HOST_BY_HOOK);
    }
    lua_pop(L, 2);
  }
  lua_sethook(L, NULL, 0, 0);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Profiling is started on a coroutine, which yields, ends and is forgotten, while others run on. */
static void started_in_a_coroutine(const host_way_t *way) {
  lua_State *L = open_host();
  host_run(L, endless);
  int results, base = lua_gettop(L);
  lua_State *co = lua_newthread(L);
  lua_getglobal(co, "endless");
  CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
  lua_settop(co, 0);
  host_start_by(co, way);
  for (int i = 0; i < 20; i++) {
    CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
    lua_settop(co, 0);
    host_call(L, "burn", 0.002);
  }
  lua_settop(L, base); /* only the profiler holds it now */
  lua_gc(L, LUA_GCCOLLECT, 0);
  host_call(L, "burn", 0.05);
  host_call(L, "burn_in_coroutine", 0.05);
  luapulse_profile_free(host_stop(L));
  lua_gc(L, LUA_GCCOLLECT, 0);
  host_call(L, "burn", 0.01);
  CHECK(lua_gethook(L) == NULL);
  lua_close(L);
}

static void start_in_coroutine(void) {
  for (int i = 0; i < HOST_WAYS; i++) started_in_a_coroutine(&host_ways[i]);
}

/* -- calls without protection
 * ------------------------------------------------------------------------------------- */

static void unprotected_calls(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = open_host();
    host_start_by(L, &host_ways[i]);
    luapulse_status_t status;
    do {
      lua_getglobal(L, "burn");
      lua_pushnumber(L, (lua_Number)0.002);
      lua_call(L, 1, 0);
      lua_getglobal(L, "pcall");
      lua_getglobal(L, "error");
      lua_pushnil(L);
      lua_call(L, 2, 0);
      luapulse_get_status(L, &status);
    } while (status.samples < 20);
    const char *keys[] = {"a"}, *values[] = {"b"};
    CHECK(luapulse_labels(L, keys, values, 1, NULL) == 0);
    luapulse_profile_free(host_stop(L));
    lua_close(L);
  }
}

/* The interface is used from a stack that is nearly full, and from deep below. */
static int use_interface(lua_State *L) {
  const char *keys[] = {"a"}, *values[] = {"b"};
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  if (status.running) {
    luapulse_labels(L, keys, values, 1, NULL);
    luapulse_profile_free(luapulse_snapshot(L, NULL));
    luapulse_pause(L, NULL);
    luapulse_resume(L, NULL);
    luapulse_profile_free(luapulse_stop(L, NULL));
  } else {
    luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_INSTRUCTIONS);
    options.cpu_max_samples_per_sec = 100; /* stacks are deep here */
    luapulse_start(L, &options, NULL);
  }
  return 0;
}

static void deep_stacks(void) {
  lua_State *L = open_host();
  lua_pushcfunction(L, use_interface);
  lua_setglobal(L, "use");
  host_run(L,
           "local function down(n) if n == 0 then use() use() return 0 end return 1 + down(n - 1) end\n"
           "for _, n in ipairs{100, 5000, 15000} do assert(down(n) == n) end\n"
           "local function forever(n) if n % 5000 == 0 then use() end return 1 + forever(n + 1) end\n"
           "for i = 1, 2 do assert(not pcall(forever, 1)) end\n" /* to the overflow of the stack */
           "use()\n");
  while (lua_checkstack(L, 1) && lua_gettop(L) < 900000) lua_pushinteger(L, 1);
  use_interface(L);
  use_interface(L);
  lua_settop(L, 0);
  luapulse_profile_free(luapulse_stop(L, NULL));
  for (int i = 0; i < 2; i++) {
    host_start_by(L, &host_ways[i]);
    host_run(L,
             "local function forever(n) return 1 + forever(n + 1) end for i = 1, 3 do pcall(forever, 1) end");
    host_sample(L, 3);
    luapulse_profile_free(host_stop(L));
  }
  lua_close(L);
}

/* Given coroutines that C code resumes, so that there is no Lua below them, when one of them resumes another that C code resumed before,
 * then it stands below that one. */
static void resumed_by_c_then_by_lua(void) {
  lua_State *L = open_host();
  host_run(L,
           "local function inside() while true do burn(0.004) coroutine.yield() end end\n"
           "local function through() while true do coroutine.resume(inner) coroutine.yield() end end\n"
           "inner, outer = coroutine.create(inside), coroutine.create(through)");
  lua_getglobal(L, "inner");
  lua_getglobal(L, "outer");
  lua_State *inner = lua_tothread(L, -2), *outer = lua_tothread(L, -1);
  host_start_by(L, HOST_BY_WALK);
  luapulse_status_t status;
  int results;
  for (uint64_t wanted = 60; wanted <= 120; wanted += 60) {
    do {
      lua_State *co = wanted == 60 ? inner : outer;
      CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
      lua_settop(co, 0);
      luapulse_get_status(L, &status);
    } while (status.samples < wanted);
  }
  luapulse_profile_t *profile = host_stop(L);
  int64_t all = host_sum(profile, 0, "inside", false), below = host_sum(profile, 0, "through", false);
  printf("%" PRId64 " samples, %" PRId64 " of them below the other coroutine\n", all, below);
  CHECK(all > 80 && below > 40 && below < 70);
  luapulse_profile_free(profile);
  lua_close(L);
}

static int resume_here(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  int results;
  CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
  lua_settop(co, 0);
  return 0;
}

/* The names from `name` down to the root, with " < " between; "" when it is not on the stack. */
static const char *path_from(const profile_t *p, uint32_t stack, const char *name) {
  static char path[512];
  path[0] = '\0';
  for (; stack != 0; stack = p->stacks[stack].parent) {
    const profile_frame_t *frame = &p->frames[p->stacks[stack].frame];
    const char *text = profile_text(p, p->functions[frame->function].name).data;
    size_t len = strlen(path);
    if (len > 0)
      snprintf(path + len, sizeof path - len, " < %s", text);
    else if (strcmp(text, name) == 0)
      snprintf(path, sizeof path, "%s", text);
  }
  return path;
}

/* Given a coroutine that was under way before start, when a C function that Lua calls resumes it, then its stack goes on below with that
 * function, and who called it, down to the end. */
static void resumed_by_a_c_function(void) {
  lua_State *L = open_host();
  lua_pushcfunction(L, resume_here);
  lua_setglobal(L, "resume_here");
  host_run(L,
           "local function worker() while true do coroutine.yield() burn(0.004) end end\n"
           "local co, resume = coroutine.create(worker), resume_here\n"
           "resume(co)\n"
           "function outer() local done = resume(co) return done end");
  host_start_by(L, HOST_BY_WALK);
  luapulse_status_t status;
  do {
    host_call(L, "outer", 0);
    luapulse_get_status(L, &status);
  } while (status.samples < 60);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(host_sum(profile, 0, "burn", false) > 50);
  for (size_t i = 0; i < profile->sample_count; i++) {
    const char *path = path_from(profile, profile->samples[i].stack, "burn");
    if (path[0] != '\0' && strcmp(path, "burn < worker < resume_here < outer") != 0) FAIL("%s", path);
  }
  luapulse_profile_free(profile);
  lua_close(L);
}

static const host_test_t tests[] = {
    {"mostly_in_c", mostly_in_c},
    {"resumed_by_c_then_by_lua", resumed_by_c_then_by_lua},
    {"resumed_by_a_c_function", resumed_by_a_c_function},
    {"c_function_called_by_lua", c_function_called_by_lua},
    {"host_resumes_cpu", host_resumes_cpu},
    {"host_resumes_instructions", host_resumes_instructions},
    {"coroutine_made_while_armed", coroutine_made_while_armed},
    {"start_in_coroutine", start_in_coroutine},
    {"unprotected_calls", unprotected_calls},
    {"deep_stacks", deep_stacks},
};

HOST_MAIN(tests)
