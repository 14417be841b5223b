/* SPDX-License-Identifier: MIT */
/* Names in files: Lua's names are bytes, most formats want UTF-8 or a line of text. Two encodings are
 * reversible byte for byte, the third is for people. No memory is allocated.
 *
 * The reversible ones map a byte that is no part of valid UTF-8 to the private character U+EF00 + byte. The
 * bytes of a real U+EF80 .. U+EFFF are mapped likewise, so that no two texts meet in one. */
#ifndef LUAPULSE_FORMAT_ENCODING_H
#define LUAPULSE_FORMAT_ENCODING_H

#include <stddef.h>

#include "format/sink.h"

typedef enum {
  ENCODING_PPROF,  /* valid UTF-8 */
  ENCODING_FOLDED, /* valid UTF-8 on one line: backslash, semicolon and control bytes become \xHH as well */
  ENCODING_SHOWN, /* for people and terminals, one way: what is invalid or a control character becomes \xHH */
} encoding_t;

enum { ENCODING_PIECE_BYTES = 16 };

typedef struct {
  char bytes[ENCODING_PIECE_BYTES];
  size_t len;     /* of bytes */
  size_t taken;   /* bytes of input this piece stands for, at least 1 */
  size_t columns; /* characters in bytes, as a terminal counts them (wide ones count as one) */
} encoding_piece_t;

/* The first character of a text that is not empty. */
encoding_piece_t encoding_piece(encoding_t encoding, const char *data, size_t len);

void encoding_write(sink_t *sink, encoding_t encoding, const char *data, size_t len);
/* How many bytes encoding_write() writes. */
size_t encoding_length(encoding_t encoding, const char *data, size_t len);
/* One byte as \xHH: for a format that must hide one more character. The folded decoder reverses it for the
 * space and the opening parenthesis too. */
void encoding_write_escaped(sink_t *sink, char byte);

/* Reverses PPROF or FOLDED. Never longer than the input: `out` has room for len bytes and may be `data`
 * itself. Escapes that the writer would not write stay as they are, so that foreign names survive. */
size_t encoding_decode(encoding_t encoding, const char *data, size_t len, char *out);

#endif
