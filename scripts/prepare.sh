#!/usr/bin/env bash
# Installs or builds what tests need beside Rust, once; a second run says nothing and takes no time.
# With the argument `node` also what runs pods.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh

# command or file, Debian package
needs=(
  "cc gcc"
  "musl-gcc musl-tools"
  "setpriv util-linux"
  "flock util-linux"
  "curl curl"
  "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 libfaketime"
  "ip iproute2"
  "nsenter util-linux"
  "mvn maven"
  "mariadbd mariadb-server"
  "redis-server redis-server"
  "psql postgresql-client"
  "python3 python3"
)
tools=(java kubernetes cassandra kafka helm promtool kstatus glua)
if [ "${1:-}" = node ]; then
  needs+=(
    "containerd containerd"
    "runc runc"
    "/usr/lib/cni/bridge containernetworking-plugins"
    "/usr/sbin/iptables iptables"
    "/usr/sbin/conntrack conntrack"
    "busybox busybox-static"
  )
  tools+=(node coredns provisioner webhook)
fi
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || needs+=("postgresql-server postgresql")
e2e/tools/java.sh >/dev/null 2>&1 || needs+=("java-$JAVA_MAJOR openjdk-$JAVA_MAJOR-jre-headless")

missing=()
for need in "${needs[@]}"; do
  read -r what package <<<"$need"
  [ -e "$what" ] || command -v "$what" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "missing packages, install them as root: apt-get install ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  # The servers are started by tests, with folders and ports of their own: the packages must not start any.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  step apt-get-update apt-get update -qq
  step apt-get-install env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

command -v cargo >/dev/null || die "cargo is needed: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"
e2e/tools/cargo.sh >/dev/null
for tool in "${tools[@]}"; do
  "e2e/tools/$tool.sh" >/dev/null
done
