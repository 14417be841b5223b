/* SPDX-License-Identifier: MIT */
/* Has the kernel verify the walkers of known layouts, as `luapulse record` would when it met such a Lua.
 *   verify [TEXT…]        those whose name contains one of the texts; without any, all
 *   verify --broken       one that reads where nothing is: it must be refused
 * Prints a line for each. Ends with 0 when none was refused. */
#include <stdio.h>
#include <string.h>

#include "attach/bpf/programs.h"

static bool is_wanted(const char *name, int argc, char **argv) {
  bool wanted = argc == 1;
  for (int i = 1; i < argc; i++) wanted = wanted || strstr(name, argv[i]) != NULL;
  return wanted;
}

static bool verify(programs_t *programs, const layout_t *layout) {
  failure_t failure = {""};
  uint32_t place;
  walker_kind_t kind = {.layout = *layout};
  bool ok = programs_walker(programs, &kind, &place, &failure);
  printf("%s %s%s%s\n", ok ? "verified" : "refused", layout->name, ok ? "" : ": ", failure.text);
  fflush(stdout);
  return ok;
}

int main(int argc, char **argv) {
  failure_t failure = {""};
  int refused = 0;
  programs_t *programs = programs_open(99, WHOSE_OWN, &failure);
  if (programs == NULL) {
    fprintf(stderr, "verify: %s\n", failure.text);
    return 2;
  }
  if (argc == 2 && strcmp(argv[1], "--broken") == 0) {
    layout_t broken = *layout_known(0);
    broken.puc.closure_tag = LAYOUT_ABSENT - 1; /* of a buffer that all that is behind it is not as long as */
    refused += !verify(programs, &broken);
    refused += !verify(programs, &broken); /* it is not asked for twice, and says the same */
  } else {
    for (size_t i = 0; layout_known(i) != NULL; i++)
      if (is_wanted(layout_known(i)->name, argc, argv)) refused += !verify(programs, layout_known(i));
  }
  programs_close(programs);
  return refused != 0;
}
