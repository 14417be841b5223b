/* SPDX-License-Identifier: MIT */
/* Text encodings; see encoding.h. Every function looks at bytes through utf8_sequence(), the only place that
 * knows what valid UTF-8 is. */
#include "format/encoding.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { PRIVATE_BASE = 0xEF00, PRIVATE_FIRST = 0xEF80, PRIVATE_LAST = 0xEFFF };

/* Length of the valid sequence at the start of data, with its code point; 0 when there is none. Overlong
 * forms, surrogates and what lies beyond U+10FFFF are not valid. */
static size_t utf8_sequence(const unsigned char *data, size_t len, uint32_t *code) {
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  unsigned char lead = data[0];
  *code = lead;
  if (lead < 0x80) return 1;
  size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || len < need) return 0;
  uint32_t value = lead & (0xFFu >> (need + 1));
  for (size_t i = 1; i < need; i++) {
    if ((data[i] & 0xC0) != 0x80) return 0;
    value = value << 6 | (data[i] & 0x3Fu);
  }
  if (value < smallest[need] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  *code = value;
  return need;
}

static void put_escaped(encoding_piece_t *piece, unsigned char byte) {
  static const char digits[] = "0123456789abcdef";
  char text[4] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  memcpy(piece->bytes + piece->len, text, sizeof text);
  piece->len += sizeof text;
  piece->columns += sizeof text;
}

static void put_private(encoding_piece_t *piece, unsigned char byte) {
  uint32_t code = PRIVATE_BASE + (uint32_t)byte;
  piece->bytes[piece->len++] = (char)(0xE0 | code >> 12);
  piece->bytes[piece->len++] = (char)(0x80 | (code >> 6 & 0x3F));
  piece->bytes[piece->len++] = (char)(0x80 | (code & 0x3F));
  piece->columns++;
}

static bool is_control_byte(uint32_t code) {
  return code < 0x20 || code == 0x7F;
}

/* What could drive a terminal or reorder the text around it: control characters, C1 included, and the
 * bidirectional overrides. */
static bool is_unshowable(uint32_t code) {
  return is_control_byte(code) || (code >= 0x80 && code < 0xA0) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

/* The bytes folded text cannot hold as they are. */
static bool is_folded_special(uint32_t code) {
  return is_control_byte(code) || code == '\\' || code == ';';
}

encoding_piece_t encoding_piece(encoding_t encoding, const char *data, size_t len) {
  const unsigned char *bytes = (const unsigned char *)data;
  encoding_piece_t piece = {.len = 0};
  uint32_t code;
  size_t length = utf8_sequence(bytes, len, &code);
  bool invalid = length == 0;
  piece.taken = invalid ? 1 : length;

  bool escape = encoding == ENCODING_SHOWN    ? invalid || is_unshowable(code)
                : encoding == ENCODING_FOLDED ? !invalid && is_folded_special(code)
                                              : false;
  bool private = encoding != ENCODING_SHOWN && (invalid || (code >= PRIVATE_FIRST && code <= PRIVATE_LAST));
  if (escape || private) {
    for (size_t i = 0; i < piece.taken; i++)
      if (escape)
        put_escaped(&piece, bytes[i]);
      else
        put_private(&piece, bytes[i]);
    return piece;
  }
  memcpy(piece.bytes, data, length);
  piece.len = length;
  piece.columns = 1;
  return piece;
}

void encoding_write(sink_t *sink, encoding_t encoding, const char *data, size_t len) {
  size_t plain = 0; /* data[plain .. at) is unchanged by the encoding and not written yet */
  for (size_t at = 0; at < len;) {
    encoding_piece_t piece = encoding_piece(encoding, data + at, len - at);
    if (piece.len != piece.taken) {
      sink_write(sink, data + plain, at - plain);
      sink_write(sink, piece.bytes, piece.len);
      plain = at + piece.taken;
    }
    at += piece.taken;
  }
  sink_write(sink, data + plain, len - plain);
}

size_t encoding_length(encoding_t encoding, const char *data, size_t len) {
  size_t length = 0;
  for (size_t at = 0; at < len;) {
    encoding_piece_t piece = encoding_piece(encoding, data + at, len - at);
    length += piece.len;
    at += piece.taken;
  }
  return length;
}

void encoding_write_escaped(sink_t *sink, char byte) {
  encoding_piece_t piece = {.len = 0};
  put_escaped(&piece, (unsigned char)byte);
  sink_write(sink, piece.bytes, piece.len);
}

static int hex_digit(unsigned char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

/* True with the byte when the text begins with an escape that a folded writer writes. */
static bool folded_escape(const unsigned char *data, size_t len, char *byte) {
  if (len < 4 || data[0] != '\\' || data[1] != 'x') return false;
  int high = hex_digit(data[2]), low = hex_digit(data[3]);
  if (high < 0 || low < 0) return false;
  uint32_t code = (uint32_t)(high << 4 | low);
  *byte = (char)code;
  return is_folded_special(code) || code == ' ' || code == '(';
}

size_t encoding_decode(encoding_t encoding, const char *data, size_t len, char *out) {
  const unsigned char *bytes = (const unsigned char *)data;
  size_t used = 0;
  for (size_t at = 0; at < len;) {
    char byte;
    uint32_t code;
    size_t length = utf8_sequence(bytes + at, len - at, &code);
    if (encoding == ENCODING_FOLDED && folded_escape(bytes + at, len - at, &byte)) {
      out[used++] = byte;
      at += 4;
    } else if (length != 0 && code >= PRIVATE_FIRST && code <= PRIVATE_LAST) {
      out[used++] = (char)(code - PRIVATE_BASE);
      at += length;
    } else {
      size_t step = length == 0 ? 1 : length;
      memmove(out + used, data + at, step);
      used += step;
      at += step;
    }
  }
  return used;
}
