#!/bin/sh
# PID 1 of the emulated machine (busybox sh, from the initrd that scripts/with-hypervisor builds). It puts the host's file system
# under a writable layer, runs one command on it, and carries that command's streams, signals and exit code over virtio ports.
# The other end of every port is scripts/lib/emulator.mjs.
export PATH=/bin:/usr/bin
/bin/busybox --install -s /bin

state=/state # ours; COMMAND does not see it, its root is another
root=/root
limit=/cgroup/command

die() { # no port to say it on yet: the console is shown when the machine ends without a word
  echo "emulator-init: $*"
  reboot -f
}

load() { # the modules that the list names, in its order
  while read -r module; do
    insmod "/modules/$module" || echo "emulator-init: cannot load $module"
  done <"/modules-$1"
}

mount_basics() {
  mkdir -p /dev /proc /sys /cgroup /lower /layer "$root" "$state"
  mount -t devtmpfs devtmpfs /dev && mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
    mount -t cgroup2 cgroup2 /cgroup && mkdir "$limit"
}

# Every path is the host's; what is written stays in memory. redirect_dir lets a folder of the host's be renamed.
mount_root() {
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /lower &&
    mount -t tmpfs -o mode=755,size=75% tmpfs /layer && mkdir /layer/upper /layer/work &&
    mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work,redirect_dir=on overlay "$root"
}

mount_system() {
  cd "$root" && mkdir -p dev proc sys run tmp &&
    mount -t devtmpfs devtmpfs dev && mkdir -p dev/shm dev/pts &&
    mount -t tmpfs -o mode=1777 tmpfs dev/shm && mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts dev/pts &&
    mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t tmpfs -o mode=755 tmpfs run && mkdir -m 1777 run/lock &&
    ln -sf /proc/self/fd dev/fd && ln -sf fd/0 dev/stdin && ln -sf fd/1 dev/stdout && ln -sf fd/2 dev/stderr &&
    # Moved onto / (and not only entered), since the kernel grants no user namespaces to a process in a plain chroot.
    # From here on the host's root is our working directory: "/" stays the initrd's.
    mount --move . /
}

# The ports have fixed numbers. A device appears a moment after its driver is loaded.
port() {
  waited=0
  while set -- "$1" /dev/vport*p"$1" && [ ! -c "$2" ]; do
    usleep 5000
    waited=$((waited + 1))
    [ "$waited" -lt 4000 ] || die "there is no port $1"
  done
  echo "$2"
}

# Reading a port says "end" while the host is not connected yet; writing to one waits for it. So: write first.
greet() { echo ready; }

note_pid() { # of the shell that calls, subshells included, for which $$ is the parent's
  read -r pid _ </proc/self/stat
  echo "$pid" >"$state/$1"
}

send_signal() { # send_signal NAME: an interrupt to COMMAND's whole group, as a terminal does; others to COMMAND alone, as kill does
  pid=$(cat "$state/command")
  [ "$1" = INT ] && kill -s INT "-$pid" 2>/dev/null && return
  kill -s "$1" "$pid"
}

listen() { # what the host asks for while COMMAND runs
  while read -r word argument; do
    case $word in
      signal) send_signal "$argument" ;;
      close) kill -s KILL "$(cat "$state/drain-$argument")" ;; # nobody reads this stream any more: COMMAND gets SIGPIPE
    esac
  done <&5
  reboot -f # the host has gone
}

feed() { # host's stdin to COMMAND's
  note_pid feed
  exec cat <&6
}

drain() { # drain NAME PORT: one output of COMMAND's to the host, then the mark that tells the host that it has all
  {
    (note_pid "drain-$1" && exec cat)
    printf %s "$mark"
  } >"$2"
}

supervise() { # runs COMMAND; its stderr is our 3
  # In the foreground, since sh would have a background command ignore interrupts.
  (
    echo 0 >"$limit/cgroup.procs"
    note_pid command
    chown "$owner" /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2
    echo started >&5
    run 5>&- 6>&- 8>&-
  ) 2>&3 3>&-
  echo $? >"$state/code"
  # What COMMAND left running would keep its outputs open; nothing outlives the machine anyway.
  echo 1 >"$limit/cgroup.kill"
  until [ -s "$state/feed" ]; do usleep 1000; done
  kill -s KILL "$(cat "$state/feed")"
}

mount_basics || die "cannot mount the basics"
load hypervisor &
hypervisor=$!
load machine
mount_root || die "cannot mount the host's file system"
mount_system || die "cannot mount the system's folders"
ip link set lo up
hostname localhost
ulimit -Hn 1048576

command=$(port 1) control=$(port 2) stdin=$(port 3) stdout=$(port 4) stderr=$(port 5)
exec 5<>"$control" 6<>"$stdin" 8>&2
{ greet >&4 && cat <&4 >/command; } 4<>"$command"
mark='' owner='' # the host sets these, and says what "prepare" and "run" do
# shellcheck source=/dev/null
. /command || die "cannot read the command"
wait "$hypervisor"
chmod 666 /dev/kvm || die "KVM did not start"
prepare || die "cannot prepare the results folder"
listen &
greet >&6

# Anonymous pipes, not named ones: /dev/stdin of a named one cannot be opened again once its writer has gone.
feed 2>&8 | { supervise 2>&8 3>&1 >&7 7>&- | drain stderr "$stderr" 2>&8 7>&-; } 7>&1 | drain stdout "$stdout"
[ -s "$state/code" ] || die "the command has killed what carries its streams"
sync
echo "exit $(cat "$state/code")" >&5
while :; do sleep 1000; done # until the host, which may still be reading, switches the machine off
