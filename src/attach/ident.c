/* SPDX-License-Identifier: MIT */
/* Finding the marks of Luas in bytes; see ident.h. */
#include "attach/ident.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "walk/layout.h"

static bool is_before(const char *bytes, const char *at, const char *text) {
  size_t len = strlen(text);
  return (size_t)(at - bytes) >= len && memcmp(at - len, text, len) == 0;
}

/* Copies "Lua 5.4.4" or "LuaJIT 2.1.0-beta3"; at is within [.., end). */
static void copy_text(ident_t *ident, const char *at, const char *end) {
  size_t len = 0;
  bool blank = false;
  for (; at < end && len + 1 < sizeof ident->text; at++) {
    if (*at == ' ' && !blank)
      blank = true;
    else if (!isalnum((unsigned char)*at) && *at != '.' && *at != '-')
      break;
    ident->text[len++] = *at;
  }
  ident->text[len] = '\0';
}

/* At "Lua". */
static bool recognise(const char *bytes, const char *at, const char *end, ident_t *ident) {
  static const char jit[] = "LuaJIT 2.", puc[] = "Lua 5.";
  size_t left = (size_t)(end - at);
  if (left >= sizeof jit && memcmp(at, jit, sizeof jit - 1) == 0 &&
      isdigit((unsigned char)at[sizeof jit - 1])) {
    if (at > bytes && at[-1] != '\0') return false; /* in the midst of a text of somebody's */
    ident->family = LAYOUT_LUAJIT;
    ident->language = 51;
    ident->sure = true;
    copy_text(ident, at, end);
    return true;
  }
  if (left < sizeof puc + 1 || memcmp(at, puc, sizeof puc - 1) != 0) return false;
  char minor = at[sizeof puc - 1];
  if (minor < '1' || minor > '5') return false;
  ident->family = LAYOUT_PUC;
  ident->language = (uint8_t)(50 + minor - '0');
  ident->sure = is_before(bytes, at, "$LuaVersion: ") || is_before(bytes, at, "$Lua: ");
  bool alone = at > bytes && at[-1] == '\0' && at[sizeof puc] == '\0'; /* what _VERSION is */
  copy_text(ident, at, end);
  return ident->sure || alone;
}

static void enter(idents_t *idents, const ident_t *ident, const char *place) {
  for (size_t i = 0; i < idents->count; i++) {
    ident_t *known = &idents->idents[i];
    if (strcmp(known->text, ident->text) == 0 && known->sure == ident->sure) return;
  }
  if (idents->count == IDENT_MAX) return;
  ident_t *added = &idents->idents[idents->count++];
  *added = *ident;
  size_t len = strlen(place);
  snprintf(added->place, sizeof added->place, "%s",
           len < IDENT_PLACE ? place : place + (len - IDENT_PLACE + 1));
}

void ident_search(idents_t *idents, const char *bytes, size_t len, uint64_t from, const char *place) {
  static const char word[] = "Lua";
  const char *end = bytes + len;
  for (const char *at = bytes; (at = memmem(at, (size_t)(end - at), word, sizeof word - 1)) != NULL; at++) {
    ident_t ident = {.at = from + (uint64_t)(at - bytes)};
    if (recognise(bytes, at, end, &ident)) enter(idents, &ident, place);
  }
}

void ident_settle(idents_t *idents) {
  bool sure = false;
  size_t kept = 0;
  for (size_t i = 0; i < idents->count; i++) sure |= idents->idents[i].sure;
  for (size_t i = 0; i < idents->count; i++)
    if (idents->idents[i].sure || !sure) idents->idents[kept++] = idents->idents[i];
  idents->count = kept;
}
