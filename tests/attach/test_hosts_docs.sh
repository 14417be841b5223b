# The walk-throughs are true: their files are written and their commands run, in order, as they stand on the page, where nobody else is.
source "$(dirname "$0")/hosts.sh"

# walk_through PAGE [PORT]: its blocks as one script. "```sh" is run, "```lua file=app.lua" is a file; the port is replaced by a free one.
walk_through() {
  local page=$root/docs/$1.md
  mkdir "$1" && cd "$1" || fail "folder"
  chmod 777 .
  awk '
    /^```[a-z]+ file=/ { sub(/.*file=/, ""); print "cat >" $0 " <<\"END OF FILE\""; on = "file"; next }
    /^```sh$/ { on = "sh"; next }
    /^```/ { if (on == "file") print "END OF FILE"; on = ""; next }
    on != ""' "$page" >steps
  [ -s steps ] || fail "$page has no steps"
  if [ -n "${2:-}" ]; then
    free_port
    sed -i "s/\b$2\b/$port/g" steps
  fi
  {
    echo 'set -e; sudo() { "$@"; }; set -x'
    cat steps
  } >script
  # what it starts ends with the namespace
  status env PATH="$(dirname "$luapulse"):$PATH" unshare --mount --pid --mount-proc --fork --kill-child bash script
  [ "$status" = 0 ] || { tail -n 60 err out >&2; fail "a step of $1.md fails: status $status"; }
}

test_openresty() {
  walk_through openresty 8080
  has out app.render
  has out "main chunk"
  has out "content_by_lua(nginx.conf:21)"
  has out "escape"
  [ -s nginx.html ] || fail "no page"
}
test_redis() {
  walk_through redis 6399
  has out "user_script:$(cat sha)"
  has out "user_function:2"
  has out 'layout "Lua 5.1.5 of Redis 7"'
}
test_containers() {
  walk_through containers
  has out "(1 in its container): lua5.4 /mnt/app.lua"
  has out "/mnt/app.lua:1"
  has out "pick"
}
test_embedding() {
  walk_through embedding
  has out 'layout    "Lua 5.4'
  has out "shop.price"
  has out "total"
}

attach_main "$@"
