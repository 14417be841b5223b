/* SPDX-License-Identifier: MIT */
/* Sinks: memory, file descriptor, gzip; see sink.h. */
#include "format/sink.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/zip.h"
#include "profile/mem.h"

enum { BUFFER_BYTES = 64 * 1024 };

typedef enum { TO_MEMORY, TO_FD, TO_GZIP } sink_kind_t;

struct sink {
  sink_kind_t kind;
  char *buffer; /* memory: everything; fd and gzip: what is not passed on yet */
  size_t room, used;
  int fd;
  sink_t *destination; /* gzip: where compressed bytes go */
  z_stream zip;
  int error; /* errno of the first failure, 0 while all is well */
};

static sink_t *sink_new(sink_kind_t kind) {
  sink_t *sink = mem_alloc(sizeof *sink);
  if (sink == NULL) return NULL;
  sink->kind = kind;
  sink->fd = -1;
  if (!mem_reserve((void **)&sink->buffer, &sink->room, BUFFER_BYTES, 1)) {
    mem_free(sink);
    return NULL;
  }
  return sink;
}

sink_t *sink_to_memory(void) {
  return sink_new(TO_MEMORY);
}

sink_t *sink_to_fd(int fd) {
  sink_t *sink = sink_new(TO_FD);
  if (sink != NULL) sink->fd = fd;
  return sink;
}

sink_t *sink_gzip(sink_t *destination) {
  sink_t *sink = sink_new(TO_GZIP);
  if (sink == NULL) return NULL;
  sink->destination = destination;
  zip_use_own_memory(&sink->zip);
  /* the gzip header carries no time, so equal profiles are equal files */
  if (deflateInit2(&sink->zip, 6, Z_DEFLATED, ZIP_GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    mem_free(sink->buffer);
    mem_free(sink);
    return NULL;
  }
  return sink;
}

static void write_fd(sink_t *sink) {
  for (size_t done = 0; done < sink->used;) {
    ssize_t n = write(sink->fd, sink->buffer + done, sink->used - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      sink->error = errno;
      break;
    }
    done += (size_t)n;
  }
}

static void deflate_on(sink_t *sink, int flush) {
  char out[8192];
  sink->zip.next_in = (Bytef *)sink->buffer;
  sink->zip.avail_in = (uInt)sink->used;
  do {
    sink->zip.next_out = (Bytef *)out;
    sink->zip.avail_out = sizeof out;
    if (deflate(&sink->zip, flush) == Z_STREAM_ERROR) {
      sink->error = EIO;
      return;
    }
    sink_write(sink->destination, out, sizeof out - sink->zip.avail_out);
  } while (sink->zip.avail_out == 0);
}

static void pass_on(sink_t *sink, int flush) {
  if (sink->error == 0) {
    if (sink->kind == TO_FD) write_fd(sink);
    if (sink->kind == TO_GZIP) deflate_on(sink, flush);
  }
  sink->used = 0;
}

void sink_write(sink_t *sink, const void *data, size_t len) {
  const char *bytes = data;
  if (sink->error != 0 || len == 0) return;
  if (sink->kind == TO_MEMORY) {
    if (len > SIZE_MAX - sink->used ||
        !mem_reserve((void **)&sink->buffer, &sink->room, sink->used + len, 1)) {
      sink->error = ENOMEM;
      return;
    }
    memcpy(sink->buffer + sink->used, bytes, len);
    sink->used += len;
    return;
  }
  while (len > 0) {
    size_t part = sink->room - sink->used < len ? sink->room - sink->used : len;
    memcpy(sink->buffer + sink->used, bytes, part);
    sink->used += part;
    bytes += part;
    len -= part;
    if (sink->used == sink->room) pass_on(sink, Z_NO_FLUSH);
  }
}

void sink_text(sink_t *sink, const char *text) {
  sink_write(sink, text, strlen(text));
}

void sink_format(sink_t *sink, const char *format, ...) {
  char line[1024]; /* numbers and short words only: names of any length go through sink_write */
  va_list arguments;
  va_start(arguments, format);
  int len = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (len < 0 || (size_t)len >= sizeof line)
    sink->error = EOVERFLOW;
  else
    sink_write(sink, line, (size_t)len);
}

void sink_fail(sink_t *sink, int error) {
  if (sink->error == 0) sink->error = error;
}

const char *sink_memory(const sink_t *sink, size_t *len) {
  if (sink->error != 0 || sink->kind != TO_MEMORY) return NULL;
  *len = sink->used;
  return sink->buffer;
}

bool sink_close(sink_t *sink, failure_t *failure) {
  if (sink->kind != TO_MEMORY) pass_on(sink, Z_FINISH);
  if (sink->kind == TO_GZIP) deflateEnd(&sink->zip);
  int error = sink->error;
  mem_free(sink->buffer);
  mem_free(sink);
  return error == 0 || failure_set(failure, "%s", strerror(error));
}
