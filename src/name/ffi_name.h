/* SPDX-License-Identifier: MIT */
/* LuaJIT: names of the built-in functions of its FFI that no table leads to: the metamethods of cdata, by which C functions are called, of
 * libraries (ffi.C), and of callbacks. In every release of 2.0 and 2.1 their numbers are those before ffi.cdef's, in the same order. */
#ifndef LUAPULSE_NAME_FFI_NAME_H
#define LUAPULSE_NAME_FFI_NAME_H

#include <stdint.h>

#define FFI_NAME_OF_LAST "ffi.cdef"

enum { FFI_NAMES = 23 };

/* Of the one whose number is so much less, from 1 to FFI_NAMES. */
const char *ffi_name(uint32_t less);

#endif
