/* SPDX-License-Identifier: MIT */
/* The command line: finds the command and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "format/format.h"

/* Blocks of so many bytes have pages of their own, which are moved where they grow and given back where they go. */
enum { LARGE = 1 << 18 };

static const command_t commands[] = {
    {"run", "run a Lua program and profile it", run_run},
    {"record", "profile running processes from outside, for as long as you like", record_run},
    {"top", "show live which functions of running processes take the time", top_run},
    {"stat", "tell once a second what running processes do: interpreter, compiled, collector, idle",
     stat_run},
    {"dump", "show the Lua stacks of a running process, as they are now", dump_run},
    {"probe", "tell which Lua is in a process or a file, and what profiling it needs", probe_run},
    {"report", "show where the time went, as a table", report_run},
    {"leaks", "show where memory keeps growing, by a heap profile", leaks_run},
    {"convert", "turn a profile into another format", convert_run},
    {"layout", "make layout data of a Lua build from its debug information", layout_run},
    {NULL, NULL, NULL},
};

static const command_t *find(const char *name) {
  for (const command_t *command = commands; command->name != NULL; command++)
    if (strcmp(command->name, name) == 0) return command;
  return NULL;
}

static int print_help(void) {
  printf(
      "luapulse: where the time of a Lua program goes, by function, line and call path\n\n"
      "Usage: luapulse COMMAND [OPTIONS]\n\nCommands:\n");
  for (const command_t *command = commands; command->name != NULL; command++)
    printf("  %-9s %s\n", command->name, command->summary);
  printf("\n'luapulse help COMMAND' tells more; 'luapulse --version' tells the version.\n");
  return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
}

static int unknown(const char *name) {
  return cli_usage("", name[0] == '-' ? "%s is not an option" : "there is no command '%s'", name);
}

static int help(int argc, char **argv) {
  if (argc < 2) return print_help();
  const command_t *command = find(argv[1]);
  if (command == NULL) return unknown(argv[1]);
  char *arguments[] = {argv[1], "--help", NULL};
  return command->run(2, arguments);
}

/* A descriptor of 0 to 2 that is closed would be given to the next file that is opened, and what is said or printed would go there. This
 * one takes neither; a program that is started finds it closed, as it was. */
static void keep_closed(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

/* What `sudo luapulse` writes is for the one who called it: files are for their owner alone, and `luapulse report` needs no root. */
static void write_for_caller(void) {
  unsigned user, group;
  const char *users = getenv("SUDO_UID"), *groups = getenv("SUDO_GID");
  if (geteuid() == 0 && users != NULL && groups != NULL && cli_parse_number(users, 0, UINT_MAX - 1, &user) &&
      cli_parse_number(groups, 0, UINT_MAX - 1, &group))
    file_give_to(user, group);
}

int main(int argc, char **argv) {
  keep_closed();
  write_for_caller();
  if (argc < 2) return cli_usage("", "a command is missing");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help();
  if (strcmp(argv[1], "help") == 0) return help(argc - 1, argv + 1);
  if (strcmp(argv[1], "--version") == 0) {
    printf("luapulse %s\n", LUAPULSE_VERSION);
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
  }
  mallopt(M_MMAP_THRESHOLD, LARGE); /* else the C library raises it, and what was outgrown is kept */
  const command_t *command = find(argv[1]);
  cli_command_is(argc - 1, argv + 1);
  return command != NULL ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
}
