#!/usr/bin/env bash
# Builds Helm from its Go module, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
version=helm.sh/helm/v4/internal/version
GO_LDFLAGS="-X $version.version=$HELM_VERSION -X $version.gitTreeState=clean" go_module helm "$HELM_VERSION" helm.sh/helm/v4/cmd/helm
