/* SPDX-License-Identifier: MIT */
/* Deciding which Lua it is; see runtime.h. */
#include "attach/runtime.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/clock.h"
#include "attach/runtime_check.h"
#include "attach/target_file.h"
#include "profile/mem.h"

/* A thread may be stopped where its frames are being made: then it is looked at again, a little later. */
enum { ATTEMPTS = 6, PAUSE_US = 1500 };
enum { OBJECTS_NS = 5 * 1000000 /* of a hold may go by with following the lists of objects of idle VMs */ };

typedef struct {
  const layout_t *layout;
  size_t runtime; /* whose claim it serves */
  const char *origin;
} candidate_t;

typedef struct {
  target_t *target;
  runtimes_t *all;
  const runtime_options_t *options;
  candidate_t candidates[VMS_LAYOUTS];
  size_t count;
  check_long_t *too_long; /* for each candidate */
  int64_t until;          /* when enough of this hold has gone by */
} choice_t;

/* -- candidates -------------------------------------------------------------------------------------------------- */

static bool is_for(const runtime_t *runtime, const layout_t *layout) {
  if (runtime->ident.text[0] == '\0') return true;
  return layout->family == runtime->ident.family && layout->language == runtime->ident.language;
}

static void add(choice_t *choice, const layout_t *layout, size_t runtime, const char *origin) {
  if (choice->count < VMS_LAYOUTS)
    choice->candidates[choice->count++] = (candidate_t){layout, runtime, origin};
}

/* One runtime for each claim of another family or language; one without a claim where only a layout was given. */
static void list_runtimes(choice_t *choice) {
  runtimes_t *all = choice->all;
  const idents_t *idents = &choice->target->idents;
  for (size_t i = 0; i < idents->count; i++) {
    const ident_t *ident = &idents->idents[i];
    bool known = false;
    for (size_t k = 0; k < all->count; k++)
      known |= all->runtimes[k].ident.family == ident->family &&
               all->runtimes[k].ident.language == ident->language;
    if (!known && all->count < RUNTIMES_MAX) all->runtimes[all->count++].ident = *ident;
  }
  if (all->count == 0 && choice->options->given != NULL) all->count = 1;
}

/* What the debug information of the file says that the claim stands in. The process runs meanwhile. */
static const layout_t *add_by_debug(choice_t *choice, size_t i) {
  runtime_t *runtime = &choice->all->runtimes[i];
  const map_t *map = maps_find(&choice->target->maps, runtime->ident.at);
  layout_t *room = &choice->all->from_debug[i];
  failure_t why_not = {""};
  char path[32];
  if (choice->options->from_debug == NULL || map == NULL) return NULL;
  int fd = target_file_open_mapped(map, choice->target->process.pid);
  if (fd < 0) return NULL;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const layout_t *layout = choice->options->from_debug(path, room, &why_not);
  close(fd);
  snprintf(runtime->not_by_debug, sizeof runtime->not_by_debug, "%s", why_not.text);
  if (layout == NULL || !is_for(runtime, layout)) return NULL;
  if (layout == room) /* the file may be known by a number only */
    snprintf(room->name, sizeof room->name, "%s", runtime->ident.text);
  add(choice, layout, i,
      layout == room ? "by the debug information of its file"
                     : "known to LuaPulse, and that of its file's debug information");
  return layout;
}

static void list_candidates(choice_t *choice) {
  const layout_t *known;
  for (size_t i = 0; i < choice->all->count; i++) {
    const runtime_t *runtime = &choice->all->runtimes[i];
    const layout_t *given = choice->options->given;
    if (given != NULL && is_for(runtime, given)) {
      add(choice, given, i, choice->options->given_name);
      continue; /* who gives one wants that one */
    }
    if (runtime->ident.text[0] == '\0') continue;
    const layout_t *by_debug = add_by_debug(choice, i);
    for (size_t k = 0; (known = layout_known(k)) != NULL; k++)
      if (is_for(runtime, known) && known != by_debug) add(choice, known, i, "known to LuaPulse");
  }
}

/* -- trying ---------------------------------------------------------------------------------------------------------- */

/* `weak`: it says less than what was said before. */
static void note_tried(runtime_t *runtime, const layout_t *layout, const char *why, bool weak) {
  for (size_t i = 0; i < runtime->tried_count; i++)
    if (strcmp(runtime->tried[i].name, layout->name) == 0) {
      if (!weak || strncmp(runtime->tried[i].why, "no VM", 5) == 0)
        snprintf(runtime->tried[i].why, sizeof runtime->tried[i].why, "%s", why);
      return;
    }
  if (runtime->tried_count == RUNTIME_TRIED) return;
  runtime_tried_t *tried = &runtime->tried[runtime->tried_count++];
  snprintf(tried->name, sizeof tried->name, "%s", layout->name);
  snprintf(tried->why, sizeof tried->why, "%s", why);
}

/* What is tried in turn, each with all layouts: what runs tells more than what lies in memory. */
typedef enum { TRY_STRICTLY, TRY_LENIENTLY, TRY_MEMORY } try_t;

static size_t seen_with(const vms_seen_t *seen, size_t layout, uint64_t *mains) {
  size_t count = 0;
  for (size_t i = 0; i < seen->count; i++)
    if (seen->found[i].layout == layout) mains[count++] = seen->found[i].main;
  return count;
}

static void try_layout(choice_t *choice, const candidate_t *candidate, size_t index, try_t how,
                       bool patient) {
  runtime_t *runtime = &choice->all->runtimes[candidate->runtime];
  static uint64_t mains[VMS_CANDIDATES]; /* too large for a stack */
  size_t main_count = seen_with(choice->all->seen, index, mains);
  runtime->vms->count = 0;
  check_t check = {.target = choice->target,
                   .layout = candidate->layout,
                   .strict = how != TRY_LENIENTLY,
                   .patient = patient,
                   .vms = runtime->vms,
                   .too_long = &choice->too_long[index],
                   .until = choice->until};
  if (how == TRY_MEMORY ? !check_in_memory(&check, mains, main_count) : !check_running(&check)) {
    note_tried(runtime, candidate->layout, check.why, how == TRY_MEMORY && main_count == 0);
    return;
  }
  runtime->layout = candidate->layout;
  runtime->origin = candidate->origin;
  runtime->vm_low = check.vm_low;
  runtime->vm_high = check.vm_high;
  runtime->idle = how == TRY_MEMORY;
  snprintf(runtime->why, sizeof runtime->why, "%s", check.why);
  target_aim(choice->target, candidate->layout, NULL);
  for (size_t i = 0; i < main_count; i++) {
    uint64_t global;
    if (vms_check_main(choice->target, mains[i], &global)) vms_add(runtime->vms, global, mains[i], 0);
  }
}

static void try_all(choice_t *choice, try_t how, bool patient) {
  choice->until = clock_now() + OBJECTS_NS;
  for (size_t i = 0; i < choice->count; i++) {
    const candidate_t *candidate = &choice->candidates[i];
    if (choice->all->runtimes[candidate->runtime].layout == NULL)
      try_layout(choice, candidate, i, how, patient);
  }
}

bool runtimes_any(const runtimes_t *all) {
  for (size_t i = 0; i < all->count; i++)
    if (all->runtimes[i].layout != NULL) return true;
  return false;
}

/* What was decided before may have to be looked at again: VMs and stacks are those of one hold. */
static void forget_decisions(runtimes_t *all) {
  for (size_t i = 0; i < all->count; i++) all->runtimes[i].layout = NULL;
}

static bool hold_and_try(choice_t *choice, failure_t *failure) {
  for (int attempt = 1;; attempt++) {
    struct timespec pause = {0, (long)attempt * PAUSE_US * 1000};
    forget_decisions(choice->all);
    if (!target_hold(choice->target, failure)) return false;
    bool last = attempt == ATTEMPTS;
    try_all(choice, TRY_STRICTLY, last);
    if (!runtimes_any(choice->all)) try_all(choice, TRY_LENIENTLY, last);
    if (!runtimes_any(choice->all)) try_all(choice, TRY_MEMORY, last);
    if (runtimes_any(choice->all) || last || choice->count == 0) return true;
    target_release(choice->target);
    nanosleep(&pause, NULL);
    for (size_t i = 0; i < choice->count; i++)
      check_follow(choice->target, choice->candidates[i].layout, &choice->too_long[i]);
  }
}

static void look_for_vms(choice_t *choice) {
  const layout_t *layouts[VMS_LAYOUTS];
  for (size_t i = 0; i < choice->count; i++) layouts[i] = choice->candidates[i].layout;
  vms_look(choice->target, layouts, choice->count, choice->all->seen);
}

bool runtimes_decide(runtimes_t *all, target_t *target, const runtime_options_t *options,
                     failure_t *failure) {
  choice_t choice = {.target = target, .all = all, .options = options};
  memset(all, 0, sizeof *all);
  all->seen = mem_alloc(sizeof *all->seen);
  for (size_t i = 0; i < RUNTIMES_MAX; i++) all->runtimes[i].vms = mem_alloc(sizeof *all->runtimes[i].vms);
  for (size_t i = 0; i < RUNTIMES_MAX; i++)
    if (all->runtimes[i].vms == NULL || all->seen == NULL) return failure_set(failure, "out of memory");
  list_runtimes(&choice);
  if (all->count == 0) return true; /* nothing to look for: it runs on */
  list_candidates(&choice);
  look_for_vms(&choice);
  choice.too_long = mem_alloc(VMS_LAYOUTS * sizeof *choice.too_long);
  if (choice.too_long == NULL) return failure_set(failure, "out of memory");
  bool ok = hold_and_try(&choice, failure);
  mem_free(choice.too_long);
  return ok;
}

void runtimes_look_again(runtimes_t *all, target_t *target) {
  vms_seen_t *seen = mem_alloc(sizeof *seen);
  failure_t ignored; /* it has ended */
  if (seen == NULL || !target_map(target, &ignored)) {
    mem_free(seen);
    return;
  }
  for (size_t i = 0; i < all->count; i++) {
    runtime_t *runtime = &all->runtimes[i];
    uint64_t global;
    if (runtime->layout == NULL || runtime->vms == NULL) continue;
    vms_look(target, &runtime->layout, 1, seen);
    target_aim(target, runtime->layout, NULL);
    vms_drop_closed(target, runtime->vms);
    for (size_t k = 0; k < seen->count; k++)
      if (vms_check_main(target, seen->found[k].main, &global))
        vms_add(runtime->vms, global, seen->found[k].main, 0);
  }
  mem_free(seen);
}

void runtimes_free(runtimes_t *all) {
  for (size_t i = 0; i < RUNTIMES_MAX; i++) mem_free(all->runtimes[i].vms);
  mem_free(all->seen);
  memset(all, 0, sizeof *all);
}

void runtimes_trim(runtimes_t *all) {
  for (size_t i = 0; i < RUNTIMES_MAX; i++) {
    if (all->runtimes[i].layout != NULL) continue;
    mem_free(all->runtimes[i].vms);
    all->runtimes[i].vms = NULL;
  }
  mem_free(all->seen);
  all->seen = NULL;
}

void runtimes_say_none(const runtimes_t *runtimes, const target_t *target, failure_t *failure) {
  const process_t *process = &target->process;
  const idents_t *idents = &target->idents;
  if (idents->count == 0 && runtimes->count == 0) {
    failure_set(failure,
                "no Lua in process %d (%s): none of the %zu files mapped there has the mark of one (%.1f MiB "
                "looked through%s)",
                (int)process->pid, process->name, idents->images, (double)idents->bytes / 1048576,
                idents->cut ? ", not all" : "");
    return;
  }
  const runtime_t *runtime = &runtimes->runtimes[0];
  const char *why = runtime->tried_count > 0 ? runtime->tried[0].why : "no layout is known for it";
  for (size_t i = 0; i < runtime->tried_count; i++) /* what came nearest says most */
    if (strncmp(why, "no VM", 5) == 0) why = runtime->tried[i].why;
  failure_set(failure, "no Lua that can be read in process %d (%s): %s is mapped there, but %s%s",
              (int)process->pid, process->name,
              runtime->ident.text[0] != '\0' ? runtime->ident.text : "nothing known", why,
              strstr(why, "no VM was found") != NULL
                  ? ""
                  : "; `luapulse layout` makes a layout for a build that is not known");
}
