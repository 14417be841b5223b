/* SPDX-License-Identifier: MIT */
/* The C interface for hosts (include/luapulse.h), on top of sessions. */
#include <string.h>

#include "agent/label.h"
#include "agent/options.h"
#include "agent/session.h"
#include "format/format.h"
#include "profile/mem.h"

/* The public error and the inside failure are one struct under two names. */
_Static_assert(sizeof(luapulse_error_t) == sizeof(failure_t), "luapulse_error_t must match failure_t");

static failure_t *as_failure(luapulse_error_t *error) {
  return (failure_t *)error;
}

const char *luapulse_reason_name(unsigned reason) {
  return reason < WALK_REASONS ? walk_reason_name((walk_reason_t)reason) : NULL;
}

const char *luapulse_version(void) {
  return LUAPULSE_VERSION;
}

void luapulse_options_init(luapulse_profile_options_t *options) {
  *options = options_default();
}

int luapulse_start(lua_State *L, const luapulse_profile_options_t *options, luapulse_error_t *error) {
  luapulse_profile_options_t defaults = options_default();
  session_region_t own = {0};
  return session_start(L, options != NULL ? options : &defaults, own, as_failure(error)) ? 0 : -1;
}

luapulse_profile_t *luapulse_stop(lua_State *L, luapulse_error_t *error) {
  return session_stop(L, as_failure(error));
}

luapulse_profile_t *luapulse_snapshot(lua_State *L, luapulse_error_t *error) {
  return session_snapshot(L, as_failure(error));
}

int luapulse_pause(lua_State *L, luapulse_error_t *error) {
  return session_pause(L, true, as_failure(error)) ? 0 : -1;
}

int luapulse_resume(lua_State *L, luapulse_error_t *error) {
  return session_pause(L, false, as_failure(error)) ? 0 : -1;
}

int luapulse_labels(lua_State *L, const char *const *keys, const char *const *values, size_t count,
                    luapulse_error_t *error) {
  size_t len = 0, at = 0;
  if (count > LABEL_MAX_COUNT) {
    failure_set(as_failure(error), "at most %d labels, got %zu", LABEL_MAX_COUNT, count);
    return -1;
  }
  for (size_t i = 0; i < count; i++) len += strlen(keys[i]) + strlen(values[i]) + 2;
  char *text = mem_alloc(len + 1);
  if (text == NULL) {
    failure_set(as_failure(error), "out of memory");
    return -1;
  }
  for (size_t i = 0; i < count; i++) {
    size_t key = strlen(keys[i]) + 1, value = strlen(values[i]) + 1;
    memcpy(text + at, keys[i], key);
    memcpy(text + at + key, values[i], value);
    at += key + value;
  }
  bool ok = session_label(L, text, len, as_failure(error));
  mem_free(text);
  return ok ? 0 : -1;
}

int luapulse_heap_rate(lua_State *L, size_t mean_bytes, luapulse_error_t *error) {
  return session_heap_rate(L, mean_bytes, as_failure(error)) ? 0 : -1;
}

int luapulse_heap_gc(lua_State *L, luapulse_gc_t gc, luapulse_error_t *error) {
  return session_heap_gc(L, &gc, as_failure(error)) ? 0 : -1;
}

void luapulse_get_status(lua_State *L, luapulse_status_t *status) {
  session_status(L, status);
}

int luapulse_profile_write(const luapulse_profile_t *profile, const char *path, const char *format,
                           luapulse_error_t *error) {
  if (profile == NULL) { /* what a failed stop returned */
    failure_set(as_failure(error), "there is no profile to write to '%s'", path);
    return -1;
  }
  const format_t *chosen = format != NULL ? format_by_name(format) : format_for_path(path);
  if (chosen == NULL) {
    failure_set(as_failure(error),
                format != NULL
                    ? "'%s' is not a format; known are pprof, folded, speedscope, callgrind, html, text"
                    : "the extension of '%s' names no format; use .pb.gz, .folded, .speedscope.json, "
                      ".callgrind, .html or .txt",
                format != NULL ? format : path);
    return -1;
  }
  return format_write_file(profile, chosen, path, as_failure(error)) ? 0 : -1;
}

void luapulse_profile_free(luapulse_profile_t *profile) {
  profile_free(profile);
}
