#!/usr/bin/env bash
# Prints the java command to use: JAVA_HOME's, the one in PATH, or an installed one, whichever first has the right version.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
java_command
