#!/usr/bin/env bash
# Builds or installs what a topic of the benchmarks compares with, once per version, and prints the folder that holds it.
# Which topic, is the argument: operator or checksum. Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

build_controller() { # into $1
  local go
  go=$(go_toolchain)
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-trimpath
  say "building the peer with controller-runtime $CONTROLLER_RUNTIME_VERSION from Go modules, once: about 2 minutes on two cores"
  step controller-runtime "$go" -C "$source" build -ldflags "-s -w" -o "$1/controller-runtime" .
}

install_sums() { # into $1
  command -v python3 >/dev/null || die "python3 is needed to install bitrot: apt-get install python3 python3-pip"
  say "installing b3sum $B3SUM_VERSION and bitrot $BITROT_VERSION, once: about a minute on two cores"
  # The caller may be `make`, which exports RUSTFLAGS for our own code; the tools are not ours to lint.
  unset RUSTFLAGS CARGO_TARGET_DIR
  step b3sum cargo install --quiet --locked --root "$1" --target-dir "$1/target" "b3sum@$B3SUM_VERSION"
  rm -rf "$1/target"
  step bitrot python3 -m pip install --quiet --no-deps --target "$1/python" "bitrot==$BITROT_VERSION"
}

case ${1:-} in
  operator)
    source=$here/../bench/peers/controller-runtime
    key=$(cat "$source"/*.{go,mod,sum} | sha256sum | cut -c1-12)
    out=$(cache_dir)/peers-controller-runtime-$CONTROLLER_RUNTIME_VERSION-$key
    once "$out" build_controller 2000
    ;;
  checksum)
    out=$(cache_dir)/peers-b3sum-$B3SUM_VERSION-bitrot-$BITROT_VERSION
    once "$out" install_sums 1000
    ;;
  *) die "peers.sh knows operator and checksum, not '${1:-}'" ;;
esac
echo "$out"
