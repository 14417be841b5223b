/* SPDX-License-Identifier: MIT */
/* Leaks: sessions are made up, collection by collection, and sampled as the agent samples. What leaks must be found, what does not must
 * not be reported. */
#include "profile/leak.h"

#include <math.h>

#include "unit.h"

#include "failing_memory.h"
#include "profile/heap_types.h"
#include "sample_profile.h"

enum { ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE, MIN_CYCLES = 4, BLOCK = 1000 };

typedef struct {
  profile_t *profile;
  int cycles;  /* of the session */
  double mean; /* bytes between samples; 0: every block is seen */
  unsigned seed;
} session_t;

static double chance(session_t *s) {
  return rand_r(&s->seed) / (RAND_MAX + 1.0);
}

static session_t session(int cycles, double mean, unsigned seed) {
  session_t s = {profile_new(), cycles, mean, seed * 7919 + 17};
  if (s.profile == NULL) return s;
  profile_add_type(s.profile, "alloc_objects", "count");
  profile_add_type(s.profile, "alloc_space", "bytes");
  profile_add_type(s.profile, "inuse_objects", "count");
  s.profile->default_type = profile_add_type(s.profile, "inuse_space", "bytes");
  s.profile->period = mean > 0 ? (int64_t)mean : 1;
  s.profile->period_type =
      (profile_type_t){profile_cstring(s.profile, "space"), profile_cstring(s.profile, "bytes")};
  return s;
}

static void tell_cycles(session_t *s, int cycles) {
  char text[64];
  snprintf(text, sizeof text, "heap_gc_cycles: %d", cycles);
  profile_add_comment(s->profile, profile_cstring(s->profile, text));
}

static uint32_t label_of_age(profile_t *p, int64_t cycles) {
  profile_label_t label = {profile_cstring(p, HEAP_SURVIVED), 0, 1, 0};
  while (2 * label.num <= cycles) label.num *= 2;
  return cycles > 0 ? profile_label_set(p, &label, 1) : 0;
}

/* `count` blocks, allocated by the path of letters after `born` collections; each is still there with that chance. */
static void blocks(session_t *s, const char *letters, int born, int count, double lives) {
  double seen = s->mean > 0 ? 1 - exp(-BLOCK / s->mean) : 1;
  int64_t objects = llround(1 / seen), bytes = llround(BLOCK / seen), born_seen = 0, live_seen = 0;
  for (int i = 0; i < count; i++) {
    if (chance(s) >= seen) continue;
    born_seen++;
    live_seen += lives >= 1 || chance(s) < lives;
  }
  uint32_t stack = sample_stack(s->profile, letters);
  profile_add(s->profile, stack, 0, (int64_t[]){born_seen * objects, born_seen * bytes, 0, 0});
  profile_add(s->profile, stack, label_of_age(s->profile, s->cycles - born),
              (int64_t[]){0, 0, live_seen * objects, live_seen * bytes});
}

/* -- what programs do ------------------------------------------------------------------------------------ */

typedef void program_t(session_t *s, const char *letters);

static void leak(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++) blocks(s, letters, born, 100, 1);
}

/* One in a hundred of what requests allocate stays; the rest is garbage soon, but not at once. */
static void slow_leak(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++)
    blocks(s, letters, born, 2000, s->cycles - born < 2 ? 0.3 : 0.01);
}

/* The collector waits until the heap has grown by a factor: of what leaks, each collection finds a tenth more. */
static void fast_leak(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++) blocks(s, letters, born, (int)(40 * pow(1.1, born)), 1);
}

/* It begins when the program has served a while. */
static void late_leak(session_t *s, const char *letters) {
  for (int born = s->cycles / 3; born <= s->cycles; born++) blocks(s, letters, born, 100, 1);
}

static void loaded_and_leak(session_t *s, const char *letters) {
  blocks(s, letters, 0, 20000, 1);
  leak(s, letters);
}

static void kept(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles / 20; born++) blocks(s, letters, born, 2000, 1);
}

/* Loading makes garbage too, at the end as well as at the start. */
static void kept_and_garbage(session_t *s, const char *letters) {
  kept(s, letters);
  blocks(s, letters, s->cycles - 1, 500, 0.3);
  blocks(s, letters, s->cycles, 500, 1);
}

static void loaded_twice(session_t *s, const char *letters) {
  blocks(s, letters, 0, 2000, 1);
  blocks(s, letters, s->cycles / 2, 2000, 1);
}

static void filled_up(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++) blocks(s, letters, born, 300, born < s->cycles * 0.4 ? 1 : 0);
}

static void cleared(session_t *s, const char *letters) {
  int every = s->cycles / 4, last = s->cycles - s->cycles / 5;
  for (int born = last - 3 * every; born <= s->cycles; born++)
    if (born >= 0) blocks(s, letters, born, 300, born >= last ? 1 : 0);
}

/* A cache that drops its oldest entries. */
static void turned_over(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++)
    blocks(s, letters, born, 300, s->cycles - born < s->cycles / 3 ? 1 : 0);
}

/* One that drops any of them: some live long, fewer the longer. */
static void decaying(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++)
    blocks(s, letters, born, 800, exp(-8.0 * (s->cycles - born) / s->cycles));
}

/* One that drops the least used, of which some are used all the time. */
static void decaying_with_a_core(session_t *s, const char *letters) {
  blocks(s, letters, 0, 20000, 1);
  decaying(s, letters);
}

static void loaded_late(session_t *s, const char *letters) {
  blocks(s, letters, (int)(s->cycles * 0.7), 5000, 1);
}

static void in_use(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++) blocks(s, letters, born, 300, born == s->cycles ? 1 : 0);
}

/* What a collection happened to find in use. */
static void just_survived(session_t *s, const char *letters) {
  for (int born = 0; born <= s->cycles; born++) blocks(s, letters, born, 300, s->cycles - born < 2 ? 0.5 : 0);
}

/* -- telling them apart ---------------------------------------------------------------------------------- */

static leaks_t *find(const session_t *s, leak_by_t by) {
  failure_t failure = {""};
  leaks_t *l = leak_find(s->profile, by, MIN_CYCLES, &failure);
  if (l == NULL) fail_msg("%s", failure.text);
  return l;
}

enum { SESSIONS = FEWER(100) };

/* How often in a hundred sessions it is said to grow. */
static int times_growing(program_t *program, int cycles, double mean) {
  int count = 0;
  for (unsigned seed = 0; seed < SESSIONS; seed++) {
    session_t s = session(cycles, mean, seed);
    tell_cycles(&s, cycles);
    program(&s, "x");
    leaks_t *l = find(&s, LEAK_BY_LINE);
    count += l->count > 0 && l->sites[0].verdict == LEAK_GROWING;
    leak_free(l);
    profile_free(s.profile);
  }
  return count;
}

/* A tenth of the sessions, as under sanitizers, says nothing of how often. */
static void check_times(int times, int least, int most) {
  if (SESSIONS == 100) assert_in_range(times, least, most);
}

static const int lengths[] = {16, 17, 24, 31, 33, 40, 63, 65, 100};
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static const double means[] = {0, 4096, 20000};
enum { MEANS = sizeof means / sizeof *means };

static void leaks_are_found(void **state) {
  (void)state;
  static program_t *const programs[] = {leak, slow_leak, fast_leak, late_leak, loaded_and_leak};
  for (size_t k = 0; k < sizeof programs / sizeof *programs; k++)
    for (size_t i = 0; i < LENGTHS; i++)
      for (size_t m = 0; m < MEANS; m++) {
        if (programs[k] == fast_leak && lengths[i] > 50) continue; /* a heap that grew by 10000 */
        /* with one sample in 20 blocks a band of age may be empty by chance: seen at most 6 times in 100 */
        check_times(times_growing(programs[k], lengths[i], means[m]), means[m] < 5000 ? 100 : 90, 100);
      }
}

static void few_samples_are_enough(void **state) {
  (void)state;
  /* a leak of 100 kB a collection, one sample in 512 kB: 13 samples in 64 collections, 20 in 100 */
  check_times(times_growing(leak, 64, 524288), 80, 100);
  check_times(times_growing(leak, 100, 524288), 90, 100);
}

static void what_is_no_leak_is_not_reported(void **state) {
  (void)state;
  static program_t *const programs[] = {kept,   kept_and_garbage, loaded_twice, filled_up,   cleared,
                                        in_use, turned_over,      decaying,     loaded_late, just_survived};
  for (size_t k = 0; k < sizeof programs / sizeof *programs; k++)
    for (size_t i = 0; i < LENGTHS; i++)
      for (size_t m = 0; m < MEANS; m++)
        check_times(times_growing(programs[k], lengths[i], means[m]), 0, means[m] < 5000 ? 0 : 2);
}

/* The hardest to tell: something of all ages is there, but the middle ages get fewer. With few samples that may not show. */
static void a_cache_with_a_core_is_mostly_not_reported(void **state) {
  (void)state;
  for (size_t i = 0; i < LENGTHS; i++)
    for (size_t m = 0; m < MEANS; m++)
      check_times(times_growing(decaying_with_a_core, lengths[i], means[m]), 0, means[m] < 5000 ? 2 : 15);
}

static void verdicts_and_totals(void **state) {
  (void)state;
  session_t s = session(40, 0, 1);
  tell_cycles(&s, 40);
  in_use(&s, "n");
  turned_over(&s, "t");
  kept(&s, "k");
  leak(&s, "l");
  loaded_and_leak(&s, "m");
  leaks_t *l = find(&s, LEAK_BY_LINE);
  static const char order[] = "mlktn";
  static const leak_verdict_t verdicts[] = {LEAK_GROWING, LEAK_GROWING, LEAK_KEPT, LEAK_RECENT, LEAK_NEW};
  assert_int_equal(l->count, 5);
  for (size_t i = 0; i < 5; i++) {
    uint32_t name = s.profile->functions[s.profile->frames[l->sites[i].leaf].function].name;
    assert_int_equal(profile_text(s.profile, name).data[0], order[i]);
    assert_int_equal(l->sites[i].verdict, verdicts[i]);
  }
  assert_int_equal(l->cycles, 40);
  assert_true(l->cycles_told);
  assert_int_equal(l->classes, 7); /* 0 1 2 4 8 16 32 */
  const leak_site_t *leaking = &l->sites[1];
  assert_int_equal(leaking->live, 41 * 100 * BLOCK);
  assert_int_equal(leaking->live_objects, 41 * 100);
  assert_int_equal(leaking->survived, 40 * 100 * BLOCK);
  assert_int_equal(leaking->allocated, 41 * 100 * BLOCK);
  assert_int_equal(leaking->bytes[0], 100 * BLOCK);
  assert_int_equal(leaking->bytes[3], 400 * BLOCK);
  assert_int_equal(leak_class_age(leaking->oldest), 32);
  int64_t live = 0;
  for (size_t i = 0; i < l->count; i++) live += l->sites[i].live;
  assert_int_equal(l->live, live);
  leak_free(l);
  profile_free(s.profile);
}

/* -- sites ----------------------------------------------------------------------------------------------- */

static uint32_t below(profile_t *p, uint32_t stack, const char *name, const char *file, int64_t line) {
  return profile_stack(p, stack, sample_frame(p, name, file, 1, line));
}

static void survivor(profile_t *p, uint32_t stack, int64_t cycles, int64_t bytes) {
  profile_add(p, stack, label_of_age(p, cycles), (int64_t[]){1, bytes, 1, bytes});
}

static void a_c_function_stands_with_the_line_that_called_it(void **state) {
  (void)state;
  session_t s = session(8, 0, 1);
  profile_t *p = s.profile;
  uint32_t chunk = below(p, 0, "main chunk", "a.lua", 9), work = below(p, chunk, "work", "a.lua", 3);
  survivor(p, below(p, work, "string.rep", "[C]", 0), 8, 10);
  survivor(p, below(p, below(p, work, "pcall", "[C]", 0), "string.rep", "[C]", 0), 8, 100);
  survivor(p, below(p, chunk, "string.rep", "[C]", 0), 8, 1);
  survivor(p, below(p, 0, "string.rep", "[C]", 0), 8, 2);
  survivor(p, 0, 8, 3);
  leaks_t *l = find(&s, LEAK_BY_LINE);
  assert_int_equal(l->count, 4);
  assert_int_equal(l->sites[0].live, 110);
  assert_int_equal(p->frames[l->sites[0].lua].line, 3);
  assert_int_equal(p->stacks[p->stacks[l->sites[0].path].parent].parent,
                   work);                           /* by way of pcall: the heavier path */
  assert_int_equal(l->sites[1].leaf, PROFILE_NONE); /* without a stack */
  assert_int_equal(l->sites[2].lua, PROFILE_NONE);
  assert_int_equal(p->frames[l->sites[3].lua].line, 9);
  leak_free(l);
  profile_free(p);
}

static void lines_or_paths(void **state) {
  (void)state;
  session_t s = session(8, 0, 1);
  profile_t *p = s.profile;
  uint32_t a = below(p, 0, "a", "a.lua", 1), b = below(p, 0, "b", "a.lua", 2);
  survivor(p, below(p, a, "f", "a.lua", 5), 8, 10);
  survivor(p, below(p, b, "f", "a.lua", 5), 8, 20);
  survivor(p, below(p, b, "f", "a.lua", 6), 8, 5);
  leaks_t *lines = find(&s, LEAK_BY_LINE), *paths = find(&s, LEAK_BY_PATH);
  assert_int_equal(lines->count, 2);
  assert_int_equal(lines->sites[0].live, 30);
  assert_int_equal(p->stacks[lines->sites[0].path].parent, b);
  assert_int_equal(lines->sites[1].live, 5);
  assert_int_equal(paths->count, 3);
  assert_int_equal(paths->sites[0].live, 20);
  leak_free(lines);
  leak_free(paths);
  profile_free(p);
}

/* -- what a profile may lack ----------------------------------------------------------------------------- */

static void without_comments_the_oldest_tells_the_age(void **state) {
  (void)state;
  session_t s = session(40, 0, 1);
  leak(&s, "l");
  cleared(&s, "c");
  kept(&s, "k");
  leaks_t *l = find(&s, LEAK_BY_LINE);
  assert_int_equal(l->cycles, 32);
  assert_false(l->cycles_told);
  assert_int_equal(l->sites[0].verdict, LEAK_GROWING);
  assert_int_equal(l->sites[1].verdict, LEAK_KEPT);
  assert_int_equal(l->sites[2].verdict, LEAK_RECENT);
  leak_free(l);
  tell_cycles(&s, 1); /* which cannot be */
  l = find(&s, LEAK_BY_LINE);
  assert_int_equal(l->cycles, 32);
  assert_int_equal(l->sites[0].verdict, LEAK_GROWING);
  leak_free(l);
  profile_free(s.profile);
}

static void cpu_types_before_and_no_numbers_of_objects(void **state) {
  (void)state;
  profile_t *p = sample_types();
  profile_add_type(p, "inuse_space", "bytes");
  p->period = 10000000; /* of cpu */
  p->period_type = p->types[1];
  for (int age = 0; age <= 20; age++)
    profile_add(p, sample_stack(p, "ml"), label_of_age(p, age), (int64_t[]){0, 0, 1000});
  profile_add(p, sample_stack(p, "mc"), 0, (int64_t[]){5, 50, 0});
  leaks_t *l = leak_find(p, LEAK_BY_LINE, MIN_CYCLES, NULL);
  assert_int_equal(l->count, 1);
  assert_int_equal(l->sites[0].verdict, LEAK_GROWING);
  assert_false(l->has_objects);
  leak_free(l);
  profile_free(p);
}

static void refuses(const profile_t *p, const char *why) {
  failure_t failure = {""};
  assert_null(leak_find(p, LEAK_BY_LINE, MIN_CYCLES, &failure));
  assert_string_equal(failure.text, why);
}

static void what_is_missing_is_told(void **state) {
  (void)state;
  profile_t *cpu = sample_full();
  refuses(cpu, "it has no sample type inuse_space, so it is no heap profile; it has: samples, cpu");
  profile_free(cpu);
  session_t s = session(0, 0, 1);
  in_use(&s, "n");
  refuses(s.profile,
          "no sample has the label gc_cycles_survived, and no comment tells heap_gc_cycles: it does not tell "
          "which live "
          "blocks survived collections");
  tell_cycles(&s, 1);
  refuses(s.profile, "it saw 1 collection while profiling, too few to tell what survives: 4 are needed");
  profile_free(s.profile);
  s = session(30, 0, 1);
  tell_cycles(&s, 30);
  in_use(&s, "n"); /* of all that, nothing has survived: that is told as it is */
  leaks_t *l = find(&s, LEAK_BY_LINE);
  assert_int_equal(l->count, 1);
  assert_int_equal(l->sites[0].verdict, LEAK_NEW);
  assert_int_equal(l->survived, 0);
  leak_free(l);
  profile_free(s.profile);
}

static void hostile_numbers_do_no_harm(void **state) {
  (void)state;
  static const int64_t numbers[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, 3, INT64_MAX - 1, INT64_MAX};
  enum { NUMBERS = sizeof numbers / sizeof *numbers };
  session_t s = session(8, 0, 1);
  for (size_t i = 0; i < NUMBERS; i++)
    for (size_t k = 0; k < NUMBERS; k++) {
      profile_label_t label = {profile_cstring(s.profile, HEAP_SURVIVED), 0, numbers[i], 0};
      uint32_t set = profile_label_set(s.profile, &label, 1);
      int64_t values[] = {numbers[k], numbers[(k + 3) % NUMBERS], numbers[(k + 5) % NUMBERS], numbers[k]};
      profile_add(s.profile, sample_stack(s.profile, k % 2 == 0 ? "a" : "b"), set, values);
    }
  s.profile->period = INT64_MIN;
  leak_free(find(&s, LEAK_BY_LINE));
  profile_add_comment(s.profile, profile_cstring(s.profile, "heap_gc_cycles: 9223372036854775807"));
  leak_free(find(&s, LEAK_BY_PATH));
  profile_free(s.profile);
}

static bool find_succeeds(void *context) {
  leaks_t *l = leak_find(context, LEAK_BY_LINE, MIN_CYCLES, NULL);
  leak_free(l);
  return l != NULL;
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  session_t s = session(20, 0, 1);
  leak(&s, "ml");
  kept(&s, "mk");
  fail_each_allocation(find_succeeds, s.profile);
  profile_free(s.profile);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(leaks_are_found),
    cmocka_unit_test(few_samples_are_enough),
    cmocka_unit_test(what_is_no_leak_is_not_reported),
    cmocka_unit_test(a_cache_with_a_core_is_mostly_not_reported),
    cmocka_unit_test(verdicts_and_totals),
    cmocka_unit_test(a_c_function_stands_with_the_line_that_called_it),
    cmocka_unit_test(lines_or_paths),
    cmocka_unit_test(without_comments_the_oldest_tells_the_age),
    cmocka_unit_test(cpu_types_before_and_no_numbers_of_objects),
    cmocka_unit_test(what_is_missing_is_told),
    cmocka_unit_test(hostile_numbers_do_no_harm),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
