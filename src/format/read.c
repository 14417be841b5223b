/* SPDX-License-Identifier: MIT */
/* A file or bytes to a profile: gzip taken off, the format told by content; see read.h. */
#include "format/read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/zip.h"
#include "profile/mem.h"

enum { CHUNK_BYTES = 64 * 1024, SNIFF_BYTES = 4096 };

typedef struct {
  char *data;
  size_t used, room;
} bytes_t;

static bool too_large(size_t limit, failure_t *failure) {
  return failure_set(failure, "it is larger than %zu MiB, the most that is read", limit >> 20);
}

/* -- gzip ------------------------------------------------------------------------------------------------ */

static bool is_gzip(const char *data, size_t len) {
  return len >= 2 && data[0] == '\x1f' && data[1] == '\x8b';
}

/* Inflates all members of the file, one after the other, until the input ends where a member ends. */
static bool inflate_all(z_stream *zip, size_t limit, bytes_t *out, failure_t *failure) {
  for (;;) {
    if (out->used > limit) return too_large(limit, failure);
    if (!mem_reserve((void **)&out->data, &out->room, out->used + CHUNK_BYTES, 1))
      return failure_set(failure, "out of memory");
    zip->next_out = (Bytef *)out->data + out->used;
    zip->avail_out = CHUNK_BYTES;
    int status = inflate(zip, Z_NO_FLUSH);
    out->used += CHUNK_BYTES - zip->avail_out;
    if (status == Z_STREAM_END) {
      if (zip->avail_in == 0) return out->used <= limit || too_large(limit, failure);
      if (!is_gzip((const char *)zip->next_in, zip->avail_in))
        return failure_set(failure, "its gzip data is followed by something else");
      status = inflateReset(zip);
    }
    if (status == Z_MEM_ERROR) return failure_set(failure, "out of memory");
    if (status == Z_BUF_ERROR || (status == Z_OK && zip->avail_in == 0 && zip->avail_out > 0))
      return failure_set(failure, "its gzip data is cut short");
    if (status != Z_OK)
      return failure_set(failure, "its gzip data is damaged (%s)",
                         zip->msg != NULL ? zip->msg : "unknown error");
  }
}

static bool gunzip(const char *data, size_t len, size_t limit, bytes_t *out, failure_t *failure) {
  z_stream zip = {0};
  zip_use_own_memory(&zip);
  if (len > UINT32_MAX) return too_large(limit, failure);
  zip.next_in = (Bytef *)data;
  zip.avail_in = (uInt)len;
  if (inflateInit2(&zip, ZIP_GZIP_WINDOW) != Z_OK) return failure_set(failure, "out of memory");
  bool done = inflate_all(&zip, limit, out, failure);
  inflateEnd(&zip);
  return done;
}

/* -- content --------------------------------------------------------------------------------------------- */

/* Protobuf has small lengths and numbers all over, folded text has no control bytes but white space. */
static bool looks_binary(const char *data, size_t len) {
  for (size_t i = 0; i < len && i < SNIFF_BYTES; i++)
    if ((unsigned char)data[i] < 0x20 && data[i] != '\n' && data[i] != '\r' && data[i] != '\t') return true;
  return false;
}

profile_t *profile_read(const char *data, size_t len, size_t limit, failure_t *failure) {
  bytes_t plain = {NULL, 0, 0};
  profile_t *profile = NULL;
  bool done = len <= limit || too_large(limit, failure);
  if (done && is_gzip(data, len)) {
    done = gunzip(data, len, limit, &plain, failure);
    data = plain.data;
    len = plain.used;
  }
  if (done && len == 0)
    failure_set(failure, "it is empty");
  else if (done)
    profile = looks_binary(data, len) ? pprof_read(data, len, failure) : folded_read(data, len, failure);
  mem_free(plain.data);
  return profile;
}

/* -- files ----------------------------------------------------------------------------------------------- */

static bool read_all(int fd, bytes_t *out, failure_t *failure) {
  for (;;) {
    if (out->used > READ_LIMIT_BYTES) return too_large(READ_LIMIT_BYTES, failure);
    if (!mem_reserve((void **)&out->data, &out->room, out->used + CHUNK_BYTES, 1))
      return failure_set(failure, "out of memory");
    ssize_t n = read(fd, out->data + out->used, CHUNK_BYTES);
    if (n == 0) return true;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure_set(failure, "%s", strerror(errno));
    out->used += (size_t)n;
  }
}

static int open_input(const char *path, failure_t *failure) {
  struct stat status;
  int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0 || fstat(fd, &status) != 0) {
    failure_set(failure, "%s", strerror(errno));
  } else if (S_ISDIR(status.st_mode)) {
    failure_set(failure, "it is a directory");
  } else {
    return fd;
  }
  if (fd > STDIN_FILENO) close(fd);
  return -1;
}

profile_t *profile_read_file(const char *path, failure_t *failure) {
  failure_t reason = {""};
  bytes_t bytes = {NULL, 0, 0};
  profile_t *profile = NULL;
  int fd = open_input(path, &reason);
  if (fd >= 0 && read_all(fd, &bytes, &reason))
    profile = profile_read(bytes.data, bytes.used, READ_LIMIT_BYTES, &reason);
  if (fd > STDIN_FILENO) close(fd);
  mem_free(bytes.data);
  if (profile == NULL)
    failure_set(failure, "%s: cannot be read: %s", strcmp(path, "-") == 0 ? "standard input" : path,
                reason.text);
  return profile;
}
