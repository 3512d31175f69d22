#!/usr/bin/env bash
# Builds glua, the interpreter of gopher-lua, once per version, and prints the folder that holds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
go_module glua "$GOPHER_LUA_VERSION" github.com/yuin/gopher-lua/cmd/glua
