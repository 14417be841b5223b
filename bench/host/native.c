/* SPDX-License-Identifier: MIT */
/* Is Lua's stack found whenever Lua runs? Stops a process at random moments; its native stack, unwound by its call frame information, tells
 * whether a Lua call is under way, independently of the walk.
 *
 *   native PID STOPS      prints: Lua calls without a Lua stack (their share) | stops with a Lua call | stops */
#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attach/runtime.h"

typedef struct {
  Dwfl *dwfl;
  const maps_t *maps;
  const runtimes_t *runtimes;
  bool calls_lua;
} native_t;

/* LuaJIT: in the interpreter's own code, which calls of C functions come back to. */
static bool is_interpreter(const runtimes_t *runtimes, uint64_t pc) {
  for (size_t i = 0; i < runtimes->count; i++)
    if (pc >= runtimes->runtimes[i].vm_low && pc < runtimes->runtimes[i].vm_high) return true;
  return false;
}

static bool enters_lua(const char *name) {
  static const char *const names[] = {"lua_resume", "lua_call",  "lua_pcall",
                                      "lua_cpcall", "lua_callk", "lua_pcallk"};
  for (size_t i = 0; name != NULL && i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static int on_frame(Dwfl_Frame *frame, void *context) {
  native_t *native = context;
  Dwarf_Addr pc;
  bool activation;
  if (!dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
  if (!activation) pc--;
  Dwfl_Module *module = dwfl_addrmodule(native->dwfl, pc);
  const map_t *map = maps_find(native->maps, pc);
  bool compiled = module == NULL && map != NULL && map->executable && map->inode == 0 && map->path[0] == '\0';
  native->calls_lua |= compiled || is_interpreter(native->runtimes, pc) ||
                       (module != NULL && enters_lua(dwfl_module_addrname(module, pc)));
  return native->calls_lua ? DWARF_CB_ABORT : DWARF_CB_OK;
}

static Dwfl *open_native(pid_t pid) {
  static char *no_path;
  static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                           .find_debuginfo = dwfl_standard_find_debuginfo,
                                           .debuginfo_path = &no_path};
  Dwfl *dwfl = dwfl_begin(&callbacks);
  if (dwfl == NULL || dwfl_linux_proc_report(dwfl, pid) != 0 || dwfl_report_end(dwfl, NULL, NULL) != 0 ||
      dwfl_linux_proc_attach(dwfl, pid, true) != 0)
    return NULL;
  return dwfl;
}

static bool has_stack(target_t *target, const runtimes_t *runtimes, const stopped_thread_t *thread) {
  for (size_t i = 0; i < runtimes->count; i++) {
    const runtime_t *r = &runtimes->runtimes[i];
    if (r->layout != NULL &&
        vms_on_thread(target, r->layout, thread, r->vm_low, r->vm_high, r->vms, NULL, 0) &&
        walk_frames(target->walk) == WALK_OK)
      return true;
  }
  return false;
}

int main(int argc, char **argv) {
  failure_t failure = {""};
  target_t target;
  static runtimes_t runtimes;
  runtime_options_t options = {.given = NULL};
  unsigned stops = 0, calls = 0, missed = 0;
  pid_t pid = argc == 3 ? (pid_t)atoi(argv[1]) : 0;
  if (pid == 0 || !target_open(&target, pid, &failure) ||
      !runtimes_decide(&runtimes, &target, &options, &failure) || !runtimes_any(&runtimes)) {
    fprintf(stderr, "native: %s\n", failure.text[0] != '\0' ? failure.text : "which process, and how often?");
    return 1;
  }
  native_t native = {.dwfl = open_native(pid), .maps = &target.maps, .runtimes = &runtimes};
  if (native.dwfl == NULL) return fprintf(stderr, "native: %s\n", dwfl_errmsg(-1)), 1;
  target_release(&target);
  for (unsigned left = (unsigned)atoi(argv[2]); left > 0; left--) {
    nanosleep(&(struct timespec){0, 500000 + random() % 2000000}, NULL);
    if (!target_hold(&target, &failure)) break;
    const stopped_thread_t *thread = &target.stopped.threads[0];
    native.calls_lua = false;
    dwfl_getthread_frames(native.dwfl, thread->tid, on_frame, &native);
    stops++;
    if (native.calls_lua) {
      calls++;
      missed += !has_stack(&target, &runtimes, thread);
    }
    target_release(&target);
  }
  printf("%u (%.2f %%) | %u | %u\n", missed, calls > 0 ? missed * 100.0 / calls : 0, calls, stops);
  return 0;
}
