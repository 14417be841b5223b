/* SPDX-License-Identifier: MIT */
/* Choosing and checking the layout; see walk_setup.h. Ordinary context. */
#include "agent/walk_setup.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/c_nature.h"
#include "agent/loader.h"
#include "agent/seccomp.h"
#include "agent/thread_state.h"
#include "agent/vm_index.h"
#include "profile/mem.h"
#include "walk/memory_own.h"

enum {
  MAX_IMAGES = 256,
  MAX_FILE = 65536,
  MAX_LEVELS = 200,
  SLOT_BYTES = 16, /* of a stack of PUC Lua */
  VM_BEFORE = 8192,
  VM_AFTER = 2048
};

static layout_t layout; /* of this process; written once, under the lock, before anybody reads it */
static bool chosen;
static uint64_t vm_low, vm_high; /* LuaJIT's interpreter */
static _Atomic uint32_t
    alignment; /* of lua_States: mask in the upper half, remainder in the lower; 0: not known yet */
static walk_range_t images[MAX_IMAGES];
static _Atomic uint32_t image_count;
static pthread_mutex_t lock =
    PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* a finalizer may fork while the check runs */

/* -- one walk of the own thread, all reads through the kernel --------------------------------------------------- */

typedef struct {
  walk_t walk;
  memory_own_t memory;
  char source[4096];
  const char *why; /* what disagreed */
} probe_t;

static bool accepts_one(void *context, uint64_t global) {
  return global == *(const uint64_t *)context;
}

static void walk_here(probe_t *probe, const layout_t *candidate, uint64_t *global) {
  walk_t *w = &probe->walk;
  memset(w, 0, sizeof *w);
  memory_own_init(&probe->memory, getpid());
  w->layout = candidate;
  w->memory = &probe->memory.memory;
  w->registers.sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
  uint64_t low, high;
  thread_own_stack(&low, &high);
  w->stack_known = w->registers.sp >= low &&
                   w->registers.sp < high; /* copies of states that walks have left there are none */
  w->stack_high = w->stack_known ? high : w->registers.sp + ((uint64_t)1 << 20);
  w->accepts = *global != 0 ? accepts_one : NULL;
  w->context = global;
}

/* -- against lua_getinfo ------------------------------------------------------------------------------------------ */

static bool same_source(probe_t *probe, uint64_t string, const char *expected) {
  size_t len;
  if (!walk_string(&probe->walk, string, probe->source, sizeof probe->source, &len)) return false;
  size_t compared = len < sizeof probe->source ? len : sizeof probe->source;
  return strlen(expected) == len && memcmp(probe->source, expected, compared) == 0;
}

/* The function of `ar` lies on top of L. */
static bool same_frame(probe_t *probe, lua_State *L, const lua_Debug *ar, const walk_frame_t *frame) {
  lua_CFunction c = lua_tocfunction(L, -1);
  bool is_lua = ar->what[0] != 'C';
  if (is_lua != (frame->kind == WALK_LUA)) return false;
  if (!is_lua) return c == NULL || frame->code == (uint64_t)(uintptr_t)c; /* LuaJIT's built-ins have none */
  walk_proto_t proto;
  if (frame->function != (uint64_t)(uintptr_t)lua_topointer(L, -1)) return false;
  if (!walk_proto(&probe->walk, frame->proto, WALK_GUESS, &proto)) return false;
  return proto.line == ar->linedefined && same_source(probe, proto.source, ar->source) &&
         (ar->currentline <= 0 || walk_line(&probe->walk, &proto, frame->pc) == ar->currentline);
}

static uint32_t compare_state(probe_t *probe, lua_State *L, uint32_t at) {
  lua_Debug ar;
  for (int level = 0; level < MAX_LEVELS && lua_getstack(L, level, &ar); level++) {
    if (!lua_getinfo(L, "Slf", &ar)) continue;
    bool tail = strcmp(ar.what, "tail") == 0; /* 5.1: a call that is no more */
    bool same = tail || (at < probe->walk.frame_count && same_frame(probe, L, &ar, &probe->walk.frames[at]));
    lua_pop(L, 1);
    if (!same) {
      probe->why = "the walk and lua_getinfo disagree about a frame";
      return 0;
    }
    if (!tail) at++;
  }
  return at;
}

typedef struct {
  probe_t *probe;
  const layout_t *candidate;
  uint64_t global; /* of the VM, once known */
  uint64_t main;
  lua_State *outer;
  bool agrees;
} check_t;

static bool check_main(check_t *check) {
  probe_t *probe = check->probe;
  walk_state_t main;
  check->global = probe->walk.states[0].global;
  check->main = walk_main_of(&probe->walk, check->global);
  if (walk_state(&probe->walk, check->main, WALK_GUESS, &main) && main.global == check->global) return true;
  probe->why = "the main thread was not found";
  return false;
}

static bool read_now(check_t *check, void *to, uint64_t at, size_t len) {
  memory_own_init(&check->probe->memory, getpid()); /* what was read before is kept, and old by now */
  return walk_read(&check->probe->memory.memory, to, at, (uint32_t)len, WALK_GUESS);
}

/* What no frame shows, of a coroutine without hooks: releases differ in these fields alone. */
static bool check_fields(check_t *check, lua_State *co) {
  const layout_puc_t *l = &check->candidate->puc;
  uint64_t state = (uint64_t)(uintptr_t)co, top = 0, pushed = 0;
  uint8_t allowed = 0;
  if (check->candidate->family != LAYOUT_PUC) return true;
  bool ok = l->state_allowhook == LAYOUT_ABSENT ||
            (read_now(check, &allowed, state + l->state_allowhook, sizeof allowed) && allowed == 1);
  if (ok && l->state_top != LAYOUT_ABSENT) {
    ok = read_now(check, &top, state + l->state_top, sizeof top);
    lua_pushnil(co);
    ok = ok && read_now(check, &pushed, state + l->state_top, sizeof pushed) && pushed - top == SLOT_BYTES;
    lua_pop(co, 1);
  }
  if (!ok) check->probe->why = "the coroutine's state is another";
  return ok;
}

/* Runs inside the coroutine, called by the chunk below. */
static int check_here(lua_State *co) {
  check_t *check = lua_touserdata(co, 1);
  probe_t *probe = check->probe;
  walk_here(probe, check->candidate, &check->global);
  if (walk_find(&probe->walk) != WALK_OK || probe->walk.states[0].state != (uint64_t)(uintptr_t)co) {
    probe->why = "the running coroutine was not found";
    return 0;
  }
  if (probe->walk.state_count < 2 || probe->walk.states[1].state != (uint64_t)(uintptr_t)check->outer) {
    probe->why = "the coroutine's resumer was not found";
    return 0;
  }
  if (walk_frames(&probe->walk) != WALK_OK) {
    probe->why = "the frames could not be read";
    return 0;
  }
  uint32_t inner = compare_state(probe, co, 0);
  uint32_t all = inner >= 4 ? compare_state(probe, check->outer, inner) : 0;
  check->agrees = all > 0 && check_main(check) && check_fields(check, co);
  return 0;
}

static const char chunk[] =
    "local check, context = ...\n"
    "local function inner(a)\n"
    "  check(a)\n"
    "  return a\n"
    "end\n"
    "local function outer(a, ...)\n"
    "  local r =\n"
    "    inner(a)\n"
    "  return r, ...\n"
    "end\n"
    "local r = outer(context, 1, 2)\n"
    "return r\n";

/* Where the host has a hook that all coroutines share (LuaJIT), nothing may be run that it would see: the stack as it is must
 * do. */
static bool check_as_it_is(lua_State *L, check_t *check) {
  probe_t *probe = check->probe;
  walk_here(probe, check->candidate, &check->global);
  check->agrees = walk_find(&probe->walk) == WALK_OK &&
                  probe->walk.states[0].state == (uint64_t)(uintptr_t)L &&
                  walk_frames(&probe->walk) == WALK_OK && compare_state(probe, L, 0) > 0 && check_main(check);
  return check->agrees;
}

static bool run_check(lua_State *L, check_t *check) {
  if (check->candidate->family == LAYOUT_LUAJIT && lua_gethook(L) != NULL) return check_as_it_is(L, check);
  check->outer = L;
  check->agrees = false;
  check->probe->why = "the check could not be run";
  int top = lua_gettop(L), results;
  lua_State *co = lua_newthread(L);
  if (check->candidate->family == LAYOUT_PUC) lua_sethook(co, NULL, 0, 0); /* it inherits the host's, of L */
  if (luaL_loadbuffer(L, chunk, sizeof chunk - 1, "=luapulse.check") == 0) {
    lua_pushcfunction(L, check_here); /* by L, which is protected */
    lua_pushlightuserdata(L, check);
    lua_xmove(L, co, 3);
    if (lv_resume(co, L, 2, &results) != 0) check->agrees = false;
  }
  lua_settop(L, top);
  return check->agrees;
}

/* -- choosing ------------------------------------------------------------------------------------------------------ */

static uint8_t language_of(void) {
  return (uint8_t)(50 + lv_name[6] - '0'); /* "Lua 5.4" */
}

static bool fits(const vm_t *vm, const layout_t *candidate) {
  return candidate->family == (vm->luajit ? LAYOUT_LUAJIT : LAYOUT_PUC) &&
         candidate->language == language_of();
}

/* The layout in a file; the text of why not in vm->note. */
static bool read_file(vm_t *vm, const char *file, layout_t *out) {
  char *text = mem_alloc(MAX_FILE);
  int fd =
      text != NULL ? open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1; /* a pipe has no layout */
  ssize_t len = fd >= 0 ? read(fd, text, MAX_FILE) : -1;
  layout_error_t error = {"cannot be read"};
  size_t at = 0;
  bool ok = false;
  if (len == 0) snprintf(error.text, sizeof error.text, "it is empty");
  if (fd >= 0) close(fd);
  while (len > 0 && !ok && layout_parse(text, (size_t)len, &at, out, &error)) ok = fits(vm, out);
  if (!ok)
    snprintf(vm->note, sizeof vm->note, "layout file %s: %s", file,
             error.text[0] != '\0' ? error.text : "no layout in it is for this Lua");
  mem_free(text);
  return ok;
}

/* The interpreter's code, from the pointers to it in the dispatch table. Routines it shares stand a little before. What a
 * C function sees is nearly the same in many releases: the table tells which one it is, by where it begins and ends. */
static bool find_interpreter(check_t *check) {
  const layout_luajit_t *l = &check->candidate->luajit;
  walk_memory_t *memory = &check->probe->memory.memory;
  uint64_t gg = check->global - l->gg_global, low = UINT64_MAX, high = 0, before, after;
  check->probe->why = "the interpreter's code was not found";
  if (check->main != gg) return false; /* the main thread opens GG_State */
  for (uint32_t at = l->gg_dispatch; at + 8 <= l->gg_code; at += 8) {
    uint64_t code;
    if (!walk_read(memory, &code, gg + at, sizeof code, WALK_GUESS)) return false;
    if (code == 0) continue;
    low = code < low ? code : low;
    high = code > high ? code : high;
  }
  if (low > high || high - low > (1u << 20) ||
      !walk_read(memory, &before, gg + l->gg_dispatch - 8, sizeof before, WALK_GUESS) ||
      !walk_read(memory, &after, gg + l->gg_code, sizeof after, WALK_GUESS))
    return false;
  if ((before >= low && before <= high) || (after >= low && after <= high)) return false;
  vm_low = low - VM_BEFORE;
  vm_high = high + VM_AFTER;
  return true;
}

static bool agrees(lua_State *L, check_t *check) {
  if (run_check(L, check) && (check->candidate->family != LAYOUT_LUAJIT || find_interpreter(check)))
    return true;
  check->global = 0;
  return false;
}

static bool choose(vm_t *vm, lua_State *L, const char *file, check_t *check) {
  layout_t own;
  if (file != NULL) {
    if (!read_file(vm, file, &own)) return false;
    check->candidate = &own;
    if (!agrees(L, check)) {
      snprintf(vm->note, sizeof vm->note, "layout file %s: %s", file, check->probe->why);
      return false;
    }
    layout = own;
    return true;
  }
  const char *why = "no layout is known for this Lua";
  for (size_t i = 0; (check->candidate = layout_known(i)) != NULL; i++) {
    if (!fits(vm, check->candidate)) continue;
    if (agrees(L, check)) {
      layout = *check->candidate;
      return true;
    }
    why = check->probe->why;
  }
  snprintf(vm->note, sizeof vm->note, "%s; `luapulse layout` makes a layout for this build of Lua", why);
  return false;
}

static bool check_vm(vm_t *vm, lua_State *L, const char *file, check_t *check) {
  if (chosen && file == NULL) {
    check->candidate = &layout;
    if (run_check(L, check)) return true;
    snprintf(vm->note, sizeof vm->note, "%s", check->probe->why);
    return false;
  }
  if (chosen && vm_index_count(&walked_vms) + vm_index_count(&traced_vms) >
                    0) { /* others are being walked with the layout chosen before */
    snprintf(vm->note, sizeof vm->note, "another VM is being profiled with another layout");
    return false;
  }
  if (!choose(vm, L, file, check)) return false;
  chosen = true;
  return true;
}

/* -- what is no lua_State ---------------------------------------------------------------------------------------- */

static int add_image(struct dl_phdr_info *info, size_t size, void *context) {
  uint32_t *count = context;
  walk_range_t range = {UINT64_MAX, 0};
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    uint64_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, to = from + info->dlpi_phdr[i].p_memsz;
    range.start = from < range.start ? from : range.start;
    range.end = to > range.end ? to : range.end;
  }
  if (range.end <= range.start || *count == MAX_IMAGES) return 0;
  uint32_t at = (*count)++;
  for (; at > 0 && images[at - 1].start > range.start; at--) images[at] = images[at - 1];
  images[at] = range;
  return 0;
}

/* Once: what is loaded later costs a few reads more. */
static void learn_images(void) {
  uint32_t count = 0;
  if (atomic_load(&image_count) > 0) return;
  loader_each_image(add_image, &count);
  atomic_store(&image_count, count);
}

/* Whether the allocator aligns by 16, as that of the C library does: of blocks that grow by 8, one after the other, some do not lie on 16
 * in an allocator that aligns by 8, whatever it adds to each. */
static bool aligns_by_16(lua_State *L) {
  enum { BLOCKS = 32 };
  void *data, *blocks[BLOCKS];
  lua_Alloc allocate = lua_getallocf(L, &data);
  uint64_t all = 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = allocate(data, NULL, 0, 24 + 8 * i);
    all |= blocks[i] == NULL ? 1 : (uint64_t)(uintptr_t)blocks[i];
  }
  for (size_t i = 0; i < BLOCKS; i++)
    if (blocks[i] != NULL) allocate(data, blocks[i], 24 + 8 * i, 0);
  return (all & 15) == 0;
}

/* lua_States may begin some way into their block, all of them equally far. LuaJIT's own allocator aligns by 8. */
static void learn_alignment(const vm_t *vm, lua_State *L, uint64_t main) {
  uint64_t state = (uint64_t)(uintptr_t)lua_newthread(L);
  lua_pop(L, 1);
  bool by_16 = !vm->luajit && aligns_by_16(L) && ((state ^ main) & 15) == 0;
  uint32_t mask = by_16 ? 15 : 7, known = atomic_load(&alignment);
  uint32_t learned = mask << 16 | (uint32_t)(state & mask);
  if (known != 0 && known != learned) learned = 7u << 16; /* VMs with several allocators */
  atomic_store(&alignment, learned);
}

typedef struct {
  vm_t *vm;
  const char *file;
  check_t check;
  bool ok;
} setup_call_t;

static int learn_protected(lua_State *co) {
  c_nature_learn(co);
  return 0;
}

/* It calls functions: where no hook of the host sees it; not at all where all coroutines share one. */
static void learn_quietly(lua_State *L) {
  if (layout.family == LAYOUT_LUAJIT && lua_gethook(L) != NULL) return;
  lua_State *co = lua_newthread(L);
  if (layout.family == LAYOUT_PUC) lua_sethook(co, NULL, 0, 0);
  /* on the coroutine nothing else protects: 5.1 ends the process when one that does not run is out of memory */
  if (lv_protected_call(co, learn_protected, NULL) != 0) {
    lua_pushnil(L);
    lua_error(L);
  }
  lua_pop(L, 1);
}

static int setup_protected(lua_State *L) {
  setup_call_t *call = lua_touserdata(L, 1);
  call->ok = check_vm(call->vm, L, call->file, &call->check);
  if (call->ok) {
    learn_quietly(L);
    learn_images();
    learn_alignment(call->vm, L, call->check.main);
  }
  return 0;
}

static void take_lock(void) {
  pthread_mutex_lock(&lock);
}

static void give_lock(void) {
  pthread_mutex_unlock(&lock);
}

/* A recursive mutex knows its owner by number, and the child's thread has another. */
static void make_lock(void) {
  lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

int walk_setup_guard_forks(void) {
  return pthread_atfork(take_lock, give_lock, make_lock);
}

bool walk_setup(vm_t *vm, lua_State *L, const char *file) {
  vm->global = 0;
  vm->note[0] = '\0';
#if !defined __x86_64__ && !defined __aarch64__
  snprintf(vm->note, sizeof vm->note, "the registers of this processor are not known");
  return false;
#endif
  if (seccomp_is_active()) {
    snprintf(vm->note, sizeof vm->note, "a seccomp filter is active: process_vm_readv is not tried");
    return false;
  }
  setup_call_t call = {.vm = vm, .file = file, .check = {.probe = mem_alloc(sizeof(probe_t))}};
  if (call.check.probe == NULL) {
    snprintf(vm->note, sizeof vm->note, "out of memory");
    return false;
  }
  pthread_mutex_lock(&lock);
  int status =
      lv_protected_call(L, setup_protected, &call); /* the lock must be given back whatever Lua raises */
  pthread_mutex_unlock(&lock);
  if (status != 0) {
    call.ok = false;
    snprintf(vm->note, sizeof vm->note, "the check ran out of memory or stack");
  }
  if (call.ok) {
    vm->global = call.check.global;
    vm->main_state = call.check.main;
  }
  mem_free(call.check.probe);
  return call.ok;
}

void walk_setup_apply(walk_t *walk) {
  walk->layout = &layout;
  walk->vm_low = vm_low;
  walk->vm_high = vm_high;
  uint32_t known = atomic_load_explicit(&alignment, memory_order_relaxed);
  walk->state_mask = known >> 16;
  walk->state_rest = known & 0xffff;
  walk->images = images;
  walk->image_count = atomic_load(&image_count);
}

const layout_t *walk_setup_layout(void) {
  return &layout;
}
