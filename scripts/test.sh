#!/usr/bin/env bash
# Everything, or with an argument one crate (crds, operator, runtime, testbed, e2e) or one topic
# (a part of a test's or test file's name). Quiet when green.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
only=${1:-}

scripts/prepare.sh
PATH="$(e2e/tools/cargo.sh):$PATH"

crates=$(cargo metadata --no-deps --format-version 1 | sed 's/"name":"/\n&/g' | sed -n 's/^"name":"\([a-z0-9]*\)","version".*/\1/p')
selection=(--workspace)
if [ -n "$only" ] && grep -qx "$only" <<<"$crates"; then
  selection=(--package "$only")
elif [ -n "$only" ]; then
  filter="test(/$only/)"
  # nextest takes no name that no test file has.
  files=$(git ls-files | grep -v /src/ | sed -nE 's#.*/tests/([^/]+)(/main)?\.rs$#\1#p')
  ! grep -qE "$only" <<<"$files" || filter+=" or binary(/$only/)"
  selection=(--workspace --filterset "$filter")
else
  scripts/lint.sh
fi

# Binaries and examples are what the process tests start.
cargo build --quiet --workspace --bins --examples
testbed=${CARGO_TARGET_DIR:-target}/debug/testbed
"$testbed" archives
profile=${CI:+ci}
"$testbed" run -- \
  cargo nextest run --cargo-quiet --profile "${profile:-default}" --no-tests=fail "${selection[@]}"
