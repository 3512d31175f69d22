# The first process of a node, in mount and pid namespaces of its own: when it ends, the kernel ends every process and
# undoes every mount in it. $1 is the node's folder.
set -eu

# Paths that containerd, runc, CNI and the kubelet have built in.
for folder in /run /var/lib /var/log; do
  mount -t tmpfs -o mode=755 tmpfs "$folder"
done

# What the kubelet wants of the whole machine looks as if it were set already.
mkdir -p "$1/sysctl"
while read -r file value; do
  [ -e "/proc/sys/$file" ] || continue
  seen=$1/sysctl/${file//\//.}
  echo "$value" >"$seen"
  mount --bind "$seen" "/proc/sys/$file"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

echo "the box is ready"
# Orphans become children of this process, and bash buries them.
while :; do
  sleep infinity &
  wait $!
done
