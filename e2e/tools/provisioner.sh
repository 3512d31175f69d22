#!/usr/bin/env bash
# Builds the local path provisioner from its Go module, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
go_module provisioner "$PROVISIONER_VERSION" github.com/rancher/local-path-provisioner
