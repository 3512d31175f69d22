#!/usr/bin/env bash
# Builds what benchmarks compare with, once per version, and prints the folder that holds it.
# Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

source=$here/../bench/peers/controller-runtime
key=$(cat "$source"/*.{go,mod,sum} | sha256sum | cut -c1-12)
out=$(cache_dir)/peers-controller-runtime-$CONTROLLER_RUNTIME_VERSION-$key

build_all() { # into $1
  local go
  go=$(go_toolchain)
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-trimpath
  say "building the peer with controller-runtime $CONTROLLER_RUNTIME_VERSION from Go modules, once: about 2 minutes on two cores"
  step controller-runtime "$go" -C "$source" build -ldflags "-s -w" -o "$1/controller-runtime" .
}

once "$out" build_all 2000
echo "$out"
