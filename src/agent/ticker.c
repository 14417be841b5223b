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

#include "agent/kernel_time.h"
#include "agent/perf_clock.h"
#include "agent/seccomp.h"
#include "agent/tick_event.h"
#include "agent/tick_signal.h"
#include "agent/tick_weight.h"
#include "agent/time.h"
#include "agent/undrained.h"
#include "profile/random.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
  MAX_THREADS = 1024,
  MAX_SHARE = 50, /* a sample may cost 1/50 of the time */
  COST_TICKS = 4, /* so many ticks to one whose cost is measured, by a system call */
  /* beside an event the timer is for kernel time, and need not be as fast: one tick in four, but within these bounds, ns */
  LEAST_KERNEL_PERIOD = 10000000,
  MOST_KERNEL_PERIOD = 40000000
};

/* The tid of a ticker whose thread ended while VMs still listened: silent, but taken until they leave. */
#define THREAD_GONE ((pid_t)-1)

struct ticker {
  timer_t timer;
  tick_event_t event;     /* what ticks in user time, when it does; else the timer ticks for all time */
  _Atomic pid_t tid;      /* 0: free */
  _Atomic uintptr_t self; /* pthread_self() of that thread, as soon as a tick has come to it; else 0 */
  _Atomic(tick_listener_t *) listeners;
  _Atomic int in_handler;        /* handlers at work: ticker_leave waits for 0 */
  volatile sig_atomic_t pending; /* the kind of a tick that nobody has taken yet */
  _Atomic uint64_t period;       /* ns */
  int signal;                    /* its number */
  bool held;                     /* its clock is stopped … */
  struct itimerspec left;        /* … with so much left */
  bool was_blocked;              /* the host blocks that signal on this thread; blocked again at the end */
  bool perf_was_blocked;         /* … and the events' */
  uint64_t tick_time;            /* thread CPU time of the pending tick, ns */
  tick_weight_t weight;
  unsigned untimed;     /* ticks since one whose cost was measured */
  uint64_t arm_cost;    /* ns of CPU time a handler takes, on average */
  uint64_t sample_cost; /* ns of CPU time a sample takes, on average */
  random_t random;
};

static void on_signal(int number, siginfo_t *info, void *context);
static void on_perf_signal(int number, siginfo_t *info, void *context);

/* Never unmapped nor freed: a signal may still be on its way when its ticker ends. */
static ticker_t tickers[MAX_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* starting and ending; never taken in the handler */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t own_ticker; /* ticker_t * of the thread, ended with it */
static tick_signal_t timers = {.handler = on_signal}, events = {.handler = on_perf_signal};
static unsigned active_count;
static _Atomic unsigned highest; /* tickers from here on were never used */
static int set_up_error;         /* errno of what set_up could not get */
static uint64_t kernel_tick;     /* ns: 4 ms where CONFIG_HZ is 250 */

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
}

/* -- the handler ----------------------------------------------------------------------------------------- */

/* A moving average: the first sight of a function costs much, but once, and must not silence the ticker. */
static void follow(uint64_t *average, uint64_t nanos) {
  *average = *average - *average / 8 + nanos / 8;
}

static uint64_t least_gap(const ticker_t *ticker) {
  return (ticker->arm_cost + ticker->sample_cost) * MAX_SHARE;
}

static uint64_t next_gap(ticker_t *ticker, uint64_t period) {
  uint64_t gap = random_jitter(&ticker->random, period), least = least_gap(ticker);
  return gap < least ? least : gap;
}

static void set_event(ticker_t *ticker) {
  tick_event_set(&ticker->event, next_gap(ticker, atomic_load(&ticker->period)));
}

static uint64_t timer_period(const ticker_t *ticker) {
  uint64_t period = atomic_load(&ticker->period), slower = 4 * period;
  if (!tick_event_ticks(&ticker->event) || period >= MOST_KERNEL_PERIOD) return period;
  if (slower < LEAST_KERNEL_PERIOD) return LEAST_KERNEL_PERIOD;
  return slower < MOST_KERNEL_PERIOD ? slower : MOST_KERNEL_PERIOD;
}

static uint64_t next_timer_gap(ticker_t *ticker) {
  return next_gap(ticker, timer_period(ticker));
}

static void set_timer(ticker_t *ticker, uint64_t gap) {
  gap = gap > kernel_tick / 2 ? gap - kernel_tick / 2
                              : 1; /* CPU timers fire at the kernel's next tick, half one late */
  struct itimerspec when = {.it_value = {(time_t)(gap / 1000000000u), (long)(gap % 1000000000u)}};
  timer_settime(ticker->timer, 0, &when, NULL); /* async-signal-safe by POSIX */
}

/* An event that ticks no more, while its thread runs, was closed by the host: the timer goes on alone. */
static bool event_is_lost(const ticker_t *ticker, uint64_t now) {
  return now - ticker->event.last > 50 * atomic_load(&ticker->period) + 1000000000u;
}

static int kind_of_timer_tick(ticker_t *ticker, uint64_t now, const void *context) {
  tick_weight_timer_ticked(&ticker->weight, now);
  if (!tick_event_ticks(&ticker->event)) return ANY_TICK;
  if (kernel_time_ended(context)) return KERNEL_TICK;
  if (event_is_lost(ticker, now) || !tick_signal_is_ours(&events))
    tick_event_give_up(&ticker->event);
  else if (now - ticker->event.last > 4 * ticker->event.gap + LEAST_KERNEL_PERIOD)
    set_event(
        ticker); /* ticks that came while the thread blocked the signal were one signal, and the event has stopped */
  return NO_TICK; /* user time is the event's */
}

static void set_event_going(ticker_t *ticker, uint64_t now) {
  ticker->event.last = now;
  if (tick_event_ticks(&ticker->event))
    set_event(ticker);
  else
    tick_event_stand_by(&ticker->event);
}

/* Rates above the kernel's tick are the event's in any case: the timer cannot give them. */
static void follow_thread(ticker_t *ticker, uint64_t now) {
  if (ticker->held) return;
  if (!tick_event_follow(&ticker->event, atomic_load(&ticker->period) < kernel_tick, now)) return;
  if (tick_signal_is_ours(&events))
    set_event_going(ticker, now);
  else
    tick_event_give_up(&ticker->event);
}

static void tell_listeners(ticker_t *ticker, int kind, uint64_t start, const void *context) {
  ticker->pending = kind;
  ticker->tick_time = start;
  for (tick_listener_t *l = atomic_load(&ticker->listeners); l != NULL; l = atomic_load(&l->next))
    l->on_tick(l, context);
  if (++ticker->untimed < COST_TICKS) return;
  ticker->untimed = 0;
  follow(&ticker->arm_cost, time_thread_cpu() - start);
}

static ticker_t *ticker_of(pid_t tid) {
  unsigned limit = atomic_load(&highest);
  for (unsigned i = 0; i < limit; i++)
    if (atomic_load_explicit(&tickers[i].tid, memory_order_relaxed) == tid) return &tickers[i];
  return NULL;
}

/* Mostly told without a system call. */
static bool is_of_this_thread(const ticker_t *ticker) {
  return atomic_load(&ticker->self) == (uintptr_t)pthread_self() ||
         atomic_load(&ticker->tid) == this_thread();
}

static ticker_t *ticker_here(void) {
  unsigned limit = atomic_load(&highest);
  for (unsigned i = 0; i < limit; i++)
    if (atomic_load_explicit(&tickers[i].self, memory_order_relaxed) == (uintptr_t)pthread_self())
      return &tickers[i];
  return ticker_of(this_thread());
}

/* A thread that blocked signals may get the tick of a ticker long ended, whose slot is another thread's now. */
static bool enter_handler(ticker_t *ticker) {
  atomic_fetch_add(&ticker->in_handler, 1);
  if (!is_of_this_thread(ticker)) return false;
  atomic_store(&ticker->self, (uintptr_t)pthread_self()); /* it stays this thread's until the handler ends */
  return true;
}

static void leave_handler(ticker_t *ticker) {
  atomic_fetch_sub(&ticker->in_handler, 1);
}

static void on_event(ticker_t *ticker, const void *context) {
  int did = atomic_load(&ticker->event.does);
  if (did != EVENT_TICKS && did != EVENT_WATCHES) return;
  uint64_t now = time_thread_cpu(); /* not the wall clock: a handler that was preempted cost nothing */
  tick_event_heard(&ticker->event, now);
  if (did == EVENT_TICKS) {
    tell_listeners(ticker, USER_TICK, now, context);
    if (ticker->event.ticks == 0 || ticker->event.gap < least_gap(ticker)) set_event(ticker);
  }
  follow_thread(ticker, now);
  if (did == EVENT_WATCHES && atomic_load(&ticker->event.does) == EVENT_WATCHES)
    tick_event_look_later(&ticker->event);
}

static void on_perf_signal(int number, siginfo_t *info, void *context) {
  (void)number;
  int saved_errno = errno;
  ticker_t *ticker = ticker_here();
  if (ticker != NULL && info->si_code != SI_USER && info->si_code != SI_QUEUE) {
    if (enter_handler(ticker)) on_event(ticker, context);
    leave_handler(ticker);
  }
  errno = saved_errno;
}

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)number;
  ticker_t *ticker = info->si_value.sival_ptr;
  /* Only the kernel's timers say SI_TIMER; the pointer must be one of ours all the same. */
  if (info->si_code != SI_TIMER || ticker < tickers || ticker >= tickers + MAX_THREADS) return;
  int saved_errno = errno;
  if (enter_handler(ticker)) {
    uint64_t now = time_thread_cpu();
    int kind = kind_of_timer_tick(ticker, now, context);
    if (kind != NO_TICK) tell_listeners(ticker, kind, now, context);
    follow_thread(ticker, now);
    set_timer(ticker, next_timer_gap(ticker));
  }
  leave_handler(ticker);
  errno = saved_errno;
}

bool ticker_take_here(ticker_t *ticker, uint64_t not_before, uint64_t *weight) {
  int kind = ticker->pending;
  ticker->pending = NO_TICK;
  if (kind != NO_TICK)
    *weight = tick_weigh(&ticker->weight, (tick_kind_t)kind, ticker->tick_time, not_before);
  return kind != NO_TICK;
}

tick_take_t ticker_take(ticker_t *ticker, uint64_t not_before, uint64_t *weight) {
  if (!is_of_this_thread(ticker)) return TICK_OTHER_THREAD;
  if (ticker->pending == NO_TICK) return TICK_NONE;
  ticker->pending = NO_TICK;
  /* ticks may have come and gone since: whatever they were of, this sample stands for all the time up to now */
  *weight = tick_weigh(&ticker->weight, ANY_TICK, time_thread_cpu(), not_before);
  return TICK_TAKEN;
}

void ticker_cost(ticker_t *ticker, uint64_t nanos) {
  follow(&ticker->sample_cost, nanos);
}

int ticker_signal(void) {
  return timers.number;
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

static bool install_handler(failure_t *failure) {
  if (tick_signal_is_ours(&timers)) return true;
  int number = tick_signal_free();
  if (number == 0)
    return failure_set(failure,
                       "the program handles every real-time signal, so the cpu clock has none to tick with; "
                       "use cpu_clock = \"instructions\"");
  return tick_signal_install(&timers, number) ||
         failure_set(failure, "cannot handle signal %d: %s", number, strerror(errno));
}

/* Without it the timers serve alone. */
static void install_event_handler(void) {
  int number = events.installed || seccomp_is_active() ? 0 : perf_clock_signal();
  if (number != 0) tick_signal_install(&events, number);
}

static void remove_handler_if_last(void) {
  if (active_count > 0 || undrained_any()) return;
  tick_signal_remove(&timers);
  tick_signal_remove(&events);
}

static void set_thread(ticker_t *ticker, pid_t tid) {
  atomic_store(&ticker->self, 0);
  atomic_store(&ticker->tid, tid);
}

static void end_ticker(ticker_t *ticker, critical_t *critical) {
  pid_t tid = atomic_load(&ticker->tid);
  tick_event_give_up(&ticker->event);
  timer_delete(ticker->timer);
  tick_event_close(&ticker->event);
  if (tid == this_thread()) {
    tick_signal_drain(ticker->signal);
    if (events.installed) tick_signal_drain(events.number);
    if (ticker->was_blocked) sigaddset(&critical->mask, ticker->signal);
    if (ticker->perf_was_blocked && events.installed) sigaddset(&critical->mask, events.number);
    pthread_setspecific(own_ticker, NULL);
    undrained_remove(tid);
  } else if (tid != THREAD_GONE) {
    undrained_add(tid);
  }
  atomic_store(&ticker->listeners, NULL);
  set_thread(ticker, 0);
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
    tick_event_give_up(&ticker->event);
    timer_settime(ticker->timer, 0, &never, NULL);
    tick_event_close(&ticker->event);
    tick_signal_drain(ticker->signal);
    if (events.installed) tick_signal_drain(events.number);
    set_thread(ticker, THREAD_GONE); /* thread numbers are reused */
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
    if (atomic_load(&tickers[i].tid) != 0) tick_event_close_copy(&tickers[i].event);
    tick_event_clear(&tickers[i].event);
    set_thread(&tickers[i], 0);
    atomic_store(&tickers[i].listeners, NULL);
    atomic_store(&tickers[i].in_handler, 0);
    tickers[i].pending = 0;
  }
  active_count = 0;
  undrained_clear();
  pthread_setspecific(own_ticker, NULL);
  pthread_mutex_unlock(&lock);
}

static void set_up(void) {
  struct timespec tick;
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0) kernel_tick = (uint64_t)tick.tv_nsec;
  set_up_error = pthread_key_create(&own_ticker, on_thread_exit); /* a host may have used up all keys */
}

int ticker_guard_forks(void) {
  return pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* On the ticker's own thread, with its signals blocked, or before its first tick. At rates that the timer can give the event is
 * there to watch. */
static void open_event(ticker_t *ticker, pid_t tid) {
  tick_event_t *event = &ticker->event;
  if (atomic_load(&event->fd) < 0 && tick_signal_is_ours(&events)) tick_event_open(event, tid, events.number);
  if (atomic_load(&event->does) != NO_EVENT && atomic_load(&ticker->period) < kernel_tick)
    atomic_store(&event->does, EVENT_TICKS);
}

/* Likewise. */
static void start_clocks(ticker_t *ticker, pid_t tid) {
  uint64_t gap = next_timer_gap(ticker); /* now: from the first tick on the ticker is the handler's */
  set_event_going(ticker, time_read(time_thread_clock(tid)));
  set_timer(ticker, gap);
}

static ticker_t *start_ticker(pid_t tid, unsigned hz, uint64_t seed, failure_t *failure) {
  ticker_t *ticker = tickers;
  while (ticker < tickers + MAX_THREADS && atomic_load(&ticker->tid) != 0) ticker++;
  if (ticker == tickers + MAX_THREADS) {
    failure_set(failure, "%d threads are being profiled already, which is the limit", MAX_THREADS);
    return NULL;
  }
  if (!install_handler(failure)) return NULL;
  install_event_handler();
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = timers.number};
  event.sigev_value.sival_ptr = ticker;
  event.sigev_notify_thread_id = tid;
  if (timer_create(time_thread_clock(tid), &event, &ticker->timer) != 0) {
    failure_set(failure, "no timer for the cpu clock: %s; use cpu_clock = \"instructions\"", strerror(errno));
    remove_handler_if_last();
    return NULL;
  }
  atomic_store(&ticker->period, 1000000000u / hz);
  ticker->signal = timers.number;
  ticker->was_blocked = ticker->held = false;
  ticker->random.state = seed;
  ticker->pending = 0;
  tick_weight_begin(&ticker->weight, time_read(time_thread_clock(tid)));
  ticker->arm_cost = ticker->sample_cost = ticker->untimed = 0;
  ticker->perf_was_blocked = false;
  tick_event_clear(&ticker->event);
  open_event(ticker, tid);
  if ((unsigned)(ticker - tickers) >= atomic_load(&highest))
    atomic_store(&highest, (unsigned)(ticker - tickers) + 1);
  set_thread(ticker, tid);
  active_count++;
  start_clocks(ticker, tid);
  return ticker;
}

bool ticker_join(tick_listener_t *listener, unsigned hz, uint64_t seed, failure_t *failure) {
  return ticker_join_thread(listener, this_thread(), hz, seed, failure);
}

bool ticker_join_thread(tick_listener_t *listener, pid_t tid, unsigned hz, uint64_t seed,
                        failure_t *failure) {
  pthread_once(&once, set_up);
  if (set_up_error != 0)
    return failure_set(failure, "the cpu clock cannot be set up: %s; use cpu_clock = \"instructions\"",
                       strerror(set_up_error));
  critical_t critical;
  enter_critical(&critical);
  ticker_t *ticker = ticker_of(tid);
  bool own = tid == this_thread();
  if (ticker == NULL) ticker = start_ticker(tid, hz, seed, failure);
  if (ticker != NULL) {
    if (own) pthread_setspecific(own_ticker, ticker);      /* so that it ends with the thread */
    if (1000000000u / hz < atomic_load(&ticker->period)) { /* the fastest listener sets the pace */
      atomic_store(&ticker->period, 1000000000u / hz);
      if (own) {
        open_event(ticker, tid);
        start_clocks(ticker, tid); /* the gaps under way may be a slow one's */
      }
    }
    if (own && sigismember(&critical.mask, ticker->signal) == 1) { /* blocked, it would never tick */
      ticker->was_blocked = true;
      sigdelset(&critical.mask, ticker->signal);
    }
    if (own && events.installed && sigismember(&critical.mask, events.number) == 1) {
      ticker->perf_was_blocked = true;
      sigdelset(&critical.mask, events.number);
    }
    listener->ticker = ticker;
    listener->hz = hz;
    atomic_store(&listener->next, atomic_load(&ticker->listeners));
    atomic_store(&ticker->listeners, listener);
  }
  leave_critical(&critical);
  return ticker != NULL;
}

bool ticker_hasten(tick_listener_t *listener, unsigned hz, failure_t *failure) {
  ticker_t *ticker = listener->ticker;
  if (ticker == NULL || atomic_load(&ticker->tid) != this_thread())
    return failure_set(failure, "the clock of this thread has stopped");
  critical_t critical;
  enter_critical(&critical);
  if (hz > listener->hz) listener->hz = hz;
  if (1000000000u / hz < atomic_load(&ticker->period)) {
    atomic_store(&ticker->period, 1000000000u / hz);
    open_event(ticker, this_thread());
    start_clocks(ticker, this_thread());
  }
  leave_critical(&critical);
  return true;
}

ticker_facts_t ticker_facts(const tick_listener_t *listener) {
  ticker_t *ticker = listener->ticker;
  if (ticker == NULL) return (ticker_facts_t){.source = ""};
  ticker_facts_t facts = {.source = "perf",
                          .rate = (unsigned)(1000000000u / atomic_load(&ticker->period)),
                          .cost_ns = (unsigned)(ticker->arm_cost + ticker->sample_cost)};
  if (tick_event_ticks(&ticker->event)) return facts;
  facts.source = "timer";
  if (kernel_tick > 0 && facts.rate > 1000000000u / kernel_tick)
    facts.rate = (unsigned)(1000000000u / kernel_tick);
  return facts;
}

void ticker_hold(tick_listener_t *listener, bool hold) {
  ticker_t *ticker = listener->ticker;
  if (ticker == NULL || atomic_load(&ticker->tid) != this_thread() || ticker->held == hold) return;
  if (atomic_load(&ticker->listeners) != listener || atomic_load(&listener->next) != NULL) return;
  struct itimerspec never = {0};
  if (hold) ticker->held = true; /* from here to the end the event goes on doing what it does */
  tick_event_hold(&ticker->event, hold);
  if (hold) {
    timer_gettime(ticker->timer, &ticker->left);
    timer_settime(ticker->timer, 0, &never, NULL);
  } else {
    if (ticker->left.it_value.tv_sec == 0 && ticker->left.it_value.tv_nsec == 0)
      ticker->left.it_value.tv_nsec = 1;
    ticker->event.last = time_thread_cpu();
    timer_settime(ticker->timer, 0, &ticker->left, NULL);
  }
  ticker->held = hold;
}

bool ticker_is_alive(const tick_listener_t *listener) {
  if (listener->ticker == NULL) return false;
  pid_t tid = atomic_load(&listener->ticker->tid);
  return tid != 0 && tid != THREAD_GONE;
}

/* The thread of a ticker that was joined from elsewhere does not tell when it ends. */
void ticker_mark_gone(tick_listener_t *listener) {
  critical_t critical;
  enter_critical(&critical);
  if (ticker_is_alive(listener)) set_thread(listener->ticker, THREAD_GONE);
  leave_critical(&critical);
}

void ticker_wait_for_handlers(void) {
  for (int i = 0; i < MAX_THREADS; i++) {
    pid_t tid = atomic_load(&tickers[i].tid);
    if (tid == 0 || tid == THREAD_GONE || tid == this_thread()) continue;
    while (atomic_load(&tickers[i].in_handler) > 0 && atomic_load(&tickers[i].tid) == tid) sched_yield();
  }
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
