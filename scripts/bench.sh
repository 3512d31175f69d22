#!/usr/bin/env bash
# Measures one topic, or all of them: what we cost beside others. Prints a table and writes docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/prepare.sh
[ -n "${1:-}" ] && [ "$1" != install ] || scripts/prepare.sh run
# What is installed and what reads files is measured as it is shipped.
[ "${1:-}" = operator ] || scripts/image.sh
cargo build --quiet --release --package operator --package bench --bins
exec "${CARGO_TARGET_DIR:-target}/release/bench" ${1:+"$1"}
