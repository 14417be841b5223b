/* SPDX-License-Identifier: MIT */
/* Allocators that are nothing but realloc and free, and such as are not: told apart by their code (src/agent/plain_allocator.h). */
#include "agent/plain_allocator.h"

#include <sys/resource.h>

#include "heap.h"
#include "profile/random.h"

/* As a host would have compiled it, whatever this file is compiled with. */
#define ALLOCATOR __attribute__((noinline, no_sanitize("address", "undefined", "thread"))) static void *

static int calls;

/* -- plain ones ------------------------------------------------------------------------------------------------------- */

#define PLAIN(name)                                                         \
  ALLOCATOR name(void *ud, void *block, size_t old_size, size_t new_size) { \
    (void)ud;                                                               \
    (void)old_size;                                                         \
    if (new_size == 0) {                                                    \
      free(block);                                                          \
      return NULL;                                                          \
    }                                                                       \
    return realloc(block, new_size);                                        \
  }

__attribute__((optimize("omit-frame-pointer"))) ALLOCATOR without_frame_pointer(void *, void *, size_t,
                                                                                size_t);
PLAIN(as_luas_own)
PLAIN(without_frame_pointer)

ALLOCATOR the_other_way_round(void *ud, void *block, size_t old_size, size_t new_size) {
  (void)ud;
  (void)old_size;
  if (new_size > 0) return realloc(block, new_size);
  free(block);
  return NULL;
}

/* As that of 5.3: a block that shrinks stays where it is if need be. */
ALLOCATOR never_fails_to_shrink(void *ud, void *block, size_t old_size, size_t new_size) {
  (void)ud;
  if (new_size == 0) {
    free(block);
    return NULL;
  }
  void *result = realloc(block, new_size);
  return result == NULL && block != NULL && old_size >= new_size ? block : result;
}

static void plain_ones_are_known(void) {
  lua_State *L = luaL_newstate();
  void *ud;
  lua_Alloc of_the_library = lua_getallocf(L, &ud);
  lua_gc(L, LUA_GCCOLLECT, 0);
  luaL_openlibs(L); /* by now it has freed something */
#ifdef __x86_64__
  CHECK(plain_allocator_is(of_the_library));
  CHECK(plain_allocator_is(as_luas_own));
  CHECK(plain_allocator_is(the_other_way_round));
  CHECK(plain_allocator_is(never_fails_to_shrink));
  CHECK(plain_allocator_is(without_frame_pointer));
#else
  CHECK(!plain_allocator_is(of_the_library));
#endif
  lua_close(L);
}

/* -- others --------------------------------------------------------------------------------------------------------------- */

static void own_free(void *block) __attribute__((noinline));
static void own_free(void *block) {
  free(block);
  calls++;
}

__attribute__((noinline)) static void *own_realloc(void *block, size_t size) {
  calls++;
  return realloc(block, size);
}

static inline void *looked_at(char *result) {
  if (result == NULL) calls++;
  return result;
}

static inline void *written_into(char *result) {
  *result = 0;
  return result;
}

__attribute__((noreturn)) static inline void *never(void) {
  for (;;) __asm__ volatile("" : : : "memory");
}

#define OTHER(name, freed, made)                                            \
  ALLOCATOR name(void *ud, void *block, size_t old_size, size_t new_size) { \
    (void)ud;                                                               \
    (void)old_size;                                                         \
    return new_size == 0 ? freed : made;                                    \
  }
#define FREED (free(block), NOTHING)
#define MADE realloc(block, new_size)
#define NOTHING (void *)NULL

OTHER(counts_calls, (calls++, FREED), MADE)
OTHER(counts_new_ones, FREED, (calls++, MADE))
OTHER(asks_for_more, FREED, realloc(block, new_size + 16))
OTHER(asks_for_less, FREED, realloc(block, old_size))
OTHER(keeps_room_before, (free((char *)block - 16), NOTHING), MADE)
OTHER(hands_out_later, FREED, (char *)MADE + 16)
OTHER(frees_nothing, NOTHING, MADE)
OTHER(frees_and_returns_it, (free(block), block), MADE)
OTHER(frees_what_ud_says, (free(ud), NOTHING), MADE)
OTHER(takes_from_ud, FREED, realloc(ud, new_size))
OTHER(frees_by_its_own, (own_free(block), NOTHING), MADE)
OTHER(makes_by_its_own, FREED, own_realloc(block, new_size))
OTHER(makes_empty_ones, FREED, block == NULL ? calloc(1, new_size) : MADE)
OTHER(limits_sizes, FREED, new_size > 1000000 ? NOTHING : MADE)
OTHER(limits_by_ud, FREED, ud != NULL ? NOTHING : MADE)
OTHER(looks_at_the_result, FREED, looked_at(MADE))
OTHER(writes_into_it, FREED, written_into(MADE))
OTHER(never_ends, FREED, never())

#ifdef __x86_64__
/* As Lua's own, but for the instruction before the call of realloc, which is a nop but for its prefix. */
void exchanges_registers(void);
__asm__(
    ".text\n"
    "exchanges_registers:\n"
    "  mov %rsi, %rdi\n"
    "  test %rcx, %rcx\n"
    "  je 1f\n"
    "  mov %rcx, %rsi\n"
    "  .byte 0x49, 0x90\n" /* xchg %rax, %r8 */
    "  jmp realloc@plt\n"
    "1: sub $8, %rsp\n"
    "  call free@plt\n"
    "  xor %eax, %eax\n"
    "  add $8, %rsp\n"
    "  ret\n");
#endif

static void others_are_not(void) {
  static const lua_Alloc others[] = {counts_calls,        counts_new_ones,      asks_for_more,
                                     asks_for_less,       keeps_room_before,    hands_out_later,
                                     frees_nothing,       frees_and_returns_it, frees_what_ud_says,
                                     takes_from_ud,       frees_by_its_own,     makes_by_its_own,
                                     makes_empty_ones,    limits_sizes,         limits_by_ud,
                                     looks_at_the_result, writes_into_it,       never_ends};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (plain_allocator_is(others[i])) FAIL("other number %zu was taken for a plain one", i);
#ifdef __x86_64__
  lua_Alloc exchanging;
  void (*code)(void) = exchanges_registers;
  memcpy(&exchanging, &code, sizeof exchanging);
  CHECK(!plain_allocator_is(exchanging));
#endif
}

/* -- code that is none ------------------------------------------------------------------------------------------------------ */

static lua_Alloc at(const void *address) {
  lua_Alloc function;
  memcpy(&function, &address, sizeof function);
  return function;
}

static void what_is_no_code_is_not_plain(void) {
  static uint8_t bytes[256];
  static const uint8_t usual[] = {0x48, 0x89, 0x85, 0xc9, 0xf6, 0x74, 0x75, 0x0f, 0xeb, 0xe8, 0xe9, 0xc3,
                                  0x50, 0x58, 0x31, 0xc0, 0x83, 0xec, 0x08, 0xc4, 0xff, 0x25, 0x84, 0x94};
  char *own = malloc(64);
  CHECK(!plain_allocator_is(at(own)));
  free(own);
  CHECK(!plain_allocator_is(at((const void *)16)));
  CHECK(!plain_allocator_is(at((const void *)~(uintptr_t)0)));
  CHECK(!plain_allocator_is(at(&bytes[sizeof bytes - 1])));
  random_t random = {.state = 7};
  for (int round = 0; round < 20000; round++) {
    for (size_t i = 0; i < sizeof bytes; i++) {
      uint64_t number = random_next(&random);
      bytes[i] = number % 4 != 0 ? usual[number / 4 % sizeof usual] : (uint8_t)(number >> 32);
    }
    CHECK(!plain_allocator_is(at(bytes)));
  }
}

/* -- in use --------------------------------------------------------------------------------------------------------------- */

static lua_State *open_plain(void) {
  lua_State *L = host_prepare(luaL_newstate());
  host_run(L, PROGRAM);
  return L;
}

/* What is counted in the stead of the host's allocator is what the VM counts. */
static void totals_are_those_of_the_vm(void) {
  static const size_t means[] = {1, 300, 100000, (size_t)1 << 40};
  for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
    lua_State *L = open_plain();
    start_with(L, heap_options(LUAPULSE_COLLECTION_SAMPLING, means[i]));
    host_call(L, "churn", 3000);
    host_call(L, "keep", 3000);
    luapulse_profile_t *profile = luapulse_snapshot(L, NULL);
    check_balance(profile);
    CHECK(total_of(profile, "alloc_objects_total") > 12000);
    CHECK(total_of(profile, "free_objects_total") > 0 && total_of(profile, "realloc_total") > 0);
    if (means[i] == 1) check_whole(profile);
    luapulse_profile_free(profile);
    host_run(L, "drop()");
    luapulse_profile_free(host_stop(L));
    lua_close(L);
  }
}

/* malloc itself refuses. */
static void a_failure_is_counted(void) {
  if (SANITIZED_ADDRESS || SANITIZED_THREAD) return; /* there such a request ends the process */
  lua_State *L = open_plain();
  start_with(L, heap_options(LUAPULSE_COLLECTION_SAMPLING, (size_t)1 << 40));
  luapulse_profile_t *first = luapulse_snapshot(L, NULL);
  struct rlimit before, little;
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  little = (struct rlimit){(rlim_t)1 << 30, before.rlim_max}; /* less than is asked for */
  CHECK(setrlimit(RLIMIT_AS, &little) == 0);
  host_run(L, "assert(select(2, pcall(string.rep, 'x', 2 ^ 30)) == 'not enough memory')");
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  host_call(L, "keep", 1000);
  luapulse_profile_t *second = luapulse_snapshot(L, NULL);
  CHECK(total_of(second, "failed_total") > total_of(first, "failed_total"));
  CHECK(total_of(second, "alloc_bytes_total") < (uint64_t)1 << 30);
  check_balance(second);
  luapulse_profile_free(first);
  luapulse_profile_free(second);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static const host_test_t tests[] = {
    {"plain_ones_are_known", plain_ones_are_known},
    {"others_are_not", others_are_not},
    {"what_is_no_code_is_not_plain", what_is_no_code_is_not_plain},
    {"totals_are_those_of_the_vm", totals_are_those_of_the_vm},
    {"a_failure_is_counted", a_failure_is_counted},
};

HOST_MAIN(tests)
