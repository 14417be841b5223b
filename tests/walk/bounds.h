/* SPDX-License-Identifier: MIT */
/* One walk to its end, on memory that may lie, and the bounds it has to keep. For tests. */
#ifndef LUAPULSE_TESTS_WALK_BOUNDS_H
#define LUAPULSE_TESTS_WALK_BOUNDS_H

#include <signal.h>
#include <unistd.h>

#include "../unit/unit.h"
#include "image.h"

enum {
  BOUNDS_SHOWN_FRAMES = 64,
  BOUNDS_SECONDS = 120 /* a test that takes longer hangs */
};

/* Reads of one walk. Finding: WALK_MAX_LOOKS words may be looked at and found to be a lua_State of a consistent VM, which
 * takes four reads; a scan takes 64 words at a time, and there is one for each coroutine found and one before, which asks
 * for its main thread and for as many resumers as there were; and a few for what is known before. Frames: no more than
 * 4096 steps for each of five tops and each coroutine, of at most ten reads. Real walks take a few hundred. */
enum {
  SCAN_READS = WALK_SCAN_BYTES / (64 * 8) + WALK_MAX_STATES + 1,
  FIND_READS = WALK_MAX_LOOKS * 4 + (WALK_MAX_STATES + 1) * SCAN_READS + 64,
  FRAME_READS = (WALK_MAX_STATES + 5) * 4096 * 10
};

static walk_t walk; /* large */
static const char *at_work = "";
static char doing[128];

static void on_alarm(int number) {
  (void)number;
  char text[sizeof doing + 512];
  int len = snprintf(text, sizeof text, "no end in sight: %.255s, %s\n", at_work, doing);
  if (write(STDOUT_FILENO, text, (size_t)len) != len) _exit(3);
  _exit(1);
}

static inline void bounds_set_alarm(void) {
  signal(SIGALRM, on_alarm);
  alarm(BOUNDS_SECONDS);
}

/* What a profiler does with the frames: functions, lines, names. */
static void look_at_frames(void) {
  char text[IMAGE_FRAME_TEXT];
  char *exact = malloc(7); /* without a byte to spare */
  walk_proto_t proto;
  size_t len;
  for (uint32_t i = 0; i < walk.frame_count && i < BOUNDS_SHOWN_FRAMES; i++) {
    assert_true(walk.frames[i].kind <= WALK_BUILTIN);
    image_describe(&walk, &walk.frames[i], text);
    if (walk.frames[i].kind == WALK_LUA && walk_proto(&walk, walk.frames[i].proto, WALK_GUESS, &proto)) {
      walk_string(&walk, proto.source, exact, 7, &len);
      walk_line(&walk, &proto, proto.code);
      walk_line(&walk, &proto, proto.code_end);
      walk_line(&walk, &proto, proto.code_end - 4);
    }
  }
  for (uint32_t i = 0; i < walk.state_count; i++) walk_body(&walk, &walk.states[i]);
  free(exact);
}

static void check(walk_reason_t reason) {
  if (reason >= WALK_REASONS || walk.frame_count > WALK_MAX_FRAMES || walk.state_count > WALK_MAX_STATES ||
      walk.vmstate > WALK_VM_EXIT || walk.last_count > WALK_MAX_STATES)
    fail_msg("%s, %s: reason %d, %u frames, %u states, VM's state %d", at_work, doing, (int)reason,
             walk.frame_count, walk.state_count, (int)walk.vmstate);
}

/* `reads` counts what the memory did. Walks with what is set up in `walk`. */
static inline void walk_through(const uint64_t *reads) {
  uint64_t before = *reads;
  walk_reason_t reason = walk_find(&walk);
  if (*reads - before > FIND_READS)
    fail_msg("%s, %s: %d reads to find states", at_work, doing, (int)(*reads - before));
  check(reason);
  before = *reads;
  if (reason == WALK_OK) reason = walk_frames(&walk);
  if (*reads - before > FRAME_READS)
    fail_msg("%s, %s: %d reads for frames", at_work, doing, (int)(*reads - before));
  check(reason);
  look_at_frames();
}

#endif
