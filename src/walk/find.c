/* SPDX-License-Identifier: MIT */
/* Which coroutines run on a native stack; see walk.h. Compiled for BPF, too.
 *
 * A word is a running lua_State if the memory it points to says so: a thread object of an accepted VM whose place (its
 * innermost protected call, or LuaJIT's C frame) lies on this native stack, above the stack pointer. Suspended and dead
 * coroutines have none. The one whose place lies lowest runs; the others resumed it, one the next.
 *
 * The running one is nearly always found without a scan: a state found last time, the main thread or a register. When its
 * topmost function is Lua code nothing can run inside it, and the search is over; when it is coroutine.resume, or of coroutine.wrap, it
 * tells itself which coroutine runs inside it. A resumer is kept in the native frames
 * between its coroutine's place and its own, so only that part has to be looked at; and while places and call records are
 * as in the last walk, so is the chain. Where C code resumes coroutines there is no resumer, and no end before that of the native stack:
 * that is looked for in one walk of some. */
#include "walk/family.h"
#include "walk/machine.h"

/* -- the list, innermost first ------------------------------------------------------------------------------- */

static bool on_stack(const walk_t *walk, uint64_t place) {
  return place >= walk->registers.sp && place < walk->stack_high;
}

typedef struct {
  walk_t *walk;
  uint64_t wanted; /* a state, or a place */
  uint32_t at;
} listing_t;

static long step_known(uint32_t i, void *context) {
  listing_t *listing = context;
  if (i >= WALK_MAX_STATES) return 1;
  listing->at = i;
  return listing->walk->states[i].state == listing->wanted;
}

WALK_LOCAL bool is_known(walk_t *walk, uint64_t state) {
  listing_t listing = {walk, state, 0};
  if (walk->state_count == 0) return false;
  walk_loop(walk->state_count, step_known, &listing);
  return listing.at < WALK_MAX_STATES && walk->states[listing.at].state == state;
}

/* From the end down: what lies further out moves up by one. */
static long step_shift(uint32_t i, void *context) {
  listing_t *listing = context;
  walk_t *walk = listing->walk;
  uint32_t at = listing->at;
  (void)i;
  if (at == 0 || at >= WALK_MAX_STATES) return 1;
  uint32_t below = walk_bounded(at - 1, WALK_MAX_STATES - 1);
  if (walk->states[below].place < listing->wanted) return 1;
  walk->states[at] = walk->states[below];
  listing->at = below;
  return 0;
}

/* Of equal places what was found last stands further in. */
WALK_LOCAL void insert(walk_t *walk, const walk_state_t *state) {
  listing_t listing = {walk, state->place, walk->state_count};
  if (walk->state_count >= WALK_MAX_STATES) return;
  walk_loop(WALK_MAX_STATES, step_shift, &listing);
  if (listing.at >= WALK_MAX_STATES) return;
  walk->states[listing.at] = *state;
  walk->state_count++;
}

/* A main thread called without protection has no place; it is the outermost of its stack. Coroutines always are
 * protected. */
static bool runs_unprotected(walk_t *walk, const walk_state_t *s) {
  return layout_of(walk)->family == LAYOUT_PUC && s->place == 0 && s->call != s->first && s->call != 0 &&
         walk_main_of(walk, s->global) == s->state;
}

static bool consistent(walk_t *walk, const walk_state_t *s) {
#if !defined __bpf__
  if (walk->accepts != NULL) return walk->accepts(walk->context, s->global);
#endif
  walk_state_t main;
  uint64_t address = walk_main_of(walk, s->global);
  return address != 0 && walk_state(walk, address, WALK_GUESS, &main) && main.global == s->global;
}

/* Adds the state at `word` if it runs here. `seen`: the word stands on this native stack or in a register. False when there is
 * no state. */
WALK_LOCAL bool consider(walk_t *walk, uint64_t word, walk_trust_t trust, bool seen) {
  walk_state_t *state = &walk->candidate;
  if (!walk_state(walk, word, trust, state)) return false;
  if (is_known(walk, word)) return true;
  if (!on_stack(walk, state->place)) {
    if (!seen || !consistent(walk, state) || !runs_unprotected(walk, state)) return true;
    state->place = walk->stack_high - 1;
  } else if (!consistent(walk, state)) {
    return true;
  }
  insert(walk, state);
  return true;
}

/* -- looking ---------------------------------------------------------------------------------------------------- */

#if defined __bpf__
/* A few of the largest, without a search that branches. */
static inline bool is_in_image(const walk_t *walk, uint64_t word) {
  bool inside = false;
  for (uint32_t i = 0; i < WALK_NEAR_IMAGES; i++)
    inside |= word - walk->near_images[i].start < walk->near_images[i].end - walk->near_images[i].start;
  return inside;
}
#else
static bool is_in_image(const walk_t *walk, uint64_t word) {
  uint32_t low = 0, high = walk->image_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (word >= walk->images[middle].end)
      low = middle + 1;
    else
      high = middle;
  }
  return low < walk->image_count && word >= walk->images[low].start;
}
#endif

/* Most words are no lua_States, and what need not be read is cheaper. */
static inline bool is_plausible(const walk_t *walk, uint64_t word) {
  return (word & 7) == 0 && (word & walk->state_mask) == walk->state_rest && word > 65536 &&
         word < WALK_HIGHEST && (uint32_t)word != 0 && !is_in_image(walk, word) &&
         (!walk->stack_known || word < walk->registers.sp - 65536 || word >= walk->stack_high);
}

/* False when the word was looked at before. */
static inline bool is_new(walk_t *walk, uint64_t word) {
  uint64_t *recent = &walk->recent[walk_word_slot(word) % WALK_WORDS];
  if (*recent == word || walk->looks == 0) return false;
  *recent = word;
  walk->looks--;
  return true;
}

/* What is plausible is read: in BPF at once, in user space by few calls of the kernel. */
#if defined __bpf__
WALK_APART bool look_at(walk_t *walk, uint64_t word) {
  return walk_given(walk) && is_new(walk, word) && consider(walk, word, WALK_GUESS, true);
}

static inline void look_now(walk_t *walk) {
  (void)walk;
}
#else
static void look_now(walk_t *walk) {
  walk_memory_t *memory = walk->memory;
  bool foreseen = memory->foresee != NULL && walk->soon_count > 1;
  if (foreseen) memory->foresee(memory, walk->soon, walk->soon_count, walk_state_bytes(walk));
  for (uint32_t i = 0; i < walk->soon_count; i++) {
    uint64_t word = walk->soon[i];
    bool is_state = consider(walk, word, WALK_GUESS, true);
    if (!is_state && walk->ruled_out != NULL) walk->ruled_out[walk_word_slot(word)] = word;
  }
  walk->soon_count = 0;
  if (foreseen) memory->foresee(memory, NULL, 0, 0);
}

static void look_at(walk_t *walk, uint64_t word) {
  if (walk->ruled_out != NULL && walk->ruled_out[walk_word_slot(word)] == word) return;
  if (!is_new(walk, word) || is_known(walk, word)) return;
  walk->soon[walk->soon_count++] = word;
  if (walk->soon_count == WALK_FORESEEN) look_now(walk);
}
#endif

/* Of the native stack. With 32-bit references two of them are in a word, one of which is where C frames keep the state. */
static inline void look_at_word(walk_t *walk, uint64_t word) {
  const layout_t *layout = layout_of(walk);
  if (layout->family == LAYOUT_LUAJIT && layout->luajit.pointer == 4)
    word = layout->luajit.cframe_state % 8 == 0 ? (uint32_t)word : word >> 32;
  if (is_plausible(walk, word)) look_at(walk, word);
}

typedef struct {
  walk_t *walk;
  uint64_t at, end, beyond;
  uint32_t count; /* of walk->words */
} scan_t;

enum { WORDS_AT_ONCE = 4 };

/* LuaJIT: a state that runs has a C frame on this native stack, which holds it, and beside it the C frame before, or 0. Of the word at k
 * this can be told before it is followed, unless the other one was not read along. */
static inline bool may_be_in_cframe(const walk_t *walk, uint64_t at, uint32_t k, uint32_t count) {
  const layout_t *layout = layout_of(walk);
  if (layout->family != LAYOUT_LUAJIT) return true;
  uint32_t beside = layout->luajit.cframe_previous / 8u - layout->luajit.cframe_state / 8u;
  if (beside >= WALK_WORDS || k + beside >= count || k + beside >= WALK_WORDS) return true;
  uint64_t previous = walk->words[k + beside];
  if (!walk->stack_known) return previous < WALK_HIGHEST; /* it may lie on another fiber's */
  return previous == 0 || (previous > at && previous < walk->stack_high);
}

/* The place of the innermost state above `beyond`, 0 when there is none. */
static long step_bound(uint32_t i, void *context) {
  listing_t *listing = context;
  if (i >= WALK_MAX_STATES) return 1;
  listing->at = i;
  return listing->walk->states[i].place > listing->wanted;
}

static uint64_t bound_of(walk_t *walk, uint64_t beyond) {
  listing_t listing = {walk, beyond, 0};
  if (walk->state_count == 0) return 0;
  walk_loop(walk->state_count, step_bound, &listing);
  if (listing.at >= WALK_MAX_STATES) return 0;
  uint64_t place = walk->states[listing.at].place;
  return place > beyond ? place : 0;
}

/* Some of walk->words: a step for each would be longer than what is done in it, and of one for all the verifier would follow every word. */
static long step_words(uint32_t i, void *context) {
  scan_t *scan = context;
  walk_t *walk = scan->walk;
  if (i >= WALK_WORDS / WORDS_AT_ONCE) return 1;
  for (uint32_t part = 0; part < WORDS_AT_ONCE; part++) {
    uint32_t k = i * WORDS_AT_ONCE + part;
    if (k >= scan->count || k >= WALK_WORDS) return 1;
    if (may_be_in_cframe(walk, scan->at + (uint64_t)8 * k, k, scan->count))
      look_at_word(walk, walk->words[k]);
  }
  return 0;
}

static long step_scan(uint32_t i, void *context) {
  scan_t *scan = context;
  walk_t *walk = scan->walk;
  (void)i;
  if (scan->at >= scan->end || walk->looks == 0) return 1;
  uint64_t bound = bound_of(walk, scan->beyond), left = scan->end - scan->at;
  if (bound != 0 && scan->at >= bound) return 1;
  uint32_t count = left < sizeof walk->words ? (uint32_t)left / 8 : WALK_WORDS;
  count = walk_bounded(count, WALK_WORDS);
  if (count == 0 || !walk_read(walk->memory, walk->words, scan->at, count * 8, WALK_GUESS)) return 1;
  scan->count = count;
  walk_loop(WALK_WORDS / WORDS_AT_ONCE, step_words, scan);
  look_now(walk);
  scan->at += sizeof walk->words;
  return 0;
}

/* Scans the native stack from `from` until the place of the innermost state above `beyond` (0: of any), or for
 * WALK_SCAN_BYTES. */
WALK_LOCAL void scan_stack(walk_t *walk, uint64_t from, uint64_t beyond) {
  scan_t scan = {walk, (from + 7) & ~(uint64_t)7,
                 walk->stack_high - from < WALK_SCAN_BYTES ? walk->stack_high : from + WALK_SCAN_BYTES,
                 beyond, 0};
  walk_loop(WALK_SCAN_BYTES / sizeof walk->words, step_scan, &scan);
}

static bool is_settled(walk_t *walk) {
  if (walk->state_count == 0) return false;
  return layout_of(walk)->family == LAYOUT_PUC ? puc_runs_lua(walk, &walk->states[0])
                                               : luajit_runs_lua(walk, &walk->states[0]);
}

#if !defined __bpf__
/* From a state that runs inwards, as long as what runs on top of it is known to resume one coroutine and no other. True when the
 * search is over. */
static bool descend(walk_t *walk) {
  if (layout_of(walk)->family != LAYOUT_PUC || walk->state_count == 0) return false;
  walk_state_t outer = walk->states[0];
  bool from_main = outer.state == walk->likely_main;
  for (uint32_t known = walk->state_count; known < WALK_MAX_STATES; known++) {
    uint64_t resumed = puc_resumed(walk, &outer);
    if (resumed == 0 || is_known(walk, resumed)) break;
    consider(walk, resumed, WALK_LEAD, false);
    if (walk->states[0].state != resumed) break; /* it does not run yet, or no more */
    outer = walk->states[0];
  }
  if (from_main) walk->linked = outer.place;
  return is_settled(walk);
}
#else
static inline bool descend(walk_t *walk) {
  (void)walk;
  return false;
}
#endif

static long step_register(uint32_t i, void *context) {
  walk_t *walk = ((scan_t *)context)->walk;
  if (i >= WALK_MAX_REGISTERS || i >= walk->registers.count) return 1;
  uint64_t word = walk->registers.values[i];
  if (is_plausible(walk, word)) look_at(walk, word);
  return 0;
}

static void find_innermost(walk_t *walk) {
  if (layout_of(walk)->family == LAYOUT_LUAJIT && walk->likely_global != 0) {
    uint64_t current = luajit_current(walk, walk->likely_global);
    if (current != 0) consider(walk, current, is_calm(walk) ? WALK_LIVE : WALK_LEAD, false);
  }
  if (walk->likely_main != 0) consider(walk, walk->likely_main, WALK_LIVE, false);
  if (descend(walk)) return;
  if (walk->last_count > 0 && walk->last[0].state != walk->likely_main)
    consider(walk, walk->last[0].state, walk->last_is_alive ? WALK_LIVE : WALK_LEAD, false);
  if (is_settled(walk)) return;
  scan_t scan = {.walk = walk};
  walk_loop(WALK_MAX_REGISTERS, step_register, &scan);
  look_now(walk);
  if (!is_settled(walk)) scan_stack(walk, walk->registers.sp, 0);
}

/* -- the chain of resumers ---------------------------------------------------------------------------------------- */

#if !defined __bpf__ /* there each walk begins anew: the last one was of another thread */
/* While a coroutine that was at the same place in the last walk had a resumer that is where and as it was, it has it still. */
static bool take_last_resumers(walk_t *walk, const walk_state_t *state) {
  uint32_t l = 0;
  while (l < walk->last_count && (walk->last[l].place != state->place || walk->last[l].state != state->state))
    l++;
  if (l + 1 >= walk->last_count) return false;
  for (l++; l < walk->last_count; l++) {
    walk_state_t now;
    const walk_state_t *last = &walk->last[l];
    bool unprotected = last->place == walk->stack_high - 1;
    walk_trust_t trust = walk->last_is_alive ? WALK_LIVE : WALK_LEAD;
    if (!walk_state(walk, last->state, trust, &now) || now.global != last->global || now.call != last->call)
      return false;
    if (unprotected ? now.place != 0 : now.place != last->place) return false;
    now.place = last->place;
    if (!is_known(walk, now.state)) insert(walk, &now);
  }
  return true;
}

static void keep_last(walk_t *walk) {
  if (walk->barren_walks++ % WALK_BARREN_FOR == 0) __builtin_memset(walk->barren, 0, sizeof walk->barren);
  walk->last_count = walk->state_count;
  for (uint32_t i = 0; i < walk->state_count; i++) walk->last[i] = walk->states[i];
}
#else
static inline bool take_last_resumers(walk_t *walk, const walk_state_t *state) {
  (void)walk;
  (void)state;
  return false;
}
static inline void keep_last(walk_t *walk) {
  (void)walk;
}
#endif

/* Nobody resumes a main thread. */
static long step_resumers(uint32_t i, void *context) {
  walk_t *walk = ((scan_t *)context)->walk;
  if (i >= walk->state_count || i >= WALK_MAX_STATES) return 1;
  const walk_state_t *state = &walk->states[i];
  if (walk_main_of(walk, state->global) == state->state) return 0;
  if (walk->linked != 0 && state->place >= walk->linked) return 1; /* and what lies further out is, too */
  if (take_last_resumers(walk, state)) return 1;
  uint64_t place = state->place;
  if (!walk->remembers_barren || bound_of(walk, place) != 0) {
    scan_stack(walk, place, place);
    return 0;
  }
  uint64_t *barren = &walk->barren[(place >> 4) % WALK_BARREN];
  if (*barren == place) return 0;
  scan_stack(walk, place, place);
  *barren = bound_of(walk, place) == 0 ? place : 0;
  return 0;
}

/* States of another VM that lie further out are its own affair: the walk ends with the running VM. */
static long step_keep(uint32_t i, void *context) {
  listing_t *listing = context;
  walk_t *walk = listing->walk;
  if (i >= walk->state_count || i >= WALK_MAX_STATES || listing->at >= WALK_MAX_STATES) return 1;
  if (walk->states[i].global == listing->wanted) walk->states[listing->at++] = walk->states[i];
  return 0;
}

WALK_APART_PLACE walk_reason_t walk_find(walk_t *walk) {
  scan_t scan = {.walk = walk};
  if (!walk_given(walk)) return WALK_NO_STATE;
  if (walk->looks != WALK_MAX_LOOKS) __builtin_memset(walk->recent, 0, sizeof walk->recent);
  walk_forget_reads(walk);
  keep_last(walk);
  walk->state_count = 0;
  walk->looks = WALK_MAX_LOOKS;
  walk->linked = 0;
  walk->soon_count = 0;
  find_innermost(walk);
  if (walk->state_count == 0) return WALK_NO_STATE;
  walk_loop(WALK_MAX_STATES, step_resumers, &scan);
  listing_t listing = {walk, walk->states[0].global, 0};
  walk_loop(WALK_MAX_STATES, step_keep, &listing);
  walk->state_count = listing.at;
  return WALK_OK;
}
