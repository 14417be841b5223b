/* SPDX-License-Identifier: MIT */
/* Failure messages; see failure.h. */
#include "profile/failure.h"

#include <stdarg.h>
#include <stdio.h>

bool failure_set(failure_t *failure, const char *format, ...) {
  if (failure != NULL) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
  }
  return false;
}
