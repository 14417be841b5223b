/* SPDX-License-Identifier: MIT */
/* Names of LuaJIT's FFI; see ffi_name.h. */
#include "name/ffi_name.h"

const char *ffi_name(uint32_t less) {
  static const char *const names[FFI_NAMES] = {
      "cdata.__index",    "cdata.__newindex", "cdata.__eq",     "cdata.__len",  "cdata.__lt",
      "cdata.__le",       "cdata.__concat",   "cdata.__call",   "cdata.__add",  "cdata.__sub",
      "cdata.__mul",      "cdata.__div",      "cdata.__mod",    "cdata.__pow",  "cdata.__unm",
      "cdata.__tostring", "cdata.__pairs",    "cdata.__ipairs", "clib.__index", "clib.__newindex",
      "clib.__gc",        "callback.free",    "callback.set"};
  return names[FFI_NAMES - less];
}
