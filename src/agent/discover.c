/* SPDX-License-Identifier: MIT */
/* Finding the running coroutine; see discover.h. */
#include "agent/discover.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "agent/context.h"
#include "agent/loader.h"
#include "agent/seccomp.h"
#include "walk/memory.h"

enum {
  SCAN_BYTES = 64 * 1024, /* of native stack, at most */
  RESUMER_BYTES = 4096, /* a resumer is named by the frames right above its coroutine's protected call … */
  RESUMER_STEP = 768,   /* … and is nearly always within the first few */
  NEAR_BYTES = 64 * 1024
};

/* -- reading what may not be there ----------------------------------------------------------------------------- */

static uintptr_t word_of(const lua_State *L, size_t offset) {
  uintptr_t word;
  memcpy(&word, (const char *)L + offset, sizeof word);
  return word;
}

static bool read_bytes(const discover_t *d, uintptr_t from, void *to, size_t len) {
  struct iovec local = {to, len}, remote = {(void *)from, len};
  return process_vm_readv(d->pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/* Copies the part of each guessed lua_State that matters, all zero where there is no memory. One system call, and one more
 * for each guess that leads nowhere. */
static void read_guesses(const discover_t *d, size_t count) {
  discover_scratch_t *scratch = d->scratch;
  memset(scratch->copies, 0, count * d->span);
  for (size_t i = 0; i < count; i++)
    scratch->remote[i] = (struct iovec){(void *)(scratch->guesses[i] + d->span_offset), d->span};
  for (size_t done = 0; done < count;) {
    struct iovec local = {scratch->copies + done * d->span, (count - done) * d->span};
    ssize_t bytes = process_vm_readv(d->pid, &local, 1, scratch->remote + done, count - done, 0);
    if (bytes > 0) done += (size_t)bytes / d->span;
    done++; /* the kernel stopped at one it could not read; or all were read */
  }
}

static uintptr_t word_in_copy(const discover_t *d, size_t i, size_t offset) {
  uintptr_t word;
  memcpy(&word, d->scratch->copies + i * d->span + (offset - d->span_offset), sizeof word);
  return word;
}

/* -- guesses ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const discover_t *d;
  uintptr_t above;  /* a running state's protected call lies at or above this … */
  uintptr_t below;  /* … and below this, the lowest found so far */
  uintptr_t found;  /* the state it belongs to, 0: none yet */
  uintptr_t except; /* not this one */
  size_t count;     /* of guesses not checked yet */
} search_t;

static void check_guesses(search_t *s) {
  if (s->count == 0) return;
  read_guesses(s->d, s->count);
  for (size_t i = 0; i < s->count; i++) {
    if (word_in_copy(s->d, i, s->d->global_offset) != s->d->global) continue;
    uintptr_t jump = word_in_copy(s->d, i, s->d->jump_offset);
    if (jump < s->above || jump >= s->below) continue;
    s->below = jump;
    s->found = s->d->scratch->guesses[i];
  }
  s->count = 0;
}

/* Most words on a stack are not lua_States, and what need not be asked of the kernel is cheaper. */
static bool is_plausible(const discover_t *d, uintptr_t word) {
  if ((word & 15) % d->alignment != d->remainder || word <= 65536 || word >= WALK_HIGHEST) return false;
  if ((uint32_t)word == 0 || (word >= d->low && word < d->high))
    return false; /* half a word; the stack itself */
  for (size_t i = 0; i < d->image_count; i++)
    if (word >= d->images[i].start && word < d->images[i].end) return false; /* code and data of programs */
  return true;
}

static void guess(search_t *s, uintptr_t word) {
  uintptr_t *guesses = s->d->scratch->guesses;
  if (word == s->found || word == s->except || !is_plausible(s->d, word)) return;
  for (size_t i = 0; i < s->count; i++)
    if (guesses[i] == word) return;
  guesses[s->count++] = word;
  if (s->count == DISCOVER_BATCH) check_guesses(s);
}

/* The words of the stack from `at` to `end`, or to the lowest protected call found: what lies above is its resumer's.
 * Reads whole frames, red zones of a sanitizer included: all of it is mapped. */
__attribute__((no_sanitize("address"))) static void guess_stack(search_t *s, uintptr_t at, uintptr_t end) {
  for (at = (at + 7) & ~(uintptr_t)7; at + 8 <= end && at < s->below; at += 8)
    guess(s, *(const uintptr_t *)at);
  check_guesses(s);
}

lua_State *discover_running(const discover_t *d, lua_State *alive, const void *context) {
  uintptr_t registers[CONTEXT_MAX_REGISTERS], sp;
  size_t count = context_registers(context, registers, &sp);
  if (sp < d->low || sp >= d->high) return NULL; /* a stack of the host's own making */
  search_t s = {.d = d, .above = sp, .below = d->high};
  uintptr_t jump = word_of(alive, d->jump_offset);
  if (jump >= sp && jump < d->high) { /* it runs, if nothing runs inside: there is no need to look above */
    s.found = (uintptr_t)alive;
    s.below = jump;
  }
  for (size_t i = 0; i < count; i++) guess(&s, registers[i]);
  check_guesses(
      &s); /* nearly always one of them is it: then only its own part of the stack is left to look at */
  guess_stack(&s, sp, d->high - sp < SCAN_BYTES ? d->high : sp + SCAN_BYTES);
  return (lua_State *)s.found;
}

lua_State *discover_resumer(const discover_t *d, const lua_State *co) {
  uintptr_t jump = word_of(co, d->jump_offset);
  if (jump < d->low || jump >= d->high) return NULL;
  search_t s = {.d = d, .above = jump + 1, .below = d->high, .except = (uintptr_t)co};
  uintptr_t end = d->high - jump < RESUMER_BYTES ? d->high : jump + RESUMER_BYTES;
  for (uintptr_t at = jump; at < end && s.found == 0; at += RESUMER_STEP)
    guess_stack(&s, at, end - at < RESUMER_STEP ? end : at + RESUMER_STEP);
  return (lua_State *)s.found;
}

bool discover_is_running(const discover_t *d, const lua_State *L) {
  uintptr_t global, jump, here = (uintptr_t)__builtin_frame_address(0);
  if (here < d->low || here >= d->high)
    return false;                       /* asked from another stack: who runs there cannot be told */
  if (d->pid != getpid()) return false; /* a forked child would be told what runs in its parent */
  return read_bytes(d, (uintptr_t)L + d->global_offset, &global, sizeof global) && global == d->global &&
         read_bytes(d, (uintptr_t)L + d->jump_offset, &jump, sizeof jump) && jump >= here && jump < d->high;
}

/* -- learning ------------------------------------------------------------------------------------------------------- */

/* What all coroutines of a VM have in common, lowest first, is their global state (and a hook, if one is set). */
static bool learn_global(discover_t *d, lua_State *L, const lua_State *one, const lua_State *other) {
  for (size_t offset = 16; offset + sizeof(uintptr_t) <= DISCOVER_STATE_BYTES; offset += sizeof(uintptr_t)) {
    uintptr_t word = word_of(L, offset);
    if (word <= 65536 || (word & 7) != 0 || word != word_of(one, offset) || word != word_of(other, offset))
      continue;
    if (word == (uintptr_t)lua_gethook(L)) continue;
    d->global = word;
    d->global_offset = offset;
    return true;
  }
  return false;
}

/* The one pointer in a running lua_State to the native stack, a little above this frame, which one that does not run
 * has not. */
static bool learn_jump(discover_t *d, lua_State *L, const lua_State *idle) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  size_t matches = 0;
  for (size_t offset = 16; offset + sizeof(uintptr_t) <= DISCOVER_STATE_BYTES; offset += sizeof(uintptr_t)) {
    uintptr_t word = word_of(L, offset);
    if (word <= here || word >= d->high || word - here > NEAR_BYTES || word_of(idle, offset) != 0) continue;
    d->jump_offset = offset;
    matches++;
  }
  return matches == 1;
}

static bool learn_stack(discover_t *d) {
  pthread_attr_t attributes;
  void *address;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  bool known = pthread_attr_getstack(&attributes, &address, &size) == 0;
  pthread_attr_destroy(&attributes);
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  d->low = (uintptr_t)address;
  d->high = (uintptr_t)address + size;
  return known && here >= d->low && here < d->high;
}

static int add_image(struct dl_phdr_info *info, size_t size, void *context) {
  discover_t *d = context;
  uintptr_t start = UINTPTR_MAX, end = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (from < start) start = from;
    if (from + info->dlpi_phdr[i].p_memsz > end) end = from + info->dlpi_phdr[i].p_memsz;
  }
  if (end > start && d->image_count < DISCOVER_IMAGES)
    d->images[d->image_count++] = (discover_image_t){start, end};
  return 0;
}

/* Allocators align: when ten lua_States in a row have the same remainder by 16 (or by 8), all have. */
static void learn_alignment(discover_t *d, lua_State *L) {
  bool sixteen = true;
  d->alignment = 8;
  d->remainder = (uintptr_t)L & 7;
  for (int i = 0; i < 10; i++) {
    sixteen = sixteen && ((uintptr_t)lua_newthread(L) & 15) == ((uintptr_t)L & 15);
    lua_pop(L, 1);
    lua_newuserdata(
        L, (size_t)8 * (size_t)(i + 1)); /* so that the next lies elsewhere, and not a multiple of 16 on */
  }
  lua_pop(L, 10);
  if (sixteen) {
    d->alignment = 16;
    d->remainder = (uintptr_t)L & 15;
  }
}

void discover_learn(discover_t *d, lua_State *L, discover_scratch_t *scratch) {
  uintptr_t registers[CONTEXT_MAX_REGISTERS], sp;
  ucontext_t probe = {0};
  *d = (discover_t){.pid = getpid(), .scratch = scratch};
  lua_State *one = lua_newthread(L), *other = lua_newthread(L);
  bool learned = context_registers(&probe, registers, &sp) > 0 && learn_stack(d) &&
                 learn_global(d, L, one, other) && learn_jump(d, L, one);
  lua_pop(L, 2);
  if (!learned || seccomp_is_active()) return;
  learn_alignment(d, L);
  loader_each_image(add_image, d);
  d->span_offset = d->global_offset < d->jump_offset ? d->global_offset : d->jump_offset;
  d->span = (d->global_offset < d->jump_offset ? d->jump_offset : d->global_offset) + sizeof(uintptr_t) -
            d->span_offset;
  d->works = discover_is_running(d, L);
}
