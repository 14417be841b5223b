# The walk-throughs are true: their files are written and their commands run, in order, as they stand on the page, where nobody else is.
source "$(dirname "$0")/hosts.sh"

# walk_through PAGE PORT -d SECONDS: its blocks as one script. "```sh" is run, "```lua file=app.lua" is a file; the port is replaced by a free
# one, unless it is "none". At first they run as they stand; where that did not show what it should, each recording takes longer.
walk_through() {
  local page=$root/docs/$1.md
  round=$((${round:-0} + 1))
  [ $round -le 4 ] || fail "$1.md does not show it, however long it takes: $(cat "$folder/missing"; tail -n 60 err out)"
  rm -rf "$folder/$1"
  mkdir "$folder/$1" && cd "$folder/$1" || fail "folder"
  chmod 777 .
  awk '
    /^```[a-z]+ file=/ { sub(/.*file=/, ""); print "cat >" $0 " <<\"END OF FILE\""; on = "file"; next }
    /^```sh$/ { on = "sh"; next }
    /^```/ { if (on == "file") print "END OF FILE"; on = ""; next }
    on == "sh" && match($0, / -d [0-9]+ /) { $0 = substr($0, 1, RSTART + 3) substr($0, RSTART + 4, RLENGTH - 5) * round substr($0, RSTART + RLENGTH - 1) }
    on != ""' round=$round "$page" >steps
  [ -s steps ] || fail "$page has no steps"
  if [ "$2" != none ]; then
    free_port
    sed -i "s/\b$2\b/$port/g" steps
  fi
  {
    echo 'set -e; sudo() { "$@"; }; set -x'
    cat steps
  } >script
  # what it starts ends with the namespace
  status env PATH="$(dirname "$luapulse"):$PATH" unshare --mount --pid --mount-proc --fork --kill-child bash script
  cd "$folder" || fail "folder"
  mv "$1/out" "$1/err" .
}
# shown TEXT…: every step has worked, and the output has these
shown() {
  same "$status" 0 "status of the steps: $(tail -n 60 err out)"
  for text in "$@"; do has out "$text"; done
}

test_openresty() {
  until_seen 'shown app.render "main chunk" "content_by_lua(nginx.conf:21)" escape' walk_through openresty 8080
  [ -s openresty/nginx.html ] || fail "no page"
}
test_redis() {
  until_seen 'shown "user_script:$(cat redis/sha)" user_function:2 "layout \"Lua 5.1.5 of Redis 7\""' walk_through redis 6399
}
test_containers() {
  until_seen 'shown "(1 in its container): lua5.4 /mnt/app.lua" /mnt/app.lua:1 pick' walk_through containers none
}
test_embedding() {
  until_seen 'shown "layout    \"Lua 5.4" shop.price total' walk_through embedding none
}

attach_main "$@"
