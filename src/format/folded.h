/* SPDX-License-Identifier: MIT */
/* What the writer and the reader of folded text agree on.
 *
 *   file   = { comment } { stack " " value newline }
 *   stack  = frame { ";" frame }, outermost first
 *   frame  = name, or name " (" file ":" line ")" when there is a file, a line, or no name
 *
 * Names and files are in ENCODING_FOLDED. Where an opening parenthesis after a space could be taken for the
 * start of the last part (in files, and in names without one) it is written as \x28. Comments begin with "# "
 * and never end in a word that is a number, so that every line that does is a stack. */
#ifndef LUAPULSE_FORMAT_FOLDED_H
#define LUAPULSE_FORMAT_FOLDED_H

/* "# luapulse folded: type=… unit=… program=…", spaces within a value written as \x20. */
#define FOLDED_HEADER "luapulse folded:"

#endif
