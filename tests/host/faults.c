/* SPDX-License-Identifier: MIT */
/* Memory, mappings, timers and keys that run out at every possible moment: the call says so, the host goes on,
 * and a later call works. */
#include <pthread.h>
#include <sys/resource.h>

#include "format/format.h"
#include "host.h"
#include "profile/mem.h"

/* -- failing allocations
 * -------------------------------------------------------------------------------------------- */

static struct {
  bool on;       /* count and fail only while the profiler is at work */
  bool for_good; /* also every one after */
  long left;     /* allocations until the one that fails */
  long refused;
} faults;

static bool refuse(void) {
  if (!faults.on || (faults.left-- > 0) || (faults.refused > 0 && !faults.for_good)) return false;
  faults.refused++;
  return true;
}

static void faults_begin(long n, bool for_good) {
  faults.on = true;
  faults.for_good = for_good;
  faults.left = n;
  faults.refused = 0;
}

/* -- the profiler's own heap
 * ------------------------------------------------------------------------------------------ */

static void *failing_realloc(void *old, size_t size) {
  return refuse() ? NULL : realloc(old, size);
}

/* A step of the profiler that failed must say why. */
static bool step(bool ok, luapulse_error_t *error, const char *what) {
  if (!ok && error->text[0] == '\0') FAIL("%s failed without a word", what);
  error->text[0] = '\0';
  return ok;
}

static bool write_everything(const luapulse_profile_t *profile, luapulse_error_t *error) {
  bool ok = true;
  for (const format_t *format = formats; format->name != NULL; format++) {
    sink_t *sink = sink_to_memory();
    if (sink == NULL) {
      ok = false;
      continue;
    }
    size_t len;
    format->write(profile, sink);
    ok = sink_memory(sink, &len) != NULL && ok;
    sink_close(sink, NULL);
  }
  const char *path = host_path("profile.folded");
  unlink(path);
  bool written = step(luapulse_profile_write(profile, path, NULL, error) == 0, error, "write");
  CHECK(written == (access(path, F_OK) == 0)); /* whole or not there at all */
  return ok && written;
}

/* The life of a profile. True when every step succeeded. */
static bool profile_once(lua_State *L) {
  const char *keys[] = {"request"}, *values[] = {"checkout"};
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_INSTRUCTIONS);
  options.cpu_sample_mean_instr = 500;
  options.max_memory_bytes = 1 << 20;
  if (!step(luapulse_start(L, &options, &error) == 0, &error, "start")) {
    host_check_untouched(L);
    return false;
  }
  host_call(L, "work", 1000);
  bool ok = step(luapulse_labels(L, keys, values, 1, &error) == 0, &error, "labels");
  host_call(L, "work", 1000);
  luapulse_profile_t *snapshot = luapulse_snapshot(L, &error);
  ok = step(snapshot != NULL, &error, "snapshot") && ok;
  if (snapshot != NULL) ok = write_everything(snapshot, &error) && ok;
  luapulse_profile_free(snapshot);
  host_call(L, "work", 1000);
  luapulse_profile_t *profile = luapulse_stop(L, &error);
  ok = step(profile != NULL, &error, "stop") && ok;
  if (profile != NULL) ok = write_everything(profile, &error) && ok;
  luapulse_profile_free(profile);
  host_check_untouched(L);
  return ok;
}

/* Names from source files are looked up when a profile is made, for the snapshot and at stop; they are no part of what was
 * promised, so when memory is out there the profile does without (source.h). The look-up takes two lists; here it reads no
 * file, because all code comes from strings. */
enum { UNNOTICED = 2 * 2 };

static void fail_each_of_ours(bool for_good) {
  lua_State *L = host_open();
  host_run(L, host_keep_library);
  mem_realloc = failing_realloc;
  int unnoticed = 0;
  for (long n = 0;; n++) {
    faults_begin(n, for_good);
    bool ok = profile_once(L);
    faults.on = false;
    if (faults.refused == 0) {
      CHECK(ok && n > 50);
      break;
    }
    if (ok && (for_good || ++unnoticed > UNNOTICED)) FAIL("allocation %ld failed and nobody noticed", n);
  }
  mem_realloc = realloc;
  lua_close(L);
}

static void own_heap_once(void) {
  fail_each_of_ours(false);
}

static void own_heap_for_good(void) {
  fail_each_of_ours(true);
}

/* The start of the walker: each allocation that fails makes it fail in words, or fall back and say why. */
static void own_heap_of_the_walker(void) {
  lua_State *L = host_open();
  host_run(L, host_keep_library);
  mem_realloc = failing_realloc;
  for (int asked = 0; asked < 2; asked++)
    for (long n = 0;; n++) {
      luapulse_error_t error = {""};
      luapulse_status_t status;
      luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
      options.cpu_engine = asked ? LUAPULSE_ENGINE_WALK : LUAPULSE_ENGINE_AUTO;
      faults_begin(n, false);
      bool ok = step(luapulse_start(L, &options, &error) == 0, &error, "start");
      faults.on = false;
      luapulse_get_status(L, &status);
      if (ok) {
        bool walks = strcmp(status.engine, "walk") == 0;
        CHECK(walks || (!asked && strcmp(status.note, "out of memory") == 0));
        CHECK(!walks || faults.refused == 0);
        host_sample(L, 3);
        luapulse_profile_free(host_stop(L));
      }
      CHECK(!status.running == !ok);
      host_check_untouched(L);
      if (faults.refused == 0) {
        CHECK(ok && n > 0);
        break;
      }
    }
  mem_realloc = realloc;
  lua_close(L);
}

/* -- Lua's allocator
 * ------------------------------------------------------------------------------------------------- */

static void *lua_allocator(void *context, void *block, size_t old, size_t size) {
  (void)context;
  if (size == 0) {
    free(block);
    return NULL;
  }
  if ((block == NULL || size > old) && refuse()) return NULL; /* shrinking never fails */
  return realloc(block, size);
}

static lua_State *open_with_allocator(void) {
  faults.on = false;
  lua_State *L = host_prepare(host_new_state(lua_allocator, NULL));
  host_run(L, host_keep_library);
  return L;
}

/* Runs `call` with its n-th allocation failing, for n = 0, 1, … until none fails; `undo` brings the VM back to
 * where it can be called again. */
static void fail_each_of_luas(bool (*call)(lua_State *L), void (*before)(lua_State *L),
                              void (*after)(lua_State *L, bool ok)) {
  for (int for_good = 0; for_good < 2; for_good++)
    for (long n = 0;; n++) {
      lua_State *L = open_with_allocator();
      before(L);
      int top = lua_gettop(L);
      faults_begin(n, for_good != 0);
      bool ok = call(L);
      faults.on = false;
      CHECK(lua_gettop(L) == top);
      after(L, ok);
      lua_close(L);
      if (faults.refused == 0) {
        CHECK(ok);
        break;
      }
    }
}

static const host_way_t *way_under_test;

static bool call_start(lua_State *L) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_way_options(way_under_test);
  return step(luapulse_start(L, &options, &error) == 0, &error, "start");
}

static bool call_labels(lua_State *L) {
  const char *keys[] = {"request"}, *values[] = {"checkout"};
  luapulse_error_t error = {""};
  return step(luapulse_labels(L, keys, values, 1, &error) == 0, &error, "labels");
}

static bool call_stop(lua_State *L) {
  luapulse_error_t error = {""};
  luapulse_profile_t *profile = luapulse_stop(L, &error);
  bool ok = step(profile != NULL, &error, "stop");
  luapulse_profile_free(profile);
  return ok;
}

static void nothing(lua_State *L) {
  (void)L;
}

static void start_it(lua_State *L) {
  CHECK(call_start(L));
  host_call(L, "burn", 0.001);
}

/* Where protected calls take memory themselves: what cannot be put back while there is none is put back by the
 * next stop. */
static bool is_51(void) {
  return strcmp(lv_name, "Lua 5.1") == 0;
}

static void works_after_start(lua_State *L, bool ok) {
  if (!ok) {
    if (!is_51()) host_check_untouched(L);
    lua_gc(L, LUA_GCCOLLECT, 0); /* what the failed start left is collected, and takes nothing with it … */
    CHECK(call_start(L));
    lua_gc(L, LUA_GCCOLLECT, 0); /* … not then either */
  }
  host_call(L, "burn", 0.001);
  host_call(L, "burn_in_coroutine", 0.001);
  CHECK(call_stop(L));
  host_check_untouched(L);
}

static void still_runs(lua_State *L, bool ok) {
  (void)ok;
  host_call(L, "burn", 0.001);
  CHECK(call_stop(L));
  host_check_untouched(L);
}

static void can_start_again(lua_State *L, bool ok) {
  CHECK(ok || is_51()); /* stop needs nothing of Lua's heap */
  if (!ok) CHECK(call_stop(L));
  if (!is_51()) host_check_untouched(L);
  CHECK(call_start(L));
  CHECK(call_stop(L));
  host_check_untouched(L);
}

static void lua_heap_c_interface(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    way_under_test = &host_ways[i];
    fail_each_of_luas(call_start, nothing, works_after_start);
    fail_each_of_luas(call_labels, start_it, still_runs);
    fail_each_of_luas(call_stop, start_it, can_start_again);
  }
}

/* The module's functions: a failure is a Lua error. The function to call is made before memory runs out. */
static bool call_prepared(lua_State *L) {
  lua_pushvalue(L, -1);
  bool ok = lua_pcall(L, 0, 0, 0) == 0;
  if (!ok) {
    const char *message = lua_tostring(L, -1);
    if (message == NULL || message[0] == '\0') FAIL("an error without words");
    lua_pop(L, 1);
  }
  return ok;
}

static void push_function(lua_State *L, const char *code) {
  if (luaL_loadstring(L, code) != 0) FAIL("%s", lua_tostring(L, -1));
}

static const char PULSE_OPTIONS[] =
    "{cpu_clock = 'instructions', cpu_sample_mean_instr = 500, cpu_max_samples_per_sec = 0}";

static void prepare_module(lua_State *L) {
  char code[256];
  lua_pushcfunction(L, luaopen_luapulse);
  lua_call(L, 0, 1);
  lua_setglobal(L, "pulse");
  snprintf(code, sizeof code, "function go() pulse.start%s end", PULSE_OPTIONS);
  host_run(L, code);
}

static void prepare_profile(lua_State *L) {
  prepare_module(L);
  host_run(L, "go() work(3000) profile = pulse.stop()");
}

static const char *function_under_test;

static void before_open(lua_State *L) {
  lua_pushcfunction(L, luaopen_luapulse);
}

static void after_open(lua_State *L, bool ok) {
  (void)ok;
  prepare_profile(L);
  host_run(L, "assert(profile:folded():find('work', 1, true))");
}

static void before_session(lua_State *L) {
  prepare_module(L);
  push_function(L, function_under_test);
}

static void before_running(lua_State *L) {
  prepare_module(L);
  host_run(L, "go() work(1000)");
  push_function(L, function_under_test);
}

static void after_session(lua_State *L, bool ok) {
  (void)ok;
  host_run(L,
           "if not pulse.status().running then go() end\n"
           "work(1000)\n"
           "local profile = pulse.stop()\n"
           "assert(profile:folded():find('work', 1, true))\n");
  host_check_untouched(L);
}

static void before_profile(lua_State *L) {
  prepare_profile(L);
  push_function(L, function_under_test);
}

static void after_profile(lua_State *L, bool ok) {
  (void)ok;
  host_run(L, "assert(#profile:samples() > 0 and #profile:top() > 0 and profile:stats().stacks > 0)");
}

static void lua_heap_module(void) {
  static const char *const running[] = {"pulse.labels{a = 1, b = 'c', d = true}", "return pulse.status()",
                                        "return pulse.snapshot()", "return pulse.stop()",
                                        "pulse.pause() pulse.resume()"};
  static const char *const finished[] = {"return tostring(profile)",       "return profile:top(5)",
                                         "return tostring(profile:top())", "return profile:folded()",
                                         "return profile:samples()",       "return profile:stats()"};
  fail_each_of_luas(call_prepared, before_open, after_open);
  function_under_test = "go()";
  fail_each_of_luas(call_prepared, before_session, after_session);
  for (size_t i = 0; i < sizeof running / sizeof running[0]; i++) {
    function_under_test = running[i];
    fail_each_of_luas(call_prepared, before_running, after_session);
  }
  for (size_t i = 0; i < sizeof finished / sizeof finished[0]; i++) {
    function_under_test = finished[i];
    fail_each_of_luas(call_prepared, before_profile, after_profile);
  }
}

/* -- what the system refuses
 * ----------------------------------------------------------------------------------------- */

static void no_address_space(void) {
  lua_State *L = host_open();
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  host_run(L, host_keep_library);
  options.max_memory_bytes = (size_t)1 << 60;
  CHECK(luapulse_start(L, &options, &error) == -1);
  CHECK_WORDS(error, "max_memory_bytes");
  host_check_untouched(L);
  if (!SANITIZED_ADDRESS) { /* the sanitizer itself needs address space */
    struct rlimit old, none;
    CHECK(getrlimit(RLIMIT_AS, &old) == 0);
    none = old;
    none.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    options = host_options(LUAPULSE_CLOCK_CPU);
    int result = luapulse_start(L, &options, &error);
    CHECK(setrlimit(RLIMIT_AS, &old) == 0);
    CHECK(result == -1);
    CHECK_WORDS(error, "no memory");
    host_check_untouched(L);
  }
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static int count_handlers(void) {
  int count = 0;
  for (int number = 1; number < NSIG; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) count++;
  }
  return count;
}

/* A timer takes a place in the queue of pending signals, which may be allowed none. */
static void no_timer(void) {
  lua_State *L = host_open();
  luapulse_error_t error = {""};
  struct rlimit old, none;
  int handlers = count_handlers();
  host_run(L, host_keep_library);
  CHECK(getrlimit(RLIMIT_SIGPENDING, &old) == 0);
  none = old;
  none.rlim_cur = 0;
  CHECK(setrlimit(RLIMIT_SIGPENDING, &none) == 0);
  int result = luapulse_start(L, NULL, &error);
  CHECK(setrlimit(RLIMIT_SIGPENDING, &old) == 0);
  if (result == 0) { /* some kernels and sandboxes do not count them */
    luapulse_profile_free(host_stop(L));
  } else {
    CHECK_WORDS(error, "timer");
    CHECK_WORDS(error, "instructions");
  }
  host_check_untouched(L);
  CHECK(count_handlers() == handlers);
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* A host that has used up the thread-specific keys keeps the values of all of them. */
static void no_thread_key(void) {
  enum { MAX_KEYS = 2048 };
  static pthread_key_t keys[MAX_KEYS];
  int count = 0;
  while (count < MAX_KEYS && pthread_key_create(&keys[count], NULL) == 0) count++;
  for (int i = 0; i < count; i++) CHECK(pthread_setspecific(keys[i], &keys[i]) == 0);
  lua_State *L = host_open();
  luapulse_error_t error = {""};
  CHECK(luapulse_start(L, NULL, &error) == -1);
  CHECK_WORDS(error, "instructions");
  for (int i = 0; i < count; i++) CHECK(pthread_getspecific(keys[i]) == &keys[i]);
  host_start(L, LUAPULSE_CLOCK_INSTRUCTIONS); /* as the message advised */
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static void ignore(int number) {
  (void)number;
}

static void no_signal(void) {
  lua_State *L = host_open();
  luapulse_error_t error = {""};
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++) signal(number, ignore);
  CHECK(luapulse_start(L, NULL, &error) == -1);
  CHECK_WORDS(error, "signal");
  CHECK_WORDS(error, "instructions");
  signal(SIGRTMIN + 3, SIG_DFL);
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
    CHECK(signal(number, SIG_DFL) == (number == SIGRTMIN + 3 ? SIG_DFL : ignore));
  lua_close(L);
}

static const host_test_t tests[] = {
    {"own_heap_once", own_heap_once},
    {"own_heap_for_good", own_heap_for_good},
    {"own_heap_of_the_walker", own_heap_of_the_walker},
    {"lua_heap_c_interface", lua_heap_c_interface},
    {"lua_heap_module", lua_heap_module},
    {"no_address_space", no_address_space},
    {"no_timer", no_timer},
    {"no_thread_key", no_thread_key},
    {"no_signal", no_signal},
};

HOST_MAIN(tests)
