/* SPDX-License-Identifier: MIT */
/* Coroutines and their open frames; see trace.h. Frames are had in chunks from one mapping, so that a stack may grow without
 * moving; coroutines that have not run for long give theirs up to others. */
#include "agent/budget.h"
#include "agent/trace.h"

enum { CHARGE_STEP = 64 * 1024 };

#define NONE UINT32_MAX

static uint32_t bucket_of(const lua_State *L) {
  return (uint32_t)(((uint64_t)(uintptr_t)L >> 3) * 0x9e3779b97f4a7c15u >> 40) % TRACE_COROUTINES;
}

bool trace_stack_start(trace_t *t) {
  for (uint32_t i = 0; i < TRACE_COROUTINES; i++) t->coroutine_buckets[i] = NONE;
  t->free_coroutine = NONE;
  t->used_coroutines = t->hand = t->tracks = t->chain_length = 0;
  t->chunk_bytes = 0;
  t->free_chunk = NULL;
  return true;
}

/* -- chunks ----------------------------------------------------------------------------------------------------------- */

static trace_chunk_t *new_chunk(trace_t *t) {
  trace_chunk_t *chunk = t->free_chunk;
  if (chunk != NULL) {
    t->free_chunk = chunk->below;
  } else {
    if (t->chunk_bytes + sizeof *chunk > t->chunk_max) return NULL;
    while (t->chunk_bytes + sizeof *chunk > t->charged_chunks) {
      if (!budget_take(CHARGE_STEP, t->vm->options.max_process_memory_bytes)) return NULL;
      t->vm->charged += CHARGE_STEP;
      t->charged_chunks += CHARGE_STEP;
    }
    chunk = (trace_chunk_t *)(void *)(t->chunks + t->chunk_bytes);
    t->chunk_bytes += sizeof *chunk;
  }
  chunk->below = chunk->above = NULL;
  return chunk;
}

static void free_chunk(trace_t *t, trace_chunk_t *chunk) {
  chunk->below = t->free_chunk;
  t->free_chunk = chunk;
}

/* A chunk above the last one used is kept: a stack that goes up and down at its edge would pay each time. */
trace_frame_t *trace_grow(trace_t *t) {
  trace_chunk_t *chunk = t->current->chunk;
  if (chunk->above == NULL) {
    trace_chunk_t *made = new_chunk(t);
    if (made == NULL) return NULL;
    made->below = chunk;
    chunk->above = made;
  }
  chunk = t->current->chunk = chunk->above;
  t->low = t->top = chunk->frames;
  t->high = chunk->frames + TRACE_CHUNK;
  return t->top;
}

void trace_shrink(trace_t *t) {
  trace_chunk_t *chunk = t->current->chunk;
  if (chunk->below == NULL) return; /* what is below the first call stays */
  if (chunk->above != NULL) {
    free_chunk(t, chunk->above);
    chunk->above = NULL;
  }
  chunk = t->current->chunk = chunk->below;
  t->low = chunk->frames;
  t->high = chunk->frames + TRACE_CHUNK;
  t->top = t->high - 1;
}

/* -- coroutines --------------------------------------------------------------------------------------------------------- */

trace_coroutine_t *trace_coroutine(trace_t *t, lua_State *L) {
  for (uint32_t i = t->coroutine_buckets[bucket_of(L)]; i != NONE; i = t->coroutines[i].next)
    if (t->coroutines[i].L == L) return &t->coroutines[i];
  return NULL;
}

void trace_forget_coroutine(trace_t *t, trace_coroutine_t *co) {
  uint32_t index = (uint32_t)(co - t->coroutines), *link = &t->coroutine_buckets[bucket_of(co->L)];
  while (*link != NONE && *link != index) link = &t->coroutines[*link].next;
  if (*link == index) *link = co->next;
  if (co->chunk->above != NULL) free_chunk(t, co->chunk->above);
  for (trace_chunk_t *chunk = co->chunk, *below; chunk != NULL; chunk = below) {
    below = chunk->below;
    free_chunk(t, chunk);
  }
  co->L = NULL;
  co->next = t->free_coroutine;
  t->free_coroutine = index;
}

/* The next one that does not run, round and round: nearly the one that has rested longest. */
static bool give_up_one(trace_t *t) {
  for (uint32_t i = 0; i < t->used_coroutines; i++) {
    trace_coroutine_t *co = &t->coroutines[t->hand];
    t->hand = (t->hand + 1) % t->used_coroutines;
    if (co->L == NULL || co->running) continue;
    trace_forget_coroutine(t, co);
    return true;
  }
  return false;
}

trace_coroutine_t *trace_new_coroutine(trace_t *t, lua_State *L, uint64_t now) {
  if (t->free_coroutine == NONE && t->used_coroutines == TRACE_COROUTINES && !give_up_one(t)) return NULL;
  trace_chunk_t *chunk = new_chunk(t);
  if (chunk == NULL && (!give_up_one(t) || (chunk = new_chunk(t)) == NULL)) return NULL;
  uint32_t index = t->free_coroutine;
  if (index != NONE)
    t->free_coroutine = t->coroutines[index].next;
  else
    index = t->used_coroutines++;
  uint32_t *bucket = &t->coroutine_buckets[bucket_of(L)];
  trace_coroutine_t *co = &t->coroutines[index];
  *co = (trace_coroutine_t){.L = L,
                            .chunk = chunk,
                            .top = chunk->frames,
                            .left = now,
                            .left_corrected = t->last_corrected,
                            .track = ++t->tracks,
                            .next = *bucket};
  chunk->frames[0] = (trace_frame_t){.id = site_base(t->site, &t->layout, L),
                                     .node = TRACE_ROOT,
                                     .how = TRACE_FRAME_TAKEN_UP | TRACE_FRAME_OTHER,
                                     .start = now};
  *bucket = index;
  return co;
}

void trace_store(trace_t *t) {
  if (t->current != NULL) t->current->top = t->top;
}

void trace_load(trace_t *t, trace_coroutine_t *co) {
  t->current = co;
  t->running = co->L;
  t->labels = co->labels;
  t->away = co->away;
  t->top = co->top;
  t->low = co->chunk->frames;
  t->high = co->chunk->frames + TRACE_CHUNK;
}

void trace_unload(trace_t *t) {
  t->current = NULL;
  t->running = NULL;
}
