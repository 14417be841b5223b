/* SPDX-License-Identifier: MIT */
/* Searching the tables of a VM for names; see tables.h.
 *
 * The search goes from the best names to worse ones: of all tables that are known and not looked at yet, the one with the best name is
 * next. What a table leads to has a worse name than itself, so that each table is met by its best name first. */
#include "attach/tables.h"

#include <stdio.h>
#include <string.h>

#include "attach/clock.h"
#include "attach/table.h"
#include "attach/table_names.h"
#include "profile/mem.h"

enum {
  CLASS_TABLES = 4096,     /* of one VM and class of names: none takes the place of better or other ones */
  MOST_NODES = 1 << 22,    /* of all of them */
  ROOT_NODES = 1 << 20,    /* of the registry, package.loaded or the globals */
  INNER_NODES = 1 << 14,   /* of another table: what is larger is data */
  ENTRIES = 1 << 14,       /* of a table that lead to functions and tables */
  DEEP = 2,                /* tables below a module or the globals; as from inside */
  VISITED_SLOTS = 1 << 16, /* twice as many as can be, and more */
  ATTEMPTS = 4,
  CHECK_TIME = 1024 /* nodes between two looks at the clock */
};

typedef struct {
  uint64_t table;
  name_class_t class;
  uint8_t deep;
  uint8_t len;
  char prefix[NAME_BYTES]; /* "string.", "file:", "" for the globals */
} waiting_t;

typedef struct {
  table_names_t *names;
  walk_t *walk;
  uint64_t globals; /* 0: not found */
  int64_t deadline;
  waiting_t *waiting; /* a heap: the best is first */
  size_t waiting_count, waiting_room;
  size_t pushed[NAME_CLASSES];
  uint64_t *visited; /* by hash of the address, 0: free */
  size_t visited_count;
  table_entry_t *entries; /* of the table that is looked at */
  size_t entry_count, entry_room;
  uint32_t nodes; /* left to look at */
  bool over;      /* time or memory is out */
} search_t;

/* -- tables that wait ------------------------------------------------------------------------------------------------ */

static bool is_better(const waiting_t *a, const waiting_t *b) {
  return name_is_better(a->class, a->prefix, a->len, b->class, b->prefix, b->len);
}

static void swap(waiting_t *a, waiting_t *b) {
  waiting_t kept = *a;
  *a = *b;
  *b = kept;
}

static void push(search_t *s, const waiting_t *item) {
  if (s->pushed[item->class] == CLASS_TABLES) return;
  if (!mem_reserve((void **)&s->waiting, &s->waiting_room, s->waiting_count + 1, sizeof *s->waiting)) {
    s->over = true;
    return;
  }
  size_t at = s->waiting_count++;
  s->pushed[item->class]++;
  s->waiting[at] = *item;
  for (; at > 0 && is_better(&s->waiting[at], &s->waiting[(at - 1) / 2]); at = (at - 1) / 2)
    swap(&s->waiting[at], &s->waiting[(at - 1) / 2]);
}

static waiting_t pop(search_t *s) {
  waiting_t best = s->waiting[0];
  s->waiting[0] = s->waiting[--s->waiting_count];
  for (size_t at = 0, next; (next = 2 * at + 1) < s->waiting_count; at = next) {
    if (next + 1 < s->waiting_count && is_better(&s->waiting[next + 1], &s->waiting[next])) next++;
    if (!is_better(&s->waiting[next], &s->waiting[at])) break;
    swap(&s->waiting[next], &s->waiting[at]);
  }
  return best;
}

/* False when it was there before, or there is no room. */
static bool visit(search_t *s, uint64_t table) {
  size_t slot = (table >> 3) * 0x9e3779b97f4a7c15u % VISITED_SLOTS;
  for (; s->visited[slot] != 0; slot = (slot + 1) % VISITED_SLOTS)
    if (s->visited[slot] == table) return false;
  if (s->visited_count == VISITED_SLOTS / 2) return false; /* never, by what may be pushed */
  s->visited[slot] = table;
  s->visited_count++;
  return true;
}

/* -- one table ------------------------------------------------------------------------------------------------------ */

static bool is_named(const table_entry_t *entry, const char *key) {
  return strcmp(entry->text, key) == 0;
}

/* Reads the entries that lead to functions and tables. */
static void gather(search_t *s, const table_t *table, uint32_t limit) {
  table_entry_t entry;
  s->entry_count = 0;
  for (uint32_t node = 0, seen = 0, end; !s->over && seen < limit && seen < table->node_count; seen = end) {
    end = limit - seen < CHECK_TIME ? limit : seen + CHECK_TIME;
    while (s->entry_count < ENTRIES && table_next(s->walk, table, end, &node, &entry)) {
      if (!mem_reserve((void **)&s->entries, &s->entry_room, s->entry_count + 1, sizeof *s->entries)) {
        s->over = true;
        return;
      }
      s->entries[s->entry_count++] = entry;
    }
    if (node < end) return; /* the end of the table, of what can be read, or of the room */
    if (clock_now() > s->deadline) s->over = true;
  }
}

/* Leaves those that are there when they are looked at again. */
static void confirm(search_t *s, const table_t *table) {
  size_t kept = 0;
  for (size_t i = 0; i < s->entry_count; i++)
    if (table_confirms(s->walk, table, &s->entries[i])) s->entries[kept++] = s->entries[i];
  s->entry_count = kept;
}

/* The entries of a table that may be growing meanwhile: then again. */
static bool read_entries(search_t *s, uint64_t address, uint32_t most, table_t *table) {
  for (int attempt = 0; attempt < ATTEMPTS && s->nodes > 0 && !s->over; attempt++) {
    table_t after;
    if (!table_open(s->walk, address, table)) return false;
    uint32_t limit = most < table->node_count ? most : table->node_count;
    if (limit > s->nodes) limit = s->nodes;
    gather(s, table, limit);
    s->nodes -= limit;
    if (s->walk->memory->forget != NULL) s->walk->memory->forget(s->walk->memory);
    if (!table_open(s->walk, address, &after)) return false;
    if (after.nodes != table->nodes || after.node_count != table->node_count) continue;
    confirm(s, table);
    return true;
  }
  return false;
}

static void wait_for(search_t *s, uint64_t table, const waiting_t *from, name_class_t class, const char *key,
                     char separator) {
  waiting_t item = {.table = table, .class = class, .deep = (uint8_t)(from->deep + 1)};
  if (table == s->globals) return; /* a root */
  int len =
      snprintf(item.prefix, sizeof item.prefix, "%s%s%.*s", from->prefix, key, separator != '\0', &separator);
  if (len < 0 || (size_t)len >= sizeof item.prefix) return;
  item.len = (uint8_t)len;
  push(s, &item);
}

static void offer(search_t *s, const waiting_t *in, const table_entry_t *entry) {
  char name[NAME_BYTES];
  walk_frame_t frame;
  int len = snprintf(name, sizeof name, "%s%s", in->prefix, entry->text);
  if (len < 0 || (size_t)len >= sizeof name || !table_function(s->walk, &entry->value, &frame)) return;
  if (!table_names_add(s->names, &frame, in->class, name, (size_t)len)) s->over = true;
}

/* What lies below a table is of its class, except below a module itself. */
static name_class_t class_below(name_class_t class) {
  return class == NAME_OF_MODULE ? NAME_IN_MODULE : class;
}

static void look_at(search_t *s, const waiting_t *in) {
  table_t table;
  uint32_t most = in->table == s->globals ? ROOT_NODES : INNER_NODES;
  if (!table_open(s->walk, in->table, &table) || (in->table != s->globals && table.node_count > INNER_NODES))
    return;
  if (!read_entries(s, in->table, most, &table)) return;
  for (size_t i = 0; i < s->entry_count && !s->over; i++) {
    const table_entry_t *entry = &s->entries[i];
    if (entry->value.kind != VALUE_TABLE)
      offer(s, in, entry);
    else if (in->deep > DEEP)
      continue;
    else if (is_named(entry, "__index"))
      wait_for(s, entry->value.at, in, NAME_INHERITED, "", '\0');
    else if (in->deep < DEEP)
      wait_for(s, entry->value.at, in, class_below(in->class), entry->text, '.');
  }
  if (table.metatable == 0 || in->deep > DEEP) return;
  bool of_globals = in->len == 0;
  wait_for(s, table.metatable, in, NAME_INHERITED, of_globals ? "_G" : "", of_globals ? '.' : '\0');
}

/* -- a VM ----------------------------------------------------------------------------------------------------------- */

static void add_root(search_t *s, uint64_t table, name_class_t class, const char *name, const char *end) {
  waiting_t root = {.table = table, .class = class};
  if (table == s->globals && class != NAME_GLOBAL) return; /* a program that calls them a module */
  int len = snprintf(root.prefix, sizeof root.prefix, "%s%s", name, end);
  if (len < 0 || (size_t)len >= sizeof root.prefix) return;
  root.len = (uint8_t)len;
  push(s, &root);
}

/* A global that a part of it fills, as "vim.shared" does "vim", goes by its own name. */
static void add_filled_globals(search_t *s, const table_entry_t *parts, size_t count) {
  table_t table;
  if (s->globals == 0 || !read_entries(s, s->globals, ROOT_NODES, &table)) return;
  for (size_t p = 0; p < count && clock_now() <= s->deadline; p++)
    for (size_t i = 0; i < s->entry_count; i++) {
      const table_entry_t *global = &s->entries[i];
      if (global->value.kind == VALUE_TABLE && global->value.at == parts[p].value.at &&
          global->len == strcspn(parts[p].text, ".") && memcmp(global->text, parts[p].text, global->len) == 0)
        add_root(s, global->value.at, NAME_OF_MODULE, global->text, ".");
    }
}

/* package.loaded: modules that are tables, and such that are functions. */
static void add_modules(search_t *s, uint64_t loaded) {
  table_t table;
  const waiting_t nowhere = {.class = NAME_OF_MODULE};
  size_t part_count = 0;
  if (!visit(s, loaded) || !read_entries(s, loaded, ROOT_NODES, &table)) return;
  for (size_t i = 0; i < s->entry_count; i++) {
    const table_entry_t *entry = &s->entries[i];
    if (entry->value.kind != VALUE_TABLE)
      offer(s, &nowhere, entry);
    else if (!is_named(entry, "_G"))
      add_root(s, entry->value.at, NAME_OF_MODULE, entry->text, ".");
    if (entry->value.kind == VALUE_TABLE && strchr(entry->text, '.') != NULL)
      s->entries[part_count++] = *entry;
  }
  if (part_count == 0) return;
  table_entry_t *parts = s->entries;
  s->entries = NULL;
  s->entry_room = 0;
  add_filled_globals(s, parts, part_count);
  mem_free(parts);
}

/* Redis keeps scripts by their SHA1, as EVALSHA knows them: "f_89b0…" is named as the chunk is, "user_script:89b0…". */
static void offer_script(search_t *s, const table_entry_t *entry) {
  enum { DIGITS = 40 };
  const waiting_t scripts = {.class = NAME_OF_METATABLE, .prefix = "user_script:"};
  table_entry_t script = *entry;
  if (strncmp(entry->text, "f_", 2) != 0 || strspn(entry->text + 2, "0123456789abcdef") != DIGITS ||
      entry->text[2 + DIGITS] != '\0')
    return;
  memcpy(script.text, entry->text + 2, DIGITS + 1);
  offer(s, &scripts, &script);
}

/* The registry: package.loaded, and what luaL_newmetatable() made, by the names C libraries gave. */
static void add_registry(search_t *s, uint64_t registry) {
  table_t table;
  uint64_t loaded = 0;
  if (!visit(s, registry) || !read_entries(s, registry, ROOT_NODES, &table)) return;
  for (size_t i = 0; i < s->entry_count; i++) {
    const table_entry_t *entry = &s->entries[i];
    if (entry->value.kind != VALUE_TABLE)
      offer_script(s, entry);
    else if (is_named(entry, "_LOADED"))
      loaded = entry->value.at;
    else if (entry->text[0] != '_') /* Lua's own begin so */
      add_root(s, entry->value.at, NAME_OF_METATABLE, is_named(entry, "FILE*") ? "file" : entry->text, ":");
  }
  if (loaded != 0) add_modules(s, loaded);
}

static void search(search_t *s, uint64_t global) {
  uint64_t registry;
  if (table_globals(s->walk, global, &s->globals))
    add_root(s, s->globals, NAME_GLOBAL, "", "");
  else
    s->globals = 0;
  if (table_registry(s->walk, global, &registry)) add_registry(s, registry);
  while (s->waiting_count > 0 && s->nodes > 0 && !s->over) {
    waiting_t next = pop(s);
    if (visit(s, next.table)) look_at(s, &next);
  }
}

/* -- all of them ---------------------------------------------------------------------------------------------------- */

struct tables {
  table_names_t names;
};

tables_t *tables_new(void) {
  return mem_alloc(sizeof(tables_t));
}

void tables_free(tables_t *tables) {
  if (tables == NULL) return;
  table_names_free(&tables->names);
  mem_free(tables);
}

void tables_read(tables_t *tables, walk_t *walk, uint64_t global, int64_t deadline) {
  search_t s = {.names = &tables->names, .walk = walk, .deadline = deadline, .nodes = MOST_NODES};
  if (!table_is_known(walk->layout) || clock_now() > deadline) return;
  s.visited = mem_alloc(VISITED_SLOTS * sizeof *s.visited);
  if (s.visited != NULL) search(&s, global);
  if (walk->layout->family == LAYOUT_LUAJIT) table_names_add_hidden(&tables->names);
  mem_free(s.visited);
  mem_free(s.waiting);
  mem_free(s.entries);
}

const char *tables_name(const tables_t *tables, const walk_frame_t *frame) {
  return table_names_find(&tables->names, frame);
}

size_t tables_count(const tables_t *tables) {
  return tables->names.count;
}
