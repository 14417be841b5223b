/* SPDX-License-Identifier: MIT */
/* Structures with Lua's names, in the shapes of several Luas and at offsets that no Lua has. Compiled with -g it is a
 * Lua for `luapulse layout`; run, it prints what the compiler says of the same fields.
 *   -DSHAPE=51, 54, 55 or 21 (LuaJIT, with references of -DREF_BITS=64 or 32)
 *   -DPAD=N moves everything, -DTEXT='"…"' is a text of version, -DWITHOUT_JUMP leaves out a field
 *   -DSTATUS=TYPE is that of callstatus, -DSTACKSIZE adds a field of 5.4.0 and 5.4.1, -DSTRHASH is LuaJIT up to 2020 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef PAD
#define PAD 24
#endif
#ifndef STATUS
#define STATUS uint16_t
#endif
#ifdef TEXT
const char version_text[] = TEXT;
#endif

typedef unsigned char byte_t;
typedef struct {
  char pad[PAD];
} pad_t;

#define AT(key, type, member) printf("%s=%zu\n", key, offsetof(type, member))
#define SIZE(key, type) printf("%s=%zu\n", key, sizeof(type))
#define PLACE(type, member) AT(#type "." #member, type, member)

#if SHAPE != 21

#define HEADER \
  void *next;  \
  pad_t pad;   \
  byte_t tt, marked

struct lua_State;
#if SHAPE == 51
typedef union TString {
  double align;
  struct {
    HEADER;
    size_t len;
  } tsv;
} TString;
#else
typedef struct TString {
  HEADER;
  byte_t extra, shrlen;
  union {
    size_t lnglen;
    struct TString *hnext;
  } u;
#if SHAPE == 55
  char *contents;
#else
  char contents[1];
#endif
} TString;
#endif

typedef struct LocVar {
  int startpc;
  TString *varname;
  int endpc;
} LocVar;
#if SHAPE != 51
typedef struct Upvaldesc {
  byte_t instack;
  TString *name;
  byte_t idx;
} Upvaldesc;
#endif

typedef struct Proto {
  HEADER;
  int sizelineinfo, linedefined, sizecode, lastlinedefined, sizek, sizeupvalues, sizelocvars;
  byte_t maxstacksize, numparams;
  void *k;
  LocVar *locvars;
#if SHAPE == 51
  TString **upvalues;
#else
  Upvaldesc *upvalues;
#endif
#if SHAPE != 51
  int sizeabslineinfo;
  void *abslineinfo;
#endif
  const volatile uint32_t *code;
  void *lineinfo;
  TString *source;
} Proto;

typedef struct LClosure {
  HEADER;
#if SHAPE == 51
  byte_t isC;
#endif
  Proto *p;
} LClosure;

typedef struct CClosure {
  HEADER;
  void *more;
  int (*f)(struct lua_State *);
} CClosure;

typedef struct Table {
  HEADER;
#if SHAPE == 51
  void *array;
  int sizearray;
#elif SHAPE == 54
  unsigned alimit;
  void *array;
#else
  unsigned asize;
  void *array;
#endif
  void *node;
  struct Table *metatable;
  byte_t flags, lsizenode;
} Table;

#if SHAPE == 51
typedef struct Node {
  pad_t pad;
  struct {
    void *value;
    int tt;
  } i_val;
  union {
    struct {
      int tt;
      void *value;
      struct Node *next;
    } nk;
    double tvk;
  } i_key;
} Node;
#else
typedef union Node {
  struct NodeKey {
    void *value_;
    byte_t tt_;
    pad_t pad;
    byte_t key_tt;
    int next;
    void *key_val;
  } u;
  struct {
    void *value_;
    byte_t tt_;
  } i_val;
} Node;
#endif

/* without a tag: found by its typedef */
typedef struct {
#if SHAPE == 51
  void *base, *func;
  pad_t pad;
  int tailcalls;
  const uint32_t *savedpc;
#else
  union {
    void *p;
    ptrdiff_t offset;
  } func;
  struct CallInfo *previous;
  STATUS callstatus;
  union {
    struct {
      pad_t pad;
      int nextraargs;
      const uint32_t *savedpc;
    } l;
    void *k;
  } u;
#endif
  short last;
} CallInfo;

struct lua_State {
  HEADER;
  byte_t allowhook, status;
#ifdef STACKSIZE
  int stacksize;
#endif
  union {
    void *p;
    ptrdiff_t offset;
  } top;
  struct global_State *l_G;
  struct { /* a nameless member */
    int unused;
    union {
      CallInfo *ci;
      void *other;
    };
  };
#if SHAPE == 51
  const uint32_t *savedpc;
  CallInfo *base_ci;
  int size_ci;
  struct {
    void *value;
    int tt;
  } l_gt;
#else
  CallInfo base_ci;
#endif
#ifndef WITHOUT_JUMP
  void *errorJmp;
#endif
  void *stack_last, *stack;
};
typedef struct lua_State lua_State;

typedef struct LX {
  byte_t extra[PAD];
  lua_State l;
} LX;

typedef struct global_State {
  pad_t pad;
  struct {
    int nuse, size;
    TString **hash;
  } strt;
  byte_t currentwhite, gcstate;
#if SHAPE != 51
  byte_t gckind, gcstopem;
  void *tobefnz;
#endif
  struct {
    void *value;
    int tt;
  } l_registry;
#if SHAPE == 51
  void *rootgc;
#else
  void *allgc;
#endif
#if SHAPE == 55
  ptrdiff_t GCtotalbytes, GCdebt;
  LX mainth;
#else
  size_t totalbytes;
#if SHAPE != 51
  ptrdiff_t GCdebt;
#endif
  lua_State *mainthread;
#endif
} global_State;

lua_State state;
global_State global;
CallInfo call;
LClosure lua_closure;
CClosure c_closure;
Table table;
Node node;

int main(void) {
  PLACE(lua_State, tt), PLACE(lua_State, l_G), PLACE(lua_State, ci), PLACE(lua_State, base_ci);
  PLACE(lua_State, stack), PLACE(lua_State, stack_last), PLACE(lua_State, top), PLACE(lua_State, allowhook);
  PLACE(lua_State, status), PLACE(global_State, strt.hash), PLACE(global_State, currentwhite);
  PLACE(global_State, gcstate), PLACE(global_State, l_registry), PLACE(Table, lsizenode), PLACE(Table, node),
      PLACE(Table, array);
  PLACE(Table, metatable), SIZE("Node.size", Node), PLACE(Node, i_val);
#if SHAPE == 51
  PLACE(lua_State, l_gt), PLACE(Table, sizearray);
  AT("Node.key_val", Node, i_key.nk.value), AT("Node.key_tt", Node, i_key.nk.tt);
#else
  AT("Node.key_val", Node, u.key_val), AT("Node.key_tt", Node, u.key_tt);
#endif
#if SHAPE == 54
  AT("Table.sizearray", Table, alimit);
#elif SHAPE == 55
  AT("Table.sizearray", Table, asize), printf("Table.arraytags=%zu\n", sizeof(unsigned));
#endif
#if SHAPE == 51
  AT("global_State.allgc", global_State, rootgc);
#else
  PLACE(global_State, allgc);
#endif
#ifndef WITHOUT_JUMP
  PLACE(lua_State, errorJmp);
#endif
#if SHAPE == 55
  PLACE(global_State, mainth.l);
  AT("global_State.totalbytes", global_State, GCtotalbytes);
  AT("TString.long", TString, contents);
#else
  PLACE(global_State, mainthread), PLACE(global_State, totalbytes);
#endif
#if SHAPE == 51
  PLACE(lua_State, savedpc), PLACE(lua_State, size_ci), PLACE(CallInfo, savedpc);
  AT("Closure.isC", LClosure, isC);
  AT("TString.tt", TString, tsv.tt), AT("TString.len", TString, tsv.len);
  SIZE("TString.contents", TString);
#else
  PLACE(global_State, GCdebt), PLACE(global_State, gckind), PLACE(global_State, gcstopem),
      PLACE(global_State, tobefnz), PLACE(CallInfo, previous), PLACE(CallInfo, callstatus);
  PLACE(TString, tt), PLACE(TString, shrlen);
  AT("CallInfo.savedpc", CallInfo, u.l.savedpc), AT("TString.len", TString, u.lnglen);
  PLACE(TString, contents), PLACE(Proto, abslineinfo), PLACE(Proto, sizeabslineinfo);
#endif
  SIZE("CallInfo.size", CallInfo), SIZE("Proto.size", Proto);
  PLACE(CallInfo, func), PLACE(LClosure, p), PLACE(CClosure, f), AT("Closure.tt", LClosure, tt);
  PLACE(Proto, tt), PLACE(Proto, source), PLACE(Proto, linedefined), PLACE(Proto, lastlinedefined);
  PLACE(Proto, code), PLACE(Proto, sizecode), PLACE(Proto, lineinfo), PLACE(Proto, sizelineinfo);
  PLACE(Proto, k), PLACE(Proto, sizek), PLACE(Proto, locvars), PLACE(Proto, sizelocvars);
  PLACE(Proto, upvalues), PLACE(Proto, sizeupvalues), SIZE("LocVar.size", LocVar), PLACE(LocVar, varname);
  PLACE(LocVar, startpc), PLACE(LocVar, endpc), PLACE(Proto, numparams), PLACE(Proto, maxstacksize);
#if SHAPE == 51
  PLACE(CallInfo, tailcalls), PLACE(CallInfo, base);
#else
  AT("CallInfo.nextraargs", CallInfo, u.l.nextraargs);
  SIZE("Upvaldesc.size", Upvaldesc), PLACE(Upvaldesc, name);
#endif
  return 0;
}

#else

typedef struct GCRef {
#if REF_BITS == 32
  uint32_t gcptr32;
#else
  uint64_t gcptr64;
#endif
} GCRef;
#define HEADER   \
  GCRef nextgc;  \
  byte_t marked; \
  pad_t pad;     \
  byte_t gct

typedef struct lua_State {
  HEADER;
  byte_t status;
  GCRef cframe, glref, base, top, stack, maxstack, env;
} lua_State;
typedef struct global_State {
  pad_t pad;
  struct {
    size_t total;
    byte_t currentwhite, state;
    GCRef root;
  } gc;
  GCRef cur_L, jit_base, mainthref;
  int vmstate;
  byte_t hookmask;
  uint64_t registrytv;
#ifdef STRHASH
  GCRef *strhash;
#else
  struct {
    uint32_t mask;
    GCRef *tab;
  } str;
#endif
} global_State;
typedef struct jit_State {
  pad_t pad;
  int sizetrace;
  GCRef *trace;
} jit_State;
typedef struct GG_State {
  lua_State L;
  global_State g;
  jit_State J;
  void *dispatch[PAD];
  uint32_t bcff[PAD];
} GG_State;
typedef struct GCfuncL {
  HEADER;
  byte_t ffid;
  GCRef pc, env;
  GCRef uvptr[1];
} GCfuncL;
typedef struct GCupval {
  HEADER;
  uint32_t dhash;
  GCRef v;
} GCupval;
typedef struct GCfuncC {
  HEADER;
  byte_t ffid;
  GCRef pc;
  void *f;
} GCfuncC;
typedef struct GCproto {
  HEADER;
  int sizept, sizekgc, sizebc, numline, firstline;
  byte_t sizeuv;
  GCRef lineinfo, chunkname, varinfo, uvinfo, k;
} GCproto;
typedef struct GCstr {
  HEADER;
  uint32_t len;
} GCstr;
typedef struct GCtab {
  HEADER;
  GCRef metatable, node;
  uint32_t hmask;
} GCtab;
typedef struct Node {
  uint64_t val;
  pad_t pad;
  uint64_t key;
  GCRef next;
} Node;
typedef struct GCtrace {
  HEADER;
  GCRef startpc, startpt;
  uint16_t traceno;
} GCtrace;

GG_State gg;
GCfuncL lua_function;
GCfuncC c_function;
GCproto proto;
GCupval upvalue;
GCstr string;
GCtrace trace;
GCtab table;
Node node;

int main(void) {
  SIZE("ref.size", GCRef), SIZE("lua_State.size", lua_State), SIZE("GCproto.size", GCproto);
  SIZE("GCstr.size", GCstr);
  PLACE(lua_State, gct), PLACE(lua_State, glref), PLACE(lua_State, base), PLACE(lua_State, top);
  PLACE(lua_State, maxstack), PLACE(lua_State, stack), PLACE(lua_State, cframe);
  PLACE(global_State, vmstate), PLACE(global_State, mainthref), PLACE(global_State, cur_L);
  PLACE(global_State, jit_base), PLACE(global_State, gc.total), PLACE(global_State, hookmask);
  PLACE(lua_State, status), PLACE(global_State, gc.root), PLACE(global_State, gc.currentwhite);
  PLACE(global_State, gc.state);
#ifdef STRHASH
  AT("global_State.str.tab", global_State, strhash);
#else
  PLACE(global_State, str.tab);
#endif
  PLACE(GG_State, g), PLACE(GG_State, J), PLACE(GG_State, dispatch), PLACE(GG_State, bcff);
  PLACE(jit_State, trace), PLACE(jit_State, sizetrace);
  AT("GCfunc.ffid", GCfuncL, ffid), AT("GCfunc.pc", GCfuncL, pc), AT("GCfunc.f", GCfuncC, f);
  PLACE(GCproto, sizebc), PLACE(GCproto, sizekgc), PLACE(GCproto, sizept), PLACE(GCproto, chunkname);
  PLACE(GCproto, firstline), PLACE(GCproto, numline), PLACE(GCproto, lineinfo), PLACE(GCstr, len);
  PLACE(GCtrace, startpt), PLACE(GCtrace, startpc), PLACE(GCtrace, traceno);
  PLACE(lua_State, env), PLACE(global_State, registrytv), PLACE(GCtab, node), PLACE(GCtab, hmask);
  PLACE(GCtab, metatable), SIZE("Node.size", Node), PLACE(Node, val), PLACE(Node, key);
  PLACE(GCproto, k), PLACE(GCproto, sizeuv), PLACE(GCproto, uvinfo), PLACE(GCproto, varinfo);
  AT("GCfunc.uvptr", GCfuncL, uvptr), AT("GCfunc.env", GCfuncL, env), PLACE(GCupval, v);
  return 0;
}

#endif
