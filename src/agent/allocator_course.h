/* SPDX-License-Identifier: MIT */
/* Following the code of an allocator, instruction by instruction, with names in place of values.
 *
 * Mental model. The code is that of a lua_Alloc, which is given a block that is none or one, and a size that is zero or not: so every branch
 * on them is known. It may call one function, and ends by returning, or by a jump to a function that ends in its stead. What is neither
 * understood nor known ends the course without an answer. x86-64 alone. */
#ifndef LUAPULSE_AGENT_ALLOCATOR_COURSE_H
#define LUAPULSE_AGENT_ALLOCATOR_COURSE_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __x86_64__

enum { COURSE_PUSHED = 8 };

/* What is known of a register. */
typedef enum {
  UNKNOWN,
  ZERO,
  ZERO_BYTE, /* its lowest eight bits, nothing of the others */
  BLOCK,     /* what was given: not zero … */
  SIZE,      /* … and likewise */
  RESULT,    /* of the function that was called */
  FRAME,     /* where the stack ended when this was noted */
  OLD_VALUES /* and more: what register number - OLD_VALUES had at the beginning */
} value_t;

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, REGISTERS = 16 };

/* What is known of the flag that says whether the last result was zero. */
typedef enum { FLAG_UNKNOWN, FLAG_ZERO, FLAG_NOT_ZERO } flag_t;

typedef struct {
  uint64_t low,
      high; /* a segment of a loaded image, that can be read: what is read next is there as well, mostly */
} segment_t;

typedef struct {
  uint64_t begin, pc, furthest;
  segment_t segment;
  value_t registers[REGISTERS];
  value_t pushed[COURSE_PUSHED]; /* what the stack holds below the return address */
  int depth, frame_depth;        /* words on it: now, and when FRAME was noted, which is done once */
  flag_t flag;
  bool may_leave;    /* for any function, not for free and realloc alone */
  uint64_t called;   /* the one function that was called, 0 so far */
  value_t given[2];  /* its arguments */
  uint64_t left_for; /* any function that it ended with, 0: it returned, or called one */
  bool ended;        /* by a return, or by a jump to another function */
} course_t;

/* False when it could not be followed to its end. `may_leave`: a jump to what looks like another function is the end. */
bool course_follow(course_t *course, lua_Alloc allocate, value_t block, value_t size, bool may_leave);

/* Not those that a function has to leave as they are. */
bool course_is_scratch(int reg);
/* Where free and realloc are: what a program knows as their addresses may be the linker's code. */
uint64_t course_address_of_free(void);
uint64_t course_address_of_realloc(void);

#endif
#endif
