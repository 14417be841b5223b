/* SPDX-License-Identifier: MIT */
/* From structures to a layout; see layout_debug.h.
 *
 * A layout's key is STRUCT.member, and so it is in most Luas; the table `places` has the others. Four kinds of numbers
 * are in no debug information. Two are taken from a layout that comes with LuaPulse: type tags, which the language
 * version fixes, and LuaJIT's C frame, which the size of its references and the machine fix. The others, bits of
 * callstatus and where 5.5 keeps the tags of an array, follow from the structures. */
#include "cli/layout_debug.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "cli/debug_info.h"
#include "format/encoding.h"

static const debug_struct_t structures[] = {
    /* of PUC Lua */
    {"lua_State", "l_G"},
    {"global_State", "strt"},
    {"CallInfo", "func"},
    {"LClosure", "p"},
    {"CClosure", "f"},
    {"Proto", "lineinfo"},
    {"LocVar", "startpc"},
    {"Upvaldesc", "name"},
    {"TString", "tsv"}, /* a union up to 5.2 */
    {"TString", "tt"},
    {"UTString", "tsv"}, /* 5.3: a TString made large enough for what follows it */
    {"Table", "lsizenode"},
    {"Node", "i_val"},
    /* of LuaJIT */
    {"lua_State", "glref"},
    {"global_State", "gc"},
    {"GG_State", "dispatch"},
    {"jit_State", "trace"},
    {"GCfuncL", "pc"},
    {"GCfuncC", "f"},
    {"GCproto", "sizebc"},
    {"GCupval", "dhash"},
    {"GCstr", "len"},
    {"GCtab", "hmask"},
    {"Node", "val"},
    {"GCtrace", "startpt"},
    {"GCRef", "gcptr64"},
    {"GCRef", "gcptr32"},
};

/* Where a key is that is not where its name says. Of several places the first that is there counts. */
static const struct {
  const char *key, *structure, *member; /* member NULL: the size */
} places[] = {
    {"global_State.totalbytes", "global_State", "totalbytes"},
    {"global_State.totalbytes", "global_State", "GCtotalbytes"}, /* 5.5 */
    {"global_State.allgc", "global_State", "allgc"},
    {"global_State.allgc", "global_State", "rootgc"}, /* 5.1 */
    {"CallInfo.size", "CallInfo", NULL},
    {"CallInfo.savedpc", "CallInfo", "u.l.savedpc"},
    {"CallInfo.savedpc", "CallInfo", "savedpc"}, /* 5.1 */
    {"CallInfo.base", "CallInfo", "u.l.base"},
    {"CallInfo.base", "CallInfo", "base"}, /* 5.1 */
    {"CallInfo.nextraargs", "CallInfo", "u.l.nextraargs"},
    {"Closure.tt", "LClosure", "tt"},
    {"Closure.isC", "LClosure", "isC"},
    {"Proto.size", "Proto", NULL},
    {"LocVar.size", "LocVar", NULL},
    {"GCproto.traces", "GCproto", "trace"},
    {"Upvaldesc.size", "Upvaldesc", NULL},
    {"TString.tt", "TString", "tt"},
    {"TString.tt", "TString", "tsv.tt"},
    {"TString.len", "TString", "u.lnglen"},
    {"TString.len", "TString", "len"}, /* 5.3.0 */
    {"TString.len", "TString", "tsv.len"},
    {"TString.contents", "TString", "contents"}, /* 5.4 */
    {"TString.contents", "UTString", NULL},
    {"TString.contents", "TString", NULL}, /* up to 5.3 the bytes follow the structure */
    {"Table.sizearray", "Table", "sizearray"},
    {"Table.sizearray", "Table", "alimit"}, /* 5.4 */
    {"Table.sizearray", "Table", "asize"},  /* 5.5 */
    {"Node.size", "Node", NULL},
    {"Node.key_val", "Node", "u.key_val"}, /* 5.4 */
    {"Node.key_val", "Node", "i_key.nk.value_"},
    {"Node.key_val", "Node", "i_key.nk.value"}, /* 5.1 */
    {"Node.key_tt", "Node", "u.key_tt"},
    {"Node.key_tt", "Node", "i_key.nk.tt_"},
    {"Node.key_tt", "Node", "i_key.nk.tt"},
    {"ref.size", "GCRef", NULL},
    {"lua_State.size", "lua_State", NULL},
    {"global_State.str.tab", "global_State", "str.tab"},
    {"global_State.str.tab", "global_State", "strhash"}, /* up to 2020 */
    {"GCfunc.ffid", "GCfuncL", "ffid"},
    {"GCfunc.pc", "GCfuncL", "pc"},
    {"GCfunc.f", "GCfuncC", "f"},
    {"GCfunc.uvptr", "GCfuncL", "uvptr"},
    {"GCfunc.env", "GCfuncL", "env"},
    {"GCproto.size", "GCproto", NULL},
    {"GCstr.size", "GCstr", NULL},
};

typedef struct {
  const char *key;
  bool optional;
} wanted_t;

#define KEY(member, key, optional) {key, optional},
static const wanted_t puc_keys[] = {LAYOUT_PUC_FIELDS(KEY)};
static const wanted_t luajit_keys[] = {LAYOUT_LUAJIT_FIELDS(KEY)};
#undef KEY

typedef struct {
  const char *path;
  debug_info_t *info;
  layout_t *layout;
  failure_t *failure;
} making_t;

/* -- places ----------------------------------------------------------------------------------------------- */

static bool has(const making_t *m, const char *structure, const char *member) {
  uint64_t place;
  return debug_info_place(m->info, structure, member, &place) != DEBUG_ABSENT;
}

static debug_result_t place_by_name(const making_t *m, const char *key, uint64_t *place) {
  char structure[32];
  size_t len = strcspn(key, ".");
  snprintf(structure, sizeof structure, "%.*s", (int)len, key);
  return debug_info_place(m->info, structure, key + len + 1, place);
}

static debug_result_t find_place(const making_t *m, const char *key, uint64_t *place) {
  bool listed = false;
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    if (strcmp(places[i].key, key) != 0) continue;
    debug_result_t result = debug_info_place(m->info, places[i].structure, places[i].member, place);
    if (result != DEBUG_ABSENT) return result;
    listed = true;
  }
  return listed ? DEBUG_ABSENT : place_by_name(m, key, place);
}

static bool set_places(const making_t *m, const wanted_t *wanted, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint64_t place = 0;
    const char *key = wanted[i].key;
    debug_result_t result = find_place(m, key, &place);
    if (result == DEBUG_ABSENT) continue; /* whether it may be, layout_missing() says */
    /* programs have structures of their own called Table or Node */
    if (result == DEBUG_DIFFERS && wanted[i].optional) continue;
    if (result == DEBUG_DIFFERS)
      return failure_set(m->failure,
                         "%s: its debug information has several structures that differ in %s: more than one "
                         "Lua is in it; give the library of one",
                         m->path, key);
    if (place >= LAYOUT_ABSENT)
      return failure_set(m->failure, "%s: %s is at %llu, which no layout can say", m->path, key,
                         (unsigned long long)place);
    layout_set(m->layout, key, strlen(key), (uint16_t)place);
  }
  return true;
}

/* -- PUC Lua ---------------------------------------------------------------------------------------------- */

/* By members that a version's own code is built around, so that patches leave them alone. */
static uint8_t language_of_structures(const making_t *m) {
  if (has(m, "lua_State", "savedpc")) return 51;   /* later in each CallInfo */
  if (has(m, "global_State", "mainth")) return 55; /* before: a pointer, mainthread */
  if (has(m, "Proto", "abslineinfo")) return 54;   /* lines as differences */
  return has(m, "TString", "tsv") ? 52 : 53;       /* 5.3 takes the union around strings away */
}

/* The text "$LuaVersion: Lua 5.4.4" is in every Lua, but not in separate debug files: it may confirm, and names. */
static bool name_puc(const making_t *m, char *name, size_t size) {
  char release[32];
  int minor = m->layout->language - 50;
  snprintf(name, size, "Lua 5.%d", minor);
  if (!debug_info_constant(m->info, "$LuaVersion: Lua ", release, sizeof release) &&
      !debug_info_constant(m->info, "$Lua: Lua ", release, sizeof release))
    return true;
  if (release[0] != '5' || release[1] != '.' || release[2] != '0' + minor)
    return failure_set(m->failure,
                       "%s: says it is Lua %s, but its structures are those of 5.%d; change a layout of the "
                       "former by hand",
                       m->path, release, minor);
  snprintf(name, size, "Lua %s", release);
  return true;
}

/* CIST_FIN: the bit of callstatus that says that a finalizer was called. It came with 5.3.4, which made callstatus wider
 * for it; 5.4.2 moved it up, and that release did without lua_State.stacksize. */
static uint16_t finalizer_bit(const making_t *m) {
  if (debug_info_bytes(m->info, "CallInfo", "callstatus") < 2) return LAYOUT_ABSENT;
  switch (m->layout->language) {
    case 53:
      return 8;
    case 54:
      return has(m, "lua_State", "stacksize") ? 6 : 7;
    case 55:
      return 24;
    default:
      return LAYOUT_ABSENT;
  }
}

/* CIST_TAIL: the bit that says that the call took its caller's place; see finalizer_bit(). 5.1 counts them. */
static uint16_t tail_bit(const making_t *m) {
  switch (m->layout->language) {
    case 52:
      return 6;
    case 53:
      return 5;
    case 54:
      return has(m, "lua_State", "stacksize") ? 4 : 5;
    case 55:
      return 22;
    default:
      return LAYOUT_ABSENT;
  }
}

/* From `array` to the tags of its slots: 5.5 keeps a number between the values and them, and no structure says so. */
static uint16_t array_tags(const making_t *m) {
  return m->layout->language == 55 && has(m, "Table", "array") ? sizeof(unsigned) : LAYOUT_ABSENT;
}

static bool make_puc(const making_t *m, char *name, size_t size) {
  layout_puc_t *puc = &m->layout->puc;
  m->layout->language = language_of_structures(m);
  if (!name_puc(m, name, size) || !set_places(m, puc_keys, sizeof puc_keys / sizeof puc_keys[0]))
    return false;
  /* 5.5: short strings are there, of long ones a pointer */
  if (debug_info_is_pointer(m->info, "TString", "contents")) puc->string_long_bytes = puc->string_bytes;
  puc->status_finalizer = finalizer_bit(m);
  puc->status_tail = puc->ci_status != LAYOUT_ABSENT ? tail_bit(m) : LAYOUT_ABSENT;
  puc->table_array_tags = array_tags(m);
  if (puc->global_gc_stop == LAYOUT_ABSENT) puc->global_waiting = LAYOUT_ABSENT; /* says nothing without it */
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    if (known->family != LAYOUT_PUC || known->language != m->layout->language) continue;
    puc->tag_thread = known->puc.tag_thread;
    puc->tag_proto = known->puc.tag_proto;
    puc->tag_lua = known->puc.tag_lua;
    puc->tag_c = known->puc.tag_c;
    puc->tag_light = known->puc.tag_light;
    puc->tag_bytes = known->puc.tag_bytes;
    return true;
  }
  return true;
}

/* -- LuaJIT ----------------------------------------------------------------------------------------------- */

/* The C frames of the interpreter are made by its assembly code, and are no structure. Those for arm64 are of September 2021 and later. */
static const struct {
  int machine, pointer;
  uint16_t state, pc, previous, results;
} c_frames[] = {
    {EM_X86_64, 8, 16, 24, 32, 8},
    {EM_X86_64, 4, 24, 28, 32, 16},
    {EM_AARCH64, 8, 16, 8, 0, 40},
};

static bool set_c_frame(const making_t *m) {
  layout_luajit_t *jit = &m->layout->luajit;
  for (size_t i = 0; i < sizeof c_frames / sizeof c_frames[0]; i++) {
    if (c_frames[i].machine != debug_info_machine(m->info) || c_frames[i].pointer != jit->pointer) continue;
    jit->cframe_state = c_frames[i].state;
    jit->cframe_pc = c_frames[i].pc;
    jit->cframe_previous = c_frames[i].previous;
    jit->cframe_results = c_frames[i].results;
    return true;
  }
  return failure_set(m->failure,
                     "%s: is LuaJIT for a machine other than x86-64 and arm64, whose C frames are not known",
                     m->path);
}

static bool make_luajit(const making_t *m, char *name, size_t size) {
  layout_luajit_t *jit = &m->layout->luajit;
  char release[32];
  m->layout->language = 51;
  if (!set_places(m, luajit_keys, sizeof luajit_keys / sizeof luajit_keys[0])) return false;
  bool named = debug_info_constant(m->info, "LuaJIT 2.", release, sizeof release);
  snprintf(name, size, "LuaJIT%s%s, GC%d", named ? " 2." : "", named ? release : "", jit->pointer * 8);
  return set_c_frame(m);
}

/* -- both ------------------------------------------------------------------------------------------------- */

/* "Lua 5.4.4 of liblua.so", without what would end the quotes it stands in. */
static void set_name(const making_t *m, const char *runtime) {
  const char *slash = strrchr(m->path, '/');
  const char *base = slash != NULL ? slash + 1 : m->path;
  char *name = m->layout->name;
  size_t used = (size_t)snprintf(name, sizeof m->layout->name, "%s of ", runtime);
  for (size_t len = strlen(base); len > 0;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, base, len);
    if (used + piece.len >= sizeof m->layout->name) break;
    memcpy(name + used, base[0] == '"' ? "'" : piece.bytes, piece.len);
    used += piece.len;
    base += piece.taken;
    len -= piece.taken;
  }
  name[used] = '\0';
}

/* Releases that differ in bits of callstatus only share a known layout. */
static bool same_puc(layout_puc_t a, const layout_puc_t *b) {
  a.status_finalizer = b->status_finalizer;
  a.status_tail = b->status_tail;
  a.status_tail_else = b->status_tail_else;
  return memcmp(&a, b, sizeof a) == 0;
}

static const layout_t *find_known(const layout_t *layout) {
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    if (known->family != layout->family || known->language != layout->language) continue;
    if (layout->family == LAYOUT_PUC ? same_puc(known->puc, &layout->puc)
                                     : memcmp(&known->luajit, &layout->luajit, sizeof layout->luajit) == 0)
      return known;
  }
  return NULL;
}

/* Whether `known` says all that `made` says, but for what same_puc() passes over. */
static bool says_all_of(const layout_t *known, layout_t made) {
  bool puc = made.family == LAYOUT_PUC;
  const uint16_t *there = puc ? &known->puc.state_tag : &known->luajit.pointer; /* the first field of each */
  const uint16_t *wanted = puc ? &made.puc.state_tag : &made.luajit.pointer;
  size_t count = (puc ? sizeof made.puc : sizeof made.luajit) / sizeof *wanted;
  if (known->family != made.family || known->language != made.language) return false;
  if (puc) made.puc.status_finalizer = made.puc.status_tail = made.puc.status_tail_else = LAYOUT_ABSENT;
  for (size_t i = 0; i < count; i++)
    if (wanted[i] != LAYOUT_ABSENT && wanted[i] != there[i]) return false;
  return true;
}

static const layout_t *find_wider(const layout_t *made) {
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++)
    if (says_all_of(known, *made)) return known;
  return NULL;
}

static bool make(const making_t *m) {
  char runtime[64];
  bool puc = has(m, "lua_State", "l_G"), luajit = has(m, "lua_State", "glref");
  if (puc && luajit)
    return failure_set(m->failure, "%s: has both Lua and LuaJIT in it; give the library of one", m->path);
  if (!puc && !luajit)
    return failure_set(
        m->failure,
        "%s: its debug information has no Lua in it (no struct lua_State); where a program gets Lua "
        "from a library, give the library",
        m->path);
  memset(m->layout, 0xff, sizeof *m->layout); /* every field absent */
  m->layout->family = puc ? LAYOUT_PUC : LAYOUT_LUAJIT;
  if (puc ? !make_puc(m, runtime, sizeof runtime) : !make_luajit(m, runtime, sizeof runtime)) return false;
  const char *missing = layout_missing(m->layout);
  if (missing != NULL)
    return failure_set(
        m->failure,
        "%s: its debug information does not say %s; build all of Lua with -g, or, if the patch "
        "renames it, fill it in by hand",
        m->path, missing);
  set_name(m, runtime);
  return true;
}

bool layout_debug_read(layout_debug_t *result, const char *path, failure_t *failure) {
  debug_info_t *info = debug_info_open(path, structures, sizeof structures / sizeof structures[0], failure);
  result->there = info != NULL;
  if (info == NULL) return false;
  making_t making = {path, info, &result->layout, failure};
  bool done = make(&making);
  snprintf(result->build_id, sizeof result->build_id, "%s", debug_info_build_id(info));
  result->known = done ? find_known(&result->layout) : NULL;
  result->wider = !done ? NULL : result->known != NULL ? result->known : find_wider(&result->layout);
  debug_info_close(info);
  return done;
}
