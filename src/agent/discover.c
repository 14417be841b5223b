/* SPDX-License-Identifier: MIT */
/* Finding the running coroutine; see discover.h. */
#include "agent/discover.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/context.h"

enum {
  STATE_BYTES = 176,      /* no lua_State of 5.1 to 5.5 is smaller */
  BATCH = 32,             /* guesses checked by one system call */
  SCAN_BYTES = 64 * 1024, /* of native stack, at most */
  RESUMER_BYTES = 4096,   /* a resumer is named by the frames right above its coroutine's protected call */
  NEAR_BYTES = 64 * 1024
};

/* -- reading what may not be there ----------------------------------------------------------------------------- */

static bool read_word(const discover_t *d, uintptr_t from, uintptr_t *value) {
  struct iovec local = {value, sizeof *value}, remote = {(void *)from, sizeof *value};
  return process_vm_readv(d->pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof *value;
}

/* values[i] = the word at guesses[i] + offset, 0 where there is none. */
static void read_words(const discover_t *d, const uintptr_t *guesses, size_t count, size_t offset,
                       uintptr_t *values) {
  struct iovec remote[BATCH];
  memset(values, 0, count * sizeof *values);
  for (size_t i = 0; i < count; i++)
    remote[i] = (struct iovec){(void *)(guesses[i] + offset), sizeof *values};
  for (size_t done = 0; done < count;) {
    struct iovec local = {values + done, (count - done) * sizeof *values};
    ssize_t bytes = process_vm_readv(d->pid, &local, 1, remote + done, count - done, 0);
    if (bytes > 0) done += (size_t)bytes / sizeof *values;
    done++; /* the kernel stopped at one it could not read; or all were read */
  }
}

/* -- guesses ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const discover_t *d;
  uintptr_t above;  /* a running state's protected call lies at or above this … */
  uintptr_t below;  /* … and below this, the lowest found so far */
  uintptr_t found;  /* the state it belongs to, 0: none yet */
  uintptr_t except; /* not this one */
  uintptr_t guesses[BATCH];
  size_t count;
} search_t;

static void check_guesses(search_t *s) {
  uintptr_t globals[BATCH], jump;
  if (s->count == 0) return;
  read_words(s->d, s->guesses, s->count, s->d->global_offset, globals);
  for (size_t i = 0; i < s->count; i++) {
    if (globals[i] != s->d->global || !read_word(s->d, s->guesses[i] + s->d->jump_offset, &jump)) continue;
    if (jump < s->above || jump >= s->below) continue;
    s->below = jump;
    s->found = s->guesses[i];
  }
  s->count = 0;
}

static void guess(search_t *s, uintptr_t word) {
  bool plausible = (word & 7) == 0 && word > 65536 && word < (uintptr_t)1 << 47 && word != s->except &&
                   word != s->found && (word < s->d->low || word >= s->d->high);
  if (!plausible) return;
  for (size_t i = 0; i < s->count; i++)
    if (s->guesses[i] == word) return;
  s->guesses[s->count++] = word;
  if (s->count == BATCH) check_guesses(s);
}

/* The words of the stack from `at` to `end`, or to the lowest protected call found: what lies above is its resumer's.
 * Reads whole frames, red zones of a sanitizer included: all of it is mapped. */
__attribute__((no_sanitize("address"))) static void guess_stack(search_t *s, uintptr_t at, uintptr_t end) {
  for (at = (at + 7) & ~(uintptr_t)7; at + 8 <= end && at < s->below; at += 8)
    guess(s, *(const uintptr_t *)at);
  check_guesses(s);
}

lua_State *discover_running(const discover_t *d, const void *context) {
  uintptr_t registers[CONTEXT_MAX_REGISTERS], sp;
  size_t count = context_registers(context, registers, &sp);
  if (sp < d->low || sp >= d->high) return NULL; /* a stack of the host's own making */
  search_t s = {.d = d, .above = sp, .below = d->high};
  for (size_t i = 0; i < count; i++) guess(&s, registers[i]);
  check_guesses(&s);
  guess_stack(&s, sp, d->high - sp < SCAN_BYTES ? d->high : sp + SCAN_BYTES);
  return (lua_State *)s.found;
}

lua_State *discover_resumer(const discover_t *d, const lua_State *co) {
  uintptr_t jump;
  if (!read_word(d, (uintptr_t)co + d->jump_offset, &jump) || jump < d->low || jump >= d->high) return NULL;
  search_t s = {.d = d, .above = jump + 1, .below = d->high, .except = (uintptr_t)co};
  guess_stack(&s, jump, d->high - jump < RESUMER_BYTES ? d->high : jump + RESUMER_BYTES);
  return (lua_State *)s.found;
}

bool discover_is_running(const discover_t *d, const lua_State *L) {
  uintptr_t global, jump, here = (uintptr_t)__builtin_frame_address(0);
  if (here < d->low || here >= d->high)
    return false; /* asked from another stack: who runs there cannot be told */
  if (d->pid != getpid()) return false; /* a forked child would be told what runs in its parent */
  return read_word(d, (uintptr_t)L + d->global_offset, &global) && global == d->global &&
         read_word(d, (uintptr_t)L + d->jump_offset, &jump) && jump >= here && jump < d->high;
}

/* -- learning ------------------------------------------------------------------------------------------------------- */

static uintptr_t word_of(const lua_State *L, size_t offset) {
  uintptr_t word;
  memcpy(&word, (const char *)L + offset, sizeof word);
  return word;
}

/* What all coroutines of a VM have in common, lowest first, is their global state (and a hook, if one is set). */
static bool learn_global(discover_t *d, lua_State *L, const lua_State *one, const lua_State *other) {
  for (size_t offset = 16; offset + sizeof(uintptr_t) <= STATE_BYTES; offset += sizeof(uintptr_t)) {
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
  for (size_t offset = 16; offset + sizeof(uintptr_t) <= STATE_BYTES; offset += sizeof(uintptr_t)) {
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

/* Under a seccomp filter a system call it does not expect may end the process: it is not tried. */
static bool is_filtered(void) {
  char text[4096];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  ssize_t len = read(fd, text, sizeof text - 1);
  close(fd);
  if (len <= 0) return true;
  text[len] = '\0';
  const char *line = strstr(text, "\nSeccomp:\t");
  return line == NULL || line[sizeof "\nSeccomp:\t" - 1] != '0';
}

void discover_learn(discover_t *d, lua_State *L) {
  uintptr_t registers[CONTEXT_MAX_REGISTERS], sp, word;
  ucontext_t probe = {0};
  *d = (discover_t){.pid = getpid()};
  lua_State *one = lua_newthread(L), *other = lua_newthread(L);
  bool learned = context_registers(&probe, registers, &sp) > 0 && learn_stack(d) &&
                 learn_global(d, L, one, other) && learn_jump(d, L, one);
  lua_pop(L, 2);
  d->works = learned && !is_filtered() && read_word(d, (uintptr_t)L + d->global_offset, &word) &&
             word == d->global && discover_is_running(d, L);
}
