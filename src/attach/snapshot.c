/* SPDX-License-Identifier: MIT */
/* Taking all stacks; see snapshot.h. */
#include "attach/snapshot.h"

#include <string.h>

#include "profile/mem.h"

enum { VMS_ON_A_STACK = 8 };

typedef struct {
  snapshot_t *snapshot;
  target_t *target;
  const runtime_t *runtime;
  size_t index; /* of the runtime */
  uint64_t global;
  uint64_t main;
} taking_t;

/* -- frames ------------------------------------------------------------------------------------------------------ */

static uint32_t source_of(snapshot_t *s, walk_t *walk, uint64_t object) {
  for (size_t i = s->source_count; i-- > 0;)
    if (s->sources[i].object == object) return (uint32_t)i;
  static char text[SNAPSHOT_SOURCE_BYTES];
  size_t len;
  if (s->source_count == SNAPSHOT_SOURCES || !walk_string(walk, object, text, sizeof text, &len))
    return SNAPSHOT_SOURCES;
  if (len > sizeof text) len = sizeof text;
  char *copy = mem_alloc(len + 1);
  if (copy == NULL ||
      !mem_reserve((void **)&s->sources, &s->source_room, s->source_count + 1, sizeof *s->sources)) {
    mem_free(copy);
    s->failed = true;
    return SNAPSHOT_SOURCES;
  }
  memcpy(copy, text, len);
  s->sources[s->source_count] = (snapshot_source_t){object, copy, len};
  return (uint32_t)s->source_count++;
}

static snapshot_frame_t frame_of(snapshot_t *s, walk_t *walk, const walk_frame_t *from) {
  snapshot_frame_t frame = {.kind = from->kind,
                            .ffid = from->ffid,
                            .code = from->code,
                            .function = from->function,
                            .source = SNAPSHOT_SOURCES};
  walk_proto_t proto;
  if (from->kind != WALK_LUA || !walk_proto(walk, from->proto, WALK_GUESS, &proto)) return frame;
  frame.proto = from->proto;
  frame.mark = walk_mark(walk, &proto);
  frame.tail = from->tail != 0;
  frame.pc = from->pc;
  frame.defined = proto.line;
  frame.line = from->pc != 0 ? walk_line(walk, &proto, from->pc) : 0;
  frame.source = source_of(s, walk, proto.source);
  return frame;
}

static bool add_frames(snapshot_t *s, walk_t *walk, snapshot_stack_t *stack) {
  if (s->frame_count + walk->frame_count > SNAPSHOT_FRAMES) {
    s->cut = true;
    return false;
  }
  if (!mem_reserve((void **)&s->frames, &s->frame_room, s->frame_count + walk->frame_count,
                   sizeof *s->frames)) {
    s->failed = true;
    return false;
  }
  stack->first = s->frame_count;
  stack->count = walk->frame_count;
  for (uint32_t i = 0; i < walk->frame_count; i++)
    s->frames[s->frame_count++] = frame_of(s, walk, &walk->frames[i]);
  return true;
}

/* -- stacks ------------------------------------------------------------------------------------------------------ */

static snapshot_stack_t *add_stack(taking_t *t, const walk_state_t *state, pid_t thread) {
  snapshot_t *s = t->snapshot;
  if (s->stack_count == SNAPSHOT_STACKS) {
    s->cut = true;
    return NULL;
  }
  if (!mem_reserve((void **)&s->stacks, &s->stack_room, s->stack_count + 1, sizeof *s->stacks)) {
    s->failed = true;
    return NULL;
  }
  snapshot_stack_t *stack = &s->stacks[s->stack_count++];
  *stack = (snapshot_stack_t){
      .state = state->state, .global = state->global, .runtime = t->index, .thread = thread};
  return stack;
}

static void take_frames(taking_t *t, const walk_state_t *state, snapshot_stack_t *stack, bool running) {
  walk_t *walk = t->target->walk;
  bool marks = walk->mark_functions;
  walk->mark_functions = true; /* and with it whether the frame below is the caller's */
  stack->reason = walk_frames_of(walk, state, running);
  walk->mark_functions = marks;
  stack->truncated = walk->truncated;
  add_frames(t->snapshot, walk, stack); /* what was read before it failed is shown, too */
}

static bool is_taken(const snapshot_t *s, uint64_t state) {
  for (size_t i = 0; i < s->stack_count; i++) {
    if (s->stacks[i].thread == 0)
      return false; /* from here on coroutines that do not run: each is listed once */
    if (s->stacks[i].state == state) return true;
  }
  return false;
}

static void take_thread(taking_t *t, const stopped_thread_t *thread) {
  uint64_t skip[VMS_ON_A_STACK];
  const runtime_t *r = t->runtime;
  walk_t *walk = t->target->walk;
  for (size_t count = 0; count < VMS_ON_A_STACK; count++) {
    if (!vms_on_thread(t->target, r->layout, thread, r->vm_low, r->vm_high, r->vms, skip, count)) return;
    uint64_t global = skip[count] = walk->states[0].global;
    for (uint32_t i = 0; i < walk->state_count; i++) {
      walk_state_t state = walk->states[i];
      snapshot_stack_t *stack = add_stack(t, &state, thread->tid);
      if (stack == NULL) return;
      stack->status_known = true;
      stack->status = i == 0 && count == 0 ? COROUTINE_RUNNING : COROUTINE_NORMAL;
      stack->main = walk_main_of(walk, global) == state.state;
      take_frames(t, &state, stack, i == 0 && count == 0);
    }
  }
}

/* -- coroutines that do not run ----------------------------------------------------------------------------------- */

/* False while the VM makes it: objects are listed before they are filled in. */
static bool is_made(taking_t *t, const walk_state_t *state) {
  const layout_t *layout = t->runtime->layout;
  uint64_t bottom;
  if (state->global != t->global || state->stack == 0 || state->stack_end <= state->stack) return false;
  if (layout->family == LAYOUT_LUAJIT) return state->call > state->stack && state->call <= state->stack_end;
  if (state->call == 0) return false;
  /* its first call record is written last, but for the reference to it */
  return walk_read(&t->target->remote->memory, &bottom, state->first + layout->puc.ci_func, sizeof bottom,
                   WALK_GUESS) &&
         bottom == state->stack;
}

static void take_idle(taking_t *t, uint64_t address) {
  walk_state_t state;
  if (!walk_state(t->target->walk, address, WALK_GUESS, &state) || !is_made(t, &state)) return;
  snapshot_stack_t *stack = add_stack(t, &state, 0);
  if (stack == NULL) return;
  stack->main = address == t->main;
  stack->status_known = vms_status(t->target, &state, &stack->status);
  if (stack->status_known && (stack->status == COROUTINE_FRESH || stack->status == COROUTINE_DEAD)) return;
  take_frames(t, &state, stack, false);
}

static bool on_thread_object(void *context, uint64_t object) {
  taking_t *t = context;
  if (object != t->main && !is_taken(t->snapshot, object)) take_idle(t, object);
  return !t->snapshot->failed && !t->snapshot->cut;
}

/* Objects are listed newest first; people count from the oldest. */
static void reverse(snapshot_t *s, size_t first) {
  for (size_t i = first, k = s->stack_count; i + 1 < k; i++) {
    snapshot_stack_t stack = s->stacks[i];
    s->stacks[i] = s->stacks[--k];
    s->stacks[k] = stack;
  }
}

static void take_vm(taking_t *t, const vm_t *vm) {
  snapshot_t *s = t->snapshot;
  snapshot_vm_t taken = {.global = vm->global, .runtime = t->index};
  t->global = vm->global;
  t->main = vm->main;
  target_aim(t->target, t->runtime->layout, NULL);
  if (!is_taken(s, vm->main)) take_idle(t, vm->main);
  size_t first = s->stack_count;
  taken.end = vms_objects(t->target, t->runtime->layout, vm->global, vms_type_thread(t->runtime->layout),
                          &taken.objects, on_thread_object, t);
  taken.coroutines = s->stack_count - first;
  reverse(s, first);
  if (!mem_reserve((void **)&s->vms, &s->vm_room, s->vm_count + 1, sizeof *s->vms))
    s->failed = true;
  else
    s->vms[s->vm_count++] = taken;
}

bool snapshot_take(snapshot_t *s, target_t *target, const runtimes_t *runtimes) {
  memset(s, 0, sizeof *s);
  for (size_t i = 0; i < runtimes->count; i++) {
    taking_t t = {.snapshot = s, .target = target, .runtime = &runtimes->runtimes[i], .index = i};
    for (size_t k = 0; t.runtime->layout != NULL && k < target->stopped.count; k++)
      take_thread(&t, &target->stopped.threads[k]);
  }
  for (size_t i = 0; i < runtimes->count; i++) {
    taking_t t = {.snapshot = s, .target = target, .runtime = &runtimes->runtimes[i], .index = i};
    for (size_t k = 0; t.runtime->layout != NULL && k < t.runtime->vms->count && !s->cut; k++)
      take_vm(&t, &t.runtime->vms->vms[k]);
  }
  return !s->failed;
}

void snapshot_free(snapshot_t *s) {
  for (size_t i = 0; i < s->source_count; i++) mem_free(s->sources[i].text);
  mem_free(s->sources);
  mem_free(s->stacks);
  mem_free(s->frames);
  mem_free(s->vms);
  memset(s, 0, sizeof *s);
}
