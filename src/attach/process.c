/* SPDX-License-Identifier: MIT */
/* What /proc says of a process, and what the kernel permits; see process.h. */
#include "attach/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "attach/bpf/programs.h"
#include "attach/process_stat.h"

enum { CAP_PTRACE = 19, CAP_ADMIN = 21, CAP_OF_PERFMON = 38, CAP_OF_BPF = 39 }; /* as in linux/capability.h */
enum { BPF_LOOP_MAJOR = 5, BPF_LOOP_MINOR = 17 };
enum { YAMA_NOBODY = 3 }; /* of ptrace_scope: not even root */

/* -- files of /proc ------------------------------------------------------------------------------------------ */

static ssize_t read_proc(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t len = fd >= 0 ? read(fd, text, size - 1) : -1;
  if (fd >= 0) close(fd);
  text[len > 0 ? len : 0] = '\0';
  return len;
}

static ssize_t read_of(pid_t pid, const char *file, char *text, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
  return read_proc(path, text, size);
}

/* What stands behind "Key:\t" at the beginning of a line; NULL when there is no such line. */
static const char *value_of(const char *text, const char *key) {
  size_t len = strlen(key);
  for (const char *line = text; *line != '\0';) {
    if (strncmp(line, key, len) == 0 && line[len] == ':')
      return line + len + 1 + strspn(line + len + 1, " \t");
    line += strcspn(line, "\n");
    if (*line == '\n') line++;
  }
  return NULL;
}

static long number_of(const char *text, const char *key) {
  const char *value = value_of(text, key);
  return value != NULL ? strtol(value, NULL, 10) : -1;
}

/* The number in a file, -1 when there is none. */
static int setting(const char *path) {
  char text[32];
  return read_proc(path, text, sizeof text) > 0 ? atoi(text) : -1;
}

static bool has_capability(int number) {
  char status[4096];
  const char *value =
      read_proc("/proc/self/status", status, sizeof status) > 0 ? value_of(status, "CapEff") : NULL;
  return value != NULL && (strtoull(value, NULL, 16) >> number & 1) != 0;
}

/* -- looking ---------------------------------------------------------------------------------------------------- */

static void copy_line(const char *from, char *to, size_t size) {
  size_t len = from != NULL ? strcspn(from, "\n") : 0;
  snprintf(to, size, "%.*s", (int)len, from != NULL ? from : "");
}

static void read_command(process_t *process) {
  ssize_t len = read_of(process->pid, "cmdline", process->command, sizeof process->command);
  for (ssize_t i = 0; i + 1 < len; i++)
    if (process->command[i] == '\0') process->command[i] = ' ';
}

/* True when the program's file says it is for 32 bits; false also when it may not be read. */
static bool is_32_bit(pid_t pid) {
  char head[64];
  return read_of(pid, "exe", head, sizeof head) > EI_CLASS && memcmp(head, ELFMAG, SELFMAG) == 0 &&
         head[EI_CLASS] == ELFCLASS32;
}

/* "NSpid: 4711 7": as those outside call it, …, and as it calls itself. */
static pid_t inner_of(const char *status, pid_t pid) {
  const char *value = value_of(status, "NSpid");
  if (value == NULL) return pid; /* before Linux 4.1 */
  for (char *end; *value != '\n' && *value != '\0'; value = end) {
    long number = strtol(value, &end, 10);
    if (end == value) break;
    pid = (pid_t)number;
    end += strspn(end, " \t");
  }
  return pid;
}

pid_t process_inner(pid_t pid) {
  char status[4096];
  return read_of(pid, "status", status, sizeof status) > 0 ? inner_of(status, pid) : 0;
}

bool process_look(process_t *process, pid_t pid, failure_t *failure) {
  char status[4096], path[64];
  memset(process, 0, sizeof *process);
  process->pid = pid;
  if (pid == getpid()) return failure_set(failure, "process %d is this luapulse itself", (int)pid);
  if (read_of(pid, "status", status, sizeof status) <= 0)
    return failure_set(failure, "there is no process %d%s", (int)pid,
                       access("/proc/self/status", R_OK) != 0 ? ", or /proc is not mounted" : "");
  copy_line(value_of(status, "Name"), process->name, sizeof process->name);
  process->inner = inner_of(status, pid);
  process->uid = (uid_t)number_of(status, "Uid");
  const char *state = value_of(status, "State");
  if (state != NULL && (*state == 'Z' || *state == 'X'))
    return failure_set(
        failure,
        "process %d (%s) has ended and waits for its parent (a zombie): nothing of it is left to read",
        (int)pid, process->name);
  long group = number_of(status, "Tgid");
  process_stat_t stat;
  if (group > 0 && group != pid)
    return failure_set(failure, "%d is a thread of process %ld, not a process: use -p %ld", (int)pid, group,
                       group);
  if (process_stat(&stat, pid) && stat.of_the_kernel)
    return failure_set(failure, "process %d (%s) is a thread of the kernel: there is no program in it",
                       (int)pid, process->name);
  if (value_of(status, "VmSize") == NULL)
    return failure_set(failure, "process %d (%s) has ended: nothing of it is left to read", (int)pid,
                       process->name);
  if (is_32_bit(pid))
    return failure_set(failure, "process %d (%s) is a 32-bit program: only 64-bit ones can be read", (int)pid,
                       process->name);
  read_command(process);
  snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
  ssize_t len = readlink(path, process->exe, sizeof process->exe - 1);
  process->exe[len > 0 ? len : 0] = '\0';
  return true;
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */

static bool refused_by_yama(const process_t *process, failure_t *failure) {
  int scope = setting("/proc/sys/kernel/yama/ptrace_scope");
  if (scope <= 0 || (scope != YAMA_NOBODY && has_capability(CAP_PTRACE))) return false;
  if (scope == 1)
    failure_set(
        failure,
        "process %d (%s) is yours, but Yama's ptrace_scope is 1, which permits to read children only: needs "
        "CAP_SYS_PTRACE; " PROCESS_AS_ROOT,
        (int)process->pid, process->name);
  else
    failure_set(failure,
                "process %d (%s) cannot be read: Yama's ptrace_scope is %d, which permits it to %s; %s",
                (int)process->pid, process->name, scope, scope == 2 ? "CAP_SYS_PTRACE only" : "nobody",
                scope == 2 ? PROCESS_AS_ROOT : "it can be changed only by a reboot");
  return true;
}

/* The kernel refuses processes that have ended, too, until their parents have taken note. */
static bool has_ended(const char *status) {
  const char *state = value_of(status, "State");
  return state == NULL || *state == 'Z' || *state == 'X';
}

bool process_refused(const process_t *process, int error, failure_t *failure) {
  int pid = (int)process->pid;
  char status[4096];
  read_of(process->pid, "status", status, sizeof status);
  long tracer = number_of(status, "TracerPid");
  if (error == ESRCH || has_ended(status))
    return failure_set(failure, "process %d (%s) ended while it was looked at", pid, process->name);
  if (error != EPERM && error != EACCES)
    return failure_set(failure, "process %d (%s) cannot be read: %s", pid, process->name, strerror(error));
  if (tracer > 0 && tracer != (long)getpid())
    return failure_set(
        failure,
        "process %d (%s) is traced by process %ld already (a debugger, strace?): only one can; end that "
        "one first",
        pid, process->name, tracer);
  if (process->uid != geteuid() && !has_capability(CAP_PTRACE))
    return failure_set(failure,
                       "process %d (%s) belongs to user %u, and you are user %u: needs "
                       "CAP_SYS_PTRACE; " PROCESS_AS_ROOT,
                       pid, process->name, (unsigned)process->uid, (unsigned)geteuid());
  if (refused_by_yama(process, failure)) return false;
  if (has_capability(CAP_PTRACE))
    return failure_set(failure,
                       "process %d (%s) cannot be read although CAP_SYS_PTRACE is held: it is in another "
                       "user namespace, or a "
                       "security module forbids it; run luapulse outside of the container",
                       pid, process->name);
  return failure_set(
      failure,
      "process %d (%s) is yours but protected (set-user-ID, with capabilities of its own, or not dumpable): "
      "needs CAP_SYS_PTRACE; " PROCESS_AS_ROOT,
      pid, process->name);
}

/* -- requirements ---------------------------------------------------------------------------------------------------- */

static bool require(requirement_t *r, bool missing, const char *text) {
  r->missing = missing;
  snprintf(r->text, sizeof r->text, "%s", text);
  return true;
}

static bool require_ptrace(const process_t *process, requirement_t *r) {
  if (has_capability(CAP_PTRACE)) return require(r, false, "CAP_SYS_PTRACE is held: any process can be read");
  if (process != NULL && process->uid != geteuid())
    return require(r, true, "CAP_SYS_PTRACE is missing: processes of other users cannot be read; use sudo");
  return require(r, false, "CAP_SYS_PTRACE is not held: own processes can be read, as far as Yama permits");
}

static bool require_yama(requirement_t *r) {
  int scope = setting("/proc/sys/kernel/yama/ptrace_scope");
  bool held = has_capability(CAP_PTRACE);
  if (scope < 0) return require(r, false, "Yama is not in this kernel: no ptrace_scope stands in the way");
  r->missing = scope == YAMA_NOBODY || (scope > 0 && !held);
  snprintf(r->text, sizeof r->text, "Yama's ptrace_scope is %d: %s", scope,
           scope == 0             ? "own processes can be read"
           : scope == YAMA_NOBODY ? "nothing can be read"
           : held                 ? "does not matter with CAP_SYS_PTRACE"
           : scope == 1           ? "without CAP_SYS_PTRACE children only; use sudo"
                                  : "needs CAP_SYS_PTRACE; use sudo");
  return true;
}

/* Beyond what Linux itself knows distributions go by a setting of their own, which CAP_PERFMON does not count for. */
static bool wants_admin(int paranoid) {
  enum { LINUX_MOST = 2 };
  return paranoid > LINUX_MOST && !has_capability(CAP_ADMIN);
}

static bool require_perf(requirement_t *r) {
  int paranoid = setting("/proc/sys/kernel/perf_event_paranoid");
  bool held = has_capability(CAP_OF_PERFMON) || has_capability(CAP_ADMIN);
  r->missing = paranoid > 1 && (!held || wants_admin(paranoid));
  snprintf(r->text, sizeof r->text, "perf_event_paranoid is %d: %s", paranoid,
           wants_admin(paranoid) ? "perf events need CAP_SYS_ADMIN; use sudo"
           : held                ? "does not matter with CAP_PERFMON"
           : r->missing          ? "perf events of other processes need CAP_PERFMON; use sudo"
                                 : "perf events of own processes are permitted");
  return true;
}

bool process_perf_refused(failure_t *failure) {
  int paranoid = setting("/proc/sys/kernel/perf_event_paranoid");
  return failure_set(failure,
                     "perf events may not be opened: perf_event_paranoid is %d, which permits it to "
                     "%s; " PROCESS_AS_ROOT,
                     paranoid, wants_admin(paranoid) ? "CAP_SYS_ADMIN only" : "root and CAP_PERFMON only");
}

/* NULL when nothing is. */
static const char *missing_for_bpf(void) {
  bool bpf = has_capability(CAP_OF_BPF) || has_capability(CAP_ADMIN);
  bool perf = has_capability(CAP_OF_PERFMON) || has_capability(CAP_ADMIN);
  if (bpf && perf) return NULL;
  return bpf    ? "CAP_PERFMON is missing: no BPF program can read user memory"
         : perf ? "CAP_BPF is missing: no BPF program can be loaded"
                : "CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded";
}

static bool require_bpf(requirement_t *r) {
  const char *missing = missing_for_bpf();
  r->missing = missing != NULL;
  snprintf(r->text, sizeof r->text, "%s%s",
           missing != NULL ? missing : "CAP_BPF and CAP_PERFMON are held: BPF programs can be loaded",
           missing != NULL ? "; use sudo" : "");
  return true;
}

/* What else than BPF stands in the way, with what is said of it: "" when nothing does. True when it is CAP_SYS_PTRACE that is missing. */
static bool missing_for_reading(whose_t whose, char *text, size_t size) {
  int scope = setting("/proc/sys/kernel/yama/ptrace_scope");
  text[0] = '\0';
  if (scope == YAMA_NOBODY) {
    snprintf(text, size, ", and Yama's ptrace_scope is 3, which permits to read nothing");
    return false;
  }
  if (has_capability(CAP_PTRACE) || whose == WHOSE_CHILDREN) return false;
  if (whose == WHOSE_OTHERS) snprintf(text, size, ", and processes of other users cannot be read");
  if (whose == WHOSE_OWN && scope > 0)
    snprintf(text, size, ", and Yama's ptrace_scope is %d, which permits to read %s", scope,
             scope == 1 ? "children only" : "nothing");
  return text[0] != '\0';
}

bool process_bpf_refused(whose_t whose, failure_t *failure) {
  bool bpf = has_capability(CAP_OF_BPF) || has_capability(CAP_ADMIN);
  bool perf = has_capability(CAP_OF_PERFMON) || has_capability(CAP_ADMIN);
  char reading[128];
  if (bpf && perf)
    return failure_set(failure,
                       "the kernel refuses BPF programs although CAP_BPF and CAP_PERFMON are held: "
                       "it is locked down, or a security module or a filter of system calls forbids it");
  bool ptrace = !missing_for_reading(whose, reading, sizeof reading);
  int missing = !bpf + !perf + !ptrace;
  return failure_set(failure,
                     "%s%s%s%s%s %s missing: no BPF program can %s%s (perf_event_paranoid is "
                     "%d); " PROCESS_AS_ROOT,
                     bpf ? "" : "CAP_BPF",
                     missing == 3    ? ", "
                     : !bpf && !perf ? " and "
                                     : "",
                     perf ? "" : "CAP_PERFMON", ptrace ? "" : " and ", ptrace ? "" : "CAP_SYS_PTRACE",
                     missing > 1 ? "are" : "is", bpf ? "read user memory" : "be loaded", reading,
                     setting("/proc/sys/kernel/perf_event_paranoid"));
}

/* As the engine asks for it. The version counts only where that is not answered, and then it is said. */
static bool require_kernel(requirement_t *r) {
  struct utsname name;
  unsigned major = 0, minor = 0;
  bool known = uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2;
  bool old = !known || major < BPF_LOOP_MAJOR || (major == BPF_LOOP_MAJOR && minor < BPF_LOOP_MINOR);
  loop_t loop = programs_loop();
  r->missing = loop == LOOP_UNKNOWN ? old : loop == LOOP_MISSING;
  snprintf(r->text, sizeof r->text, "kernel %u.%u: %s bpf_loop, which came with %d.%d%s", major, minor,
           r->missing ? "lacks" : "has", BPF_LOOP_MAJOR, BPF_LOOP_MINOR,
           loop == LOOP_UNKNOWN ? "; that is by its version, for BPF cannot be asked" : "");
  return true;
}

bool process_requirement(const process_t *process, int i, requirement_t *requirement) {
  switch (i) {
    case 0:
      return require_ptrace(process, requirement);
    case 1:
      return require_yama(requirement);
    case 2:
      return require_bpf(requirement);
    case 3:
      return require_perf(requirement);
    case 4:
      return require_kernel(requirement);
    default:
      return false;
  }
}
