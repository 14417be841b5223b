/* SPDX-License-Identifier: MIT */
/* What commands say when they fail; see cli.h. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "format/encoding.h"

/* File names, and names within files, may hold anything: shown as ENCODING_SHOWN. */
static void say(const char *command, const char *format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  fprintf(stderr, "luapulse%s%s: ", command[0] != '\0' ? " " : "", command);
  for (size_t at = 0, len = strlen(text); at < len;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, text + at, len - at);
    fwrite(piece.bytes, 1, piece.len, stderr);
    at += piece.taken;
  }
  fputc('\n', stderr);
}

int cli_failed(const char *command, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(command, format, arguments);
  va_end(arguments);
  return STATUS_FAILED;
}

void cli_say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say("", format, arguments);
  va_end(arguments);
}

int cli_usage(const char *command, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(command, format, arguments);
  va_end(arguments);
  fprintf(stderr, "try 'luapulse %s%s--help'\n", command, command[0] != '\0' ? " " : "");
  return STATUS_USAGE;
}

int cli_bad_option(const char *command, char **argv, int result) {
  const char *problem = result == ':' ? "needs a value" : "is not an option, or not one with a value";
  const char *word = argv[optind - 1];
  if (optopt != 0 && (word[0] != '-' || word[1] != '-')) return cli_usage(command, "-%c %s", optopt, problem);
  return cli_usage(command, "%s %s", word, problem);
}
