/* SPDX-License-Identifier: MIT */
/* Naming functions; see naming.h. */
#include "attach/naming.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "attach/caller_name.h"
#include "attach/clock.h"
#include "attach/elf_symbol.h"
#include "attach/inline_source.h"
#include "attach/redis_library.h"
#include "attach/table.h"
#include "attach/tables.h"
#include "attach/target_file.h"
#include "name/definition.h"
#include "name/place.h"
#include "name/source.h"
#include "profile/mem.h"

enum {
  CACHED = 256,
  FILES = 32,
  FILE_BYTES = 2 << 20,
  RESTING_BYTES = 1 << 19,
  CHUNK = 65536,
  REGISTERED_BYTES = 64 << 20, /* of the data of one file, for the name of one function */
  SHOWN_CHUNK = 60,
  REGISTERED_NAME = 64
};
enum {
  TABLES_NS = 1000000000, /* for the tables of all VMs */
  TABLES_SHARE = 500,     /* reading them may cost 1/500 of the time, … */
  YOUNG_SHARE = 50        /* … and 1/50 those of VMs that were met a short while ago: */
};
static const int64_t young_ns = (int64_t)10 * 1000000000;

/* A source file, as long as it is wanted: of all together no more than FILE_BYTES are kept, and RESTING_BYTES while another target is asked
 * for. */
typedef struct {
  pid_t pid;  /* whose path it is */
  char *path; /* NULL: this place is free */
  char *text; /* NULL: it cannot be read */
  size_t len;
} file_t;

typedef struct {
  uint64_t code;
  named_t named;
} cached_t;

struct naming {
  target_t *target;
  const runtimes_t *runtimes;
  tables_t *tables;
  int64_t tables_due; /* CLOCK_MONOTONIC, ns: not read again before */
  int64_t young_due;  /* likewise, those of VMs that may be filling theirs yet */
  uint32_t entered
      [RUNTIMES_MAX]; /* of each Lua, the last VM when the tables of all were read: later ones may be filling theirs */
  file_t files[FILES];
  size_t next_file; /* to be replaced */
  size_t file_bytes;
  cached_t *cached;           /* C functions, by address */
  redis_library_t *libraries; /* NULL until one is wanted */
};

naming_t *naming_open(target_t *target, const runtimes_t *runtimes) {
  naming_t *n = mem_alloc(sizeof *n);
  if (n == NULL) return NULL;
  n->target = target;
  n->runtimes = runtimes;
  n->tables = tables_new();
  n->cached = mem_alloc(CACHED * sizeof *n->cached);
  remote_forget(target->remote); /* the process runs */
  if (n->cached != NULL && n->tables != NULL) return n;
  naming_close(n);
  return NULL;
}

static void forget_file(naming_t *n, file_t *file) {
  n->file_bytes -= file->len;
  mem_free(file->path);
  mem_free(file->text);
  *file = (file_t){.path = NULL};
}

void naming_close(naming_t *n) {
  if (n == NULL) return;
  for (size_t i = 0; i < FILES; i++) forget_file(n, &n->files[i]);
  tables_free(n->tables);
  redis_library_free(n->libraries);
  mem_free(n->cached);
  mem_free(n);
}

/* -- names from tables --------------------------------------------------------------------------------------------- */

/* Reads those of the VMs that were met since then. Gives what it took, in ns. */
static int64_t read_tables(naming_t *n, int64_t since) {
  target_t *target = n->target;
  const layout_t *aimed = target->walk->layout;
  int64_t start = clock_now();
  remote_forget(target->remote); /* the process runs */
  for (size_t i = 0; i < n->runtimes->count; i++) {
    const runtime_t *runtime = &n->runtimes->runtimes[i];
    if (runtime->layout == NULL || runtime->vms == NULL) continue;
    target_aim(target, runtime->layout, NULL);
    for (size_t k = 0; k < runtime->vms->count; k++)
      if (runtime->vms->vms[k].met >= since)
        tables_read(n->tables, target->walk, runtime->vms->vms[k].global, start + TABLES_NS);
  }
  target_aim(target, aimed, NULL);
  return clock_now() - start;
}

/* What coroutine.wrap returns is in no table. It is Lua's own code, and a closure over a coroutine. */
static bool is_wrapper(naming_t *n, const naming_function_t *f) {
  const maps_t *maps = &n->target->maps;
  const layout_t *aimed = n->target->walk->layout;
  const map_t *code = maps_find(maps, f->code);
  bool wraps = false;
  for (size_t i = 0; i < n->runtimes->count && code != NULL && f->function != 0 && !wraps; i++) {
    const runtime_t *runtime = &n->runtimes->runtimes[i];
    const map_t *lua = maps_find(maps, runtime->ident.at);
    if (runtime->layout == NULL || lua == NULL || !maps_same_file(lua, code)) continue;
    target_aim(n->target, runtime->layout, NULL);
    wraps = table_wraps_coroutine(n->target->walk, f->function);
  }
  target_aim(n->target, aimed, NULL);
  return wraps;
}

size_t naming_held(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  const walk_frame_t frame = {.kind = (uint8_t)f->kind,
                              .proto = f->proto,
                              .mark = f->mark,
                              .code = f->code,
                              .ffid = (uint16_t)f->ffid};
  const char *held = tables_name(n->tables, &frame);
  int64_t now = clock_now();
  bool all = now >= n->tables_due;
  if (held == NULL && (all || now >= n->young_due)) {
    int64_t took = read_tables(n, all ? 0 : now - young_ns);
    now += took;
    n->young_due = now + took * YOUNG_SHARE;
    if (all) n->tables_due = now + took * TABLES_SHARE;
    held = tables_name(n->tables, &frame);
  }
  if (held == NULL && f->kind == WALK_C && is_wrapper(n, f)) held = "coroutine.wrap";
  return held != NULL ? (size_t)snprintf(name, NAMING_NAME, "%s", held) : 0;
}

/* -- Lua functions ------------------------------------------------------------------------------------------------- */

/* The oldest first. */
static void keep_files(naming_t *n, size_t bytes, const file_t *needed) {
  for (size_t i = 0; i < FILES && n->file_bytes > bytes; i++) {
    file_t *file = &n->files[(n->next_file + i) % FILES];
    if (file != needed) forget_file(n, file);
  }
}

void naming_rest(naming_t *n) {
  keep_files(n, RESTING_BYTES, NULL);
}

/* The file that process `pid` calls so, read once as long as it is kept. NULL when memory is out. */
static const file_t *file_at(naming_t *n, pid_t pid, const char *path) {
  for (size_t i = 0; i < FILES; i++)
    if (n->files[i].path != NULL && n->files[i].pid == pid && strcmp(n->files[i].path, path) == 0)
      return &n->files[i];
  char *copy = mem_alloc(strlen(path) + 1);
  if (copy == NULL) return NULL;
  file_t *file = &n->files[n->next_file];
  n->next_file = (n->next_file + 1) % FILES;
  forget_file(n, file);
  file->pid = pid;
  file->path = strcpy(copy, path);
  file->text = source_read(target_file_open(pid, path), &file->len);
  if (file->text == NULL) file->len = 0;
  n->file_bytes += file->len;
  keep_files(n, FILE_BYTES, file);
  return file;
}

static bool is_chunk(const naming_function_t *f) {
  return f->source != NULL && f->source_len > 0 && f->source[0] != '@' && f->source[0] != '=';
}

/* Of a chunk in nginx's configuration. */
static size_t inline_definition(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  inline_source_t source;
  pid_t whose;
  char path[PATH_MAX];
  if (!inline_source_parse(&source, f->source, f->source_len) ||
      !inline_source_find(&source, n->target->process.pid, &whose, path, sizeof path))
    return 0;
  const file_t *file = file_at(n, whose, path);
  const char *text =
      file != NULL && file->text != NULL ? inline_source_text(&source, file->text, file->len) : NULL;
  return text != NULL ? definition_name(text, (size_t)(file->text + file->len - text), (uint32_t)f->defined,
                                        name, NAMING_NAME)
                      : 0;
}

/* Of a chunk that is a library of Redis. */
static size_t library_definition(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  const layout_t *aimed = n->target->walk->layout;
  if (f->runtime >= n->runtimes->count) return 0;
  if (n->libraries == NULL) n->libraries = redis_library_new();
  if (n->libraries == NULL) return 0;
  size_t len = redis_library_name(n->libraries, n->target, &n->runtimes->runtimes[f->runtime], f->proto,
                                  f->mark, name);
  target_aim(n->target, aimed, NULL);
  return len;
}

size_t naming_definition(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  char path[PATH_MAX];
  if (f->defined <= 0) return 0;
  if (is_chunk(f)) return definition_name(f->source, f->source_len, (uint32_t)f->defined, name, NAMING_NAME);
  if (f->source != NULL && f->source_len > 1 && f->source[0] == '=') return inline_definition(n, f, name);
  if (f->source == NULL || f->source_len < 2 || f->source[0] != '@' || f->source_len > PATH_MAX ||
      memchr(f->source, '\0', f->source_len) != NULL)
    return 0;
  if (redis_library_is_source(f->source, f->source_len)) {
    size_t len = library_definition(n, f, name);
    if (len > 0) return len;
  }
  snprintf(path, sizeof path, "%.*s", (int)f->source_len - 1, f->source + 1);
  const file_t *file = file_at(n, n->target->process.pid, path);
  if (file == NULL || file->text == NULL) return 0;
  return definition_name(file->text, file->len, (uint32_t)f->defined, name, NAMING_NAME);
}

static void place_lua(const naming_function_t *f, named_t *named) {
  char line[16] = "", chunk[PLACE_CHUNK];
  if (f->line > 0) snprintf(line, sizeof line, ":%d", (int)f->line);
  place_t file = place_file(f->source, f->source != NULL ? f->source_len : 0, chunk);
  size_t most = sizeof named->place - sizeof line, len = file.len < most ? file.len : most;
  snprintf(named->place, sizeof named->place, "%.*s%s", (int)len, file.bytes + (file.len - len), line);
}

size_t naming_chunk(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  static const char script[] = "@user_script";
  if (f->source != NULL && f->source_len == sizeof script - 1 &&
      memcmp(f->source, script, sizeof script - 1) == 0 && naming_held(n, f, name) > 0 &&
      strncmp(name, script + 1, sizeof script - 2) == 0)
    return strlen(name);
  return (size_t)snprintf(name, NAMING_NAME, "main chunk");
}

static size_t name_by_caller(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  const layout_t *aimed = n->target->walk->layout;
  if (f->frame == NULL || f->caller == NULL || f->runtime >= n->runtimes->count) return 0;
  const runtime_t *runtime = &n->runtimes->runtimes[f->runtime];
  if (runtime->layout == NULL) return 0;
  remote_forget(n->target->remote); /* the process runs */
  target_aim(n->target, runtime->layout, NULL);
  size_t len = caller_name(n->target->walk, f->frame, f->caller, name);
  target_aim(n->target, aimed, NULL);
  return len;
}

static void name_lua(naming_t *n, const naming_function_t *f, named_t *named) {
  place_lua(f, named);
  if (f->defined == 0) {
    naming_chunk(n, f, named->name);
    return;
  }
  if (naming_definition(n, f, named->name) > 0 || naming_held(n, f, named->name) > 0 ||
      name_by_caller(n, f, named->name) > 0)
    return;
  if (f->defined < 0) { /* of LuaJIT's own library */
    snprintf(named->name, sizeof named->name, "built-in function");
    return;
  }
  char chunk[PLACE_CHUNK];
  place_t file = place_file(f->source, f->source != NULL ? f->source_len : 0, chunk);
  bool is_file = f->source != NULL && f->source_len > 0 && f->source[0] == '@';
  const char *slash = is_file ? memrchr(file.bytes, '/', file.len) : NULL,
             *base = slash != NULL ? slash + 1 : file.bytes;
  size_t len = (size_t)(file.bytes + file.len - base);
  snprintf(named->name, sizeof named->name, "function <%.*s:%d>",
           len < NAMING_NAME / 2 ? (int)len : NAMING_NAME / 2, base, (int)f->defined);
}

/* -- C functions ------------------------------------------------------------------------------------------------------ */

/* An identifier in the image, as modules register functions by. */
static bool read_identifier(naming_t *n, const map_t *image, uint64_t at, char *name) {
  const map_t *map = maps_find(&n->target->maps, at);
  if (map == NULL || !maps_same_file(map, image)) return false;
  size_t room = map->end - at < REGISTERED_NAME ? (size_t)(map->end - at) : REGISTERED_NAME;
  size_t got = remote_copy(n->target->remote, name, at, room), len = 0;
  while (len < got && (isalnum((unsigned char)name[len]) || name[len] == '_')) len++;
  return len > 0 && len < got && name[len] == '\0' && !isdigit((unsigned char)name[0]);
}

/* {"name", function} in the data of the program or library that the function is in. */
static bool find_registered(naming_t *n, const map_t *code_map, uint64_t code, char *name) {
  static uint64_t words[CHUNK / 8];
  const maps_t *maps = &n->target->maps;
  size_t left = REGISTERED_BYTES;
  for (size_t i = 0; i < maps->count; i++) {
    const map_t *map = &maps->maps[i];
    if (!maps_same_file(map, code_map) || map->executable || !map->readable) continue;
    for (uint64_t at = map->start; at < map->end && left >= CHUNK; at += CHUNK - 8, left -= CHUNK) {
      size_t wanted = map->end - at < CHUNK ? (size_t)(map->end - at) : CHUNK;
      size_t got = remote_copy(n->target->remote, words, at, wanted);
      for (size_t k = 1; k < got / 8; k++)
        if (words[k] == code && read_identifier(n, code_map, words[k - 1], name)) return true;
      if (got < CHUNK) break;
    }
  }
  return false;
}

static void name_c(naming_t *n, const naming_function_t *f, named_t *named) {
  const map_t *map = maps_find(&n->target->maps, f->code);
  const char *slash = map != NULL ? strrchr(map->path, '/') : NULL, *base = slash != NULL ? slash + 1
                                                                            : map != NULL ? map->path
                                                                                          : "";
  char *name = named->name;
  snprintf(named->place, sizeof named->place, base[0] != '\0' ? "[C] in %s" : "[C]", base);
  if (naming_held(n, f, name) > 0) return;
  if (base[0] != '\0' && find_registered(n, map, f->code, name)) return;
  if (base[0] != '\0' && elf_symbol(map, n->target->process.pid, f->code, name, NAMING_NAME)) return;
  if (f->kind == WALK_BUILTIN)
    snprintf(name, NAMING_NAME, "built-in function %u", f->ffid);
  else if (base[0] == '\0')
    snprintf(name, NAMING_NAME, "C function 0x%llx", (unsigned long long)f->code);
  else
    snprintf(name, NAMING_NAME, "%.200s+0x%llx", base,
             (unsigned long long)(f->code - maps_image(&n->target->maps, map)->start));
}

void naming_frame(naming_t *n, const naming_function_t *frame, named_t *named) {
  if (frame->kind == WALK_LUA) {
    name_lua(n, frame, named);
    return;
  }
  if (frame->kind == WALK_COLLECTOR) {
    snprintf(named->name, sizeof named->name, "collector");
    named->place[0] = '\0';
    return;
  }
  cached_t *cached = &n->cached[(frame->code >> 4) % CACHED];
  if (cached->code != frame->code || frame->code == 0) {
    name_c(n, frame, &cached->named);
    cached->code = frame->kind == WALK_BUILTIN ? 0 : frame->code; /* built-ins may share code */
  }
  *named = cached->named;
}
