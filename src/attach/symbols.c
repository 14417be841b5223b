/* SPDX-License-Identifier: MIT */
/* Naming frames; see symbols.h. */
#include "attach/symbols.h"

#include <string.h>

#include "attach/caller_name.h"
#include "attach/clock.h"
#include "attach/naming.h"
#include "name/place.h"
#include "profile/mem.h"

enum {
  FUNCTIONS = 1 << 15, /* places in the tables, a power of two; three quarters are used */
  FRAMES = 1 << 17,
  SOURCE_BYTES = 65536, /* read of a source: a chunk's may be its text */
  NAMINGS = 8,          /* targets whose files and tables are kept at hand */
  MET = 256,            /* frames that are read before they are asked for … */
  MET_BYTES = 1 << 19,  /* … and their sources */
  FIRST_ASK_MS = 50, /* until a name is asked for again where there was none; twice as long each time … */
  MOST_ASKS = 8      /* … so often */
};

typedef struct {
  uint64_t space;
  uint64_t object; /* prototype or code, 0: this place is free */
  uint32_t mark;   /* of a prototype; of others their kind and number */
  uint32_t function;
  bool placed;     /* it has no name but its place: … */
  uint8_t asks;    /* … how often one was asked for again, … */
  uint32_t due_ms; /* … and when it may be the next time: by clock_ms() */
} known_function_t;

typedef struct {
  uint64_t space, proto, pc; /* proto 0: this place is free */
  uint32_t mark;
  uint32_t frame;
  bool placed; /* its function had no name */
} known_frame_t;

/* What was read of a Lua function at one of its instructions. */
typedef struct {
  bool there; /* it still was */
  int32_t line, defined;
  const char *source; /* NULL: not asked for, the function is known */
  size_t source_len;
  char called[CALLER_NAME]; /* what the caller calls it, "" when that is not known */
} reading_t;

typedef struct {
  uint64_t space, proto, pc;
  uint32_t mark;
  reading_t reading;
} met_t;

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
  naming_t *named; /* the one that was asked last */
  remote_t *remote;
  walk_t *walk;
  char *source;
  met_t *met;
  char *met_sources;
  size_t met_count, met_bytes;
  uint32_t gone; /* frame */
  uint64_t uses;

  uint64_t space; /* aimed at */
  target_t *target;
  const runtimes_t *runtimes;
  bool reads; /* the target has been lent what it reads with, since it was aimed at */
};

static void set_profile(symbols_t *s, profile_t *profile) {
  uint32_t name = profile_cstring(profile, "[gone]");
  s->profile = profile;
  s->gone = profile_frame(profile, profile_function(profile, (profile_function_t){name, name, 0, 0}), 0);
}

symbols_t *symbols_new(profile_t *profile) {
  symbols_t *s = mem_alloc(sizeof *s);
  if (s == NULL) return NULL;
  s->functions = mem_alloc(FUNCTIONS * sizeof *s->functions);
  s->frames = mem_alloc(FRAMES * sizeof *s->frames);
  s->remote = mem_alloc(sizeof *s->remote);
  s->walk = mem_alloc(sizeof *s->walk);
  s->source = mem_alloc(SOURCE_BYTES);
  s->met = mem_alloc(MET * sizeof *s->met);
  s->met_sources = mem_alloc(MET_BYTES);
  if (s->functions != NULL && s->frames != NULL && s->remote != NULL && s->walk != NULL &&
      s->source != NULL && s->met != NULL && s->met_sources != NULL) {
    set_profile(s, profile);
    return s;
  }
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
  mem_free(s->met);
  mem_free(s->met_sources);
  mem_free(s);
}

void symbols_change_profile(symbols_t *s, profile_t *profile) {
  set_profile(s, profile);
  memset(s->functions, 0, FUNCTIONS * sizeof *s->functions);
  memset(s->frames, 0, FRAMES * sizeof *s->frames);
  s->function_count = s->frame_count = 0;
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

/* Of these only differences count. */
static uint32_t clock_ms(void) {
  return (uint32_t)(clock_now() / 1000000);
}

static void keep_function(symbols_t *s, uint64_t object, uint32_t mark, uint32_t function, bool placed) {
  if (function == PROFILE_NONE) return; /* the profile is full */
  if (s->function_count >= FUNCTIONS - FUNCTIONS / 4) {
    memset(s->functions, 0, FUNCTIONS * sizeof *s->functions);
    s->function_count = 0;
  }
  known_function_t *entry = function_entry(s, object, mark);
  uint8_t asks = entry->object == 0 ? 0 : entry->asks < MOST_ASKS ? entry->asks + 1 : MOST_ASKS;
  s->function_count += entry->object == 0;
  *entry = (known_function_t){s->space, object, mark, function, placed, asks, 0};
  if (placed) entry->due_ms = clock_ms() + ((uint32_t)FIRST_ASK_MS << asks);
}

static void keep_frame(symbols_t *s, const walk_frame_t *frame, uint32_t made, bool placed) {
  if (s->frame_count >= FRAMES - FRAMES / 4) {
    memset(s->frames, 0, FRAMES * sizeof *s->frames);
    s->frame_count = 0;
  }
  known_frame_t *entry = frame_entry(s, frame);
  s->frame_count += entry->proto == 0;
  *entry = (known_frame_t){s->space, frame->proto, frame->pc, frame->mark, made, placed};
}

/* -- the process ------------------------------------------------------------------------------------------------------ */

void symbols_aim(symbols_t *s, uint64_t space, target_t *target, const runtimes_t *runtimes) {
  if (s->target != NULL && s->target != target) target_rest(s->target);
  s->space = space;
  s->target = target;
  s->runtimes = runtimes;
  s->reads = false;
}

static void close_naming(symbols_t *s, kept_naming_t *kept) {
  if (s->named == kept->naming) s->named = NULL;
  naming_close(kept->naming);
  *kept = (kept_naming_t){NULL, NULL, 0};
}

void symbols_forget_target(symbols_t *s, const target_t *target) {
  for (size_t i = 0; i < NAMINGS; i++) {
    if (s->namings[i].target != target) continue;
    close_naming(s, &s->namings[i]);
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

/* The place of the target, or of the one that was not asked for longest. */
static kept_naming_t *place_of_target(symbols_t *s) {
  kept_naming_t *place = &s->namings[0];
  for (size_t i = 0; i < NAMINGS; i++) {
    kept_naming_t *kept = &s->namings[i];
    if (kept->target == s->target) return kept;
    if (kept->used < place->used) place = kept;
  }
  return place;
}

/* NULL when memory is out, or the target cannot be read any more. */
static naming_t *naming_of_target(symbols_t *s) {
  if (s->target == NULL) return NULL;
  kept_naming_t *place = place_of_target(s);
  if (place->target != s->target) {
    close_naming(s, place);
    place->naming = naming_open(s->target, s->runtimes);
    if (place->naming != NULL) place->target = s->target;
  }
  place->used = ++s->uses;
  if (s->named != NULL && s->named != place->naming) naming_rest(s->named);
  return s->named = place->naming;
}

/* -- reading ---------------------------------------------------------------------------------------------------------- */

/* A line that is not within the function, or in no file that anybody has. */
static bool lies_outside(const walk_proto_t *proto, int32_t line) {
  enum { MOST_LINES = 1 << 24 };
  if (line > MOST_LINES) return true;
  if (line <= 0 || proto->line <= 0 || proto->last_line < proto->line) return false;
  return line < proto->line || line > proto->last_line;
}

/* False when the prototype was freed, though it looks as it did, for its lines are another's by now, or the allocator's, which keeps its
 * lists in the first words of what is free. LuaJIT has the lines in the prototype: they are as good as that is. */
static bool has_its_lines(walk_t *walk, const walk_proto_t *proto, int32_t line) {
  enum { FIRST_WORDS = 16, INSTRUCTION = 4 }; /* bytes: a line takes one at least */
  if (lies_outside(proto, line)) return false;
  if (walk->layout->family == LAYOUT_LUAJIT) return true;
  for (uint32_t i = 0; i < FIRST_WORDS && i < proto->line_count; i++) {
    uint64_t pc = proto->code + (uint64_t)i * INSTRUCTION;
    if (pc >= proto->code_end) break;
    int32_t first = walk_line(walk, proto, pc);
    if (first <= 0 || lies_outside(proto, first)) return false;
  }
  return true;
}

/* True when the prototype is that of the frame still: nothing of it was collected. */
static bool is_there(symbols_t *s, const walk_frame_t *frame, walk_proto_t *proto) {
  return walk_proto(s->walk, frame->proto, WALK_GUESS, proto) && walk_mark(s->walk, proto) == frame->mark;
}

/* Reads the function of a frame, its source to `source` unless that is NULL: then it has a name, and the caller (which may be NULL) is not
 * asked. Whether it is there is asked before and after: the process may run meanwhile. Nothing that was read before the first time counts:
 * a string may go on in a page of then, which has the end of another one that lay there. */
static reading_t read_function(symbols_t *s, const walk_frame_t *frame, const walk_frame_t *caller,
                               uint32_t runtime, char *source, size_t room) {
  walk_proto_t proto;
  reading_t reading = {.there = false};
  if (!aim_at_memory(s, runtime)) return reading;
  remote_forget(s->remote);
  if (!is_there(s, frame, &proto)) return reading;
  reading.defined = proto.line;
  reading.line = frame->pc != 0 ? walk_line(s->walk, &proto, frame->pc) : 0;
  if (!has_its_lines(s->walk, &proto, reading.line)) return reading;
  if (source != NULL) {
    reading.source = source;
    if (!walk_string(s->walk, proto.source, source, room, &reading.source_len)) reading.source_len = 0;
    if (reading.source_len > room) reading.source_len = room;
    if (caller != NULL && caller->kind == WALK_LUA && caller->pc != 0 && proto.line > 0 &&
        caller_name(s->walk, frame, caller, reading.called) == 0)
      reading.called[0] = '\0';
  }
  remote_forget(s->remote);
  reading.there = is_there(s, frame, &proto);
  return reading;
}

static bool is_function_named(symbols_t *s, const walk_frame_t *frame) {
  const known_function_t *known = function_entry(s, frame->proto, frame->mark);
  return known->object != 0 && !known->placed;
}

static const met_t *find_met(const symbols_t *s, const walk_frame_t *frame) {
  for (size_t i = 0; i < s->met_count; i++) {
    const met_t *m = &s->met[i];
    if (m->proto == frame->proto && m->pc == frame->pc && m->mark == frame->mark && m->space == s->space)
      return m;
  }
  return NULL;
}

void symbols_meet(symbols_t *s, const walk_frame_t *frames, uint32_t count, uint32_t runtime) {
  for (uint32_t i = 0; i < count && s->met_count < MET && MET_BYTES - s->met_bytes >= SOURCE_BYTES; i++) {
    const walk_frame_t *frame = &frames[i];
    if (frame->kind != WALK_LUA || frame_entry(s, frame)->proto != 0 || find_met(s, frame) != NULL) continue;
    char *source = is_function_named(s, frame) ? NULL : s->met_sources + s->met_bytes;
    const walk_frame_t *caller = i + 1 < count ? &frames[i + 1] : NULL;
    reading_t reading = read_function(s, frame, caller, runtime, source, SOURCE_BYTES);
    s->met[s->met_count++] = (met_t){s->space, frame->proto, frame->pc, frame->mark, reading};
    s->met_bytes += reading.source_len;
  }
}

void symbols_met(symbols_t *s) {
  s->met_count = s->met_bytes = 0;
}

/* -- functions -------------------------------------------------------------------------------------------------------- */

/* As the agent has it: a function of a file keeps its place as the system's name for it. *placed: that is all the name it has. */
static uint32_t enter_lua(symbols_t *s, const walk_frame_t *frame, uint32_t runtime, const reading_t *reading,
                          bool *placed) {
  profile_t *p = s->profile;
  char chunk[PLACE_CHUNK], place[PLACE_NAME], name[NAMING_NAME];
  place_t file = place_file(reading->source, reading->source_len, chunk);
  profile_function_t function = {.file = profile_string(p, file.bytes, file.len),
                                 .start_line = reading->defined > 0 ? reading->defined : 0};
  naming_function_t wanted = {.kind = WALK_LUA,
                              .proto = frame->proto,
                              .mark = frame->mark,
                              .defined = reading->defined,
                              .source = reading->source,
                              .source_len = reading->source_len,
                              .runtime = runtime};
  naming_t *naming = naming_of_target(s);
  *placed = false;
  if (reading->defined == 0) {
    function.name = function.system_name =
        naming != NULL ? profile_string(p, name, naming_chunk(naming, &wanted, name)) : PROFILE_NONE;
    return function.name != PROFILE_NONE ? profile_function(p, function) : PROFILE_NONE;
  }
  size_t named = naming != NULL ? naming_definition(naming, &wanted, name) : 0;
  if (named == 0 && naming != NULL) named = naming_held(naming, &wanted, name);
  if (named == 0) { /* by who calls it, or not at all: a name's length is told, it does not end in zero */
    named = strlen(reading->called);
    memcpy(name, reading->called, named); /* NOLINT(bugprone-not-null-terminated-result) */
  }
  *placed = named == 0;
  bool is_file = reading->source_len > 0 && reading->source[0] == '@';
  function.system_name = profile_string(p, place, place_name(file, reading->defined, place));
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
  keep_function(s, object, mark, function, false);
  return profile_frame(s->profile, function, 0);
}

/* A frame that was not seen before, of a function that may be known. *placed: it has no name. */
static uint32_t read_frame(symbols_t *s, const walk_frame_t *frame, const walk_frame_t *caller,
                           uint32_t runtime, bool *placed) {
  const met_t *met = find_met(s, frame);
  const known_function_t *known = function_entry(s, frame->proto, frame->mark);
  uint32_t function = known->object != 0 ? known->function : PROFILE_NONE;
  *placed = known->object != 0 && known->placed;
  reading_t reading =
      met != NULL && (met->reading.source != NULL || function != PROFILE_NONE || !met->reading.there)
          ? met->reading
          : read_function(s, frame, caller, runtime, s->source, SOURCE_BYTES);
  if (!reading.there) return function != PROFILE_NONE ? profile_frame(s->profile, function, 0) : s->gone;
  bool wanted = function == PROFILE_NONE || (*placed && reading.source != NULL && reading.called[0] != '\0');
  if (wanted && aim_at_memory(s, runtime)) {
    function = enter_lua(s, frame, runtime, &reading, placed);
    keep_function(s, frame->proto, frame->mark, function, *placed);
  }
  if (function == PROFILE_NONE) return PROFILE_NONE;
  int32_t line = reading.line > 0 ? reading.line : reading.defined;
  return profile_frame(s->profile, function, line > 0 ? line : 0);
}

/* A function without a name may have been put into a table since, or its VM may have been new. */
static void ask_again(symbols_t *s, const walk_frame_t *frame, const walk_frame_t *caller, uint32_t runtime) {
  bool placed;
  reading_t reading = read_function(s, frame, caller, runtime, s->source, SOURCE_BYTES);
  if (!reading.there || !aim_at_memory(s, runtime)) return;
  uint32_t function = enter_lua(s, frame, runtime, &reading, &placed);
  keep_function(s, frame->proto, frame->mark, function, placed);
}

/* The known frame of a function without a name, by the name that it has got since. */
static uint32_t renamed(symbols_t *s, const walk_frame_t *frame, const walk_frame_t *caller, uint32_t runtime,
                        known_frame_t *known) {
  const known_function_t *function = function_entry(s, frame->proto, frame->mark);
  if (function->object != 0 && function->placed && (int32_t)(clock_ms() - function->due_ms) >= 0) {
    ask_again(s, frame, caller, runtime);
    function = function_entry(s, frame->proto, frame->mark);
  }
  if (function->object == 0 || function->placed) return known->frame;
  uint32_t made = profile_frame(s->profile, function->function, s->profile->frames[known->frame].line);
  if (made == PROFILE_NONE) return known->frame;
  known->placed = false;
  return known->frame = made;
}

uint32_t symbols_frame(symbols_t *s, const walk_frame_t *frame, const walk_frame_t *caller, uint32_t runtime,
                       bool *gone) {
  if (frame->kind != WALK_LUA) return frame_of_c(s, frame, runtime, gone);
  known_frame_t *known = frame_entry(s, frame);
  if (known->proto != 0 && known->placed) return renamed(s, frame, caller, runtime, known);
  uint32_t made = known->proto != 0 ? known->frame : PROFILE_NONE;
  if (made == PROFILE_NONE) {
    bool placed;
    made = read_frame(s, frame, caller, runtime, &placed);
    if (made != PROFILE_NONE && made != s->gone) keep_frame(s, frame, made, placed);
  }
  *gone |= made == s->gone;
  return made;
}
