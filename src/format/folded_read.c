/* SPDX-License-Identifier: MIT */
/* Folded stacks, read: ours (see folded.h) and anybody's `a;b;c N`. Other people's files have no header:
 * their values are samples, counted. */
#include "format/folded.h"

#include <inttypes.h>
#include <string.h>

#include "format/encoding.h"
#include "format/losses.h"
#include "format/read.h"
#include "profile/mem.h"

typedef struct {
  profile_t *profile;
  failure_t *failure;
  char *scratch; /* room for the longest line, decoded */
  size_t room;
  size_t line; /* number of the line at hand, from 1 */
  bool has_header;
} reader_t;

/* A position from the end, or NULL. */
static const char *last_of(const char *data, size_t len, const char *pair) {
  for (size_t i = len; i-- > 1;)
    if (data[i - 1] == pair[0] && data[i] == pair[1]) return data + i - 1;
  return NULL;
}

/* The whole of data[0 .. len) as a number, a fraction rounded to the nearest. */
static bool parse_number(const char *data, size_t len, bool fraction, int64_t *number) {
  size_t i = 0;
  bool negative = len > 0 && data[0] == '-', round_up = false;
  uint64_t value = 0, largest = (uint64_t)INT64_MAX + (negative ? 1 : 0);
  if (negative) i++;
  if (i == len || data[i] < '0' || data[i] > '9') return false;
  for (; i < len && data[i] >= '0' && data[i] <= '9'; i++) {
    uint64_t digit = (uint64_t)(data[i] - '0');
    if (value > (largest - digit) / 10) return false;
    value = value * 10 + digit;
  }
  if (fraction && i < len && data[i] == '.') {
    i++;
    round_up = i < len && data[i] >= '5' && value < largest;
    while (i < len && data[i] >= '0' && data[i] <= '9') i++;
  }
  if (round_up) value++;
  *number = (int64_t)(negative ? -value : value);
  return i == len;
}

static uint32_t decode(reader_t *r, const char *data, size_t len) {
  return profile_string(r->profile, r->scratch, encoding_decode(ENCODING_FOLDED, data, len, r->scratch));
}

/* Adds one frame; the part in parentheses is taken off when it reads as a file and a line. */
static uint32_t read_frame(reader_t *r, uint32_t stack, const char *data, size_t len) {
  profile_function_t function = {.start_line = 0};
  size_t name = len;
  int64_t line = 0;
  const char *part = len > 0 && data[len - 1] == ')' ? last_of(data, len, " (") : NULL;
  if (part != NULL) {
    const char *file = part + 2, *end = data + len - 1;
    const char *colon = memrchr(file, ':', (size_t)(end - file));
    if (colon != NULL && parse_number(colon + 1, (size_t)(end - colon - 1), false, &line)) {
      name = (size_t)(part - data);
      function.file = decode(r, file, (size_t)(colon - file));
    }
  }
  function.name = function.system_name = decode(r, data, name);
  return profile_stack(r->profile, stack,
                       profile_frame(r->profile, profile_function(r->profile, function), line));
}

static void read_stack(reader_t *r, const char *data, size_t len, int64_t value) {
  uint32_t stack = 0;
  if (r->profile->type_count == 0) profile_add_type(r->profile, "samples", "count");
  for (const char *at = data, *end = data + len; len > 0 && at <= end;) {
    const char *semicolon = memchr(at, ';', (size_t)(end - at));
    if (semicolon == NULL) semicolon = end;
    stack = read_frame(r, stack, at, (size_t)(semicolon - at));
    at = semicolon + 1;
  }
  profile_add(r->profile, stack, 0, &value);
}

/* -- comments -------------------------------------------------------------------------------------------- */

static void read_header(reader_t *r, const char *data, size_t len) {
  profile_t *p = r->profile;
  if (p->type_count > 0) return; /* a second header, or one below the stacks */
  for (const char *at = data, *end = data + len; at < end;) {
    const char *space = memchr(at, ' ', (size_t)(end - at));
    if (space == NULL) space = end;
    const char *equals = memchr(at, '=', (size_t)(space - at));
    size_t key = equals != NULL ? (size_t)(equals - at) : 0;
    uint32_t *to = key == 4 && memcmp(at, "type", key) == 0      ? &p->types[0].type
                   : key == 4 && memcmp(at, "unit", key) == 0    ? &p->types[0].unit
                   : key == 7 && memcmp(at, "program", key) == 0 ? &p->program
                                                                 : NULL;
    if (to != NULL) *to = decode(r, equals + 1, (size_t)(space - equals - 1));
    at = space + 1;
  }
  p->type_count = 1;
  r->has_header = true;
}

static void read_comment(reader_t *r, const char *data, size_t len) {
  static const char header[] = FOLDED_HEADER;
  while (len > 0 && (*data == '#' || *data == ' ')) {
    data++;
    len--;
  }
  if (len >= sizeof header - 1 && memcmp(data, header, sizeof header - 1) == 0)
    read_header(r, data + sizeof header - 1, len - (sizeof header - 1));
  else if (len > 0 && !losses_parse(data, len, r->profile->losses))
    profile_add_comment(r->profile, decode(r, data, len));
}

/* -- the whole ------------------------------------------------------------------------------------------- */

static bool read_line(reader_t *r, const char *data, size_t len) {
  int64_t value;
  while (len > 0 && (data[len - 1] == '\r' || data[len - 1] == ' ' || data[len - 1] == '\t')) len--;
  if (len == 0) return true;
  if (!mem_reserve((void **)&r->scratch, &r->room, len, 1)) return failure_set(r->failure, "out of memory");
  size_t stack = len;
  while (stack > 0 && data[stack - 1] != ' ' && data[stack - 1] != '\t') stack--;
  if (stack > 0 && parse_number(data + stack, len - stack, true, &value))
    read_stack(r, data, stack - 1, value);
  else if (data[0] == '#')
    read_comment(r, data, len);
  else
    return failure_set(r->failure, "line %zu does not end in a count: it is neither pprof nor folded stacks",
                       r->line);
  return profile_ok(r->profile) || failure_set(r->failure, "out of memory");
}

profile_t *folded_read(const char *data, size_t len, failure_t *failure) {
  reader_t r = {.profile = profile_new(), .failure = failure};
  bool done = true;
  if (r.profile == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  for (const char *at = data, *end = data + len; done && at < end;) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (newline == NULL) newline = end;
    r.line++;
    done = read_line(&r, at, (size_t)(newline - at));
    at = newline + 1;
  }
  if (done && !r.has_header && r.profile->sample_count == 0)
    done = failure_set(failure, "it holds no stack: it is neither pprof nor folded stacks");
  mem_free(r.scratch);
  if (done) return r.profile;
  profile_free(r.profile);
  return NULL;
}
