/* SPDX-License-Identifier: MIT */
/* luapulse probe: which Lua is in a process or a file, with which layout and why, and what stands in the way of profiling it. */
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/engine.h"
#include "attach/stopped_thread.h"
#include "cli/attach_options.h"
#include "cli/cli.h"
#include "cli/layout_apart.h"
#include "cli/layout_debug.h"

enum { MOST_LISTED = 16 /* threads, libraries */ };

static const char help[] =
    "Usage: luapulse probe -p PID [OPTIONS]\n"
    "       luapulse probe FILE\n\n"
    "Tells which Lua is in a running process, or in a program or library: its version, the layout of its\n"
    "structures and why that one, its VMs and threads, and what profiling from outside lacks. Decided by\n"
    "content, never by names of files.\n\n"
    "Options:\n"
    "  -p, --pid PID      the process\n"
    "  -L, --layout FILE  layout data to check against the process (see luapulse layout)\n"
    "  -h, --help         this\n\n"
    "Exit status: 0 when there is a Lua that can be read, in a FILE the mark of one. 1 when there is none,\n"
    "when no layout fits it, when the process, FILE or layout data cannot be read, or when nothing can be\n"
    "written: the message says why. 2: wrong usage.\n\n"
    "Examples:\n"
    "  luapulse probe -p 1234\n"
    "  luapulse probe /usr/sbin/nginx\n"
    "  sudo luapulse probe -p 1234 --layout patched.layout\n";

static void row(sink_t *sink, const char *key) {
  sink_format(sink, "  %-9s ", key);
}

/* Not by what should do, but by trying, with the Luas of the process if they are known. */
static void print_engine(sink_t *sink, const process_t *process, const runtimes_t *runtimes) {
  engine_options_t options = {
      .hz = 99, .whose = process != NULL && process->uid != geteuid() ? WHOSE_OTHERS : WHOSE_OWN};
  failure_t failure = {""};
  engine_t *engine = engine_bpf_open(&options, &failure);
  bool works = engine != NULL && (runtimes == NULL || engine->prepare(engine, runtimes, &failure));
  row(sink, "engine");
  if (works)
    sink_text(sink, "bpf: record samples in the kernel\n");
  else
    sink_format(sink, "ptrace: record stops threads for a moment; not bpf: %s", failure.text);
  if (!works && strstr(failure.text, PROCESS_AS_ROOT) != NULL) {
    sink_text(sink, " record -p ");
    process != NULL ? sink_format(sink, "%d", (int)process->pid) : sink_text(sink, "PID");
  }
  if (!works) sink_text(sink, "\n");
  if (engine != NULL) engine->close(engine);
}

/* NULL: of no process. */
static void print_needs(sink_t *sink, const process_t *process) {
  requirement_t requirement;
  for (int i = 0; process_requirement(process, i, &requirement); i++) {
    row(sink, requirement.missing ? "missing" : "needs");
    sink_format(sink, "%s\n", requirement.text);
  }
}

static void print_requirements(sink_t *sink, const process_t *process, const runtimes_t *runtimes) {
  print_needs(sink, process);
  print_engine(sink, process, runtimes);
}

/* -- a process -------------------------------------------------------------------------------------------------- */

static void print_vms(sink_t *sink, const runtime_t *runtime) {
  for (size_t i = 0; i < runtime->vms->count; i++) {
    const vm_t *vm = &runtime->vms->vms[i];
    row(sink, "VM");
    sink_format(sink, "0x%llx, main thread 0x%llx, ", (unsigned long long)vm->global,
                (unsigned long long)vm->main);
    if (vm->thread != 0)
      sink_format(sink, "runs on thread %d: found on its native stack\n", (int)vm->thread);
    else
      sink_text(sink, "does not run now: found in memory\n");
  }
}

static void print_runtime(sink_t *sink, const runtime_t *runtime) {
  row(sink, "runtime");
  if (runtime->ident.text[0] == '\0') {
    sink_text(sink, "no mark of a Lua\n");
  } else {
    sink_format(sink, "%s, by %s in ", runtime->ident.text,
                runtime->ident.sure ? "its mark" : "the name of its language");
    attach_print(sink, runtime->ident.place);
    sink_text(sink, "\n");
  }
  if (runtime->layout != NULL) {
    row(sink, "layout");
    sink_text(sink, "\"");
    attach_print(sink, runtime->layout->name);
    sink_format(sink, "\", %s\n", runtime->origin);
    row(sink, "because");
    sink_format(sink, "%s\n", runtime->why);
  }
  if (runtime->not_by_debug[0] != '\0') {
    row(sink, "debug");
    attach_print(sink, runtime->not_by_debug);
    sink_text(sink, "\n");
  }
  for (size_t i = 0; i < runtime->tried_count; i++) {
    if (runtime->layout != NULL && strcmp(runtime->tried[i].name, runtime->layout->name) == 0) continue;
    row(sink, "not");
    sink_text(sink, "\"");
    attach_print(sink, runtime->tried[i].name);
    sink_format(sink, "\": %s\n", runtime->tried[i].why);
  }
  if (runtime->layout != NULL) print_vms(sink, runtime);
}

static void print_threads(sink_t *sink, const stopped_t *stopped) {
  row(sink, "threads");
  for (size_t i = 0; i < stopped->count && i < MOST_LISTED; i++) {
    sink_format(sink, "%s%d (", i > 0 ? ", " : "", (int)stopped->threads[i].tid);
    attach_print(sink, stopped->threads[i].name);
    sink_text(sink, ")");
  }
  if (stopped->count > MOST_LISTED) sink_format(sink, " and %zu more", stopped->count - MOST_LISTED);
  sink_text(sink, "\n");
}

static bool can_be_profiled(const runtimes_t *runtimes) {
  for (size_t i = 0; i < runtimes->count; i++)
    if (runtimes->runtimes[i].layout != NULL) return true;
  return false;
}

static bool probe_opened(target_t *target, const runtime_options_t *options, sink_t *sink,
                         failure_t *failure) {
  runtimes_t runtimes;
  bool ok = runtimes_decide(&runtimes, target, options, failure);
  target_release(target);
  if (ok) {
    attach_print_head(sink, target);
    for (size_t i = 0; i < runtimes.count; i++) print_runtime(sink, &runtimes.runtimes[i]);
    if (target->stopped.count > 0) print_threads(sink, &target->stopped);
    stopped_threads_settle();
    print_requirements(sink, &target->process, &runtimes);
    stopped_threads_settle(); /* to try the engine took its time */
    row(sink, "stopped");
    sink_format(sink, "for %.1f ms, to look\n", target_held_ms(target));
    if (!can_be_profiled(&runtimes)) {
      runtimes_say_none(&runtimes, target, failure);
      ok = false;
    }
  }
  runtimes_free(&runtimes);
  return ok;
}

static bool probe_process(pid_t pid, const char *layout_file, sink_t *sink, failure_t *failure) {
  target_t target;
  layout_t given;
  runtime_options_t options = {.from_debug = layout_apart_read};
  if (!process_look(&target.process, pid, failure)) return false;
  if (!target_open(&target, pid, failure)) {
    attach_print_head(sink, &target);
    print_needs(sink, &target.process);
    row(sink, "engine");
    sink_text(sink, "none, as long as the process cannot be read\n");
    return false;
  }
  bool ok = layout_file == NULL || attach_read_layout(layout_file, &target.idents, &given, failure);
  if (layout_file != NULL) {
    options.given = &given;
    options.given_name = "given by --layout";
  }
  ok = ok && probe_opened(&target, &options, sink, failure);
  target_close(&target);
  return ok;
}

/* -- a file ------------------------------------------------------------------------------------------------------ */

/* Names of the libraries it is linked with, " a.so, b.so"; "" when there are none. */
static void list_libraries(const char *path, char *text, size_t size) {
  size_t used = 0, count = 0;
  text[0] = '\0';
  elf_version(EV_CURRENT);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
  for (Elf_Scn *section = NULL; elf != NULL && (section = elf_nextscn(elf, section)) != NULL;) {
    GElf_Shdr header;
    GElf_Dyn entry;
    if (gelf_getshdr(section, &header) == NULL || header.sh_type != SHT_DYNAMIC) continue;
    Elf_Data *data = elf_getdata(section, NULL);
    for (int i = 0; data != NULL && count < MOST_LISTED && gelf_getdyn(data, i, &entry) != NULL &&
                    entry.d_tag != DT_NULL;
         i++) {
      const char *name = entry.d_tag == DT_NEEDED ? elf_strptr(elf, header.sh_link, entry.d_un.d_val) : NULL;
      if (name == NULL || used >= size) continue;
      int made = snprintf(text + used, size - used, "%s %s", count++ > 0 ? "," : "", name);
      used += made > 0 ? (size_t)made : 0;
    }
  }
  elf_end(elf);
  if (fd >= 0) close(fd);
}

static void print_file_runtime(sink_t *sink, const ident_t *ident) {
  const layout_t *known;
  size_t count = 0;
  row(sink, "runtime");
  sink_format(sink, "%s, by %s at byte %llu\n", ident->text,
              ident->sure ? "its mark" : "the name of its language", (unsigned long long)ident->at);
  row(sink, "layouts");
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    if (known->family != ident->family || known->language != ident->language) continue;
    sink_format(sink, "%s\"%s\"", count++ > 0 ? ", " : "", known->name);
  }
  sink_text(sink, count > 0 ? "; which of them, a running process tells: luapulse probe -p PID\n"
                            : "none is known; luapulse layout makes one from debug information\n");
}

static void print_debug_layout(sink_t *sink, const char *path) {
  layout_debug_t made;
  failure_t ignored = {""};
  if (!layout_debug_read(&made, path, &ignored)) return;
  row(sink, "debug");
  sink_text(sink, "its debug information tells the layout");
  if (made.known != NULL) sink_format(sink, ": the same as \"%s\"", made.known->name);
  sink_text(sink, "\n");
}

static bool probe_bytes(const char *path, const char *bytes, size_t len, sink_t *sink, failure_t *failure) {
  idents_t idents = {.images = 1, .bytes = len};
  char libraries[512];
  if (len < EI_NIDENT || memcmp(bytes, ELFMAG, SELFMAG) != 0)
    return failure_set(failure, "no Lua in %s: it is no program or library (no ELF file)", path);
  if (bytes[EI_CLASS] != ELFCLASS64)
    return failure_set(failure, "%s: is for 32 bits: only 64-bit programs can be read", path);
  ident_search(&idents, bytes, len, 0, path);
  ident_settle(&idents);
  list_libraries(path, libraries, sizeof libraries);
  if (idents.count == 0)
    return failure_set(failure, "no Lua in %s: there is no mark of one in its %zu bytes%s%s%s", path, len,
                       libraries[0] != '\0' ? "; Lua may be in a library that it is linked with:" : "",
                       libraries, libraries[0] != '\0' ? "" : ", and it is linked with no library");
  attach_print(sink, path);
  sink_text(sink, ":\n");
  for (size_t i = 0; i < idents.count; i++) print_file_runtime(sink, &idents.idents[i]);
  print_debug_layout(sink, path);
  print_requirements(sink, NULL, NULL);
  return true;
}

static bool probe_file(const char *path, sink_t *sink, failure_t *failure) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &info) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    return failure_set(failure, "cannot read %s: %s", path, strerror(error));
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    close(fd);
    return failure_set(failure, "no Lua in %s: it is %s", path,
                       S_ISREG(info.st_mode) ? "empty" : "not a regular file");
  }
  size_t len = (size_t)info.st_size;
  void *bytes = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
  int error = errno;
  close(fd);
  if (bytes == MAP_FAILED) return failure_set(failure, "cannot read %s: %s", path, strerror(error));
  bool ok = probe_bytes(path, bytes, len, sink, failure);
  munmap(bytes, len);
  return ok;
}

/* -- the command ---------------------------------------------------------------------------------------------------- */

static int probe(pid_t pid, const char *file, const char *layout_file) {
  failure_t failure = {""};
  sink_t *sink = sink_to_fd(STDOUT_FILENO);
  if (sink == NULL) return cli_failed("probe", "out of memory");
  bool found =
      file != NULL ? probe_file(file, sink, &failure) : probe_process(pid, layout_file, sink, &failure);
  failure_t written = {""};
  if (!sink_close(sink, &written))
    return cli_failed("probe", "standard output: cannot be written: %s", written.text);
  return found ? STATUS_OK : cli_failed("probe", "%s", failure.text);
}

int probe_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"pid", required_argument, NULL, 'p'},
      {"layout", required_argument, NULL, 'L'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  attach_pids_t pids = {.count = 0};
  const char *layout_file = NULL;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":p:L:h", longs, NULL)) != -1;) {
    if (option == 'p') {
      if (!attach_parse_pids(optarg, &pids) || pids.count != 1)
        return cli_usage("probe", "--pid takes the number of one process, not '%s'", optarg);
    } else if (option == 'L') {
      layout_file = optarg;
    } else if (option == 'h') {
      fputs(help, stdout);
      return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
    } else {
      return cli_bad_option("probe", argv, option);
    }
  }
  const char *file = optind < argc ? argv[optind] : NULL;
  if (optind + 1 < argc)
    return cli_usage("probe", "one FILE at a time: '%s' is one too many", argv[optind + 1]);
  if (file == NULL && pids.count == 0)
    return cli_usage("probe", "what to look into is missing: -p PID, or a FILE");
  if (file != NULL && pids.count > 0) return cli_usage("probe", "-p PID and a FILE exclude each other");
  if (file != NULL && layout_file != NULL)
    return cli_usage("probe", "--layout is checked against a process: it needs -p PID");
  return probe(pids.count > 0 ? pids.pids[0] : 0, file, layout_file);
}
