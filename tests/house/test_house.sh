# The rules of the house that can be checked by looking: who includes whom, what the agent may not do.
source "$(dirname "$0")/../cli/cli.sh"
shopt -s globstar

# includes FROM: the rooms that files of src/FROM include from
rooms_included_by() {
  sed -n 's|^#include "\([a-z]*\)/.*|\1|p' "$root"/src/$1/**/*.[ch] | sort -u | grep -vx "$1"
}
may_include() { # ROOM ALLOWED…
  local room=$1
  shift
  for other in $(rooms_included_by "$room"); do
    [[ " $* " == *" $other "* ]] || fail "src/$room includes from src/$other: $(grep -ln "\"$other/" "$root"/src/$room/**/*.[ch])"
  done
}
test_dependencies_point_one_way() {
  may_include profile
  may_include format profile
  may_include name profile
  may_include walk
  may_include agent profile format name walk
  may_include attach profile name walk
  # the command runs without Lua: of the agent it shares only what has none in it
  may_include cli profile format name walk attach agent
  local shared
  shared=$(sed -n 's|^#include "agent/\(.*\)"|\1|p' "$root"/src/cli/*.[ch] | sort -u | tr '\n' ' ')
  same "$shared" "autostart.h options.h " "what the command takes from the agent"
}
test_lua_only_in_the_agent() {
  same "$(grep -rlE '#include [<"](lua|lauxlib|lualib)\.h' "$root"/src/{profile,format,name,walk,attach,cli} || true)" "" "files with Lua headers"
}
test_version_differences_in_one_file() {
  same "$(grep -lE '#[ ]*if.*LUA_VERSION_(NUM|RELEASE)' "$root"/src/**/*.[ch])" "$root/src/agent/lua_version.c" "files that test LUA_VERSION_NUM"
}
test_the_agent_never_prints_aborts_or_exits() {
  local found
  found=$(cd "$root" && grep -nE '\b(assert|abort|exit|_exit|printf|fprintf|vprintf|puts|fputs|putchar|perror)[ ]*\(' \
    src/{agent,profile,format,name,walk,attach}/**/*.c | grep -vE 'vsnprintf|snprintf')
  same "$found" "" "prints, asserts and exits"
}
test_only_mem_allocates() {
  local found
  found=$(cd "$root" && grep -nE '\b(malloc|calloc|realloc|strdup|free)[ ]*\(' src/{agent,profile,format,name,walk,attach}/**/*.c |
    grep -vE 'src/profile/mem.c|src/format/.*read')
  same "$found" "" "allocations past mem.h"
}
test_agent_links_little() {
  local needed
  for module in "$root/$BUILD"/lua/*/luapulse.so; do
    needed=$(objdump -p "$module" | awk '/NEEDED/ { print $2 }' | grep -vE '^(libc|libm|libpthread|libdl|librt|libz)\.so' || true)
    same "$needed" "" "libraries of $module beyond libc and zlib"
    objdump -p "$module" | grep -q NODELETE || readelf -d "$module" | grep -q NODELETE || fail "$module may be unmapped"
  done
}
# One file that can be copied to the machine where it is wanted.
test_the_command_stands_alone() {
  local needed
  needed=$(objdump -p "$root/$BUILD/luapulse" | awk '/NEEDED/ { print $2 }' | grep -vE '^(libc|libm|ld-linux-.*)\.so' || true)
  same "$needed" "" "libraries of the command beyond libc"
}
test_modules_export_only_the_interface() {
  local names
  names=$(nm -D --defined-only "$root/$BUILD/lua/5.4/luapulse.so" | awk '{ print $3 }' | grep -vE '^(luapulse_|luaopen_luapulse)' || true)
  same "$names" "" "exported names"
}
test_files_are_short() {
  local long
  long=$(cd "$root" && wc -l src/**/*.[ch] web/* | awk '$2 != "total" && $1 > 600 { print $2 }')
  same "$long" "" "files over 600 lines"
}
test_no_absolute_path_of_a_machine() {
  local found
  found=$(cd "$root" && git grep -nIE '/(home|root|work)/[a-z]' -- . ':!tests/house/test_house.sh' || true)
  same "$found" "" "absolute paths"
}
test_code_is_formatted() {
  (cd "$root" && clang-format --dry-run -Werror src/**/*.[ch] include/*.h tests/*/*.[ch] examples/*.c) >out 2>&1 || { head -20 out >&2; fail "not formatted: make format"; }
}

cli_main "$@"
