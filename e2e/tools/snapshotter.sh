#!/usr/bin/env bash
# Builds the snapshot controller from its Go module, once per version, takes the definitions it needs from the module of its
# client, and prints the folder that holds both.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

definitions() { # go folder
  local client
  client=$("$1" -C "$here/snapshotter" list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)
  install -D -m 644 -t "$2/crd" "$client"/config/crd/snapshot.storage.k8s.io_*.yaml
}

GO_ALSO=definitions go_module snapshotter "$SNAPSHOTTER_VERSION" github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller
