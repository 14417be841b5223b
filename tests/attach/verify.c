/* SPDX-License-Identifier: MIT */
/* Has the kernel verify the walkers of known layouts, as `luapulse record` would when it met such a Lua.
 *   verify [TEXT…]        those whose name contains one of the texts; without any, all
 *   verify --broken       one that reads where nothing is: it must be refused
 * Prints a line for each, with the stack it takes: Linux 6.1 has 512 bytes, and this kernel may count otherwise. Ends with 0 when
 * none was refused. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/bpf/programs.h"

/* -- stack ------------------------------------------------------------------------------------------------------------- */

enum {
  MOST_FUNCTIONS = 64,
  MOST_CODE = 1 << 16,
  STATISTICS = 4, /* BPF_LOG_STATS */
  MOST_LOOPS =
      1
      << 23 /* BPF_MAX_LOOPS: what the kernel compares with where it has put the code of bpf_loop in place of the call … */
};
#define OF_A_LOOP \
  (3 * 8) /* … that takes so much of the frame, which is not counted when the depth is looked at */

/* A program as it is in the kernel: what cannot be reached is gone. */
typedef struct {
  struct bpf_insn code[MOST_CODE];
  struct bpf_func_info functions[MOST_FUNCTIONS];
  uint32_t length, count;
  uint32_t frames[MOST_FUNCTIONS]; /* bytes, as the verifier found them */
} program_t;

static program_t program;
static bool measures_stack = true;
static uint32_t stack_bytes; /* of the program that was loaded last; 0: it is not known */

static bool read_program(int fd) {
  struct bpf_prog_info info = {.xlated_prog_len = sizeof program.code,
                               .xlated_prog_insns = (uintptr_t)program.code,
                               .nr_func_info = MOST_FUNCTIONS,
                               .func_info_rec_size = sizeof program.functions[0],
                               .func_info = (uintptr_t)program.functions};
  uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(fd, &info, &size) != 0) return false;
  program.length = (uint32_t)(info.xlated_prog_len / sizeof program.code[0]);
  program.count = info.nr_func_info;
  return program.length > 0 && program.length <= MOST_CODE && program.count > 0 &&
         program.count <= MOST_FUNCTIONS;
}

/* "stack depth 96+0+32": a number for each function. */
static bool read_frames(const char *log) {
  const char *at = strstr(log, "stack depth ");
  if (at == NULL) return false;
  at += strlen("stack depth ");
  for (uint32_t i = 0; i < program.count; i++, at++) {
    char *end;
    program.frames[i] = (uint32_t)strtoul(at, &end, 10);
    if (end == at || *end != (i + 1 < program.count ? '+' : '\n')) return false;
    at = end;
  }
  return true;
}

/* The function that an instruction calls, or hands to a helper that calls it; 0, the program itself, for none. */
static uint32_t called_at(uint32_t at) {
  const struct bpf_insn *insn = &program.code[at];
  bool calls = insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg == BPF_PSEUDO_CALL;
  bool hands = insn->code == (BPF_LD | BPF_IMM | BPF_DW) && insn->src_reg == BPF_PSEUDO_FUNC;
  uint32_t number = calls ? (uint32_t)insn->imm : hands ? (uint32_t)insn[1].imm : 0;
  return number < program.count ? number : 0;
}

/* Of a function and the deepest of those it calls, as Linux 6.1 counts it: in 32 bytes, of which each takes some. */
static uint32_t depth_of(uint32_t function) {
  uint32_t end = function + 1 < program.count ? program.functions[function + 1].insn_off : program.length;
  uint32_t deepest = 0, frame = program.frames[function];
  bool loops = false;
  for (uint32_t at = program.functions[function].insn_off; at < end; at++) {
    const struct bpf_insn *insn = &program.code[at];
    loops = loops || (insn->code == (BPF_JMP | BPF_JLE | BPF_K) && insn->imm == MOST_LOOPS);
    uint32_t depth = called_at(at) != 0 ? depth_of(called_at(at)) : 0;
    if (depth > deepest) deepest = depth;
  }
  if (loops) frame -= OF_A_LOOP;
  return deepest + (frame > 0 ? (frame + 31) / 32 * 32 : 32);
}

/* Stands in for libbpf's, which it calls (the linker's --wrap): for the log of a program that is not refused. */
int __real_bpf_object__load_skeleton(struct bpf_object_skeleton *skeleton);
int __wrap_bpf_object__load_skeleton(struct bpf_object_skeleton *skeleton);
int __wrap_bpf_object__load_skeleton(struct bpf_object_skeleton *skeleton) {
  struct bpf_program *loaded = NULL;
  for (int i = 0; i < skeleton->prog_cnt; i++)
    if (bpf_program__autoload(*skeleton->progs[i].prog)) loaded = *skeleton->progs[i].prog;
  if (!measures_stack || loaded == NULL) return __real_bpf_object__load_skeleton(skeleton);
  bpf_program__set_log_level(loaded, STATISTICS);
  int error = __real_bpf_object__load_skeleton(skeleton);
  size_t size;
  const char *log = bpf_program__log_buf(loaded, &size);
  bool known = error == 0 && log != NULL && read_program(bpf_program__fd(loaded)) && read_frames(log);
  stack_bytes = known ? depth_of(0) : 0;
  return error;
}

/* -- layouts ----------------------------------------------------------------------------------------------------------- */

static bool is_wanted(const char *name, int argc, char **argv) {
  bool wanted = argc == 1;
  for (int i = 1; i < argc; i++) wanted = wanted || strstr(name, argv[i]) != NULL;
  return wanted;
}

static bool verify(programs_t *programs, const layout_t *layout) {
  failure_t failure = {""};
  uint32_t place;
  walker_kind_t kind = {.layout = *layout};
  bool ok = programs_walker(programs, &kind, &place, &failure);
  if (ok)
    printf("verified %s: %u bytes of stack\n", layout->name, stack_bytes);
  else
    printf("refused %s: %s\n", layout->name, failure.text);
  fflush(stdout);
  return ok;
}

int main(int argc, char **argv) {
  failure_t failure = {""};
  int refused = 0;
  programs_t *programs = programs_open(99, WHOSE_OWN, &failure);
  if (programs == NULL) {
    fprintf(stderr, "verify: %s\n", failure.text);
    return 2;
  }
  if (argc == 2 && strcmp(argv[1], "--broken") == 0) {
    measures_stack = false; /* the log is to be as it is for `luapulse record` */
    layout_t broken = *layout_known(0);
    broken.puc.closure_tag = LAYOUT_ABSENT - 1; /* of a buffer that all that is behind it is not as long as */
    refused += !verify(programs, &broken);
    refused += !verify(programs, &broken); /* it is not asked for twice, and says the same */
  } else {
    for (size_t i = 0; layout_known(i) != NULL; i++)
      if (is_wanted(layout_known(i)->name, argc, argv)) refused += !verify(programs, layout_known(i));
  }
  programs_close(programs);
  return refused != 0;
}
