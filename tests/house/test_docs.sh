#!/bin/bash
# SPDX-License-Identifier: MIT
# The documents are true: links lead somewhere, options exist, man pages format.
#   test_docs.sh --list    names the tests      test_docs.sh [NAME]    runs one, or all
set -u
cd "$(dirname "$0")/../.." || exit 2
luapulse=${BUILD:-build}/luapulse
commands="run record top stat dump probe report leaks convert layout"
pages=(*.md docs/*.md)
bad=0

wrong() {
  echo "$*" >&2
  bad=1
}

# A man page as plain words: escaped hyphens, font changes and macro names taken off.
plain_man() {
  sed -E 's/\\-/-/g; s/\\f(.)//g; s/\\\(dq/"/g; s/^\.[A-Z]+ ?//' "$1"
}

# "-o" and "--output", one to a line, as the help of a command lists them at the beginning of lines.
help_options() {
  "$luapulse" "$1" --help | sed -nE 's/^ +((-[A-Za-z], +)?--[a-z-]+).*/\1/p' | tr -d ' ' | tr ',' '\n'
}

# The options in every "luapulse COMMAND …" of a text, without those of commands in $(…), up to a lone "--", a pipe, or the end of the code.
mentioned_options() {
  local command=$1
  grep -oE "luapulse $command [^\`]*" | sed -E ':again; s/\$\([^()]*\)//; t again; s/ -- .*//; s/ --$//; s/ [|&;#>].*//; s/ (or|and) .*//' |
    grep -oE '(^| )--?[A-Za-z][A-Za-z-]*' | tr -d ' ' | sort -u
}

# A text without what it says of other commands than this one.
without_other_commands() {
  local others
  others=$(tr ' ' '\n' <<<"$commands" | grep -vxF -- "$1" | paste -sd '|')
  sed -E "s/luapulse ($others) [^\`]*//g"
}

test_relative_links_resolve() {
  local page link target anchor file
  for page in "${pages[@]}"; do
    while IFS= read -r link; do
      case $link in http:* | https:* | mailto:*) continue ;; esac
      target=${link%%#*} anchor=
      [[ $link == *#* ]] && anchor=${link#*#}
      file=$page
      [ -n "$target" ] && file=$(dirname "$page")/$target
      [ -e "$file" ] || { wrong "$page: $link leads nowhere"; continue; }
      [ -z "$anchor" ] && continue
      # a heading in lower case, without punctuation, spaces as hyphens
      grep -E '^#+ ' "$file" | sed -E 's/^#+ //' | tr '[:upper:]' '[:lower:]' |
        sed -E 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qxF -- "$anchor" || wrong "$page: $link: no such heading"
    done < <(grep -oE '\]\([^) ]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//')
  done
}

test_mentioned_options_exist() {
  local command known option file
  for command in $commands; do
    known=$(help_options "$command")
    [ -n "$known" ] || wrong "luapulse $command --help lists no options"
    for file in "${pages[@]}" man/*.[13]; do
      for option in $({ [[ $file == *.md ]] && cat "$file" || plain_man "$file"; } | mentioned_options "$command"); do
        grep -qxF -- "$option" <<<"$known" || wrong "$file: luapulse $command has no option $option"
      done
    done
    # the pages of the command itself: every long option in them is one of its own
    for option in $({ cat "docs/$command.md"; plain_man "man/luapulse-$command.1"; } | without_other_commands "$command" |
      grep -oE -- '(^|[^A-Za-z0-9-])--[a-z][a-z-]*' | sed -E 's/^[^-]//' | sort -u); do
      grep -qxF -- "$option" <<<"$known" || wrong "the pages of luapulse $command: there is no option $option"
    done
  done
}

test_every_option_is_documented() {
  local command option
  for command in $commands; do
    for option in $(help_options "$command"); do
      grep -qE -- "(^|[^A-Za-z0-9-])$option([^A-Za-z-]|$)" "docs/$command.md" || wrong "docs/$command.md: $option is missing"
      plain_man "man/luapulse-$command.1" | grep -qE -- "(^|[^A-Za-z0-9-])$option([^A-Za-z-]|$)" ||
        wrong "man/luapulse-$command.1: $option is missing"
    done
  done
}

test_every_command_has_its_pages() {
  local listed
  listed=$("$luapulse" --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' | tr '\n' ' ')
  [ "$listed" = "$commands " ] || wrong "luapulse --help lists '$listed', this test knows '$commands'"
  for command in $listed; do
    [ -f "docs/$command.md" ] || wrong "docs/$command.md is missing"
    [ -f "man/luapulse-$command.1" ] || wrong "man/luapulse-$command.1 is missing"
  done
}

test_man_pages_format_without_warnings() {
  local page warnings
  command -v groff >/dev/null || wrong "there is no groff (scripts/deps test)"
  for page in man/*.[13]; do
    warnings=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || wrong "$page: $warnings"
  done
}

# The rows of the first table below the heading pulse.start, against KNOWN in the module.
test_options_of_start_are_those_of_the_module() {
  local known documented types
  known=$(sed -n '/^static const char KNOWN/,/;$/p' src/agent/binding.c | grep -oE '[a-z][a-z_]*(,|")' | tr -d ',"' | sort)
  documented=$(sed -n '/^## pulse\.start/,/^## pulse\.stop/p' docs/lua-api.md | sed -nE 's/^\| `([a-z_]+)`.*/\1/p' | sort)
  types=$(sed -n '/^---@class luapulse\.options/,/^$/p' types/luapulse.lua | sed -nE 's/^---@field ([a-z_]+)\?.*/\1/p' | sort)
  [ -n "$known" ] || wrong "KNOWN was not found in src/agent/binding.c"
  [ "$known" = "$documented" ] || wrong "docs/lua-api.md differs from the module: $(diff <(echo "$known") <(echo "$documented") | grep '^[<>]' | tr '\n' ' ')"
  [ "$known" = "$types" ] || wrong "types/luapulse.lua differs from the module: $(diff <(echo "$known") <(echo "$types") | grep '^[<>]' | tr '\n' ' ')"
}

# Every function of luapulse.h stands in its page and its man page, and every function of the module in its.
test_every_function_is_documented() {
  local name
  for name in $(grep -oE '\b(luapulse|luaopen)_[a-z0-9_]+\(' include/luapulse.h | tr -d '(' | sort -u); do
    grep -qF "$name" docs/c-api.md || wrong "docs/c-api.md: $name is missing"
    grep -qF "$name" man/luapulse.3 || wrong "man/luapulse.3: $name is missing"
  done
  for name in $(sed -nE '/^static const luaL_Reg functions/,/^};/p' src/agent/binding.c | grep -oE '\{"[a-z0-9_]+"' | tr -d '{"'); do
    grep -qF "pulse.$name(" docs/lua-api.md || wrong "docs/lua-api.md: pulse.$name is missing"
    grep -qF "pulse.$name(" man/luapulse.3 || wrong "man/luapulse.3: pulse.$name is missing"
    grep -qF "function pulse.$name(" types/luapulse.lua || wrong "types/luapulse.lua: pulse.$name is missing"
  done
  for name in $(sed -nE '/^static const luaL_Reg methods/,/^};/p' src/agent/binding_profile.c | grep -oE '\{"[a-z0-9_]+"' | tr -d '{"'); do
    grep -qF "profile:$name(" docs/lua-api.md || wrong "docs/lua-api.md: profile:$name is missing"
    grep -qF "profile:$name(" man/luapulse.3 || wrong "man/luapulse.3: profile:$name is missing"
    grep -qF "function profile:$name(" types/luapulse.lua || wrong "types/luapulse.lua: profile:$name is missing"
  done
}

# The totals that the allocator counts, the types of a heap's samples, and the frames that stand for no function.
test_what_a_heap_profile_tells_is_documented() {
  local name totals types
  totals=$(sed -n '/^#define LIVE_HEAP_TOTALS/,/^$/p' src/profile/live_heap.h | grep -oE 'F\([a-z_]+\)' | sed -E 's/F\((.*)\)/heap_\1/')
  types=$(sed -n '/heap_value_names\[/,/};/p' src/profile/live_heap.c | grep -oE '"[a-z_]+"' | tr -d '"')
  [ -n "$totals" ] && [ -n "$types" ] || wrong "no totals or types were found in src/profile/live_heap"
  for name in $totals heap_sample_mean_bytes $types; do
    grep -qF "\`$name\`" docs/heap.md || wrong "docs/heap.md: $name is missing"
    grep -qE "^---@field $name\?" types/luapulse.lua || wrong "types/luapulse.lua: $name is missing"
  done
  for name in $(grep -hoE '"\[[a-z]+[a-zA-Z :]*' src/agent/heap*.c src/agent/session.c src/agent/walked.c | tr -d '" ' | grep -v '^\[string$' | sort -u); do
    tr -d ' ' <docs/heap.md | grep -qF "\`$name" || wrong "docs/heap.md: the frame $name… is missing"
  done
}

test_versions_agree() {
  local version
  version=$(sed -n 's/^VERSION := //p' Makefile)
  [ "$("$luapulse" --version)" = "luapulse $version" ] || wrong "luapulse --version is not $version"
  grep -qF "## [$version]" CHANGELOG.md || wrong "CHANGELOG.md has no section [$version]"
  for page in man/*.[13]; do grep -qF "\"LuaPulse $version\"" "$page" || wrong "$page: is not of version $version"; done
}

names=$(declare -F | sed -n 's/^declare -f test_//p')
if [ "${1:-}" = --list ]; then
  echo "$names"
  exit 0
fi
if [ $# -gt 0 ] && ! grep -qxF -- "$1" <<<"$names"; then
  echo "no test is called $1" >&2
  exit 2
fi
[ -x "$luapulse" ] || { echo "$luapulse is not built" >&2; exit 2; }
for name in ${1:-$names}; do "test_$name"; done
exit $bad
