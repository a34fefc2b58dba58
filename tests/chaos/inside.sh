#!/bin/sh
# inside.sh DIRECTORY PROGRAM ARGUMENTS…, in a mount namespace of its own: what makes containers cheap.
set -eu
if [ "${CHAOS_CGROUP:-}" = 2 ]; then
    # runc goes by what is mounted here. Where the machine has its controllers in version 1, this hierarchy has none of
    # them; processes are in groups all the same.
    umount -R /sys/fs/cgroup
    mount -t cgroup2 chaos /sys/fs/cgroup
else
    # Of the controllers of version 1 one is enough for runc; each costs every container a directory.
    for dir in /sys/fs/cgroup/*; do
        case $dir in
        */devices | */devices,*) ;;
        *) if mountpoint -q "$dir"; then umount "$dir"; fi ;;
        esac
    done
fi
# containerd keeps sockets there, wherever its state is.
mkdir -p /run/containerd
mount -t tmpfs -o mode=0755 chaos /run/containerd
mount -t tmpfs -o mode=0755 chaos "$1"
shift
exec "$@"
