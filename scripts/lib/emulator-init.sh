#!/bin/sh
# PID 1 of the emulated machine (busybox sh, from the initrd that scripts/with-hypervisor builds). It mounts the host's file system under a
# writable layer, runs one command on it, and transfers the command's streams, signals and exit code over virtio ports.
# scripts/lib/emulator.mjs is at the other end of each port.
export PATH=/bin:/usr/bin
/bin/busybox --install -s /bin

state=/state # only for this script; COMMAND has another root and does not see it
root=/root
limit=/cgroup/command

die() { # prints to the console, which the host shows if the machine ends unexpectedly
  echo "emulator-init: $*"
  reboot -f
}

load() { # loads the modules of a list, in its order
  while read -r module; do
    insmod "/modules/$module" || echo "emulator-init: cannot load $module"
  done <"/modules-$1"
}

mount_basics() {
  mkdir -p /dev /proc /sys /cgroup /lower /layer "$root" "$state"
  mount -t devtmpfs devtmpfs /dev && mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
    mount -t cgroup2 cgroup2 /cgroup && mkdir "$limit"
}

# All paths are those of the host. Written files stay in memory. redirect_dir allows a folder of the host to be renamed.
mount_root() {
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /lower &&
    mount -t tmpfs -o mode=755,size=75% tmpfs /layer && mkdir /layer/upper /layer/work &&
    mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work,redirect_dir=on overlay "$root"
}

mount_system() {
  cd "$root" && mkdir -p dev proc sys run tmp &&
    mount -t devtmpfs devtmpfs dev && mkdir -p dev/shm dev/pts &&
    mount -t tmpfs -o mode=1777 tmpfs dev/shm && mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts dev/pts &&
    mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup && mount -t tmpfs -o mode=755 tmpfs run && mkdir -m 1777 run/lock &&
    ln -sf /proc/self/fd dev/fd && ln -sf fd/0 dev/stdin && ln -sf fd/1 dev/stdout && ln -sf fd/2 dev/stderr &&
    # The new root is moved onto / and not only entered, as the kernel refuses user namespaces to a process in a plain chroot. After the
    # move, the host's root is the working directory, and "/" is still the initrd's root.
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

# While the host is not connected, reading a port returns the end of the input, but writing to it waits. So a port is written to first.
greet() { echo ready; }

note_pid() { # stores the id of the calling shell; in a subshell, $$ would be the id of its parent
  read -r pid _ </proc/self/stat
  echo "$pid" >"$state/$1"
}

send_signal() { # send_signal NAME: sends INT to COMMAND's process group as a terminal does, and other signals only to COMMAND
  pid=$(cat "$state/command")
  [ "$1" = INT ] && kill -s INT "-$pid" 2>/dev/null && return
  kill -s "$1" "$pid"
}

listen() { # carries out the host's requests while COMMAND runs
  while read -r word argument; do
    case $word in
      signal) send_signal "$argument" ;;
      close) kill -s KILL "$(cat "$state/drain-$argument")" ;; # the reader of this stream has gone, so COMMAND gets SIGPIPE
    esac
  done <&5
  reboot -f # the host has gone
}

feed() { # copies the host's stdin to COMMAND's stdin
  note_pid feed
  exec cat <&6
}

drain() { # drain NAME PORT: copies an output of COMMAND to the host, then the mark that ends the output
  {
    (note_pid "drain-$1" && exec cat)
    printf %s "$mark"
  } >"$2"
}

supervise() { # runs COMMAND, with file descriptor 3 as its stderr
  # The command runs in the foreground, as sh would make a background command ignore interrupts.
  (
    echo 0 >"$limit/cgroup.procs"
    note_pid command
    chown "$owner" /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2
    echo started >&5
    run 5>&- 6>&- 8>&-
  ) 2>&3 3>&-
  echo $? >"$state/code"
  # Processes that COMMAND left running would keep its outputs open. They are killed, as nothing survives the machine anyway.
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
mark='' owner='' # /command from the host sets these, and defines "prepare" and "run"
# shellcheck source=/dev/null
. /command || die "cannot read the command"
wait "$hypervisor"
chmod 666 /dev/kvm || die "KVM did not start"
prepare || die "cannot prepare the results folder"
listen &
greet >&6

# The pipes are anonymous: /dev/stdin of a named pipe cannot be opened again after its writer has ended.
feed 2>&8 | { supervise 2>&8 3>&1 >&7 7>&- | drain stderr "$stderr" 2>&8 7>&-; } 7>&1 | drain stdout "$stdout"
[ -s "$state/code" ] || die "the command has killed what carries its streams"
sync
echo "exit $(cat "$state/code")" >&5
while :; do sleep 1000; done # waits until the host has read the outputs and switches the machine off
