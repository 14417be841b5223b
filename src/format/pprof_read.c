/* SPDX-License-Identifier: MIT */
/* pprof, read: any pprof file, ours or another's. protobuf-c takes the bytes apart; here every index is
 * checked before it is used, and everything is interned into a new profile.
 *
 * A few bytes may ask for much: a sample repeats a location of many inlined calls, a message of two bytes takes a hundred of
 * memory. So what a file may take is limited by its size.
 *
 * Not kept: addresses and mappings beyond the first one's file name, columns, and drop_frames / keep_frames,
 * which `go tool pprof` applies and we do not. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/encoding.h"
#include "format/losses.h"
#include "format/pprof_read_ids.h"
#include "format/read.h"
#include "profile.pb-c.h"
#include "profile/mem.h"

enum {
  MOST_FRAMES = 65536,   /* of a sample */
  FREE_FRAMES = 1 << 20, /* of all samples; to that come so many for each byte of the file: */
  FRAMES_PER_BYTE = 4,   /* a location's number takes one or two, and inlined calls are some to a location */
  MOST_LABELS = 1024,    /* of a sample */
  FREE_BYTES = 1 << 20,  /* that messages may take; to that come so many for each byte of the file: */
  BYTES_PER_BYTE = 32    /* the smallest that mean anything take about 20 */
};

typedef struct {
  uint32_t first, count; /* into reader_t.frames, innermost first: inlined calls share a location */
} location_t;

typedef struct {
  Pprof__Profile *file;
  profile_t *profile;
  failure_t *failure;
  uint32_t *strings;   /* string of the file -> of the profile */
  uint32_t *functions; /* position of a function message -> function of the profile */
  location_t *locations;
  uint32_t *frames;
  profile_label_t *labels; /* of the sample at hand */
  size_t label_room;
  size_t frames_left; /* that its samples may have */
  pprof_ids_t mapping_ids, location_ids, function_ids;
} reader_t;

static bool out_of_memory(const reader_t *r) {
  return failure_set(r->failure, "out of memory");
}

/* -- strings and types ----------------------------------------------------------------------------------- */

static bool read_strings(reader_t *r) {
  size_t count = r->file->n_string_table;
  if (count == 0 || r->file->string_table[0].len != 0)
    return failure_set(r->failure, "its string table does not begin with the empty string");
  r->strings = mem_alloc(count * sizeof *r->strings);
  if (r->strings == NULL) return out_of_memory(r);
  for (size_t i = 0; i < count; i++) {
    char *data = (char *)r->file->string_table[i].data;
    if (r->file->string_table[i].len == 0) continue; /* string 0 */
    size_t len = encoding_decode(ENCODING_PPROF, data, r->file->string_table[i].len, data);
    r->strings[i] = profile_string(r->profile, data, len);
  }
  return true;
}

static bool read_string(const reader_t *r, int64_t index, const char *what, size_t number, uint32_t *string) {
  if (r->strings == NULL || index < 0 || (uint64_t)index >= r->file->n_string_table)
    return failure_set(r->failure, "%s %zu names string %" PRId64 ", which is not there", what, number,
                       index);
  *string = r->strings[index];
  return true;
}

static bool read_type(const reader_t *r, const Pprof__ValueType *from, const char *what, size_t number,
                      profile_type_t *type) {
  return read_string(r, from->type, what, number, &type->type) &&
         read_string(r, from->unit, what, number, &type->unit);
}

static bool read_types(reader_t *r) {
  const Pprof__Profile *file = r->file;
  profile_t *p = r->profile;
  if (file->n_sample_type == 0) return failure_set(r->failure, "it has no sample type");
  if (file->n_sample_type > PROFILE_MAX_TYPES)
    return failure_set(r->failure, "it has %zu sample types; %d can be read", file->n_sample_type,
                       PROFILE_MAX_TYPES);
  uint32_t chosen = 0;
  if (!read_string(r, file->default_sample_type, "default sample type", 1, &chosen)) return false;
  p->type_count = file->n_sample_type;
  p->default_type = p->type_count - 1; /* as pprof does when none is named */
  for (size_t i = 0; i < p->type_count; i++)
    if (!read_type(r, file->sample_type[i], "sample type", i + 1, &p->types[i])) return false;
  for (size_t i = p->type_count; i-- > 0;)
    if (chosen != 0 && p->types[i].type == chosen) p->default_type = i;
  return file->period_type == NULL || read_type(r, file->period_type, "period type", 1, &p->period_type);
}

static bool read_head(reader_t *r) {
  const Pprof__Profile *file = r->file;
  profile_t *p = r->profile;
  p->time_nanos = file->time_nanos;
  p->duration_nanos = file->duration_nanos;
  p->period = file->period;
  for (size_t i = 0; i < file->n_comment; i++) {
    uint32_t comment = 0;
    if (!read_string(r, file->comment[i], "comment", i + 1, &comment)) return false;
    text_t text = profile_text(p, comment);
    if (!losses_parse(text.data, text.len, p->losses)) profile_add_comment(p, comment);
  }
  if (file->n_mapping == 0) return true;
  return read_string(r, file->mapping[0]->filename, "mapping", 1, &p->program);
}

/* -- mappings, functions, locations ---------------------------------------------------------------------- */

/* Each of the three kinds of messages with ids: the ids in order of position, handed to pprof_ids_build(). */
#define BUILD_IDS(r, kind) \
  build_ids(r, &(r)->kind##_ids, (void **)(r)->file->kind, (r)->file->n_##kind, #kind, kind##_id)

static uint64_t mapping_id(const void *message) {
  return ((const Pprof__Mapping *)message)->id;
}

static uint64_t location_id(const void *message) {
  return ((const Pprof__Location *)message)->id;
}

static uint64_t function_id(const void *message) {
  return ((const Pprof__Function *)message)->id;
}

static bool build_ids(reader_t *r, pprof_ids_t *ids, void **messages, size_t count, const char *what,
                      uint64_t (*id_of)(const void *message)) {
  if (count == 0) return true;
  if (count >= UINT32_MAX) return failure_set(r->failure, "it has more %ss than can be read", what);
  pprof_id_t *entries = mem_alloc(count * sizeof *entries);
  if (entries == NULL) return out_of_memory(r);
  for (size_t i = 0; i < count; i++) entries[i] = (pprof_id_t){id_of(messages[i]), (uint32_t)i};
  return pprof_ids_build(ids, entries, count, what, r->failure);
}

static bool read_functions(reader_t *r) {
  if (!BUILD_IDS(r, function)) return false;
  r->functions = mem_alloc((r->file->n_function + 1) * sizeof *r->functions);
  if (r->functions == NULL) return out_of_memory(r);
  for (size_t i = 0; i < r->file->n_function; i++) {
    const Pprof__Function *from = r->file->function[i];
    profile_function_t function = {.start_line = from->start_line};
    if (!read_string(r, from->name, "function", i + 1, &function.name) ||
        !read_string(r, from->system_name, "function", i + 1, &function.system_name) ||
        !read_string(r, from->filename, "function", i + 1, &function.file))
      return false;
    r->functions[i] = profile_function(r->profile, function);
  }
  return true;
}

/* A frame for code nobody named: its address and the base name of the file mapped there. */
static bool read_nameless(reader_t *r, const Pprof__Location *from, size_t number, uint32_t *frame) {
  char name[300];
  int used = snprintf(name, sizeof name, "0x%" PRIx64, from->address);
  if (from->mapping_id != 0) {
    uint32_t file = 0;
    const Pprof__Mapping *mapping = r->file->mapping[pprof_ids_find(&r->mapping_ids, from->mapping_id)];
    if (!read_string(r, mapping->filename, "the mapping of location", number, &file)) return false;
    text_t path = profile_text(r->profile, file);
    const char *slash = memrchr(path.data, '/', path.len);
    const char *base = slash != NULL ? slash + 1 : path.data;
    if (*base != '\0') used += snprintf(name + used, sizeof name - (size_t)used, " [%.255s]", base);
  }
  uint32_t string = profile_string(r->profile, name, (size_t)used);
  uint32_t function =
      profile_function(r->profile, (profile_function_t){.name = string, .system_name = string});
  *frame = profile_frame(r->profile, function, 0);
  return true;
}

static bool read_location(reader_t *r, size_t position) {
  const Pprof__Location *from = r->file->location[position];
  location_t *location = &r->locations[position];
  if (from->mapping_id != 0 && pprof_ids_find(&r->mapping_ids, from->mapping_id) == UINT32_MAX)
    return failure_set(r->failure, "location %" PRIu64 " names mapping %" PRIu64 ", which is not there",
                       from->id, from->mapping_id);
  location->count = from->n_line > 0 ? (uint32_t)from->n_line : 1;
  if (from->n_line == 0) return read_nameless(r, from, position + 1, &r->frames[location->first]);
  for (size_t i = 0; i < from->n_line; i++) {
    uint32_t *frame = &r->frames[location->first + i];
    const Pprof__Line *line = from->line[i];
    if (line->function_id == 0) {
      if (!read_nameless(r, from, position + 1, frame)) return false;
      continue;
    }
    uint32_t at = pprof_ids_find(&r->function_ids, line->function_id);
    if (at == UINT32_MAX)
      return failure_set(r->failure, "location %" PRIu64 " names function %" PRIu64 ", which is not there",
                         from->id, line->function_id);
    *frame = profile_frame(r->profile, r->functions[at], line->line);
  }
  return true;
}

static bool read_locations(reader_t *r) {
  if (!BUILD_IDS(r, mapping) || !BUILD_IDS(r, location)) return false;
  size_t frames = 0;
  r->locations = mem_alloc((r->file->n_location + 1) * sizeof *r->locations);
  if (r->locations == NULL) return out_of_memory(r);
  for (size_t i = 0; i < r->file->n_location; i++) {
    r->locations[i].first = (uint32_t)frames;
    frames += r->file->location[i]->n_line > 0 ? r->file->location[i]->n_line : 1;
  }
  if (frames >= UINT32_MAX) return failure_set(r->failure, "it has more lines than can be read");
  r->frames = mem_alloc((frames + 1) * sizeof *r->frames);
  if (r->frames == NULL) return out_of_memory(r);
  for (size_t i = 0; i < r->file->n_location; i++)
    if (!read_location(r, i)) return false;
  return true;
}

/* -- samples --------------------------------------------------------------------------------------------- */

static bool read_labels(reader_t *r, const Pprof__Sample *from, size_t number, uint32_t *set) {
  *set = 0;
  if (from->n_label == 0) return true;
  if (from->n_label > MOST_LABELS)
    return failure_set(r->failure, "sample %zu has %zu labels; %d can be read", number, from->n_label,
                       MOST_LABELS);
  if (!mem_reserve((void **)&r->labels, &r->label_room, from->n_label, sizeof *r->labels))
    return out_of_memory(r);
  for (size_t i = 0; i < from->n_label; i++) {
    const Pprof__Label *label = from->label[i];
    profile_label_t *to = &r->labels[i];
    if (!read_string(r, label->key, "a label of sample", number, &to->key) ||
        !read_string(r, label->str, "a label of sample", number, &to->str) ||
        !read_string(r, label->num_unit, "a label of sample", number, &to->num_unit))
      return false;
    to->num = to->str == 0 ? label->num : 0;
    if (to->str != 0) to->num_unit = 0;
  }
  *set = profile_label_set(r->profile, r->labels, from->n_label);
  return true;
}

static bool count_frames(reader_t *r, size_t *frames, uint32_t more, size_t number) {
  *frames += more;
  if (*frames > MOST_FRAMES)
    return failure_set(r->failure, "sample %zu has more than %d frames, the most that can be read", number,
                       MOST_FRAMES);
  if (more > r->frames_left)
    return failure_set(r->failure, "its samples have more frames than a file of its size may have");
  r->frames_left -= more;
  return true;
}

static bool read_sample(reader_t *r, const Pprof__Sample *from, size_t number) {
  if (from->n_value != r->profile->type_count)
    return failure_set(r->failure, "sample %zu has %zu values for %zu sample types", number, from->n_value,
                       r->profile->type_count);
  uint32_t stack = 0, labels;
  size_t frames = 0;
  for (size_t i = from->n_location_id; i-- > 0 && profile_ok(r->profile);) { /* outermost first */
    uint32_t at = pprof_ids_find(&r->location_ids, from->location_id[i]);
    if (at == UINT32_MAX)
      return failure_set(r->failure, "sample %zu names location %" PRIu64 ", which is not there", number,
                         from->location_id[i]);
    if (!count_frames(r, &frames, r->locations[at].count, number)) return false;
    for (size_t line = r->locations[at].count; line-- > 0;)
      stack = profile_stack(r->profile, stack, r->frames[r->locations[at].first + line]);
  }
  if (!read_labels(r, from, number, &labels)) return false;
  profile_add(r->profile, stack, labels, from->value);
  return true;
}

static bool read_all(reader_t *r) {
  if (!read_strings(r) || !read_types(r) || !read_head(r) || !read_functions(r) || !read_locations(r))
    return false;
  for (size_t i = 0; i < r->file->n_sample && profile_ok(r->profile); i++)
    if (!read_sample(r, r->file->sample[i], i + 1)) return false;
  return profile_ok(r->profile) || out_of_memory(r);
}

/* -- the whole ------------------------------------------------------------------------------------------- */

typedef struct {
  size_t left; /* bytes that may still be taken; what is given back in between does not count */
  bool too_many, ran_out;
} unpack_t;

static void *unpack_alloc(void *context, size_t size) {
  unpack_t *unpack = context;
  unpack->too_many = unpack->too_many || size > unpack->left;
  if (unpack->too_many) return NULL;
  unpack->left -= size;
  void *block = mem_realloc(NULL, size);
  if (block == NULL) unpack->ran_out = true;
  return block;
}

static void unpack_free(void *context, void *block) {
  (void)context;
  mem_free(block);
}

profile_t *pprof_read(const char *data, size_t len, failure_t *failure) {
  unpack_t unpack = {.left = len < SIZE_MAX / BYTES_PER_BYTE / 2 ? FREE_BYTES + len * BYTES_PER_BYTE : 0};
  ProtobufCAllocator allocator = {unpack_alloc, unpack_free, &unpack};
  reader_t r = {
      .failure = failure, .profile = profile_new(), .frames_left = FREE_FRAMES + FRAMES_PER_BYTE * len};
  bool done = false;
  if (r.profile != NULL) r.file = pprof__profile__unpack(&allocator, len, (const uint8_t *)data);
  if (r.profile == NULL || unpack.ran_out)
    out_of_memory(&r);
  else if (unpack.too_many)
    failure_set(failure, "its messages take more memory than those of a file of its size may");
  else if (r.file == NULL)
    failure_set(failure, "it is no pprof profile, or cut short");
  else
    done = read_all(&r);

  if (r.file != NULL) pprof__profile__free_unpacked(r.file, &allocator);
  pprof_ids_free(&r.mapping_ids);
  pprof_ids_free(&r.location_ids);
  pprof_ids_free(&r.function_ids);
  mem_free(r.strings);
  mem_free(r.functions);
  mem_free(r.locations);
  mem_free(r.frames);
  mem_free(r.labels);
  if (done) return r.profile;
  profile_free(r.profile);
  return NULL;
}
