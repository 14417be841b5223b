# Packages of Debian as files, of this release or another, for this processor or another: nothing is installed. For who sources it:
# scripts/newer and tests/machines.

# apt_apart FOLDER: from here on apt has its state and its cache there, and nothing of this machine's but where packages come from and whom it
# trusts. What stands on standard input is added to its configuration.
apt_apart() {
  local folder
  mkdir -p "$1"/{lists,cache/archives}/partial && touch "$1/status" && folder=$(cd "$1" && pwd) || return 1
  {
    echo "Dir::State::lists \"$folder/lists\";"
    echo "Dir::State::status \"$folder/status\";"
    echo "Dir::Cache \"$folder/cache\";"
    echo 'APT::Sandbox::User "root";'
    echo 'Acquire::Languages "none";'
    cat
  } >"$folder/conf" && export APT_CONFIG=$folder/conf
}

# What apt knows may be old, or nothing at all.
update() {
  if [ "$(id -u)" -eq 0 ] || [ -n "${APT_CONFIG:-}" ]; then apt-get -qq update; else sudo apt-get -qq update; fi
}

# download FOLDER PACKAGE…: Debian's packages, as files there
download() {
  local folder=$1
  shift
  mkdir -p "$folder" && (cd "$folder" && { apt-get -qq download "$@" || { update && apt-get -qq download "$@"; }; }) >"$folder.apt" 2>&1 ||
    { cat "$folder.apt" >&2; return 1; }
}

# unpacked FOLDER PACKAGE…: their files are in the folder then, but nothing of what their scripts would do is done
unpacked() {
  local folder=$1 file
  shift
  [ -e "$folder/complete" ] && return
  rm -rf "$folder" "$folder.packages" && mkdir -p "$folder" && download "$folder.packages" "$@" || return 1
  for file in "$folder.packages"/*.deb; do dpkg-deb -x "$file" "$folder" || return 1; done
  rm -r "$folder.packages" && touch "$folder/complete"
}
