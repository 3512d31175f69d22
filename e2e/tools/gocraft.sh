#!/usr/bin/env bash
# Builds our small front end of the work queue gocraft/work, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
go_module gocraft "$GOCRAFT_WORK_VERSION" .
