/* SPDX-License-Identifier: MIT */
/* Looking into a process, on this one: marks in bytes, maps, reads that fail, lists of objects that lie. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/process_stat.h"
#include "attach/vms.h"
#include "attach/watched.h"
#include "profile/mem.h"
#include "unit.h"

/* -- marks ------------------------------------------------------------------------------------------------------ */

/* In a copy without a byte to spare, so that a sanitizer sees what is read past it. */
static void search(idents_t *idents, const char *bytes, size_t len) {
  char *copy = malloc(len > 0 ? len : 1);
  memcpy(copy, bytes, len);
  memset(idents, 0, sizeof *idents);
  ident_search(idents, copy, len, 1000, "a file");
  ident_settle(idents);
  free(copy);
}

static void marks_of_every_lua(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t len;
    const char *text; /* NULL: none */
    uint8_t family, language;
  } cases[] = {
#define BYTES(text) text, sizeof text - 1
      {BYTES("\0$LuaVersion: Lua 5.4.4  Copyright (C)\0"), "Lua 5.4.4", LAYOUT_PUC, 54},
      {BYTES("xx$Lua: Lua 5.1.5 Copyright $"), "Lua 5.1.5", LAYOUT_PUC, 51},
      {BYTES("\0LuaJIT 2.1.0-beta3\0"), "LuaJIT 2.1.0-beta3", LAYOUT_LUAJIT, 51},
      {BYTES("\0LuaJIT 2.1.1700008891 -- Copyright"), "LuaJIT 2.1.1700008891", LAYOUT_LUAJIT, 51},
      {BYTES("\0Lua 5.3\0"), "Lua 5.3", LAYOUT_PUC, 53},
      {BYTES("\"OpenResty LuaJIT 2.1-20211210 to 20240314\""), NULL, 0, 0},
      {BYTES("\"Lua 5.4.3-5.4.9\""), NULL, 0, 0},
      {BYTES("$LuaVersion: Lua "), NULL, 0, 0},
      {BYTES("$LuaVersion: Lua 5.9.1 "), NULL, 0, 0},
      {BYTES("\0Lua 6.0\0"), NULL, 0, 0},
      {BYTES("Lua"), NULL, 0, 0},
      {BYTES(""), NULL, 0, 0},
#undef BYTES
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    idents_t idents;
    search(&idents, cases[i].bytes, cases[i].len);
    assert_int_equal(idents.count, cases[i].text != NULL ? 1 : 0);
    if (cases[i].text == NULL) continue;
    assert_string_equal(idents.idents[0].text, cases[i].text);
    assert_int_equal(idents.idents[0].family, cases[i].family);
    assert_int_equal(idents.idents[0].language, cases[i].language);
    assert_string_equal(idents.idents[0].place, "a file");
    for (size_t len = 0; len < cases[i].len; len++) search(&idents, cases[i].bytes, len); /* cut anywhere */
  }
}

static void a_sure_mark_outweighs_the_language(void **state) {
  (void)state;
  static const char bytes[] = "\0Lua 5.1\0LuaJIT 2.1.0-beta3\0Lua 5.1\0";
  idents_t idents;
  search(&idents, bytes, sizeof bytes);
  assert_int_equal(idents.count, 1);
  assert_int_equal(idents.idents[0].family, LAYOUT_LUAJIT);
  assert_int_equal(idents.idents[0].at, 1000 + 9);
}

static void marks_beyond_number(void **state) {
  (void)state;
  char bytes[4096] = "";
  size_t len = 0;
  idents_t idents;
  for (int i = 0; i < 100; i++)
    len += (size_t)snprintf(bytes + len, sizeof bytes - len, "$LuaVersion: Lua 5.4.%d ", i);
  search(&idents, bytes, len);
  assert_int_equal(idents.count, IDENT_MAX);
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

static remote_t *remote_here(void) {
  remote_t *remote = malloc(sizeof *remote);
  remote_init(remote, getpid());
  return remote;
}

static void reads_that_fail(void **state) {
  (void)state;
  size_t page = REMOTE_PAGE;
  uint8_t *bytes = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
          out[8192];
  assert_true(bytes != MAP_FAILED);
  for (size_t i = 0; i < 3 * page; i++) bytes[i] = (uint8_t)(i * 7);
  assert_int_equal(mprotect(bytes + 2 * page, page, PROT_NONE), 0);
  remote_t *remote = remote_here();
  walk_memory_t *memory = &remote->memory;
  uint64_t at = (uint64_t)(uintptr_t)bytes;
  /* across a page, up to the very end, and not a byte further */
  assert_true(walk_read(memory, out, at + page - 3, 6, WALK_GUESS));
  assert_memory_equal(out, bytes + page - 3, 6);
  assert_true(walk_read(memory, out, at + 2 * page - 1, 1, WALK_LIVE));
  assert_false(walk_read(memory, out, at + 2 * page - 1, 2, WALK_LIVE));
  assert_false(walk_read(memory, out, at + 2 * page, 1, WALK_GUESS));
  assert_int_equal(remote_copy(remote, out, at + page, 8192), page);
  /* where nothing can be */
  static const uint64_t nowhere[] = {
      0, 8, 4096, (uint64_t)1 << 47, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
  for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
    assert_false(walk_read(memory, out, nowhere[i], 8, WALK_LIVE));
    assert_int_equal(remote_copy(remote, out, nowhere[i], 8), 0);
  }
  /* what was read is kept until it is forgotten */
  bytes[5] = 1;
  assert_true(walk_read(memory, out, at + 5, 1, WALK_GUESS));
  assert_int_equal(out[0], 35);
  remote_forget(remote);
  assert_true(walk_read(memory, out, at + 5, 1, WALK_GUESS));
  assert_int_equal(out[0], 1);
  free(remote);
  munmap(bytes, 3 * page);
}

static void maps_of_this_process(void **state) {
  (void)state;
  maps_t maps;
  failure_t failure = {""};
  uint32_t count;
  assert_true(maps_read(&maps, getpid(), &failure));
  const map_t *code = maps_find(&maps, (uint64_t)(uintptr_t)maps_of_this_process);
  assert_non_null(code);
  assert_true(code->executable && code->readable && !code->writable && code->inode != 0);
  assert_non_null(strstr(code->path, "test_attach"));
  const map_t *image = maps_image(&maps, code);
  assert_true(image <= code && maps_same_file(image, code));
  const map_t *stack = maps_find(&maps, (uint64_t)(uintptr_t)&maps);
  assert_non_null(stack);
  assert_string_equal(stack->path, "[stack]");
  assert_null(maps_find(&maps, 0));
  assert_null(maps_find(&maps, UINT64_MAX));
  walk_range_t *images = maps_images(&maps, &count);
  assert_non_null(images);
  bool found = false;
  for (uint32_t i = 0; i < count; i++) {
    assert_true(images[i].start < images[i].end && (i == 0 || images[i - 1].end <= images[i].start));
    found |= images[i].start <= code->start && code->end <= images[i].end;
  }
  assert_true(found);
  mem_free(images);
  maps_free(&maps);
  assert_false(maps_read(&maps, 1 << 22, &failure));
  assert_non_null(strstr(failure.text, "cannot be read"));
}

/* -- objects -------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t next;
  uint8_t tt, marked, rest[22];
} object_t;

typedef struct {
  uint64_t objects[8];
  size_t count;
} seen_t;

static bool see(void *context, uint64_t object) {
  seen_t *seen = context;
  if (seen->count < 8) seen->objects[seen->count] = object;
  return ++seen->count < 100;
}

static const layout_t *layout_54(void) {
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    if (layout->family == LAYOUT_PUC && layout->language == 54) return layout;
  return NULL;
}

static objects_end_t follow(const void *global, seen_t *seen) {
  const layout_t *layout = layout_54();
  target_t target = {.remote = remote_here()};
  uint64_t count;
  *seen = (seen_t){{0}, 0};
  objects_end_t end =
      vms_objects(&target, layout, (uint64_t)(uintptr_t)global, vms_type_thread(layout), &count, see, seen);
  free(target.remote);
  return end;
}

static void lists_of_objects(void **state) {
  (void)state;
  enum { WHITE0 = 8, WHITE1 = 16, BLACK = 32, THREAD = 8, TABLE = 5 };
  const layout_puc_t *l = &layout_54()->puc;
  uint8_t global[512] = {0};
  object_t objects[4] = {{.tt = THREAD, .marked = WHITE0},
                         {.tt = TABLE, .marked = WHITE0},
                         {.tt = THREAD, .marked = WHITE1}, /* dead: to be swept */
                         {.tt = THREAD, .marked = BLACK | 3}};
  seen_t seen;
  for (int i = 0; i < 3; i++) objects[i].next = (uint64_t)(uintptr_t)&objects[i + 1];
  uint64_t first = (uint64_t)(uintptr_t)objects;
  memcpy(global + l->global_objects, &first, sizeof first);
  global[l->global_white] = WHITE0;
  assert_int_equal(follow(global, &seen), OBJECTS_ALL);
  assert_int_equal(seen.count, 2);
  assert_int_equal(seen.objects[0], first);
  assert_int_equal(seen.objects[1], (uint64_t)(uintptr_t)&objects[3]);
  objects[3].next = 12345678; /* nowhere */
  assert_int_equal(follow(global, &seen), OBJECTS_BROKEN);
  objects[3].next = first + 1; /* no object */
  assert_int_equal(follow(global, &seen), OBJECTS_BROKEN);
  objects[0].tt = objects[3].tt = TABLE;
  objects[3].next = first; /* for ever */
  assert_int_equal(follow(global, &seen), OBJECTS_CUT);
  global[l->global_white] = 0; /* not where the layout says */
  assert_int_equal(follow(global, &seen), OBJECTS_BROKEN);
  assert_int_equal(follow((const void *)(uintptr_t)4096, &seen), OBJECTS_BROKEN);
}

/* -- /proc/PID/stat --------------------------------------------------------------------------------------------------- */

static void stat_of_processes(void **state) {
  (void)state;
  process_stat_t own, thread, again, parent;
  assert_int_equal(prctl(PR_SET_NAME, ") R 1 (x"), 0); /* a name may hold anything */
  assert_true(process_stat(&own, getpid()));
  assert_string_equal(own.name, ") R 1 (x");
  assert_int_equal(own.state, 'R');
  assert_int_equal(own.parent, getppid());
  assert_int_equal(own.threads, 1);
  assert_true(process_stat_of_thread(&thread, getpid(), getpid()));
  assert_int_equal(thread.started, own.started);
  assert_true(process_stat(&again, getpid()));
  assert_int_equal(again.space, own.space);
  assert_true(process_stat(&parent, getppid()));
  assert_int_not_equal(parent.space, own.space);
  assert_false(process_stat(&again, 1 << 23));
}

/* What is asked at each tick, of a process that runs, and of the same held still. */
static void what_a_process_does(void **state) {
  (void)state;
  failure_t failure;
  int64_t first, then;
  pid_t child = fork();
  if (child == 0)
    for (;;) __asm__ volatile("");
  assert_true(child > 0);
  watched_t *w = watched_open(child, true, &failure), *slow = watched_open(child, false, &failure);
  assert_true(w != NULL && slow != NULL);
  assert_false(watched_runs(slow)); /* it is not asked */
  assert_true(watched_cpu(w, &first));
  do assert_true(watched_cpu(w, &then));
  while (then == first);
  assert_true(then > first);
  assert_true(w->call_fd < 0 || watched_runs(w)); /* not every kernel tells it */
  assert_int_equal(kill(child, SIGSTOP), 0);
  assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
  assert_false(watched_runs(w));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_false(watched_runs(w));
  assert_false(watched_cpu(w, &then));
  watched_close(w);
  watched_close(slow);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stat_of_processes),    cmocka_unit_test(what_a_process_does),
    cmocka_unit_test(marks_of_every_lua),   cmocka_unit_test(a_sure_mark_outweighs_the_language),
    cmocka_unit_test(marks_beyond_number),  cmocka_unit_test(reads_that_fail),
    cmocka_unit_test(maps_of_this_process), cmocka_unit_test(lists_of_objects),
};

UNIT_MAIN(tests)
