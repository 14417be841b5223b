/* SPDX-License-Identifier: MIT */
/* luapulse dump: the Lua stacks of running processes, now. Each is stopped only while it is read. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/naming.h"
#include "attach/snapshot_groups.h"
#include "attach/stopped_thread.h"
#include "cli/attach_options.h"
#include "cli/cli.h"
#include "cli/layout_apart.h"
#include "profile/mem.h"

enum { NAME_COLUMNS = 28, NAMED_OF_GROUP = 4 };

static const char help[] =
    "Usage: luapulse dump -p PID[,PID...] [OPTIONS]\n\n"
    "Shows the Lua stack of every thread of a running process, as it is now, and of every coroutine\n"
    "with its status; those that rest in the same place together. Nothing in the process is changed;\n"
    "it is stopped only while it is read.\n\n"
    "Options:\n"
    "  -p, --pid PID[,PID...]  the processes\n"
    "  -L, --layout FILE       layout data for a Lua that is not known (see luapulse layout)\n"
    "  -e, --each              every coroutine by itself, oldest first, also those that are alike\n"
    "  -h, --help              this\n\n"
    "Examples:\n"
    "  luapulse dump -p 1234\n"
    "  sudo luapulse dump -p $(pidof nginx | tr ' ' ,)\n"
    "  luapulse dump -p 1234 --layout patched.layout\n";

static const char *status_text(const snapshot_stack_t *stack) {
  static const char *const texts[] = {"running", "normal",           "suspended", "suspended, not started",
                                      "dead",    "dead, by an error"};
  if (!stack->status_known) return "status unknown";
  bool idle = stack->main && stack->thread == 0 &&
              (stack->status == COROUTINE_FRESH || stack->status == COROUTINE_DEAD);
  return idle ? "idle" : texts[stack->status];
}

typedef struct {
  sink_t *sink;
  target_t *target;
  const runtimes_t *runtimes;
  const snapshot_t *snapshot;
  naming_t *naming;
  bool each; /* coroutines that are alike are not put together */
} printing_t;

static walk_frame_t walk_frame_of(const snapshot_frame_t *frame) {
  return (walk_frame_t){.kind = (uint8_t)frame->kind,
                        .function = frame->function,
                        .proto = frame->proto,
                        .mark = frame->mark,
                        .pc = frame->pc,
                        .tail = frame->tail,
                        .slot = frame->code,
                        .shift = (uint16_t)frame->ffid};
}

/* `below` is NULL at the bottom. */
static void name_frame(const printing_t *p, const snapshot_stack_t *stack, const snapshot_frame_t *frame,
                       const snapshot_frame_t *below, named_t *named) {
  walk_frame_t itself = walk_frame_of(frame), caller;
  naming_function_t function = {.kind = frame->kind,
                                .ffid = frame->ffid,
                                .code = frame->code,
                                .function = frame->function,
                                .proto = frame->proto,
                                .mark = frame->mark,
                                .line = frame->line,
                                .defined = frame->defined,
                                .runtime = stack->runtime};
  if (below != NULL && below->kind == WALK_LUA && below->pc != 0) {
    caller = walk_frame_of(below);
    function.frame = &itself;
    function.caller = &caller;
  }
  if (frame->source < SNAPSHOT_SOURCES) {
    function.source = p->snapshot->sources[frame->source].text;
    function.source_len = p->snapshot->sources[frame->source].len;
  }
  naming_frame(p->naming, &function, named);
}

static void print_frames(const printing_t *p, const snapshot_stack_t *stack) {
  for (size_t i = 0; i < stack->count; i++) {
    named_t named;
    const snapshot_frame_t *frame = &p->snapshot->frames[stack->first + i];
    name_frame(p, stack, frame, i + 1 < stack->count ? frame + 1 : NULL, &named);
    sink_text(p->sink, "    ");
    attach_print(p->sink, named.name);
    for (size_t used = strlen(named.name); used < NAME_COLUMNS; used++) sink_text(p->sink, " ");
    sink_text(p->sink, " ");
    attach_print(p->sink, named.place);
    sink_text(p->sink, "\n");
  }
  if (stack->truncated)
    sink_format(p->sink, "    [deeper frames are left out: %d at most are read]\n", WALK_MAX_FRAMES);
  if (stack->reason != WALK_OK && stack->reason != WALK_NO_STATE)
    sink_format(p->sink, "    [the rest cannot be read: %s]\n", walk_reason_name(stack->reason));
}

static void print_stack(const printing_t *p, const snapshot_stack_t *stack) {
  sink_format(p->sink, "  %s 0x%llx, %s\n", stack->main ? "main thread" : "coroutine",
              (unsigned long long)stack->state, status_text(stack));
  print_frames(p, stack);
}

static void print_group(const printing_t *p, const snapshot_resting_t *group) {
  const snapshot_stack_t *stacks = p->snapshot->stacks;
  if (group->alike == 1) {
    print_stack(p, &stacks[group->stack]);
    return;
  }
  sink_format(p->sink, "  %zu coroutines, %s:", group->alike, status_text(&stacks[group->stack]));
  for (size_t i = 0; i < group->alike && i < NAMED_OF_GROUP; i++)
    sink_format(p->sink, "%s 0x%llx", i > 0 ? "," : "", (unsigned long long)stacks[group[i].stack].state);
  if (group->alike > NAMED_OF_GROUP) sink_format(p->sink, " and %zu more", group->alike - NAMED_OF_GROUP);
  sink_text(p->sink, "\n");
  print_frames(p, &stacks[group->stack]);
}

static bool print_resting(const printing_t *p, const snapshot_vm_t *vm) {
  snapshot_resting_t *resting;
  size_t count;
  if (p->each) {
    for (size_t i = 0; i < p->snapshot->stack_count; i++) {
      const snapshot_stack_t *stack = &p->snapshot->stacks[i];
      if (stack->thread == 0 && stack->global == vm->global) print_stack(p, stack);
    }
    return true;
  }
  if (!snapshot_group(p->snapshot, vm->global, &resting, &count)) return false;
  for (size_t i = 0; i < count; i += resting[i].alike) print_group(p, &resting[i]);
  mem_free(resting);
  return true;
}

static void print_threads(const printing_t *p) {
  const stopped_t *stopped = &p->target->stopped;
  for (size_t i = 0; i < stopped->count; i++) {
    const stopped_thread_t *thread = &stopped->threads[i];
    bool any = false;
    sink_format(p->sink, "\nthread %d (", (int)thread->tid);
    attach_print(p->sink, thread->name);
    sink_text(p->sink, ")");
    for (size_t k = 0; k < p->snapshot->stack_count; k++) {
      const snapshot_stack_t *stack = &p->snapshot->stacks[k];
      if (stack->thread != thread->tid) continue;
      if (!any) sink_text(p->sink, "\n");
      any = true;
      print_stack(p, stack);
    }
    if (!any)
      sink_format(p->sink, ": %s\n", thread->stopped ? "no Lua" : "did not stop (uninterruptible sleep)");
  }
  if (stopped->more) sink_format(p->sink, "\n[there are more threads than %d]\n", STOPPED_MAX_THREADS);
}

static bool print_vm(const printing_t *p, const snapshot_vm_t *vm) {
  sink_format(p->sink, "\nVM 0x%llx: ", (unsigned long long)vm->global);
  if (vm->end == OBJECTS_UNKNOWN)
    sink_text(p->sink,
              "suspended coroutines are not listed: the layout does not say where a VM keeps its objects\n");
  else
    sink_format(p->sink, "%zu coroutine%s on no thread%s\n", vm->coroutines, vm->coroutines == 1 ? "" : "s",
                vm->end == OBJECTS_BROKEN
                    ? "; there may be more: the list of objects could not be followed to its end"
                : vm->end == OBJECTS_CUT
                    ? "; there may be more: the list of objects is too long to be followed in a second"
                    : "");
  return print_resting(p, vm);
}

static void print_runtimes(const printing_t *p) {
  for (size_t i = 0; i < p->runtimes->count; i++) {
    const runtime_t *runtime = &p->runtimes->runtimes[i];
    if (runtime->layout == NULL) continue;
    attach_print(p->sink, runtime->ident.text[0] != '\0' ? runtime->ident.text : "Lua");
    if (runtime->ident.place[0] != '\0') {
      sink_text(p->sink, " in ");
      attach_print(p->sink, runtime->ident.place);
    }
    sink_text(p->sink, ", layout \"");
    attach_print(p->sink, runtime->layout->name);
    sink_text(p->sink, "\"\n");
  }
  sink_format(p->sink, "stopped for %.1f ms\n", target_held_ms(p->target));
}

static bool dump_held(target_t *target, const runtimes_t *runtimes, bool each, sink_t *sink,
                      failure_t *failure) {
  snapshot_t snapshot;
  bool ok = snapshot_take(&snapshot, target, runtimes);
  target_release(target);
  printing_t printing = {sink, target, runtimes, &snapshot, ok ? naming_open(target, runtimes) : NULL, each};
  ok = printing.naming != NULL;
  stopped_threads_settle(); /* to read the tables took its time, and so may whoever reads what is printed */
  if (ok) {
    attach_print_head(sink, target);
    print_runtimes(&printing);
    print_threads(&printing);
    for (size_t i = 0; i < snapshot.vm_count; i++) ok = print_vm(&printing, &snapshot.vms[i]) && ok;
    if (snapshot.cut)
      sink_text(sink, "\n[there is more than is shown: stacks or frames exceed what a dump holds]\n");
  }
  stopped_threads_settle(); /* there may be other processes to come */
  naming_close(printing.naming);
  snapshot_free(&snapshot);
  return ok || failure_set(failure, "out of memory");
}

static bool dump_process(pid_t pid, const char *layout_file, bool each, sink_t *sink, failure_t *failure) {
  target_t target;
  runtimes_t runtimes;
  layout_t given;
  runtime_options_t options = {.from_debug = layout_apart_read};
  if (!target_open(&target, pid, failure)) return false;
  if (layout_file != NULL) {
    if (!attach_read_layout(layout_file, &target.idents, &given, failure)) {
      target_close(&target);
      return false;
    }
    options.given = &given;
    options.given_name = "given by --layout";
  }
  bool ok = runtimes_decide(&runtimes, &target, &options, failure);
  if (ok && !runtimes_any(&runtimes)) {
    target_release(&target);
    runtimes_say_none(&runtimes, &target, failure);
    ok = false;
  }
  if (ok) ok = dump_held(&target, &runtimes, each, sink, failure);
  runtimes_free(&runtimes);
  target_close(&target);
  return ok;
}

static int dump_all(const attach_pids_t *pids, const char *layout_file, bool each) {
  int status = STATUS_OK;
  for (size_t i = 0; i < pids->count; i++) {
    failure_t failure = {""};
    sink_t *sink = sink_to_fd(STDOUT_FILENO);
    if (sink == NULL) return cli_failed("dump", "out of memory");
    if (i > 0) sink_text(sink, "\n");
    if (!dump_process(pids->pids[i], layout_file, each, sink, &failure))
      status = cli_failed("dump", "%s", failure.text);
    if (!sink_close(sink, &failure))
      return cli_failed("dump", "standard output: cannot be written: %s", failure.text);
  }
  return status;
}

int dump_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"pid", required_argument, NULL, 'p'},
      {"layout", required_argument, NULL, 'L'},
      {"each", no_argument, NULL, 'e'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  attach_pids_t pids = {.count = 0};
  const char *layout_file = NULL;
  bool each = false;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":p:L:eh", longs, NULL)) != -1;) {
    if (option == 'p') {
      if (!attach_parse_pids(optarg, &pids))
        return cli_usage("dump", "--pid takes the numbers of processes, 12 or 12,34, %d at most, not '%s'",
                         ATTACH_MAX_PIDS, optarg);
    } else if (option == 'L') {
      layout_file = optarg;
    } else if (option == 'e') {
      each = true;
    } else if (option == 'h') {
      fputs(help, stdout);
      return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
    } else {
      return cli_bad_option("dump", argv, option);
    }
  }
  if (optind < argc)
    return cli_usage("dump", "processes are given by -p PID: '%s' is one too many", argv[optind]);
  if (pids.count == 0) return cli_usage("dump", "the process is missing: -p PID");
  return dump_all(&pids, layout_file, each);
}
