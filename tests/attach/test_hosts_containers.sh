# Containers, as far as the kernel knows them: other mount, PID and user namespaces, other roots; the recorder outside of them, and inside.
source "$(dirname "$0")/hosts.sh"

# The program is where nobody else sees it: in a file system that only its mount namespace has. $inside is the process, as it is called here.
start_contained() { # FLAGS OF unshare… 
  start unshare "$@" --fork bash -c "
    mount -t tmpfs none /mnt && mkdir /mnt/app && cp '$here/split.lua' /mnt/app/split.lua &&
    cp '$(readlink -f "$(command -v lua5.4)")' /mnt/app/server && cd / && exec /mnt/app/server /mnt/app/split.lua plain"
  until_printed ready
  outside=$pid inside=$(pgrep -P "$pid")
  [ -n "$inside" ] || fail "there is no process inside"
}
expect_split() {
  stacks 'main chunk \(/mnt/app/split.lua:[0-9]+\);a \(/mnt/app/split.lua:13\);burn \(/mnt/app/split.lua:10\)'
  on_top burn
}

test_other_namespaces() {
  start_contained --user --map-root-user --mount --pid --mount-proc
  [ ! -e /mnt/app/split.lua ] || fail "the test is none: its files are here"
  for engine in $ENGINES ptrace; do
    until_seen expect_split recorded -p "$inside" -F 299
    "$luapulse" report --where nspid=1 out.pb.gz >report || fail "it is not told by which number the container calls it"
    has report burn
  done
  status "$luapulse" dump -p "$inside"
  same "$status" 0 "status of dump: $(cat err)"
  has out "process $inside (1 in its container): /mnt/app/server /mnt/app/split.lua plain"
  has out "/mnt/app/split.lua:10"
  grep -qE '^ +burn ' out || { cat out >&2; fail "burn has no name"; }
  status "$luapulse" probe -p "$inside"
  same "$status" 0 "status of probe: $(cat err)"
  pid=$inside runs_on
  # its end is told by both numbers
  start "$luapulse" record --engine bpf -p "$inside" -o ended.folded
  wait_for samples_threads 1
  kill -KILL "$inside"
  until_printed "process $inside (server, 1 in its container) has ended"
  until_printed "written to ended.folded"
}
# In a folder that is its root, everything has another path, and the files of that path here are others.
test_another_root() {
  local lib
  lib=/usr/lib/$(gcc -print-multiarch)/liblua5.4.a
  mkdir -p jail/mnt/app jail/usr
  gcc -O2 -static -s $(pkg-config --cflags lua5.4) -o jail/usr/server "$here/embedded_host.c" "$lib" -lm -ldl 2>compiler || { cat compiler >&2; fail "it does not compile"; }
  cp "$here/split.lua" jail/mnt/app/split.lua
  start chroot "$PWD/jail" /usr/server /mnt/app/split.lua plain
  until_printed ready
  for engine in $ENGINES; do
    until_seen expect_split recorded -p "$pid" -F 299
  done
  kill -KILL "$pid"
}
# start_linked FOLDER FILE: a program in that folder, whose function has no name but by what its file has on line 1. The file is a link to an
# absolute path, where the container has one text and the host another.
start_linked() {
  start unshare --user --map-root-user --mount --fork bash -c "
    mount -t tmpfs none '$PWD/view' && mkdir '$PWD/view/empty' && ln -s '$PWD/view/chosen.lua' '$PWD/view/app.lua' &&
    echo 'local function of_the_container()' >'$PWD/view/chosen.lua' && cd '$1' && exec lua5.4 '$PWD/linked.lua' '$2'"
  until_printed ready
  inside=$(pgrep -P "$pid")
}
named() { # NAME COMMAND…: a dump calls the function so
  local name=$1
  shift
  status "$@" dump -p "$inside"
  same "$status" 0 "status of dump: $(cat err)"
  grep -qE "^ +$name " out || { cat out >&2; fail "there is no '$name'"; }
}
test_links_of_a_container() {
  local error
  cat >linked.lua <<'END'
local work = coroutine.wrap(load("return function() while true do end end", "@" .. arg[1])())
io.write("ready\n") io.flush()
work()
END
  mkdir -p view/empty
  echo "local function of_the_host()" >view/chosen.lua
  ${CC:-cc} -DWITHOUT=SYS_openat2 -o without_openat2 "$here/without_bpf.c" || fail "the filter does not compile"
  for where in "/ $PWD/view/app.lua" "$PWD/view app.lua" "$PWD/view/empty ../app.lua"; do
    start_linked $where
    named of_the_container "$luapulse"
    for error in 1 38; do # EPERM, ENOSYS: its links are not followed then
      named 'function <app.lua:1>' ./without_openat2 $error "$luapulse"
    done
    kill -KILL "$inside"
  done
  # those of the recorder's own root and mounts are
  ln -s "$PWD/view/chosen.lua" view/app.lua
  start env -C view lua5.4 ../linked.lua app.lua
  until_printed ready
  inside=$pid
  named of_the_host "$luapulse"
  named of_the_host ./without_openat2 38 "$luapulse"
  kill -KILL "$inside"
}
# The recorder has file systems of its own, and the processes of all.
from_a_container() {
  status unshare --mount bash -c "mount -t tmpfs none /mnt && exec '$luapulse' record --engine $engine -p $pid -F 299 -o out.pb.gz -o out.folded $*"
  same "$status" 0 "status: $(cat err)"
}
test_the_recorder_in_a_container() {
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  for engine in $ENGINES; do
    until_seen "stacks ';a \([^;]*split.lua:13\);burn '" from_a_container
  done
  kill -KILL "$pid"
}
# Both are in one: what the recorder calls processes is not what the kernel does.
within_a_container() {
  status unshare --mount --pid --mount-proc --fork bash -c "
    lua5.4 '$here/split.lua' plain >ready & pid=\$!
    unshare --pid --fork luajit '$here/split.lua' coroutines >ready2 & # one more within
    until [ -s ready ] && [ -s ready2 ]; do sleep 0.05; done
    '$luapulse' record --engine $engine --all -F 299 -o out.pb.gz -o out.folded $*"
  same "$status" 0 "status: $(cat err)"
}
expect_both() {
  stacks 'main chunk \([^;]*split.lua:[0-9]+\);a \([^;]*split.lua:13\);burn '
  stacks 'coroutine.*;a \([^;]*split.lua:13\);burn '
  "$luapulse" report --where comm=luajit --where nspid=1 out.pb.gz >report || fail "nothing of the inner one: $(cat err)"
}
test_both_in_a_container() {
  for engine in $ENGINES ptrace; do
    until_seen expect_both within_a_container
    status "$luapulse" report --where comm=lua5.4 --where nspid=1 out.pb.gz
    same "$status" 1 "status of a number within that is none"
  done
}
# The package was upgraded: the file of that name is another by now.
test_an_upgraded_program() {
  cp "$(readlink -f "$(command -v lua5.4)")" server
  start ./server "$here/split.lua" plain
  until_printed ready
  cp /bin/true server.new
  mv server.new server
  for engine in $ENGINES; do
    until_seen "stacks ';a \([^;]*split.lua:13\);burn '" recorded -p "$pid" -F 299
  done
  status "$luapulse" probe -p "$pid"
  same "$status" 0 "status of probe: $(cat err)"
  has out "server (deleted)"
  kill -KILL "$pid"
}

attach_main "$@"
