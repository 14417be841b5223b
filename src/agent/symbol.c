/* SPDX-License-Identifier: MIT */
/* Names of C functions; see symbol.h. Runs in signal handlers. */
#include "agent/symbol.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_SYMBOLS = 65536 };

/* -- text, without stdio ------------------------------------------------------------------------------------ */

static size_t append(char *name, size_t size, size_t len, const char *text) {
  while (*text != '\0' && len + 1 < size) name[len++] = *text++;
  name[len] = '\0';
  return len;
}

static size_t append_hex(char *name, size_t size, size_t len, uint64_t number) {
  char digits[20] = "0x";
  size_t count = 1;
  while (count < 16 && number >> (4 * count) != 0) count++;
  for (size_t i = 0; i < count; i++) digits[2 + i] = "0123456789abcdef"[number >> (4 * (count - 1 - i)) & 15];
  digits[2 + count] = '\0';
  return append(name, size, len, digits);
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE                  /* glibc 2.35 */
extern __typeof(_dl_find_object) _dl_find_object /* NOLINT(readability-redundant-declaration) */
    __attribute__((weak));                       /* the module loads on older ones too */

typedef struct {
  const ElfW(Sym) * symbols;
  const char *names;
  size_t names_size;
  const uint32_t *gnu_hash, *hash;
} tables_t;

/* Most loaders relocate these pointers in place, some leave them as in the file. */
static uintptr_t relocated(const struct link_map *map, uintptr_t pointer) {
  return pointer < map->l_addr ? pointer + map->l_addr : pointer;
}

static void read_dynamic(const struct link_map *map, tables_t *t) {
  memset(t, 0, sizeof *t);
  for (const ElfW(Dyn) *d = map->l_ld; d != NULL && d->d_tag != DT_NULL; d++) {
    uintptr_t at = relocated(map, d->d_un.d_ptr);
    switch (d->d_tag) {
      case DT_SYMTAB:
        t->symbols = (const void *)at;
        break;
      case DT_STRTAB:
        t->names = (const void *)at;
        break;
      case DT_STRSZ:
        t->names_size = d->d_un.d_val;
        break;
      case DT_GNU_HASH:
        t->gnu_hash = (const void *)at;
        break;
      case DT_HASH:
        t->hash = (const void *)at;
        break;
      default:
        break;
    }
  }
}

/* The table does not tell its length: the highest symbol of the hash table's last chain is the last. */
static size_t count_symbols(const tables_t *t) {
  if (t->hash != NULL) return t->hash[1];
  if (t->gnu_hash == NULL) return 0;
  uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], bloom = t->gnu_hash[2], last = 0;
  const uint32_t *bucket = t->gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return 0;
  while ((chain[last - first] & 1) == 0 && last < MAX_SYMBOLS) last++;
  return (size_t)last + 1;
}

static const char *find_symbol(const struct link_map *map, uint64_t address) {
  tables_t t;
  read_dynamic(map, &t);
  if (t.symbols == NULL || t.names == NULL) return NULL;
  size_t count = count_symbols(&t);
  for (size_t i = 0; i < count && i < MAX_SYMBOLS; i++) {
    const ElfW(Sym) *s = &t.symbols[i];
    if (s->st_value != 0 && map->l_addr + s->st_value == address && s->st_name < t.names_size)
      return t.names + s->st_name;
  }
  return NULL;
}

static size_t name_in_object(uint64_t address, char *name, size_t size) {
  struct dl_find_object object;
  if (_dl_find_object == NULL || _dl_find_object((void *)(uintptr_t)address, &object) != 0) return 0;
  const char *symbol = find_symbol(object.dlfo_link_map, address);
  if (symbol != NULL) return append(name, size, 0, symbol);
  const char *file = object.dlfo_link_map->l_name;
  if (file == NULL || *file == '\0') file = program_invocation_name;
  const char *slash = strrchr(file, '/');
  size_t len = append(name, size, 0, slash != NULL ? slash + 1 : file);
  len = append(name, size, len, "+");
  return append_hex(name, size, len, address - (uint64_t)(uintptr_t)object.dlfo_map_start);
}
#else
static size_t name_in_object(uint64_t address, char *name, size_t size) {
  (void)address;
  (void)name;
  (void)size;
  return 0;
}
#endif

size_t symbol_name(uint64_t address, char *name, size_t size) {
  size_t len = name_in_object(address, name, size);
  if (len > 0) return len;
  return append_hex(name, size, append(name, size, 0, "C function "), address);
}
