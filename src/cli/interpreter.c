/* SPDX-License-Identifier: MIT */
/* Telling Lua interpreters apart; see interpreter.h. A stand-alone interpreter names the variable it reads at
 * start: LUA_INIT_5_x since 5.2, LUA_INIT alone in 5.1 and LuaJIT. That text is in every build, stripped or
 * renamed. */
#include "cli/interpreter.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SCRIPTS = 4 /* of #! lines that lead to scripts */ };

/* -- the program ----------------------------------------------------------------------------------------- */

static bool find_in_path(const char *command, char *path) {
  if (strchr(command, '/') != NULL) return realpath(command, path) != NULL;
  const char *folders = getenv("PATH");
  for (const char *at = folders != NULL ? folders : "/usr/local/bin:/usr/bin:/bin"; *at != '\0';) {
    size_t len = strcspn(at, ":");
    char candidate[PATH_MAX];
    int n = snprintf(candidate, sizeof candidate, "%.*s/%s", (int)len, len > 0 ? at : ".", command);
    struct stat info;
    if (n > 0 && (size_t)n < sizeof candidate && access(candidate, X_OK) == 0 &&
        stat(candidate, &info) == 0 && S_ISREG(info.st_mode))
      return realpath(candidate, path) != NULL;
    at += len + (at[len] == ':');
  }
  errno = ENOENT;
  return false;
}

/* The interpreter a #! line asks for, looking through env and its options. False when it is not one. */
static bool script_interpreter(const char *data, size_t len, char *command, size_t room) {
  char line[512];
  if (len < 3 || data[0] != '#' || data[1] != '!') return false;
  const char *end = memchr(data, '\n', len < sizeof line ? len : sizeof line - 1);
  if (end == NULL) return false;
  size_t n = (size_t)(end - data) - 2;
  memcpy(line, data + 2, n);
  line[n] = '\0';
  char *rest = NULL, *word = strtok_r(line, " \t\r", &rest);
  if (word == NULL) return false;
  const char *base = strrchr(word, '/');
  if (strcmp(base != NULL ? base + 1 : word, "env") == 0) do
      word = strtok_r(NULL, " \t\r", &rest);
    while (word != NULL && (word[0] == '-' || strchr(word, '=') != NULL));
  if (word == NULL || strlen(word) >= room) return false;
  strcpy(command, word);
  return true;
}

static bool set_version(interpreter_t *interpreter, int minor) {
  snprintf(interpreter->version, sizeof interpreter->version, "5.%d", minor);
  if (minor == 1)
    strcpy(interpreter->init, "LUA_INIT");
  else
    snprintf(interpreter->init, sizeof interpreter->init, "LUA_INIT_5_%d", minor);
  return true;
}

static bool version_by_content(interpreter_t *interpreter, const char *data, size_t len) {
  static const char versioned[] = "LUA_INIT_5_", plain[] = "LUA_INIT";
  const char *at = memmem(data, len, versioned, sizeof versioned - 1);
  if (at != NULL && at + sizeof versioned <= data + len && isdigit((unsigned char)at[sizeof versioned - 1]))
    return set_version(interpreter, at[sizeof versioned - 1] - '0');
  return memmem(data, len, plain, sizeof plain - 1) != NULL && set_version(interpreter, 1);
}

/* Looks into one file. A script's interpreter is left in `next`. */
static bool look_into(interpreter_t *interpreter, const char *path, char *next, failure_t *failure) {
  next[0] = '\0';
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    return failure_set(failure, "cannot read %s: %s", path, strerror(error));
  }
  size_t len = (size_t)info.st_size;
  void *data = len > 0 ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  bool found = false;
  if (data != MAP_FAILED) {
    found = script_interpreter(data, len, next, PATH_MAX) || version_by_content(interpreter, data, len);
    munmap(data, len);
  }
  return found ||
         failure_set(
             failure,
             "%s is not a Lua interpreter that luapulse can start itself in (it reads no LUA_INIT); if it "
             "starts one, say which with --lua 5.1 … 5.5",
             path);
}

/* -- the module ------------------------------------------------------------------------------------------ */

static bool find_module(interpreter_t *interpreter, failure_t *failure) {
  static const char *const places[] = {"lua",
                                       "../lib/lua"}; /* from the command's folder: as built, as installed */
  char own[PATH_MAX];
  ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
  if (len <= 0) return failure_set(failure, "cannot tell where luapulse is installed: %s", strerror(errno));
  own[len] = '\0';
  *strrchr(own, '/') = '\0';
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s/%s/luapulse.so", own, places[i], interpreter->version);
    if (realpath(path, interpreter->module) != NULL) return true;
  }
  return failure_set(
      failure,
      "there is no luapulse module for Lua %s: looked for lua/%s/luapulse.so and ../lib/lua/%s/luapulse.so "
      "from %s; `make` builds one for each Lua whose headers it finds, LUA_INCDIR=… tells it of more",
      interpreter->version, interpreter->version, interpreter->version, own);
}

bool interpreter_find(interpreter_t *interpreter, const char *command, failure_t *failure) {
  char path[PATH_MAX], next[PATH_MAX];
  snprintf(next, sizeof next, "%s", command);
  for (int i = 0; i < MAX_SCRIPTS; i++) {
    interpreter->not_found = find_in_path(next, path) ? 0 : errno;
    if (interpreter->not_found != 0)
      return failure_set(failure, "cannot find %s: %s", next, strerror(interpreter->not_found));
    if (!look_into(interpreter, path, next, failure)) return false;
    if (next[0] == '\0') return find_module(interpreter, failure);
  }
  return failure_set(failure, "%s: scripts that start scripts that start scripts: say --lua 5.1 … 5.5",
                     command);
}

bool interpreter_named(interpreter_t *interpreter, const char *version, failure_t *failure) {
  bool jit = strcmp(version, "jit") == 0 || strcmp(version, "luajit") == 0;
  if (!jit && !(strlen(version) == 3 && version[0] == '5' && version[1] == '.' && version[2] >= '1' &&
                version[2] <= '9'))
    return failure_set(failure, "--lua takes 5.1, 5.2, 5.3, 5.4, 5.5 or jit, not '%s'", version);
  set_version(interpreter, jit ? 1 : version[2] - '0');
  return find_module(interpreter, failure);
}
