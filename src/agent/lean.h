/* SPDX-License-Identifier: MIT */
/* Of functions that are called tens of millions of times a second, a frame pointer is a good part. */
#ifndef LUAPULSE_AGENT_LEAN_H
#define LUAPULSE_AGENT_LEAN_H

#if defined __GNUC__ && !defined __clang__
#define LEAN __attribute__((optimize("omit-frame-pointer")))
#else
#define LEAN
#endif

/* A part of such functions. */
#define LEAN_INLINE __attribute__((always_inline)) static inline

#endif
