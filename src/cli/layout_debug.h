/* SPDX-License-Identifier: MIT */
/* A layout (walk/layout.h) made from the debug information of a Lua. */
#ifndef LUAPULSE_CLI_LAYOUT_DEBUG_H
#define LUAPULSE_CLI_LAYOUT_DEBUG_H

#include "profile/failure.h"
#include "walk/layout.h"

typedef struct {
  bool there; /* debug information */
  layout_t layout;
  char build_id[132];    /* of the file, in hexadecimal; "" when it has none */
  const layout_t *known; /* one of those that come with LuaPulse and says the same, or NULL */
  const layout_t *
      wider; /* one of those that says the same and may say more, or NULL: debug information may lack structures */
} layout_debug_t;

/* Reads the file and fills in the layout, complete. False with a message that begins with the path; `there` tells then whether there is debug
 * information at all. */
bool layout_debug_read(layout_debug_t *result, const char *path, failure_t *failure);

#endif
