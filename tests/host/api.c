/* SPDX-License-Identifier: MIT */
/* Every function of include/luapulse.h, as a C host uses it: what it does, what it says when it cannot. */
#include <fcntl.h>
#include <sys/stat.h>

#include "host.h"

static void version_and_defaults(void) {
  luapulse_profile_options_t options;
  memset(&options, 0xa5, sizeof options);
  luapulse_options_init(&options);
  CHECK(strchr(luapulse_version(), '.') != NULL);
  CHECK(options.features == LUAPULSE_FEATURE_CPU);
  CHECK(options.cpu_mode == LUAPULSE_COLLECTION_SAMPLING);
  CHECK(options.heap_mode == LUAPULSE_COLLECTION_SAMPLING);
  CHECK(options.cpu_clock == LUAPULSE_CLOCK_CPU);
  CHECK(options.cpu_engine == LUAPULSE_ENGINE_AUTO);
  CHECK(options.layout_file == NULL);
  CHECK(options.cpu_hz == 100);
  CHECK(options.cpu_sample_mean_instr == 20000);
  CHECK(options.cpu_max_samples_per_sec == 200);
  CHECK(options.heap_sample_mean_bytes == 524288);
  CHECK(options.max_memory_bytes == 32u << 20);
  CHECK(options.max_process_memory_bytes == 64u << 20);
  CHECK(options.seed == 0);
}

/* What ticks, at which rate, and why the walker does not serve if it does not. */
static void check_clock(const luapulse_status_t *status, const host_way_t *way) {
  bool ticks = way->clock == LUAPULSE_CLOCK_CPU, perf = strcmp(status->source, "perf") == 0;
  CHECK(strcmp(status->note, "") == 0);
  CHECK(perf || strcmp(status->source, ticks ? "timer" : "") == 0);
  if (!ticks) CHECK(status->rate == 0);
  if (perf) CHECK(status->rate == 1000);
  if (ticks && !perf) CHECK(status->rate > 0 && status->rate <= 1000);
}

static void start_run_stop(const host_way_t *way) {
  lua_State *L = host_open();
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  CHECK(!status.running && !status.paused && status.samples == 0 && status.rate == 0);
  CHECK(strcmp(status.engine, "") == 0 && strcmp(status.source, "") == 0 && strcmp(status.note, "") == 0);

  host_start_by(L, way);
  int top = lua_gettop(L);
  luapulse_get_status(L, &status);
  CHECK(status.running && !status.paused && strcmp(status.engine, way->engine) == 0);
  check_clock(&status, way);
  host_sample(L, 20);
  luapulse_get_status(L, &status);
  CHECK(status.memory_bytes > 0);
  uint64_t rejects = 0;
  for (unsigned i = 0; i < LUAPULSE_REASONS; i++) {
    rejects += status.rejects[i];
    if (luapulse_reason_name(i) == NULL) CHECK(status.rejects[i] == 0);
  }
  CHECK(way == HOST_BY_WALK ? rejects == status.lost_unattributed : rejects == 0);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(lua_gettop(L) == top);

  CHECK(host_total(profile, 0) >= 20);
  CHECK(host_total(profile, 1) > host_total(profile, 0));
  CHECK(host_sum(profile, 1, "burn", false) > 0);
  luapulse_get_status(L, &status);
  CHECK(!status.running && strcmp(status.engine, "") == 0);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void cpu_clock(void) {
  start_run_stop(HOST_BY_WALK);
  start_run_stop(HOST_BY_HOOK);
}

static void instructions_clock(void) {
  start_run_stop(HOST_BY_COUNT);
}

/* Reasons have words up to the last, and no more than the status has room for. */
static void reasons_have_names(void) {
  unsigned count = 0;
  while (luapulse_reason_name(count) != NULL) {
    CHECK(luapulse_reason_name(count)[0] != '\0');
    for (unsigned i = 0; i < count; i++)
      CHECK(strcmp(luapulse_reason_name(i), luapulse_reason_name(count)) != 0);
    count++;
  }
  CHECK(count > 5 && count <= LUAPULSE_REASONS);
  CHECK(luapulse_reason_name(count + 1) == NULL && luapulse_reason_name(4294967295u) == NULL);
}

/* The walk is had when it is asked for by name, and what asks Lua likewise. */
static void engine_by_name(void) {
  lua_State *L = host_open();
  static const host_way_t walk = {LUAPULSE_CLOCK_CPU, LUAPULSE_ENGINE_WALK, "walk"};
  static const host_way_t both = {LUAPULSE_CLOCK_INSTRUCTIONS, LUAPULSE_ENGINE_WALK, "count"};
  const host_way_t *ways[] = {&walk, HOST_BY_HOOK, &both, &walk};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    host_start_by(L, ways[i]);
    host_sample(L, 3);
    luapulse_profile_free(host_stop(L));
  }
  lua_close(L);
}

static void options_may_be_null(void) {
  lua_State *L = host_open();
  CHECK(luapulse_start(L, NULL, NULL) == 0);
  host_sample(L, 3);
  luapulse_profile_t *profile = luapulse_stop(L, NULL);
  CHECK(profile != NULL && host_total(profile, 0) >= 3);
  luapulse_profile_free(profile);
  luapulse_profile_free(NULL);
  lua_close(L);
}

static void refused(lua_State *L, const luapulse_profile_options_t *options, const char *words) {
  luapulse_error_t error = {""};
  luapulse_status_t status;
  CHECK(luapulse_start(L, options, &error) == -1);
  CHECK_WORDS(error, words);
  CHECK(luapulse_start(L, options, NULL) == -1);
  luapulse_get_status(L, &status);
  CHECK(!status.running);
}

#define REFUSED(assignment, words)                                         \
  do {                                                                     \
    luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU); \
    options.assignment;                                                    \
    refused(L, &options, words);                                           \
  } while (0)

static void impossible_options(void) {
  lua_State *L = host_open();
  host_run(L, host_keep_library);
  REFUSED(features = 0, "nothing to profile");
  REFUSED(features = 64, "nothing to profile");
  REFUSED(heap_mode = (luapulse_collection_mode_t)7, "heap_mode 7 is not known");
  REFUSED(heap_gc = (luapulse_gc_t)7, "heap_gc 7 is not known");
  REFUSED(heap_gc = LUAPULSE_GC_FORCED, "gc is for the heap");
  REFUSED(heap_sample_mean_bytes = SIZE_MAX, "heap_sample_mean_bytes must be at most");
  REFUSED(cpu_mode = (luapulse_collection_mode_t)7, "cpu_mode");
  REFUSED(layout_file = "no/such.layout", "no/such.layout");
  REFUSED(layout_file = "/dev/null", "/dev/null");
  REFUSED(cpu_clock = (luapulse_clock_t)17, "17");
  REFUSED(cpu_hz = 0, "cpu_hz");
  REFUSED(cpu_hz = 10001, "10001");
  REFUSED(cpu_sample_mean_instr = 0, "cpu_sample_mean_instr");
  REFUSED(max_memory_bytes = 1, "max_memory_bytes");
  REFUSED(max_process_memory_bytes = 1, "max_process_memory_bytes");
  host_check_untouched(L);
  host_start(L, LUAPULSE_CLOCK_CPU);
  luapulse_profile_free(host_stop(L));
  host_check_untouched(L);
  lua_close(L);
}

static void second_start(void) {
  luapulse_error_t error = {""};
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  CHECK(luapulse_start(L, NULL, &error) == -1);
  CHECK_WORDS(error, "already");
  lua_State *co = lua_newthread(L);
  CHECK(luapulse_start(co, NULL, &error) == -1); /* a coroutine is the same VM */
  host_sample(L, 3);
  luapulse_profile_free(host_stop(co));
  lua_close(L);
}

static void not_running(void) {
  luapulse_error_t error;
  const char *keys[] = {"k"}, *values[] = {"v"};
  lua_State *L = host_open();
#define SAYS_START_FIRST(call)              \
  do {                                      \
    error.text[0] = '\0';                   \
    CHECK(call);                            \
    CHECK_WORDS(error, "call start first"); \
  } while (0)
  for (int round = 0; round < 2; round++) { /* never profiled, and not any more */
    SAYS_START_FIRST(luapulse_stop(L, &error) == NULL);
    SAYS_START_FIRST(luapulse_snapshot(L, &error) == NULL);
    SAYS_START_FIRST(luapulse_pause(L, &error) == -1);
    SAYS_START_FIRST(luapulse_resume(L, &error) == -1);
    SAYS_START_FIRST(luapulse_labels(L, keys, values, 1, &error) == -1);
    CHECK(luapulse_stop(L, NULL) == NULL && luapulse_snapshot(L, NULL) == NULL);
    CHECK(luapulse_pause(L, NULL) == -1 && luapulse_resume(L, NULL) == -1);
    CHECK(luapulse_labels(L, keys, values, 1, NULL) == -1);
    host_start(L, LUAPULSE_CLOCK_INSTRUCTIONS);
    luapulse_profile_free(host_stop(L));
  }
  lua_close(L);
}

static void snapshot_while_running(const host_way_t *way) {
  lua_State *L = host_open();
  int64_t before = 0;
  host_start_by(L, way);
  for (int i = 1; i <= 5; i++) {
    host_sample_more(L, 5);
    luapulse_profile_t *profile = luapulse_snapshot(L, NULL);
    CHECK(profile != NULL && host_total(profile, 0) >= i * 5 && host_total(profile, 0) >= before);
    before = host_total(profile, 0);
    luapulse_profile_free(profile);
  }
  luapulse_profile_t *profile = host_stop(L);
  CHECK(host_total(profile, 0) >= before);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void snapshots(void) {
  for (int i = 0; i < HOST_WAYS; i++) snapshot_while_running(&host_ways[i]);
}

static void pause_and_resume(const host_way_t *way) {
  lua_State *L = host_open();
  luapulse_status_t status;
  host_run(L, "function rest(seconds) return burn(seconds) end");
  host_start_by(L, way);
  host_sample(L, 5);
  CHECK(luapulse_pause(L, NULL) == 0 && luapulse_pause(L, NULL) == 0);
  luapulse_get_status(L, &status);
  CHECK(status.running && status.paused);
  uint64_t samples = status.samples;
  host_call(L, "rest", 0.1);
  luapulse_get_status(L, &status);
  CHECK(status.samples == samples);
  CHECK(luapulse_resume(L, NULL) == 0 && luapulse_resume(L, NULL) == 0);
  host_sample_more(L, 5);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(host_sum(profile, 0, "rest", false) == 0);
  luapulse_profile_free(profile);
  CHECK(lua_gethook(L) == NULL);
  lua_close(L);
}

static void pausing(void) {
  for (int i = 0; i < HOST_WAYS; i++) pause_and_resume(&host_ways[i]);
}

static int64_t labelled(const profile_t *p, const char *key, const char *value) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_label_set_t *set = &p->label_sets[p->samples[i].labels];
    for (uint32_t l = set->first; l < set->first + set->count; l++)
      if (strcmp(profile_text(p, p->labels[l].key).data, key) == 0 &&
          strcmp(profile_text(p, p->labels[l].str).data, value) == 0)
        sum += p->samples[i].values[0];
  }
  return sum;
}

static void labels_by(const host_way_t *way) {
  lua_State *L = host_open();
  luapulse_error_t error = {""};
  const char *keys[] = {"request", "tenant", "empty"}, *one[] = {"checkout", "a;b", ""},
             *two[] = {"search", "c\n"};
  host_start_by(L, way);
  host_sample_more(L, 20);
  CHECK(luapulse_labels(L, keys, one, 3, &error) == 0);
  host_sample_more(L, 20);
  CHECK(luapulse_labels(L, keys, two, 2, &error) == 0);
  host_sample_more(L, 20);
  CHECK(luapulse_labels(L, NULL, NULL, 0, &error) == 0);
  host_sample_more(L, 20);

  const char *many[40];
  for (int i = 0; i < 40; i++) many[i] = "x";
  CHECK(luapulse_labels(L, many, many, 40, &error) == -1);
  CHECK_WORDS(error, "at most");

  luapulse_profile_t *profile = host_stop(L);
  int64_t total = host_total(profile, 0), checkout = labelled(profile, "request", "checkout"),
          search = labelled(profile, "request", "search");
  CHECK(checkout >= 15 && labelled(profile, "tenant", "a;b") == checkout);
  CHECK(search >= 15 && labelled(profile, "tenant", "c\n") == search);
  CHECK(total - checkout - search >= 35); /* the first and the last quarter carry none */
  CHECK(labelled(profile, "empty", "") == 0);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void labels(void) {
  for (int i = 0; i < HOST_WAYS; i++) labels_by(&host_ways[i]);
}

static luapulse_profile_t *some_profile(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_INSTRUCTIONS);
  host_sample(L, 50);
  luapulse_profile_t *profile = host_stop(L);
  lua_close(L); /* a profile outlives its VM */
  return profile;
}

static void writing(void) {
  static const struct {
    const char *name, *format, *holds;
  } files[] = {
      {"a.pb.gz", NULL, "\x1f\x8b"}, {"a.folded", NULL, "burn"}, {"a.speedscope.json", NULL, "{"},
      {"a.callgrind", NULL, "fn"},   {"a.html", NULL, "<"},      {"a.txt", NULL, "flat"},
      {"b", "pprof", "\x1f\x8b"},    {"c", "folded", "burn"},    {"d", "speedscope", "{"},
      {"e", "callgrind", "fn"},      {"f.pb.gz", "html", "<"},   {"g", "text", "flat"},
  };
  luapulse_profile_t *profile = some_profile();
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    luapulse_error_t error = {""};
    struct stat status;
    const char *path = host_path(files[i].name);
    if (luapulse_profile_write(profile, path, files[i].format, &error) != 0) FAIL("%s", error.text);
    CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
    char *text = host_read(path);
    CHECK(text != NULL && strstr(text, files[i].holds) != NULL);
    free(text);
    CHECK(luapulse_profile_write(profile, path, files[i].format, NULL) == 0); /* over the old one */
  }
  luapulse_profile_free(profile);
}

static void writing_fails_in_words(void) {
  luapulse_profile_t *profile = some_profile();
  luapulse_error_t error = {""};
  CHECK(luapulse_profile_write(profile, host_path("x.unknown"), NULL, &error) == -1);
  CHECK_WORDS(error, "x.unknown");
  CHECK_WORDS(error, ".pb.gz");
  CHECK(access(host_path("x.unknown"), F_OK) != 0);
  CHECK(luapulse_profile_write(profile, host_path("x"), "bmp", &error) == -1);
  CHECK_WORDS(error, "bmp");
  CHECK(luapulse_profile_write(profile, host_path("no/such/dir.txt"), NULL, &error) == -1);
  CHECK_WORDS(error, "no/such/dir.txt");
  CHECK(luapulse_profile_write(profile, "/dev/null", "text", &error) == -1);
  CHECK_WORDS(error, "/dev/null");
  CHECK(luapulse_profile_write(profile, host_path("x.unknown"), NULL, NULL) == -1);
  CHECK(luapulse_profile_write(NULL, host_path("x.txt"), NULL, &error) ==
        -1); /* what a failed stop returned */
  CHECK_WORDS(error, "no profile");
  CHECK(access(host_path("x.txt"), F_OK) != 0);
  luapulse_profile_free(profile);
}

static void module_of_the_library(void) {
  lua_State *L = host_open();
  lua_pushcfunction(L, luaopen_luapulse);
  lua_call(L, 0, 1);
  lua_setglobal(L, "pulse");
  host_run(
      L,
      "pulse.start{cpu_clock = 'instructions', cpu_sample_mean_instr = 5000, cpu_max_samples_per_sec = 0}\n"
      "pulse.labels{a = 1}\n"
      "burn(0.05)\n"
      "assert(pulse.status().running and #pulse.snapshot():samples() > 0)\n"
      "profile = pulse.stop()\n"
      "assert(profile:folded():find('burn', 1, true) and tostring(profile:top(3)) and profile:stats())\n");
  lua_close(L);
}

/* A host that opened no library at all: there is nothing to replace and nowhere to look for names. */
static void host_without_libraries(const host_way_t *way) {
  lua_State *L = luaL_newstate();
  CHECK(L != NULL);
  host_start_by(L, way);
  luapulse_status_t status;
  do {
    host_run(L, "local function f(n) local a = 0 for i = 1, n do a = a + i end return a end f(100000)");
    luapulse_get_status(L, &status);
  } while (status.samples < 10);
  luapulse_profile_t *profile = luapulse_snapshot(L, NULL);
  CHECK(profile != NULL);
  luapulse_profile_free(profile);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static void no_libraries(void) {
  for (int i = 0; i < HOST_WAYS; i++) host_without_libraries(&host_ways[i]);
}

/* Programs that forbid undefined globals, even to be read. */
static void strict_globals(void) {
  lua_State *L = host_open();
  host_run(L,
           "setmetatable(_G, {__index = function(_, k) error('undefined ' .. tostring(k), 2) end,\n"
           "                  __newindex = function(_, k) error('undeclared ' .. tostring(k), 2) end})");
  for (int i = 0; i < HOST_WAYS; i++) {
    host_start_by(L, &host_ways[i]);
    host_sample(L, 3);
    luapulse_profile_free(host_stop(L));
  }
  lua_close(L);
}

static const host_test_t tests[] = {
    {"version_and_defaults", version_and_defaults},
    {"cpu_clock", cpu_clock},
    {"instructions_clock", instructions_clock},
    {"reasons_have_names", reasons_have_names},
    {"engine_by_name", engine_by_name},
    {"options_may_be_null", options_may_be_null},
    {"impossible_options", impossible_options},
    {"second_start", second_start},
    {"not_running", not_running},
    {"snapshots", snapshots},
    {"pausing", pausing},
    {"labels", labels},
    {"writing", writing},
    {"writing_fails_in_words", writing_fails_in_words},
    {"module_of_the_library", module_of_the_library},
    {"no_libraries", no_libraries},
    {"strict_globals", strict_globals},
};

HOST_MAIN(tests)
