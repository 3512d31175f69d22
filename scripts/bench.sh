#!/usr/bin/env bash
# Prints memory and CPU of the operator's core, measured on a real API server with a release build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/prepare.sh
cargo build --quiet --release --package operator --bin orrery-operator --example footprint
cargo run --quiet --package testbed -- run -- target/release/examples/footprint
