/* SPDX-License-Identifier: MIT */
/* Runs a command on what looks like a kernel without BPF, or another system call by -DWITHOUT=SYS_…: it fails with the number that is
 * given. without_bpf ERRNO COMMAND… */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef WITHOUT
#define WITHOUT SYS_bpf
#endif

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WITHOUT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)atoi(argv[1])),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("without_bpf");
    return 3;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
