#!/usr/bin/env bash
# Builds the kubelet and kube-proxy from Go modules, once per version, and prints the folder that holds them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

key=$({ cat "$here"/kubernetes/go.{mod,sum}; echo "$KUBERNETES_BUILD_DATE"; } | sha256sum | cut -c1-12)
out=$(cache_dir)/node-$KUBERNETES_VERSION-$key

build_all() { # into $1
  local go
  go=$(go_toolchain)
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-trimpath
  say "building the kubelet and kube-proxy $KUBERNETES_VERSION from Go modules, once"
  build_kubernetes "$go" "$1" kubelet kube-proxy
}

once "$out" build_all 3000
echo "$out"
