/* SPDX-License-Identifier: MIT */
/* Loading programs into the kernel; see programs.h. */
#include "attach/bpf/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "profile/mem.h"
#pragma GCC diagnostic push /* it is generated */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "sampler.skel.h"
#pragma GCC diagnostic pop

enum {
  MOST_WALKERS = 64,   /* as many as the program array has places */
  LOG_BYTES = 1 << 22, /* of the verifier: the way to where it stopped, at most */
  TICKS_OF_A_PERIOD =
      4 /* at least: a change begins it anew, and a thread that runs little would never get to its end */
};

typedef struct {
  walker_kind_t kind;
  struct sampler *object; /* NULL: the kernel refused it … */
  failure_t why;          /* … and would again */
} walker_t;

struct programs {
  struct sampler *base; /* the maps, and what ticks run */
  walker_t walkers[MOST_WALKERS];
  uint32_t count;
  int processors;
  uint64_t period; /* ns of CPU time between two ticks, in the mean */
  whose_t whose;   /* for messages */
};

/* -- why not --------------------------------------------------------------------------------------------------------- */

static bool refused(whose_t whose, int error, failure_t *failure) {
  if (error == EPERM || error == EACCES) return process_bpf_refused(whose, failure);
  if (error == ENOSYS) return failure_set(failure, "this kernel has no BPF");
  if (error == ENOMEM) return failure_set(failure, "the kernel has no memory for BPF programs");
  return failure_set(failure, "the kernel refuses the BPF program: %s", strerror(error));
}

/* What the verifier says last, before it counts what it has done. */
static const char *last_words(char *log) {
  static const char counts[] = "\nprocessed ";
  char *end = strstr(log, counts);
  if (end == NULL) return "";
  *end = '\0';
  char *start = strrchr(log, '\n');
  return start != NULL ? start + 1 : log;
}

/* Every kernel has a verifier of its own. What it says is for who mends the program; everybody else is told what to do. */
static bool verifier_refused(char *log, const char *lua, int error, failure_t *failure) {
  struct utsname kernel;
  const char *said = last_words(log);
  return failure_set(
      failure,
      "the verifier of this kernel (%s) refuses the BPF program for %s (%s): a fault of luapulse, please "
      "report it; --engine ptrace works without",
      uname(&kernel) == 0 ? kernel.release : "unknown", lua, said[0] != '\0' ? said : strerror(error));
}

/* What libbpf would print: messages here say what failed. */
static int silent(enum libbpf_print_level level, const char *format, va_list arguments) {
  (void)level;
  (void)format;
  (void)arguments;
  return 0;
}

/* libbpf takes a program that is refused for any other reason as one whose helper is there: so one that calls nothing is tried first. */
loop_t programs_loop(void) {
  libbpf_set_print(silent);
  if (libbpf_probe_bpf_prog_type(BPF_PROG_TYPE_PERF_EVENT, NULL) <= 0) return LOOP_UNKNOWN;
  int has = libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_loop, NULL);
  return has > 0 ? LOOP_THERE : has == 0 ? LOOP_MISSING : LOOP_UNKNOWN;
}

/* What the programs cannot do without, asked for by name. Where that is not answered, loading them tells why. */
static bool can_run(failure_t *failure) {
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0)
    return failure_set(
        failure, "this kernel does not describe itself (no /sys/kernel/btf/vmlinux: CONFIG_DEBUG_INFO_BTF)");
  return programs_loop() != LOOP_MISSING ||
         failure_set(failure, "this kernel is too old for the BPF program: it takes Linux 5.17");
}

/* -- loading ----------------------------------------------------------------------------------------------------------- */

/* 0 for that which all others are in: there the kernel's numbers are the recorder's. */
static uint32_t own_pid_space(void) {
  enum { OUTERMOST = 0xEFFFFFFC }; /* PROC_PID_INIT_INO, the same since Linux 3.8 */
  struct stat stat_of;
  return stat("/proc/self/ns/pid", &stat_of) == 0 && (uint32_t)stat_of.st_ino != (uint32_t)OUTERMOST
             ? (uint32_t)stat_of.st_ino
             : 0;
}

/* An object of which one program is loaded; its maps are those of the base, once there is one. */
static struct sampler *load(const programs_t *programs, const walker_kind_t *kind, failure_t *failure) {
  struct sampler *object = sampler__open();
  char *log = mem_alloc(
      LOG_BYTES); /* it is read when the first attempt fails: then the kernel is asked again, with it */
  if (object == NULL || log == NULL) {
    refused(programs->whose, object == NULL ? errno : ENOMEM, failure);
    sampler__destroy(object);
    mem_free(log);
    return NULL;
  }
  bpf_program__set_log_buf(kind != NULL ? object->progs.walk_one : object->progs.tick, log, LOG_BYTES);
  object->rodata->pid_space = own_pid_space();
  object->rodata->usual_period = programs->period;
  bpf_program__set_autoload(object->progs.tick, kind == NULL);
  bpf_program__set_autoload(object->progs.walk_one, kind != NULL);
  bpf_map__set_max_entries(object->maps.walks, (uint32_t)programs->processors);
  int error = 0;
  if (kind != NULL) {
    const struct sampler *base = programs->base;
    object->rodata->walk_layout = kind->layout;
    object->rodata->turn = kind->turn;
    object->rodata->runtime = kind->runtime;
    error = bpf_map__reuse_fd(object->maps.walks, bpf_map__fd(base->maps.walks));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.targets, bpf_map__fd(base->maps.targets));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.threads, bpf_map__fd(base->maps.threads));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.periods, bpf_map__fd(base->maps.periods));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.samples, bpf_map__fd(base->maps.samples));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.lost, bpf_map__fd(base->maps.lost));
    if (error == 0) error = bpf_map__reuse_fd(object->maps.walkers, bpf_map__fd(base->maps.walkers));
  }
  if (error == 0) error = sampler__load(object);
  if (error != 0) {
    if (log[0] != '\0')
      verifier_refused(log, kind != NULL ? kind->layout.name : "ticks", -error, failure);
    else
      refused(programs->whose, -error, failure);
    sampler__destroy(object);
    object = NULL;
  }
  mem_free(log);
  return object;
}

programs_t *programs_open(uint32_t hz, whose_t whose, failure_t *failure) {
  libbpf_set_print(silent);
  if (!can_run(failure)) return NULL;
  programs_t *programs = mem_alloc(sizeof *programs);
  if (programs == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  *programs =
      (programs_t){.period = 1000000000 / hz, .whose = whose, .processors = libbpf_num_possible_cpus()};
  programs->base = programs->processors > 0 ? load(programs, NULL, failure) : NULL;
  if (programs->base != NULL) return programs;
  programs_close(programs);
  return NULL;
}

void programs_close(programs_t *programs) {
  if (programs == NULL) return;
  for (uint32_t i = 0; i < programs->count; i++) sampler__destroy(programs->walkers[i].object);
  sampler__destroy(programs->base);
  mem_free(programs);
}

/* What ticks run goes on to it by its place. */
static bool offer(const programs_t *programs, uint32_t place, failure_t *failure) {
  uint32_t fd = (uint32_t)bpf_program__fd(programs->walkers[place].object->progs.walk_one);
  return bpf_map_update_elem(bpf_map__fd(programs->base->maps.walkers), &place, &fd, BPF_ANY) == 0 ||
         refused(programs->whose, errno, failure);
}

bool programs_walker(programs_t *programs, const walker_kind_t *kind, uint32_t *place, failure_t *failure) {
  for (uint32_t i = 0; i < programs->count; i++) {
    *place = i;
    const walker_kind_t *have = &programs->walkers[i].kind;
    /* padding that differs makes a program twice, which does no harm; NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    bool same = memcmp(&have->layout, &kind->layout, sizeof kind->layout) == 0;
    if (!same || have->turn != kind->turn || have->runtime != kind->runtime) continue;
    return programs->walkers[i].object != NULL || failure_set(failure, "%s", programs->walkers[i].why.text);
  }
  if (programs->count == MOST_WALKERS)
    return failure_set(failure, "there are more kinds of Lua than %d among the processes", MOST_WALKERS);
  walker_t *walker = &programs->walkers[programs->count];
  *place = programs->count++;
  walker->kind = *kind;
  walker->object = load(programs, kind, &walker->why);
  if (walker->object != NULL && !offer(programs, *place, &walker->why)) {
    sampler__destroy(walker->object);
    walker->object = NULL;
  }
  return walker->object != NULL || failure_set(failure, "%s", walker->why.text);
}

/* -- maps -------------------------------------------------------------------------------------------------------------- */

int programs_tick_fd(const programs_t *programs) {
  return bpf_program__fd(programs->base->progs.tick);
}

int programs_samples_fd(const programs_t *programs) {
  return bpf_map__fd(programs->base->maps.samples);
}

bool programs_set_target(programs_t *programs, uint32_t pid, const bpf_target_t *target) {
  return bpf_map_update_elem(bpf_map__fd(programs->base->maps.targets), &pid, target, BPF_ANY) == 0;
}

void programs_drop_target(programs_t *programs, uint32_t pid) {
  bpf_map_delete_elem(bpf_map__fd(programs->base->maps.targets), &pid);
}

void programs_first_period(programs_t *programs, uint32_t tid, uint64_t part, uint64_t whole) {
  bpf_period_t first = {part, whole, 0, 0};
  bpf_map_update_elem(bpf_map__fd(programs->base->maps.periods), &tid, &first, BPF_ANY);
}

bool programs_next_period(programs_t *programs, uint32_t tid, uint64_t period) {
  int map = bpf_map__fd(programs->base->maps.periods);
  bpf_period_t set;
  if (bpf_map_lookup_elem(map, &tid, &set) != 0) return false; /* there was no room: it stays as it is */
  if (set.ticks < (set.turn == 0 ? 1 : TICKS_OF_A_PERIOD)) return false;
  set = (bpf_period_t){period, set.now, set.turn + 1, 0};
  return bpf_map_update_elem(map, &tid, &set, BPF_ANY) == 0;
}

void programs_drop_period(programs_t *programs, uint32_t tid) {
  bpf_map_delete_elem(bpf_map__fd(programs->base->maps.periods), &tid);
}

uint64_t programs_lost(programs_t *programs) {
  uint32_t zero = 0;
  uint64_t sum = 0, *each = mem_alloc((size_t)programs->processors * sizeof *each);
  if (each != NULL && bpf_map_lookup_elem(bpf_map__fd(programs->base->maps.lost), &zero, each) == 0)
    for (int i = 0; i < programs->processors; i++) sum += each[i];
  mem_free(each);
  return sum;
}

/* -- costs --------------------------------------------------------------------------------------------------------------- */

static void add_costs(const struct bpf_program *program, uint64_t *ns, uint64_t *runs, uint32_t *verified) {
  struct bpf_prog_info info = {0};
  uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) != 0) return;
  *ns += info.run_time_ns;
  *runs += info.run_cnt;
  if (info.verified_insns > *verified) *verified = info.verified_insns;
}

void programs_costs(programs_t *programs, uint64_t *ns, uint64_t *runs, uint32_t *verified) {
  *ns = *runs = *verified = 0;
  add_costs(programs->base->progs.tick, ns, runs, verified); /* walkers run on its account */
  uint64_t none = 0;
  for (uint32_t i = 0; i < programs->count; i++)
    if (programs->walkers[i].object != NULL)
      add_costs(programs->walkers[i].object->progs.walk_one, &none, &none, verified);
}
