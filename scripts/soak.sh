#!/usr/bin/env bash
# Long runs under faults that a seed decides; topic, seed and minutes may be empty. Results go to docs/soak.
# Debug builds: they check what release builds take for granted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
topic=${1:-} seed=${2:-} minutes=${3:-}

scripts/prepare.sh
cargo build --quiet --package operator --package soak --bins
export ORRERY_OPERATOR=${ORRERY_OPERATOR:-$PWD/target/debug/orrery-operator}
exec cargo run --quiet --package soak -- --topic "$topic" --seed "$seed" --minutes "$minutes"
