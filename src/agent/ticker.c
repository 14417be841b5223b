/* SPDX-License-Identifier: MIT */
/* Per-thread CPU-time tickers; see ticker.h. The handler runs at any instruction of the host: no malloc, no
 * locks, no stdio, errno kept. */
#include "agent/ticker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/random.h"
#include "agent/time.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { MAX_THREADS = 1024, MAX_SHARE = 50 /* a sample may cost 1/50 of the time */ };

struct ticker {
  timer_t timer;
  _Atomic pid_t tid; /* 0: free */
  _Atomic(tick_listener_t *) listeners;
  _Atomic int in_handler;        /* handlers at work: ticker_leave waits for 0 */
  volatile sig_atomic_t pending; /* a tick nobody has taken yet */
  uint64_t period;               /* ns */
  uint64_t last_sample;          /* thread CPU time, ns */
  uint64_t arm_cost;             /* ns the last handler took */
  uint64_t sample_cost;          /* ns the last sample took */
  random_t random;
};

/* Never unmapped nor freed: a signal may still be on its way when its ticker ends. */
static ticker_t tickers[MAX_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* starting and ending; never taken in the handler */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t own_ticker; /* ticker_t * of the thread, ended with it */
static int signal_number;
static struct sigaction old_action;
static bool handler_installed;
static unsigned active_count;
static uint64_t kernel_tick; /* ns: 4 ms where CONFIG_HZ is 250 */

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
}

/* -- the handler
 * ----------------------------------------------------------------------------------------------- */

static void set_timer(ticker_t *ticker) {
  uint64_t gap = random_jitter(&ticker->random, ticker->period);
  gap = gap > kernel_tick / 2 ? gap - kernel_tick / 2 : 1; /* CPU timers fire at the kernel's next tick, half one late */
  uint64_t least = (ticker->arm_cost + ticker->sample_cost) * MAX_SHARE;
  if (gap < least) gap = least;
  struct itimerspec when = {.it_value = {(time_t)(gap / 1000000000u), (long)(gap % 1000000000u)}};
  timer_settime(ticker->timer, 0, &when, NULL); /* async-signal-safe by POSIX */
}

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)number;
  (void)context;
  ticker_t *ticker = info->si_value.sival_ptr;
  /* Only the kernel's timers say SI_TIMER; the pointer must be one of ours all the same. */
  if (info->si_code != SI_TIMER || ticker < tickers || ticker >= tickers + MAX_THREADS) return;
  int saved_errno = errno;
  uint64_t start = time_monotonic();
  atomic_fetch_add(&ticker->in_handler, 1);
  if (atomic_load(&ticker->tid) != 0) {
    ticker->pending = 1;
    for (tick_listener_t *l = atomic_load(&ticker->listeners); l != NULL; l = atomic_load(&l->next))
      l->on_tick(l);
    ticker->arm_cost = time_monotonic() - start;
    set_timer(ticker);
  }
  atomic_fetch_sub(&ticker->in_handler, 1);
  errno = saved_errno;
}

tick_take_t ticker_take(ticker_t *ticker, uint64_t not_before, uint64_t *weight) {
  if (atomic_load_explicit(&ticker->tid, memory_order_relaxed) != this_thread()) return TICK_OTHER_THREAD;
  if (!ticker->pending) return TICK_NONE;
  ticker->pending = 0;
  uint64_t now = time_thread_cpu();
  uint64_t since = ticker->last_sample > not_before ? ticker->last_sample : not_before;
  *weight = now > since ? now - since : 0;
  ticker->last_sample = now;
  return TICK_TAKEN;
}

void ticker_cost(ticker_t *ticker, uint64_t nanos) {
  ticker->sample_cost = nanos;
}

int ticker_signal(void) {
  return signal_number;
}

/* -- starting and ending: under the lock, with the signal blocked on this thread
 * ---------------------------------- */

static int free_signal(void) {
  for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL) return number;
  }
  return 0;
}

static bool install_handler(failure_t *failure) {
  if (handler_installed) return true;
  int number = free_signal();
  if (number == 0)
    return failure_set(failure,
                       "the program handles every real-time signal, so the cpu clock has none to tick with; "
                       "use cpu_clock = \"instructions\"");
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  sigfillset(&action.sa_mask); /* no handler of the host runs inside ours */
  if (sigaction(number, &action, &old_action) != 0)
    return failure_set(failure, "cannot handle signal %d: %s", number, strerror(errno));
  signal_number = number;
  handler_installed = true;
  return true;
}

/* The signal of a deleted timer may still be queued for this thread: it is drained before the old disposition
 * (to die of it) comes back. Those of other threads cannot be, so the handler stays when a ticker ends from
 * elsewhere. */
static void remove_handler_if_last(bool own_thread) {
  if (active_count > 0 || !handler_installed || !own_thread) return;
  sigset_t set;
  siginfo_t info;
  struct timespec none = {0, 0};
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  while (sigtimedwait(&set, &info, &none) > 0) {
  }
  sigaction(signal_number, &old_action, NULL);
  handler_installed = false;
}

static void block_signal(sigset_t *old) {
  sigset_t set;
  sigemptyset(&set);
  if (signal_number != 0) sigaddset(&set, signal_number);
  pthread_sigmask(SIG_BLOCK, &set, old);
}

static void end_ticker(ticker_t *ticker) {
  bool own_thread = atomic_load(&ticker->tid) == this_thread();
  timer_delete(ticker->timer);
  atomic_store(&ticker->listeners, NULL);
  atomic_store(&ticker->tid, 0);
  active_count--;
  if (own_thread) pthread_setspecific(own_ticker, NULL);
  remove_handler_if_last(own_thread);
}

/* The thread ends: its listeners keep their (now silent) ticker until they leave, so the slot is freed only
 * when empty. */
static void on_thread_exit(void *value) {
  ticker_t *ticker = value;
  sigset_t old;
  pthread_mutex_lock(&lock);
  block_signal(&old);
  if (atomic_load(&ticker->listeners) == NULL) {
    end_ticker(ticker);
  } else {
    struct itimerspec never = {0};
    timer_settime(ticker->timer, 0, &never, NULL);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_mutex_unlock(&lock);
}

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* Timers do not pass to a forked child: there all tickers are gone. Listeners find their ticker without a
 * thread. */
static void after_fork_child(void) {
  for (int i = 0; i < MAX_THREADS; i++) {
    atomic_store(&tickers[i].tid, 0);
    atomic_store(&tickers[i].listeners, NULL);
    atomic_store(&tickers[i].in_handler, 0);
    tickers[i].pending = 0;
  }
  active_count = 0;
  pthread_setspecific(own_ticker, NULL);
  pthread_mutex_unlock(&lock);
}

static void set_up(void) {
  struct timespec tick;
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0) kernel_tick = (uint64_t)tick.tv_nsec;
  pthread_key_create(&own_ticker, on_thread_exit);
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static ticker_t *start_ticker(unsigned hz, uint64_t seed, failure_t *failure) {
  ticker_t *ticker = tickers;
  while (ticker < tickers + MAX_THREADS && atomic_load(&ticker->tid) != 0) ticker++;
  if (ticker == tickers + MAX_THREADS) {
    failure_set(failure, "%d threads are being profiled already, which is the limit", MAX_THREADS);
    return NULL;
  }
  if (!install_handler(failure)) return NULL;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal_number};
  event.sigev_value.sival_ptr = ticker;
  event.sigev_notify_thread_id = this_thread();
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &ticker->timer) != 0) {
    failure_set(failure, "no timer for the cpu clock: %s; use cpu_clock = \"instructions\"", strerror(errno));
    return NULL;
  }
  ticker->period = 1000000000u / hz;
  ticker->random.state = seed;
  ticker->pending = 0;
  ticker->last_sample = time_thread_cpu();
  ticker->arm_cost = ticker->sample_cost = 0;
  atomic_store(&ticker->tid, this_thread());
  pthread_setspecific(own_ticker, ticker);
  active_count++;
  set_timer(ticker);
  return ticker;
}

bool ticker_join(tick_listener_t *listener, unsigned hz, uint64_t seed, failure_t *failure) {
  pthread_once(&once, set_up);
  sigset_t old;
  pthread_mutex_lock(&lock);
  block_signal(&old);
  ticker_t *ticker = pthread_getspecific(own_ticker);
  if (ticker == NULL) ticker = start_ticker(hz, seed, failure);
  if (ticker != NULL) {
    if (1000000000u / hz < ticker->period)
      ticker->period = 1000000000u / hz; /* the fastest listener sets the pace */
    listener->ticker = ticker;
    listener->hz = hz;
    atomic_store(&listener->next, atomic_load(&ticker->listeners));
    atomic_store(&ticker->listeners, listener);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_mutex_unlock(&lock);
  return ticker != NULL;
}

static void unlink_listener(ticker_t *ticker, tick_listener_t *listener) {
  _Atomic(tick_listener_t *) *link = &ticker->listeners;
  for (tick_listener_t *l; (l = atomic_load(link)) != NULL; link = &l->next) {
    if (l != listener) continue;
    atomic_store(link, atomic_load(&l->next));
    return;
  }
}

static uint64_t shortest_period(ticker_t *ticker) {
  uint64_t period = UINT64_MAX;
  for (tick_listener_t *l = atomic_load(&ticker->listeners); l != NULL; l = atomic_load(&l->next))
    if (1000000000u / l->hz < period) period = 1000000000u / l->hz;
  return period;
}

void ticker_leave(tick_listener_t *listener) {
  ticker_t *ticker = listener->ticker;
  if (ticker == NULL) return;
  sigset_t old;
  pthread_mutex_lock(&lock);
  block_signal(&old); /* so that a handler at work, if any, is another thread's */
  unlink_listener(ticker, listener);
  while (atomic_load(&ticker->in_handler) > 0) sched_yield();
  listener->ticker = NULL;
  if (atomic_load(&ticker->tid) != 0) { /* 0: after a fork, the timer is the parent's */
    if (atomic_load(&ticker->listeners) == NULL)
      end_ticker(ticker);
    else
      ticker->period = shortest_period(ticker);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_mutex_unlock(&lock);
}
