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

/* The tid of a ticker whose thread ended while VMs still listened: silent, but taken until they leave. */
#define THREAD_GONE ((pid_t)-1)

struct ticker {
  timer_t timer;
  _Atomic pid_t tid; /* 0: free */
  _Atomic(tick_listener_t *) listeners;
  _Atomic int in_handler;        /* handlers at work: ticker_leave waits for 0 */
  volatile sig_atomic_t pending; /* a tick nobody has taken yet */
  _Atomic uint64_t period;       /* ns */
  int signal;                    /* its number */
  bool was_blocked;              /* the host blocks that signal on this thread; blocked again at the end */
  uint64_t last_sample;          /* thread CPU time, ns */
  uint64_t arm_cost;             /* ns of CPU time a handler takes, on average */
  uint64_t sample_cost;          /* ns of CPU time a sample takes, on average */
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
static bool
    handler_stays; /* a signal of ours may be pending on a thread we cannot drain, for as long as it blocks it */
static unsigned active_count;
static int set_up_error;     /* errno of what set_up could not get */
static uint64_t kernel_tick; /* ns: 4 ms where CONFIG_HZ is 250 */

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
}

/* -- the handler ----------------------------------------------------------------------------------------- */

/* A moving average: the first sight of a function costs much, but once, and must not silence the ticker. */
static void follow(uint64_t *average, uint64_t nanos) {
  *average = *average - *average / 8 + nanos / 8;
}

static void set_timer(ticker_t *ticker) {
  uint64_t gap = random_jitter(&ticker->random, atomic_load(&ticker->period));
  gap = gap > kernel_tick / 2 ? gap - kernel_tick / 2
                              : 1; /* CPU timers fire at the kernel's next tick, half one late */
  uint64_t least = (ticker->arm_cost + ticker->sample_cost) * MAX_SHARE;
  if (gap < least) gap = least;
  struct itimerspec when = {.it_value = {(time_t)(gap / 1000000000u), (long)(gap % 1000000000u)}};
  timer_settime(ticker->timer, 0, &when, NULL); /* async-signal-safe by POSIX */
}

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)number;
  ticker_t *ticker = info->si_value.sival_ptr;
  /* Only the kernel's timers say SI_TIMER; the pointer must be one of ours all the same. */
  if (info->si_code != SI_TIMER || ticker < tickers || ticker >= tickers + MAX_THREADS) return;
  int saved_errno = errno;
  atomic_fetch_add(&ticker->in_handler, 1);
  /* A thread that blocked signals may get the tick of a ticker long ended, whose slot is another thread's now. */
  if (atomic_load(&ticker->tid) == this_thread()) {
    uint64_t start = time_thread_cpu(); /* not the wall clock: a handler that was preempted cost nothing */
    ticker->pending = 1;
    for (tick_listener_t *l = atomic_load(&ticker->listeners); l != NULL; l = atomic_load(&l->next))
      l->on_tick(l, context);
    follow(&ticker->arm_cost, time_thread_cpu() - start);
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
  follow(&ticker->sample_cost, nanos);
}

int ticker_signal(void) {
  return signal_number;
}

/* -- starting and ending: under the lock ----------------------------------------------------------------- */

typedef struct {
  sigset_t mask; /* of the host's thread */
  int cancel;    /* its cancellation state */
} critical_t;

/* No handler runs on this thread while it holds the lock: ours must not see a list half-changed, and one of the
 * host's might fork, which takes the lock. Nor is the thread cancelled with it (sigtimedwait is a cancellation
 * point). */
static void enter_critical(critical_t *critical) {
  sigset_t all;
  sigfillset(&all);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &critical->cancel);
  pthread_sigmask(SIG_BLOCK, &all, &critical->mask);
  pthread_mutex_lock(&lock);
}

static void leave_critical(const critical_t *critical) {
  pthread_mutex_unlock(&lock);
  pthread_sigmask(SIG_SETMASK, &critical->mask, NULL);
  pthread_setcancelstate(critical->cancel, NULL);
}

static int free_signal(void) {
  for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL) return number;
  }
  return 0;
}

/* False also when the host has put a handler of its own in the place of ours. */
static bool handler_is_ours(void) {
  struct sigaction now;
  return handler_installed && sigaction(signal_number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
         now.sa_sigaction == on_signal;
}

static bool install_handler(failure_t *failure) {
  if (handler_is_ours()) return true;
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

static void remove_handler_if_last(void) {
  if (active_count > 0 || handler_stays) return;
  if (handler_is_ours()) sigaction(signal_number, &old_action, NULL);
  handler_installed = false;
}

/* The signal of a deleted timer may still be queued for this thread, which blocks it here: it is taken out
 * before the old disposition (to die of it) can come back. */
static void drain_signal(int number) {
  sigset_t set;
  siginfo_t info;
  struct timespec none = {0, 0};
  sigemptyset(&set);
  sigaddset(&set, number);
  while (sigtimedwait(&set, &info, &none) > 0) {
  }
}

static void end_ticker(ticker_t *ticker, critical_t *critical) {
  pid_t tid = atomic_load(&ticker->tid);
  timer_delete(ticker->timer);
  if (tid == this_thread()) {
    drain_signal(ticker->signal);
    if (ticker->was_blocked) sigaddset(&critical->mask, ticker->signal);
    pthread_setspecific(own_ticker, NULL);
  } else if (tid != THREAD_GONE) {
    handler_stays = true;
  }
  atomic_store(&ticker->listeners, NULL);
  atomic_store(&ticker->tid, 0);
  active_count--;
  remove_handler_if_last();
}

/* The thread ends: its listeners keep their (now silent) ticker until they leave, so the slot is freed only
 * when empty. */
static void on_thread_exit(void *value) {
  ticker_t *ticker = value;
  critical_t critical;
  enter_critical(&critical);
  if (atomic_load(&ticker->tid) != this_thread()) {
    /* ended from another thread meanwhile; the slot may be somebody else's */
  } else if (atomic_load(&ticker->listeners) == NULL) {
    end_ticker(ticker, &critical);
  } else {
    struct itimerspec never = {0};
    timer_settime(ticker->timer, 0, &never, NULL);
    drain_signal(ticker->signal);
    atomic_store(&ticker->tid, THREAD_GONE); /* thread numbers are reused */
  }
  leave_critical(&critical);
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
  handler_stays = false; /* pending signals do not pass either */
  pthread_setspecific(own_ticker, NULL);
  pthread_mutex_unlock(&lock);
}

static void set_up(void) {
  struct timespec tick;
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0) kernel_tick = (uint64_t)tick.tv_nsec;
  set_up_error = pthread_key_create(&own_ticker, on_thread_exit); /* a host may have used up all keys */
  if (set_up_error == 0) set_up_error = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
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
    remove_handler_if_last();
    return NULL;
  }
  atomic_store(&ticker->period, 1000000000u / hz);
  ticker->signal = signal_number;
  ticker->was_blocked = false;
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

/* The ticker of this thread, NULL when it has none, or when another thread has ended it. */
static ticker_t *existing_ticker(void) {
  ticker_t *ticker = pthread_getspecific(own_ticker);
  return ticker != NULL && atomic_load(&ticker->tid) == this_thread() ? ticker : NULL;
}

bool ticker_join(tick_listener_t *listener, unsigned hz, uint64_t seed, failure_t *failure) {
  pthread_once(&once, set_up);
  if (set_up_error != 0)
    return failure_set(failure, "the cpu clock cannot be set up: %s; use cpu_clock = \"instructions\"",
                       strerror(set_up_error));
  critical_t critical;
  enter_critical(&critical);
  ticker_t *ticker = existing_ticker();
  if (ticker == NULL) ticker = start_ticker(hz, seed, failure);
  if (ticker != NULL) {
    if (1000000000u / hz < atomic_load(&ticker->period)) { /* the fastest listener sets the pace */
      atomic_store(&ticker->period, 1000000000u / hz);
      set_timer(ticker); /* the gap under way may be a slow one's */
    }
    if (sigismember(&critical.mask, ticker->signal) == 1) { /* blocked, it would never tick */
      ticker->was_blocked = true;
      sigdelset(&critical.mask, ticker->signal);
    }
    listener->ticker = ticker;
    listener->hz = hz;
    atomic_store(&listener->next, atomic_load(&ticker->listeners));
    atomic_store(&ticker->listeners, listener);
  }
  leave_critical(&critical);
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
  critical_t critical;
  enter_critical(&critical); /* so that a handler at work, if any, is another thread's */
  unlink_listener(ticker, listener);
  while (atomic_load(&ticker->in_handler) > 0) sched_yield();
  listener->ticker = NULL;
  if (atomic_load(&ticker->tid) != 0) { /* 0: after a fork, the timer is the parent's */
    if (atomic_load(&ticker->listeners) == NULL)
      end_ticker(ticker, &critical);
    else
      atomic_store(&ticker->period, shortest_period(ticker));
  }
  leave_critical(&critical);
}

void ticker_without_fork(void (*work)(void *context), void *context) {
  critical_t critical;
  pthread_once(&once, set_up);
  enter_critical(&critical);
  work(context);
  leave_critical(&critical);
}
