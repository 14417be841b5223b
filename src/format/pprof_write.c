/* SPDX-License-Identifier: MIT */
/* pprof, written: gzip'd protobuf, message by message, so that the encoded profile is never whole in memory.
 *
 * Needs libc and zlib only: this is also the agent's writer. The same profile gives the same bytes. Ids are
 * array positions plus one; strings keep their positions, with two of our own after them. */
#include <errno.h>
#include <string.h>

#include "format/encoding.h"
#include "format/format.h"
#include "format/losses.h"
#include "profile/mem.h"

/* A protobuf message under construction, used again for the next one. Failure is sticky. */
typedef struct {
  char *data;
  size_t used, room;
  bool failed;
} message_t;

typedef struct {
  const profile_t *profile;
  sink_t *sink;
  message_t message, inner, packed; /* a message, a message within it, a packed list within it */
  uint64_t program;                 /* string index of the mapping's file name */
  uint64_t losses;                  /* string index of the losses comment */
} writer_t;

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, VARINT_BYTES = 10 };

/* Field numbers, as in proto/profile.proto. */
enum {
  PROFILE_SAMPLE_TYPE = 1,
  PROFILE_SAMPLE = 2,
  PROFILE_MAPPING = 3,
  PROFILE_LOCATION = 4,
  PROFILE_FUNCTION = 5,
  PROFILE_STRING_TABLE = 6,
  PROFILE_TIME_NANOS = 9,
  PROFILE_DURATION_NANOS = 10,
  PROFILE_PERIOD_TYPE = 11,
  PROFILE_PERIOD = 12,
  PROFILE_COMMENT = 13,
  PROFILE_DEFAULT_SAMPLE_TYPE = 14,
};

/* -- protobuf -------------------------------------------------------------------------------------------- */

static size_t encode_varint(char out[VARINT_BYTES], uint64_t value) {
  size_t used = 0;
  for (; value >= 0x80; value >>= 7) out[used++] = (char)(value | 0x80);
  out[used++] = (char)value;
  return used;
}

static void put_bytes(message_t *m, const void *data, size_t len) {
  if (len == 0 || m->failed) return;
  if (!mem_reserve((void **)&m->data, &m->room, m->used + len, 1)) {
    m->failed = true;
    return;
  }
  memcpy(m->data + m->used, data, len);
  m->used += len;
}

static void put_varint(message_t *m, uint64_t value) {
  char bytes[VARINT_BYTES];
  put_bytes(m, bytes, encode_varint(bytes, value));
}

/* A number field; zero is what a missing field means. */
static void put_number(message_t *m, int field, uint64_t value) {
  if (value == 0) return;
  put_varint(m, (uint64_t)field << 3 | WIRE_VARINT);
  put_varint(m, value);
}

/* Appends `part` as a field of `m` and empties it. */
static void put_message(message_t *m, int field, message_t *part) {
  put_varint(m, (uint64_t)field << 3 | WIRE_BYTES);
  put_varint(m, part->used);
  put_bytes(m, part->data, part->used);
  m->failed |= part->failed;
  part->used = 0;
}

/* -- the profile's own fields ---------------------------------------------------------------------------- */

static void write_head(writer_t *w, int field, size_t len) {
  char bytes[2 * VARINT_BYTES];
  size_t used = encode_varint(bytes, (uint64_t)field << 3 | WIRE_BYTES);
  used += encode_varint(bytes + used, len);
  sink_write(w->sink, bytes, used);
}

static void write_message(writer_t *w, int field) {
  write_head(w, field, w->message.used);
  sink_write(w->sink, w->message.data, w->message.used);
  w->message.used = 0;
}

static void write_number(writer_t *w, int field, uint64_t value) {
  put_number(&w->message, field, value);
  sink_write(w->sink, w->message.data, w->message.used);
  w->message.used = 0;
}

/* The index in the file; PROFILE_NONE, left by a profile that ran out of memory, becomes the empty string. */
static uint64_t string_of(const writer_t *w, uint32_t string) {
  return string < w->profile->string_count ? string : 0;
}

static void write_type(writer_t *w, int field, profile_type_t type) {
  put_number(&w->message, 1, string_of(w, type.type));
  put_number(&w->message, 2, string_of(w, type.unit));
  write_message(w, field);
}

static void put_label(writer_t *w, const profile_label_t *label) {
  put_number(&w->inner, 1, string_of(w, label->key));
  put_number(&w->inner, 2, string_of(w, label->str));
  if (label->str == 0) {
    put_number(&w->inner, 3, (uint64_t)label->num);
    put_number(&w->inner, 4, string_of(w, label->num_unit));
  }
  put_message(&w->message, 3, &w->inner);
}

static void write_sample(writer_t *w, const profile_sample_t *sample) {
  const profile_t *p = w->profile;
  for (uint32_t stack = sample->stack; stack != 0; stack = p->stacks[stack].parent)
    put_varint(&w->packed, (uint64_t)p->stacks[stack].frame + 1);
  if (w->packed.used > 0) put_message(&w->message, 1, &w->packed);
  for (size_t i = 0; i < p->type_count; i++) put_varint(&w->packed, (uint64_t)sample->values[i]);
  put_message(&w->message, 2, &w->packed);
  const profile_label_set_t *set = &p->label_sets[sample->labels];
  for (size_t i = 0; i < set->count; i++) put_label(w, &p->labels[set->first + i]);
  write_message(w, PROFILE_SAMPLE);
}

/* One mapping for everything, said to be symbolised, so that no tool goes looking for a binary. */
static void write_mapping(writer_t *w) {
  put_number(&w->message, 1, 1);
  put_number(&w->message, 5, w->program);
  put_number(&w->message, 7, 1); /* has_functions, has_filenames, has_line_numbers */
  put_number(&w->message, 8, 1);
  put_number(&w->message, 9, 1);
  write_message(w, PROFILE_MAPPING);
}

static void write_location(writer_t *w, size_t frame) {
  const profile_frame_t *f = &w->profile->frames[frame];
  put_number(&w->inner, 1, (uint64_t)f->function + 1);
  put_number(&w->inner, 2, (uint64_t)f->line);
  put_number(&w->message, 1, frame + 1);
  put_number(&w->message, 2, 1);
  put_message(&w->message, 4, &w->inner);
  write_message(w, PROFILE_LOCATION);
}

static void write_function(writer_t *w, size_t function) {
  const profile_function_t *f = &w->profile->functions[function];
  put_number(&w->message, 1, function + 1);
  put_number(&w->message, 2, string_of(w, f->name));
  put_number(&w->message, 3, string_of(w, f->system_name));
  put_number(&w->message, 4, string_of(w, f->file));
  put_number(&w->message, 5, (uint64_t)f->start_line);
  write_message(w, PROFILE_FUNCTION);
}

static void write_string(writer_t *w, const char *data, size_t len) {
  write_head(w, PROFILE_STRING_TABLE, encoding_length(ENCODING_PPROF, data, len));
  encoding_write(w->sink, ENCODING_PPROF, data, len);
}

static void write_strings(writer_t *w) {
  const profile_t *p = w->profile;
  char losses[LOSSES_LINE_BYTES];
  for (size_t i = 0; i < p->string_count; i++) write_string(w, p->strings[i].data, p->strings[i].len);
  losses_line(p, losses);
  write_string(w, losses, strlen(losses));
  if (w->program == w->losses + 1) write_string(w, "lua", 3);
}

static void write_comments(writer_t *w) {
  for (size_t i = 0; i < w->profile->comment_count; i++)
    put_varint(&w->message, string_of(w, w->profile->comments[i]));
  put_varint(&w->message, w->losses);
  write_message(w, PROFILE_COMMENT);
}

static void write_profile(writer_t *w) {
  const profile_t *p = w->profile;
  w->losses = p->string_count;
  w->program = string_of(w, p->program) != 0 ? p->program : w->losses + 1;
  for (size_t i = 0; i < p->type_count; i++) write_type(w, PROFILE_SAMPLE_TYPE, p->types[i]);
  for (size_t i = 0; i < p->sample_count; i++)
    if (!profile_sample_is_zero(p, &p->samples[i])) write_sample(w, &p->samples[i]);
  write_mapping(w);
  for (size_t i = 0; i < p->frame_count; i++) write_location(w, i);
  for (size_t i = 0; i < p->function_count; i++) write_function(w, i);
  write_strings(w);
  write_number(w, PROFILE_TIME_NANOS, (uint64_t)p->time_nanos);
  write_number(w, PROFILE_DURATION_NANOS, (uint64_t)p->duration_nanos);
  if (p->period_type.type != 0 || p->period_type.unit != 0)
    write_type(w, PROFILE_PERIOD_TYPE, p->period_type);
  write_number(w, PROFILE_PERIOD, (uint64_t)p->period);
  write_comments(w);
  if (p->default_type < p->type_count)
    write_number(w, PROFILE_DEFAULT_SAMPLE_TYPE, string_of(w, p->types[p->default_type].type));
}

void pprof_write(const profile_t *profile, sink_t *sink) {
  writer_t w = {.profile = profile, .sink = sink_gzip(sink)};
  if (w.sink == NULL) {
    sink_fail(sink, ENOMEM);
    return;
  }
  write_profile(&w);
  if (w.message.failed || w.inner.failed || w.packed.failed) sink_fail(sink, ENOMEM);
  if (!sink_close(w.sink, NULL)) sink_fail(sink, EIO);
  mem_free(w.message.data);
  mem_free(w.inner.data);
  mem_free(w.packed.data);
}
