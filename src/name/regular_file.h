/* SPDX-License-Identifier: MIT */
/* Opening a file whose path comes from a stranger. To open a device may set something off (a watchdog), and a pipe wakes who waits at its
 * other end: so it is looked first what is there, and nothing but a regular file is ever opened. Wants /proc. */
#ifndef LUAPULSE_NAME_REGULAR_FILE_H
#define LUAPULSE_NAME_REGULAR_FILE_H

/* What there is instead of a descriptor. */
enum { REGULAR_FILE_NONE = -1 /* with errno */, REGULAR_FILE_OTHER = -2 /* it is something else */ };

/* For reading, without waiting; to be closed. */
int regular_file_open(const char *path);
/* The same for what was found already, by a descriptor of O_PATH, which is closed; -1 (with errno) gives REGULAR_FILE_NONE. */
int regular_file_open_found(int found);

#endif
