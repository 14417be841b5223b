/* SPDX-License-Identifier: MIT */
/* Reading how VMs are; see vitals.h. */
#include "attach/vitals.h"

#include "attach/clock.h"

/* -- the collector ------------------------------------------------------------------------------------------------------ */

static const char *const names[] = {"-", "pause", "mark", "atomic", "sweep", "finalize", "gen"};

const char *gc_state_name(gc_state_t state) {
  return names[state];
}

/* As lgc.h and lj_gc.h number them. */
static gc_state_t gc_state_of(const layout_t *layout, uint8_t state) {
  static const gc_state_t luajit[] = {GC_PAUSE, GC_MARK, GC_ATOMIC, GC_SWEEP, GC_SWEEP, GC_FINALIZE};
  static const gc_state_t lua51[] = {GC_PAUSE, GC_MARK, GC_SWEEP, GC_SWEEP, GC_FINALIZE};
  static const gc_state_t lua52[] = {GC_MARK, GC_ATOMIC, GC_SWEEP, GC_SWEEP, GC_SWEEP, GC_PAUSE};
  static const gc_state_t lua53[] = {GC_MARK,  GC_ATOMIC, GC_SWEEP,    GC_SWEEP,
                                     GC_SWEEP, GC_SWEEP,  GC_FINALIZE, GC_PAUSE};
  static const gc_state_t lua54[] = {GC_MARK,  GC_ATOMIC, GC_ATOMIC,   GC_SWEEP, GC_SWEEP,
                                     GC_SWEEP, GC_SWEEP,  GC_FINALIZE, GC_PAUSE};
#define AT(table) (state < sizeof(table) / sizeof(table)[0] ? (table)[state] : GC_UNKNOWN)
  if (layout->family == LAYOUT_LUAJIT) return AT(luajit);
  switch (layout->language) {
    case 51:
      return AT(lua51);
    case 52:
      return AT(lua52);
    case 53:
      return AT(lua53);
    case 54:
    case 55:
      return AT(lua54);
    default:
      return GC_UNKNOWN;
  }
#undef AT
}

static uint64_t read_number(target_t *target, uint64_t at, uint16_t offset, size_t size) {
  uint64_t value = 0; /* the machine is little-endian */
  bool got = offset != LAYOUT_ABSENT &&
             walk_read(&target->remote->memory, &value, at + offset, (uint32_t)size, WALK_GUESS);
  return got ? value : 0;
}

static uint64_t heap_of(target_t *target, const layout_t *layout, uint64_t global) {
  if (layout->family == LAYOUT_LUAJIT)
    return read_number(target, global, layout->luajit.global_gc_total, layout->luajit.pointer);
  uint64_t total = read_number(target, global, layout->puc.global_total, 8);
  uint64_t debt = read_number(target, global, layout->puc.global_debt, 8);
  return layout->language == 55 ? total - debt : total + debt;
}

/* KGC_GEN, or of 5.5 KGC_GENMINOR: the collector stands at the beginning of marking until the next collection, which is one step. */
static bool is_generational(target_t *target, const layout_t *layout, uint64_t global) {
  if (layout->family != LAYOUT_PUC || layout->puc.global_gc_kind == LAYOUT_ABSENT) return false;
  uint64_t kind = read_number(target, global, layout->puc.global_gc_kind, 1);
  return layout->language == 52 ? kind == 2 : layout->language >= 54 && kind == 1;
}

static gc_state_t read_state(target_t *target, const layout_t *layout, uint64_t global) {
  uint16_t place =
      layout->family == LAYOUT_LUAJIT ? layout->luajit.global_gc_state : layout->puc.global_gc_state;
  if (place == LAYOUT_ABSENT) return GC_UNKNOWN;
  gc_state_t state = gc_state_of(layout, (uint8_t)read_number(target, global, place, 1));
  return state == GC_MARK && is_generational(target, layout, global) ? GC_GENERATIONAL : state;
}

static void read_vm(vitals_t *v, target_t *target, const layout_t *layout, uint64_t global,
                    uint64_t *largest) {
  uint64_t heap = heap_of(target, layout, global);
  v->vms++;
  v->heap += heap;
  if (heap < *largest) return;
  *largest = heap;
  v->gc = read_state(target, layout, global);
}

void vitals_read(vitals_t *v, target_t *target, const runtimes_t *runtimes) {
  uint64_t largest = 0, global;
  *v = (vitals_t){.vms = 0};
  remote_forget(target->remote);
  for (size_t i = 0; i < runtimes->count; i++) {
    const runtime_t *runtime = &runtimes->runtimes[i];
    if (runtime->layout == NULL || runtime->vms == NULL) continue;
    target_aim(target, runtime->layout, NULL);
    for (size_t k = 0; k < runtime->vms->count; k++)
      if (vms_check_main(target, runtime->vms->vms[k].main, &global) && global == runtime->vms->vms[k].global)
        read_vm(v, target, runtime->layout, global, &largest);
  }
}

/* -- coroutines ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t main, count;
} counted_t;

static bool count_one(void *context, uint64_t object) {
  counted_t *c = context;
  c->count += object != c->main; /* it is among the objects of some versions only */
  return true;
}

static bool count_vms(vitals_t *v, target_t *target, const runtime_t *runtime, int64_t end) {
  uint64_t global, objects;
  target_aim(target, runtime->layout, NULL);
  for (size_t k = 0; k < runtime->vms->count; k++) {
    counted_t counted = {runtime->vms->vms[k].main, 0};
    if (!vms_check_main(target, counted.main, &global) || global != runtime->vms->vms[k].global) continue;
    if (vms_objects_until(target, runtime->layout, global, vms_type_thread(runtime->layout), &objects,
                          count_one, &counted, end) != OBJECTS_ALL)
      return false;
    v->coroutines += counted.count;
  }
  return true;
}

void vitals_count(vitals_t *v, target_t *target, const runtimes_t *runtimes, int64_t most_ns) {
  failure_t ignored; /* it is gone, or held by somebody else: then they are not known */
  int64_t before = target->held_ns;
  if (!target_hold(target, &ignored)) return;
  int64_t end = clock_now() + most_ns;
  v->coroutines_known = true;
  for (size_t i = 0; i < runtimes->count && v->coroutines_known; i++)
    if (runtimes->runtimes[i].layout != NULL && runtimes->runtimes[i].vms != NULL)
      v->coroutines_known = count_vms(v, target, &runtimes->runtimes[i], end);
  target_release(target);
  v->held_ns = target->held_ns - before;
}
