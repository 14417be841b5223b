/* SPDX-License-Identifier: MIT */
/* JSON text for people's tools: always valid JSON whatever the bytes of a name are. */
#ifndef LUAPULSE_FORMAT_JSON_H
#define LUAPULSE_FORMAT_JSON_H

#include <stddef.h>

#include "format/sink.h"

/* Writes a JSON string, quotes included. Control characters and bytes that are not UTF-8 become the text \xHH
 * (one way: readers see four characters). The signs < > & are written as escapes, so that the string may
 * stand inside an HTML script element. */
void json_string(sink_t *sink, const char *data, size_t len);

#endif
