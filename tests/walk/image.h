/* SPDX-License-Identifier: MIT */
/* Recorded memory: what a walk of a real process read, the registers it began with and the stack it has to find.
 *
 * An image is a gzip file (zcat shows it): lines of text up to "data", then the bytes of all ranges in order. record.c
 * writes images, the unit tests replay them: image_memory_t reads the recorded ranges and nothing else. */
#ifndef LUAPULSE_TESTS_WALK_IMAGE_H
#define LUAPULSE_TESTS_WALK_IMAGE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "walk/registers.h"
#include "walk/walk.h"

enum {
  IMAGE_MAX_FRAMES = WALK_MAX_FRAMES,
  IMAGE_MAX_RANGES = 8192,
  IMAGE_MAX_BYTES = 1 << 20,
  IMAGE_LINE = 64, /* ranges begin and end at multiples */
  IMAGE_FRAME_TEXT = 192,
  IMAGE_MAX_COUNT = 1024
};

#define IMAGE_FOLDER "tests/walk/images"
#define IMAGE_PROGRAMS "tests/walk/programs"

typedef struct {
  uint64_t low, high;
  uint32_t at; /* in image_t.bytes */
} image_range_t;

typedef struct {
  char name[256]; /* of its file */
  char runtime[96], program[256], layout[96], vmstate[16];
  walk_registers_t registers;
  uint64_t stack_high, vm_low, vm_high;
  uint64_t global, main; /* of the VM */
  uint32_t state_count;
  bool truncated;
  uint32_t frame_count;
  char (*frames)[IMAGE_FRAME_TEXT]; /* as image_describe writes them */
  uint32_t range_count;
  image_range_t *ranges; /* ascending, apart */
  uint8_t *bytes;
  uint32_t byte_count;
} image_t;

static const char *const image_vmstates[] = {"none", "interpreter", "trace", "c", "gc", "compiler", "exit"};

static inline const layout_t *image_layout(const char *name) {
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    if (strcmp(layout->name, name) == 0) return layout;
  return NULL;
}

/* "lua SOURCE:LINEDEFINED LINE", "c ADDRESS" or "builtin ADDRESS". */
static inline void image_describe(walk_t *walk, const walk_frame_t *frame, char text[IMAGE_FRAME_TEXT]) {
  walk_proto_t proto;
  char source[IMAGE_FRAME_TEXT - 64] = "?";
  size_t len = 0;
  if (frame->kind != WALK_LUA) {
    snprintf(text, IMAGE_FRAME_TEXT, "%s %llx", frame->kind == WALK_C ? "c" : "builtin",
             (unsigned long long)frame->code);
  } else if (!walk_proto(walk, frame->proto, WALK_GUESS, &proto)) {
    snprintf(text, IMAGE_FRAME_TEXT, "lua without a prototype");
  } else {
    if (walk_string(walk, proto.source, source, sizeof source - 1, &len))
      source[len < sizeof source - 1 ? len : sizeof source - 1] = '\0';
    snprintf(text, IMAGE_FRAME_TEXT, "lua %s:%d %d", source, (int)proto.line,
             (int)(frame->pc != 0 ? walk_line(walk, &proto, frame->pc) : 0));
  }
}

/* -- reading ------------------------------------------------------------------------------------------------ */

static inline void image_free(image_t *image) {
  if (image == NULL) return;
  free(image->frames);
  free(image->ranges);
  free(image->bytes);
  free(image);
}

static inline bool image_read_registers(image_t *image, const char *text) {
  walk_registers_t *r = &image->registers;
  char *end;
  r->pc = strtoull(text, &end, 16);
  r->sp = strtoull(end, &end, 16);
  for (r->count = 0; *end == ' ' && r->count < WALK_MAX_REGISTERS; r->count++)
    r->values[r->count] = strtoull(end, &end, 16);
  return r->count > 0 && *end == '\0';
}

static inline bool image_read_frame(image_t *image, const char *text) {
  const char *times = strstr(text, " x");
  size_t len = times != NULL ? (size_t)(times - text) : strlen(text);
  unsigned long count = times != NULL ? strtoul(times + 2, NULL, 10) : 1;
  if (len >= IMAGE_FRAME_TEXT) return false;
  for (; count > 0; count--) {
    if (image->frame_count == IMAGE_MAX_FRAMES) return false;
    memcpy(image->frames[image->frame_count], text, len);
    image->frames[image->frame_count++][len] = '\0';
  }
  return true;
}

static inline bool image_read_range(image_t *image, const char *text) {
  unsigned long long low;
  unsigned len;
  if (image->range_count == IMAGE_MAX_RANGES || sscanf(text, "%llx %x", &low, &len) != 2) return false;
  if (len > IMAGE_MAX_BYTES - image->byte_count) return false;
  image->ranges[image->range_count++] = (image_range_t){low, low + len, image->byte_count};
  image->byte_count += len;
  return true;
}

static inline bool image_read_line(image_t *image, const char *line) {
  size_t len = strcspn(line, " ");
  const char *rest = line[len] == ' ' ? line + len + 1 : line + len;
  unsigned long long a = 0, b = 0;
#define IMAGE_KEY(word) (len == sizeof(word) - 1 && memcmp(line, word, len) == 0)
#define IMAGE_TEXT(field) (snprintf(image->field, sizeof image->field, "%s", rest) < (int)sizeof image->field)
  if (IMAGE_KEY("runtime")) return IMAGE_TEXT(runtime);
  if (IMAGE_KEY("program")) return IMAGE_TEXT(program);
  if (IMAGE_KEY("layout")) return IMAGE_TEXT(layout);
  if (IMAGE_KEY("vmstate")) return IMAGE_TEXT(vmstate);
  if (IMAGE_KEY("registers")) return image_read_registers(image, rest);
  if (IMAGE_KEY("frame")) return image_read_frame(image, rest);
  if (IMAGE_KEY("range")) return image_read_range(image, rest);
  if (IMAGE_KEY("stack_high")) return sscanf(rest, "%llx", &a) == 1 && (image->stack_high = a) != 0;
  if (IMAGE_KEY("states")) return sscanf(rest, "%llu", &a) == 1 && (image->state_count = (uint32_t)a) != 0;
  if (IMAGE_KEY("truncated")) return image->truncated = true;
  if (IMAGE_KEY("vm") && sscanf(rest, "%llx %llx", &a, &b) == 2) {
    image->vm_low = a;
    image->vm_high = b;
    return true;
  }
  if (IMAGE_KEY("global") && sscanf(rest, "%llx %llx", &a, &b) == 2) {
    image->global = a;
    image->main = b;
    return true;
  }
#undef IMAGE_KEY
#undef IMAGE_TEXT
  return false;
}

static inline image_t *image_new(void) {
  image_t *image = calloc(1, sizeof *image);
  if (image == NULL) return NULL;
  image->frames = calloc(IMAGE_MAX_FRAMES, sizeof *image->frames);
  image->ranges = calloc(IMAGE_MAX_RANGES, sizeof *image->ranges);
  image->bytes = calloc(1, IMAGE_MAX_BYTES);
  if (image->frames != NULL && image->ranges != NULL && image->bytes != NULL) return image;
  image_free(image);
  return NULL;
}

/* Fills a new image. False when the text is none; missing data are zeros. */
static inline bool image_parse(image_t *image, const char *text, size_t len) {
  char line[1024];
  while (len > 0) {
    const char *end = memchr(text, '\n', len);
    size_t line_len = end != NULL ? (size_t)(end - text) : len;
    if (end == NULL || line_len >= sizeof line) return false;
    memcpy(line, text, line_len);
    line[line_len] = '\0';
    text += line_len + 1;
    len -= line_len + 1;
    if (strcmp(line, "data") == 0) break;
    if (!image_read_line(image, line)) return false;
  }
  memcpy(image->bytes, text, len < image->byte_count ? len : image->byte_count);
  return true;
}

/* NULL when the file is no image. */
static inline image_t *image_read(const char *path) {
  enum { MAX_TEXT = 2 * IMAGE_MAX_BYTES };
  image_t *image = image_new();
  gzFile file = gzopen(path, "rb");
  char *text = malloc(MAX_TEXT);
  int len = file != NULL && text != NULL ? gzread(file, text, MAX_TEXT) : 0;
  bool ok = image != NULL && len > 0 && image_parse(image, text, (size_t)len);
  if (file != NULL) gzclose(file);
  free(text);
  const char *name = strrchr(path, '/');
  if (image != NULL) snprintf(image->name, sizeof image->name, "%.200s", name != NULL ? name + 1 : path);
  if (ok) return image;
  image_free(image);
  return NULL;
}

static inline int image_is_file(const struct dirent *entry) {
  size_t len = strlen(entry->d_name);
  return len > 6 && strcmp(entry->d_name + len - 6, ".image") == 0;
}

/* All of the folder, by name; NULL for what is no image or has a layout that is not known. Returns how many. */
static inline size_t image_read_all(image_t *images[IMAGE_MAX_COUNT]) {
  struct dirent **entries;
  int count = scandir(IMAGE_FOLDER, &entries, image_is_file, alphasort);
  size_t read = 0;
  for (int i = 0; i < count; i++) {
    char path[sizeof IMAGE_FOLDER + 256];
    snprintf(path, sizeof path, "%s/%s", IMAGE_FOLDER, entries[i]->d_name);
    free(entries[i]);
    if (read == IMAGE_MAX_COUNT) continue;
    image_t *image = image_read(path);
    if (image != NULL && image_layout(image->layout) == NULL) {
      image_free(image);
      image = NULL;
    }
    images[read++] = image;
  }
  if (count > 0) free(entries);
  return read;
}

/* -- what a program says of its stack ------------------------------------------------------------------------- */

/* The comments at the top of the program: "-- states 1", "-- frame lua @x.lua:1 2", … NULL when they do not say. */
static inline image_t *image_of_program(const char *path) {
  image_t *image = image_new();
  FILE *file = fopen(path, "r");
  const char *name = strrchr(path, '/');
  char line[1024];
  while (file != NULL && image != NULL && fgets(line, sizeof line, file) != NULL &&
         strncmp(line, "-- ", 3) == 0) {
    line[strcspn(line, "\n")] = '\0';
    image_read_line(image, line + 3); /* others are prose */
  }
  if (file != NULL) fclose(file);
  if (image != NULL)
    snprintf(image->program, sizeof image->program, "%.200s", name != NULL ? name + 1 : path);
  if (image != NULL && image->frame_count > 0 && image->state_count > 0) return image;
  image_free(image);
  return NULL;
}

/* `expected` is of a program, where "c" and "library" have no address: PUC's library is of C, LuaJIT's is built in. */
static inline bool image_is_expected(const char *expected, const char *found, uint8_t family) {
  size_t len = strcspn(found, " ");
  const char *kind = strcmp(expected, "library") != 0 ? expected : family == LAYOUT_PUC ? "c" : "builtin";
  return strcmp(expected, found) == 0 || (strlen(kind) == len && memcmp(kind, found, len) == 0);
}

/* -- replaying ----------------------------------------------------------------------------------------------- */

typedef struct {
  walk_memory_t memory; /* first */
  const image_t *image;
  uint8_t *bytes;       /* image->bytes, or a copy that a test spoils */
  uint64_t reads;       /* done so far */
  uint64_t failed_live; /* of them, what was said to be live and was not there */
  uint64_t fail_at;     /* the read that fails, counted from 1; 0 none */
} image_memory_t;

/* The range that holds `address`, NULL when none does. */
static inline const image_range_t *image_find(const image_t *image, uint64_t address) {
  uint32_t low = 0, high = image->range_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (address >= image->ranges[middle].high)
      low = middle + 1;
    else
      high = middle;
  }
  return low < image->range_count && address >= image->ranges[low].low ? &image->ranges[low] : NULL;
}

static inline bool image_memory_read(walk_memory_t *memory, void *to, uint64_t from, uint32_t len,
                                     walk_trust_t trust) {
  image_memory_t *m = (image_memory_t *)memory;
  if (++m->reads == m->fail_at) return false;
  const image_range_t *range = image_find(m->image, from);
  if (range == NULL || len > range->high - from) {
    m->failed_live += trust == WALK_LIVE;
    return false;
  }
  memcpy(to, m->bytes + range->at + (from - range->low), len);
  return true;
}

/* Where the image keeps the word at `address`, NULL when it was not recorded. */
static inline uint8_t *image_word(const image_memory_t *m, uint64_t address) {
  const image_range_t *range = image_find(m->image, address);
  return range != NULL && range->high - address >= 8 ? m->bytes + range->at + (address - range->low) : NULL;
}

static inline void image_memory_init(image_memory_t *m, const image_t *image) {
  *m = (image_memory_t){.memory = {image_memory_read, NULL}, .image = image, .bytes = image->bytes};
}

/* Ready for walk_find, with nothing known of the VM. */
static inline void image_begin(const image_t *image, walk_t *walk, walk_memory_t *memory) {
  memset(walk, 0, sizeof *walk);
  walk->layout = image_layout(image->layout);
  walk->memory = memory;
  walk->registers = image->registers;
  walk->stack_high = image->stack_high;
  walk->stack_known = true;
  walk->vm_low = image->vm_low;
  walk->vm_high = image->vm_high;
}

/* As an agent would, which knows its VM and that there is no other. */
static inline void image_begin_known(const image_t *image, walk_t *walk, walk_memory_t *memory) {
  image_begin(image, walk, memory);
  walk->likely_global = image->global;
  walk->likely_main = image->main;
  walk->alone = true;
}

#endif
