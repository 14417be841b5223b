/* SPDX-License-Identifier: MIT */
/* Records the memory a walk reads of a real interpreter, for the unit tests:
 *
 *   record [-l LAYOUT] [-v VMSTATE] [-n STATES] [-r RUNTIME] -o IMAGE PROGRAM.lua (-p PID | -- COMMAND ARGUMENT…)
 *   record [-l LAYOUT] -s COUNT [-p PID | -- COMMAND ARGUMENT…]      prints COUNT stacks: reason, VM's state, coroutines, pc, frames
 *
 * Seizes the process (ptrace), stops it, walks it by process_vm_readv and writes the image when the walk found what the
 * program's "-- frame" comments say, and not otherwise: what is expected never comes from the walker. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image.h"

enum { ATTEMPTS = 400, WAIT_FIRST_US = 50000, WAIT_US = 2000, MAX_LINES = 65536, MAX_MAPS = 512 };
enum { VM_BEFORE = 8192, VM_AFTER = 2048 }; /* as in agent/walk_setup.c */

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("record: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

/* -- the process ------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t low, high;
  bool executable;
} map_t;

typedef struct {
  walk_memory_t memory; /* first */
  pid_t pid;
  bool own; /* started here, to be ended */
  map_t maps[MAX_MAPS];
  size_t map_count;
  walk_registers_t registers;
  uint64_t stack_high;
  bool records;
  uint64_t lines[MAX_LINES]; /* that were read */
  size_t line_count;
} target_t;

static bool fetch(const target_t *target, void *to, uint64_t from, size_t len) {
  struct iovec local = {to, len}, remote = {(void *)(uintptr_t)from, len};
  return process_vm_readv(target->pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

static bool read_target(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  target_t *target = (target_t *)memory;
  if (!fetch(target, to, from, len)) {
    if (trust == WALK_LIVE)
      fprintf(stderr, "a load of %u bytes at %llx would have faulted\n", len, (unsigned long long)from);
    return false;
  }
  for (uint64_t at = from - from % IMAGE_LINE; target->records && at < from + len; at += IMAGE_LINE) {
    if (target->line_count == MAX_LINES) die("the walk reads more than an image holds");
    target->lines[target->line_count++] = at;
  }
  return true;
}

static void start(target_t *target, char **command) {
  target->pid = fork();
  if (target->pid == 0) {
    execvp(command[0], command);
    die("%s: %s", command[0], strerror(errno));
  }
  target->own = true;
}

static void seize(target_t *target) {
  if (ptrace(PTRACE_SEIZE, target->pid, NULL, target->own ? PTRACE_O_EXITKILL : 0) != 0)
    die("process %d cannot be seized: %s", target->pid, strerror(errno));
  target->memory = (walk_memory_t){.read = read_target};
}

static void read_maps(target_t *target) {
  char path[64], line[512], flags[8];
  unsigned long long low, high;
  snprintf(path, sizeof path, "/proc/%d/maps", target->pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) die("%s: %s", path, strerror(errno));
  target->map_count = 0;
  while (fgets(line, sizeof line, file) != NULL && target->map_count < MAX_MAPS)
    if (sscanf(line, "%llx-%llx %7s", &low, &high, flags) == 3)
      target->maps[target->map_count++] = (map_t){low, high, flags[2] == 'x'};
  fclose(file);
}

static const map_t *map_of(const target_t *target, uint64_t address) {
  for (size_t i = 0; i < target->map_count; i++)
    if (address >= target->maps[i].low && address < target->maps[i].high) return &target->maps[i];
  return NULL;
}

static void stop(target_t *target) {
  struct user_regs_struct r;
  int status;
  if (ptrace(PTRACE_INTERRUPT, target->pid, NULL, NULL) != 0 ||
      waitpid(target->pid, &status, __WALL) != target->pid || !WIFSTOPPED(status) ||
      ptrace(PTRACE_GETREGS, target->pid, NULL, &r) != 0)
    die("the process is gone or cannot be stopped");
  walk_registers_t *to = &target->registers;
  *to = (walk_registers_t){.count = X64_COUNT, .pc = r.rip, .sp = r.rsp};
  to->values[X64_RBX] = r.rbx;
  to->values[X64_RBP] = r.rbp;
  to->values[X64_R12] = r.r12;
  to->values[X64_R13] = r.r13;
  to->values[X64_R14] = r.r14;
  to->values[X64_R15] = r.r15;
  to->values[X64_RDI] = r.rdi;
  to->values[X64_RSI] = r.rsi;
  to->values[X64_RAX] = r.rax;
  to->values[X64_RCX] = r.rcx;
  to->values[X64_RDX] = r.rdx;
  to->values[X64_R8] = r.r8;
  to->values[X64_R9] = r.r9;
  to->values[X64_R10] = r.r10;
  to->values[X64_R11] = r.r11;
  read_maps(target);
  const map_t *stack = map_of(target, r.rsp);
  target->stack_high = stack != NULL ? stack->high : r.rsp;
}

static void go_on(const target_t *target) {
  if (ptrace(PTRACE_CONT, target->pid, NULL, NULL) != 0) die("the process is gone");
}

static void leave(const target_t *target) {
  if (target->own) {
    kill(target->pid, SIGKILL);
    waitpid(target->pid, NULL, __WALL);
  } else {
    ptrace(PTRACE_DETACH, target->pid, NULL, NULL);
  }
}

/* -- walking it ------------------------------------------------------------------------------------------------ */

static void aim(target_t *target, walk_t *walk, const layout_t *layout) {
  walk->layout = layout;
  walk->memory = &target->memory;
  walk->registers = target->registers;
  walk->stack_high = target->stack_high;
  walk->stack_known = true;
}

/* As agent/walk_setup.c does; false when the dispatch table is not where the layout has it. */
static bool find_interpreter(const target_t *target, walk_t *walk, uint64_t global) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint64_t low = UINT64_MAX, high = 0, code;
  if (walk_main_of(walk, global) != global - l->gg_global) return false; /* the main thread opens GG_State */
  for (uint64_t at = global - l->gg_global + l->gg_dispatch; at < global - l->gg_global + l->gg_code;
       at += 8) {
    if (!fetch(target, &code, at, sizeof code)) return false;
    if (code == 0) continue;
    const map_t *map = map_of(target, code);
    if (map == NULL || !map->executable) return false;
    low = code < low ? code : low;
    high = code > high ? code : high;
  }
  if (low > high || high - low > 1u << 20) return false;
  /* neither begins later nor ends earlier */
  if (!fetch(target, &code, global - l->gg_global + l->gg_dispatch - 8, sizeof code)) return false;
  if (code >= low && code <= high) return false;
  if (!fetch(target, &code, global - l->gg_global + l->gg_code, sizeof code)) return false;
  if (code >= low && code <= high) return false;
  walk->vm_low = low - VM_BEFORE;
  walk->vm_high = high + VM_AFTER;
  return true;
}

static bool is_sane(const target_t *target, walk_t *walk) {
  for (uint32_t i = 0; i < walk->frame_count; i++) {
    const walk_frame_t *frame = &walk->frames[i];
    walk_proto_t proto;
    char source[2];
    size_t len;
    if (frame->kind != WALK_LUA) {
      const map_t *map = map_of(target, frame->code);
      if (map == NULL || !map->executable) return false;
    } else if (!walk_proto(walk, frame->proto, WALK_GUESS, &proto) ||
               !walk_string(walk, proto.source, source, sizeof source, &len) || len == 0 ||
               strchr("@=", source[0]) == NULL || proto.line > proto.last_line) {
      return false;
    }
  }
  return true;
}

static bool fits(target_t *target, walk_t *walk, const layout_t *layout) {
  memset(walk, 0, sizeof *walk);
  aim(target, walk, layout);
  if (walk_find(walk) != WALK_OK) return false;
  if (layout->family == LAYOUT_LUAJIT && !find_interpreter(target, walk, walk->states[0].global))
    return false;
  return walk_frames(walk) == WALK_OK && is_sane(target, walk);
}

/* Whether a walk cannot tell them apart. */
static bool are_alike(layout_t a, const layout_t *b) {
  if (a.family != LAYOUT_PUC || b->family != LAYOUT_PUC) return false;
  a.puc.state_allowhook = b->puc.state_allowhook;
  a.puc.status_finalizer = b->puc.status_finalizer;
  return memcmp(&a.puc, &b->puc, sizeof a.puc) == 0;
}

/* The layout the memory has, the newest of those that are alike; NULL when none fits. Stops when two others do. */
static const layout_t *choose(target_t *target, walk_t *walk, const char *forced) {
  const layout_t *layout, *found = NULL;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++) {
    if (forced != NULL ? strcmp(layout->name, forced) != 0 : !fits(target, walk, layout)) continue;
    if (found != NULL && !are_alike(*found, layout))
      die("both \"%s\" and \"%s\" fit: choose by -l", found->name, layout->name);
    found = layout;
  }
  return found != NULL && fits(target, walk, found) ? found : NULL;
}

/* -- what the program says -------------------------------------------------------------------------------------- */

static image_t *read_program(const char *path) {
  image_t *image = image_of_program(path);
  if (image == NULL) die("%s cannot be read or does not say what its stack is", path);
  return image;
}

/* Walks, compares, and keeps the addresses of C functions with the frames. */
static bool check(walk_t *walk, image_t *image, bool say) {
  char text[IMAGE_FRAME_TEXT];
  walk_reason_t reason = walk_find(walk);
  if (reason == WALK_OK) reason = walk_frames(walk);
  bool ok = reason == WALK_OK && walk->frame_count == image->frame_count &&
            walk->truncated == image->truncated && walk->state_count == image->state_count &&
            strcmp(image_vmstates[walk->vmstate], image->vmstate) == 0;
  if (say)
    fprintf(stderr, "%s, %s, %u states%s\n", walk_reason_name(reason), image_vmstates[walk->vmstate],
            walk->state_count, walk->truncated ? ", truncated" : "");
  for (uint32_t i = 0; i < walk->frame_count; i++) {
    image_describe(walk, &walk->frames[i], text);
    bool same = i < image->frame_count && image_is_expected(image->frames[i], text, walk->layout->family);
    if (say) fprintf(stderr, "  %c %s\n", same ? ' ' : '!', text);
    if (ok && same) memcpy(image->frames[i], text, sizeof text);
    ok = ok && same;
  }
  return ok;
}

/* -- the image ------------------------------------------------------------------------------------------------- */

static int compare_lines(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static void collect_ranges(target_t *target, image_t *image) {
  qsort(target->lines, target->line_count, sizeof *target->lines, compare_lines);
  for (size_t i = 0; i < target->line_count; i++) {
    image_range_t *last = image->range_count > 0 ? &image->ranges[image->range_count - 1] : NULL;
    uint64_t line = target->lines[i];
    if (last != NULL && line < last->high) continue;
    if (image->byte_count + IMAGE_LINE > IMAGE_MAX_BYTES || image->range_count == IMAGE_MAX_RANGES)
      die("the walk reads more than an image holds");
    if (last == NULL || line > last->high) {
      last = &image->ranges[image->range_count++];
      *last = (image_range_t){line, line, image->byte_count};
    }
    if (!fetch(target, image->bytes + image->byte_count, line, IMAGE_LINE)) die("memory vanished");
    last->high += IMAGE_LINE;
    image->byte_count += IMAGE_LINE;
  }
}

static void write_image(const image_t *image, const char *path) {
  gzFile file = gzopen(path, "wb9");
  if (file == NULL) die("%s: %s", path, strerror(errno));
  gzprintf(file, "runtime %s\nprogram %s\nlayout %s\n", image->runtime, image->program, image->layout);
  gzprintf(file, "registers %llx %llx", (unsigned long long)image->registers.pc,
           (unsigned long long)image->registers.sp);
  for (uint32_t i = 0; i < image->registers.count; i++)
    gzprintf(file, " %llx", (unsigned long long)image->registers.values[i]);
  gzprintf(file, "\nstack_high %llx\n", (unsigned long long)image->stack_high);
  gzprintf(file, "global %llx %llx\n", (unsigned long long)image->global, (unsigned long long)image->main);
  if (image->vm_high != 0)
    gzprintf(file, "vm %llx %llx\n", (unsigned long long)image->vm_low, (unsigned long long)image->vm_high);
  gzprintf(file, "vmstate %s\nstates %u\n%s", image->vmstate, image->state_count,
           image->truncated ? "truncated\n" : "");
  for (uint32_t i = 0, count; i < image->frame_count; i += count) {
    for (count = 1; i + count < image->frame_count; count++)
      if (strcmp(image->frames[i], image->frames[i + count]) != 0) break;
    gzprintf(file, count > 1 ? "frame %s x%u\n" : "frame %s\n", image->frames[i], count);
  }
  for (uint32_t i = 0; i < image->range_count; i++)
    gzprintf(file, "range %llx %x\n", (unsigned long long)image->ranges[i].low,
             (unsigned)(image->ranges[i].high - image->ranges[i].low));
  gzputs(file, "data\n");
  bool written = gzwrite(file, image->bytes, image->byte_count) == (int)image->byte_count;
  if (gzclose(file) != Z_OK || !written) die("%s could not be written", path);
}

/* One stop: finds the layout, walks in every way the tests do, all of which must find the same. */
static bool record_here(target_t *target, walk_t *walk, image_t *image, const char *forced, bool say) {
  const layout_t *layout = choose(target, walk, forced);
  if (layout == NULL) {
    if (say) fputs("no layout fits\n", stderr);
    return false;
  }
  snprintf(image->layout, sizeof image->layout, "%s", layout->name);
  if (layout->family == LAYOUT_PUC) strcpy(image->vmstate, "none");
  image->registers = target->registers;
  image->stack_high = target->stack_high;
  image->vm_low = walk->vm_low;
  image->vm_high = walk->vm_high;
  image->global = walk->states[0].global;
  image->main = walk_main_of(walk, image->global);
  target->records = true;
  target->line_count = 0;
  image_begin(image, walk, &target->memory);
  bool ok = check(walk, image, say);
  if (ok) {
    image_begin_known(image, walk, &target->memory);
    ok = check(walk, image, say) && check(walk, image, say); /* the second time it remembers */
  }
  target->records = false;
  return ok;
}

static int record(target_t *target, walk_t *walk, image_t *image, const char *forced, const char *path) {
  usleep(WAIT_FIRST_US);
  for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
    stop(target);
    if (record_here(target, walk, image, forced, attempt == ATTEMPTS)) {
      collect_ranges(target, image);
      write_image(image, path);
      leave(target);
      return 0;
    }
    go_on(target);
    usleep(WAIT_US);
  }
  leave(target);
  die("the stack of %s was never found in %s", image->program, image->runtime);
}

/* -- many stops -------------------------------------------------------------------------------------------------- */

static void print_stack(walk_t *walk, walk_reason_t reason) {
  char text[IMAGE_FRAME_TEXT];
  printf("%s\t%s\t%u\t%llx", walk_reason_name(reason), image_vmstates[walk->vmstate], walk->state_count,
         (unsigned long long)walk->registers.pc);
  for (uint32_t i = 0; i < walk->frame_count; i++) {
    image_describe(walk, &walk->frames[i], text);
    printf("\t%s", text);
  }
  putchar('\n');
}

static int print_stacks(target_t *target, walk_t *walk, const char *forced, long count) {
  const layout_t *layout = NULL;
  for (long done = 0, tries = 0; done < count; tries++) {
    usleep(layout == NULL ? WAIT_FIRST_US : WAIT_US / 2 + (unsigned)(tries * 7919 % WAIT_US));
    stop(target);
    if (layout == NULL) {
      if (tries == ATTEMPTS) die("no layout fits");
      layout = choose(target, walk, forced);
      if (layout != NULL) {
        uint64_t global = walk->states[0].global, low = walk->vm_low, high = walk->vm_high;
        fprintf(stderr, "layout %s\n", layout->name);
        memset(walk, 0, sizeof *walk);
        aim(target, walk, layout);
        walk->vm_low = low;
        walk->vm_high = high;
        walk->likely_global = global;
        walk->likely_main = walk_main_of(walk, global);
        walk->alone = true;
      }
    } else {
      aim(target, walk, layout);
      walk->vmstate = WALK_VM_NONE;
      walk->frame_count = 0;
      walk_reason_t reason = walk_find(walk);
      if (reason == WALK_OK) reason = walk_frames(walk);
      print_stack(walk, reason);
      done++;
    }
    go_on(target);
  }
  leave(target);
  return 0;
}

int main(int argc, char **argv) {
  static target_t target;
  static walk_t walk;
  const char *layout = NULL, *vmstate = NULL, *runtime = NULL, *path = NULL;
  long stacks = 0;
  uint32_t states = 0; /* 0: as many as the program says */
  for (int option; (option = getopt(argc, argv, "+l:n:v:r:o:p:s:")) != -1;) switch (option) {
      case 'l':
        layout = optarg;
        break;
      case 'n':
        states = (uint32_t)strtoul(optarg, NULL, 10);
        break;
      case 'v':
        vmstate = optarg;
        break;
      case 'r':
        runtime = optarg;
        break;
      case 'o':
        path = optarg;
        break;
      case 'p':
        target.pid = (pid_t)strtol(optarg, NULL, 10);
        break;
      case 's':
        stacks = strtol(optarg, NULL, 10);
        break;
      default:
        return 2;
    }
  const char *program = path != NULL && optind < argc ? argv[optind++] : NULL;
  if (optind < argc && strcmp(argv[optind], "--") == 0) optind++;
  if ((path == NULL) == (stacks == 0) || (path != NULL && program == NULL) ||
      (target.pid == 0) != (optind < argc))
    die("usage: record [-l LAYOUT] [-v VMSTATE] [-r RUNTIME] (-o IMAGE PROGRAM | -s COUNT) (-p PID | -- "
        "COMMAND)");
  image_t *image = program != NULL ? read_program(program) : NULL;
  if (target.pid == 0) start(&target, argv + optind);
  seize(&target);
  if (image == NULL) return print_stacks(&target, &walk, layout, stacks);
  if (states != 0) image->state_count = states;
  if (vmstate != NULL && image->vmstate[0] == '\0')
    snprintf(image->vmstate, sizeof image->vmstate, "%s", vmstate);
  snprintf(image->runtime, sizeof image->runtime, "%s", runtime != NULL ? runtime : argv[optind]);
  int status = record(&target, &walk, image, layout, path);
  image_free(image);
  return status;
}
