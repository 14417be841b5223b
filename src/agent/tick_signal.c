/* SPDX-License-Identifier: MIT */
/* Signals of the tickers; see tick_signal.h. */
#include "agent/tick_signal.h"

#include <stddef.h>
#include <time.h>

int tick_signal_free(void) {
  for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL) return number;
  }
  return 0;
}

bool tick_signal_is_ours(const tick_signal_t *signal) {
  struct sigaction now;
  return signal->installed && sigaction(signal->number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
         now.sa_sigaction == signal->handler;
}

bool tick_signal_install(tick_signal_t *signal, int number) {
  struct sigaction action = {.sa_sigaction = signal->handler,
                             .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  sigfillset(&action.sa_mask); /* no handler of the host runs inside ours */
  if (sigaction(number, &action, &signal->old) != 0) return false;
  signal->number = number;
  signal->installed = true;
  return true;
}

void tick_signal_remove(tick_signal_t *signal) {
  if (tick_signal_is_ours(signal)) sigaction(signal->number, &signal->old, NULL);
  signal->installed = false;
}

void tick_signal_drain(int number) {
  sigset_t set;
  siginfo_t info;
  struct timespec none = {0, 0};
  sigemptyset(&set);
  sigaddset(&set, number);
  while (sigtimedwait(&set, &info, &none) > 0) {
  }
}
