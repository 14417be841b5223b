/* SPDX-License-Identifier: MIT */
/* What a build with sanitizers changes for tests, in one place; tests/agent/t.lua has the same for Lua. */
#ifndef LUAPULSE_TESTS_SANITIZED_H
#define LUAPULSE_TESTS_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED_ADDRESS = 1 };
#else
enum { SANITIZED_ADDRESS = 0 };
#endif

#ifdef __SANITIZE_THREAD__
enum { SANITIZED_THREAD = 1 };
#else
enum { SANITIZED_THREAD = 0 };
#endif

#ifdef ONE_OF_MANY /* a host that is there once for each of several VMs */
enum { OTHER_VM = 1 };
#else
enum { OTHER_VM = 0 };
#endif

/* So many rounds; a tenth under a sanitizer, which is ten times slower and sees in one round what it would see in ten, and a tenth with
 * another VM: the plain build runs them all. */
#define FEWER(rounds) (SANITIZED_ADDRESS || SANITIZED_THREAD || OTHER_VM ? ((rounds) + 9) / 10 : (rounds))

#endif
