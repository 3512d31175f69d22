#!/usr/bin/env bash
# Builds CoreDNS from its Go module, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
go_module coredns "$COREDNS_VERSION" github.com/coredns/coredns
