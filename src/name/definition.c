/* SPDX-License-Identifier: MIT */
/* Names from the text of a definition; see definition.h. Runs in signal handlers: no allocation, no stdio,
 * bounded work, and the text may be anything.
 *
 * The line is cut into tokens. Behind the word `function` stands the name, or a parenthesis: then the tokens
 * before it are read backwards, through `=`, to what is assigned, or to the name that it is registered by. */
#include "name/definition.h"

#include <stdbool.h>
#include <string.h>

enum { WINDOW = 64, MAX_PARTS = 8, MAX_LINE = 4096, MAX_LINES_BACK = 32, CALL_LINES = 8 };

/* -- tokens ---------------------------------------------------------------------------------------------- */

/* Punctuation is its own kind, the others are letters. */
enum {
  END = 0,
  NAME = 'n',
  STRING = 's', /* between quotes, printable, without escapes */
  VALUE = 'v',  /* what ends an expression and cannot be assigned to: 12, nil, end, any other string */
  OPERATOR = 'o',
  FUNCTION = 'f',
  OTHER = 'x' /* the other words, and what is no Lua */
};

typedef struct {
  uint32_t at, len; /* bytes of the text; of a string, without its quotes */
  char kind;
} token_t;

/* What is left of a line. */
typedef struct {
  const char *text;
  size_t at, end;
} line_t;

static bool is_newline(char c) {
  return c == '\n' || c == '\r';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* LuaJIT takes bytes from 0x80 on for letters. */
static bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (unsigned char)c >= 0x80;
}

/* The byte `ahead` of the next one; NUL behind the end. */
static char peek(const line_t *line, size_t ahead) {
  return line->end - line->at > ahead ? line->text[line->at + ahead] : '\0';
}

/* Goes over `[[…]]` or `[==[…]==]`, to the end of the line when it is not closed there. */
static bool skip_long_bracket(line_t *line) {
  size_t level = 0;
  if (peek(line, 0) != '[') return false;
  while (peek(line, level + 1) == '=') level++;
  if (peek(line, level + 1) != '[') return false;
  for (line->at += level + 2; line->at < line->end; line->at++) {
    if (peek(line, 0) != ']') continue;
    size_t signs = 0;
    while (signs < level && peek(line, signs + 1) == '=') signs++;
    if (signs == level && peek(line, level + 1) == ']') {
      line->at += level + 2;
      return true;
    }
  }
  return true;
}

static void skip_to_token(line_t *line) {
  while (line->at < line->end) {
    char c = peek(line, 0);
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      line->at++;
    } else if (c == '-' && peek(line, 1) == '-') {
      line->at += 2;
      if (!skip_long_bracket(line)) line->at = line->end;
    } else {
      return;
    }
  }
}

static char kind_of_word(const char *word, size_t len) {
  static const struct {
    char word[9];
    char kind;
  } known[] = {{"function", FUNCTION}, {"and", OPERATOR}, {"or", OPERATOR},  {"not", OPERATOR},
               {"end", VALUE},         {"nil", VALUE},    {"true", VALUE},   {"false", VALUE},
               {"local", OTHER},       {"return", OTHER}, {"if", OTHER},     {"then", OTHER},
               {"else", OTHER},        {"elseif", OTHER}, {"for", OTHER},    {"in", OTHER},
               {"do", OTHER},          {"while", OTHER},  {"repeat", OTHER}, {"until", OTHER},
               {"break", OTHER}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i].word) == len && memcmp(known[i].word, word, len) == 0) return known[i].kind;
  return NAME;
}

static token_t take(line_t *line, size_t len, char kind) {
  token_t token = {(uint32_t)line->at, (uint32_t)len, kind};
  line->at += len;
  return token;
}

static token_t take_word(line_t *line) {
  size_t len = 1;
  while (is_word(peek(line, len))) len++;
  return take(line, len, kind_of_word(line->text + line->at, len));
}

static token_t take_number(line_t *line) {
  size_t len = 1;
  for (char before = peek(line, 0); len < line->end - line->at; len++) {
    char c = peek(line, len);
    bool exponent = (before | 0x20) == 'e' || (before | 0x20) == 'p';
    if (!is_word(c) && c != '.' && !(exponent && (c == '-' || c == '+'))) break;
    before = c;
  }
  return take(line, len, VALUE);
}

static token_t take_string(line_t *line) {
  char quote = peek(line, 0);
  size_t start = ++line->at;
  bool plain = true;
  for (; line->at < line->end && peek(line, 0) != quote; line->at++) {
    unsigned char c = (unsigned char)peek(line, 0);
    if (c < 0x20 || c == 0x7f || c == '\\') plain = false;
    if (c == '\\' && line->end - line->at > 1) line->at++;
  }
  token_t token = {(uint32_t)start, (uint32_t)(line->at - start), VALUE};
  if (line->at == line->end) return token; /* not closed */
  line->at++;
  if (plain && token.len > 0) token.kind = STRING;
  return token;
}

static token_t take_sign(line_t *line) {
  char c = peek(line, 0), next = peek(line, 1);
  if (c == '.' && next == '.') return peek(line, 2) == '.' ? take(line, 3, VALUE) : take(line, 2, OPERATOR);
  if (c == ':' && next == ':') return take(line, 2, OTHER);
  if (next == '=' && (c == '=' || c == '~' || c == '<' || c == '>')) return take(line, 2, OPERATOR);
  if (next == c && (c == '<' || c == '>')) return take(line, 2, OPERATOR);
  if (c == '\0') return take(line, 1, OTHER);
  if (strchr("=.,:;()[]{}<>", c) != NULL) return take(line, 1, c);
  return take(line, 1, strchr("+-*/%^#&|~", c) != NULL ? OPERATOR : OTHER);
}

static token_t next_token(line_t *line) {
  skip_to_token(line);
  if (line->at >= line->end) return (token_t){0, 0, END};
  char c = peek(line, 0);
  if (is_digit(c) || (c == '.' && is_digit(peek(line, 1)))) return take_number(line);
  if (is_word(c)) return take_word(line);
  if (c == '"' || c == '\'') return take_string(line);
  size_t start = line->at;
  if (skip_long_bracket(line)) return (token_t){(uint32_t)start, (uint32_t)(line->at - start), VALUE};
  return take_sign(line);
}

/* -- lines ----------------------------------------------------------------------------------------------- */

/* The first line of a file may begin with a byte order mark, and is a comment when `#` comes then. */
static line_t line_between(const char *text, size_t begin, size_t end) {
  if (begin == 0) {
    if (end >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) begin = 3;
    if (begin < end && text[begin] == '#') begin = end;
  }
  return (line_t){text, begin, end};
}

/* Lines end as they do for Lua: \n, \r, \r\n or \n\r. False when there is no such line, not all of
 * it, or too much. */
static bool find_line(const char *text, size_t len, uint32_t number, size_t *begin, size_t *end) {
  size_t limit = len < DEFINITION_MAX_TEXT ? len : DEFINITION_MAX_TEXT, at = 0;
  for (*begin = 0; at < limit; at++) {
    if (!is_newline(text[at])) continue;
    if (--number == 0) break;
    if (at + 1 < limit && is_newline(text[at + 1]) && text[at + 1] != text[at]) at++;
    *begin = at + 1;
  }
  *end = at;
  return number <= 1 && (at < limit || limit == len) && *end - *begin <= MAX_LINE;
}

/* The last tokens before the word `function`. */
typedef struct {
  token_t ring[WINDOW];
  size_t count; /* of all that came; the last WINDOW of them are here */
} window_t;

static void window_add(window_t *w, token_t token) {
  w->ring[w->count++ % WINDOW] = token;
}

/* The i-th token back; 0 is the last. END where no more are known. */
static token_t back(const window_t *w, size_t i) {
  if (i >= w->count || i >= WINDOW) return (token_t){0, 0, END};
  return w->ring[(w->count - 1 - i) % WINDOW];
}

/* The tokens of the nearest line before `begin` that has any. */
static void add_line_before(window_t *w, const char *text, size_t begin) {
  for (int lines = 0; lines < MAX_LINES_BACK && begin > 0 && w->count == 0; lines++) {
    size_t end = begin - 1;
    if (end > 0 && is_newline(text[end - 1]) && text[end - 1] != text[end]) end--;
    for (begin = end; begin > 0 && !is_newline(text[begin - 1]);)
      if (end - --begin > MAX_LINE) return;
    line_t line = line_between(text, begin, end);
    for (token_t token; (token = next_token(&line)).kind != END;) window_add(w, token);
  }
}

/* The tokens from a few lines before `begin` on, up to `end`: calls and tables may be written over several. */
static void add_lines_around(window_t *w, const char *text, size_t begin, size_t end) {
  size_t at = begin;
  for (int lines = 0; at > 0 && begin - at < MAX_LINE; at--)
    if (text[at - 1] == '\n' && ++lines > CALL_LINES) break;
  while (at > 0 && at < begin && !is_newline(text[at - 1])) at++; /* no half lines */
  for (w->count = 0; at < end; at++) {
    size_t stop = at;
    while (stop < end && !is_newline(text[stop])) stop++;
    line_t line = line_between(text, at, stop);
    for (token_t token; (token = next_token(&line)).kind != END;) window_add(w, token);
    at = stop;
  }
}

/* -- backwards ------------------------------------------------------------------------------------------- */

static bool closes(char kind) {
  return kind == ')' || kind == ']' || kind == '}';
}

/* From a closing bracket to what stands before the opening one. */
static size_t before_bracket(const window_t *w, size_t i) {
  size_t depth = 0;
  for (char kind; (kind = back(w, i).kind) != END;) {
    i++;
    if (closes(kind)) depth++;
    if ((kind == '(' || kind == '[' || kind == '{') && --depth == 0) break;
  }
  return i;
}

/* From the last token of `a`, `a.b[1]`, `f(x).y` to what stands before the first. */
static size_t before_operand(const window_t *w, size_t i) {
  for (;;) {
    char kind = back(w, i).kind;
    if (kind == NAME) {
      i++;
      if (back(w, i).kind != '.' && back(w, i).kind != ':') return i;
      i++;
    } else if (kind == STRING || closes(kind)) { /* a call or an index, if there is something to call */
      i = kind == STRING ? i + 1 : before_bracket(w, i);
      kind = back(w, i).kind;
      if (kind != NAME && kind != STRING && !closes(kind)) return i;
    } else {
      return i;
    }
  }
}

/* The i-th token is the comma before a field of a table, and not one between the variables of `a, b = …`.
 * False when that is not certain. */
static bool is_between_fields(const window_t *w, size_t i) {
  while (back(w, i).kind == ',') {
    char kind = back(w, ++i).kind;
    if (kind == VALUE || kind == STRING || kind == ')' || kind == '}') return true; /* not a variable */
    if (kind != NAME && kind != ']') return false;
    i = before_operand(w, i);
    kind = back(w, i).kind;
    if (kind == '=' || kind == '{' || kind == OPERATOR) return true;
  }
  return false;
}

/* -- names ----------------------------------------------------------------------------------------------- */

typedef struct {
  char *text; /* always ends in a NUL */
  size_t size, len;
  bool full;
} name_t;

static void append(name_t *name, const char *bytes, size_t len) {
  if (len >= name->size - name->len) {
    name->full = true;
    return;
  }
  memcpy(name->text + name->len, bytes, len);
  name->len += len;
  name->text[name->len] = '\0';
}

static bool is_identifier(const char *bytes, size_t len) {
  if (len == 0 || is_digit(bytes[0])) return false;
  for (size_t i = 0; i < len; i++)
    if (!is_word(bytes[i])) return false;
  return true;
}

/* `M.a:f` and a parenthesis, from behind `function`. */
static bool read_declared(line_t line, name_t *name) {
  for (;;) {
    token_t token = next_token(&line);
    if (token.kind != NAME) return false;
    append(name, line.text + token.at, token.len);
    token = next_token(&line);
    if (token.kind == '(') return true;
    if (token.kind != '.' && token.kind != ':') return false;
    append(name, &token.kind, 1);
  }
}

/* Takes the last part off what is assigned to, a name or `["a string"]`; END when it is neither. */
static token_t take_part(const window_t *w, size_t *i, bool *more) {
  token_t part = back(w, *i);
  if (part.kind == NAME) {
    *more = back(w, *i + 1).kind == '.';
    *i += 2;
    return part;
  }
  *more = false;
  if (part.kind != ']' || back(w, *i + 1).kind != STRING || back(w, *i + 2).kind != '[')
    return (token_t){0, 0, END};
  part = back(w, *i + 1);
  *i += 3;
  *more = back(w, *i).kind == NAME || closes(back(w, *i).kind);
  return part;
}

/* What is assigned to, from its last token: `M.a.f`, `M["f"]`, `["f"]`. Behind what has no name, as in
 * `t[i].f`, it is called by the last part alone; also when that is no identifier, as in `M["GET /"]`. */
static bool read_target(const window_t *w, size_t i, const char *text, name_t *name) {
  token_t parts[MAX_PARTS]; /* the last comes first */
  size_t count = 0;
  for (bool more = true; more;) {
    if (count == MAX_PARTS) return false;
    parts[count] = take_part(w, &i, &more);
    if (is_identifier(text + parts[count].at, parts[count].len)) {
      count++;
    } else {
      more = false;
      count = 1;
    }
  }
  if (parts[0].kind == END) return false;
  while (count-- > 0) {
    append(name, text + parts[count].at, parts[count].len);
    if (count > 0) append(name, ".", 1);
  }
  return true;
}

/* `M.f =`, `local f <const> =`, from before `function`. */
static bool read_assigned(const window_t *w, const char *text, name_t *name) {
  if (back(w, 0).kind != '=') return false;
  size_t target = 1;
  if (back(w, 1).kind == '>' && back(w, 2).kind == NAME && back(w, 3).kind == '<') target = 4;
  size_t before = before_operand(w, target);
  if (back(w, before).kind == ',' && !is_between_fields(w, before)) return false;
  return read_target(w, target, text, name);
}

static bool is_word_of(token_t token, const char *text, const char *word) {
  return token.kind == NAME && token.len == strlen(word) && memcmp(text + token.at, word, token.len) == 0;
}

/* `register_function("f", `, `register_action("f", {"http-req"}, `, from before `function`: the first argument, of what says that it
 * registers. Other strings before a function, as in `gsub(s, "%w+", function`, are no names. */
static bool read_registered(const window_t *w, const char *text, name_t *name) {
  static const char verb[] = "register";
  for (size_t i = 0; back(w, i).kind == ',';) {
    token_t argument = back(w, ++i), callee = back(w, i + 2);
    if (argument.kind == STRING && back(w, i + 1).kind == '(') {
      if (callee.kind != NAME || callee.len < sizeof verb - 1 ||
          memcmp(text + callee.at, verb, sizeof verb - 1) != 0)
        return false;
      append(name, text + argument.at, argument.len);
      return true;
    }
    if (argument.kind == STRING || argument.kind == VALUE)
      i++;
    else if (argument.kind == '}')
      i = before_bracket(w, i);
    else
      return false;
  }
  return false;
}

/* `{function_name = "f", callback =`, from before `function`. */
static bool read_named_beside(const window_t *w, const char *text, name_t *name) {
  if (back(w, 0).kind != '=' || !is_word_of(back(w, 1), text, "callback")) return false;
  for (size_t i = 2; back(w, i).kind == ',' || back(w, i).kind == ';';) {
    token_t value = back(w, ++i);
    if (value.kind == STRING && back(w, i + 1).kind == '=' &&
        is_word_of(back(w, i + 2), text, "function_name")) {
      append(name, text + value.at, value.len);
      return true;
    }
    i = closes(value.kind) || value.kind == NAME ? before_operand(w, i) : i + 1;
    if (back(w, i).kind == '=' && back(w, i + 1).kind == NAME) i += 2; /* another field */
  }
  return false;
}

size_t definition_name(const char *text, size_t len, uint32_t line, char *name, size_t size) {
  if (size == 0) return 0;
  name[0] = '\0';
  size_t begin, end;
  if (line == 0 || !find_line(text, len, line, &begin, &end)) return 0;

  window_t before;
  before.count = 0; /* the ring needs no zeros */
  add_line_before(&before, text, begin);
  line_t rest = line_between(text, begin, end);
  name_t found = {name, size, 0, false};
  bool seen = false, named = false;
  for (token_t token; (token = next_token(&rest)).kind != END;) {
    if (token.kind != FUNCTION) {
      if (!seen) window_add(&before, token);
      continue;
    }
    if (seen) { /* two on a line: which of them is meant cannot be told */
      named = false;
      break;
    }
    seen = true;
    line_t ahead = rest;
    if (next_token(&ahead).kind != '(') {
      named = read_declared(rest, &found);
      continue;
    }
    window_t around;
    add_lines_around(&around, text, begin, token.at);
    named = read_named_beside(&around, text, &found) || read_registered(&around, text, &found) ||
            read_assigned(&before, text, &found);
  }
  if (named && !found.full) return found.len;
  name[0] = '\0';
  return 0;
}

static bool line_has(const char *text, size_t begin, size_t end, char kind, const char *word) {
  line_t line = line_between(text, begin, end);
  for (token_t token; (token = next_token(&line)).kind != END;)
    if (token.kind == kind && token.len == strlen(word) && memcmp(text + token.at, word, token.len) == 0)
      return true;
  return false;
}

bool definition_spans(const char *text, size_t len, uint32_t line, uint32_t last_line, size_t *begin,
                      size_t *end) {
  size_t first_end, last_begin;
  return line > 0 && last_line >= line && find_line(text, len, line, begin, &first_end) &&
         find_line(text, len, last_line, &last_begin, end) && last_begin < *end &&
         line_has(text, *begin, first_end, FUNCTION, "function") &&
         line_has(text, last_begin, *end, VALUE, "end");
}
