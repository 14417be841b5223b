/* SPDX-License-Identifier: MIT */
/* Output file names; see output.h. */
#include "cli/output.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

bool output_add(output_t *output, const char *name, failure_t *failure) {
  if (output->count == OUTPUT_MAX) return failure_set(failure, "at most %d files", OUTPUT_MAX);
  output->names[output->count++] = name;
  return true;
}

/* Copies the name with its % signs replaced. False when it is too long or has an unknown one. */
static bool expand(const char *name, pid_t pid, time_t when, char *path) {
  size_t used = 0;
  for (; *name != '\0'; name++) {
    char piece[32] = {name[0], '\0'};
    if (name[0] == '%') {
      name++;
      struct tm local;
      if (*name == 'p' && pid == OUTPUT_ALL)
        snprintf(piece, sizeof piece, "all");
      else if (*name == 'p')
        snprintf(piece, sizeof piece, "%d", (int)pid);
      else if (*name == 't')
        strftime(piece, sizeof piece, "%Y%m%d-%H%M%S", localtime_r(&when, &local));
      else if (*name != '%')
        return false;
    }
    size_t len = strlen(piece);
    if (used + len >= PATH_MAX) return false;
    memcpy(path + used, piece, len);
    used += len;
  }
  path[used] = '\0';
  return true;
}

static bool has_sign(const char *name, char sign) {
  for (; *name != '\0'; name++) {
    if (*name == '%' && name[1] == sign) return true;
    if (*name == '%' && name[1] != '\0') name++;
  }
  return false;
}

static const format_t *format_of(const output_t *output, const char *path) {
  return output->format != NULL ? output->format : format_for_path(path);
}

static void set_default_names(output_t *output, bool repeated) {
  const char *stem = repeated ? "luapulse.%p.%t" : "luapulse.%p";
  snprintf(output->default_name, sizeof output->default_name, "%s%s", stem,
           output->format != NULL ? output->format->extension : ".pb.gz");
  output->names[output->count++] = output->default_name;
  if (!repeated && output->format == NULL) output->names[output->count++] = "luapulse.%p.html";
}

bool output_check(output_t *output, bool repeated, failure_t *failure) {
  char path[PATH_MAX];
  if (output->count == 0) set_default_names(output, repeated);
  for (size_t i = 0; i < output->count; i++) {
    const char *name = output->names[i];
    if (!expand(name, 1, 0, path))
      return failure_set(failure, "the name '%s' is too long or has a %% sign that is not %%p, %%t or %%%%",
                         name);
    if (output->format == NULL && format_for_path(path) == NULL)
      return failure_set(
          failure,
          "the name '%s' tells no format: end it in .pb.gz, .html, .folded, .speedscope.json, .callgrind, "
          ".trace.json or .txt, or say -f",
          name);
    if (repeated && !has_sign(name, 't'))
      return failure_set(
          failure, "with --interval the name '%s' needs %%t in it, or each profile would replace the last",
          name);
  }
  return true;
}

/* Before the profile is there. */
static bool is_known(const char *name, pid_t pid) {
  return !has_sign(name, 't') && (pid != OUTPUT_UNKNOWN || !has_sign(name, 'p'));
}

bool output_reachable(const output_t *output, pid_t pid, failure_t *failure) {
  char path[PATH_MAX];
  for (size_t i = 0; i < output->count; i++) {
    const char *name = output->names[i], *slash = strrchr(name, '/');
    bool known = is_known(name, pid);
    if (!known && slash != NULL && memchr(name, '%', (size_t)(slash - name)) != NULL)
      continue; /* neither is the directory */
    if (!file_check(known && expand(name, pid, 0, path) ? path : name, known, failure)) return false;
  }
  return true;
}

bool output_has_format(const output_t *output, const char *format) {
  char path[PATH_MAX];
  for (size_t i = 0; i < output->count; i++)
    if (expand(output->names[i], 1, 0, path) && strcmp(format_of(output, path)->name, format) == 0)
      return true;
  return false;
}

bool output_write(const output_t *output, size_t i, const profile_t *profile, pid_t pid, time_t when,
                  char *path, failure_t *failure) {
  if (!expand(output->names[i], pid, when, path))
    return failure_set(failure, "the name '%s' is too long", output->names[i]);
  return format_write_file(profile, format_of(output, path), path, failure);
}

/* A format's line, with the names as a shell reads them: they can be copied. */
static void say_use(const format_t *format, const char *path) {
  char stem[PATH_MAX];
  size_t len = strlen(path), extension = strlen(format->extension);
  bool has_it = len > extension && strcmp(path + len - extension, format->extension) == 0;
  snprintf(stem, sizeof stem, "%.*s", (int)(has_it ? len - extension : len), path);
  fputs("luapulse: ", stderr);
  for (const char *use = format->use; *use != '\0'; use++)
    if (*use == '@' || *use == '^') {
      if (path[0] == '-') fputs("./", stderr); /* or it would be an option */
      cli_show_word(*use == '@' ? path : stem);
    } else
      fputc(*use, stderr);
  fputc('\n', stderr);
}

void output_suggest(const output_t *output, pid_t pid, time_t when) {
  for (size_t i = 0; i < output->count; i++) {
    char path[PATH_MAX];
    if (!expand(output->names[i], pid, when, path) || strcmp(path, "-") == 0) continue;
    say_use(format_of(output, path), path);
  }
}
