# Virtual machines to test in: what tests/machines/kernels and tests/machines/arm64 share, which source this file. The processor is emulated:
# that takes no rights, and some patience.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
PATH=$PATH:/usr/sbin:/sbin
most_seconds=3600 # for one machine: beyond that it has hung
passed=0 failed=0
source scripts/packages.sh

die() {
  echo "tests/machines: $*" >&2
  exit 2
}

# What a kernel starts: it has no disk, and mounts the files it is given, with folders of its own where tests write.
make_first_program() { # FOLDER
  cat >"$1/init" <<'INIT'
#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
while read -r module; do
  case $module in
    *.xz) xz -dc "/modules/$module" >/module && insmod /module ;;
    *) insmod "/modules/$module" ;;
  esac
done </modules/order
given() { sed "s/.*luapulse\.$1=\([^ ]*\).*/\1/" /proc/cmdline; }
folder=$(given folder)
files() { mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose "$1" "$2"; }
mkdir /top
files files /top
mount -t proc proc /top/proc && mount -t sysfs sys /top/sys && mount -t devtmpfs dev /top/dev
mkdir -p /top/dev/pts /top/dev/shm && ln -s /proc/self/fd /top/dev/fd
for place in /dev/shm /run /tmp; do mount -t tmpfs memory /top$place; done
mount -t devpts pts /top/dev/pts
chmod 1777 /top/tmp
mkdir -p "/top$folder" # it may have been in /tmp
files project "/top$folder"
ip link set lo up
chroot /top /bin/bash "$folder/$(given inside)" </dev/null >/dev/console 2>&1
poweroff -f
INIT
  chmod 755 "$1/init"
}

# make_initrd KERNEL BUSYBOX: of an unpacked kernel, and of a static busybox for its processor
make_initrd() {
  local kernel=$1 version root=$1/initrd module
  version=$(ls "$kernel/lib/modules") && rm -rf "$root" && mkdir -p "$root"/{bin,dev,modules,proc,sys} || return 1
  cp "$2" "$root/bin/busybox" && ln -s busybox "$root/bin/sh" && depmod -b "$kernel" "$version" || return 1
  for module in virtio_pci 9pnet_virtio 9p; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$root/modules/" && basename "$file"
  done >"$root/modules/order"
  [ -s "$root/modules/order" ] || return 1
  make_first_program "$root"
  (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$kernel/initrd.gz"
}

# in_machine KERNEL FILES INSIDE CONSOLE QEMU…: runs the script INSIDE, of this project, in a machine whose files are those in FILES. Shows what
# its tests say, and counts them.
in_machine() {
  local kernel=$1 files=$2 inside=$3 console=$4 counted_passed counted_failed _
  shift 4
  timeout $most_seconds "$@" -smp 2 -nographic -monitor none -no-reboot \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$kernel/initrd.gz" \
    -append "console=$console quiet panic=-1 luapulse.folder=$PWD luapulse.inside=$inside" \
    -virtfs "local,path=$files,mount_tag=files,security_model=none,readonly=on,multidevs=remap" \
    -virtfs "local,path=$PWD,mount_tag=project,security_model=none,readonly=on,multidevs=remap" </dev/null |
    sed -u 's/\r//' | tee "$kernel/console" | grep --line-buffered -E '^(kernel|ok|NOT OK|skipped| +\|)'
  grep -q '^the end$' "$kernel/console" || { tail -n 20 "$kernel/console"; failed=$((failed + 1)); }
  while read -r counted_passed _ counted_failed _; do
    passed=$((passed + counted_passed)) failed=$((failed + counted_failed))
  done < <(grep -E '^[0-9]+ passed, [0-9]+ failed' "$kernel/console")
}

# The last line, and the status.
end() {
  echo
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
