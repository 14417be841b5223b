/* SPDX-License-Identifier: MIT */
/* Where a Lua runtime keeps what a walk needs: offsets in its structures, as data.
 *
 * Known layouts stand in files beside this one, of LuaJIT one for each processor; `luapulse layout` makes such data from the debug
 * information of any other build. Which layout a process has is decided by content, never by its version number alone. */
#ifndef LUAPULSE_WALK_LAYOUT_H
#define LUAPULSE_WALK_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_ABSENT UINT16_MAX /* this runtime has no such field */

/* Enough for the fields of a table's head, for a node of it, and for the record of a local variable. */
enum { LAYOUT_TABLE_BYTES = 128, LAYOUT_NODE_BYTES = 64, LAYOUT_LOCAL_BYTES = 64 };

typedef enum { LAYOUT_PUC, LAYOUT_LUAJIT } layout_family_t;

/* F(member, "STRUCT.field" in layout files, whether a layout can do without). Offsets and sizes in bytes. */
#define LAYOUT_PUC_FIELDS(F)                                                                                \
  F(state_tag, "lua_State.tt", false)                                                                       \
  F(state_global, "lua_State.l_G", false)                                                                   \
  F(state_ci, "lua_State.ci", false)                                                                        \
  F(state_base_ci, "lua_State.base_ci", false) /* a pointer where CallInfo is an array, else the struct */  \
  F(state_stack, "lua_State.stack", false)                                                                  \
  F(state_stack_last, "lua_State.stack_last", false)                                                        \
  F(state_jump, "lua_State.errorJmp", false)                                                                \
  F(state_savedpc, "lua_State.savedpc", true) /* 5.1: pc of the running function */                         \
  F(state_size_ci, "lua_State.size_ci", true) /* 5.1: length of the CallInfo array */                       \
  F(state_top, "lua_State.top", true)                                                                       \
  F(state_allowhook, "lua_State.allowhook", true) /* a byte: 0 in hooks and finalizers */                   \
  F(state_status, "lua_State.status", true)       /* a byte: 0, 1 yielded, more: ended by an error */       \
  F(state_globals, "lua_State.l_gt", true)        /* 5.1: the table of globals, a value */                  \
  F(global_main, "global_State.mainthread", true)                                                           \
  F(global_main_inside, "global_State.mainth.l", true) /* 5.5: the main lua_State itself */                 \
  F(global_debt, "global_State.GCdebt", true)                                                               \
  F(global_total, "global_State.totalbytes", true)                                                          \
  F(global_strings, "global_State.strt.hash", true)  /* pointer to the buckets of all short strings */      \
  F(global_objects, "global_State.allgc", true)      /* first of the list of all objects (5.1: rootgc) */   \
  F(global_white, "global_State.currentwhite", true) /* a byte: the mark of what is alive */                \
  F(global_gc_state, "global_State.gcstate", true)   /* a byte */                                           \
  F(global_gc_kind, "global_State.gckind", true)     /* a byte: incremental, generational */                \
  F(global_gc_stop, "global_State.gcstopem",                                                                \
    true) /* 5.4.3: a byte, not 0 while the collector takes a step */                                       \
  F(global_waiting, "global_State.tobefnz", true)     /* 5.4.3: first of what waits for its finalizer */    \
  F(global_registry, "global_State.l_registry", true) /* a value */                                         \
  F(ci_size, "CallInfo.size", false)                                                                        \
  F(ci_func, "CallInfo.func", false)                                                                        \
  F(ci_previous, "CallInfo.previous", true) /* absent: an array (5.1) */                                    \
  F(ci_savedpc, "CallInfo.savedpc", false)                                                                  \
  F(ci_status, "CallInfo.callstatus", true)    /* 1, 2 or 4 bytes; 5.1 has none */                          \
  F(ci_tail_calls, "CallInfo.tailcalls", true) /* 5.1: how many calls it took the place of */               \
  F(ci_base, "CallInfo.base", true)            /* up to 5.3: its first register; later it follows `func` */ \
  F(ci_extra, "CallInfo.nextraargs", true) /* 5.4 on: of a vararg function, which `func` was moved past */  \
  F(status_finalizer, "callstatus.fin", true) /* number of the bit: a finalizer runs above that frame */    \
  F(status_tail, "callstatus.tail", true)     /* number of the bit: it took its caller's place */           \
  F(status_tail_else, "callstatus.tail_else",                                                               \
    true) /* another bit that may say so: releases that share the rest differ */                            \
  F(closure_tag, "Closure.tt", false)                                                                       \
  F(closure_is_c, "Closure.isC", true) /* 5.1, 5.2.0: one tag for both kinds */                             \
  F(closure_proto, "LClosure.p", false)                                                                     \
  F(closure_code, "CClosure.f", false)                                                                      \
  F(proto_size, "Proto.size", false)                                                                        \
  F(proto_tag, "Proto.tt", false)                                                                           \
  F(proto_source, "Proto.source", false)                                                                    \
  F(proto_line, "Proto.linedefined", false)                                                                 \
  F(proto_last_line, "Proto.lastlinedefined", false)                                                        \
  F(proto_code, "Proto.code", false)                                                                        \
  F(proto_code_count, "Proto.sizecode", false)                                                              \
  F(proto_lines, "Proto.lineinfo", false)                                                                   \
  F(proto_line_count, "Proto.sizelineinfo", false)                                                          \
  F(proto_anchors, "Proto.abslineinfo", true) /* 5.4: lineinfo holds differences */                         \
  F(proto_anchor_count, "Proto.sizeabslineinfo", true)                                                      \
  F(proto_constants, "Proto.k", true)                                                                       \
  F(proto_constant_count, "Proto.sizek", true)                                                              \
  F(proto_locals, "Proto.locvars", true)                                                                    \
  F(proto_local_count, "Proto.sizelocvars", true)                                                           \
  F(proto_upvalues, "Proto.upvalues", true)                                                                 \
  F(proto_upvalue_count, "Proto.sizeupvalues", true)                                                        \
  F(proto_parameters, "Proto.numparams", true)   /* a byte */                                               \
  F(proto_registers, "Proto.maxstacksize", true) /* a byte */                                               \
  F(local_size, "LocVar.size", true)                                                                        \
  F(local_name, "LocVar.varname", true)                                                                     \
  F(local_start, "LocVar.startpc", true)                                                                    \
  F(local_end, "LocVar.endpc", true)                                                                        \
  F(upvalue_size, "Upvaldesc.size", true) /* 5.1 has none: `upvalues` are the names themselves */           \
  F(upvalue_name, "Upvaldesc.name", true)                                                                   \
  F(string_tag, "TString.tt", false)                                                                        \
  F(string_length, "TString.len", false) /* of long strings where short ones have their own */              \
  F(string_short_length, "TString.shrlen", true)                                                            \
  F(string_bytes, "TString.contents", false)                                                                \
  F(string_long_bytes, "TString.long", true)  /* 5.5: pointer to the bytes of a long string */              \
  F(table_log_nodes, "Table.lsizenode", true) /* a byte: logarithm of how many nodes there are */           \
  F(table_nodes, "Table.node", true)                                                                        \
  F(table_array, "Table.array", true)                                                                       \
  F(table_array_count, "Table.sizearray", true) /* 5.4: a lower bound of it */                              \
  F(table_array_tags, "Table.arraytags", true)  /* 5.5: from `array` to the tags, values stand before it */ \
  F(table_metatable, "Table.metatable", true)                                                               \
  F(node_size, "Node.size", true)                                                                           \
  F(node_value, "Node.i_val", true)                                                                         \
  F(node_key, "Node.key_val", true)                                                                         \
  F(node_key_tag, "Node.key_tt", true)                                                                      \
  F(tag_thread, "tag.thread", false)                                                                        \
  F(tag_proto, "tag.proto", false)                                                                          \
  F(tag_lua, "tag.lua", false) /* of function values in stack slots */                                      \
  F(tag_c, "tag.c", false)                                                                                  \
  F(tag_light, "tag.light", true)                                                                           \
  F(tag_bytes, "tag.bytes", false) /* of a slot's tag that mean something */

#define LAYOUT_LUAJIT_FIELDS(F)                                                                    \
  F(pointer, "ref.size", false) /* of a reference between objects: 8 (GC64) or 4 */                \
  F(state_tag, "lua_State.gct", false)                                                             \
  F(state_global, "lua_State.glref", false)                                                        \
  F(state_base, "lua_State.base", false)                                                           \
  F(state_top, "lua_State.top", false)                                                             \
  F(state_max, "lua_State.maxstack", false)                                                        \
  F(state_stack, "lua_State.stack", false)                                                         \
  F(state_cframe, "lua_State.cframe", false)                                                       \
  F(state_size, "lua_State.size", false)                                                           \
  F(global_vmstate, "global_State.vmstate", false)                                                 \
  F(global_main, "global_State.mainthref", false)                                                  \
  F(global_current, "global_State.cur_L", false)                                                   \
  F(global_jit_base, "global_State.jit_base", false)                                               \
  F(global_gc_total, "global_State.gc.total", false)                                               \
  F(global_hookmask, "global_State.hookmask", true)     /* a byte */                               \
  F(global_strings, "global_State.str.tab", true)       /* pointer to the buckets */               \
  F(state_status, "lua_State.status", true)             /* a byte, as of PUC Lua */                \
  F(global_objects, "global_State.gc.root", true)       /* first of all objects */                 \
  F(global_white, "global_State.gc.currentwhite", true) /* a byte */                               \
  F(global_gc_state, "global_State.gc.state", true)     /* a byte */                               \
  F(state_globals, "lua_State.env", true)               /* the table of globals */                 \
  F(global_registry, "global_State.registrytv", true)   /* a value */                              \
  F(gg_global, "GG_State.g", false)                                                                \
  F(gg_jit, "GG_State.J", false)                                                                   \
  F(gg_dispatch, "GG_State.dispatch", false)                                                       \
  F(gg_code, "GG_State.bcff", false) /* what follows the dispatch table */                         \
  F(jit_traces, "jit_State.trace", false)                                                          \
  F(jit_trace_count, "jit_State.sizetrace", false)                                                 \
  F(function_ffid, "GCfunc.ffid", false)                                                           \
  F(function_pc, "GCfunc.pc", false)                                                               \
  F(function_code, "GCfunc.f", false)                                                              \
  F(function_upvalues, "GCfunc.uvptr", true) /* of a Lua function */                               \
  F(function_globals, "GCfunc.env", true)                                                          \
  F(upvalue_value, "GCupval.v", true)  /* points to it */                                          \
  F(proto_size, "GCproto.size", false) /* the bytecode follows */                                  \
  F(proto_code_count, "GCproto.sizebc", false)                                                     \
  F(proto_const_count, "GCproto.sizekgc", false)                                                   \
  F(proto_bytes, "GCproto.sizept", false)                                                          \
  F(proto_source, "GCproto.chunkname", false)                                                      \
  F(proto_line, "GCproto.firstline", false)                                                        \
  F(proto_line_count, "GCproto.numline", false)                                                    \
  F(proto_lines, "GCproto.lineinfo", false)                                                        \
  F(proto_constants, "GCproto.k", true)          /* points behind the references, which go down */ \
  F(proto_upvalue_count, "GCproto.sizeuv", true) /* a byte */                                      \
  F(proto_upvalues, "GCproto.uvinfo", true)      /* names, each ended by a zero */                 \
  F(proto_locals, "GCproto.varinfo", true)       /* names and where they count */                  \
  F(proto_trace, "GCproto.traces", true)         /* number of the first trace that begins in it */ \
  F(string_length, "GCstr.len", false)                                                             \
  F(string_bytes, "GCstr.size", false)                                                             \
  F(table_nodes, "GCtab.node", true)                                                               \
  F(table_node_mask, "GCtab.hmask", true) /* how many nodes there are, less one */                 \
  F(table_metatable, "GCtab.metatable", true)                                                      \
  F(node_size, "Node.size", true)                                                                  \
  F(node_value, "Node.val", true)                                                                  \
  F(node_key, "Node.key", true)                                                                    \
  F(trace_proto, "GCtrace.startpt", false)                                                         \
  F(trace_pc, "GCtrace.startpc", false)                                                            \
  F(trace_number, "GCtrace.traceno", false)                                                        \
  F(trace_next, "GCtrace.nextroot", true) /* number of the next one that begins in the function */ \
  F(trace_code, "GCtrace.mcode", true)                                                             \
  F(trace_code_bytes, "GCtrace.szmcode", true)                                                     \
  F(cframe_state, "cframe.L", false)                                                               \
  F(cframe_pc, "cframe.pc", false)                                                                 \
  F(cframe_previous, "cframe.prev", false)                                                         \
  F(cframe_results, "cframe.nres", false)

#define LAYOUT_MEMBER(member, key, optional) uint16_t member;
typedef struct {
  LAYOUT_PUC_FIELDS(LAYOUT_MEMBER)
} layout_puc_t;

typedef struct {
  LAYOUT_LUAJIT_FIELDS(LAYOUT_MEMBER)
} layout_luajit_t;
#undef LAYOUT_MEMBER

typedef struct {
  char name[96];    /* "Lua 5.4.3, 5.4.4" */
  uint8_t family;   /* layout_family_t */
  uint8_t language; /* 51 … 55 */
  union {
    layout_puc_t puc;
    layout_luajit_t luajit;
  };
} layout_t;

typedef struct {
  char text[256]; /* "line 3: no field called lua_State.cii" */
} layout_error_t;

/* Reads the next layout of `text` at *at, which moves on. False at the end, or with a message in error->text. */
bool layout_parse(const char *text, size_t len, size_t *at, layout_t *layout, layout_error_t *error);
/* Writes it as layout_parse reads it, cut at size. Returns the length it has. */
size_t layout_print(const layout_t *layout, char *text, size_t size);

/* The i-th known layout, NULL past the last. Ordinary context; the first call reads them all. */
const layout_t *layout_known(size_t i);
/* Sets a field by its key in layout files; false when the family has none of that name. */
bool layout_set(layout_t *layout, const char *key, size_t len, uint16_t value);
/* The key of the first field that must be there and is not, NULL when complete. */
const char *layout_missing(const layout_t *layout);
/* The key of the first field that does not lie in its structure, NULL when all do. layout_parse() has asked both. */
const char *layout_outside(const layout_t *layout);

#endif
