# redis-server: scripts (EVAL) and functions (FCALL), at work and idle. Its Lua is 5.1 with tables of its own, inside of the program.
source "$(dirname "$0")/hosts.sh"

ask() { redis-cli -h 127.0.0.1 -p "$port" "$@"; }
answers() { [ "$(ask PING)" = PONG ]; }
start_redis() {
  free_port
  start redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$PWD"
  redis=$pid
  wait_for answers
  cat >script.lua <<'LUA'
local function hash(n)
  local h = 0
  for i = 1, n do h = (h * 31 + i) % 65521 end
  return h
end
local sum = 0
for i = 1, tonumber(ARGV[1]) do
  redis.call("SET", "k" .. i % 100, hash(400))
  sum = sum + hash(400)
end
return cjson.encode({sum})
LUA
  cat >library.lua <<'LUA'
#!lua name=shop
local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
redis.register_function('price', function(keys, args)
  local x = spin(tonumber(args[1]))
  return x
end)
LUA
  ask -x FUNCTION LOAD <library.lua >loaded
  has loaded shop
}
# load: scripts and functions in turn, from a client that asks on and on
load() {
  sha=$(ask SCRIPT LOAD "$(cat script.lua)")
  start bash -c "while :; do echo EVALSHA $sha 0 1000; echo FCALL price 0 300000; done | redis-cli -h 127.0.0.1 -p $port >/dev/null"
}

expect_both() {
  stacks "^user_script:$sha \(user_script:9\);hash \(user_script:3\)"
  stacks "^user_script:$sha \(user_script:8\);redis.call \(\[C\]"
  stacks '^price \(user_function:8\);spin \(user_function:4\)'
}
test_scripts_and_functions() {
  for engine in $ENGINES ptrace; do
    start_redis
    load
    until_seen expect_both recorded -p "$redis" -F 299
    no_stacks 'user_script:[0-9]+ \('
    pid=$redis runs_on
    same "$(ask FCALL price 0 10)" 27 "what redis answers"
    kill -- "-${started[-1]}" "$redis"
  done
}
# Two libraries with other functions at the same lines; ways to register; functions that only C calls. By their texts, which Redis keeps.
start_libraries() {
  start_redis
  cat >first.lua <<'LUA'
#!lua name=first
local function by_order(a, b) local n = 0 for i = 1, 20 do n = n + i % 7 end return a < b end
local M = {}
function M.fill(n)
  local list = {}
  for i = 1, 100 * n do list[i % n + 1] = (i * 7919) % 1009 end
  return list
end
redis.register_function('first_sort', function(keys, args)
  local list = M.fill(tonumber(args[1]))
  table.sort(list, by_order)
  return list[1]
end)
redis.register_function{
  function_name = 'first_table',
  flags = { 'no-writes' },
  callback = function(keys, args)
    local x = 0
    for i = 1, tonumber(args[1]) do x = x + i % 5 end
    return x
  end
}
redis.register_function(
  'first_late',
  function(keys, args) return redis.call('PING') end)
LUA
  cat >second.lua <<'LUA'
#!lua name=second
local function by_size(x, y) local m = 0 for k = 1, 20 do m = m + k % 7 end return x > y end
local second = {}
function second.make(count)
  local all = {}
  for k = 1, 100 * count do all[k % count + 1] = (k * 7919) % 1009 end
  return all
end
redis.register_function('second_sort', function(keys, given)
  local all = second.make(tonumber(given[1]))
  table.sort(all, by_size)
  return all[1]
end)
LUA
  local library
  for library in first second; do
    ask -x FUNCTION LOAD <$library.lua >loaded
    has loaded $library
  done
}
# ask_on COMMAND…: in turn, on and on
ask_on() {
  printf '%s\n' "$@" >commands
  start bash -c "while :; do cat commands; done | redis-cli -h 127.0.0.1 -p $port >/dev/null"
}
expect_libraries() {
  stacks '^first_sort \(user_function:[0-9]+\);table.sort \(\[C\]:0\);by_order \(user_function:2\)'
  stacks '^second_sort \(user_function:[0-9]+\);table.sort \(\[C\]:0\);by_size \(user_function:2\)'
  stacks '^first_sort \(user_function:10\);M.fill \(user_function:6\)'
  stacks '^second_sort \(user_function:10\);second.make \(user_function:6\)'
  stacks '^first_table \(user_function:19\)'
}
test_functions_have_names() {
  local share
  for engine in $ENGINES ptrace; do
    start_libraries
    ask_on 'FCALL first_sort 0 500' 'FCALL second_sort 0 500' 'FCALL first_table 0 50000'
    until_seen "sampled 100 && expect_libraries" recorded -p "$redis" -F 299
    no_stacks '(^|;)(first[^;]*;.*(by_size|second)|second[^;]*;.*(by_order|M\.fill))'
    share=$(named_share)
    awk -v share="$share" 'BEGIN { exit !(share >= 95) }' || { cat out.folded >&2; fail "$engine: $share % have a name"; }
    kill -- "-${started[-1]}" "$redis"
  done
}
# What the texts do not tell apart has no name; what was replaced is not taken for what is there.
start_delta() { # LIBRARY FUNCTION
  printf '#!lua name=%s\n-- a line\nredis.register_function("%s", function(keys, args)\n  local n = 0\n  for i = 1, 20000 do n = n + i end\n  return n\nend)\n' $1 $2 |
    ask -x FUNCTION LOAD REPLACE >loaded
  has loaded $1
}
# -d SECONDS: gamma is called for half as much of the processor's time, delta for twice as much
gamma_then_delta() {
  kill -- "-${started[-1]}" 2>/dev/null # who asked until now
  ask FUNCTION FLUSH >loaded
  start_delta one gamma
  ask_on 'FCALL gamma 0'
  start_recorder -F 299 -p "$redis"
  pid=$redis until_busy "$(times "$2" 50)"
  kill -- "-${started[-1]}"
  start_delta one delta
  ask_on 'FCALL delta 0'
  pid=$redis until_busy "$(times "$2" 200)"
  kill -INT "$recorder"
  wait "$recorder" || fail "status: $(cat err)"
}
test_functions_that_look_alike() {
  local name
  engine=${ENGINES%% *}
  start_redis
  for name in alpha beta; do
    printf '#!lua name=%s\nredis.register_function("%s", function(keys, args)\n  local n = 0\n  for i = 1, 20000 do n = n + i end\n  return n\nend)\n' $name $name |
      ask -x FUNCTION LOAD >loaded
    has loaded $name
  done
  ask_on 'FCALL alpha 0' 'FCALL beta 0'
  until_seen "stacks '^user_function:2 \(user_function:4\)'" recorded -p "$redis" -F 299
  no_stacks 'alpha|beta'
  kill -- "-${started[-1]}"
  # from now on it is called otherwise, as it is recorded; before, its only text said gamma
  until_seen "stacks '^gamma \(user_function:5\)' && stacks '^(delta|user_function:3) \(user_function:5\)'" gamma_then_delta
  no_stacks 'alpha|beta'
  # gamma was called for a fifth of the time
  awk '/^gamma /{ g += $NF } /^(delta|user_function:3) /{ d += $NF } END { exit !(g < d) }' out.folded || { cat out.folded >&2; fail "delta is taken for gamma"; }
  until_seen "stacks '^(delta|user_function:3) \(user_function:5\)'" recorded -p "$redis" -F 299
  no_stacks gamma
  kill -- "-${started[-1]}" "$redis"
}
test_functions_in_a_dump() {
  start_libraries
  ask_on 'FCALL second_sort 0 5000'
  in_a_dump() {
    "$luapulse" dump -p "$redis" >out 2>err || fail "dump: $(cat err)"
    grep -qE '^ +second_sort +user_function:' out
  }
  in_time in_a_dump || fail "no name in the dump: $(cat out)"
  kill -- "-${started[-1]}" "$redis"
}
# No Lua runs, and what there is is found all the same.
test_an_idle_one() {
  start_redis
  status "$luapulse" dump -p "$redis"
  same "$status" 0 "status of dump: $(cat err)"
  has out 'Lua 5.1.5'
  has out 'layout "Lua 5.1.5 of Redis 7"'
  same "$(grep -c '^VM ' out)" 2 "VMs: one for scripts, one for functions"
  status "$luapulse" probe -p "$redis"
  same "$status" 0 "status of probe: $(cat err)"
  engine=bpf recorded -p "$redis" -d 0.5
  has err "no samples: it used no processor time"
  same "$(ask FCALL price 0 10)" 27 "what redis answers"
  kill "$redis"
}

attach_main "$@"
