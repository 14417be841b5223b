/* SPDX-License-Identifier: MIT */
/* Memory that the agent maps for itself: the host may be interrupted within malloc, and its heap is not to look other than without us. */
#ifndef LUAPULSE_AGENT_MAPPING_H
#define LUAPULSE_AGENT_MAPPING_H

#include <stddef.h>

/* Zeroed. Address space only: pages come into being as they are touched. NULL, with errno, when there is none. */
void *mapping_new(size_t size);
void mapping_end(void *memory, size_t size); /* NULL: nothing */

#endif
