/* SPDX-License-Identifier: MIT */
/* Sampling by a program in the kernel; see engine.h. */
#include "attach/engine.h"

engine_t *engine_bpf_open(const engine_options_t *options, failure_t *failure) {
  (void)options;
  failure_set(failure, "this build has no BPF engine");
  return NULL;
}
