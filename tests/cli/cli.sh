# For the tests of the command line: source it, define functions test_NAME, end with `cli_main "$@"`.
# `bash FILE --list` names the tests, `bash FILE NAME` runs one, in an empty folder of its own that is removed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-build}
luapulse=$root/$BUILD/luapulse
PATH=$root/$BUILD/tests/bin:$PATH # interpreters of our own
export PKG_CONFIG_PATH=${PKG_CONFIG_PATH:-}:$(pkg-config --variable pc_path pkg-config):$root/build/newer/$(uname -m)/pkgconfig # as the Makefile has it

# LuaJIT with 32-bit references, which only x86-64 has
gc32=$([ "$(uname -m)" != x86_64 ] || echo luajit-gc32)
# and 5.5, which there may be none of where there is no apt (scripts/newer)
lua55=$([ ! -e "$root/$BUILD/lua/5.5/luapulse.so" ] && ! command -v apt-get >/dev/null || echo lua5.5)
newer=$(cd "$root/$BUILD/tests/bin" 2>/dev/null && ls -d *-newer luajit-upstream 2>/dev/null | tr '\n' ' ') # later releases of 5.4 and LuaJIT, and its author's, likewise
all_runtimes="lua5.1 lua5.2 lua5.3 lua5.4 $lua55 luajit $gc32"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
same() { [ "$1" = "$2" ] || fail "${3:-value}: expected '$2', got '$1'"; }
has() { grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "'$2' is not in $1"; }; }
lacks() { ! grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "'$2' is in $1"; }; }

# note TEXT: what a case leaves out; tests/run shows it also of those that pass
note() { echo "note: $*" >&2; }
# needs_sanitized: $sanitized is the command with sanitizers, for what may be hostile. The plain one shows little of it: it serves in a quick run
# alone (tests/run says by QUICK that it is one), which builds no other.
needs_sanitized() {
  sanitized=$root/${SANITIZED:-$BUILD/sanitize-address-undefined}/luapulse
  [ ! -x "$sanitized" ] || return 0
  [ -n "${QUICK:-}" ] || fail "the sanitized luapulse is not built: make test"
  note "the sanitized luapulse is not built (make test does): the plain one serves"
  sanitized=$luapulse
}

# status COMMAND…: runs it, output in out and err, status in $status
status() {
  "$@" >out 2>err
  status=$?
}

cli_main() {
  local names
  names=$(declare -F | sed -n 's/^declare -f test_//p')
  if [ "${1:-}" = --list ]; then
    echo "$names"
    return
  fi

  folder=$(mktemp -d) # not local: the trap outlives the function
  trap 'rm -rf "$folder"' EXIT
  cd "$folder" || exit 2
  for name in ${1:-$names}; do "test_$name"; done
}
