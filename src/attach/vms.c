/* SPDX-License-Identifier: MIT */
/* Finding VMs; see vms.h. */
#include "attach/vms.h"

#include <string.h>

#include "attach/clock.h"
#include "profile/mem.h"
#include "walk/bytes.h"

enum {
  CHUNK = 1 << 16,       /* as much as stays in a cache between the copy and the search */
  OVERLAP = 256,         /* of lua_State, up to the last field looked at */
  LEAST_VM_BYTES = 2048, /* a VM that was closed has less: its own state only */
  OBJECTS_SECONDS = 1,   /* a list of objects may be followed so long */
  OBJECT_HEAD = 24       /* more than where the type and the mark of an object stand */
};
static const uint64_t most_bytes = (uint64_t)1 << 30; /* of writable memory looked through */

bool vms_has(const vms_t *vms, uint64_t global) {
  for (size_t i = 0; i < vms->count; i++)
    if (vms->vms[i].global == global) return true;
  return false;
}

bool vms_add(vms_t *vms, uint64_t global, uint64_t main, pid_t thread) {
  for (size_t i = 0; i < vms->count; i++) {
    if (vms->vms[i].global != global) continue;
    if (vms->vms[i].thread == 0) vms->vms[i].thread = thread;
    return true;
  }
  if (vms->count == VMS_MAX) return false;
  vms->vms[vms->count++] = (vm_t){global, main, thread, clock_now()};
  return true;
}

/* -- in memory ---------------------------------------------------------------------------------------------------- */

/* True when the words at `here`, which stand at address `at`, may be a main thread. For LuaJIT that is all; for PUC Lua the VM has to be
 * asked. */
static bool may_be_main(const layout_t *layout, const uint8_t *here, uint64_t at, uint64_t *global) {
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    *global = bytes_ref(here, l->state_global, l->pointer);
    return *global == at + l->gg_global && here[l->state_tag] == vms_type_thread(layout);
  }
  const layout_puc_t *l = &layout->puc;
  if (here[l->state_tag] != l->tag_thread) return false;
  *global = bytes_u64(here, l->state_global);
  if (l->global_main_inside != LAYOUT_ABSENT) return *global + l->global_main_inside == at;
  return (*global & 7) == 0 && *global > 65536 && *global < (uint64_t)1 << 56;
}

static bool is_main_of(target_t *target, const layout_t *layout, uint64_t at, uint64_t global) {
  const map_t *map = maps_find(&target->maps, global);
  uint64_t main;
  if (map == NULL || !map->writable) return false;
  target->walk->layout = layout;
  target->walk->memory = &target->remote->memory;
  main = walk_main_of(target->walk, global);
  return main == at;
}

static bool fits(const layout_t *layout) {
  uint32_t end =
      layout->family == LAYOUT_LUAJIT ? layout->luajit.state_global + 8u : layout->puc.state_global + 8u;
  uint32_t tag = layout->family == LAYOUT_LUAJIT ? layout->luajit.state_tag : layout->puc.state_tag;
  return end <= OVERLAP && tag < OVERLAP;
}

static void look_through(target_t *target, const layout_t *const *layouts, size_t count, const uint8_t *chunk,
                         size_t len, uint64_t at, vms_seen_t *seen) {
  for (size_t i = 0; i + OVERLAP <= len; i += 8)
    for (size_t k = 0; k < count; k++) {
      uint64_t global;
      if (!may_be_main(layouts[k], chunk + i, at + i, &global)) continue;
      if (!is_main_of(target, layouts[k], at + i, global)) continue;
      if (seen->count == VMS_CANDIDATES) {
        seen->cut = true;
        return;
      }
      seen->found[seen->count].main = at + i;
      seen->found[seen->count++].layout = (uint32_t)k;
    }
}

void vms_look(target_t *target, const layout_t *const *layouts, size_t count, vms_seen_t *seen) {
  const layout_t *usable[VMS_LAYOUTS];
  uint8_t *chunk = mem_alloc(CHUNK + OVERLAP);
  memset(seen, 0, sizeof *seen);
  if (chunk == NULL || count > VMS_LAYOUTS) {
    mem_free(chunk);
    seen->cut = true;
    return;
  }
  for (size_t i = 0; i < count; i++) {
    usable[i] = layouts[i];
    if (!fits(layouts[i])) count = i; /* a file's layout that nothing can have */
  }
  memset(target->walk, 0, sizeof *target->walk);
  remote_forget(target->remote);
  for (size_t i = 0; i < target->maps.count; i++) {
    const map_t *map = &target->maps.maps[i];
    if (!map->readable || !map->writable) continue;
    for (uint64_t at = map->start; at < map->end;) {
      size_t wanted = map->end - at < CHUNK ? (size_t)(map->end - at) : CHUNK;
      if (seen->bytes > most_bytes) {
        seen->cut = true;
        break;
      }
      size_t got = remote_copy(target->remote, chunk, at, wanted);
      if (got == 0) break;
      memset(chunk + got, 0, OVERLAP); /* at the end of a mapping nothing is left out */
      look_through(target, usable, count, chunk, at + got >= map->end ? got + OVERLAP : got, at, seen);
      seen->bytes += got;
      if (at + got >= map->end || got <= OVERLAP) break;
      at += (got - OVERLAP) & ~(size_t)7;
    }
  }
  remote_forget(target->remote);
  mem_free(chunk);
}

/* What a closed VM leaves behind looks like one until its memory is used again; but its count of bytes is that of nothing. */
static bool is_closed(target_t *target, uint64_t global) {
  const layout_t *layout = target->walk->layout;
  walk_memory_t *memory = &target->remote->memory;
  int64_t total, debt = 0;
  if (layout->family != LAYOUT_PUC || layout->puc.global_total == LAYOUT_ABSENT) return false;
  if (!walk_read(memory, &total, global + layout->puc.global_total, sizeof total, WALK_GUESS)) return true;
  if (layout->puc.global_debt != LAYOUT_ABSENT &&
      !walk_read(memory, &debt, global + layout->puc.global_debt, sizeof debt, WALK_GUESS))
    return true;
  uint64_t bytes = (uint64_t)total + (layout->language == 55 ? 0 - (uint64_t)debt : (uint64_t)debt);
  return bytes < LEAST_VM_BYTES || bytes > (uint64_t)1 << 48;
}

bool vms_check_main(target_t *target, uint64_t main, uint64_t *global) {
  walk_state_t state;
  if (!walk_state(target->walk, main, WALK_GUESS, &state)) return false;
  *global = state.global;
  if (walk_main_of(target->walk, state.global) != main) return false;
  return state.stack != 0 && state.stack_end > state.stack && !is_closed(target, state.global);
}

bool vms_meet(target_t *target, vms_t *vms, uint64_t global) {
  uint64_t main = walk_main_of(target->walk, global), its;
  return main != 0 && vms_check_main(target, main, &its) && its == global && vms_add(vms, global, main, 0);
}

void vms_drop_closed(target_t *target, vms_t *vms) {
  size_t kept = 0;
  for (size_t i = 0; i < vms->count; i++) {
    uint64_t global;
    if (vms_check_main(target, vms->vms[i].main, &global) && global == vms->vms[i].global)
      vms->vms[kept++] = vms->vms[i];
  }
  vms->count = kept;
}

/* -- on native stacks ------------------------------------------------------------------------------------------- */

typedef struct {
  target_t *target;
  const uint64_t *skip;
  size_t skip_count;
} accepting_t;

static bool accepts(void *context, uint64_t global) {
  const accepting_t *a = context;
  walk_state_t main;
  for (size_t i = 0; i < a->skip_count; i++)
    if (a->skip[i] == global) return false;
  uint64_t address = walk_main_of(a->target->walk, global);
  return address != 0 && walk_state(a->target->walk, address, WALK_GUESS, &main) && main.global == global;
}

static bool is_skipped(const accepting_t *a, uint64_t global) {
  for (size_t i = 0; i < a->skip_count; i++)
    if (a->skip[i] == global) return true;
  return false;
}

bool vms_on_thread(target_t *target, const layout_t *layout, const stopped_thread_t *thread, uint64_t vm_low,
                   uint64_t vm_high, const vms_t *known, const uint64_t *skip, size_t skip_count) {
  accepting_t accepting = {target, skip, skip_count};
  if (!thread->stopped) return false;
  /* without a hint first: what runs innermost is then found whichever VM it belongs to */
  for (size_t i = 0; i <= (known != NULL ? known->count : 0); i++) {
    const vm_t *hint = i > 0 ? &known->vms[i - 1] : NULL;
    if (hint != NULL && is_skipped(&accepting, hint->global)) continue;
    target_aim(target, layout, thread);
    walk_t *w = target->walk;
    w->vm_low = vm_low;
    w->vm_high = vm_high;
    /* NULL where nothing is to be skipped: the walk's own check */
    w->accepts = skip_count > 0 ? accepts : NULL;
    w->context = &accepting;
    if (hint != NULL && layout->family == LAYOUT_PUC) w->likely_main = hint->main;
    if (hint != NULL && layout->family == LAYOUT_LUAJIT) w->likely_global = hint->global;
    bool found = walk_find(w) == WALK_OK;
    w->accepts = NULL;
    w->context = NULL;
    w->likely_main = w->likely_global = 0;
    if (found) return true;
  }
  return false;
}

/* -- coroutines --------------------------------------------------------------------------------------------------- */

static bool read_byte(target_t *target, uint64_t at, uint8_t *byte) {
  return walk_read(&target->remote->memory, byte, at, 1, WALK_GUESS);
}

/* As coroutine.status tells it. */
static coroutine_status_t status_of(uint8_t status, bool has_calls, bool has_values) {
  if (status == 1) return COROUTINE_SUSPENDED;
  if (status != 0) return COROUTINE_FAILED;
  if (has_calls) return COROUTINE_NORMAL;
  return has_values ? COROUTINE_FRESH : COROUTINE_DEAD;
}

bool vms_status(target_t *target, const walk_state_t *state, coroutine_status_t *status) {
  const layout_t *layout = target->walk->layout;
  uint64_t top = 0;
  uint8_t byte, bytes[8];
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    if (l->state_status == LAYOUT_ABSENT || !read_byte(target, state->state + l->state_status, &byte))
      return false;
    if (!walk_read(&target->remote->memory, bytes, state->state + l->state_top, 8, WALK_GUESS)) return false;
    *status = status_of(byte, state->call > state->stack + walk_body_offset(layout),
                        bytes_u64(bytes, 0) != state->call);
    return true;
  }
  const layout_puc_t *l = &layout->puc;
  if (l->state_status == LAYOUT_ABSENT || l->state_top == LAYOUT_ABSENT) return false;
  if (!read_byte(target, state->state + l->state_status, &byte) ||
      !walk_read(&target->remote->memory, &top, state->state + l->state_top, sizeof top, WALK_GUESS))
    return false;
  *status = status_of(byte, state->call != state->first,
                      top > state->stack + 16); /* above the slot of the base call */
  return true;
}

/* -- objects ---------------------------------------------------------------------------------------------------------- */

uint8_t vms_type_thread(const layout_t *layout) {
  return layout->family == LAYOUT_LUAJIT ? 6 : (uint8_t)layout->puc.tag_thread;
}

uint8_t vms_type_proto(const layout_t *layout) {
  return layout->family == LAYOUT_LUAJIT ? 7 : (uint8_t)layout->puc.tag_proto;
}

typedef struct {
  uint64_t head;                  /* where the first reference stands */
  uint64_t white;                 /* where the mark of what is alive stands */
  uint32_t pointer, type, marked; /* size of a reference; where an object has its type and its mark */
  uint8_t whites;                 /* the bits of marks that are colours of what was not reached */
} objects_t;

static bool objects_of(const layout_t *layout, uint64_t global, objects_t *o) {
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    if (l->global_objects == LAYOUT_ABSENT || l->global_white == LAYOUT_ABSENT) return false;
    *o = (objects_t){
        global + l->global_objects, global + l->global_white, l->pointer, l->state_tag, l->state_tag - 1u, 3};
    return l->state_tag > 0 && l->state_tag < 24;
  }
  const layout_puc_t *l = &layout->puc;
  if (l->global_objects == LAYOUT_ABSENT || l->global_white == LAYOUT_ABSENT) return false;
  /* from 5.4 on the age stands below the colours */
  *o = (objects_t){global + l->global_objects, global + l->global_white,         8, l->state_tag,
                   l->state_tag + 1u,          layout->language >= 54 ? 0x18 : 3};
  return l->state_tag >= 8 && l->state_tag < 23;
}

objects_end_t vms_objects(target_t *target, const layout_t *layout, uint64_t global, uint8_t type,
                          uint64_t *count, objects_each_t *each, void *context) {
  int64_t end = clock_now() + (int64_t)OBJECTS_SECONDS * 1000000000;
  return vms_objects_until(target, layout, global, type, count, each, context, end);
}

/* The colours of what a collection did not reach. False when the mark cannot be read, or is none. */
static bool read_dead(target_t *target, const objects_t *o, uint8_t *dead) {
  uint8_t white;
  if (!walk_read(&target->remote->memory, &white, o->white, 1, WALK_GUESS)) return false;
  *dead = o->whites & (uint8_t)~white;
  return (white & o->whites) != 0; /* it always is one of the two */
}

/* Its first bytes, with type and mark. */
static bool read_head(target_t *target, const objects_t *o, uint64_t at, uint8_t *bytes) {
  uint32_t len = (o->type > o->marked ? o->type : o->marked) + 1; /* no object is smaller */
  return (at & 3) == 0 && walk_read(&target->remote->memory, bytes, at, len, WALK_GUESS);
}

bool vms_is_object(target_t *target, const layout_t *layout, uint64_t global, uint8_t type, uint64_t object) {
  objects_t o;
  uint8_t bytes[OBJECT_HEAD], dead;
  return objects_of(layout, global, &o) && read_dead(target, &o, &dead) &&
         read_head(target, &o, object, bytes) && bytes[o.type] == type && (bytes[o.marked] & dead) == 0;
}

objects_end_t vms_objects_until(target_t *target, const layout_t *layout, uint64_t global, uint8_t type,
                                uint64_t *count, objects_each_t *each, void *context, int64_t end) {
  objects_t o;
  uint8_t bytes[OBJECT_HEAD], dead;
  *count = 0;
  if (!objects_of(layout, global, &o)) return OBJECTS_UNKNOWN;
  if (!walk_read(&target->remote->memory, bytes, o.head, o.pointer, WALK_GUESS) ||
      !read_dead(target, &o, &dead))
    return OBJECTS_BROKEN;
  for (uint64_t at = bytes_ref(bytes, 0, o.pointer); at != 0; at = bytes_ref(bytes, 0, o.pointer)) {
    if (!read_head(target, &o, at, bytes)) return OBJECTS_BROKEN;
    if (bytes[o.type] == type && (bytes[o.marked] & dead) == 0 && !each(context, at)) return OBJECTS_ALL;
    if ((++*count & 127) == 0 && clock_now() > end) return OBJECTS_CUT;
  }
  return OBJECTS_ALL;
}
