/* SPDX-License-Identifier: MIT */
/* Starting the program to be profiled and waiting for it, without getting in its way: its environment,
 * signals, output and exit status are its own. */
#ifndef LUAPULSE_CLI_LAUNCH_H
#define LUAPULSE_CLI_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "cli/interpreter.h"
#include "luapulse.h"

typedef struct {
  pid_t pid;
  int wait_status; /* of waitpid(), once it has ended */
  sigset_t old_mask;
  void (*old_pipe)(int); /* what SIGPIPE did before, and does in the program */
} child_t;

/* Starts argv with the module activated through the interpreter's start-up variable; tables_fd reaches the
 * module alone. False with *exec_error set (errno) when the program could not be started. */
bool launch(child_t *child, char **argv, const interpreter_t *interpreter, int tables_fd, size_t tables_size,
            const luapulse_profile_options_t *options, int *exec_error, failure_t *failure);

/* What to exit with when a program could not be started: as shells have it, or `otherwise` where it came to no exec. */
int launch_status(int exec_error, int otherwise);

/* What is done before a new process is the program; either may be NULL. */
typedef struct {
  void (*inside)(void *context); /* by itself */
  void (*outside)(void *context,
                  pid_t child); /* by who starts it: the program begins when this has returned */
  void *context;
} launch_steps_t;

/* Starts argv as it is, with the signals child->old_mask has blocked, and child->old_pipe. */
bool launch_program(child_t *child, char **argv, const launch_steps_t *steps, int *exec_error,
                    failure_t *failure);

/* Waits until the program ends (true) or `seconds` have passed (false; 0 waits for good). Signals that were
 * sent to us alone go on to the program; those of the terminal it has got itself. */
bool launch_wait(child_t *child, unsigned seconds);

/* Ends this process as the program ended: with its status, or by its signal. */
_Noreturn void launch_end_alike(const child_t *child);

#endif
