/* SPDX-License-Identifier: MIT */
/* The live view on a terminal; see top.h. Lines are drawn whole, ncurses changes what differs: nothing flickers.
 *
 * Names are anybody's: they go through ENCODING_SHOWN, so none can drive the terminal, and what the terminal's character set has not is
 * replaced. */
#define _XOPEN_SOURCE_EXTENDED 1
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/top.h"
#include "format/text.h"

enum { HEAD_LINES = 4, MOST_NAME = 40, MOST_INDENT = 24, LINE = 1024, ESCAPE = 27 };

/* One terminal, as there is one ncurses. */
static struct {
  SCREEN *screen;
  bool utf8;
  bool typing, help; /* the filter is being typed; the keys are being explained */
  size_t first;      /* line on top */
  size_t selected;   /* in the tree */
  uint64_t selected_path;
} ui;

static const char *const help_lines[] = {
    "s          sort: by self time, by total time, by name",
    "l          lines of code, or functions",
    "t          call tree, or table",
    "a          since the beginning, or of late (what is 3.5 s old counts half)",
    "f          freeze: the view stands still, sampling goes on",
    "/          filter: only names and files that contain what you type; Enter keeps it, Esc ends it",
    "r          reset: begin anew",
    "q, Ctrl-C  quit",
    "",
    "arrows, PgUp, PgDn, Home, End, j, k, g, G   scroll",
    "in the tree: right opens, left closes or goes up, Enter does either, + opens all below, - closes all",
    "",
    "self       time in the function itself; total: and in all it called",
    "%          of all samples; /s: samples per second, smoothed; now: in the last round",
};

bool top_screen_open(void) {
  memset(&ui, 0, sizeof ui);
  setlocale(LC_CTYPE, ""); /* numbers stay as they are */
  ui.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  ui.screen = newterm(NULL, stdout, stdin);
  if (ui.screen == NULL) return false;
  set_term(ui.screen);
  if (tigetstr("cup") ==
      NULL) { /* the cursor cannot be addressed (TERM=dumb): lines would be drawn one over the other */
    reset_shell_mode(); /* endwin() would move the cursor */
    delscreen(ui.screen);
    ui.screen = NULL;
    return false;
  }
  cbreak(); /* Ctrl-C stays a signal */
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  curs_set(0);
  return true;
}

void top_screen_close(void) {
  if (ui.screen == NULL) return;
  curs_set(1);
  endwin();
  delscreen(ui.screen);
  ui.screen = NULL;
}

/* -- drawing ------------------------------------------------------------------------------------------------------------ */

/* For character sets without them. */
static wchar_t plain_character(wchar_t c) {
  switch (c) {
    case L'…':
      return L'~';
    case L'▸':
      return L'+';
    case L'▾':
    case L'·':
      return L'-';
    default:
      return L'?';
  }
}

/* The characters of UTF-8, whatever the character set of the terminal; bytes that are none are left out. */
static size_t decode(const char *text, wchar_t *out, size_t room) {
  size_t count = 0;
  for (const unsigned char *at = (const unsigned char *)text; *at != 0 && count + 1 < room;) {
    int more = *at < 0x80 ? 0 : *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : 1;
    wchar_t c = *at < 0x80 ? *at : *at & (0x3f >> more);
    for (at++; more > 0 && (*at & 0xc0) == 0x80; more--) c = c << 6 | (*at++ & 0x3f);
    out[count++] = c;
  }
  out[count] = 0;
  return count;
}

/* As much of the text as there is room for at the place; returns the columns. */
static int put(int y, int x, int room, const char *text) {
  wchar_t wide[LINE];
  int columns = 0;
  if (room > COLS - x) room = COLS - x;
  if (y >= LINES || room <= 0) return 0;
  size_t count = decode(text, wide, LINE);
  for (size_t i = 0; i < count; i++) {
    if (!ui.utf8 && wide[i] > 126) wide[i] = plain_character(wide[i]);
    int width = wcwidth(wide[i]);
    if (width < 0) wide[i] = L'?', width = 1;
    if (columns + width > room) {
      wide[i] = 0;
      break;
    }
    columns += width;
  }
  mvaddwstr(y, x, wide);
  return columns;
}

static void put_right(int y, const char *text) {
  int len = (int)strlen(text);
  if (len < COLS) put(y, COLS - len, len, text);
}

static void put_attribute(int y, int x, int room, const char *text, attr_t attribute) {
  attron(attribute);
  put(y, x, room, text);
  attroff(attribute);
}

/* What was cut of a text, fit to be shown. */
static void cut(char *out, size_t size, text_t text, size_t room) {
  size_t len = 0;
  sink_t *sink = sink_to_memory();
  out[0] = '\0';
  if (sink == NULL) return;
  text_put_cut(sink, text, room, false);
  const char *shown = sink_memory(sink, &len);
  if (shown != NULL) snprintf(out, size, "%.*s", (int)len, shown);
  sink_close(sink, NULL);
}

static void place(char *out, size_t size, const top_view_t *view, const top_line_t *line, size_t room) {
  size_t len = 0;
  sink_t *sink = sink_to_memory();
  out[0] = '\0';
  if (sink == NULL) return;
  top_view_place(view, line, room, sink);
  const char *shown = sink_memory(sink, &len);
  if (shown != NULL) snprintf(out, size, "%.*s", (int)len, shown);
  sink_close(sink, NULL);
}

static void draw_head(const top_state_t *state, const top_view_t *view) {
  char text[LINE];
  put_attribute(0, 0, COLS, "luapulse top", A_BOLD);
  put(0, 14, COLS - 14, state->targets);
  snprintf(text, sizeof text, "  engine %s, %u Hz", state->engine, state->hz);
  put_right(0, text);
  top_describe(state, view, text, sizeof text);
  put(1, 0, COLS, text);
  static const char *const sorts[] = {"by self", "by total", "by name"};
  const char *sort = view->tree && view->sort == TOP_BY_SELF ? sorts[TOP_BY_TOTAL] : sorts[view->sort];
  int x = snprintf(text, sizeof text, "%s%s, %s, %s", view->by_line ? "lines" : "functions",
                   view->tree ? " as a call tree" : "", sort, view->all ? "since the beginning" : "of late");
  put_attribute(2, 0, COLS, text, A_DIM);
  if (view->filter[0] != '\0' || ui.typing) {
    snprintf(text, sizeof text, "  filter: %s%s", view->filter, ui.typing ? "_" : "");
    x += put(2, x, COLS, text);
  }
  if (state->frozen) {
    put_attribute(2, x + 2, COLS, " FROZEN ", A_REVERSE);
    x += 10;
  }
  if (state->message[0] != '\0') {
    put_attribute(2, x + 2, COLS, state->message, A_BOLD);
    x += 2 + (int)strlen(state->message);
  }
  if (state->ended) put_attribute(2, x + 2, COLS, "q quits", A_BOLD);
}

static void draw_columns(const top_view_t *view) {
  char text[LINE];
  snprintf(text, sizeof text, "%s  %s%*s", top_view_head(view),
           view->tree ? "function, callers above callees" : "function", COLS > 0 ? COLS : 0, "");
  put_attribute(3, 0, COLS, text, A_REVERSE);
}

/* Wide enough for the names that are shown, where places follow. */
static int name_columns(const top_view_t *view, size_t rows) {
  int most = 8;
  for (size_t i = ui.first; i < view->line_count && i < ui.first + rows; i++) {
    const top_line_t *line = &view->lines[i];
    unsigned indent = view->tree ? 2 + 2 * (line->depth < MOST_INDENT ? line->depth : MOST_INDENT) : 0;
    int columns = (int)(text_columns(top_view_name(view, line)) + indent);
    if (columns > most) most = columns;
  }
  return most < MOST_NAME ? most : MOST_NAME;
}

static void draw_line(int y, const top_view_t *view, const top_line_t *line, int names, bool selected) {
  char numbers[TOP_NUMBERS], text[LINE];
  top_view_numbers(view, line, numbers);
  int x = (int)strlen(top_view_head(view)) + 2;
  int64_t own = view->tree ? line->total : line->self;
  attr_t weight = view->summary->total > 0 && own >= view->summary->total / 10 ? A_BOLD : A_NORMAL;
  if (selected) {
    attron(A_REVERSE);
    move(y, 0);
    hline(' ', COLS);
  }
  put_attribute(y, 0, x, numbers, weight);
  int at = x;
  if (view->tree) {
    at += (int)(2 * (line->depth < MOST_INDENT ? line->depth : MOST_INDENT));
    put(y, at, 1, line->open ? "▾" : line->has_more ? "▸" : " ");
    at += 2;
  }
  int room = COLS - at > 60 ? MOST_NAME : (COLS - at) * 2 / 3;
  if (!view->tree && COLS - at > 100) room = COLS - at - 50;
  if (room < 8) room = 8;
  cut(text, sizeof text, top_view_name(view, line), (size_t)room);
  attron(weight);
  int end = at + put(y, at, room, text);
  attroff(weight);
  int where = x + names + 2 > end + 2 ? x + names + 2 : end + 2;
  if (COLS > where) {
    place(text, sizeof text, view, line, (size_t)(COLS - where));
    put_attribute(y, where, COLS - where, text, A_DIM);
  }
  if (selected) attroff(A_REVERSE);
}

static void draw_help(int rows) {
  for (int i = 0; i < (int)(sizeof help_lines / sizeof help_lines[0]) && i < rows; i++)
    put(HEAD_LINES + 1 + i, 2, COLS - 2, help_lines[i]);
}

static size_t rows_of_screen(void) {
  return LINES > HEAD_LINES + 1 ? (size_t)(LINES - HEAD_LINES - 1) : 1;
}

/* The selected node stays selected wherever it has gone; what is selected is seen. */
static void settle(const top_view_t *view) {
  size_t rows = rows_of_screen();
  if (view->tree) {
    for (size_t i = 0; i < view->line_count; i++)
      if (view->lines[i].path == ui.selected_path) ui.selected = i;
    if (ui.selected >= view->line_count) ui.selected = view->line_count > 0 ? view->line_count - 1 : 0;
    ui.selected_path = view->line_count > 0 ? view->lines[ui.selected].path : 0;
    if (ui.selected < ui.first) ui.first = ui.selected;
    if (ui.selected >= ui.first + rows) ui.first = ui.selected - rows + 1;
  }
  if (ui.first + rows > view->line_count) ui.first = view->line_count > rows ? view->line_count - rows : 0;
}

void top_screen_draw(const top_state_t *state, top_view_t *view) {
  char text[LINE];
  size_t rows = rows_of_screen();
  settle(view);
  erase();
  draw_head(state, view);
  draw_columns(view);
  if (ui.help) {
    draw_help((int)rows);
  } else {
    int names = name_columns(view, rows);
    for (size_t i = 0; i < rows && ui.first + i < view->line_count; i++)
      draw_line(HEAD_LINES + (int)i, view, &view->lines[ui.first + i], names,
                view->tree && ui.first + i == ui.selected);
    if (view->line_count == 0)
      put_attribute(HEAD_LINES + 1, 2, COLS,
                    state->rounds == 0        ? "the first round is under way"
                    : view->filter[0] != '\0' ? "nothing fits the filter"
                                              : "no samples: no processor time is used",
                    A_DIM);
  }
  snprintf(text, sizeof text, "q quit  s sort  l lines  t tree  a all  f freeze  / filter  r reset  ? help");
  put_attribute(LINES - 1, 0, COLS, ui.help ? "any key goes back" : text, A_DIM);
  size_t last = ui.first + rows < view->line_count ? ui.first + rows : view->line_count;
  snprintf(text, sizeof text, "  %zu-%zu of %zu", view->line_count > 0 ? ui.first + 1 : 0, last,
           view->line_count);
  put_right(LINES - 1, text);
  refresh();
}

/* -- keys ----------------------------------------------------------------------------------------------------------------- */

static top_action_t type_filter(top_view_t *view, bool special, wint_t key) {
  size_t len = strlen(view->filter);
  char bytes[MB_LEN_MAX];
  if (special ? key == KEY_ENTER : key == '\r' || key == '\n') {
    ui.typing = false;
  } else if (!special && key == ESCAPE) {
    ui.typing = false;
    view->filter[0] = '\0';
  } else if (special ? key == KEY_BACKSPACE : key == 8 || key == 127) {
    while (len > 0 && (view->filter[--len] & 0xc0) == 0x80) continue; /* all bytes of a character */
    view->filter[len] = '\0';
  } else if (!special && key >= ' ') {
    int count = wctomb(bytes, (wchar_t)key);
    if (count > 0 && len + (size_t)count < sizeof view->filter) {
      memcpy(view->filter + len, bytes, (size_t)count);
      view->filter[len + (size_t)count] = '\0';
    }
  }
  return TOP_MAKE;
}

static void scroll_by(const top_view_t *view, long by) {
  size_t *at = view->tree ? &ui.selected : &ui.first;
  long to = (long)*at + by;
  *at = to < 0 ? 0 : (size_t)to;
  if (view->tree && ui.selected >= view->line_count)
    ui.selected = view->line_count > 0 ? view->line_count - 1 : 0;
  if (view->tree && view->line_count > 0) ui.selected_path = view->lines[ui.selected].path;
}

static void open_below(top_view_t *view) {
  unsigned depth = view->lines[ui.selected].depth;
  top_view_toggle(view, view->lines[ui.selected].path, true);
  for (size_t i = ui.selected + 1; i < view->line_count && view->lines[i].depth > depth; i++)
    top_view_toggle(view, view->lines[i].path, true);
}

/* Closes it, or goes to who called it. */
static void close_or_leave(top_view_t *view) {
  const top_line_t *line = &view->lines[ui.selected];
  if (line->open) {
    top_view_toggle(view, line->path, false);
    return;
  }
  for (size_t i = ui.selected; i-- > 0;)
    if (view->lines[i].depth < line->depth) {
      ui.selected_path = view->lines[i].path;
      return;
    }
}

static bool tree_key(top_view_t *view, bool special, wint_t key) {
  if (!view->tree || ui.selected >= view->line_count) return false;
  const top_line_t *line = &view->lines[ui.selected];
  if (special ? key == KEY_RIGHT : false)
    top_view_toggle(view, line->path, true);
  else if (special && key == KEY_LEFT)
    close_or_leave(view);
  else if (special ? key == KEY_ENTER : key == '\r' || key == '\n' || key == ' ')
    top_view_toggle(view, line->path, !line->open);
  else if (!special && key == '+')
    open_below(view);
  else if (!special && key == '-')
    for (size_t i = 0; i < view->line_count; i++) top_view_toggle(view, view->lines[i].path, false);
  else
    return false;
  return true;
}

static bool scroll_key(const top_view_t *view, bool special, wint_t key) {
  long page = (long)rows_of_screen(), all = (long)view->line_count;
  if (special ? key == KEY_UP : key == 'k')
    scroll_by(view, -1);
  else if (special ? key == KEY_DOWN : key == 'j')
    scroll_by(view, 1);
  else if (special && key == KEY_PPAGE)
    scroll_by(view, -page);
  else if (special && key == KEY_NPAGE)
    scroll_by(view, page);
  else if (special ? key == KEY_HOME : key == 'g')
    scroll_by(view, -all - 1);
  else if (special ? key == KEY_END : key == 'G')
    scroll_by(view, all + 1);
  else
    return false;
  return true;
}

static top_action_t command_key(top_view_t *view, wint_t key) {
  switch (key) {
    case 'q':
      return TOP_QUIT;
    case 's':
      view->sort = (view->sort + 1) % TOP_SORTS;
      if (view->tree && view->sort == TOP_BY_SELF) view->sort = TOP_BY_TOTAL; /* which is the same there */
      return TOP_MAKE;
    case 'l':
      view->by_line = !view->by_line;
      return TOP_MAKE;
    case 't':
      view->tree = !view->tree;
      ui.first = 0;
      return TOP_MAKE;
    case 'a':
      view->all = !view->all;
      return TOP_MAKE;
    case 'f':
      return TOP_FREEZE;
    case 'r':
      return TOP_RESET;
    case '/':
      ui.typing = true;
      return TOP_DRAW;
    case ESCAPE:
      view->filter[0] = '\0';
      return TOP_MAKE;
    case '?':
    case 'h':
      ui.help = true;
      return TOP_DRAW;
    default:
      return TOP_NOTHING;
  }
}

static top_action_t on_key(top_view_t *view, bool special, wint_t key) {
  if (special && key == KEY_RESIZE) return TOP_DRAW;
  if (ui.help) {
    ui.help = false;
    return !special && key == 'q' ? TOP_QUIT : TOP_DRAW;
  }
  if (ui.typing) return type_filter(view, special, key);
  if (tree_key(view, special, key)) return TOP_MAKE;
  if (scroll_key(view, special, key)) return TOP_DRAW;
  return special ? TOP_NOTHING : command_key(view, key);
}

top_action_t top_screen_keys(top_view_t *view) {
  top_action_t action = TOP_NOTHING;
  wint_t key;
  for (int got; (got = get_wch(&key)) != ERR;) {
    top_action_t next = on_key(view, got == KEY_CODE_YES, key);
    if (next > action) action = next;
    /* what the next key means depends on these, or on the lines as they are then */
    if (next >= TOP_MAKE) break;
  }
  return action;
}
