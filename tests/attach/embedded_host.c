/* SPDX-License-Identifier: MIT */
/* A host that embeds Lua, and reads the program that it runs by itself: with other C libraries than Lua was compiled for, stdio is not to be
 * trusted. Compiled with BORROWED it has what a Lua for glibc wants and others do not have. */
#include <fcntl.h>
#include <lauxlib.h>
#include <lualib.h>
#include <unistd.h>

#ifdef BORROWED
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((noreturn)) void __longjmp_chk(jmp_buf buffer, int value);
void *__memcpy_chk(void *to, const void *from, size_t len, size_t room);
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...);
int __fprintf_chk(FILE *file, int flag, const char *format, ...);

void __longjmp_chk(jmp_buf buffer, int value) {
  longjmp(buffer, value);
}
void *__memcpy_chk(void *to, const void *from, size_t len, size_t room) {
  (void)room;
  return memcpy(to, from, len);
}
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...) {
  va_list arguments;
  (void)flag, (void)room;
  va_start(arguments, format);
  int len = vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return len;
}
int __fprintf_chk(FILE *file, int flag, const char *format, ...) {
  va_list arguments;
  (void)flag;
  va_start(arguments, format);
  int len = vfprintf(file, format, arguments);
  va_end(arguments);
  return len;
}
#endif

int main(int argc, char **argv) {
  static char text[1 << 16];
  int fd = open(argv[1], O_RDONLY);
  ssize_t len = fd >= 0 ? read(fd, text, sizeof text) : -1;
  lua_State *L = luaL_newstate();
  if (len < 0 || L == NULL) return 2;
  luaL_openlibs(L);
  lua_createtable(L, argc, 0);
  for (int i = 1; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - 1);
  }
  lua_setglobal(L, "arg");
  lua_pushfstring(L, "@%s", argv[1]);
  if (luaL_loadbuffer(L, text, (size_t)len, lua_tostring(L, -1)) != 0) return 3;
  for (int i = 2; i < argc; i++) lua_pushstring(L, argv[i]);
  return lua_pcall(L, argc - 2, 0, 0);
}
