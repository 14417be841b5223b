/* SPDX-License-Identifier: MIT */
/* A host with Debian's Lua 5.4 in it, and with debug information of that Lua, which Debian's library has none of: its structures, as Lua's own
 * headers have them from 5.4.3 on. Runs the script that it is given, with the arguments behind it. */
#include <lauxlib.h>
#include <lualib.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned char lu_byte;
typedef uint32_t Instruction;
typedef struct GCObject GCObject;
typedef int (*c_function_t)(lua_State *);

#define CommonHeader     \
  struct GCObject *next; \
  lu_byte tt;            \
  lu_byte marked

typedef union Value {
  GCObject *gc;
  void *p;
  c_function_t f;
  lua_Integer i;
  lua_Number n;
} Value;
typedef struct TValue {
  Value value_;
  lu_byte tt_;
} TValue;
typedef union StackValue {
  TValue val;
  struct {
    Value value_;
    lu_byte tt_;
    unsigned short delta;
  } tbclist;
} StackValue;
typedef StackValue *StkId;

typedef struct TString {
  CommonHeader;
  lu_byte extra, shrlen;
  unsigned int hash;
  union {
    size_t lnglen;
    struct TString *hnext;
  } u;
  char contents[1];
} TString;

typedef struct Upvaldesc {
  TString *name;
  lu_byte instack, idx, kind;
} Upvaldesc;
typedef struct LocVar {
  TString *varname;
  int startpc, endpc;
} LocVar;
typedef struct AbsLineInfo {
  int pc, line;
} AbsLineInfo;
typedef struct Proto {
  CommonHeader;
  lu_byte numparams, is_vararg, maxstacksize;
  int sizeupvalues, sizek, sizecode, sizelineinfo, sizep, sizelocvars, sizeabslineinfo, linedefined,
      lastlinedefined;
  TValue *k;
  Instruction *code;
  struct Proto **p;
  Upvaldesc *upvalues;
  signed char *lineinfo;
  AbsLineInfo *abslineinfo;
  LocVar *locvars;
  TString *source;
  GCObject *gclist;
} Proto;

typedef struct CClosure {
  CommonHeader;
  lu_byte nupvalues;
  GCObject *gclist;
  c_function_t f;
  TValue upvalue[1];
} CClosure;
typedef struct LClosure {
  CommonHeader;
  lu_byte nupvalues;
  GCObject *gclist;
  Proto *p;
  void *upvals[1];
} LClosure;

typedef union Node {
  struct NodeKey {
    Value value_;
    lu_byte tt_, key_tt;
    int next;
    Value key_val;
  } u;
  TValue i_val;
} Node;
typedef struct Table {
  CommonHeader;
  lu_byte flags, lsizenode;
  unsigned int alimit;
  TValue *array;
  Node *node, *lastfree;
  struct Table *metatable;
  GCObject *gclist;
} Table;

typedef struct CallInfo {
  StkId func, top;
  struct CallInfo *previous, *next;
  union {
    struct {
      const Instruction *savedpc;
      volatile int trap;
      int nextraargs;
    } l;
    struct {
      void *k;
      ptrdiff_t old_errfunc;
      void *ctx;
    } c;
  } u;
  union {
    int funcidx, nyield, nres;
    struct {
      unsigned short ftransfer, ntransfer;
    } transferinfo;
  } u2;
  short nresults;
  unsigned short callstatus;
} CallInfo;

struct lua_State {
  CommonHeader;
  lu_byte status, allowhook;
  unsigned short nci;
  StkId top;
  struct global_State *l_G;
  CallInfo *ci;
  StkId stack_last, stack;
  void *openupval;
  StkId tbclist;
  GCObject *gclist;
  struct lua_State *twups;
  void *errorJmp;
  CallInfo base_ci;
};

typedef struct stringtable {
  TString **hash;
  int nuse, size;
} stringtable;
typedef struct global_State {
  void *frealloc, *ud;
  ptrdiff_t totalbytes, GCdebt;
  size_t GCestimate, lastatomic;
  stringtable strt;
  TValue l_registry, nilvalue;
  unsigned int seed;
  lu_byte currentwhite, gcstate, gckind, gcstopem, genminormul, genmajormul, gcstp, gcemergency, gcpause,
      gcstepmul, gcstepsize;
  GCObject *allgc, **sweepgc, *finobj, *gray, *grayagain, *weak, *ephemeron, *allweak, *tobefnz, *fixedgc,
      *survival, *old1, *reallyold, *firstold1, *finobjsur, *finobjold1, *finobjrold;
  struct lua_State *twups;
  void *panic;
  struct lua_State *mainthread;
} global_State;

/* so that they are in it */
struct {
  lua_State *state;
  global_State *global;
  LClosure *lua;
  CClosure *c;
  Table *table;
} debug_shapes;

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_loadfile(L, argv[1])) return 1;
  for (int i = 2; i < argc; i++) lua_pushstring(L, argv[i]);
  return lua_pcall(L, argc - 2, 0, 0);
}
