/* SPDX-License-Identifier: MIT */
/* What commands say when they fail; see cli.h. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attach/process.h"
#include "cli/cli.h"
#include "format/encoding.h"

static int own_argc;
static char **own_argv;

void cli_command_is(int argc, char **argv) {
  own_argc = argc;
  own_argv = argv;
}

/* File names, and names within files, may hold anything: shown as ENCODING_SHOWN. */
static void show(const char *text, size_t len) {
  for (size_t at = 0; at < len;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, text + at, len - at);
    fwrite(piece.bytes, 1, piece.len, stderr);
    at += piece.taken;
  }
}

/* Quoted where there is more in it than letters, digits and what means nothing to a shell. */
void cli_show_word(const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
    fputs(word, stderr);
    return;
  }
  fputc('\'', stderr);
  for (size_t len; *word != '\0'; word += len) {
    len = strcspn(word, "'");
    show(word, len);
    if (word[len] == '\'') fputs("'\\''", stderr), len++;
  }
  fputc('\'', stderr);
}

static bool ends_with(const char *text, const char *end) {
  size_t len = strlen(text), end_len = strlen(end);
  return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static void say(const char *command, const char *format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  fprintf(stderr, "luapulse%s%s: ", command[0] != '\0' ? " " : "", command);
  show(text, strlen(text));
  for (int i = 0; i < own_argc && ends_with(text, PROCESS_AS_ROOT); i++) {
    fputc(' ', stderr);
    cli_show_word(own_argv[i]);
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
