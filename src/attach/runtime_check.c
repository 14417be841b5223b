/* SPDX-License-Identifier: MIT */
/* Checking a layout against a held process; see runtime_check.h. */
#include "attach/runtime_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attach/table.h"
#include "walk/bytes.h"

enum {
  VMS_ON_A_STACK = 8,
  MOST_LINES = 1 << 26,
  MOST_SOURCE = 1 << 28,
  REGISTRY_NODES = 1 << 16,
  INTERPRETER_BYTES = 1 << 20,
  VM_BEFORE = 8192, /* routines that the interpreter shares stand a little before and behind it */
  VM_AFTER = 2048
};

__attribute__((format(printf, 2, 3))) static bool at_odds(check_t *check, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(check->why, sizeof check->why, format, arguments);
  va_end(arguments);
  return false;
}

/* -- functions -------------------------------------------------------------------------------------------------- */

static bool check_proto(check_t *check, uint64_t address, uint64_t pc) {
  walk_t *w = check->target->walk;
  walk_proto_t proto;
  char source[8];
  size_t len;
  if (!walk_proto(w, address, WALK_GUESS, &proto)) return at_odds(check, "a function's prototype is none");
  if (!walk_string(w, proto.source, source, sizeof source, &len) || len > MOST_SOURCE)
    return at_odds(check, "a function's source is no string");
  if (check->layout->family == LAYOUT_LUAJIT && proto.line == -1)
    return true; /* of its own library: no line */
  if (proto.line < 0 || proto.line > MOST_LINES || proto.last_line < proto.line ||
      proto.last_line > MOST_LINES)
    return at_odds(check, "a function's lines make no sense");
  int32_t line = pc != 0 ? walk_line(w, &proto, pc) : 0;
  if (line != 0 && (line < proto.line || (proto.line > 0 && line > proto.last_line)))
    return at_odds(check, "the line at work is outside of its function");
  check->functions++;
  return true;
}

/* -- VMs ---------------------------------------------------------------------------------------------------------- */

/* LuaJIT: the interpreter's code, by the pointers to it in the dispatch table. The table tells releases apart that are alike in all else,
 * by where it begins and ends. */
static bool check_interpreter(check_t *check, uint64_t global, uint64_t main) {
  const layout_luajit_t *l = &check->layout->luajit;
  walk_memory_t *memory = &check->target->remote->memory;
  uint64_t gg = global - l->gg_global, low = UINT64_MAX, high = 0, before, after;
  if (check->layout->family != LAYOUT_LUAJIT) return true;
  if (main != gg) return at_odds(check, "the main thread is not where GG_State begins");
  for (uint32_t at = l->gg_dispatch; at + 8 <= l->gg_code; at += 8) {
    uint64_t code;
    if (!walk_read(memory, &code, gg + at, sizeof code, WALK_GUESS))
      return at_odds(check, "the dispatch table cannot be read");
    if (code == 0) continue;
    low = code < low ? code : low;
    high = code > high ? code : high;
  }
  const map_t *map = maps_find(&check->target->maps, low);
  if (low > high || high - low > INTERPRETER_BYTES || map == NULL || !map->executable)
    return at_odds(check, "the dispatch table is not where the layout says");
  if (!walk_read(memory, &before, gg + l->gg_dispatch - 8, sizeof before, WALK_GUESS) ||
      !walk_read(memory, &after, gg + l->gg_code, sizeof after, WALK_GUESS) ||
      (before >= low && before <= high) || (after >= low && after <= high))
    return at_odds(check, "the dispatch table begins or ends elsewhere");
  check->vm_low = low - VM_BEFORE;
  check->vm_high = high + VM_AFTER;
  return true;
}

/* Hooks are permitted except in hooks and finalizers: a byte that is neither 0 nor 1 is another field, and 0 most often is. */
static bool check_main(check_t *check, uint64_t main) {
  const layout_puc_t *l = &check->layout->puc;
  uint8_t allowed;
  if (check->layout->family != LAYOUT_PUC || l->state_allowhook == LAYOUT_ABSENT) return true;
  if (!walk_read(&check->target->remote->memory, &allowed, main + l->state_allowhook, 1, WALK_GUESS) ||
      allowed > 1 || (check->strict && allowed != 1))
    return at_odds(check, "the main thread's allowhook is not where the layout says");
  return true;
}

/* The record below the first call names the bottom of the stack, except while that is being moved. */
static bool check_bottom(check_t *check, uint64_t main) {
  walk_state_t state;
  uint64_t bottom;
  if (check->layout->family != LAYOUT_PUC || !check->strict) return true;
  if (!walk_state(check->target->walk, main, WALK_GUESS, &state) ||
      !walk_read(&check->target->remote->memory, &bottom, state.first + check->layout->puc.ci_func,
                 sizeof bottom, WALK_GUESS) ||
      bottom != state.stack)
    return at_odds(check, "the main thread's calls do not begin at the bottom of its stack");
  return true;
}

/* Tables and strings tell releases apart that are alike in all else that a walk needs (5.2.3 and 5.2.4; 5.3.0 and 5.3.1). Whoever uses
 * Lua's auxiliary library has _LOADED in the registry. */
static bool check_tables(check_t *check, uint64_t global) {
  walk_t *w = check->target->walk;
  uint64_t globals, registry;
  if (!check->strict || !table_is_known(check->layout)) return true;
  if (!table_globals(w, global, &globals))
    return at_odds(check, "the table of globals is not where the layout says");
  return (table_registry(w, global, &registry) && table_has(w, registry, "_LOADED", REGISTRY_NODES)) ||
         at_odds(check, "the registry is not what the layout says");
}

static bool check_vm(check_t *check, uint64_t global, uint64_t main) {
  return check_interpreter(check, global, main) && check_main(check, main) && check_bottom(check, main) &&
         check_tables(check, global);
}

/* -- what runs ------------------------------------------------------------------------------------------------------ */

static bool check_frames(check_t *check, const stopped_thread_t *thread) {
  walk_t *w = check->target->walk;
  walk_reason_t reason = walk_frames(w);
  if (reason != WALK_OK) {
    at_odds(check, "the frames of thread %d cannot be walked: %s", (int)thread->tid,
            walk_reason_name(reason));
    check->unwalked++;
    return true;
  }
  check->walked++;
  for (uint32_t i = 0; i < w->frame_count; i++)
    if (w->frames[i].kind == WALK_LUA && !check_proto(check, w->frames[i].proto, w->frames[i].pc))
      return false;
  check->frames += w->frame_count;
  return true;
}

/* All VMs of the thread's native stack; *found counts them. */
static bool check_thread(check_t *check, const stopped_thread_t *thread, unsigned *found) {
  uint64_t skip[VMS_ON_A_STACK];
  target_t *target = check->target;
  for (size_t count = 0; count < VMS_ON_A_STACK; count++) {
    if (!vms_on_thread(target, check->layout, thread, 0, 0, NULL, skip, count)) break;
    uint64_t global = target->walk->states[0].global, main = walk_main_of(target->walk, global);
    skip[count] = global;
    ++*found;
    if (!check_vm(check, global, main)) return false;
    target->walk->vm_low = check->vm_low;
    target->walk->vm_high = check->vm_high;
    if (!check_frames(check, thread)) return false;
    vms_add(check->vms, global, main, thread->tid);
  }
  return true;
}

/* -- what does not run ---------------------------------------------------------------------------------------------- */

typedef struct {
  check_t *check;
  unsigned left;
  bool ok;
} protos_t;

static bool look_at_proto(void *context, uint64_t object) {
  protos_t *protos = context;
  protos->ok = check_proto(protos->check, object, 0);
  return protos->ok && --protos->left > 0;
}

/* False when one is at odds. */
static bool check_protos(check_t *check, uint64_t global, uint64_t main, objects_end_t *end) {
  target_t *target = check->target;
  check_long_t *too_long = check->too_long;
  protos_t protos = {check, CHECK_PROTOS, true};
  uint8_t type = vms_type_proto(check->layout);
  uint64_t count;
  if (too_long->main == main && too_long->count > 0) {
    *end = OBJECTS_ALL;
    for (size_t i = 0; i < too_long->count && protos.ok; i++)
      if (vms_is_object(target, check->layout, global, type, too_long->protos[i])) /* not collected since */
        look_at_proto(&protos, too_long->protos[i]);
    return protos.ok;
  }
  *end = vms_objects_until(target, check->layout, global, type, &count, look_at_proto, &protos, check->until);
  bool in_vain = too_long->followed && too_long->count == 0;
  if (*end == OBJECTS_CUT && (too_long->main == 0 || (in_vain && main > too_long->main)))
    *too_long = (check_long_t){.main = main};
  return protos.ok;
}

static bool check_idle(check_t *check, uint64_t main) {
  target_t *target = check->target;
  uint64_t global;
  objects_end_t end;
  unsigned before = check->functions;
  if (!vms_check_main(target, main, &global)) return at_odds(check, "what looked like a VM was none");
  if (!check_vm(check, global, main)) return false;
  if (!check_protos(check, global, main, &end)) return false;
  walk_state_t state;
  if (!walk_state(target->walk, main, WALK_GUESS, &state) ||
      walk_frames_of(target->walk, &state, false) != WALK_OK)
    return at_odds(check, "the main thread's calls cannot be walked");
  if (target->walk->frame_count > 0 && !check->patient)
    return at_odds(check, "its main thread has calls, but was not found on a native stack");
  if (end == OBJECTS_UNKNOWN)
    return at_odds(check, "no Lua runs now, and the layout does not say where objects are");
  if (end == OBJECTS_BROKEN) return at_odds(check, "the list of objects leads nowhere");
  if (end == OBJECTS_CUT && !check->patient)
    return at_odds(check, "no Lua runs now, and there are too many objects to look through at once");
  if (check->functions == before)
    return at_odds(check, "no Lua runs now, and there is no function among the VM's objects");
  vms_add(check->vms, global, main, 0);
  return true;
}

static bool keep_proto(void *context, uint64_t object) {
  check_long_t *too_long = context;
  too_long->protos[too_long->count++] = object;
  return too_long->count < CHECK_PROTOS;
}

void check_follow(target_t *target, const layout_t *layout, check_long_t *too_long) {
  uint64_t global, count;
  if (too_long->main == 0 || (too_long->followed && too_long->count == 0)) return;
  remote_forget(target->remote);
  target_aim(target, layout, NULL);
  too_long->followed = true;
  too_long->count = 0;
  if (vms_check_main(target, too_long->main, &global))
    vms_objects(target, layout, global, vms_type_proto(layout), &count, keep_proto, too_long);
  remote_forget(target->remote);
}

bool check_running(check_t *check) {
  target_t *target = check->target;
  unsigned found = 0;
  at_odds(check, "no VM was found on a thread's native stack");
  for (size_t i = 0; i < target->stopped.count; i++)
    if (!check_thread(check, &target->stopped.threads[i], &found)) return false;
  if (check->unwalked > check->walked / 4) return false; /* why was said */
  if (check->functions == 0)
    return found > 0 ? at_odds(check, "there are only C functions on the stacks") : false;
  snprintf(check->why, sizeof check->why,
           "%u frame%s walked, %u Lua function%s of them with source and lines in order", check->frames,
           check->frames == 1 ? "" : "s", check->functions, check->functions == 1 ? "" : "s");
  return true;
}

bool check_in_memory(check_t *check, const uint64_t *mains, size_t count) {
  target_aim(check->target, check->layout, NULL);
  at_odds(check, "no VM was found, on the threads' native stacks or in memory");
  for (size_t i = 0; i < count; i++) {
    if (!check_idle(check, mains[i])) continue;
    snprintf(
        check->why, sizeof check->why,
        "no Lua function is at work now; %u function%s in the VM's memory with source and lines in order",
        check->functions, check->functions == 1 ? "" : "s");
    return true;
  }
  return false;
}
