/* SPDX-License-Identifier: MIT */
/* Words of a prototype; see proto_words.h. Every read may fail and every number may be anything. */
#include "attach/proto_words.h"

#include <ctype.h>
#include <string.h>

#include "attach/table.h"
#include "walk/bytes.h"

enum { MOST = 512 /* constants, and variables */, WORD = 64, SLOT = 16 };

static bool is_part(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* False for what cannot be read, and when the text has not got it. What is no identifier, or cut, is in any text: escapes hide it. */
static bool is_in(walk_t *walk, uint64_t string, const char *text, size_t len) {
  char word[WORD];
  size_t size;
  if (string == 0 || (string & 7) != 0 || !walk_string(walk, string, word, sizeof word, &size)) return false;
  if (size == 0 || size >= sizeof word || isdigit((unsigned char)word[0])) return true;
  if (size == 4 && memcmp(word, "self", 4) == 0) return true; /* of `function M:f()` */
  for (size_t i = 0; i < size; i++)
    if (!is_part(word[i])) return true;
  const char *end = text + len;
  for (const char *at = text; (at = memmem(at, (size_t)(end - at), word, size)) != NULL; at++)
    if ((at == text || !is_part(at[-1])) && (at + size == end || !is_part(at[size]))) return true;
  return false;
}

bool proto_words_in(walk_t *walk, uint64_t proto, const char *text, size_t len) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[WALK_BUFFER], local[LAYOUT_LOCAL_BYTES];
  if (walk->layout->family != LAYOUT_PUC || l->proto_constants == LAYOUT_ABSENT ||
      l->proto_constant_count == LAYOUT_ABSENT || l->proto_locals == LAYOUT_ABSENT ||
      l->proto_local_count == LAYOUT_ABSENT || l->local_size == LAYOUT_ABSENT ||
      l->local_name == LAYOUT_ABSENT || l->proto_size > sizeof bytes || l->local_size > sizeof local ||
      !walk_read(walk->memory, bytes, proto, l->proto_size, WALK_GUESS))
    return false;
  uint64_t constants = bytes_u64(bytes, l->proto_constants), locals = bytes_u64(bytes, l->proto_locals);
  uint32_t constant_count = bytes_u32(bytes, l->proto_constant_count),
           local_count = bytes_u32(bytes, l->proto_local_count);
  for (uint32_t i = 0; i < constant_count && i < MOST; i++) {
    value_t value;
    if (!table_value(walk, constants + (uint64_t)i * SLOT, &value)) return false;
    if (value.kind == VALUE_STRING && !is_in(walk, value.at, text, len)) return false;
  }
  for (uint32_t i = 0; i < local_count && i < MOST; i++)
    if (!walk_read(walk->memory, local, locals + (uint64_t)i * l->local_size, l->local_size, WALK_GUESS) ||
        !is_in(walk, bytes_u64(local, l->local_name), text, len))
      return false;
  return true;
}
