/* SPDX-License-Identifier: MIT */
/* What was lost, as text: every output carries it, in words for people or in one line that can be read back.
 */
#ifndef LUAPULSE_FORMAT_LOSSES_H
#define LUAPULSE_FORMAT_LOSSES_H

#include "format/sink.h"
#include "profile/profile.h"

enum { LOSSES_LINE_BYTES = 256 };

/* "luapulse losses: overflow=0 truncated=0 …", every reason, zero or not. A difference may hold negative
 * counts. */
void losses_line(const profile_t *profile, char line[LOSSES_LINE_BYTES]);

/* Reads such a line into `losses`. False, and nothing changed, when it is none; reasons it does not know are
 * passed over, so that newer files can be read. */
bool losses_parse(const char *data, size_t len, uint64_t losses[LOSS_COUNT]);

/* For people: "none", or what was lost and what became of it, reasons separated by "; ". */
void losses_write_words(const profile_t *profile, sink_t *sink);

#endif
