/* SPDX-License-Identifier: MIT */
/* Texts of Redis's libraries; see redis_library.h. Memory may hold anything, and changes meanwhile: what looks like a text only counts
 * where a function fits it. */
#include "attach/redis_library.h"

#include <string.h>
#include <strings.h>
#include <time.h>

#include "attach/clock.h"
#include "attach/proto_words.h"
#include "attach/table.h"
#include "name/definition.h"
#include "profile/mem.h"

enum {
  CHUNK = 1 << 20,
  HEAD = 17,              /* bytes before the text of a string at most */
  FIRST_LINE = 256,       /* "#!lua name=shop" */
  TEXTS = 128,            /* that differ */
  TEXT_BYTES = 2 << 20,   /* of all together */
  SEARCH_NS = 1000000000, /* of processor time: whoever else uses it has no part in what is found */
  SHARE = 500             /* searching may cost 1/500 of the time */
};
static const uint64_t most_bytes = (uint64_t)1 << 30; /* of writable memory searched */

typedef struct {
  char *text;
  size_t len;
} text_t;

struct redis_library {
  text_t texts[TEXTS];
  size_t count, bytes;
  bool whole;          /* all memory was searched, and all texts are kept */
  uint64_t registered; /* mark of the functions in the registry, from before the search; 0: there was none */
  int64_t due;         /* CLOCK_MONOTONIC, ns: not searched again before */
};

redis_library_t *redis_library_new(void) {
  return mem_alloc(sizeof(redis_library_t));
}

static void forget_texts(redis_library_t *r) {
  for (size_t i = 0; i < r->count; i++) mem_free(r->texts[i].text);
  r->count = r->bytes = 0;
}

void redis_library_free(redis_library_t *r) {
  if (r == NULL) return;
  forget_texts(r);
  mem_free(r);
}

bool redis_library_is_source(const char *source, size_t len) {
  static const char name[] = "@user_function";
  return source != NULL && len == sizeof name - 1 && memcmp(source, name, len) == 0;
}

/* -- texts -------------------------------------------------------------------------------------------------------------- */

/* "#!lua name=shop", with what Redis permits. `len`: of what is at hand. */
static bool begins_library(const char *text, size_t len) {
  static const char begin[] = "#!lua", name[] = " name=";
  if (len < sizeof begin || strncasecmp(text, begin, sizeof begin - 1) != 0) return false;
  const char *end = memchr(text, '\n', len < FIRST_LINE ? len : FIRST_LINE);
  return end != NULL && memmem(text, (size_t)(end - text), name, sizeof name - 1) != NULL;
}

/* The length of the string at an address, by what stands before it: length, room and a byte of type, whose lower bits say how wide the
 * two are. 0: it is none. */
static uint64_t string_length(target_t *target, uint64_t at) {
  uint8_t head[HEAD];
  uint64_t len = 0, room = 0;
  if (remote_copy(target->remote, head, at - HEAD, HEAD) != HEAD) return 0;
  uint32_t type = head[HEAD - 1] & 7u;
  if (type < 1 || type > 4) return 0;
  size_t wide = (size_t)1 << (type - 1);
  memcpy(&len, head + HEAD - 1 - 2 * wide, wide); /* the machine is little-endian */
  memcpy(&room, head + HEAD - 1 - wide, wide);
  return len <= room && len <= TEXT_BYTES ? len : 0;
}

static bool is_known(const redis_library_t *r, const char *text, size_t len) {
  for (size_t i = 0; i < r->count; i++)
    if (r->texts[i].len == len && memcmp(r->texts[i].text, text, len) == 0) return true;
  return false;
}

static void keep_text(redis_library_t *r, target_t *target, uint64_t at) {
  size_t len = (size_t)string_length(target, at);
  if (len == 0) return;
  char *text = mem_alloc(len + 1);
  bool is_text = text != NULL && remote_copy(target->remote, text, at, len + 1) == len + 1 &&
                 text[len] == '\0' && memchr(text, '\0', len) == NULL && begins_library(text, len);
  if (text == NULL) r->whole = false;
  if (is_text && !is_known(r, text, len)) {
    if (r->count < TEXTS && r->bytes + len <= TEXT_BYTES) {
      r->texts[r->count++] = (text_t){text, len};
      r->bytes += len;
      return;
    }
    r->whole = false;
  }
  mem_free(text);
}

static void search_chunk(redis_library_t *r, target_t *target, const char *chunk, size_t len, uint64_t at) {
  const char *end = chunk + len;
  for (const char *found = chunk; (found = memchr(found, '#', (size_t)(end - found))) != NULL; found++)
    if (begins_library(found, (size_t)(end - found))) keep_text(r, target, at + (uint64_t)(found - chunk));
}

static int64_t used_now(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* Chunks overlap, so that no first line is cut. */
static void search_map(redis_library_t *r, target_t *target, const map_t *map, char *chunk, uint64_t *bytes,
                       int64_t deadline) {
  for (uint64_t at = map->start; at < map->end;) {
    size_t wanted = map->end - at < CHUNK ? (size_t)(map->end - at) : CHUNK;
    if (*bytes > most_bytes || used_now() > deadline) {
      r->whole = false;
      return;
    }
    size_t got = remote_copy(target->remote, chunk, at, wanted);
    search_chunk(r, target, chunk, got, at);
    *bytes += got;
    if (got <= FIRST_LINE || at + got >= map->end) return;
    at += got - FIRST_LINE;
  }
}

static void search(redis_library_t *r, target_t *target) {
  int64_t start = used_now();
  uint64_t bytes = 0;
  char *chunk = mem_alloc(CHUNK);
  maps_t maps;
  failure_t ignored; /* the process has ended */
  forget_texts(r);
  r->whole = false;
  if (chunk != NULL && maps_read(&maps, target->process.pid, &ignored)) { /* it has grown, maybe */
    r->whole = true;
    for (size_t i = 0; i < maps.count; i++) {
      const map_t *map = &maps.maps[i];
      if (map->readable && map->writable && map->inode == 0)
        search_map(r, target, map, chunk, &bytes, start + SEARCH_NS);
    }
    maps_free(&maps);
  }
  mem_free(chunk);
  r->due = clock_now() + (used_now() - start) * SHARE;
}

/* -- functions ---------------------------------------------------------------------------------------------------------- */

/* Of all VMs: one is for scripts, which registers nothing. */
static uint64_t registered_now(target_t *target, const runtime_t *runtime) {
  uint64_t mark = 0;
  for (size_t i = 0; i < runtime->vms->count; i++) {
    uint64_t registry, functions;
    if (table_registry(target->walk, runtime->vms->vms[i].global, &registry) &&
        table_numbered(target->walk, registry, &functions))
      mark = mark * 31 + functions;
  }
  return mark;
}

static size_t name_in(const redis_library_t *r, walk_t *walk, const walk_proto_t *proto,
                      char name[REDIS_LIBRARY_NAME]) {
  size_t fitting = 0, len = 0;
  for (size_t i = 0; i < r->count; i++) {
    const text_t *t = &r->texts[i];
    char other[REDIS_LIBRARY_NAME];
    size_t begin, end;
    if (!definition_spans(t->text, t->len, (uint32_t)proto->line, (uint32_t)proto->last_line, &begin, &end) ||
        !proto_words_in(walk, proto->proto, t->text + begin, end - begin))
      continue;
    size_t other_len = definition_name(t->text, t->len, (uint32_t)proto->line, other, sizeof other);
    if (fitting++ == 0) memcpy(name, other, (len = other_len) + 1);
    if (other_len != len || memcmp(name, other, len) != 0) return 0;
  }
  return len;
}

static bool is_there(walk_t *walk, uint64_t at, uint32_t mark, walk_proto_t *proto) {
  return walk_proto(walk, at, WALK_GUESS, proto) && walk_mark(walk, proto) == mark && proto->line > 0 &&
         proto->last_line >= proto->line;
}

size_t redis_library_name(redis_library_t *r, target_t *target, const runtime_t *runtime, uint64_t at,
                          uint32_t mark, char name[REDIS_LIBRARY_NAME]) {
  walk_proto_t proto;
  if (runtime->layout == NULL || runtime->vms == NULL || runtime->layout->family != LAYOUT_PUC) return 0;
  remote_forget(target->remote); /* the process runs */
  target_aim(target, runtime->layout, NULL);
  uint64_t registered = registered_now(target, runtime);
  if (registered == 0 || !is_there(target->walk, at, mark, &proto)) return 0;
  if (registered != r->registered || r->due == 0) {
    if (clock_now() < r->due) return 0;
    r->registered = registered;
    search(r, target);
    remote_forget(target->remote);
    if (registered_now(target, runtime) != registered) r->registered = 0; /* loaded meanwhile */
  }
  size_t len = r->whole && r->registered != 0 ? name_in(r, target->walk, &proto, name) : 0;
  remote_forget(target->remote);
  return is_there(target->walk, at, mark, &proto) ? len : 0;
}
