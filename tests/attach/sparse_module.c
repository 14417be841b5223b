/* SPDX-License-Identifier: MIT */
/* A module that has a mapping of its own file, as long as that is: loadlib(FILE, "wait_mapped")(FILE) says that it is ready, and waits. */
#include <fcntl.h>
#include <lua.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int wait_mapped(lua_State *L);
int wait_mapped(lua_State *L) {
  struct stat status;
  int fd = open(lua_tolstring(L, 1, NULL), O_RDONLY);
  if (fd < 0 || fstat(fd, &status) != 0 ||
      mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
    return 0;
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
