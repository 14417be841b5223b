/* SPDX-License-Identifier: MIT */
/* Questions to the code of the host's allocator; see host_allocator.h. */
#include "agent/host_allocator.h"

#include "agent/allocator_course.h"

#ifdef __x86_64__

static bool is_realloc(lua_Alloc allocate, value_t block) {
  course_t c;
  return course_follow(&c, allocate, block, SIZE, false) && c.called == course_address_of_realloc() &&
         c.given[0] == block && c.given[1] == SIZE && c.registers[RAX] == RESULT;
}

bool host_allocator_is_plain(lua_Alloc allocate) {
  course_t c;
  return course_follow(&c, allocate, BLOCK, ZERO, false) && c.called == course_address_of_free() &&
         c.given[0] == BLOCK && c.registers[RAX] == ZERO && is_realloc(allocate, ZERO);
}

bool host_allocator_resizes_plainly(lua_Alloc allocate) {
  return is_realloc(allocate, BLOCK);
}

/* The function that it ends with, given `second` beside what it was given itself; 0: with none. */
static uint64_t part(lua_Alloc allocate, value_t block, value_t size, value_t second) {
  course_t c;
  if (!course_follow(&c, allocate, block, size, true) || c.left_for == 0) return 0;
  for (int i = 0; i < REGISTERS; i++) {
    value_t expected = i == RSI ? second : i == RCX ? size : OLD_VALUES + (value_t)i;
    if (course_is_scratch(i) && c.registers[i] != expected) return 0;
  }
  return c.left_for;
}

bool host_allocator_parts(lua_Alloc allocate, host_allocator_parts_t *parts) {
  uint64_t make = part(allocate, ZERO, SIZE, SIZE), release = part(allocate, BLOCK, ZERO, BLOCK);
  if (make == 0 || release == 0) return false;
  parts->make = (void *(*)(void *, size_t, size_t, size_t))(uintptr_t)make;
  parts->release = (void *(*)(void *, void *, size_t, size_t))(uintptr_t)release;
  return true;
}

#else

bool host_allocator_is_plain(lua_Alloc allocate) {
  (void)allocate;
  return false;
}

bool host_allocator_resizes_plainly(lua_Alloc allocate) {
  (void)allocate;
  return false;
}

bool host_allocator_parts(lua_Alloc allocate, host_allocator_parts_t *parts) {
  (void)allocate;
  (void)parts;
  return false;
}

#endif
