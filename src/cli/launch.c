/* SPDX-License-Identifier: MIT */
/* Starting the profiled program; see launch.h. */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/autostart.h"
#include "cli/cli.h"

/* -- the child, between fork and exec -------------------------------------------------------------------- */

/* What the interpreter runs first. A Lua of another version, started along the way, runs the user's own init
 * instead. */
static void set_init(const interpreter_t *interpreter) {
  static const char code[] =
      "local f = _VERSION == 'Lua %s' and package.loadlib([==[%s]==], '" AUTOSTART_FUNCTION
      "') "
      "if f then f() else local i = os.getenv('" AUTOSTART_INIT_VALUE
      "') if i then "
      "if i:sub(1, 1) == '@' then dofile(i:sub(2)) else assert((loadstring or load)(i, '=LUA_INIT'))() end "
      "end end";
  char text[sizeof code + PATH_MAX + 8];
  const char *users = getenv(interpreter->init);
  setenv(AUTOSTART_INIT_NAME, interpreter->init, 1);
  if (users != NULL)
    setenv(AUTOSTART_INIT_VALUE, users, 1);
  else
    unsetenv(AUTOSTART_INIT_VALUE);
  snprintf(text, sizeof text, code, interpreter->version, interpreter->module);
  setenv(interpreter->init, text, 1);
}

static void set_request(int fd, size_t size, const luapulse_profile_options_t *o) {
  char text[PATH_MAX + 160];
  snprintf(text, sizeof text, "%d %zu %u %u %u %u %llu %u %u %u %u %u %zu %u %s", fd, size,
           (unsigned)o->cpu_clock, o->cpu_hz, o->cpu_sample_mean_instr, o->cpu_max_samples_per_sec,
           (unsigned long long)o->seed, (unsigned)o->cpu_engine, (unsigned)o->cpu_mode, o->trace_events,
           o->features, (unsigned)o->heap_mode, o->heap_sample_mean_bytes, (unsigned)o->heap_gc,
           o->layout_file != NULL ? o->layout_file : "");
  setenv(AUTOSTART_VARIABLE, text, 1);
  if (o->trace_filter != NULL) setenv(AUTOSTART_FILTER, o->trace_filter, 1);
}

static _Noreturn void become_program(char **argv, int report_fd) {
  execvp(argv[0], argv);
  int error = errno;
  ssize_t ignored =
      write(report_fd, &error, sizeof error); /* the parent says it; if even that fails, the status does */
  (void)ignored;
  _exit(127);
}

/* Nothing comes: the other end is closed when it may go on, or with its owner. */
static void await_end(int fd) {
  char ignored;
  while (read(fd, &ignored, 1) < 0 && errno == EINTR) {
  }
}

bool launch_program(child_t *child, char **argv, const launch_steps_t *steps, int *exec_error,
                    failure_t *failure) {
  int report[2], gate[2]; /* closed by a successful exec; when the program may begin */
  *exec_error = 0;
  if (pipe2(report, O_CLOEXEC) != 0) return failure_set(failure, "cannot make a pipe: %s", strerror(errno));
  if (pipe2(gate, O_CLOEXEC) != 0) {
    failure_set(failure, "cannot make a pipe: %s", strerror(errno));
    close(report[0]);
    close(report[1]);
    return false;
  }
  fflush(NULL);
  child->pid = fork();
  if (child->pid == 0) {
    close(gate[1]);
    await_end(gate[0]);
    signal(SIGPIPE, child->old_pipe);
    sigprocmask(SIG_SETMASK, &child->old_mask, NULL);
    if (steps->inside != NULL) steps->inside(steps->context);
    become_program(argv, report[1]);
  }
  bool started = child->pid > 0;
  if (!started) failure_set(failure, "cannot start a process: %s", strerror(errno));
  if (started && steps->outside != NULL) steps->outside(steps->context, child->pid);
  close(report[1]);
  close(gate[0]);
  close(gate[1]);
  if (started && read(report[0], exec_error, sizeof *exec_error) == (ssize_t)sizeof *exec_error) {
    waitpid(child->pid, &child->wait_status, 0);
    failure_set(failure, "cannot run %s: %s", argv[0], strerror(*exec_error));
    started = false;
  }
  close(report[0]);
  return started;
}

int launch_status(int exec_error, int otherwise) {
  if (exec_error == 0) return otherwise;
  return exec_error == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUNNABLE;
}

typedef struct {
  const interpreter_t *interpreter;
  int tables_fd;
  size_t tables_size;
  const luapulse_profile_options_t *options;
} activation_t;

static void activate(void *context) {
  const activation_t *a = context;
  fcntl(a->tables_fd, F_SETFD, 0); /* the module closes it as soon as it has mapped it */
  set_init(a->interpreter);
  set_request(a->tables_fd, a->tables_size, a->options);
}

bool launch(child_t *child, char **argv, const interpreter_t *interpreter, int tables_fd, size_t tables_size,
            const luapulse_profile_options_t *options, int *exec_error, failure_t *failure) {
  activation_t activation = {interpreter, tables_fd, tables_size, options};
  sigset_t all;
  sigfillset(&all); /* those to be passed on, or that end us: waited for in launch_wait */
  sigdelset(&all, SIGTSTP);
  sigdelset(&all, SIGTTIN);
  sigdelset(&all, SIGTTOU);
  sigprocmask(SIG_BLOCK, &all, &child->old_mask);
  child->old_pipe = signal(SIGPIPE, SIG_IGN);
  return launch_program(child, argv, &(launch_steps_t){activate, NULL, &activation}, exec_error, failure);
}

/* -- the parent ------------------------------------------------------------------------------------------ */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool launch_wait(child_t *child, unsigned seconds) {
  double deadline = now() + seconds;
  sigset_t all;
  sigfillset(&all);
  for (;;) {
    if (waitpid(child->pid, &child->wait_status, WNOHANG) == child->pid) return true;
    double left = seconds > 0 ? deadline - now() : 3600;
    if (left <= 0) return false;
    struct timespec timeout = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    siginfo_t info;
    int number = sigtimedwait(&all, &info, &timeout);
    /* from a process (kill), not from the kernel (Ctrl-C reaches the whole foreground group), nor by our own messages, which nobody reads */
    if (number > 0 && number != SIGCHLD && info.si_code <= 0 && info.si_pid != child->pid &&
        info.si_pid != getpid())
      kill(child->pid, number);
  }
}

_Noreturn void launch_end_alike(const child_t *child) {
  if (WIFSIGNALED(child->wait_status)) {
    int number = WTERMSIG(child->wait_status);
    sigset_t set;
    prctl(PR_SET_DUMPABLE, 0); /* the program has left its core, if any; ours tells nothing */
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
  }
  exit(WIFEXITED(child->wait_status) ? WEXITSTATUS(child->wait_status) : 1);
}
