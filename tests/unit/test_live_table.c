/* SPDX-License-Identifier: MIT */
/* The hash tables of a live profile while they grow: what was entered is found again, whatever was entered since, and what is looked
 * through for it stays short. */
#include <stdlib.h>

#include "profile/live.h"
#include "profile/live_table.h"
#include "unit.h"

enum { REGION = 8 << 20, ENTRIES = 20000, SMALL_ENTRIES = 1500 };

static void open_region(live_t *live, void **memory, size_t size) {
  live_setup_t setup = {.types = {{"samples", "count"}}, .period_type = {"cpu", "nanoseconds"}, .period = 1};
  *memory = calloc(1, size);
  *live = (live_t){0};
  assert_non_null(*memory);
  assert_true(live_init(live, *memory, size, &setup));
}

static live_ref_t name(live_t *live, int i) {
  char text[32];
  return live_string(live, text, (size_t)snprintf(text, sizeof text, "name %d", i));
}

static live_ref_t function(live_t *live, int i) {
  live_function_t lua = {.name = name(live, i), .file = name(live, i % 7), .line = i, .kind = LIVE_LUA};
  live_function_t c = {.name = name(live, i), .file = name(live, 0), .code = (uint32_t)i, .kind = LIVE_C};
  live_function_t pseudo = {.name = name(live, i), .kind = LIVE_PSEUDO};
  return live_function(live, i % 3 == 0 ? &lua : i % 3 == 1 ? &c : &pseudo);
}

typedef struct {
  live_ref_t name, function, node, cell;
} entries_t;

/* Every node but the first hangs on an earlier one; every hundredth has a hundred children. */
static entries_t enter(live_t *live, const entries_t *earlier, int i) {
  live_ref_t parent = i == 0 ? LIVE_ROOT : earlier[i % 100 == 0 ? i / 2 : i - i % 100].node;
  entries_t e = {.name = name(live, i), .function = function(live, i)};
  e.node = live_child(live, parent, e.function, i % 5);
  e.cell = live_find_cell(live, e.node, i % 2 == 0 ? e.name : 0);
  return e;
}

static bool same(const entries_t *a, const entries_t *b) {
  return a->name == b->name && a->function == b->function && a->node == b->node && a->cell == b->cell;
}

static void grow_and_find(size_t size, int count) {
  live_t live;
  void *memory;
  open_region(&live, &memory, size);
  entries_t *entries = calloc((size_t)count, sizeof *entries);
  assert_non_null(entries);
  for (int i = 0; i < count; i++) {
    entries[i] = enter(&live, entries, i);
    assert_true(entries[i].name != 0 && entries[i].function != 0 && entries[i].node != 0 &&
                entries[i].cell != 0);
    int other = i / 3;
    entries_t again = enter(&live, entries, other);
    assert_true(same(&again, &entries[other]));
  }
  uint64_t used = live_used(&live);
  for (int i = 0; i < count; i++) {
    entries_t again = enter(&live, entries, i);
    assert_true(same(&again, &entries[i]));
  }
  assert_int_equal(live_used(&live), used); /* nothing was entered twice */
  for (int kind = 0; kind < LIVE_TABLES; kind++) {
    const live_table_t *table = &live.header->tables[kind];
    assert_true(table->entries >= (uint32_t)count);
    assert_int_equal(table->used, table->entries < table->most ? table->entries : table->most);
    assert_true(table->mask + 1 >= table->used && (table->mask + 1) / 2 < table->used);
  }
  free(entries);
  free(memory);
}

static void what_was_entered_is_found(void **state) {
  (void)state;
  grow_and_find(REGION, ENTRIES); /* more than there are buckets */
}

static void in_the_smallest_region(void **state) {
  (void)state;
  grow_and_find(LIVE_MIN_BYTES, SMALL_ENTRIES);
}

/* Paths of a recursion differ in little, and references in fewer bits still. */
static void chains_stay_short(void **state) {
  enum { DEPTH = 8000, LONGEST = 16 };
  live_t live;
  void *memory;
  (void)state;
  open_region(&live, &memory, REGION);
  live_ref_t recursive = function(&live, 3), node = LIVE_ROOT;
  for (int i = 0; i < DEPTH; i++) {
    node = live_child(&live, node, recursive, 10 + i % 2);
    assert_true(node != 0 && live_find_cell(&live, node, 0) != 0);
  }
  const live_table_t *nodes = &live.header->tables[LIVE_NODES], *cells = &live.header->tables[LIVE_CELLS];
  for (uint32_t i = 0; i < nodes->used; i++) {
    int length = 0;
    for (live_ref_t ref = ((live_ref_t *)live_at(live.header, nodes->buckets))[i]; ref != 0;
         ref = ((live_node_t *)live_at(live.header, ref))->chain)
      length++;
    assert_true(length <= LONGEST);
  }
  for (uint32_t i = 0; i < cells->used; i++) {
    int length = 0;
    for (live_ref_t ref = ((live_ref_t *)live_at(live.header, cells->buckets))[i]; ref != 0;
         ref = ((live_cell_t *)live_at(live.header, ref))->chain)
      length++;
    assert_true(length <= LONGEST);
  }
  free(memory);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_entered_is_found),
    cmocka_unit_test(in_the_smallest_region),
    cmocka_unit_test(chains_stay_short),
};

UNIT_MAIN(tests)
