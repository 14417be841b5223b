/* SPDX-License-Identifier: MIT */
/* Which coroutines run on a native stack; see walk.h.
 *
 * A word is a running lua_State if the memory it points to says so: a thread object of an accepted VM whose place (its
 * innermost protected call, or LuaJIT's C frame) lies on this native stack, above the stack pointer. Suspended and dead
 * coroutines have none. The one whose place lies lowest runs; the others resumed it, one the next.
 *
 * The running one is nearly always found without a scan: a state found last time, the main thread or a register. When its
 * topmost function is Lua code nothing can run inside it, and the search is over. A resumer is kept in the native frames
 * between its coroutine's place and its own, so only that part has to be looked at; and while places and call records are
 * as in the last walk, so is the chain. */
#include "walk/family.h"

enum { WORDS = 64 /* read at a time */ };

/* -- the list, innermost first ------------------------------------------------------------------------------- */

static bool on_stack(const walk_t *walk, uint64_t place) {
  return place >= walk->registers.sp && place < walk->stack_high;
}

static uint32_t insert(walk_t *walk, const walk_state_t *state) {
  uint32_t at = 0;
  while (at < walk->state_count && walk->states[at].place < state->place) at++;
  for (uint32_t i = 0; i < walk->state_count; i++)
    if (walk->states[i].state == state->state) return i;
  if (walk->state_count == WALK_MAX_STATES) return WALK_MAX_STATES;
  for (uint32_t i = walk->state_count++; i > at; i--) walk->states[i] = walk->states[i - 1];
  walk->states[at] = *state;
  return at;
}

static bool is_known(const walk_t *walk, uint64_t word) {
  for (uint32_t i = 0; i < walk->state_count; i++)
    if (walk->states[i].state == word) return true;
  return false;
}

/* A main thread called without protection has no place; it is the outermost of its stack. Coroutines always are
 * protected. */
static bool runs_unprotected(walk_t *walk, const walk_state_t *s) {
  return walk->layout->family == LAYOUT_PUC && s->place == 0 && s->call != s->first && s->call != 0 &&
         walk_main_of(walk, s->global) == s->state;
}

static bool consistent(walk_t *walk, const walk_state_t *s) {
  if (walk->accepts != NULL) return walk->accepts(walk->context, s->global);
  walk_state_t main;
  uint64_t address = walk_main_of(walk, s->global);
  return address != 0 && walk_state(walk, address, WALK_GUESS, &main) && main.global == s->global;
}

/* Adds the state at `word` if it runs here. `seen`: the word stands on this native stack or in a register. False when there is
 * no state. */
static bool consider(walk_t *walk, uint64_t word, walk_trust_t trust, bool seen) {
  walk_state_t state;
  if (is_known(walk, word)) return true;
  if (!walk_state(walk, word, trust, &state)) return false;
  if (!on_stack(walk, state.place)) {
    if (!seen || !consistent(walk, &state) || !runs_unprotected(walk, &state)) return true;
    state.place = walk->stack_high - 1;
  } else if (!consistent(walk, &state)) {
    return true;
  }
  insert(walk, &state);
  return true;
}

/* -- looking ---------------------------------------------------------------------------------------------------- */

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

/* Most words are no lua_States, and what need not be read is cheaper. */
static bool is_plausible(const walk_t *walk, uint64_t word) {
  return (word & 7) == 0 && (word & walk->state_mask) == walk->state_rest && word > 65536 &&
         word < (uint64_t)1 << 47 && (uint32_t)word != 0 && !is_in_image(walk, word) &&
         (!walk->stack_known || word < walk->registers.sp - 65536 || word >= walk->stack_high);
}

static void look_at(walk_t *walk, uint64_t word, uint64_t *recent, uint32_t *next) {
  if (!is_plausible(walk, word) || walk->looks == 0) return;
  uint64_t *ruled_out = walk->ruled_out != NULL ? &walk->ruled_out[walk_word_slot(word)] : NULL;
  if (ruled_out != NULL && *ruled_out == word) return;
  for (uint32_t i = 0; i < WORDS; i++)
    if (recent[i] == word) return;
  recent[*next] = word;
  *next = (*next + 1) % WORDS;
  walk->looks--;
  if (!consider(walk, word, WALK_GUESS, true) && ruled_out != NULL) *ruled_out = word;
}

/* LuaJIT with 32-bit references keeps two of them in a word. */
static void look_at_word(walk_t *walk, uint64_t word, uint64_t *recent, uint32_t *next) {
  if (walk->layout->family == LAYOUT_LUAJIT && walk->layout->luajit.pointer == 4) {
    look_at(walk, (uint32_t)word, recent, next);
    word >>= 32;
  }
  look_at(walk, word, recent, next);
}

/* Scans the native stack from `from` until the place of the innermost state above `beyond` (0: of any), or for
 * WALK_SCAN_BYTES. */
static void scan(walk_t *walk, uint64_t from, uint64_t beyond, uint64_t *recent, uint32_t *next) {
  uint64_t end = walk->stack_high - from < WALK_SCAN_BYTES ? walk->stack_high : from + WALK_SCAN_BYTES;
  for (uint64_t at = (from + 7) & ~(uint64_t)7; at < end && walk->looks > 0; at += sizeof(uint64_t) * WORDS) {
    uint64_t words[WORDS];
    for (uint32_t i = 0; i < walk->state_count; i++) {
      if (walk->states[i].place <= beyond) continue;
      if (at >= walk->states[i].place) return;
      break;
    }
    uint32_t len = end - at < sizeof words ? (uint32_t)((end - at) & ~(uint64_t)7) : (uint32_t)sizeof words;
    if (len == 0 || !walk_read(walk->memory, words, at, len, WALK_GUESS)) return;
    for (uint32_t i = 0; i < len / sizeof(uint64_t); i++) look_at_word(walk, words[i], recent, next);
  }
}

static bool is_settled(walk_t *walk) {
  if (walk->state_count == 0) return false;
  return walk->layout->family == LAYOUT_PUC ? puc_runs_lua(walk, &walk->states[0])
                                            : luajit_runs_lua(walk, &walk->states[0]);
}

static void find_innermost(walk_t *walk, uint64_t *recent, uint32_t *next) {
  if (walk->layout->family == LAYOUT_LUAJIT && walk->likely_global != 0) {
    uint64_t current = luajit_current(walk, walk->likely_global);
    if (current != 0) consider(walk, current, walk->calm ? WALK_LIVE : WALK_GUESS, false);
  }
  if (walk->likely_main != 0) consider(walk, walk->likely_main, WALK_LIVE, false);
  if (walk->last_count > 0 && walk->last[0].state != walk->likely_main)
    consider(walk, walk->last[0].state, walk->last_is_alive ? WALK_LIVE : WALK_GUESS, false);
  if (is_settled(walk)) return;
  for (uint32_t i = 0; i < walk->registers.count; i++) look_at(walk, walk->registers.values[i], recent, next);
  if (!is_settled(walk)) scan(walk, walk->registers.sp, 0, recent, next);
}

/* -- the chain of resumers ---------------------------------------------------------------------------------------- */

/* While a coroutine that was at the same place in the last walk had a resumer that is where and as it was, it has it still. */
static bool take_last_resumers(walk_t *walk, uint32_t i) {
  uint32_t l = 0;
  while (l < walk->last_count &&
         (walk->last[l].place != walk->states[i].place || walk->last[l].state != walk->states[i].state))
    l++;
  if (l + 1 >= walk->last_count) return false;
  for (l++; l < walk->last_count; l++) {
    walk_state_t now;
    const walk_state_t *last = &walk->last[l];
    bool unprotected = last->place == walk->stack_high - 1;
    walk_trust_t trust = walk->last_is_alive ? WALK_LIVE : WALK_GUESS;
    if (!walk_state(walk, last->state, trust, &now) || now.global != last->global || now.call != last->call)
      return false;
    if (unprotected ? now.place != 0 : now.place != last->place) return false;
    now.place = last->place;
    insert(walk, &now);
  }
  return true;
}

static void find_resumers(walk_t *walk, uint64_t *recent, uint32_t *next) {
  for (uint32_t i = 0; i < walk->state_count && i < WALK_MAX_STATES; i++) {
    const walk_state_t *state = &walk->states[i];
    if (walk_main_of(walk, state->global) == state->state) continue; /* nobody resumes a main thread */
    if (take_last_resumers(walk, i)) return;
    scan(walk, state->place, state->place, recent, next);
  }
}

walk_reason_t walk_find(walk_t *walk) {
  uint64_t recent[WORDS] = {0};
  uint32_t next = 0;
  walk->last_count = walk->state_count;
  for (uint32_t i = 0; i < walk->state_count; i++) walk->last[i] = walk->states[i];
  walk->state_count = 0;
  walk->looks = WALK_MAX_LOOKS;
  find_innermost(walk, recent, &next);
  if (walk->state_count == 0) return WALK_NO_STATE;
  /* States of another VM that lie further out are its own affair: the walk ends with the running VM. */
  find_resumers(walk, recent, &next);
  uint32_t kept = 1;
  for (uint32_t i = 1; i < walk->state_count; i++)
    if (walk->states[i].global == walk->states[0].global) walk->states[kept++] = walk->states[i];
  walk->state_count = kept;
  return WALK_OK;
}
