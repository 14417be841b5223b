/* SPDX-License-Identifier: MIT */
/* Naming frames; see symbols.h. */
#include "attach/symbols.h"

#include <string.h>

#include "attach/naming.h"
#include "name/place.h"
#include "profile/mem.h"

enum {
  FUNCTIONS = 1 << 15, /* places in the tables, a power of two; three quarters are used */
  FRAMES = 1 << 17,
  SOURCE_BYTES = 65536, /* read of a source: a chunk's may be its text */
  NAMINGS = 8           /* targets whose files and tables are kept at hand */
};

typedef struct {
  uint64_t space;
  uint64_t object; /* prototype or code, 0: this place is free */
  uint32_t mark;   /* of a prototype; of others their kind and number */
  uint32_t function;
} known_function_t;

typedef struct {
  uint64_t space, proto, pc; /* proto 0: this place is free */
  uint32_t mark;
  uint32_t frame;
} known_frame_t;

typedef struct {
  target_t *target; /* NULL: this place is free */
  naming_t *naming;
  uint64_t used;
} kept_naming_t;

struct symbols {
  profile_t *profile;
  known_function_t *functions;
  known_frame_t *frames;
  size_t function_count, frame_count;
  kept_naming_t namings[NAMINGS];
  remote_t *remote;
  walk_t *walk;
  char *source;
  uint32_t gone; /* frame */
  uint64_t uses;

  uint64_t space; /* aimed at */
  target_t *target;
  const runtimes_t *runtimes;
  bool reads; /* the target has been lent what it reads with, since it was aimed at */
};

symbols_t *symbols_new(profile_t *profile) {
  symbols_t *s = mem_alloc(sizeof *s);
  if (s == NULL) return NULL;
  s->profile = profile;
  s->functions = mem_alloc(FUNCTIONS * sizeof *s->functions);
  s->frames = mem_alloc(FRAMES * sizeof *s->frames);
  s->remote = mem_alloc(sizeof *s->remote);
  s->walk = mem_alloc(sizeof *s->walk);
  s->source = mem_alloc(SOURCE_BYTES);
  uint32_t name = profile_cstring(profile, "[gone]");
  s->gone = profile_frame(profile, profile_function(profile, (profile_function_t){name, name, 0, 0}), 0);
  if (s->functions != NULL && s->frames != NULL && s->remote != NULL && s->walk != NULL && s->source != NULL)
    return s;
  symbols_free(s);
  return NULL;
}

void symbols_free(symbols_t *s) {
  if (s == NULL) return;
  for (size_t i = 0; i < NAMINGS; i++) naming_close(s->namings[i].naming);
  mem_free(s->functions);
  mem_free(s->frames);
  mem_free(s->remote);
  mem_free(s->walk);
  mem_free(s->source);
  mem_free(s);
}

/* -- what is known ------------------------------------------------------------------------------------------------- */

static size_t hash(uint64_t a, uint64_t b, uint64_t c, size_t room) {
  uint64_t mixed = (a ^ b * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ c * 0x94d049bb133111ebu;
  return (size_t)((mixed ^ mixed >> 29) * 0x9e3779b97f4a7c15u >> 32) & (room - 1);
}

/* The entry, or the free place for it. */
static known_function_t *function_entry(symbols_t *s, uint64_t object, uint32_t mark) {
  size_t at = hash(s->space, object, mark, FUNCTIONS);
  for (;; at = (at + 1) & (FUNCTIONS - 1)) {
    known_function_t *f = &s->functions[at];
    if (f->object == 0 || (f->object == object && f->mark == mark && f->space == s->space)) return f;
  }
}

static known_frame_t *frame_entry(symbols_t *s, const walk_frame_t *frame) {
  size_t at = hash(s->space, frame->proto, frame->pc ^ (uint64_t)frame->mark << 32, FRAMES);
  for (;; at = (at + 1) & (FRAMES - 1)) {
    known_frame_t *f = &s->frames[at];
    if (f->proto == 0 ||
        (f->proto == frame->proto && f->pc == frame->pc && f->mark == frame->mark && f->space == s->space))
      return f;
  }
}

static void keep_function(symbols_t *s, uint64_t object, uint32_t mark, uint32_t function) {
  if (function == PROFILE_NONE) return; /* the profile is full */
  if (s->function_count >= FUNCTIONS / 4 * 3) {
    memset(s->functions, 0, FUNCTIONS * sizeof *s->functions);
    s->function_count = 0;
  }
  *function_entry(s, object, mark) = (known_function_t){s->space, object, mark, function};
  s->function_count++;
}

static void keep_frame(symbols_t *s, const walk_frame_t *frame, uint32_t made) {
  if (s->frame_count >= FRAMES / 4 * 3) {
    memset(s->frames, 0, FRAMES * sizeof *s->frames);
    s->frame_count = 0;
  }
  *frame_entry(s, frame) = (known_frame_t){s->space, frame->proto, frame->pc, frame->mark, made};
  s->frame_count++;
}

/* -- the process ------------------------------------------------------------------------------------------------------ */

void symbols_aim(symbols_t *s, uint64_t space, target_t *target, const runtimes_t *runtimes) {
  if (s->target != NULL && s->target != target) target_rest(s->target);
  s->space = space;
  s->target = target;
  s->runtimes = runtimes;
  s->reads = false;
}

void symbols_forget_target(symbols_t *s, const target_t *target) {
  for (size_t i = 0; i < NAMINGS; i++) {
    if (s->namings[i].target != target) continue;
    naming_close(s->namings[i].naming);
    s->namings[i] = (kept_naming_t){NULL, NULL, 0};
  }
  if (s->target == target) symbols_aim(s, 0, NULL, NULL);
}

/* Makes the target ready to be read by a layout of its. False when it cannot be. */
static bool aim_at_memory(symbols_t *s, uint32_t runtime) {
  if (s->target == NULL || runtime >= s->runtimes->count || s->runtimes->runtimes[runtime].layout == NULL)
    return false;
  if (!s->reads) target_lend(s->target, s->remote, s->walk); /* nothing that was read before counts */
  s->reads = true;
  target_aim(s->target, s->runtimes->runtimes[runtime].layout, NULL);
  return true;
}

/* NULL when memory is out. */
static naming_t *naming_of_target(symbols_t *s) {
  kept_naming_t *place = &s->namings[0];
  s->uses++;
  for (size_t i = 0; i < NAMINGS; i++) {
    kept_naming_t *kept = &s->namings[i];
    if (kept->used < place->used) place = kept;
    if (kept->target != s->target) continue;
    kept->used = s->uses;
    return kept->naming;
  }
  naming_close(place->naming);
  *place = (kept_naming_t){s->target, naming_open(s->target, s->runtimes), s->uses};
  if (place->naming == NULL) place->target = NULL;
  return place->naming;
}

/* -- functions -------------------------------------------------------------------------------------------------------- */

/* As the agent has it: a function of a file keeps its place as the system's name for it. */
static uint32_t enter_lua(symbols_t *s, const walk_proto_t *proto) {
  static const char main_chunk[] = "main chunk";
  profile_t *p = s->profile;
  char chunk[PLACE_CHUNK], place[PLACE_NAME], name[NAMING_NAME];
  size_t len = 0;
  if (!walk_string(s->walk, proto->source, s->source, SOURCE_BYTES, &len)) len = 0;
  if (len > SOURCE_BYTES) len = SOURCE_BYTES;
  place_t file = place_file(s->source, len, chunk);
  profile_function_t function = {.file = profile_string(p, file.bytes, file.len),
                                 .start_line = proto->line > 0 ? proto->line : 0};
  if (proto->line == 0) {
    function.name = function.system_name = profile_cstring(p, main_chunk);
    return profile_function(p, function);
  }
  naming_function_t wanted = {.kind = WALK_LUA,
                              .proto = proto->proto,
                              .mark = walk_mark(proto),
                              .defined = proto->line,
                              .source = s->source,
                              .source_len = len};
  naming_t *naming = naming_of_target(s);
  size_t named = naming != NULL ? naming_definition(naming, &wanted, name) : 0;
  if (named == 0 && naming != NULL) named = naming_held(naming, &wanted, name);
  bool is_file = len > 0 && s->source[0] == '@';
  function.system_name = profile_string(p, place, place_name(file, proto->line, place));
  function.name = named > 0 ? profile_string(p, name, named) : function.system_name;
  if (!is_file) function.system_name = function.name;
  return profile_function(p, function);
}

static uint32_t enter_c(symbols_t *s, const walk_frame_t *frame) {
  named_t named;
  naming_function_t wanted = {
      .kind = frame->kind, .ffid = frame->ffid, .code = frame->code, .function = frame->function};
  naming_t *naming = naming_of_target(s);
  if (naming == NULL) return PROFILE_NONE;
  naming_frame(naming, &wanted, &named);
  uint32_t name = profile_cstring(s->profile, named.name);
  return profile_function(s->profile,
                          (profile_function_t){name, name, profile_cstring(s->profile, "[C]"), 0});
}

/* -- frames ------------------------------------------------------------------------------------------------------------ */

static uint32_t frame_of_c(symbols_t *s, const walk_frame_t *frame, uint32_t runtime, bool *gone) {
  uint32_t mark = (uint32_t)frame->kind << 16 | frame->ffid;
  uint64_t object = frame->code != 0 ? frame->code : (uint64_t)1 << 63;
  const known_function_t *known = function_entry(s, object, mark);
  if (known->object != 0) return profile_frame(s->profile, known->function, 0);
  if (!aim_at_memory(s, runtime)) {
    *gone = true;
    return s->gone;
  }
  uint32_t function = enter_c(s, frame);
  keep_function(s, object, mark, function);
  return profile_frame(s->profile, function, 0);
}

/* A frame that was not seen before, of a function that may be known. PROFILE_NONE: neither is. */
static uint32_t read_frame(symbols_t *s, const walk_frame_t *frame, uint32_t runtime) {
  walk_proto_t proto;
  bool there = aim_at_memory(s, runtime) && walk_proto(s->walk, frame->proto, WALK_GUESS, &proto) &&
               walk_mark(&proto) == frame->mark;
  const known_function_t *known = function_entry(s, frame->proto, frame->mark);
  uint32_t function = known->object != 0 ? known->function : PROFILE_NONE;
  if (!there) return function != PROFILE_NONE ? profile_frame(s->profile, function, 0) : s->gone;
  int32_t line = frame->pc != 0 ? walk_line(s->walk, &proto, frame->pc) : 0;
  if (function == PROFILE_NONE) {
    function = enter_lua(s, &proto);
    keep_function(s, frame->proto, frame->mark, function);
  }
  if (function == PROFILE_NONE) return PROFILE_NONE;
  return profile_frame(s->profile, function, line > 0 ? line : proto.line > 0 ? proto.line : 0);
}

uint32_t symbols_frame(symbols_t *s, const walk_frame_t *frame, uint32_t runtime, bool *gone) {
  if (frame->kind != WALK_LUA) return frame_of_c(s, frame, runtime, gone);
  const known_frame_t *known = frame_entry(s, frame);
  uint32_t made = known->proto != 0 ? known->frame : PROFILE_NONE;
  if (made == PROFILE_NONE) {
    made = read_frame(s, frame, runtime);
    if (made != PROFILE_NONE && made != s->gone) keep_frame(s, frame, made);
  }
  *gone |= made == s->gone;
  return made;
}
