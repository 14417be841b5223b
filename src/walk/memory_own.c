/* SPDX-License-Identifier: MIT */
/* Reading the own process; see memory_own.h. Runs in signal handlers: no malloc, no locks, no stdio. */
#include "walk/memory_own.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, PAGE_BITS = 36 /* of the number of a page: addresses have 48 bits */ };

/* errno stays as it was: walks in an allocator are in the midst of the host's code. */
static ssize_t copy_by_kernel(const memory_own_t *own, const struct iovec *to, const struct iovec *from,
                              unsigned long count) {
  int kept = errno;
  ssize_t bytes = process_vm_readv(own->pid, to, count, from, count, 0);
  errno = kept;
  return bytes;
}

static bool read_by_kernel(const memory_own_t *own, void *to, uint64_t from, size_t len) {
  struct iovec local = {to, len}, remote = {(void *)(uintptr_t)from, len};
  return copy_by_kernel(own, &local, &remote, 1) == (ssize_t)len;
}

/* Asks the kernel to set the signal mask from there, in a way there is none of. It reads the set first: EFAULT where that cannot be
 * done, EINVAL where it can, and nothing is changed. That takes a fifth of the time of a read through the kernel. */
static bool is_readable(uint64_t address) {
  enum { NO_SUCH_WAY = -1, SET_BYTES = 8 };
  int kept = errno;
  bool readable =
      syscall(SYS_rt_sigprocmask, NO_SUCH_WAY, (void *)(uintptr_t)address, NULL, SET_BYTES) == -1 &&
      errno == EINVAL;
  errno = kept;
  return readable;
}

/* The piece of the region that ends where the reader is now: what follows lies below. */
static bool fill(memory_own_t *own, int region, uint64_t from, uint32_t len) {
  memory_window_t *window = &own->windows[region];
  uint64_t end = from + len, start = end > MEMORY_WINDOW ? end - MEMORY_WINDOW : 0;
  if (start < window->low) start = window->low;
  window->len = 0;
  if (!read_by_kernel(own, own->window_bytes[region], start, (size_t)(end - start))) return false;
  window->start = start;
  window->len = (uint32_t)(end - start);
  return true;
}

/* Loads words of any kind, the red zones of a sanitizer included. */
__attribute__((no_sanitize("address", "thread"))) static inline void load(void *to, uint64_t from,
                                                                          uint32_t len) {
  const volatile uint8_t *source = (const volatile uint8_t *)(uintptr_t)from;
  uint8_t *target = to;
  uint32_t i = 0;
  if ((from & 7) == 0)
    for (; i + 8 <= len; i += 8) {
      uint64_t word = *(const volatile uint64_t *)(const volatile void *)(source + i);
      __builtin_memcpy(target + i, &word, 8);
    }
  for (; i < len; i++) target[i] = source[i];
}

static const memory_span_t *span_of(const memory_foreseen_t *f, uint64_t from, uint32_t len) {
  for (uint32_t i = 0; i < f->count; i++)
    if (from >= f->spans[i].start && from + len <= f->spans[i].start + f->spans[i].len) return &f->spans[i];
  return NULL;
}

/* What is kept of a page: with the number of the walk, what earlier ones have left needs not be wiped. */
static uint64_t in_this_walk(const memory_own_t *own, uint64_t page) {
  return own->walks << PAGE_BITS | page;
}

/* Any thread may unmap what a guess leads to, so that is never loaded, but where the VM has led as well. */
static bool read_guess(memory_own_t *own, void *to, uint64_t from, uint32_t len) {
  const memory_span_t *span = span_of(&own->foreseen, from, len);
  if (span != NULL) {
    if (span->is_readable) memcpy(to, own->foreseen.bytes + span->offset + (from - span->start), len);
    return span->is_readable;
  }
  uint64_t page = from / PAGE;
  if (own->pages[page % MEMORY_PAGES] != in_this_walk(own, page) || (from + len - 1) / PAGE != page)
    return read_by_kernel(own, to, from, len);
  load(to, from, len);
  return true;
}

static bool ask_for_page(memory_own_t *own, uint64_t page) {
  uint64_t *slot = &own->pages[page % MEMORY_PAGES], known = in_this_walk(own, page);
  if (*slot == known) return true;
  if (!is_readable(page * PAGE)) return false;
  *slot = known;
  return true;
}

static bool read_lead(memory_own_t *own, void *to, uint64_t from, uint32_t len) {
  for (uint64_t page = from / PAGE; page <= (from + len - 1) / PAGE; page++)
    if (!ask_for_page(own, page)) return false;
  load(to, from, len);
  return true;
}

/* Two words at a time is what most reads are: not worth a call. */
static inline void copy(void *to, const uint8_t *from, uint32_t len) {
  if (len == 16)
    __builtin_memcpy(to, from, 16);
  else
    memcpy(to, from, len);
}

static inline bool is_in(const memory_window_t *window, uint64_t from, uint32_t len) {
  return from >= window->start && from + len <= window->start + window->len;
}

__attribute__((noinline)) static bool read_slowly(memory_own_t *own, void *to, uint64_t from, uint32_t len) {
  for (int i = 0; i < WALK_REGIONS; i++) {
    memory_window_t *window = &own->windows[i];
    if (from < window->low || from + len > window->high || len > MEMORY_WINDOW) continue;
    if (!is_in(window, from, len) && !fill(own, i, from, len)) return false;
    copy(to, own->window_bytes[i] + (from - window->start), len);
    return true;
  }
  return own->strict ? read_by_kernel(own, to, from, len) : read_guess(own, to, from, len);
}

static bool is_mapped_while_calm(const memory_own_t *own, uint64_t from, uint32_t len) {
  if (from >= own->vm_low && from < own->vm_high && own->vm_high - from >= len) return true;
  for (int i = 0; i < WALK_REGIONS; i++) {
    const memory_window_t *window = &own->windows[i];
    if (from >= window->low && from < window->high && window->high - from >= len) return true;
  }
  return false;
}

static bool read_own(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  memory_own_t *own = (memory_own_t *)memory;                  /* its first member */
  if (from < 65536 || from > WALK_HIGHEST - len) return false; /* no sum: it might wrap */
  if (!own->strict && (trust == WALK_LIVE || (from >= own->stack_low && from + len <= own->stack_high))) {
    load(to, from, len);
    return true;
  }
  if (own->calm && is_mapped_while_calm(own, from, len)) {
    load(to, from, len);
    return true;
  }
  if (!own->strict && own->may_ask && trust == WALK_LEAD) return read_lead(own, to, from, len);
  for (int i = 0; i < WALK_REGIONS; i++) {
    const memory_window_t *window = &own->windows[i];
    if (!is_in(window, from, len)) continue;
    copy(to, own->window_bytes[i] + (from - window->start), len);
    return true;
  }
  return read_slowly(own, to, from, len);
}

/* The copies go, too: they must not be taken for what they are copies of. */
static void forget_foreseen(memory_foreseen_t *f) {
  memset(f->bytes, 0, f->used);
  f->count = f->used = 0;
}

/* What lies close together in a page is read in one piece; what lies further apart is not worth the bytes between, which are no longer in
 * the processor's cache. False without room. Addresses come sorted. */
static bool add_foreseen(memory_foreseen_t *f, uint64_t address, uint32_t len) {
  memory_span_t *last = f->count > 0 ? &f->spans[f->count - 1] : NULL;
  bool joins = last != NULL && (address + len - 1) / PAGE == last->start / PAGE &&
               address <= last->start + last->len + MEMORY_CLOSE;
  uint64_t end = joins && last->start + last->len > address + len ? last->start + last->len : address + len;
  uint32_t more = joins ? (uint32_t)(end - last->start) - last->len : len;
  if (more > MEMORY_FORESEEN - f->used) return false;
  if (joins)
    last->len += more;
  else
    f->spans[f->count++] = (memory_span_t){.start = address, .len = len, .offset = f->used};
  f->used += more;
  return true;
}

static void sort(uint64_t *values, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    uint64_t value = values[i];
    uint32_t at = i;
    for (; at > 0 && values[at - 1] > value; at--) values[at] = values[at - 1];
    values[at] = value;
  }
}

/* One call reads all up to the first that cannot be read, and another one what is behind it. */
static void fetch(memory_own_t *own) {
  memory_foreseen_t *f = &own->foreseen;
  struct iovec to[WALK_FORESEEN], from[WALK_FORESEEN];
  for (uint32_t i = 0; i < f->count; i++) {
    to[i] = (struct iovec){f->bytes + f->spans[i].offset, f->spans[i].len};
    from[i] = (struct iovec){(void *)(uintptr_t)f->spans[i].start, f->spans[i].len};
  }
  for (uint32_t i = 0; i < f->count; i++) {
    ssize_t bytes = copy_by_kernel(own, to + i, from + i, f->count - i);
    for (; i < f->count && bytes >= (ssize_t)f->spans[i].len; i++) {
      f->spans[i].is_readable = true;
      bytes -= (ssize_t)f->spans[i].len;
    }
  }
}

static void foresee(walk_memory_t *memory, const uint64_t *addresses, uint32_t count, uint32_t len) {
  memory_own_t *own = (memory_own_t *)memory;
  uint64_t sorted[WALK_FORESEEN];
  forget_foreseen(&own->foreseen);
  if (own->strict || count == 0 || count > WALK_FORESEEN || len == 0 || len > PAGE) return;
  memcpy(sorted, addresses, count * sizeof addresses[0]);
  sort(sorted, count);
  for (uint32_t i = 0; i < count; i++)
    if (!add_foreseen(&own->foreseen, sorted[i], len)) break;
  fetch(own);
}

static void expect(walk_memory_t *memory, walk_region_t region, uint64_t low, uint64_t high) {
  memory_own_t *own = (memory_own_t *)memory;
  memory_window_t *window = &own->windows[region];
  if (window->low == low && window->high == high) return; /* what was fetched in this walk is still good */
  window->low = low;
  window->high = high;
  window->start = window->len = 0;
}

void memory_own_init(memory_own_t *own, pid_t pid) {
  own->memory = (walk_memory_t){.read = read_own, .expect = expect, .foresee = foresee};
  own->pid = pid;
  own->may_ask = is_readable((uint64_t)(uintptr_t)own) && !is_readable(PAGE);
  memory_own_begin(own, true, 0, 0);
}

void memory_own_begin_calm(memory_own_t *own, uint64_t stack_low, uint64_t stack_high, uint64_t vm_low,
                           uint64_t vm_high) {
  memory_own_begin(own, false, stack_low, stack_high);
  own->calm = true;
  own->vm_low = vm_low;
  own->vm_high = vm_high;
}

void memory_own_begin(memory_own_t *own, bool strict, uint64_t stack_low, uint64_t stack_high) {
  own->strict = strict;
  own->memory.direct = !strict;
  own->calm = false;
  own->stack_low = stack_low;
  own->stack_high = stack_high;
  forget_foreseen(&own->foreseen);
  if (++own->walks >> (64 - PAGE_BITS) != 0) { /* their numbers start again */
    own->walks = 1;
    memset(own->pages, 0, sizeof own->pages);
  }
  for (int i = 0; i < WALK_REGIONS; i++)
    own->windows[i].low = own->windows[i].high = own->windows[i].start = own->windows[i].len = 0;
}
