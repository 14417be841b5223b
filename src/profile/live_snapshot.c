/* SPDX-License-Identifier: MIT */
/* The reader's side of a live profile: copies it out while the writer goes on, or after it was killed.
 * Every reference is checked against what the writer has handed out; a walk that leaves it is a named
 * failure. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "profile/heap_types.h"
#include "profile/intern.h"
#include "profile/live.h"
#include "profile/live_region.h"
#include "profile/live_survivors.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

enum { MAX_DEPTH = 4096, MAX_LABELS = 64 };

typedef struct {
  const live_header_t *header;
  const live_header_t *before; /* a saved copy whose counts are taken off, or NULL */
  uint64_t size;               /* of the region; this and value_count are read once: what bounds a walk … */
  uint32_t value_count;        /* … must not change under it */
  uint32_t hidden_count;
  uint32_t heap_first, heap_values; /* values of the heap: from which on, how many */
  survivors_t survivors;
  profile_t *profile;
  bool corrupt;
  bool traced;
  uint32_t *functions; /* open addressing: reference of a live function, then its index in the profile */
  size_t function_room, function_used;
} reader_t;

bool live_open(live_t *live, void *memory, size_t size, failure_t *failure) {
  live_header_t *header = memory;
  if (size < LIVE_MIN_BYTES || header->magic != LIVE_MAGIC || header->size != size)
    return failure_set(failure, "the shared profile tables are not of this version of luapulse");
  *live = (live_t){.header = header};
  return true;
}

live_state_t live_state(const live_t *live) {
  return (live_state_t)atomic_load_explicit(&live->header->state, memory_order_acquire);
}

const char *live_refusal(const live_t *live) {
  const char *text = live->header->refusal; /* overwritten, it may have lost its end */
  return memchr(text, '\0', sizeof live->header->refusal) != NULL ? text : "the reason was overwritten";
}

size_t live_used(const live_t *live) {
  return (size_t)atomic_load_explicit(&live->header->used, memory_order_relaxed);
}

uint64_t live_lost(const live_t *live, loss_t reason) {
  return atomic_load_explicit(&live->header->losses[reason], memory_order_relaxed);
}

/* The entry at `ref`, or NULL (and the region is corrupt) when it does not lie whole inside it. */
static const void *entry_at(reader_t *r, live_ref_t ref, size_t size) {
  uint64_t at = (uint64_t)ref * 8;
  if (ref == 0 || at < sizeof(live_header_t) || at + size > r->size) {
    r->corrupt = true;
    return NULL;
  }
  return live_at(r->header, ref);
}

static text_t string_at(reader_t *r, live_ref_t ref) {
  const live_string_t *string = entry_at(r, ref, sizeof *string);
  if (string == NULL) return (text_t){"", 0};
  uint32_t len =
      *(const volatile uint32_t *)&string->len; /* once: the writer's program may be overwriting it */
  if (entry_at(r, ref, sizeof *string + len) == NULL) return (text_t){"", 0};
  return (text_t){string->bytes, len};
}

static uint32_t read_string(reader_t *r, live_ref_t ref) {
  if (ref == 0) return 0;
  text_t text = string_at(r, ref);
  return profile_string(r->profile, text.data, text.len);
}

/* A function whose file and line other code had before is marked, so that no tool merges the two. */
static uint32_t read_name(reader_t *r, const live_function_entry_t *entry) {
  text_t name = string_at(r, atomic_load_explicit(&entry->name, memory_order_acquire));
  uint32_t generation = *(const volatile uint32_t *)&entry->generation; /* once, as above */
  if (generation <= 1) return profile_string(r->profile, name.data, name.len);
  static const char mark[] = " [reload ";
  char digits[12];
  size_t digit_count = 0;
  for (uint32_t n = generation; n != 0; n /= 10) digits[digit_count++] = (char)('0' + n % 10);
  char *text = mem_alloc(name.len + sizeof mark + digit_count + 1);
  if (text == NULL) {
    r->profile->failed = true;
    return 0;
  }
  size_t len = name.len;
  memcpy(text, name.data, len);
  memcpy(text + len, mark, sizeof mark - 1);
  len += sizeof mark - 1;
  while (digit_count > 0) text[len++] = digits[--digit_count];
  text[len++] = ']';
  uint32_t string = profile_string(r->profile, text, len);
  mem_free(text);
  return string;
}

static uint32_t convert_function(reader_t *r, live_ref_t ref) {
  const live_function_entry_t *entry = entry_at(r, ref, sizeof *entry);
  if (entry == NULL) return PROFILE_NONE;
  uint32_t name = read_name(r, entry);
  profile_function_t function = {name, name, read_string(r, entry->file), entry->line};
  return profile_function(r->profile, function);
}

static bool remember_function(reader_t *r, live_ref_t ref, uint32_t function) {
  if ((r->function_used + 1) * 4 > r->function_room * 3) {
    size_t room = r->function_room == 0 ? 256 : r->function_room * 2;
    uint32_t *bigger = mem_alloc(room * 2 * sizeof *bigger);
    if (bigger == NULL) return false;
    for (size_t i = 0; i < r->function_room; i++) {
      if (r->functions[2 * i] == 0) continue;
      size_t at = hash_bytes(&r->functions[2 * i], 4, 0) & (room - 1);
      while (bigger[2 * at] != 0) at = (at + 1) & (room - 1);
      bigger[2 * at] = r->functions[2 * i];
      bigger[2 * at + 1] = r->functions[2 * i + 1];
    }
    mem_free(r->functions);
    r->functions = bigger;
    r->function_room = room;
  }
  size_t at = hash_bytes(&ref, sizeof ref, 0) & (r->function_room - 1);
  while (r->functions[2 * at] != 0) at = (at + 1) & (r->function_room - 1);
  r->functions[2 * at] = ref;
  r->functions[2 * at + 1] = function;
  r->function_used++;
  return true;
}

static uint32_t read_function(reader_t *r, live_ref_t ref) {
  if (r->function_room > 0) {
    size_t mask = r->function_room - 1;
    for (size_t i = hash_bytes(&ref, sizeof ref, 0) & mask; r->functions[2 * i] != 0; i = (i + 1) & mask)
      if (r->functions[2 * i] == ref) return r->functions[2 * i + 1];
  }
  uint32_t function = convert_function(r, ref);
  if (function != PROFILE_NONE && !remember_function(r, ref, function)) r->profile->failed = true;
  return function;
}

static uint32_t read_stack(reader_t *r, live_ref_t leaf) {
  live_ref_t path[MAX_DEPTH];
  size_t depth = 0;
  for (live_ref_t ref = leaf; ref != LIVE_ROOT;) {
    const live_node_t *node = entry_at(r, ref, sizeof *node);
    if (node == NULL || depth == MAX_DEPTH) {
      r->corrupt = true;
      return PROFILE_NONE;
    }
    path[depth++] = ref;
    ref = node->parent;
  }
  uint32_t stack = 0;
  while (depth > 0) {
    const live_node_t *node = live_at(r->header, path[--depth]);
    uint32_t function = read_function(r, node->function);
    if (function == PROFILE_NONE) return PROFILE_NONE;
    stack = profile_stack(r->profile, stack, profile_frame(r->profile, function, node->line));
  }
  return stack;
}

/* The set at `ref` with, unless it is 0, the number of collections survived. */
static uint32_t read_labels(reader_t *r, live_ref_t ref, uint64_t survived) {
  text_t text = ref != 0 ? string_at(r, ref) : (text_t){"", 0};
  profile_label_t labels[MAX_LABELS + 1];
  size_t count = 0, at = 0;
  if (survived > 0)
    labels[count++] =
        (profile_label_t){.key = profile_cstring(r->profile, HEAP_SURVIVED), .num = (int64_t)survived};
  while (at < text.len && count < MAX_LABELS) {
    size_t key = at;
    while (at < text.len && text.data[at] != '\0') at++;
    size_t value = at + 1;
    for (at = value; at < text.len && text.data[at] != '\0';) at++;
    if (at >= text.len) break;   /* not closed by its NUL: the writer never makes that */
    if (at++ == value) continue; /* a label without a value is none: pprof would take it for the number 0 */
    labels[count++] = (profile_label_t){.key = profile_string(r->profile, text.data + key, value - 1 - key),
                                        .str = profile_string(r->profile, text.data + value, at - 1 - value)};
  }
  return count > 0 ? profile_label_set(r->profile, labels, count) : 0;
}

/* A cell never moves: it stands in the saved copy at the same place, if it was there at all. */
static uint64_t count_before(const reader_t *r, live_ref_t ref, uint32_t value) {
  if (r->before == NULL) return 0;
  uint64_t end = (uint64_t)ref * 8 + sizeof(live_cell_t) + r->value_count * sizeof(uint64_t);
  if (end > atomic_load_explicit(&r->before->used, memory_order_relaxed)) return 0;
  return atomic_load_explicit(&((const live_cell_t *)live_at(r->before, ref))->values[value],
                              memory_order_relaxed);
}

static uint64_t hidden_value(const reader_t *r, const live_cell_t *cell, int which) {
  return atomic_load_explicit(&cell->values[r->value_count + (uint32_t)which], memory_order_relaxed);
}

/* The region may be corrupt: wraps, never traps. */
static void add_wrapping(int64_t *value, uint64_t more) {
  *value = (int64_t)((uint64_t)*value + more);
}

/* Values of the heap that are no sums: what is in use, now or when the last collection ended, and what was at the peak. */
static void read_heap(const reader_t *r, const live_cell_t *cell, int64_t *values) {
  const live_heap_totals_t *heap = &r->header->heap;
  if (r->heap_values > HEAP_PEAK_SPACE) {
    bool since = hidden_value(r, cell, HIDDEN_CHANGED) > *(const volatile uint64_t *)&heap->peak_event;
    values[HEAP_PEAK_OBJECTS] =
        since ? (int64_t)hidden_value(r, cell, HIDDEN_PEAK_OBJECTS) : values[HEAP_INUSE_OBJECTS];
    values[HEAP_PEAK_SPACE] =
        since ? (int64_t)hidden_value(r, cell, HIDDEN_PEAK_SPACE) : values[HEAP_INUSE_SPACE];
  }
  bool changed = hidden_value(r, cell, HIDDEN_CYCLE) == *(const volatile uint64_t *)&heap->gc_cycles;
  if (!r->header->completed_only || !changed) return;
  add_wrapping(&values[HEAP_INUSE_OBJECTS],
               hidden_value(r, cell, HIDDEN_FREED_OBJECTS) - hidden_value(r, cell, HIDDEN_YOUNG_OBJECTS));
  add_wrapping(&values[HEAP_INUSE_SPACE],
               hidden_value(r, cell, HIDDEN_FREED_SPACE) - hidden_value(r, cell, HIDDEN_YOUNG_SPACE));
}

/* Moves what has survived collections from the site's values to samples of its own, labelled with how many. */
static void read_survivors(reader_t *r, live_ref_t ref, const live_cell_t *cell, uint32_t stack,
                           int64_t *values) {
  const survivor_t *which = survivors_find(&r->survivors, ref, SURVIVOR_CLASSES);
  int64_t *heap = values + r->heap_first;
  for (uint32_t class = 0; which != NULL && class < SURVIVOR_CLASSES; class ++) {
    if ((which->objects >> class & 1) == 0) continue;
    const survivor_t *found = survivors_find(&r->survivors, ref, class);
    int64_t objects = found != NULL ? (int64_t)found->objects : 0,
            bytes = found != NULL ? (int64_t)found->bytes : 0;
    if (objects > heap[HEAP_INUSE_OBJECTS])
      objects = heap[HEAP_INUSE_OBJECTS]; /* the writer has gone on meanwhile */
    if (bytes > heap[HEAP_INUSE_SPACE]) bytes = heap[HEAP_INUSE_SPACE];
    if (objects <= 0 && bytes <= 0) continue;
    add_wrapping(&heap[HEAP_INUSE_OBJECTS], -(uint64_t)objects);
    add_wrapping(&heap[HEAP_INUSE_SPACE], -(uint64_t)bytes);
    int64_t survived[PROFILE_MAX_TYPES] = {0};
    survived[r->heap_first + HEAP_INUSE_OBJECTS] = objects;
    survived[r->heap_first + HEAP_INUSE_SPACE] = bytes;
    profile_add(r->profile, stack, read_labels(r, cell->labels, (uint64_t)1 << class), survived);
  }
}

/* A value that is a sum over time, of which a part may be asked for; the others are as they are now, or extremes. */
static bool is_sum(const reader_t *r, uint32_t value) {
  if (r->heap_values > 0 && value >= r->heap_first + HEAP_INUSE_OBJECTS) return false;
  return !r->traced || (value != TRACE_MIN && value != TRACE_MAX);
}

static void read_cells(reader_t *r) {
  uint64_t steps = r->size / sizeof(live_cell_t); /* more cells than fit: a cycle */
  for (live_ref_t ref = atomic_load_explicit(&r->header->last_cell, memory_order_acquire);
       ref != 0 && !r->corrupt && profile_ok(r->profile);) {
    const live_cell_t *cell =
        entry_at(r, ref, sizeof *cell + ((size_t)r->value_count + r->hidden_count) * sizeof(uint64_t));
    if (cell == NULL || steps-- == 0) {
      r->corrupt = true;
      return;
    }
    int64_t values[PROFILE_MAX_TYPES] = {0};
    bool any = false;
    for (uint32_t i = 0; i < r->value_count; i++) {
      bool sums = is_sum(r, i);
      values[i] = (int64_t)(atomic_load_explicit(&cell->values[i], memory_order_relaxed) -
                            (sums ? count_before(r, ref, i) : 0));
      any = any || (sums && values[i] != 0);
    }
    if (r->heap_values > 0) read_heap(r, cell, values + r->heap_first);
    for (uint32_t i = r->heap_first; i < r->heap_first + r->heap_values; i++) any = any || values[i] != 0;
    if (any) {
      uint32_t stack = read_stack(r, cell->node);
      if (stack != PROFILE_NONE && r->heap_values > 0) read_survivors(r, ref, cell, stack, values);
      uint32_t labels = read_labels(r, cell->labels, 0);
      if (stack != PROFILE_NONE) profile_add(r->profile, stack, labels, values);
    }
    ref = cell->previous;
  }
}

/* The newest calls of the timeline. The writer may be at work: what it may have overwritten meanwhile is left out. */
static void read_events(reader_t *r) {
  const live_header_t *h = r->header;
  uint64_t room = *(const volatile uint32_t *)&h->event_room;
  live_ref_t first = *(const volatile live_ref_t *)&h->events;
  if (first == 0 || room == 0) return;
  if ((uint64_t)first * 8 + room * sizeof(live_event_t) > r->size) {
    r->corrupt = true;
    return;
  }
  const live_event_t *ring = live_at(h, first);
  uint64_t written = atomic_load_explicit(&h->event_count, memory_order_acquire);
  uint64_t from = r->before != NULL ? atomic_load_explicit(&r->before->event_count, memory_order_relaxed) : 0;
  bool ended = atomic_load_explicit(&h->state, memory_order_acquire) == LIVE_ENDED;
  r->profile->event_total = written - from;
  if (written - from > room) from = written - room;
  for (uint64_t i = from; i < written; i++) {
    live_event_t event = ring[i % room];
    uint64_t now = atomic_load_explicit(&h->event_count, memory_order_acquire);
    if (now >= i + room && !ended) continue;
    uint32_t function = read_function(r, event.function);
    if (r->corrupt) return;
    profile_add_event(
        r->profile, (profile_event_t){(int64_t)event.start, (int64_t)event.duration, function, event.track});
  }
}

static void read_comments(reader_t *r) {
  live_ref_t refs[32]; /* newest first in the region, oldest first in the profile */
  size_t count = 0;
  for (live_ref_t ref = atomic_load_explicit(&r->header->last_comment, memory_order_acquire);
       ref != 0 && count < 32;) {
    const live_string_t *string = entry_at(r, ref, sizeof *string);
    if (string == NULL) return;
    refs[count++] = ref;
    ref = string->next;
  }
  while (count > 0) profile_add_comment(r->profile, read_string(r, refs[--count]));
}

/* What the allocator counted of all blocks, as comments: pprof has no other place for numbers of the whole. */
static void read_heap_totals(reader_t *r) {
  const live_heap_totals_t *heap = &r->header->heap;
  const struct {
    const char *name;
    const uint64_t *value;
  } totals[] = {
#define TOTAL(name) {#name, &heap->name},
      LIVE_HEAP_TOTALS(TOTAL)
#undef TOTAL
  };
  for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
    char text[80];
    int len = snprintf(text, sizeof text, "heap_%s: %" PRIu64, totals[i].name,
                       *(const volatile uint64_t *)totals[i].value);
    profile_add_comment(r->profile, profile_string(r->profile, text, (size_t)len));
  }
}

static void read_head(reader_t *r) {
  const live_header_t *h = r->header;
  profile_t *p = r->profile;
  live_type_t type;
  for (uint32_t i = 0; i < r->value_count; i++) {
    type = h->types[i];
    type.type[sizeof type.type - 1] = type.unit[sizeof type.unit - 1] = '\0';
    profile_add_type(p, type.type, type.unit);
  }
  p->default_type = h->default_type < p->type_count ? h->default_type : 0;
  type = h->period_type;
  type.type[sizeof type.type - 1] = type.unit[sizeof type.unit - 1] = '\0';
  p->period_type = (profile_type_t){profile_cstring(p, type.type), profile_cstring(p, type.unit)};
  p->period = h->period;
  p->time_nanos = h->time_nanos;
  p->duration_nanos = atomic_load_explicit(&h->duration_nanos, memory_order_relaxed);
  p->program = read_string(r, atomic_load_explicit(&h->program, memory_order_acquire));
  for (int reason = 0; reason < LOSS_COUNT; reason++)
    p->losses[reason] = atomic_load_explicit(&h->losses[reason], memory_order_relaxed);
  if (r->before != NULL) {
    int64_t earlier = atomic_load_explicit(&r->before->duration_nanos, memory_order_relaxed);
    p->time_nanos =
        (int64_t)((uint64_t)p->time_nanos + (uint64_t)earlier); /* may be corrupt: wraps, never traps */
    p->duration_nanos = (int64_t)((uint64_t)p->duration_nanos - (uint64_t)earlier);
    for (int reason = 0; reason < LOSS_COUNT; reason++)
      p->losses[reason] -= atomic_load_explicit(&r->before->losses[reason], memory_order_relaxed);
  }
  read_comments(r);
  if (r->heap_values > 0) read_heap_totals(r);
}

bool live_save(const live_t *live, live_t *copy) {
  uint64_t used = atomic_load_explicit(&live->header->used, memory_order_acquire);
  if (used < sizeof(live_header_t) || used > live->header->size) return false;
  *copy = (live_t){.header = mem_alloc((size_t)used)};
  if (copy->header == NULL) return false;
  memcpy(copy->header, live->header,
         (size_t)used); /* counters may move meanwhile: each is read whole, once */
  atomic_store_explicit(&copy->header->used, used, memory_order_relaxed);
  return true;
}

profile_t *live_snapshot(const live_t *live, failure_t *failure) {
  return live_snapshot_since(live, NULL, failure);
}

profile_t *live_snapshot_since(const live_t *live, const live_t *before, failure_t *failure) {
  reader_t r = {.header = live->header,
                .before = before ? before->header : NULL,
                .size = *(const volatile uint64_t *)&live->header->size,
                .value_count = *(const volatile uint32_t *)&live->header->value_count,
                .profile = profile_new()};
  if (r.profile == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  uint32_t mode = *(const volatile uint32_t *)&live->header->heap_mode;
  r.heap_first = *(const volatile uint32_t *)&live->header->heap_first;
  r.heap_values = mode <= LIVE_HEAP_TRACED ? (uint32_t)heap_value_count((live_heap_mode_t)mode) : 0;
  r.hidden_count = r.heap_values > 0 ? HIDDEN_COUNT : 0;
  if (r.value_count > PROFILE_MAX_TYPES || r.heap_first > r.value_count ||
      r.heap_values > r.value_count - r.heap_first)
    r.corrupt = true;
  else
    read_head(&r);
  r.traced = trace_is(r.profile);
  if (!r.corrupt && r.heap_values > 0 && !survivors_read(&r.survivors, live->header, r.size, &r.corrupt))
    r.profile->failed = true;
  if (!r.corrupt) read_cells(&r);
  survivors_free(&r.survivors);
  if (!r.corrupt) read_events(&r);
  mem_free(r.functions);
  if (!r.corrupt && profile_ok(r.profile)) return r.profile;
  failure_set(failure,
              r.corrupt ? "the profile tables are corrupt: something overwrote them" : "out of memory");
  profile_free(r.profile);
  return NULL;
}
