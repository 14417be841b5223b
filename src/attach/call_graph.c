/* SPDX-License-Identifier: MIT */
/* Reading calls out of code; see call_graph.h. Files are anybody's: every place in them is checked before it is read. */
#include "attach/call_graph.h"

#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include "attach/elf_symbol.h"
#include "profile/mem.h"

enum { MOST_FUNCTIONS = 1 << 18, MOST_CALLS = 1 << 21 };

typedef struct {
  uint32_t caller, called;
} call_t;

typedef struct {
  const uint8_t *bytes; /* of the file */
  size_t len;
  uint64_t address; /* where they lie */
} piece_t;

struct call_graph {
  Elf *elf;
  const uint8_t *file;
  size_t file_len;
  bool fixed; /* it lies where it says: addresses may stand in code as they are */
  uint64_t *starts, end;
  uint32_t count;
  bool *taken;
  call_t *calls; /* by caller */
  size_t call_count, call_capacity;
  uint32_t *first; /* of each caller, and one more */
};

static uint32_t read32(const uint8_t *bytes) {
  uint32_t value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

/* -- functions ----------------------------------------------------------------------------------------------------- */

static bool find_piece(const call_graph_t *g, uint32_t type, uint32_t flags, size_t from, size_t *at,
                       piece_t *out) {
  size_t count;
  if (elf_getphdrnum(g->elf, &count) != 0) return false;
  for (size_t i = from; i < count; i++) {
    GElf_Phdr header;
    if (gelf_getphdr(g->elf, (int)i, &header) == NULL) return false;
    if (header.p_type != type || (header.p_flags & flags) != flags || header.p_offset > g->file_len ||
        header.p_filesz > g->file_len - header.p_offset)
      continue;
    *at = i;
    *out = (piece_t){g->file + header.p_offset, header.p_filesz, header.p_vaddr};
    return true;
  }
  return false;
}

static bool next_code(const call_graph_t *g, size_t *from, piece_t *code) {
  size_t at;
  if (!find_piece(g, PT_LOAD, PF_X, *from, &at, code)) return false;
  *from = at + 1;
  return true;
}

/* The index of the unwind table, in the one form that compilers give it: pairs of distances from its own beginning. */
static bool read_functions(call_graph_t *g) {
  enum { VERSION = 1, COUNT_IS_U32 = 0x03, TABLE_IS_RELATIVE_S32 = 0x3b, HEAD = 12, ENTRY = 8 };
  piece_t index, code;
  size_t at, from = 0;
  if (!find_piece(g, PT_GNU_EH_FRAME, 0, 0, &at, &index) || index.len < HEAD) return false;
  if (index.bytes[0] != VERSION || index.bytes[2] != COUNT_IS_U32 || index.bytes[3] != TABLE_IS_RELATIVE_S32)
    return false;
  uint32_t count = read32(index.bytes + 8);
  if (count == 0 || count > MOST_FUNCTIONS || count > (index.len - HEAD) / ENTRY) return false;
  g->starts = mem_alloc(count * sizeof g->starts[0]);
  g->taken = mem_alloc(count * sizeof g->taken[0]);
  g->first = mem_alloc((count + (size_t)1) * sizeof g->first[0]);
  if (g->starts == NULL || g->taken == NULL || g->first == NULL) return false;
  for (uint32_t i = 0; i < count; i++) {
    g->starts[i] = index.address + (uint64_t)(int64_t)(int32_t)read32(index.bytes + HEAD + (size_t)i * ENTRY);
    if (i > 0 && g->starts[i] <= g->starts[i - 1]) return false; /* they are searched by halves */
  }
  g->count = count;
  while (next_code(g, &from, &code))
    if (g->starts[count - 1] - code.address < code.len) g->end = code.address + code.len;
  return g->end != 0;
}

/* The function that begins there, or the one it lies in. */
static uint32_t function_at(const call_graph_t *g, uint64_t address) {
  uint32_t low = 0, high = g->count;
  if (address < g->starts[0] || address >= g->end) return CALL_GRAPH_NONE;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (g->starts[middle] <= address)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static uint32_t function_from(const call_graph_t *g, uint64_t address) {
  uint32_t function = function_at(g, address);
  return function != CALL_GRAPH_NONE && g->starts[function] == address ? function : CALL_GRAPH_NONE;
}

/* -- calls ---------------------------------------------------------------------------------------------------------- */

static bool add_call(call_graph_t *g, uint32_t caller, uint32_t called) {
  if (caller == called || g->call_count == MOST_CALLS) return caller == called;
  if (!mem_reserve((void **)&g->calls, &g->call_capacity, g->call_count + 1, sizeof g->calls[0]))
    return false;
  g->calls[g->call_count++] = (call_t){caller, called};
  return true;
}

static void take(call_graph_t *g, uint32_t function) {
  if (function != CALL_GRAPH_NONE) g->taken[function] = true;
}

/* What the four bytes at k say: the distance of a call or jump, or that of an operand, counted from behind them. */
static bool read_distance(call_graph_t *g, const piece_t *code, size_t k) {
  uint64_t here = code->address + k;
  uint32_t value = read32(code->bytes + k);
  uint8_t before = code->bytes[k - 1];
  if (g->fixed) take(g, function_from(g, value));
  bool is_call = before == 0xe8 || before == 0xe9; /* call, jmp */
  bool is_branch = k >= 2 && code->bytes[k - 2] == 0x0f && (before & 0xf0) == 0x80;
  bool is_operand = (before & 0xc7) == 0x05; /* ModRM of one that is relative to here */
  if (!is_call && !is_branch && !is_operand) return true;
  uint32_t target = function_from(g, here + 4 + (uint64_t)(int64_t)(int32_t)value);
  if (target == CALL_GRAPH_NONE) return true;
  if (is_operand) g->taken[target] = true;
  uint32_t caller = function_at(g, here);
  return is_operand || caller == CALL_GRAPH_NONE || add_call(g, caller, target);
}

static bool read_calls(call_graph_t *g) {
  piece_t code;
  size_t left = g->file_len; /* pieces of a sound file do not lie one over the other */
  for (size_t from = 0; next_code(g, &from, &code); left -= code.len) {
    if (code.len > left) return false;
    for (size_t k = 1; k + 4 <= code.len; k++)
      if (!read_distance(g, &code, k)) return false;
  }
  return true;
}

/* Tables of functions, relocations, exported symbols: all have them as words. */
static void read_words(call_graph_t *g) {
  for (size_t at = 0; at + 8 <= g->file_len; at += 8) {
    uint64_t word;
    memcpy(&word, g->file + at, sizeof word);
    take(g, function_from(g, word));
  }
}

static int by_caller(const void *a, const void *b) {
  const call_t *x = a, *y = b;
  return (x->caller > y->caller) - (x->caller < y->caller);
}

static void index_calls(call_graph_t *g) {
  if (g->call_count > 0) qsort(g->calls, g->call_count, sizeof g->calls[0], by_caller);
  size_t at = 0;
  for (uint32_t function = 0; function <= g->count; function++) {
    while (at < g->call_count && g->calls[at].caller < function) at++;
    g->first[function] = (uint32_t)at;
  }
}

/* -- the graph ------------------------------------------------------------------------------------------------------- */

static bool read_file(call_graph_t *g, Elf *elf) {
  GElf_Ehdr header;
  g->elf = elf;
  if (gelf_getehdr(elf, &header) == NULL || header.e_machine != EM_X86_64 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  g->file = (const uint8_t *)elf_rawfile(elf, &g->file_len);
  g->fixed = header.e_type == ET_EXEC;
  if (g->file == NULL || g->file_len > CALL_GRAPH_FILE || !read_functions(g) || !read_calls(g)) return false;
  read_words(g);
  take(g, function_at(g, header.e_entry));
  index_calls(g);
  return true;
}

call_graph_t *call_graph_read(Elf *elf) {
  call_graph_t *g = mem_alloc(sizeof *g);
  if (g != NULL && read_file(g, elf)) return g;
  call_graph_free(g);
  return NULL;
}

void call_graph_free(call_graph_t *g) {
  if (g == NULL) return;
  mem_free(g->starts);
  mem_free(g->taken);
  mem_free(g->first);
  mem_free(g->calls);
  mem_free(g);
}

uint32_t call_graph_count(const call_graph_t *g) {
  return g->count;
}

walk_range_t call_graph_range(const call_graph_t *g, uint32_t function) {
  return (walk_range_t){g->starts[function], function + 1 < g->count ? g->starts[function + 1] : g->end};
}

typedef struct {
  const call_graph_t *graph;
  const char *wanted;
  uint32_t function;
} naming_t;

static void compare_name(void *context, const char *name, uint64_t start, uint64_t size) {
  naming_t *n = context;
  (void)size;
  if (strcmp(name, n->wanted) == 0) n->function = function_from(n->graph, start);
}

uint32_t call_graph_exported(const call_graph_t *g, const char *name) {
  naming_t naming = {g, name, CALL_GRAPH_NONE};
  const elf_file_t file = {g->elf, -1, g->file, g->file_len};
  elf_each_function(&file, SHT_DYNSYM, 0, compare_name, &naming);
  return naming.function;
}

uint32_t call_graph_call_count(const call_graph_t *g, uint32_t caller) {
  return g->first[caller + 1] - g->first[caller];
}

uint32_t call_graph_called(const call_graph_t *g, uint32_t caller, uint32_t call) {
  return g->calls[g->first[caller] + call].called;
}

bool call_graph_calls(const call_graph_t *g, uint32_t caller, uint32_t called) {
  for (uint32_t i = g->first[caller]; i < g->first[caller + 1]; i++)
    if (g->calls[i].called == called) return true;
  return false;
}

bool call_graph_is_taken(const call_graph_t *g, uint32_t function) {
  return g->taken[function];
}

bool call_graph_follow(const call_graph_t *g, bool *set, const bool *stops) {
  uint32_t *left = mem_alloc(g->count * sizeof left[0]), count = 0; /* each is entered once */
  if (left == NULL) return false;
  for (uint32_t i = 0; i < g->count; i++)
    if (set[i]) left[count++] = i;
  while (count > 0) {
    uint32_t caller = left[--count];
    for (uint32_t i = g->first[caller]; i < g->first[caller + 1]; i++) {
      uint32_t called = g->calls[i].called;
      if (set[called] || (stops != NULL && stops[called])) continue;
      set[called] = true;
      left[count++] = called;
    }
  }
  mem_free(left);
  return true;
}
