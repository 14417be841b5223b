/* SPDX-License-Identifier: MIT */
/* libFuzzer over the names of definitions: no text crashes it, and a name is whole and printable. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "name/definition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_line(const char *text, size_t len, uint32_t line) {
  char name[64], small[8];
  size_t named = definition_name(text, len, line, name, sizeof name);
  if (named >= sizeof name || name[named] != '\0' || strlen(name) != named) abort();
  for (size_t i = 0; i < named; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) abort();
  size_t fits = definition_name(text, len, line, small, sizeof small);
  if (named > 0 && fits != (named < sizeof small ? named : 0)) abort();
  if (fits > 0 && strcmp(name, small) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint32_t lines[] = {0, 1, 2, 3, 4, 5, 8, UINT32_MAX};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) try_line((const char *)data, size, lines[i]);
  return 0;
}
