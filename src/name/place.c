/* SPDX-License-Identifier: MIT */
/* Places as texts; see place.h. */
#include "name/place.h"

#include <string.h>

enum { SHOWN_CHUNK = 40 /* bytes of a text's first line */ };

/* As Lua shows a chunk that came from a string. */
static place_t file_of_chunk(const char *text, size_t len, char out[PLACE_CHUNK]) {
  static const char begin[] = "[string \"", dots[] = "...", end[] = "\"]";
  size_t line = 0, used = 0;
  while (line < len && text[line] != '\n') line++;
  size_t shown = line < SHOWN_CHUNK ? line : SHOWN_CHUNK;
  memcpy(out, begin, sizeof begin - 1);
  used = sizeof begin - 1;
  memcpy(out + used, text, shown);
  used += shown;
  if (shown < len) {
    memcpy(out + used, dots, sizeof dots - 1);
    used += sizeof dots - 1;
  }
  memcpy(out + used, end, sizeof end - 1);
  return (place_t){out, used + sizeof end - 1};
}

place_t place_file(const char *source, size_t len, char chunk[PLACE_CHUNK]) {
  if (len == 0) return (place_t){"?", 1};
  if (source[0] != '@' && source[0] != '=') return file_of_chunk(source, len, chunk);
  return (place_t){source + 1, len - 1 < PLACE_FILE ? len - 1 : PLACE_FILE};
}

size_t place_name(place_t file, int32_t line, char name[PLACE_NAME]) {
  char digits[12];
  size_t count = 0,
         len = file.len < PLACE_NAME - 16 ? file.len : PLACE_NAME - 16; /* the end of a long path says more */
  memcpy(name, file.bytes + (file.len - len), len);
  name[len++] = ':';
  for (uint32_t n = line > 0 ? (uint32_t)line : 0; count == 0 || n > 0; n /= 10)
    digits[count++] = (char)('0' + n % 10);
  while (count > 0) name[len++] = digits[--count];
  return len;
}
