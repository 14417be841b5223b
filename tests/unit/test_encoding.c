/* SPDX-License-Identifier: MIT */
/* Names of any bytes, through every encoding. */
#include "format/encoding.h"

#include <stdlib.h>

#include "format/json.h"
#include "unit.h"

typedef struct {
  const char *data;
  size_t len;
} bytes_t;

#define BYTES(literal) \
  { literal, sizeof(literal) - 1 }

static const bytes_t nasty[] = {
    BYTES(""),
    BYTES("plain"),
    BYTES("a;b\nc\rd\te"),
    BYTES("nul\0inside"),
    BYTES("back\\slash \\x3b \\x"),
    BYTES("\xff\xfe\x80"),
    BYTES("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x99"),
    BYTES("cut \xc3"),
    BYTES("cut \xf0\x9f\x8c"),
    BYTES("overlong \xc0\xaf \xe0\x80\xaf"),
    BYTES("surrogate \xed\xa0\x80"),
    BYTES("beyond \xf4\x90\x80\x80"),
    BYTES("private \xee\xbe\x80 \xee\xbf\xbf and before \xee\xbd\xbf"),
    BYTES("\xee\xbe"),
    BYTES("\x1b[31m\x7f"),
};

static char *encode(encoding_t encoding, const char *data, size_t len, size_t *out_len) {
  sink_t *sink = sink_to_memory();
  encoding_write(sink, encoding, data, len);
  const char *bytes = sink_memory(sink, out_len);
  char *copy = malloc(*out_len + 1);
  memcpy(copy, bytes, *out_len);
  copy[*out_len] = '\0';
  sink_close(sink, NULL);
  assert_int_equal(*out_len, encoding_length(encoding, data, len));
  return copy;
}

static void assert_round_trip(encoding_t encoding, const char *data, size_t len) {
  size_t encoded_len;
  char *encoded = encode(encoding, data, len, &encoded_len);
  size_t decoded_len = encoding_decode(encoding, encoded, encoded_len, encoded);
  assert_int_equal(decoded_len, len);
  assert_memory_equal(encoded, data, len);
  free(encoded);
}

static bool is_utf8(const char *data, size_t len) {
  for (size_t at = 0; at < len;) {
    encoding_piece_t piece = encoding_piece(ENCODING_PPROF, data + at, len - at);
    if (piece.taken == 1 && (unsigned char)data[at] >= 0x80) return false;
    at += piece.taken;
  }
  return true;
}

static void any_bytes_come_back_from_pprof_and_folded(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof nasty / sizeof *nasty; i++) {
    assert_round_trip(ENCODING_PPROF, nasty[i].data, nasty[i].len);
    assert_round_trip(ENCODING_FOLDED, nasty[i].data, nasty[i].len);
  }
}

static void random_bytes_come_back_and_are_utf8_in_between(void **state) {
  (void)state;
  unsigned seed = 1;
  for (int round = 0; round < 20000; round++) {
    char data[12];
    size_t len = (size_t)rand_r(&seed) % sizeof data, encoded_len;
    for (size_t i = 0; i < len; i++) { /* mostly from the bytes around the private range */
      static const char often[] = "\xee\xbe\xbf\xbd\x80\xff\\x;(\n";
      data[i] =
          rand_r(&seed) % 3 == 0 ? (char)rand_r(&seed) : often[(size_t)rand_r(&seed) % (sizeof often - 1)];
    }
    assert_round_trip(ENCODING_PPROF, data, len);
    assert_round_trip(ENCODING_FOLDED, data, len);
    char *encoded = encode(ENCODING_PPROF, data, len, &encoded_len);
    assert_true(is_utf8(encoded, encoded_len));
    free(encoded);
  }
}

static void folded_text_has_no_separator_or_control_byte(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof nasty / sizeof *nasty; i++) {
    size_t len;
    char *text = encode(ENCODING_FOLDED, nasty[i].data, nasty[i].len, &len);
    for (size_t at = 0; at < len; at++)
      assert_true((unsigned char)text[at] >= 0x20 && text[at] != ';' && text[at] != 0x7f);
    free(text);
  }
}

static void foreign_backslashes_survive_decoding(void **state) {
  (void)state;
  char text[] = "C:\\xampp\\xab\\lib";
  assert_int_equal(encoding_decode(ENCODING_FOLDED, text, sizeof text - 1, text), sizeof text - 1);
  assert_string_equal(text, "C:\\xampp\\xab\\lib");
}

static void shown_text_cannot_drive_a_terminal(void **state) {
  (void)state;
  size_t len;
  const char name[] =
      "\x1b[2J\xc2\x9b"
      "1m\xff\xe2\x80\xae caf\xc3\xa9";
  char *text = encode(ENCODING_SHOWN, name, sizeof name - 1, &len);
  assert_string_equal(text, "\\x1b[2J\\xc2\\x9b1m\\xff\\xe2\\x80\\xae caf\xc3\xa9");
  free(text);
}

static void json_strings_are_quoted_and_safe_in_a_script(void **state) {
  (void)state;
  sink_t *sink = sink_to_memory();
  const char name[] = "a\"b\\c\n\0</script>\xff";
  json_string(sink, name, sizeof name - 1);
  sink_write(sink, "", 1);
  size_t len;
  assert_string_equal(sink_memory(sink, &len), "\"a\\\"b\\\\c\\\\x0a\\\\x00\\u003c/script\\u003e\\\\xff\"");
  sink_close(sink, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_bytes_come_back_from_pprof_and_folded),
    cmocka_unit_test(random_bytes_come_back_and_are_utf8_in_between),
    cmocka_unit_test(folded_text_has_no_separator_or_control_byte),
    cmocka_unit_test(foreign_backslashes_survive_decoding),
    cmocka_unit_test(shown_text_cannot_drive_a_terminal),
    cmocka_unit_test(json_strings_are_quoted_and_safe_in_a_script),
};
UNIT_MAIN(tests)
