/* SPDX-License-Identifier: MIT */
/* The layouts that come with LuaPulse, part of the program: puc.layout, and luajit.layout of the processor that it is built for. */
#include "walk/layout.h"

#include <pthread.h>

enum { MAX_KNOWN = 48 };

#define EMBED(symbol, file)                                                                       \
  __asm__(                                                                                        \
      ".section .rodata\n"                                                                        \
      ".hidden " #symbol "\n.hidden " #symbol "_end\n.global " #symbol "\n.global " #symbol       \
      "_end\n"                                                                                    \
      ".type " #symbol ", %object\n.type " #symbol "_end, %object\n" #symbol ":\n.incbin \"" file \
      "\"\n" #symbol "_end:\n.byte 0\n.previous\n");                                              \
  extern const char symbol[], symbol##_end[]

EMBED(layout_text_puc, "src/walk/puc.layout");
#if defined __aarch64__
EMBED(layout_text_luajit, "src/walk/luajit_arm64.layout");
#else
EMBED(layout_text_luajit, "src/walk/luajit.layout");
#endif

static layout_t known[MAX_KNOWN];
static size_t known_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_text(const char *text, const char *end) {
  layout_error_t error;
  size_t at = 0;
  while (known_count < MAX_KNOWN &&
         layout_parse(text, (size_t)(end - text), &at, &known[known_count], &error))
    known_count++;
}

static void read_all(void) {
  read_text(layout_text_puc, layout_text_puc_end);
  read_text(layout_text_luajit, layout_text_luajit_end);
}

const layout_t *layout_known(size_t i) {
  pthread_once(&once, read_all);
  return i < known_count ? &known[i] : NULL;
}
