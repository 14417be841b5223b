/* SPDX-License-Identifier: MIT */
/* Allocators that are nothing but realloc and free, such as are made of other functions, and such as are neither: told apart by their code
 * (src/agent/host_allocator.h). */
#include "agent/host_allocator.h"

#include <dlfcn.h>
#include <pthread.h>
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
  CHECK(host_allocator_is_plain(of_the_library));
  CHECK(host_allocator_is_plain(as_luas_own));
  CHECK(host_allocator_is_plain(the_other_way_round));
  CHECK(host_allocator_is_plain(never_fails_to_shrink));
  CHECK(host_allocator_is_plain(without_frame_pointer));
  CHECK(host_allocator_resizes_plainly(as_luas_own));
  CHECK(host_allocator_resizes_plainly(the_other_way_round));
  CHECK(!host_allocator_resizes_plainly(never_fails_to_shrink));
#else
  CHECK(!host_allocator_is_plain(of_the_library));
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
    if (host_allocator_is_plain(others[i])) FAIL("other number %zu was taken for a plain one", i);
#ifdef __x86_64__
  lua_Alloc exchanging;
  void (*code)(void) = exchanges_registers;
  memcpy(&exchanging, &code, sizeof exchanging);
  CHECK(!host_allocator_is_plain(exchanging));
#endif
}

/* -- made of parts ----------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
/* A block of 64 bytes that is handed out again and again: what the parts were given is seen. */
static char the_block[64];
static void *given_ud;
static size_t given_size;

__attribute__((used, aligned(16), no_sanitize("address", "undefined", "thread"))) static void *part_make(
    void *ud, size_t size, size_t old_size, size_t same_size) {
  __asm__ volatile("test %%rdi, %%rdi" : : : "cc");
  given_ud = ud;
  given_size = size;
  return old_size == 5 && same_size == size ? the_block : NULL;
}

__attribute__((used, aligned(16), no_sanitize("address", "undefined", "thread"))) static void *part_release(
    void *ud, void *block, size_t size, size_t zero) {
  __asm__ volatile("test %%rdi, %%rdi" : : : "cc");
  given_ud = ud;
  given_size = size;
  return block == the_block && zero == 0 ? NULL : the_block;
}

/* ALLOCATOR_OF(NAME, BEFORE, NEW, FREED): jumps as LuaJIT's does, with other instructions before all, before a new block and before a free. The
 * functions that are jumped to are aligned, or a little off, or need flags. */
#define ALLOCATOR_OF(name, before, new, freed) \
  void name(void);                             \
  __asm__(".text\n.balign 16\n" #name ":\n" before "\n"           \
          "  test %rcx, %rcx\n  je 2f\n"                          \
          "  test %rsi, %rsi\n  je 1f\n"                          \
          "  mov %rcx, %rdx\n  jmp parts_resize\n"                \
          "1: mov %rcx, %rsi\n" new "\n"                          \
          "2: " freed "\n  .balign 64\n");

__asm__(
    ".text\n.balign 16\n"
    "parts_make: push %rbx\n  mov %rdi, %rbx\n  sub $8, %rsp\n  add $8, %rsp\n  pop %rbx\n  jmp part_make\n"
    ".balign 16\n"
    "parts_release: test %rsi, %rsi\n  jmp part_release\n"
    ".balign 16\n"
    "parts_resize: xor %eax, %eax\n  ret\n"
    ".balign 16\n"
    "parts_needs_flags: push %rbx\n  je 1f\n1: pop %rbx\n  ret\n"
    ".balign 16\n"
    "  nop\n"
    "parts_unaligned: test %rdi, %rdi\n  ret\n"
    ".balign 64\n");
ALLOCATOR_OF(by_parts, "", "jmp parts_make", "jmp parts_release")
ALLOCATOR_OF(by_parts_with_flags, "", "jmp parts_needs_flags", "jmp parts_release")
ALLOCATOR_OF(by_parts_unaligned, "", "jmp parts_unaligned", "jmp parts_release")
ALLOCATOR_OF(by_parts_of_another, "", "mov %rcx, %rdi\njmp parts_make", "jmp parts_release")
ALLOCATOR_OF(by_parts_of_another_size, "", "xor %edx, %edx\njmp parts_make", "jmp parts_release")
ALLOCATOR_OF(by_parts_frees_another, "", "jmp parts_make", "mov %rdi, %rsi\njmp parts_release")
ALLOCATOR_OF(by_parts_with_more, "xor %eax, %eax", "jmp parts_make", "jmp parts_release")
ALLOCATOR_OF(by_parts_pushes, "push %rbx", "jmp parts_make", "jmp parts_release")
ALLOCATOR_OF(by_parts_returns, "", "jmp parts_make", "xor %eax, %eax\nret")
ALLOCATOR_OF(by_parts_guarded, "endbr64", "jmp parts_make", "jmp parts_release")

static lua_Alloc as_allocator(void (*code)(void)) {
  lua_Alloc function;
  memcpy(&function, &code, sizeof function);
  return function;
}
#endif

static void parts_are_known(void) {
  host_allocator_parts_t parts;
  lua_State *L = luaL_newstate();
  void *ud;
  lua_Alloc of_the_library = lua_getallocf(L, &ud);
#ifdef __x86_64__
  CHECK(!host_allocator_parts(of_the_library, &parts));
  CHECK(host_allocator_parts(as_allocator(by_parts), &parts));
  CHECK(parts.make(&parts, 48, 5, 48) == the_block && given_ud == &parts && given_size == 48);
  CHECK(parts.release(L, the_block, 7, 0) == NULL && given_ud == L && given_size == 7);
  static void (*const others[])(void) = {
      by_parts_with_flags,      by_parts_unaligned,     by_parts_of_another,
      by_parts_of_another_size, by_parts_frees_another, by_parts_with_more,
      by_parts_pushes,          by_parts_returns,       by_parts_guarded};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (host_allocator_parts(as_allocator(others[i]), &parts)) FAIL("number %zu is not made of parts", i);
#else
  CHECK(!host_allocator_parts(of_the_library, &parts));
#endif
  CHECK(!host_allocator_parts(as_luas_own, &parts));
  lua_close(L);
}

/* As it is installed, beside the Lua of this host. */
static void luajits_own_is_made_of_parts(void) {
  if (SANITIZED_ADDRESS || SANITIZED_THREAD) return; /* they have no library beside theirs */
#ifdef __x86_64__
  void *library = dlopen("libluajit-5.1.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == NULL) FAIL("%s", dlerror());
  lua_State *(*open_state)(void) = NULL;
  lua_Alloc (*get_allocator)(lua_State *, void **) = NULL;
  void (*close_state)(lua_State *) = NULL;
  *(void **)&open_state = dlsym(library, "luaL_newstate");
  *(void **)&get_allocator = dlsym(library, "lua_getallocf");
  *(void **)&close_state = dlsym(library, "lua_close");
  CHECK(open_state != NULL && get_allocator != NULL && close_state != NULL);
  lua_State *L = open_state();
  CHECK(L != NULL);
  void *ud, *blocks[100];
  host_allocator_parts_t parts;
  lua_Alloc allocate = get_allocator(L, &ud);
  CHECK(!host_allocator_is_plain(allocate) && !host_allocator_resizes_plainly(allocate));
  CHECK(host_allocator_parts(allocate, &parts));
  for (size_t i = 0; i < 100; i++) { /* of both, in turn: they are of one heap */
    size_t size = 16 + i * 40;
    blocks[i] = i % 2 == 0 ? parts.make(ud, size, 0, size) : allocate(ud, NULL, 0, size);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], (int)i, size);
  }
  for (size_t i = 0; i < 100; i++) {
    size_t size = 16 + i * 40;
    CHECK(((unsigned char *)blocks[i])[size - 1] == i);
    CHECK((i % 3 == 0 ? parts.release(ud, blocks[i], size, 0) : allocate(ud, blocks[i], size, 0)) == NULL);
  }
  close_state(L);
  dlclose(library);
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
  host_allocator_parts_t parts;
  char *own = malloc(64);
  CHECK(!host_allocator_is_plain(at(own)));
  free(own);
  CHECK(!host_allocator_is_plain(at((const void *)16)));
  CHECK(!host_allocator_is_plain(at((const void *)~(uintptr_t)0)));
  CHECK(!host_allocator_is_plain(at(&bytes[sizeof bytes - 1])));
  random_t random = {.state = 7};
  for (int round = 0; round < 20000; round++) {
    for (size_t i = 0; i < sizeof bytes; i++) {
      uint64_t number = random_next(&random);
      bytes[i] = number % 4 != 0 ? usual[number / 4 % sizeof usual] : (uint8_t)(number >> 32);
    }
    CHECK(!host_allocator_is_plain(at(bytes)) && !host_allocator_resizes_plainly(at(bytes)));
    CHECK(!host_allocator_parts(at(bytes), &parts));
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

static int ask_for_much(lua_State *L) {
  lua_newuserdata(L, (size_t)1 << 30);
  return 1;
}

/* malloc itself refuses, or what LuaJIT has in its place. */
static void a_failure_is_counted(void) {
  if (SANITIZED_ADDRESS || SANITIZED_THREAD) return; /* there such a request ends the process */
  lua_State *L = open_plain();
  lua_pushcfunction(L, ask_for_much);
  lua_setglobal(L, "ask_for_much");
  start_with(L, heap_options(LUAPULSE_COLLECTION_SAMPLING, (size_t)1 << 40));
  luapulse_profile_t *first = luapulse_snapshot(L, NULL);
  struct rlimit before, little;
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  little = (struct rlimit){(rlim_t)1 << 30, before.rlim_max}; /* less than is asked for */
  CHECK(setrlimit(RLIMIT_AS, &little) == 0);
  host_run(L, "assert(select(2, pcall(ask_for_much)) == 'not enough memory')");
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

static void *profile_and_close(void *number) {
  for (size_t i = 0; i < 24; i++) {
    lua_State *L = open_plain();
    start_with(L, heap_options((i + (uintptr_t)number) % 2 == 0 ? LUAPULSE_COLLECTION_SAMPLING
                                                                : LUAPULSE_COLLECTION_TRACING,
                               1 + 50 * (i % 4)));
    host_call(L, "keep", (int)i * 20);
    host_call(L, "everything", (int)i);
    if (i % 3 == 0) {
      luapulse_profile_t *profile = host_stop(L);
      check_balance(profile);
      CHECK(total_of(profile, "alloc_objects_total") > 2 * 20 * i);
      luapulse_profile_free(profile);
      host_run(L, "drop()"); /* what was followed goes back to whom it came from */
    }
    lua_close(L); /* of three, two while they are profiled */
  }
  return NULL;
}

static void vms_of_two_threads_are_closed_at_any_time(void) {
  pthread_t threads[2];
  for (uintptr_t i = 0; i < 2; i++)
    CHECK(pthread_create(&threads[i], NULL, profile_and_close, (void *)i) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static const host_test_t tests[] = {
    {"plain_ones_are_known", plain_ones_are_known},
    {"others_are_not", others_are_not},
    {"parts_are_known", parts_are_known},
    {"luajits_own_is_made_of_parts", luajits_own_is_made_of_parts},
    {"what_is_no_code_is_not_plain", what_is_no_code_is_not_plain},
    {"totals_are_those_of_the_vm", totals_are_those_of_the_vm},
    {"a_failure_is_counted", a_failure_is_counted},
    {"vms_of_two_threads_are_closed_at_any_time", vms_of_two_threads_are_closed_at_any_time},
};

HOST_MAIN(tests)
