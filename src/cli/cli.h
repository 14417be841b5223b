/* SPDX-License-Identifier: MIT */
/* What the commands of the command line share. One source file per command. */
#ifndef LUAPULSE_CLI_CLI_H
#define LUAPULSE_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "profile/profile.h"

/* Exit statuses; a command that failed never exits with 0. */
enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };
/* Of a program that was to be started, as shells have it. */
enum { STATUS_NOT_RUNNABLE = 126, STATUS_NOT_FOUND = 127 };

typedef struct {
  const char *name;
  const char *summary;               /* one line for `luapulse --help` */
  int (*run)(int argc, char **argv); /* argv[0] is the command's name; the result is an exit status */
} command_t;

int run_run(int argc, char **argv);
int record_run(int argc, char **argv);
int report_run(int argc, char **argv);
int leaks_run(int argc, char **argv);
int convert_run(int argc, char **argv);
int layout_run(int argc, char **argv);
int probe_run(int argc, char **argv);
int top_run(int argc, char **argv);
int stat_run(int argc, char **argv);
int dump_run(int argc, char **argv);

/* The command with its arguments, as it was given: messages that end with PROCESS_AS_ROOT go on with it, in words that a shell reads as these.
 * The arguments must stay. */
void cli_command_is(int argc, char **argv);
/* Both write "luapulse COMMAND: message" to standard error; text of any origin is made fit for a terminal.
 * Usage errors add where to find help. They return the status to exit with. */
int cli_failed(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for what is no failure: "luapulse: message". */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes to standard error, in the midst of a line, what a shell reads as this word. */
void cli_show_word(const char *word);
/* After getopt_long() returned '?' or ':', with opterr = 0 and option strings that begin with ':'. */
int cli_bad_option(const char *command, char **argv, int result);

/* The terminal's width, 80 at least, or 0 (no limit) when standard output is none. */
size_t cli_terminal_width(void);
/* The whole text as a number that is not negative. */
bool cli_parse_count(const char *text, size_t *count);
bool cli_parse_number(const char *text, unsigned least, unsigned most, unsigned *value);
/* Likewise, in bytes, with k, M or G behind it for as many times 1024. */
bool cli_parse_size(const char *text, int64_t *bytes);
/* The place of a word in a list of words, each ended by a NUL, the list by an empty one. */
bool cli_parse_word(const char *text, const char *words, unsigned *place);
/* Likewise; without a text the place stays as it is. */
bool cli_parse_optional_word(const char *text, const char *words, unsigned *place);
/* The sample type of that name, NULL meaning the profile's own; what was freed is computed on demand, see heap_types.h. False after
 * it said what is wrong. */
bool cli_choose_type(const char *command, const char *path, profile_t *profile, const char *name,
                     size_t *type);

/* Labels that samples are to have, KEY=VALUE each. */
enum { CLI_WHERE_MAX = 8 };
typedef struct {
  const char *labels[CLI_WHERE_MAX];
  size_t count;
} cli_where_t;
/* False when it is no KEY=VALUE, or one too many. */
bool cli_add_where(cli_where_t *where, const char *text);
/* Leaves the samples that have all of them. False after it said that there are none. */
bool cli_keep_where(const char *command, const char *path, profile_t *profile, const cli_where_t *where);

#endif
