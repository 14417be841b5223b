/* SPDX-License-Identifier: MIT */
/* The words that a function's source must have in it: names of its local variables, and its string constants, which are names of
 * globals, fields and methods most often. By them a text is told from others. Of PUC Lua. */
#ifndef LUAPULSE_ATTACH_PROTO_WORDS_H
#define LUAPULSE_ATTACH_PROTO_WORDS_H

#include "walk/walk.h"

/* True when all words of the prototype that are identifiers stand in the text, as wholes, and could be read. Only so many are looked at.
 * The process may run: who calls has to make sure that the prototype is there before and after. */
bool proto_words_in(walk_t *walk, uint64_t proto, const char *text, size_t len);

#endif
