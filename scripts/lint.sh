#!/usr/bin/env bash
# Every rule that a machine can check. One line per step that fails, nothing else to read when green.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$(e2e/tools/cargo.sh):$PATH"
failed=0

check() { # name command…: runs quietly, shows the output when it fails
  local name=$1 out
  shift
  if ! out=$("$@" 2>&1); then
    printf 'lint: %s\n%s\n' "$name" "$out" >&2
    failed=1
  fi
}

# Dependencies point one way: see ARCHITECTURE.md.
direction() {
  local bad=0
  depends() { cargo tree --package "$1" --edges normal --prefix none --format '{p}' | sed 's/ .*//' | sort -u; }
  forbid() { # crate, forbidden crates…
    local crate=$1
    shift
    for other in "$@"; do
      if depends "$crate" | grep -qx "$other"; then
        echo "$crate must not depend on $other"
        bad=1
      fi
    done
  }
  forbid crds tokio kube-client kube-runtime runtime operator testbed bench soak image
  forbid runtime operator testbed e2e bench soak kube-client image
  forbid operator testbed e2e bench soak image
  forbid checksum operator kube-client testbed e2e bench soak image
  forbid workqueue crds runtime operator checksum testbed e2e bench soak image
  forbid testbed operator runtime e2e bench soak image
  forbid e2e operator runtime bench soak image
  forbid bench e2e soak image
  forbid soak operator runtime bench image
  forbid image crds runtime operator testbed e2e bench soak
  return $bad
}

# Each crate must compile with the features it asks for itself, not with those a neighbour turns on.
alone() {
  for crate in crds runtime operator workqueue checksum testbed e2e bench soak image; do
    cargo check --quiet --package "$crate" || return 1
  done
}

# Objects are written by these files only; clippy cannot tell a read from a write.
writers() {
  local found
  found=$(grep -rnE '\.(patch|patch_status|replace|create|delete)\(' operator/src --include='*.rs' |
    grep -vE '^operator/src/(act|report|leader)\.rs:' | grep -vE 'self\.writer\.|\.reporter\.' || true)
  [ -z "$found" ] || { echo "objects are written outside act.rs, report.rs and leader.rs:"; echo "$found"; return 1; }
}

shell_scripts() {
  local script
  for script in scripts/*.sh e2e/tools/*.sh e2e/engines/*.sh .ci/run; do
    bash -n "$script" || return 1
  done
  for script in e2e/engines/*/*; do
    [[ $(head -n 1 "$script") != '#!/bin/sh' ]] || sh -n "$script" || return 1
  done
}

generated() { # with the features of the whole workspace, as tests are built
  cargo build --quiet --workspace --example generate && "${CARGO_TARGET_DIR:-target}/debug/examples/generate" --check
}

sizes() { # a report, not a rule: a long file is a question to its author
  git ls-files '*.rs' | grep -vE '(^|/)tests(/|\.rs$)' | while read -r file; do
    lines=$(awk '/^#\[cfg\(test\)\]/{exit} {n++} END{print n+0}' "$file")
    [ "$lines" -le 400 ] || printf 'lint: %s has %s lines without its tests\n' "$file" "$lines"
  done
}

check "formatting: run cargo fmt" cargo fmt --all --check
# Denied here rather than by RUSTFLAGS, which would build every dependency twice.
check "clippy" cargo clippy --quiet --workspace --all-targets -- -D warnings
# cargo-deny looks at the crates of every platform, a build fetches those of one.
check "fetching crates" cargo fetch --quiet --locked
check "licences, bans and sources" cargo deny --log-level error --offline check bans licenses sources
check "dependency direction" direction
check "a crate does not compile alone" alone
check "writes in the wrong place" writers
check "shell scripts" shell_scripts
check "generated files: run make generate" generated
sizes
exit $failed
