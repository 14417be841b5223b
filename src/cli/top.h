/* SPDX-License-Identifier: MIT */
/* The live view between its parts: top.c, which samples, and top_screen.c, which shows it on a terminal. */
#ifndef LUAPULSE_CLI_TOP_H
#define LUAPULSE_CLI_TOP_H

#include "attach/recorder.h"
#include "cli/top_view.h"

enum { TOP_TARGETS = 256, TOP_MESSAGE = 256 };

/* What the head says. */
typedef struct {
  char targets[TOP_TARGETS]; /* "process 12 (lua5.4)" */
  const char *engine;
  unsigned hz;
  uint64_t rounds;
  recorder_counts_t counts, base; /* now, and as they were at the beginning or the last reset */
  bool frozen, ended;
  char message[TOP_MESSAGE]; /* what happened last … */
  uint64_t message_round;    /* … and in which round */
} top_state_t;

typedef enum {
  TOP_NOTHING,
  TOP_DRAW,
  TOP_MAKE /* the lines anew */,
  TOP_FREEZE,
  TOP_RESET,
  TOP_QUIT
} top_action_t;

/* "97.0 samples/s, 98 % of a processor, 0 lost, 0 unattributed (0.0 %)" */
void top_describe(const top_state_t *state, const top_view_t *view, char *text, size_t size);

/* False when the terminal cannot do it: then text is printed instead. */
bool top_screen_open(void);
void top_screen_close(void); /* and leaves the terminal as it was */
void top_screen_draw(const top_state_t *state, top_view_t *view);
/* What the keys that were typed ask for: one thing after the other, until TOP_NOTHING. Settings of the view are changed already. */
top_action_t top_screen_keys(top_view_t *view);

#endif
