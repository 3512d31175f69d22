#!/usr/bin/env bash
# Builds promtool from the Prometheus module, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
# The service discoveries of every cloud are most of the program, and rules need none of them.
GO_TAGS=remove_all_sd go_module promtool "$PROMETHEUS_VERSION" github.com/prometheus/prometheus/cmd/promtool
