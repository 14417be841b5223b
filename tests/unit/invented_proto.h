/* SPDX-License-Identifier: MIT */
/* Prototypes of Lua 5.3, made up in this very process: what reads other processes reads them, too. */
#ifndef LUAPULSE_TESTS_INVENTED_PROTO_H
#define LUAPULSE_TESTS_INVENTED_PROTO_H

#include <string.h>

#include "walk/walk.h"

enum { CODE = 100, BYTES = 256 };

/* A prototype of Lua 5.3, where it and its parts would be in a VM. */
typedef struct {
  uint8_t proto[BYTES];
  uint8_t source[BYTES];
  uint32_t code[CODE];
  int32_t lines[CODE];
} function_t;

static inline uint64_t address(const void *at) {
  return (uint64_t)(uintptr_t)at;
}

static inline void put(void *to, size_t at, const void *value, size_t size) {
  memcpy((uint8_t *)to + at, value, size);
}

/* Defines it at a line of a text; each instruction is on the line of its number, behind that. At 0: a main chunk, whose lines are from 1 on. */
static inline void define(const layout_t *layout, function_t *f, const char *text, int32_t line) {
  const layout_puc_t *l = &layout->puc;
  uint64_t source = address(f->source), code = address(f->code), lines = address(f->lines),
           len = strlen(text);
  int32_t count = CODE, first = line > 0 ? line : 1, last = line > 0 ? line + CODE : 0;
  memset(f, 0, sizeof *f);
  f->proto[l->proto_tag] = (uint8_t)l->tag_proto;
  put(f->proto, l->proto_source, &source, sizeof source);
  put(f->proto, l->proto_line, &line, sizeof line);
  put(f->proto, l->proto_last_line, &last, sizeof last);
  put(f->proto, l->proto_code, &code, sizeof code);
  put(f->proto, l->proto_code_count, &count, sizeof count);
  put(f->proto, l->proto_lines, &lines, sizeof lines);
  put(f->proto, l->proto_line_count, &count, sizeof count);
  f->source[l->string_tag] = 4 | 16; /* a long string */
  put(f->source, l->string_length, &len, sizeof len);
  put(f->source, l->string_bytes, text, len);
  for (int i = 0; i < CODE; i++) f->lines[i] = first + i;
}

static inline bool read_here(walk_memory_t *memory, void *to, uint64_t from, uint32_t len,
                             walk_trust_t trust) {
  (void)memory;
  (void)trust;
  memcpy(to, (const void *)(uintptr_t)from, len);
  return true;
}

/* As it is now; 0 when there is no prototype. */
static inline uint32_t mark_of(const layout_t *layout, const function_t *f) {
  static walk_t walk;
  static walk_memory_t memory = {.read = read_here};
  walk_proto_t proto;
  walk.layout = layout;
  walk.memory = &memory;
  return walk_proto(&walk, address(f->proto), WALK_GUESS, &proto) ? walk_mark(&walk, &proto) : 0;
}

static inline const layout_t *invented_layout(void) {
  const layout_t *layout, *found = NULL;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    if (layout->family == LAYOUT_PUC && layout->language == 53) found = layout;
  return found;
}

#endif
