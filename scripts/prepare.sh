#!/usr/bin/env bash
# Installs or builds what tests need beside Rust, once; a second run says nothing and takes no time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh

# command or file, Debian package
needs=(
  "cc gcc"
  "setpriv util-linux"
  "flock util-linux"
  "curl curl"
  "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 libfaketime"
)

missing=()
for need in "${needs[@]}"; do
  read -r what package <<<"$need"
  [ -e "$what" ] || command -v "$what" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "missing packages, install them as root: apt-get install ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  step apt-get-update apt-get update -qq
  step apt-get-install env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

command -v cargo >/dev/null || die "cargo is needed: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"
e2e/tools/cargo.sh >/dev/null
e2e/tools/kubernetes.sh >/dev/null
