/* SPDX-License-Identifier: MIT */
/* The sampler in the kernel: at a tick of a target's thread the walker, on the thread's own memory.
 *
 * Ticks run tick(), which looks up the process and goes on to the program that walks its Lua: one per layout, each loaded from this
 * file with the layout as constant data (see walk/machine.h). A process with several Luas has a program for each; whichever finds no
 * Lua of its kind goes on to the next. */
#include <linux/bpf.h>
/* first: the helpers' types */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <linux/bpf_perf_event.h>
#include <linux/ptrace.h>

#include "attach/bpf/shared.h"

const volatile layout_t walk_layout;

#include "walk/family_luajit.c"
#include "walk/family_puc.c"
#include "walk/find.c"
#include "walk/walk.c"

/* bpf_loop, bpf_find_vma and their like are for programs under the GPL only; this file is under both. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Of the kernel's structures, what is wanted: libbpf finds where it is in the kernel at hand. */
struct mm_struct {
  unsigned long start_stack;
} __attribute__((preserve_access_index));
struct ns_common {
  unsigned int inum;
} __attribute__((preserve_access_index));
struct pid_namespace {
  struct ns_common ns;
} __attribute__((preserve_access_index));
struct upid {
  int nr;
  struct pid_namespace *ns;
} __attribute__((preserve_access_index));
struct pid {
  struct upid numbers[1];
  unsigned int level;
} __attribute__((preserve_access_index));
struct sched_entity {
  __u64 sum_exec_runtime;
} __attribute__((preserve_access_index));
struct task_struct {
  struct mm_struct *mm;
  struct sched_entity se;
  struct task_struct *group_leader;
  struct pid *thread_pid;
  __u64 start_time;
  __u64 self_exec_id;          /* how often it has called exec */
  unsigned long nvcsw, nivcsw; /* how often it was switched away from */
} __attribute__((preserve_access_index));
struct vm_area_struct {
  unsigned long vm_start, vm_end;
} __attribute__((preserve_access_index));

const volatile uint32_t
    pid_space; /* inode of the recorder's PID namespace, by which it calls processes; 0: the kernel's own */
const volatile uint64_t usual_period; /* ns of CPU time: that of the rate that was asked for */
const volatile uint32_t turn;         /* of this program among those of a process */
const volatile uint32_t runtime;      /* that it is for, as samples tell it */

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY); /* one for each processor: for a per-CPU map it is too large */
  __type(key, uint32_t);
  __type(value, walk_t);
  __uint(max_entries, 1);
} walks SEC(".maps");

/* Tables take all their memory at once: before Linux 6.2 programs of perf events may use no others. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __type(key, uint32_t);
  __type(value, bpf_target_t);
  __uint(max_entries, BPF_MAX_TARGETS);
} targets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __type(key, uint32_t);
  __type(value, bpf_thread_t);
  __uint(max_entries, BPF_MAX_THREADS);
} threads SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __type(key, uint32_t);
  __type(value, bpf_period_t);
  __uint(max_entries, BPF_MAX_THREADS);
} periods SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, BPF_RING_BYTES);
} samples SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __type(key, uint32_t);
  __type(value, uint64_t);
  __uint(max_entries, 1);
} lost SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __type(key, uint32_t);
  __type(value, uint32_t);
  __uint(max_entries, 64);
} walkers SEC(".maps");

/* -- whose it is --------------------------------------------------------------------------------------------------- */

static void read_registers(struct bpf_perf_event_data *context, walk_t *walk) {
  walk_registers_t *out = &walk->registers;
#if defined __TARGET_ARCH_x86
  struct pt_regs *r = (struct pt_regs *)walk->words; /* free yet; the stack is small */
  walk->origin.flags = (int64_t)context->regs.rip < 0 ? WALK_IN_KERNEL : 0;
  if (walk->origin.flags != 0) /* as they were when the kernel was entered */
    bpf_probe_read_kernel(r, sizeof *r, (const void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
  else
    *r = context->regs;
  out->values[X64_RBX] = r->rbx;
  out->values[X64_RBP] = r->rbp;
  out->values[X64_R12] = r->r12;
  out->values[X64_R13] = r->r13;
  out->values[X64_R14] = r->r14;
  out->values[X64_R15] = r->r15;
  out->values[X64_RDI] = r->rdi;
  out->values[X64_RSI] = r->rsi;
  out->values[X64_RAX] = r->rax;
  out->values[X64_RCX] = r->rcx;
  out->values[X64_RDX] = r->rdx;
  out->values[X64_R8] = r->r8;
  out->values[X64_R9] = r->r9;
  out->values[X64_R10] = r->r10;
  out->values[X64_R11] = r->r11;
  out->count = X64_COUNT;
  out->sp = r->rsp;
  out->pc = r->rip;
#elif defined __TARGET_ARCH_arm64
  struct user_pt_regs *r = (struct user_pt_regs *)walk->words;
  walk->origin.flags = (int64_t)context->regs.pc < 0 ? WALK_IN_KERNEL : 0;
  if (walk->origin.flags != 0)
    bpf_probe_read_kernel(r, sizeof *r, (const void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
  else
    *r = context->regs;
  for (int i = 0; i < ARM64_SAVED; i++) out->values[i] = r->regs[19 + i];
  for (int i = 0; i < 19; i++) out->values[ARM64_SAVED + i] = r->regs[i];
  out->count = ARM64_COUNT;
  out->sp = r->sp;
  out->pc = r->pc;
#else
#error "which registers this processor has is not written down"
#endif
}

static long on_vma(struct task_struct *task, struct vm_area_struct *vma, void *context) {
  bpf_stack_t *found = context;
  uint64_t start_stack = BPF_CORE_READ(task, mm, start_stack);
  found->low = vma->vm_start;
  found->known = start_stack >= vma->vm_start && start_stack < vma->vm_end;
  found->high = found->known ? start_stack : vma->vm_end; /* arguments and the environment lie above */
  return 0;
}

/* A fiber's stack is a mapping like any other. */
static void find_stack(bpf_thread_t *thread, uint64_t sp) {
  enum { USUAL = 8 << 20 };
  bpf_stack_t found = {0, sp + USUAL, 0}; /* unless told: it is asked for again next time */
  if (sp >= thread->stack.low && sp < thread->stack.high && thread->stack.low != 0) return;
  bpf_find_vma(bpf_get_current_task_btf(), sp, on_vma, &found, 0); /* fails while the map is being changed */
  thread->stack = found;
}

/* -- one sample ------------------------------------------------------------------------------------------------------ */

/* Whoever reads is woken when there is much; for little it comes by itself. */
static void hand_out(walk_t *walk) {
  enum {
    HEAD = __builtin_offsetof(walk_t, frames) - __builtin_offsetof(walk_t, origin),
    MUCH = BPF_RING_BYTES / 8
  };
  uint32_t count = walk->frame_count, zero = 0;
  if (count > WALK_MAX_FRAMES) count = WALK_MAX_FRAMES;
  uint64_t flags =
      bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) > MUCH ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
  if (bpf_ringbuf_output(&samples, &walk->origin, HEAD + count * sizeof walk->frames[0], flags) == 0) return;
  uint64_t *counter = bpf_map_lookup_elem(&lost, &zero);
  if (counter != NULL) ++*counter;
}

/* The number that the recorder's namespace has for it, 0 when none: a task has one in each namespace from the outermost down to its own. */
static uint32_t number_of(struct task_struct *task) {
  enum { DEEPEST = 32 }; /* as the kernel has it */
  struct pid *pid = BPF_CORE_READ(task, thread_pid);
  const char *numbers = (const char *)pid + bpf_core_field_offset(struct pid, numbers);
  uint32_t level = BPF_CORE_READ(pid, level);
  for (uint32_t i = 0; i <= DEEPEST; i++) {
    const struct upid *number = (const struct upid *)(numbers + i * bpf_core_type_size(struct upid));
    if (i > level) break;
    if (BPF_CORE_READ(number, ns, ns.inum) == pid_space) return (uint32_t)BPF_CORE_READ(number, nr);
  }
  return 0;
}

/* As bpf_get_current_pid_tgid() has it: process and thread. */
static uint64_t current_id(void) {
  if (pid_space == 0) return bpf_get_current_pid_tgid();
  struct task_struct *task = bpf_get_current_task_btf();
  return (uint64_t)number_of(BPF_CORE_READ(task, group_leader)) << 32 | number_of(task);
}

static void begin(walk_t *walk, uint64_t id, uint64_t space) {
  walk->origin.time = bpf_ktime_get_ns();
  walk->origin.weight = 0;
  walk->origin.pc = 0;
  walk->origin.space = space;
  walk->origin.global = 0;
  walk->origin.pid = (int32_t)(id >> 32);
  walk->origin.tid = (int32_t)id;
  walk->origin.runtime = 0;
  walk->origin.reason = BPF_UNKNOWN;
  walk->origin.flags = 0;
  walk->frame_count = 0;
  walk->vmstate = WALK_VM_NONE;
  walk->trace = 0;
  walk->truncated = false;
  walk->collector_marked = false;
}

/* An event that was inherited keeps the period that its parent's had. Of a parent that was asleep that is a first one, cut short: its children
 * tick more often than was asked for, and some of their ticks are left out, so that gaps are of half to one and a half usual ones. */
static bool is_left_out(const struct bpf_perf_event_data *context, bpf_thread_t *thread, uint32_t tid) {
  uint64_t gap = context->sample_period;
  if (gap >= usual_period || thread->time == 0) return false; /* … or its first */
  if (bpf_map_lookup_elem(&periods, &tid) != NULL) return false;
  if (thread->left_out == 0) thread->gap = usual_period / 2 + bpf_get_prandom_u32() % usual_period;
  if (thread->left_out + gap + gap / 2 >= thread->gap) return false;
  thread->left_out += gap;
  return true;
}

/* What the period says of it, in the mean. The first one is cut short by chance, and stands for a whole: a thread that runs for less than
 * that is seen as often as it should. Where that was changed meanwhile the last one had come to an end somewhere: half of it, then. */
static uint64_t weigh_by_period(const struct bpf_perf_event_data *context, bpf_thread_t *thread,
                                uint32_t tid) {
  bpf_period_t *period = bpf_map_lookup_elem(&periods, &tid);
  uint64_t gap = context->sample_period;
  if (period == NULL && thread->time == 0) return gap < usual_period ? usual_period : gap;
  if (period == NULL) return thread->left_out + gap;
  uint64_t weight = period->now + (period->turn != thread->period_turn ? period->before / 2 : 0);
  if (period->turn == 0 && period->ticks == 0) weight = period->before;
  thread->period_turn = period->turn;
  period->ticks++;
  return weight;
}

/* The CPU time of the thread since its last sample. If it was not switched away from meanwhile that is the time that has passed: ticks may
 * have been missed. But not what a hypervisor has taken from the processor, tens of milliseconds at times: the kernel does not count it
 * as the thread's, and what it counts is behind by a tick of the scheduler at most. */
static uint64_t weigh(const struct bpf_perf_event_data *context, bpf_thread_t *thread, uint32_t tid,
                      uint64_t now) {
  enum { SCHEDULER_TICK = 10000000 }; /* ns, the longest there is */
  const struct task_struct *task = bpf_get_current_task_btf();
  uint64_t switches = (uint64_t)task->nvcsw + task->nivcsw, last = thread->time;
  uint64_t ran = task->se.sum_exec_runtime, weight = weigh_by_period(context, thread, tid);
  if (last != 0 && switches == thread->switches) {
    uint64_t most = ran - thread->ran + 2 * weight + SCHEDULER_TICK;
    weight = now - last < most ? now - last : most;
  }
  thread->time = now;
  thread->left_out = 0;
  thread->switches = switches;
  thread->ran = ran;
  return weight;
}

/* While a process has one VM there is nothing to be looked for inside its C functions; nor above a coroutine above which nothing was.
 * But a second one may have been made since: now and then they are looked for all the same. */
static void trust_the_last(walk_t *walk, const bpf_target_t *target, bpf_thread_t *thread) {
  bool trusted = ++thread->walks % WALK_BARREN_FOR != 0;
  walk->alone = trusted && target->others == 0;
  walk->remembers_barren = true;
  for (uint32_t i = 0; i < WALK_BARREN; i++) walk->barren[i] = trusted ? thread->barren[i] : 0;
}

static void aim(walk_t *walk, const bpf_target_t *target, bpf_thread_t *thread) {
  walk->stack_high = thread->stack.high;
  walk->stack_known = thread->stack.known != 0;
  walk->vm_low = target->vm_low;
  walk->vm_high = target->vm_high;
  for (uint32_t i = 0; i < WALK_NEAR_IMAGES; i++) walk->near_images[i] = target->images[i];
  walk->pc_register = target->pc_register;
  trust_the_last(walk, target, thread);
  walk->likely_global = 0;
  walk->likely_main = 0;
  if (layout_of(walk)->family == LAYOUT_LUAJIT)
    walk->likely_global = thread->global != 0 ? thread->global : target->global;
  else
    walk->likely_main = thread->main;
  walk->last_count = thread->state != 0;
  walk->last[0].state = thread->state;
}

static void remember(walk_t *walk, bpf_target_t *target, bpf_thread_t *thread) {
  thread->state = walk->states[0].state;
  thread->global = walk->states[0].global;
  thread->main = walk_main_of(walk, thread->global);
  for (uint32_t i = 0; i < WALK_BARREN; i++) thread->barren[i] = walk->barren[i];
  if (thread->global != target->global) target->others = 1;
  target->pc_register = walk->pc_register;
}

static bpf_thread_t *thread_of(uint32_t tid) {
  static const bpf_thread_t fresh;
  bpf_thread_t *thread = bpf_map_lookup_elem(&threads, &tid);
  if (thread != NULL) return thread;
  bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY);
  return bpf_map_lookup_elem(&threads, &tid);
}

SEC("perf_event")
int walk_one(struct bpf_perf_event_data *context) {
  uint64_t id = current_id();
  uint32_t processor = bpf_get_smp_processor_id(), pid = (uint32_t)(id >> 32), tid = (uint32_t)id;
  walk_t *walk = bpf_map_lookup_elem(&walks, &processor);
  bpf_target_t *target = bpf_map_lookup_elem(&targets, &pid);
  bpf_thread_t *thread = bpf_map_lookup_elem(&threads, &tid);
  if (walk == NULL || target == NULL || thread == NULL) return 0;
  walk->origin.runtime = runtime;
  aim(walk, target, thread);
  walk_reason_t reason = walk_find(walk);
  if (reason == WALK_OK) {
    reason = walk_frames(walk);
    remember(walk, target, thread);
    walk->origin.global = thread->global;
    if (walk_is_collecting(walk, thread->global)) walk->origin.flags |= WALK_COLLECTING;
  } else if (turn + 1 < target->runtime_count && turn + 1 < BPF_RUNTIMES) {
    bpf_tail_call(context, &walkers, target->walkers[turn + 1]); /* does not come back */
  }
  walk->origin.reason = reason;
  hand_out(walk);
  return 0;
}

/* Tells address spaces apart: where the kernel keeps one it may keep another when that is gone, of the next process or after exec. */
static uint64_t current_space(void) {
  enum { STEP = 0x9e3779b97f4a7c15u }; /* 2^64 by the golden ratio: spreads what differs little */
  struct task_struct *task = bpf_get_current_task_btf();
  uint64_t space = (uint64_t)BPF_CORE_READ(task, mm) * STEP;
  space = (space ^ BPF_CORE_READ(task, group_leader, start_time)) * STEP;
  return (space ^ BPF_CORE_READ(task, self_exec_id)) * STEP;
}

/* What is done once for a sample is done here, whatever walkers then look at it: they have little room left on the stack. */
SEC("perf_event")
int tick(struct bpf_perf_event_data *context) {
  uint64_t id = current_id();
  uint32_t processor = bpf_get_smp_processor_id(), pid = (uint32_t)(id >> 32), tid = (uint32_t)id;
  walk_t *walk = bpf_map_lookup_elem(&walks, &processor);
  bpf_thread_t *thread = thread_of(tid);
  if (walk == NULL || thread == NULL || is_left_out(context, thread, tid)) return 0;
  bpf_target_t *target = bpf_map_lookup_elem(&targets, &pid);
  uint64_t space = current_space();
  begin(walk, id, space);
  walk->origin.weight = weigh(context, thread, tid, walk->origin.time);
  if (target != NULL && target->space == 0) target->space = space;
  if (target != NULL && target->space == space && target->runtime_count > 0) {
    read_registers(context, walk);
    walk->origin.pc = walk->registers.pc;
    find_stack(thread, walk->registers.sp);
    bpf_tail_call(context, &walkers, target->walkers[0]);
  }
  hand_out(walk); /* as unknown */
  return 0;
}
