# What make install puts where, and that it works from there; what make does without its needs.
source "$(dirname "$0")/cli.sh"

install_here() { make -s -C "$root" install PREFIX=/opt/lp DESTDIR="$PWD/dest" >log 2>&1 || { cat log >&2; fail "make install"; }; }

test_installed_command_profiles() {
  install_here
  local files
  files=$(cd dest/opt/lp && find . -type f -o -type l | sort)
  for file in ./bin/luapulse ./include/luapulse.h ./lib/pkgconfig/luapulse.pc ./lib/lua/5.1/luapulse.so ./lib/lua/5.4/luapulse.so \
    ./share/man/man1/luapulse.1 ./share/man/man1/luapulse-run.1 ./share/man/man3/luapulse.3; do
    grep -qxF "$file" <<<"$files" || fail "$file is not installed: $files"
  done
  status dest/opt/lp/bin/luapulse run -o p.pb.gz -- lua5.4 "$root/tests/cli/burn.lua" 0.2
  same "$status" 0 status
  status "$luapulse" report p.pb.gz
  has out inner
}
test_embedding_by_pkg_config() {
  install_here
  local flags
  # PREFIX is not where DESTDIR put it, hence the variables; lua5.4 is asked apart: they would change it too
  flags="$(PKG_CONFIG_PATH="$PWD/dest/opt/lp/lib/pkgconfig" pkg-config --define-variable=prefix="$PWD/dest/opt/lp" \
    --define-variable=libdir="$PWD/dest/opt/lp/lib" --cflags --libs luapulse5.4) $(pkg-config --cflags --libs lua5.4)" ||
    fail "pkg-config"
  ${CC:-cc} -Wall -Wextra -o host "$root/examples/embed.c" $flags || fail "examples/embed.c does not build"
  status ./host "$root/examples/shop.lua" host.pb.gz
  same "$status" 0 "status of the host: $(cat err)"
  status "$luapulse" report host.pb.gz
  has out find_coupon
}
test_header_is_fit_for_cpp() {
  echo '#include "luapulse.h"
int main() { luapulse_profile_options_t o; luapulse_options_init(&o); return 0; }' >host.cc
  ${CXX:-g++} -std=c++11 -Wall -Wextra -Werror -fsyntax-only -I"$root/include" host.cc || fail "not C++"
}
test_uninstall_leaves_nothing() {
  install_here
  make -s -C "$root" uninstall PREFIX=/opt/lp DESTDIR="$PWD/dest" >/dev/null
  same "$(find dest -type f -o -type l)" "" "left behind"
}
test_without_apt_the_missing_are_named() {
  # a PATH with the shell's tools but no apt-get, gcc or protoc-c
  mkdir bin
  for tool in bash sh env sed id mktemp rm tail; do ln -s "$(command -v $tool)" bin/$tool; done
  status env PATH="$PWD/bin" "$root/scripts/deps" build
  same "$status" 1 status
  for name in gcc pkg-config protobuf-c-compiler zlib1g-dev; do has err $name; done
}
test_without_apt_what_is_not_tested_is_said() {
  mkdir bin project
  cp -r "$root/scripts" project/
  for tool in bash dirname uname; do ln -s "$(command -v $tool)" bin/$tool; done
  status env -u PKG_CONFIG_PATH PATH="$PWD/bin" project/scripts/newer
  same "$status" 0 status
  has err "Lua 5.5 is not tested: "
}
test_lua_incdir_builds_for_those_headers() {
  # headers that pkg-config does not know of
  cp -r /usr/include/lua5.4 headers
  mkdir copy
  tar -C "$root" --exclude=./build --exclude=./.git -c . | tar -C copy -x || fail "copy"
  make -s -C copy build/lua/5.4/luapulse.so LUA_INCDIR="$PWD/headers" LUA_FOUND= >log 2>&1 || { cat log >&2; fail build; }
  LUA_CPATH="$PWD/copy/build/lua/5.4/?.so" lua5.4 -e 'require("luapulse").start()' || fail "does not load"
}
cli_main "$@"
