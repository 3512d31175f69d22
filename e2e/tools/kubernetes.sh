#!/usr/bin/env bash
# Builds the pinned etcd and Kubernetes binaries from Go modules, once per version,
# and prints the folder that holds them. Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

binaries=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
key=$({ cat "$here"/{kubernetes,etcd}/go.{mod,sum}; echo "${binaries[*]} $KUBERNETES_BUILD_DATE"; } | sha256sum | cut -c1-12)
out=$(cache_dir)/kubernetes-$KUBERNETES_VERSION-$key

build_all() { # into $1
  local go
  go=$(go_toolchain)
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-trimpath
  say "building etcd $ETCD_VERSION and Kubernetes $KUBERNETES_VERSION from Go modules, once: about 10 minutes on two cores, 5 GB of Go caches"
  step etcd "$go" -C "$here/etcd" build -ldflags "-s -w" -o "$1/etcd" go.etcd.io/etcd/server/v3
  build_kubernetes "$go" "$1" "${binaries[@]}"
}

once "$out" build_all 8000
echo "$out"
