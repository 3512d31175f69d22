#!/usr/bin/env bash
# Builds a webhook for pods of tests, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
# It needs nothing but Go.
go_module webhook "$GO_MINIMUM" .
