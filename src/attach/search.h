/* SPDX-License-Identifier: MIT */
/* Every process that has a Lua in it, as far as its files tell: those that run, and those that begin or load one later.
 *
 * Mental model. A program or library has the marks of a Lua (ident.h) or it has not, however many processes map it: each file is read once,
 * and known by its identity from then on. What a process maps is looked at when it is new and then at growing distances, for it may call
 * exec or load a library. That a file has the marks does not say that a VM is there: whoever is told looks for itself. */
#ifndef LUAPULSE_ATTACH_SEARCH_H
#define LUAPULSE_ATTACH_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct search search_t;

search_t *search_new(void); /* NULL when memory is out */
void search_free(search_t *search);

typedef void search_each_t(void *context, pid_t pid);

/* Tells of processes with the marks of a Lua, the same one again after a while; this process is none. The first look goes through all of
 * them, the next do what is due, for some milliseconds at most. */
void search_look(search_t *search, search_each_t *each, void *context);

#endif
