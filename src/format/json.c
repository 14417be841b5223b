/* SPDX-License-Identifier: MIT */
/* JSON strings; see json.h. */
#include "format/json.h"

#include "format/encoding.h"

static const char *escape_of(char character) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '<':
      return "\\u003c";
    case '>':
      return "\\u003e";
    case '&':
      return "\\u0026";
    default:
      return NULL;
  }
}

void json_string(sink_t *sink, const char *data, size_t len) {
  sink_write(sink, "\"", 1);
  for (size_t at = 0; at < len;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, data + at, len - at);
    size_t plain = 0;
    for (size_t i = 0; i < piece.len; i++) {
      const char *escape = escape_of(piece.bytes[i]);
      if (escape == NULL) continue;
      sink_write(sink, piece.bytes + plain, i - plain);
      sink_text(sink, escape);
      plain = i + 1;
    }
    sink_write(sink, piece.bytes + plain, piece.len - plain);
    at += piece.taken;
  }
  sink_write(sink, "\"", 1);
}
