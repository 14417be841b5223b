/* SPDX-License-Identifier: MIT */
/* The live tables between processes: read while they are written, after the writer was killed, and when they
 * are full of rubbish. */
#include "profile/live.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "host.h"
#include "profile/live_region.h"
#include "profile/mem.h"
#include "profile/random.h"

enum { REGION = 512 * 1024 };

static void *map_shared(void) {
  void *memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void lay_out(live_t *live, void *memory) {
  live_setup_t setup = {.types = {{"samples", "count"}, {"cpu", "nanoseconds"}},
                        .default_type = 1,
                        .period_type = {"cpu", "nanoseconds"},
                        .period = 10000000};
  *live = (live_t){0};
  CHECK(live_init(live, memory, REGION, &setup));
  live_set_program(live, "program");
  live_comment(live, "a comment");
  live_set_state(live, LIVE_RUNNING);
}

/* One sample of a stack that the random numbers choose: some hundred functions, names that get better, labels. */
static void add_sample(live_t *live, random_t *random) {
  static const char labels[] = "request\0checkout\0tenant\0a";
  char text[64];
  live_ref_t node = LIVE_ROOT;
  uint64_t depth = 1 + random_next(random) % 12;
  for (uint64_t i = 0; i < depth; i++) {
    uint64_t number = random_next(random) % 8 + 8 * i;
    int len = snprintf(text, sizeof text, "function %u", (unsigned)number);
    live_function_t function = {.name = live_string(live, text, (size_t)len),
                                .file = live_string(live, "file.lua", 8),
                                .line = (int32_t)number,
                                .code = (uint32_t)(random_next(random) % 2),
                                .kind = LIVE_LUA};
    live_ref_t ref = function.name != 0 && function.file != 0 ? live_function(live, &function) : 0;
    if (ref != 0 && random_next(random) % 64 == 0) {
      len = snprintf(text, sizeof text, "module.function_%u", (unsigned)number);
      live_rename(live, ref, live_string(live, text, (size_t)len), (uint32_t)(random_next(random) % 100));
    }
    node = ref != 0 ? live_child(live, node, ref, (int32_t)(number % 3)) : 0;
    if (node == 0) break;
  }
  uint64_t values[PROFILE_MAX_TYPES] = {1, 1000};
  live_ref_t set = random_next(random) % 4 == 0 ? live_string(live, labels, sizeof labels) : 0;
  if (node != 0)
    live_add(live, node, set, values);
  else
    live_add_overflow(live, values);
}

/* A snapshot that must succeed; returns its samples and checks what can be checked of any moment. */
static int64_t snapshot_samples(const live_t *live, int64_t at_least) {
  failure_t failure = {""};
  profile_t *profile = live_snapshot(live, &failure);
  if (profile == NULL) FAIL("%s", failure.text);
  int64_t samples = host_total(profile, 0), time = host_total(profile, 1);
  if (samples < at_least) FAIL("%" PRId64 " samples after %" PRId64, samples, at_least);
  /* one sample may stand between its two counters; in a snapshot taken on the run one in each cell read */
  if (time > 1000 * (samples + (int64_t)profile->sample_count) ||
      samples > time / 1000 + (int64_t)profile->sample_count + 1)
    FAIL("%" PRId64 " samples of 1000 have %" PRId64, samples, time);
  CHECK(strcmp(profile_text(profile, profile->program).data, "program") == 0);
  CHECK(profile->comment_count == 1);
  profile_free(profile);
  return samples;
}

/* -- concurrent writers
 * ------------------------------------------------------------------------------------------------ */

static atomic_bool enough;
static atomic_ulong written;

static void *write_on(void *memory) {
  live_t live;
  random_t random = {7};
  lay_out(&live, memory);
  for (atomic_store(&written, 1); !atomic_load(&enough); atomic_fetch_add(&written, 1))
    add_sample(&live, &random);
  return NULL;
}

static void thread_writes(void) {
  void *memory = map_shared();
  pthread_t thread;
  live_t live;
  CHECK(pthread_create(&thread, NULL, write_on, memory) == 0);
  while (atomic_load(&written) == 0) sched_yield();
  CHECK(live_open(&live, memory, REGION, NULL));
  CHECK(live_state(&live) == LIVE_RUNNING);
  int64_t samples = 0;
  for (int i = 0; i < 200; i++) samples = snapshot_samples(&live, samples);
  atomic_store(&enough, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(snapshot_samples(&live, samples) == (int64_t)atomic_load(&written) - 1);
  munmap(memory, REGION);
}

static void since_a_saved_moment(void) {
  void *memory = map_shared();
  live_t live, before;
  random_t random = {3};
  lay_out(&live, memory);
  for (int i = 0; i < 1000; i++) add_sample(&live, &random);
  CHECK(live_save(&live, &before));
  for (int i = 0; i < 500; i++) add_sample(&live, &random);
  profile_t *profile = live_snapshot_since(&live, &before, NULL);
  CHECK(profile != NULL && host_total(profile, 0) == 500 && host_total(profile, 1) == 500000);
  profile_free(profile);
  mem_free(before.header);
  munmap(memory, REGION);
}

/* The writer is killed at any instruction: what it had counted is there. */
static void writer_killed(void) {
  enum { KILLS = 200 };
  random_t random = {11};
  for (int i = 0; i < KILLS; i++) {
    void *memory = map_shared();
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      live_t live;
      random_t own = {(uint64_t)i};
      lay_out(&live, memory);
      if (write(ready[1], "", 1) != 1) _exit(1);
      for (;;) add_sample(&live, &own);
    }
    live_t live;
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(live_open(&live, memory, REGION, NULL));
    int64_t samples = 0;
    for (uint64_t looks = random_next(&random) % 3; looks > 0; looks--)
      samples = snapshot_samples(&live, samples);
    for (volatile uint64_t spin = random_next(&random) % 200000; spin > 0;) spin--;
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    samples = snapshot_samples(&live, samples);
    CHECK(snapshot_samples(&live, samples) == samples); /* nobody writes any more */
    CHECK(live_state(&live) == LIVE_RUNNING);
    close(ready[0]);
    close(ready[1]);
    munmap(memory, REGION);
  }
}

/* -- a full region
 * ----------------------------------------------------------------------------------------------------- */

static bool refuse_charge(void *left, size_t bytes) {
  if (*(size_t *)left < bytes) return false;
  *(size_t *)left -= bytes;
  return true;
}

static void full_region(void) {
  void *memory = map_shared();
  live_t live;
  lay_out(&live, memory);
  uint64_t values[PROFILE_MAX_TYPES] = {1, 1000};
  int64_t added = 0;
  for (int i = 0; i < 20000; i++) {
    char name[64];
    int len = snprintf(name, sizeof name, "a function with a name of its own %d", i);
    live_function_t function = {.name = live_string(&live, name, (size_t)len), .kind = LIVE_PSEUDO};
    live_ref_t node =
        function.name != 0 ? live_child(&live, LIVE_ROOT, live_function(&live, &function), 0) : 0;
    if (node != 0)
      live_add(&live, node, 0, values);
    else
      live_add_overflow(&live, values);
    added++;
  }
  CHECK(live_used(&live) <= REGION && live_lost(&live, LOSS_OVERFLOW) > 0);
  CHECK(snapshot_samples(&live, 0) == added);
  munmap(memory, REGION);

  memory = map_shared(); /* a budget that is spent refuses the layout, or whatever comes after */
  for (size_t budget = 0; budget < REGION; budget += 32 * 1024) {
    size_t left = budget;
    live_t tight = {.charge = refuse_charge, .charge_context = &left};
    live_setup_t setup = {.types = {{"samples", "count"}}, .period_type = {"samples", "count"}, .period = 1};
    memset(memory, 0, REGION);
    if (!live_init(&tight, memory, REGION, &setup)) continue;
    random_t random = {5};
    for (int i = 0; i < 2000; i++) add_sample(&tight, &random);
    profile_t *profile = live_snapshot(&tight, NULL);
    CHECK(profile != NULL && host_total(profile, 0) == 2000);
    profile_free(profile);
  }
  munmap(memory, REGION);
}

/* -- rubbish
 * ----------------------------------------------------------------------------------------------------------- */

/* Looks at everything a reader looks at. The region is on the heap, so that a sanitizer sees a step outside. */
static void read_rubbish(void *memory, size_t size) {
  failure_t failure = {""};
  live_t live, copy;
  if (!live_open(&live, memory, size, &failure)) {
    CHECK(failure.text[0] != '\0');
    return;
  }
  (void)live_state(&live);
  CHECK(strlen(live_refusal(&live)) < 256);
  (void)live_used(&live);
  for (int reason = 0; reason < LOSS_COUNT; reason++) (void)live_lost(&live, (loss_t)reason);
  profile_t *profile = live_snapshot(&live, &failure);
  if (profile == NULL)
    CHECK(failure.text[0] != '\0');
  else
    profile_free(profile);
  if (!live_save(&live, &copy)) return;
  profile_free(live_snapshot_since(&live, &copy, NULL));
  mem_free(copy.header);
}

static void corrupted_regions(void) {
  enum { TRIALS = 6000 };
  char *good = calloc(1, REGION), *bad = malloc(REGION);
  CHECK(good != NULL && bad != NULL);
  live_t live;
  random_t random = {13};
  lay_out(&live, good);
  for (int i = 0; i < 300; i++) add_sample(&live, &random);
  size_t used = live_used(&live), header = sizeof(live_header_t);
  size_t tables = used; /* less the buckets: unread */
  for (int i = 0; i < LIVE_TABLES; i++) tables -= live.header->tables[i].most * sizeof(live_ref_t);
  memcpy(bad, good, REGION);
  for (int i = 0; i < TRIALS; i++) {
    uint64_t flips = 1 + random_next(&random) % 8;
    for (uint64_t f = 0; f < flips; f++) {
      /* header, entries, anywhere: a byte, or a whole word that looks like a reference or a length */
      uint64_t place = random_next(&random) % 3;
      size_t at = place == 0   ? random_next(&random) % header
                  : place == 1 ? used - 1 - random_next(&random) % (tables - header)
                               : random_next(&random) % REGION;
      if (random_next(&random) % 2 == 0) {
        bad[at] = (char)random_next(&random);
      } else {
        uint32_t word = (uint32_t)random_next(&random) >> (random_next(&random) % 32);
        at = at / 4 * 4;
        memcpy(bad + at, &word, sizeof word);
      }
    }
    if (random_next(&random) % 4 != 0) { /* mostly past the door */
      ((live_header_t *)(void *)bad)->magic = LIVE_MAGIC;
      ((live_header_t *)(void *)bad)->size = REGION;
    }
    read_rubbish(bad, REGION);
    memcpy(bad, good, used);
  }
  free(bad);
  free(good);
}

static void nothing_but_rubbish(void) {
  char *memory = malloc(REGION);
  CHECK(memory != NULL);
  random_t random = {17};
  for (int i = 0; i < 60; i++) {
    for (size_t at = 0; at < REGION; at += 8) {
      uint64_t word = random_next(&random);
      if (i % 2 == 1) word &= 0x0000ffff0000ffffu; /* small numbers: references that lead somewhere */
      memcpy(memory + at, &word, sizeof word);
    }
    live_header_t *header = (live_header_t *)(void *)memory;
    header->magic = LIVE_MAGIC;
    header->size = REGION;
    header->value_count = (uint32_t)(i % 10);
    read_rubbish(memory, REGION);
  }
  free(memory);
}

/* References that lead back, and every stack as deep as it can be. */
static void cycles(void) {
  char *memory = calloc(1, REGION);
  CHECK(memory != NULL);
  live_t live;
  random_t random = {19};
  lay_out(&live, memory);
  for (int i = 0; i < 100; i++) add_sample(&live, &random);
  live_header_t *header = (live_header_t *)(void *)memory;
  live_cell_t *cell = live_at(header, atomic_load(&header->last_cell));
  live_ref_t previous = cell->previous, node = cell->node;
  cell->previous = atomic_load(&header->last_cell); /* a cell that is its own predecessor */
  CHECK(live_snapshot(&live, NULL) == NULL);
  cell->previous = previous;
  live_node_t *leaf = live_at(header, node);
  live_ref_t parent = leaf->parent;
  leaf->parent = node; /* a node that is its own parent */
  CHECK(live_snapshot(&live, NULL) == NULL);
  leaf->parent = parent;
  live_string_t *comment = live_at(header, atomic_load(&header->last_comment));
  comment->next = atomic_load(&header->last_comment); /* comments are bounded, not refused */
  read_rubbish(memory, REGION);
  free(memory);
}

static void refusals(void) {
  live_t live;
  failure_t failure = {""};
  char *memory = calloc(1, REGION);
  CHECK(memory != NULL);
  CHECK(!live_open(&live, memory, REGION, &failure) && failure.text[0] != '\0');
  live_prepare(memory, REGION);
  CHECK(live_open(&live, memory, REGION, NULL) && live_state(&live) == LIVE_WAITING);
  CHECK(!live_open(&live, memory, REGION - 8, NULL)); /* not the size it was made with */
  profile_t *profile = live_snapshot(&live, NULL);    /* a program that never came so far: an empty profile */
  CHECK(profile != NULL && profile->sample_count == 0);
  profile_free(profile);
  live_refuse(memory, REGION, "no room");
  CHECK(live_state(&live) == LIVE_REFUSED && strcmp(live_refusal(&live), "no room") == 0);
  memset(((live_header_t *)(void *)memory)->refusal, 'x', 256);
  CHECK(strlen(live_refusal(&live)) < 256);
  live_setup_t setup = {.types = {{"samples", "count"}}};
  CHECK(!live_init(&live, memory, 1000, &setup));
  free(memory);
}

static const host_test_t tests[] = {
    {"thread_writes", thread_writes},
    {"since_a_saved_moment", since_a_saved_moment},
    {"writer_killed", writer_killed},
    {"full_region", full_region},
    {"corrupted_regions", corrupted_regions},
    {"nothing_but_rubbish", nothing_but_rubbish},
    {"cycles", cycles},
    {"refusals", refusals},
};

HOST_MAIN(tests)
