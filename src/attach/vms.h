/* SPDX-License-Identifier: MIT */
/* The VMs of a process and their coroutines, by a layout.
 *
 * A VM is found on a native stack where it runs, or in writable memory by its main thread: an object that calls itself a thread and
 * belongs to a global_State whose main thread it is. The first needs the process held. The second looks while it runs, for it may take
 * long, and what it found is checked again when held. */
#ifndef LUAPULSE_ATTACH_VMS_H
#define LUAPULSE_ATTACH_VMS_H

#include "attach/target.h"

enum { VMS_MAX = 1024, VMS_CANDIDATES = 4096, VMS_LAYOUTS = 48 };

typedef struct {
  uint64_t global, main;
  pid_t thread; /* on whose native stack it was found, 0: in memory */
  int64_t met;  /* when it was entered: CLOCK_MONOTONIC, ns */
} vm_t;

typedef struct {
  vm_t vms[VMS_MAX];
  size_t count;
} vms_t;

/* Main threads that were seen in memory, each by one of the layouts. */
typedef struct {
  struct {
    uint64_t main;
    uint32_t layout; /* index */
  } found[VMS_CANDIDATES];
  size_t count;
  uint64_t bytes; /* looked through */
  bool cut;       /* there is more memory, or there are more VMs */
} vms_seen_t;

/* Looks through the writable memory of a process that runs. */
void vms_look(target_t *target, const layout_t *const *layouts, size_t count, vms_seen_t *seen);
/* Enters a VM unless it is known; false when there is no room. */
bool vms_add(vms_t *vms, uint64_t global, uint64_t main, pid_t thread);
bool vms_has(const vms_t *vms, uint64_t global);
/* Enters a VM that was made after the others were looked for. False when it is none, or there is no room. target->walk is aimed; the process
 * may run. */
bool vms_meet(target_t *target, vms_t *vms, uint64_t global);
/* Takes out those that were closed. Likewise. */
void vms_drop_closed(target_t *target, vms_t *vms);
/* True when a main thread that was seen still is one, of a VM that was not closed. target->walk is aimed. */
bool vms_check_main(target_t *target, uint64_t main, uint64_t *global);

/* All running coroutines of a thread, VM by VM from the innermost: `vms` counts the call. target->walk has them, and is aimed by
 * layout; skip holds the VMs that were found on this thread before. False when there are no more. */
bool vms_on_thread(target_t *target, const layout_t *layout, const stopped_thread_t *thread, uint64_t vm_low,
                   uint64_t vm_high, const vms_t *known, const uint64_t *skip, size_t skip_count);

typedef enum {
  COROUTINE_RUNNING,   /* at the innermost place of a native stack */
  COROUTINE_NORMAL,    /* has resumed another */
  COROUTINE_SUSPENDED, /* has yielded */
  COROUTINE_FRESH,     /* was made and never resumed */
  COROUTINE_DEAD,      /* has returned */
  COROUTINE_FAILED     /* was ended by an error */
} coroutine_status_t;

/* What the state itself says of one that is on no native stack. False when the layout does not tell. */
bool vms_status(target_t *target, const walk_state_t *state, coroutine_status_t *status);

typedef enum {
  OBJECTS_ALL,
  OBJECTS_UNKNOWN, /* the layout does not say where they are */
  OBJECTS_BROKEN,  /* the list leads nowhere */
  OBJECTS_CUT      /* it is longer than there is time for */
} objects_end_t;

/* Calls `each` for every live object of the VM that is of this type until it returns false. The process is held; else what is seen may be
 * no more, or never have been. */
typedef bool objects_each_t(void *context, uint64_t object);
objects_end_t vms_objects(target_t *target, const layout_t *layout, uint64_t global, uint8_t type,
                          uint64_t *count, objects_each_t *each, void *context);
/* The same, until `end` at most: CLOCK_MONOTONIC, ns. */
objects_end_t vms_objects_until(target_t *target, const layout_t *layout, uint64_t global, uint8_t type,
                                uint64_t *count, objects_each_t *each, void *context, int64_t end);
/* Whether a live object of this type is there, as it was when the list was followed. */
bool vms_is_object(target_t *target, const layout_t *layout, uint64_t global, uint8_t type, uint64_t object);
uint8_t vms_type_thread(const layout_t *layout);
uint8_t vms_type_proto(const layout_t *layout);

#endif
