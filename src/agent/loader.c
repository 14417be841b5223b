/* SPDX-License-Identifier: MIT */
/* Questions to the dynamic loader; see loader.h. */
#include "agent/loader.h"

#include "agent/ticker.h"

typedef struct {
  const void *address;
  Dl_info *info;
  bool found;
} find_t;

static void find(void *context) {
  find_t *f = context;
  f->found = dladdr(f->address, f->info) != 0;
}

bool loader_find(const void *address, Dl_info *info) {
  find_t f = {address, info, false};
  ticker_without_fork(find, &f);
  return f.found;
}

typedef struct {
  int (*visit)(struct dl_phdr_info *info, size_t size, void *context);
  void *context;
} visit_t;

static void visit_all(void *context) {
  visit_t *v = context;
  dl_iterate_phdr(v->visit, v->context);
}

void loader_each_image(int (*visit)(struct dl_phdr_info *info, size_t size, void *context), void *context) {
  visit_t v = {visit, context};
  ticker_without_fork(visit_all, &v);
}
